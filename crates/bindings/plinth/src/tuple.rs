//! Tuples of Rust types as keys, in their natural order.
//!
//! A tuple of numbers, strings, byte strings and so on is packed into bytes whose order is the order of the tuples:
//! element by element, and a tuple before every longer one that begins with it. So all keys that begin with the same
//! elements lie side by side, and one range read gives them. The encoding is that of FoundationDB's bindings and
//! layers.
//!
//! ```
//! use plinth::tuple::{pack, unpack};
//!
//! let key = pack(("scores", 42, "ada"));
//! assert!(key < pack(("scores", 1000, "ada")));
//! let (_, score, player) = unpack::<(String, i64, String)>(&key)?;
//! assert_eq!((score, player.as_str()), (42, "ada"));
//! # Ok::<(), plinth::Error>(())
//! ```
//!
//! | in Rust | element |
//! |---|---|
//! | `i8` … `i64`, `u8` … `u64`, `isize`, `usize` | integer: all integers are one type, of any size |
//! | `String`, `&str` | text |
//! | [`Bytes`], `Vec<u8>`, `&[u8]` | byte string |
//! | `f32`, `f64`, `bool` | float, double, boolean |
//! | `Option<T>` | `T`, or null |
//! | [`Uuid`], [`Stamp`] | UUID, versionstamp |
//! | a tuple | nested tuple |
//!
//! Tuples whose types are known only when the program runs are lists of [`Element`]: [`pack_elements`], and
//! `unpack::<Vec<Element>>`.

use crate::open_error::Result;
use bytes::Bytes;
use plinth_core::tuple;
use plinth_core::{Error, Key, Versionstamp};

pub use plinth_core::tuple::{BigInt, Element};

/// Packs a list of elements. Fails with `client_invalid_operation` if one of them is a versionstamp without a stamp,
/// or if they nest deeper than 100.
pub fn pack_elements(elements: &[Element]) -> Result<Key> {
    tuple::pack(elements)
}

/// Packs a tuple of Rust types.
///
/// ```
/// # use plinth::tuple::pack;
/// assert_eq!(pack(("a", 1)), b"\x02a\x00\x15\x01"[..]);
/// assert_eq!(pack(()), b""[..]);
/// ```
pub fn pack(tuple: impl TuplePack) -> Key {
    pack_after(b"", &tuple)
}

pub(crate) fn pack_after(prefix: &[u8], tuple: &impl TuplePack) -> Key {
    let packed = tuple::pack_after(prefix, &tuple.elements());
    packed.expect("Rust types nest a few levels, and each of their stamps is complete")
}

/// The tuple of a packed key. Fails with `invalid_tuple_data_type` if the bytes are no packed tuple, or one of other
/// types.
pub fn unpack<T: TupleUnpack>(packed: impl AsRef<[u8]>) -> Result<T> {
    unpack_bytes(&Bytes::copy_from_slice(packed.as_ref()))
}

pub(crate) fn unpack_bytes<T: TupleUnpack>(packed: &Bytes) -> Result<T> {
    T::from_elements(tuple::unpack(packed)?).ok_or(Error::invalid_tuple_data_type)
}

/// A type that can be an element of a tuple.
pub trait ToElement {
    /// The value as an element. It is complete: a versionstamp has its stamp.
    fn to_element(&self) -> Element;
}

/// A type that an element of a tuple can become.
pub trait FromElement: Sized {
    /// The value of an element; `None` if it is of another type or does not fit.
    fn from_element(element: Element) -> Option<Self>;
}

/// A tuple that can be packed: a Rust tuple of up to ten [`ToElement`] types, or a reference to one.
pub trait TuplePack {
    /// Its elements.
    fn elements(&self) -> Vec<Element>;
}

/// A tuple that can be unpacked: a Rust tuple of up to ten [`FromElement`] types, or `Vec<Element>` for any.
pub trait TupleUnpack: Sized {
    /// The tuple of these elements; `None` if their number or types differ.
    fn from_elements(elements: Vec<Element>) -> Option<Self>;
}

/// A UUID as an element, so that it is not a byte string.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Uuid(pub [u8; 16]);

