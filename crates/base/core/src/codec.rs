//! The encoding of messages and records: fields in order, little-endian integers, varint lengths.
//!
//! The same encoding serves messages between workers and the few records on coordinators and in the system keyspace.
//! Byte strings are decoded as slices of the input. Input is hostile: every length is checked against the bytes left
//! before anything is allocated, and nothing nests without bound. What is decoded takes at most [`DECODED_MULTIPLE`]
//! times the bytes of its encoding, beside the input itself: a list of what would take more does not compile.

use crate::id::{Tag, Uid};
use crate::key::KeyRange;
use crate::output::Output;
use crate::selector::KeySelector;
use crate::varint;
use bytes::{Buf, BufMut, Bytes};
use std::net::{IpAddr, SocketAddr};

/// Memory of an item of a list, for each byte of its shortest encoding.
pub const DECODED_MULTIPLE: usize = 36;

/// A value with one encoding.
pub trait Codec: Sized {
    /// Bytes of the shortest encoding, or fewer.
    const LEAST: usize = 1;

    fn put(&self, out: &mut Output);
    /// Takes one value off the front of `input`; `None` if it is malformed.
    fn take(input: &mut Bytes) -> Option<Self>;

    /// A random value, which need not make sense: what an attacker may send.
    fn draw(source: &mut dyn Source) -> Self {
        loop {
            let mut input = source.bytes();
            if let Some(value) = Self::take(&mut input) {
                return value;
            }
        }
    }

    fn to_bytes(&self) -> Bytes {
        let mut out = Output::copying();
        self.put(&mut out);
        out.into_bytes()
    }
    /// Decodes a value that fills `input` exactly.
    fn from_bytes(mut input: Bytes) -> Option<Self> {
        let value = Self::take(&mut input)?;
        input.is_empty().then_some(value)
    }
}

/// How a field is encoded whose type has other values than it may have.
pub trait As<T> {
    const LEAST: usize;

    fn put(value: &T, out: &mut Output);
    fn take(input: &mut Bytes) -> Option<T>;
    fn draw(source: &mut dyn Source) -> T;
}

/// A number within these bounds.
pub struct Within<const FIRST: u64, const LAST: u64>;

impl<const FIRST: u64, const LAST: u64> As<u64> for Within<FIRST, LAST> {
    const LEAST: usize = u64::LEAST;
    fn put(value: &u64, out: &mut Output) {
        value.put(out);
    }
    fn take(input: &mut Bytes) -> Option<u64> {
        u64::take(input).filter(|number| (FIRST..=LAST).contains(number))
    }
    fn draw(source: &mut dyn Source) -> u64 {
        FIRST + u64::draw(source) % (LAST - FIRST + 1)
    }
}

/// A source of random values.
pub trait Source {
    /// Below `n`.
    fn below(&mut self, n: u64) -> u64;
    /// Any number, often a significant one; the caller cuts it to fewer bits.
    fn number(&mut self) -> u128;
    fn bytes(&mut self) -> Bytes;
    fn id(&mut self) -> Uid;
    fn address(&mut self) -> SocketAddr;
    /// Number of items for a list.
    fn count(&mut self) -> usize;
}

macro_rules! integers {
    ($($type:ty: $put:ident, $get:ident;)*) => {$(
        impl Codec for $type {
            const LEAST: usize = size_of::<$type>();
            #[inline]
            fn put(&self, out: &mut Output) {
                out.buffer().$put(*self);
            }
            #[inline]
            fn take(input: &mut Bytes) -> Option<Self> {
                input.$get().ok()
            }
            fn draw(source: &mut dyn Source) -> Self {
                source.number() as $type
            }
        }
    )*};
}

integers! {
    u8: put_u8, try_get_u8;
    u16: put_u16_le, try_get_u16_le;
    u32: put_u32_le, try_get_u32_le;
    u64: put_u64_le, try_get_u64_le;
    u128: put_u128_le, try_get_u128_le;
    i32: put_i32_le, try_get_i32_le;
    i64: put_i64_le, try_get_i64_le;
}

impl Codec for () {
    const LEAST: usize = 0;
    fn put(&self, _: &mut Output) {}
    fn take(_: &mut Bytes) -> Option<Self> {
        Some(())
    }
}

