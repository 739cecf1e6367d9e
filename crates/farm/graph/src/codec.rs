//! What graphs keep in objects and send each other, as bytes: numbers in little-endian order, and what is made of
//! them. Reading checks every length, and never panics.

use plinth_farm_memory::Pointer;

/// What has one encoding.
pub trait Code: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(reader: &mut Reader<'_>) -> Option<Self>;

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// What all of the bytes are.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let whole = reader.get()?;
        reader.0.is_empty().then_some(whole)
    }
}

/// What there are lists of.
pub trait Item: Code {
    /// Most of them in a list.
    const MOST: usize;
}

pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    pub fn get<T: Code>(&mut self) -> Option<T> {
        T::take(self)
    }

    /// A length of four bytes, and so many bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length: u32 = self.get()?;
        self.take(length as usize)
    }
}

pub fn put_count(out: &mut Vec<u8>, count: usize) {
    (count as u32).put(out);
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Code for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(reader: &mut Reader<'_>) -> Option<Self> {
                let bytes = reader.take(size_of::<$type>())?;
                bytes.try_into().ok().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 i64 f64);

impl Code for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        match u8::take(reader)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// A position among the properties of a type: two bytes.
impl Code for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u16).put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        u16::take(reader).map(usize::from)
    }
}

impl Code for Pointer {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Pointer::from_bits(reader.get()?)
    }
}

impl Code for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        reader.bytes().map(<[u8]>::to_vec)
    }
}

impl Code for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        String::from_utf8(reader.get()?).ok()
    }
}

impl<A: Code, B: Code> Code for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some((reader.get()?, reader.get()?))
    }
}

impl<T: Code> Code for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(item) = self {
            item.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        match reader.get()? {
            true => reader.get().map(Some),
            false => Some(None),
        }
    }
}

impl<T: Item> Code for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(out, self.len());
        for item in self {
            item.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let count: u32 = reader.get()?;
        if count as usize > T::MOST {
            return None;
        }
        // No room is taken before there are bytes for it.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(reader.get()?);
        }
        Some(list)
    }
}

/// Says how many of these types a list has at most.
macro_rules! listed {
    ($most:expr; $($type:ty),*) => {$(
        impl $crate::codec::Item for $type {
            const MOST: usize = $most;
        }
    )*};
}

/// Implements [`Code`] for a struct: its fields in this order. For an enum: one byte, the number of the variant, and
/// its fields in this order.
macro_rules! code_for {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Code for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::Code::put(&self.$field, out);)*
            }
            fn take(reader: &mut $crate::codec::Reader<'_>) -> Option<Self> {
                Some($name { $($field: reader.get()?,)* })
            }
        }
    };
    (enum $name:ident {
        $($variant:ident $(($inner:ident: $type:ty))? $({ $($field:ident),* })? = $number:literal,)*
    }) => {
        impl $crate::codec::Code for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {$(
                    $name::$variant $(($inner))? $({ $($field),* })? => {
                        out.push($number);
                        $($crate::codec::Code::put($inner, out);)?
                        $($($crate::codec::Code::put($field, out);)*)?
                    }
                )*}
            }
            fn take(reader: &mut $crate::codec::Reader<'_>) -> Option<Self> {
                Some(match reader.get::<u8>()? {
                    $($number => $name::$variant
                        $((reader.get::<$type>()?))?
                        $({ $($field: reader.get()?,)* })?,)*
                    _ => return None,
                })
            }
        }
    };
}

pub(crate) use {code_for, listed};