/// A versionstamp as an element: where its transaction stands among all, and a number to order within the transaction.
///
/// The stamp is known after the commit. To write a key with the stamp of the transaction itself, use
/// [`Subspace::pack_with_versionstamp`](crate::Subspace::pack_with_versionstamp).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stamp {
    /// The stamp of the transaction.
    pub transaction: Versionstamp,
    /// The number within the transaction.
    pub user_version: u16,
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl ToElement for $type {
            fn to_element(&self) -> Element {
                let value = i128::from(*self as i128);
                let magnitude = value.unsigned_abs().to_be_bytes();
                Element::integer(value < 0, &magnitude).expect("sixteen bytes are few enough")
            }
        }
        impl FromElement for $type {
            fn from_element(element: Element) -> Option<Self> {
                match (element.as_i64(), element.as_u64()) {
                    (Some(value), _) => value.try_into().ok(),
                    (None, Some(value)) => value.try_into().ok(),
                    (None, None) => None,
                }
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

macro_rules! elements {
    ($($type:ty, $pattern:pat => $back:expr, |$value:ident| $element:expr;)*) => {$(
        impl ToElement for $type {
            fn to_element(&self) -> Element {
                let $value = self;
                $element
            }
        }
        impl FromElement for $type {
            fn from_element(element: Element) -> Option<Self> {
                match element {
                    $pattern => Some($back),
                    _ => None,
                }
            }
        }
    )*};
}

elements! {
    String, Element::Text(text) => text, |value| Element::Text(value.clone());
    Bytes, Element::Bytes(bytes) => bytes, |value| Element::Bytes(value.clone());
    Vec<u8>, Element::Bytes(bytes) => bytes.into(), |value| Element::from(&value[..]);
    f32, Element::Float(value) => value, |value| Element::Float(*value);
    f64, Element::Double(value) => value, |value| Element::Double(*value);
    bool, Element::Bool(value) => value, |value| Element::Bool(*value);
    Uuid, Element::Uuid(bytes) => Uuid(bytes), |value| Element::Uuid(value.0);
    Stamp,
        Element::Versionstamp { stamp: Some(transaction), user_version }
            => Stamp { transaction, user_version },
        |value| Element::Versionstamp {
            stamp: Some(value.transaction),
            user_version: value.user_version,
        };
}

impl ToElement for str {
    fn to_element(&self) -> Element {
        Element::from(self)
    }
}

impl ToElement for [u8] {
    fn to_element(&self) -> Element {
        Element::from(self)
    }
}

impl<T: ToElement + ?Sized> ToElement for &T {
    fn to_element(&self) -> Element {
        (**self).to_element()
    }
}

impl<T: ToElement> ToElement for Option<T> {
    fn to_element(&self) -> Element {
        self.as_ref().map_or(Element::Null, T::to_element)
    }
}

impl<T: FromElement> FromElement for Option<T> {
    fn from_element(element: Element) -> Option<Self> {
        match element {
            Element::Null => Some(None),
            element => T::from_element(element).map(Some),
        }
    }
}

impl<T: TuplePack + ?Sized> TuplePack for &T {
    fn elements(&self) -> Vec<Element> {
        (**self).elements()
    }
}

impl TupleUnpack for Vec<Element> {
    fn from_elements(elements: Vec<Element>) -> Option<Self> {
        Some(elements)
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: ToElement),*> TuplePack for ($($name,)*) {
            fn elements(&self) -> Vec<Element> {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                vec![$($name.to_element()),*]
            }
        }

        impl<$($name: FromElement),*> TupleUnpack for ($($name,)*) {
            fn from_elements(elements: Vec<Element>) -> Option<Self> {
                let mut elements = elements.into_iter();
                let tuple = ($($name::from_element(elements.next()?)?,)*);
                elements.next().is_none().then_some(tuple)
            }
        }

        impl<$($name: ToElement),*> ToElement for ($($name,)*) {
            fn to_element(&self) -> Element {
                Element::Nested(self.elements())
            }
        }

        impl<$($name: FromElement),*> FromElement for ($($name,)*) {
            fn from_element(element: Element) -> Option<Self> {
                match element {
                    Element::Nested(elements) => Self::from_elements(elements),
                    _ => None,
                }
            }
        }

        /// All longer tuples that begin with this one.
        impl<$($name: ToElement),*> crate::range::IntoKeyRange for ($($name,)*) {
            fn into_key_range(self) -> crate::range::KeyRange {
                crate::range::KeyRange::behind(&pack(self), 0)
            }
        }
    )*};
}

tuples! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_comes_back_with_its_types() {
        type Types = (i8, u64, Option<String>, Vec<u8>, (bool, f64), Uuid, Stamp);
        let stamp = Stamp {
            transaction: Versionstamp::new(7, 3),
            user_version: 9,
        };
        let tuple: Types = (
            -5,
            u64::MAX,
            None,
            vec![0, 255],
            (true, -0.5),
            Uuid([3; 16]),
            stamp,
        );
        assert_eq!(unpack::<Types>(pack(&tuple)), Ok(tuple));
    }

    #[test]
    fn an_element_of_another_type_or_size_is_refused() {
        let refused = Error::invalid_tuple_data_type;
        assert_eq!(unpack::<(u8,)>(pack((256,))), Err(refused));
        assert_eq!(unpack::<(u64,)>(pack((-1,))), Err(refused));
        assert_eq!(unpack::<(String,)>(pack((1,))), Err(refused));
        assert_eq!(unpack::<(i64,)>(pack((1, 2))), Err(refused));
        assert_eq!(unpack::<(i64, i64)>(pack((1,))), Err(refused));
        assert_eq!(unpack::<(i64,)>(b"\x02open"), Err(refused));
    }

    #[test]
    fn packed_bytes_are_those_of_the_elements() {
        let elements = [
            Element::Text("a".into()),
            Element::Int(-1),
            Element::Nested(vec![Element::Null]),
        ];
        let packed = pack_elements(&elements).expect("complete");
        assert_eq!(pack(("a", -1i8, (None::<i64>,))), packed);
        assert_eq!(unpack::<Vec<Element>>(&packed), Ok(elements.to_vec()));
    }
}