impl Codec for bool {
    fn put(&self, out: &mut Output) {
        out.buffer().put_u8(u8::from(*self));
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        match u8::take(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Codec for f64 {
    const LEAST: usize = 8;
    fn put(&self, out: &mut Output) {
        out.buffer().put_f64_le(*self);
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        input.try_get_f64_le().ok()
    }
    fn draw(source: &mut dyn Source) -> Self {
        f64::from_bits(source.number() as u64)
    }
}

/// Takes a varint length; `None` if it exceeds the number of bytes left.
#[inline]
fn take_len(input: &mut Bytes) -> Option<usize> {
    let mut at = 0;
    let len = varint::get_u32(input, &mut at)? as usize;
    input.advance(at);
    (len <= input.len()).then_some(len)
}

fn put_len(len: usize, out: &mut Output) {
    varint::put_u32(
        out.buffer(),
        u32::try_from(len).expect("nothing packed exceeds 4 GiB"),
    );
}

impl Codec for Bytes {
    #[inline]
    fn put(&self, out: &mut Output) {
        put_len(self.len(), out);
        out.put_shared(self);
    }
    #[inline]
    fn take(input: &mut Bytes) -> Option<Self> {
        let len = take_len(input)?;
        Some(input.split_to(len))
    }
    fn draw(source: &mut dyn Source) -> Self {
        source.bytes()
    }
}

impl Codec for String {
    fn put(&self, out: &mut Output) {
        put_len(self.len(), out);
        out.buffer().put_slice(self.as_bytes());
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        String::from_utf8(<Bytes as Codec>::take(input)?.to_vec()).ok()
    }
    fn draw(source: &mut dyn Source) -> Self {
        String::from_utf8_lossy(&source.bytes()).into_owned()
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn put(&self, out: &mut Output) {
        put_len(self.len(), out);
        for item in self {
            item.put(out);
        }
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        const {
            assert!(
                size_of::<T>() <= DECODED_MULTIPLE * T::LEAST,
                "an item takes far more memory than bytes on the wire"
            );
        }
        let count = take_len(input)?;
        if count > input.len() / T::LEAST {
            return None;
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::take(input)?);
        }
        Some(items)
    }
    fn draw(source: &mut dyn Source) -> Self {
        (0..source.count()).map(|_| T::draw(source)).collect()
    }
}

impl<T: Codec> Codec for Option<T> {
    fn put(&self, out: &mut Output) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        Some(if bool::take(input)? {
            Some(T::take(input)?)
        } else {
            None
        })
    }
    fn draw(source: &mut dyn Source) -> Self {
        (source.below(2) == 0).then(|| T::draw(source))
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    const LEAST: usize = A::LEAST + B::LEAST;
    fn put(&self, out: &mut Output) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        Some((A::take(input)?, B::take(input)?))
    }
    fn draw(source: &mut dyn Source) -> Self {
        (A::draw(source), B::draw(source))
    }
}

impl Codec for SocketAddr {
    const LEAST: usize = 7;
    fn put(&self, out: &mut Output) {
        match self.ip() {
            IpAddr::V4(ip) => {
                out.buffer().put_u8(4);
                out.buffer().put_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.buffer().put_u8(6);
                out.buffer().put_slice(&ip.octets());
            }
        }
        out.buffer().put_u16_le(self.port());
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        let ip: IpAddr = match u8::take(input)? {
            4 => input.try_get_u32().ok()?.to_be_bytes().into(),
            6 => input.try_get_u128().ok()?.to_be_bytes().into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, u16::take(input)?))
    }
    fn draw(source: &mut dyn Source) -> Self {
        source.address()
    }
}

impl Codec for Uid {
    const LEAST: usize = 16;
    fn put(&self, out: &mut Output) {
        self.0.put(out);
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        u128::take(input).map(Uid)
    }
    fn draw(source: &mut dyn Source) -> Self {
        source.id()
    }
}

/// What a field's type does for its encoding, or what the type after `as` does.
#[doc(hidden)]
#[macro_export]
macro_rules! encoding {
    ($what:ident, $type:ty) => {
        <$type as $crate::codec::Codec>::$what
    };
    ($what:ident, $type:ty, $as:ty) => {
        <$as as $crate::codec::As<$type>>::$what
    };
}

/// Declares a struct whose encoding is its fields in order. `field: u64 as Within<1, 9>` says how a field is encoded
/// otherwise than its type; see [`As`](codec::As).
#[macro_export]
macro_rules! record {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty $(as $as:ty)?,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        $crate::codec_for!($name { $($field: $type $(as $as)?,)* });
    )*};
}

