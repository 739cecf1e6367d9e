//! Keys, values and half-open key ranges.

use bytes::Bytes;

/// An ordered byte string, at most [`KEY_BYTES_MAX`] long. Order is plain unsigned byte order.
pub type Key = Bytes;
/// A byte string, at most [`VALUE_BYTES_MAX`] long.
pub type Value = Bytes;

pub const KEY_BYTES_MAX: usize = 10_000;
/// Keys of the system keyspace may be this long.
pub const SYSTEM_KEY_BYTES_MAX: usize = 30_000;
/// Length of the prefix that all keys of a tenant have in the database, on top of the keys that its users see.
pub const TENANT_PREFIX_BYTES: usize = 8;
pub const VALUE_BYTES_MAX: usize = 100_000;
pub const TRANSACTION_BYTES_MAX: usize = 10_000_000;
/// What a mutation costs beyond its bytes when a transaction's size is computed; FoundationDB's figure.
pub const MUTATION_OVERHEAD_BYTES: usize = 28;
/// What a conflict range costs beyond its keys; FoundationDB's figure.
pub const RANGE_OVERHEAD_BYTES: usize = 24;

/// First key of the system keyspace. Ordinary transactions use keys below it.
pub const SYSTEM_BEGIN: &[u8] = b"\xff";
/// End of all stored keys.
pub const ALL_KEYS_END: &[u8] = b"\xff\xff";

/// The empty key, the first of all, at an address that can be read. `Bytes::new()` has no such address, and to compare
/// anything with it takes 80 ns on some processors: the C library loads with an empty mask from it, and a masked load
/// from an address that is not mapped is slow there.
pub fn first_key() -> Key {
    static READABLE: [u8; 1] = [0];
    Bytes::from_static(&READABLE[..0])
}

/// A copy of a key that is compared often.
pub fn copied(key: &[u8]) -> Key {
    match key.is_empty() {
        true => first_key(),
        false => Bytes::copy_from_slice(key),
    }
}

/// Half-open range `[begin, end)`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    pub begin: Key,
    pub end: Key,
}

impl KeyRange {
    pub fn new(begin: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        KeyRange {
            begin: begin.into(),
            end: end.into(),
        }
    }
    /// The range that holds exactly `key`. One allocation: `begin` is a slice of `end`.
    pub fn single(key: &[u8]) -> Self {
        let end = key_after(key);
        KeyRange {
            begin: end.slice(..key.len()),
            end,
        }
    }
    /// All stored keys: `["", \xff\xff)`.
    pub fn all() -> Self {
        KeyRange::new(Bytes::new(), Bytes::from_static(ALL_KEYS_END))
    }
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }
    pub fn contains(&self, key: &[u8]) -> bool {
        self.begin[..] <= *key && *key < self.end[..]
    }
    pub fn intersects(&self, other: &KeyRange) -> bool {
        self.begin < other.end && other.begin < self.end
    }
    /// The common part; `None` if there is none.
    pub fn intersection(&self, other: &KeyRange) -> Option<KeyRange> {
        let begin = self.begin.clone().max(other.begin.clone());
        let end = self.end.clone().min(other.end.clone());
        (begin < end).then_some(KeyRange { begin, end })
    }
}

impl std::fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}, {})", printable(&self.begin), printable(&self.end))
    }
}

/// The first key after `key`: `key` with a zero byte appended.
pub fn key_after(key: &[u8]) -> Key {
    let mut bytes = Vec::with_capacity(key.len() + 1);
    bytes.extend_from_slice(key);
    bytes.push(0);
    Bytes::from(bytes)
}

/// The first key after all keys that start with `prefix`; `None` if every byte of `prefix` is `0xff`.
pub fn prefix_end(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(Bytes::from(end))
}

