//! How rows lie in their bytes: field after field, numbers little-endian, texts behind their length.

use bytes::{Buf, Bytes};

/// A text, as the bytes of the row that it was read from.
pub type Text = Bytes;

/// What a row is made of. Bytes come from memory that may be damaged: `take` checks them.
pub trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// None if the bytes are too few.
    fn take(bytes: &mut Bytes) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn take(bytes: &mut Bytes) -> Option<Self> {
                let (head, _) = bytes.split_first_chunk()?;
                let number = <$number>::from_le_bytes(*head);
                bytes.advance(size_of::<$number>());
                Some(number)
            }
        }
    )*};
}

numbers!(u8, u32, u64, i64);

impl Field for Text {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u16).to_le_bytes());
        out.extend_from_slice(self);
    }
    #[inline]
    fn take(bytes: &mut Bytes) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*head));
        if length > rest.len() {
            return None;
        }
        bytes.advance(size_of::<u16>());
        Some(bytes.split_to(length))
    }
}

/// A row of a table.
pub trait Row: Sized {
    const NAME: &str;
    fn encode(&self) -> Vec<u8>;
    /// None if these are not the bytes of such a row. Zeros behind it do not matter.
    fn decode(bytes: Bytes) -> Option<Self>;
}

/// Rows as structures of their fields.
macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$note])* pub $field: $type,)*
        }

        impl $crate::field::Row for $name {
            const NAME: &str = stringify!($name);
            fn encode(&self) -> Vec<u8> {
                let mut out = Vec::new();
                $($crate::field::Field::put(&self.$field, &mut out);)*
                out
            }
            fn decode(mut bytes: bytes::Bytes) -> Option<Self> {
                Some($name {
                    $($field: $crate::field::Field::take(&mut bytes)?,)*
                })
            }
        }
    )*};
}
pub(crate) use rows;