/// Implements [`Codec`] for an existing struct: its fields in the given order, or the value that it wraps.
#[macro_export]
macro_rules! codec_for {
    ($name:ident($type:ty)) => {
        impl $crate::codec::Codec for $name {
            const LEAST: usize = <$type as $crate::codec::Codec>::LEAST;
            fn put(&self, out: &mut $crate::output::Output) {
                $crate::codec::Codec::put(&self.0, out);
            }
            fn take(input: &mut ::bytes::Bytes) -> Option<Self> {
                <$type as $crate::codec::Codec>::take(input).map($name)
            }
            fn draw(source: &mut dyn $crate::codec::Source) -> Self {
                $name(<$type as $crate::codec::Codec>::draw(source))
            }
        }
    };
    ($name:ident { $($field:ident: $type:ty $(as $as:ty)?,)* }) => {
        impl $crate::codec::Codec for $name {
            const LEAST: usize = 0 $(+ $crate::encoding!(LEAST, $type $(, $as)?))*;
            #[allow(unused_variables)]
            fn put(&self, out: &mut $crate::output::Output) {
                $($crate::encoding!(put, $type $(, $as)?)(&self.$field, out);)*
            }
            #[allow(unused_variables)]
            fn take(input: &mut ::bytes::Bytes) -> Option<Self> {
                $(let $field = $crate::encoding!(take, $type $(, $as)?)(input)?;)*
                Some($name { $($field,)* })
            }
            #[allow(unused_variables)]
            fn draw(source: &mut dyn $crate::codec::Source) -> Self {
                $name {$(
                    $field: $crate::encoding!(draw, $type $(, $as)?)(source),
                )*}
            }
        }
    };
}

