//! Ranges of keys and selectors: what a read or a write of many keys is about.

use bytes::Bytes;
use plinth_core::key::{SYSTEM_BEGIN, key_after, prefix_end};
use plinth_core::{Key, KeySelector};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

fn key(bytes: impl AsRef<[u8]>) -> Key {
    Bytes::copy_from_slice(bytes.as_ref())
}

/// The keys from `begin` on and before `end`. Every method that takes a range takes whatever becomes one; see
/// [`IntoKeyRange`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub begin: Key,
    /// The first key behind it.
    pub end: Key,
    /// Bytes of its keys before the tuples in them.
    pub(crate) prefix_bytes: usize,
}

impl KeyRange {
    /// The keys from `begin` on and before `end`.
    pub fn new(begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Self {
        KeyRange {
            begin: key(begin),
            end: key(end),
            prefix_bytes: 0,
        }
    }

    /// All keys that begin with these bytes.
    ///
    /// ```
    /// # use plinth::KeyRange;
    /// assert_eq!(KeyRange::prefix("user/"), KeyRange::new("user/", "user0"));
    /// ```
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        let end = prefix_end(prefix).unwrap_or(Bytes::from_static(SYSTEM_BEGIN));
        KeyRange::new(prefix, end)
    }

    /// The tuples behind a prefix.
    pub(crate) fn behind(prefix: &[u8], prefix_bytes: usize) -> Self {
        let after = |byte: u8| Bytes::from([prefix, &[byte]].concat());
        KeyRange {
            begin: after(0),
            end: after(0xff),
            prefix_bytes,
        }
    }
}

/// What becomes a range of keys.
///
/// | | the keys |
/// |---|---|
/// | `"a".."b"`, `"a"..="b"`, `"a"..`, `.."b"`, `..` | between these: anything that is `AsRef<[u8]>` |
/// | `("scores", 7)` | of all longer tuples that begin so |
/// | `&subspace` | of all tuples in a [`Subspace`](crate::Subspace) |
/// | [`KeyRange::prefix`]`("user/")` | that begin with these bytes |
pub trait IntoKeyRange {
    /// The range.
    fn into_key_range(self) -> KeyRange;
}

impl IntoKeyRange for KeyRange {
    fn into_key_range(self) -> KeyRange {
        self
    }
}
impl IntoKeyRange for &KeyRange {
    fn into_key_range(self) -> KeyRange {
        self.clone()
    }
}
impl<K: AsRef<[u8]>> IntoKeyRange for Range<K> {
    fn into_key_range(self) -> KeyRange {
        KeyRange::new(self.start, self.end)
    }
}
impl<K: AsRef<[u8]>> IntoKeyRange for RangeInclusive<K> {
    fn into_key_range(self) -> KeyRange {
        KeyRange::new(self.start(), key_after(self.end().as_ref()))
    }
}
impl<K: AsRef<[u8]>> IntoKeyRange for RangeFrom<K> {
    fn into_key_range(self) -> KeyRange {
        KeyRange::new(self.start, SYSTEM_BEGIN)
    }
}
impl<K: AsRef<[u8]>> IntoKeyRange for RangeTo<K> {
    fn into_key_range(self) -> KeyRange {
        KeyRange::new(b"", self.end)
    }
}
impl IntoKeyRange for RangeFull {
    fn into_key_range(self) -> KeyRange {
        KeyRange::new(b"", SYSTEM_BEGIN)
    }
}

/// A key by its place among the keys that there are: the first one at or after another key, the one before it, or
/// some keys further on.
///
/// ```
/// # use plinth::Selector;
/// let third = Selector::first_greater_or_equal("a").plus(2);
/// let last = Selector::last_less_than("b");
/// # let _ = (third, last);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector(pub(crate) KeySelector);

impl Selector {
    /// The first key at or after `key`.
    pub fn first_greater_or_equal(key: impl AsRef<[u8]>) -> Self {
        Selector(KeySelector::first_greater_or_equal(self::key(key)))
    }

    /// The first key after `key`.
    pub fn first_greater_than(key: impl AsRef<[u8]>) -> Self {
        Selector(KeySelector::first_greater_than(self::key(key)))
    }

    /// The last key at or before `key`.
    pub fn last_less_or_equal(key: impl AsRef<[u8]>) -> Self {
        Selector(KeySelector::last_less_or_equal(self::key(key)))
    }

    /// The last key before `key`.
    pub fn last_less_than(key: impl AsRef<[u8]>) -> Self {
        Selector(KeySelector::last_less_than(self::key(key)))
    }

    /// The key that many keys further on, or back.
    pub fn plus(mut self, keys: i32) -> Self {
        self.0.offset = self.0.offset.saturating_add(keys);
        self
    }
}

/// What becomes a range to read: every [range of keys](IntoKeyRange), and a range between two [`Selector`]s.
pub trait IntoReadRange {
    /// Its ends, and the bytes of its keys before the tuples in them.
    fn into_read_range(self) -> (Selector, Selector, usize);
}

impl<R: IntoKeyRange> IntoReadRange for R {
    fn into_read_range(self) -> (Selector, Selector, usize) {
        let KeyRange {
            begin,
            end,
            prefix_bytes,
        } = self.into_key_range();
        let at = |key| Selector(KeySelector::first_greater_or_equal(key));
        (at(begin), at(end), prefix_bytes)
    }
}

impl IntoReadRange for Range<Selector> {
    fn into_read_range(self) -> (Selector, Selector, usize) {
        (self.start, self.end, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: impl IntoKeyRange) -> (Key, Key) {
        let KeyRange { begin, end, .. } = range.into_key_range();
        (begin, end)
    }

    #[test]
    fn whatever_says_a_range_is_one() {
        let between = |begin: &'static [u8], end: &'static [u8]| {
            (Bytes::from_static(begin), Bytes::from_static(end))
        };
        assert_eq!(of("a".."b"), between(b"a", b"b"));
        assert_eq!(of(vec![1]..=vec![2]), between(b"\x01", b"\x02\0"));
        assert_eq!(of(String::from("a")..), between(b"a", b"\xff"));
        assert_eq!(of(..Bytes::from_static(b"b")), between(b"", b"b"));
        assert_eq!(of(..), between(b"", b"\xff"));
        assert_eq!(of((1,)), between(b"\x15\x01\0", b"\x15\x01\xff"));
        assert_eq!(of(KeyRange::prefix(b"a\xff")), between(b"a\xff", b"b"));
    }
}