/// A key as readable text: printable ASCII as it is, `\` as `\\`, every other byte as `\xNN`.
pub fn printable(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            b'\\' => out.push_str("\\\\"),
            0x20..=0x7e => out.push(b as char),
            _ => write!(out, "\\x{b:02x}").expect("writing to a string"),
        }
    }
    out
}

/// The inverse of [`printable`]: `\xNN` and `\\` (also `\t`, `\n`, `\r`, `\0`); `None` for a broken escape.
pub fn unprintable(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        match bytes.next()? {
            b'\\' => out.push(b'\\'),
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b'0' => out.push(0),
            b'x' => {
                let hi = char::from(bytes.next()?).to_digit(16)?;
                let lo = char::from(bytes.next()?).to_digit(16)?;
                out.push((hi * 16 + lo) as u8);
            }
            _ => return None,
        }
    }
    Some(out)
}

/// True if `[begin, end)` holds the key `begin` and no other.
#[inline]
pub fn is_single_key(begin: &[u8], end: &[u8]) -> bool {
    end.strip_suffix(&[0]) == Some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_empty_key_has_an_address_that_can_be_read() {
        let empty = copied(b"");
        assert!(empty.is_empty() && empty.as_ptr() as usize > 4096);
        assert_eq!(copied(b"a"), b"a"[..]);
    }

    #[test]
    fn a_range_of_one_key_ends_right_behind_it() {
        assert!(is_single_key(b"a", b"a\0") && is_single_key(b"", b"\0"));
        for (begin, end) in [
            ("a", "zz"),
            ("a", "b"),
            ("a", "a"),
            ("b", "a\0"),
            ("a", "a\0\0"),
        ] {
            assert!(
                !is_single_key(begin.as_bytes(), end.as_bytes()),
                "{begin:?}"
            );
        }
    }

    /// Short keys over few bytes, so that they are often neighbours and prefixes of each other.
    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)],
            0..4,
        )
    }

    proptest! {
        #[test]
        fn nothing_lies_between_a_key_and_the_key_after_it(key in any_key(), other in any_key()) {
            prop_assert_eq!(other > key, other >= key_after(&key));
            let single = KeyRange::single(&key);
            prop_assert_eq!(single.contains(&other), other == key);
        }

        #[test]
        fn a_prefix_and_its_end_bound_exactly_the_keys_that_start_with_it(prefix in any_key(), key in any_key()) {
            let below_end = prefix_end(&prefix).is_none_or(|end| key < end);
            prop_assert_eq!(key.starts_with(&prefix), prefix <= key && below_end);
        }

        #[test]
        fn an_intersection_holds_what_both_ranges_hold(
            a in any_key(), b in any_key(), c in any_key(), d in any_key(), key in any_key(),
        ) {
            let (left, right) = (KeyRange::new(a, b), KeyRange::new(c, d));
            let common = left.intersection(&right);
            let in_both = left.contains(&key) && right.contains(&key);
            prop_assert_eq!(common.is_some_and(|range| range.contains(&key)), in_both);
            if !left.is_empty() && !right.is_empty() {
                prop_assert_eq!(left.intersection(&right).is_some(), left.intersects(&right));
            }
        }

        #[test]
        fn any_bytes_print_and_come_back_and_any_text_is_survived(
            bytes in proptest::collection::vec(any::<u8>(), 0..40), text in r"[\\x0-9a-f é]{0,20}",
        ) {
            let printed = printable(&bytes);
            prop_assert!(printed.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            prop_assert_eq!(unprintable(&printed), Some(bytes));
            if let Some(read) = unprintable(&text) {
                prop_assert_eq!(unprintable(&printable(&read)), Some(read));
            }
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_the_first_key_without_it() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff\xff"), None);
    }

    #[test]
    fn printable_text_comes_back_as_the_same_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unprintable(&printable(&all)).as_deref(), Some(&all[..]));
        assert_eq!(unprintable("\\x0"), None);
        assert_eq!(unprintable("\\q"), None);
    }
}