/// Declares an enum whose encoding is one byte, the number of the variant, and the variant's fields in order. What a
/// variant holds without a name has one here, as in `Time(message: Message) = 0`.
#[macro_export]
macro_rules! variants {
    ($($(#[$meta:meta])* pub enum $name:ident { $(
        $(#[$variant_meta:meta])*
        $variant:ident
        $(($inner:ident: $inner_type:ty $(as $inner_as:ty)?))?
        $({ $($(#[$field_meta:meta])* $field:ident: $type:ty $(as $as:ty)?),* $(,)? })?
        = $number:literal,
    )* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name { $(
            $(#[$variant_meta])*
            $variant $(($inner_type))? $({ $($(#[$field_meta])* $field: $type,)* })?,
        )* }

        impl $crate::codec::Codec for $name {
            const LEAST: usize = {
                let mut least = usize::MAX;
                $(
                    let bytes = 1
                        $(+ $crate::encoding!(LEAST, $inner_type $(, $inner_as)?))?
                        $($(+ $crate::encoding!(LEAST, $type $(, $as)?))*)?;
                    if bytes < least {
                        least = bytes;
                    }
                )*
                least
            };
            fn put(&self, out: &mut $crate::output::Output) {
                match self {$(
                    $name::$variant $(($inner))? $({ $($field,)* })? => {
                        <u8 as $crate::codec::Codec>::put(&$number, out);
                        $($crate::encoding!(put, $inner_type $(, $inner_as)?)($inner, out);)?
                        $($($crate::encoding!(put, $type $(, $as)?)($field, out);)*)?
                    }
                )*}
            }
            fn take(input: &mut ::bytes::Bytes) -> Option<Self> {
                Some(match <u8 as $crate::codec::Codec>::take(input)? {
                    $($number => $name::$variant
                        $(($crate::encoding!(take, $inner_type $(, $inner_as)?)(input)?))?
                        $({ $($field: $crate::encoding!(take, $type $(, $as)?)(input)?,)* })?,)*
                    _ => return None,
                })
            }
            fn draw(source: &mut dyn $crate::codec::Source) -> Self {
                let draws: &[fn(&mut dyn $crate::codec::Source) -> Self] = &[$(
                    |_source| $name::$variant
                        $(($crate::encoding!(draw, $inner_type $(, $inner_as)?)(_source)))?
                        $({ $($field: $crate::encoding!(draw, $type $(, $as)?)(_source),)* })?,
                )*];
                draws[source.below(draws.len() as u64) as usize](source)
            }
        }
    )*};
}

codec_for!(Tag(u32));
codec_for!(KeyRange {
    begin: Bytes,
    end: Bytes,
});
codec_for!(KeySelector {
    key: Bytes,
    or_equal: bool,
    offset: i32,
});

#[cfg(test)]
mod tests {
    use super::*;

    record! {
        pub struct Sample {
            pub range: KeyRange,
            pub address: SocketAddr,
            pub list: Vec<(Uid, Option<Bytes>)>,
        }
    }

    variants! {
        pub enum Choice {
            Nothing = 0,
            One(sample: Sample) = 1,
            Two { left: u16, right: Option<u64> } = 7,
        }

        #[derive(Copy, Eq)]
        pub enum Bounded {
            One(number: u64 as Within<3, 9>) = 0,
            Other { number: u64 as Within<0, 5> } = 1,
        }
    }

    #[test]
    fn a_number_out_of_bounds_is_refused_and_none_is_drawn() {
        let within = |kind: u8, number: u64| Bounded::from_bytes((kind, number).to_bytes());
        assert_eq!(within(0, 3), Some(Bounded::One(3)));
        assert_eq!(within(0, 9), Some(Bounded::One(9)));
        assert_eq!(within(1, 5), Some(Bounded::Other { number: 5 }));
        for (kind, number) in [(0, 2), (0, 10), (1, 6)] {
            assert_eq!(within(kind, number), None);
        }
        assert_eq!(Bounded::LEAST, 9);
    }

    #[test]
    fn a_variant_is_its_number_and_its_fields_and_another_number_is_refused() {
        let two = Choice::Two {
            left: 0x0102,
            right: Some(3),
        };
        let bytes = two.to_bytes();
        assert_eq!(bytes[..], [7, 2, 1, 1, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Choice::from_bytes(bytes.clone()), Some(two));
        for cut in 0..bytes.len() {
            assert_eq!(Choice::from_bytes(bytes.slice(..cut)), None);
        }
        assert_eq!(Choice::Nothing.to_bytes()[..], [0]);
        assert_eq!(Choice::from_bytes(Bytes::from_static(&[2])), None);
        assert_eq!(Choice::LEAST, 1);
    }

    #[test]
    fn a_record_comes_back_and_no_prefix_of_it_does() {
        let sample = Sample {
            range: KeyRange::new(&b"a"[..], &b"b"[..]),
            address: "[::1]:4500".parse().expect("an address"),
            list: vec![(Uid(7), None), (Uid(8), Some(Bytes::from_static(b"x")))],
        };
        let bytes = sample.to_bytes();
        assert_eq!(Sample::from_bytes(bytes.clone()), Some(sample));
        for cut in 0..bytes.len() {
            assert_eq!(Sample::from_bytes(bytes.slice(..cut)), None);
        }
    }

    #[test]
    fn a_list_takes_at_most_a_small_multiple_of_its_encoding() {
        assert_eq!(<(Uid, Option<Bytes>)>::LEAST, 17);
        assert_eq!(Sample::LEAST, 2 + 7 + 1);
        let shortest = vec![Bytes::new(); 1000];
        let encoded = shortest.to_bytes();
        let decoded = Vec::<Bytes>::from_bytes(encoded.clone()).expect("it comes back");
        assert!(decoded.capacity() * size_of::<Bytes>() <= DECODED_MULTIPLE * encoded.len());
        // There are bytes for a hundred, and it says that there are a hundred and one.
        let claimed = [&[101][..], &[0; 1600]].concat();
        assert_eq!(Vec::<u128>::from_bytes(claimed.into()), None);
    }

    #[test]
    fn a_count_beyond_the_input_is_refused_before_anything_is_allocated() {
        assert_eq!(
            Vec::<u8>::from_bytes(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f])),
            None
        );
    }
}
