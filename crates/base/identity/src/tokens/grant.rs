//! What a verified token grants.

use bytes::Bytes;
use plinth_core::key::{KEY_BYTES_MAX, KeyRange, SYSTEM_BEGIN, prefix_end};

/// A tenant, as a token names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tenant {
    Id(u64),
    Name(Bytes),
}

/// The ranges that a client may read and write, and until when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// In order, and neither overlapping nor touching.
    reads: Vec<KeyRange>,
    writes: Vec<KeyRange>,
    tenants: Vec<Tenant>,
    until: u64,
    key: String,
    subject: Option<String>,
}

impl Grant {
    pub(super) fn new(
        reads: Vec<KeyRange>,
        writes: Vec<KeyRange>,
        mut tenants: Vec<Tenant>,
        until: u64,
        key: String,
        subject: Option<String>,
    ) -> Grant {
        tenants.sort_unstable();
        tenants.dedup();
        Grant {
            reads: joined(reads),
            writes: joined(writes),
            tenants,
            until,
            key,
            subject,
        }
    }

    /// True if every key of `[begin, end)` may be read. The empty range at a key counts as that key's place.
    pub fn may_read(&self, begin: &[u8], end: &[u8]) -> bool {
        holds(&self.reads, begin, end)
    }

    /// True if every key of `[begin, end)` may be written.
    pub fn may_write(&self, begin: &[u8], end: &[u8]) -> bool {
        holds(&self.writes, begin, end)
    }

    /// True if the token is over at this second: nothing of it counts any more.
    pub fn is_over(&self, now: u64) -> bool {
        now >= self.until
    }

    /// The first second at which it is over.
    pub fn until(&self) -> u64 {
        self.until
    }

    pub fn reads(&self) -> &[KeyRange] {
        &self.reads
    }

    pub fn writes(&self) -> &[KeyRange] {
        &self.writes
    }

    /// The tenants that are granted. Those with an id are in [`Grant::reads`] and [`Grant::writes`] already; for a
    /// name, the caller finds the prefix and calls [`Grant::add_tenant`].
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// Adds the prefix of a tenant that is granted by name. False if it is no prefix of ordinary keys.
    pub fn add_tenant(&mut self, prefix: &[u8]) -> bool {
        let Some(range) = range_of(prefix).filter(|_| !prefix.is_empty()) else {
            return false;
        };
        for ranges in [&mut self.reads, &mut self.writes] {
            ranges.push(range.clone());
            *ranges = joined(std::mem::take(ranges));
        }
        true
    }

    /// The name of the key that has signed it. What a key has signed is over when the key is not trusted any more.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Who has the token, by its own word: for the log.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }
}

/// The keys with this prefix, without system keys; `None` if it cannot be granted.
pub(super) fn range_of(prefix: &[u8]) -> Option<KeyRange> {
    if prefix.len() > KEY_BYTES_MAX || prefix.starts_with(SYSTEM_BEGIN) {
        return None;
    }
    let end = prefix_end(prefix).unwrap_or(Bytes::from_static(SYSTEM_BEGIN));
    let begin = Bytes::copy_from_slice(prefix);
    Some(KeyRange { begin, end })
}

/// The same keys as ranges in order with room between them.
fn joined(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let is_one = next.begin <= before.end;
        if is_one && next.end > before.end {
            before.end = next.end.clone();
        }
        is_one
    });
    ranges
}

/// Whether one of the joined ranges holds all of `[begin, end)`.
fn holds(ranges: &[KeyRange], begin: &[u8], end: &[u8]) -> bool {
    let after = ranges.partition_point(|range| range.begin[..] <= *begin);
    let Some(range) = after.checked_sub(1).map(|at| &ranges[at]) else {
        return false;
    };
    begin <= end && *begin < range.end[..] && *end <= range.end[..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant(prefixes: &[Vec<u8>]) -> Grant {
        let ranges: Vec<KeyRange> = prefixes
            .iter()
            .filter_map(|prefix| range_of(prefix))
            .collect();
        Grant::new(ranges, Vec::new(), Vec::new(), 1, String::new(), None)
    }

    /// Bytes at the edges, so that prefixes meet.
    fn word() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)],
            0..4,
        )
    }

    proptest! {
        #[test]
        fn a_range_may_be_read_exactly_if_each_of_its_keys_has_a_granted_prefix(
            prefixes in proptest::collection::vec(word(), 0..6),
            begin in word(),
            end in word(),
        ) {
            let grant = grant(&prefixes);
            prop_assert!(grant.reads().windows(2).all(|two| two[0].end < two[1].begin));
            prop_assert!(!grant.may_write(&begin, &end));
            let is_granted = |key: &[u8]| {
                !key.starts_with(b"\xff")
                    && prefixes.iter().any(|prefix| !prefix.starts_with(b"\xff") && key.starts_with(prefix))
            };
            // A gap between two of the words begins with one of these keys.
            let mut keys = vec![Vec::new()];
            let mut from = 0;
            while keys[from].len() < 4 {
                for byte in [0u8, 1, 2, 0xfe, 0xff] {
                    keys.push([&keys[from][..], &[byte]].concat());
                }
                from += 1;
            }
            let mut inside = keys.iter().filter(|key| **key >= begin && **key < end);
            if begin < end {
                prop_assert_eq!(grant.may_read(&begin, &end), inside.all(|key| is_granted(key)));
            } else {
                prop_assert_eq!(grant.may_read(&begin, &end), begin == end && is_granted(&begin));
            }
        }
    }

    #[test]
    fn touching_prefixes_are_one_range_and_inner_ones_vanish() {
        let grant = grant(&[b"b".to_vec(), b"a".to_vec(), b"ab".to_vec(), b"d".to_vec()]);
        let expected = [
            KeyRange::new(&b"a"[..], &b"c"[..]),
            KeyRange::new(&b"d"[..], &b"e"[..]),
        ];
        assert_eq!(grant.reads(), expected);
        assert!(grant.may_read(b"a", b"c"));
        assert!(!grant.may_read(b"a", b"c\0"));
        assert!(!grant.may_read(b"b", b"d"));
        assert!(!grant.may_read(b"b", b"a"));
    }

    #[test]
    fn a_tenant_that_is_granted_by_name_is_added_by_its_prefix() {
        let mut grant = grant(&[b"x".to_vec()]);
        assert!(grant.add_tenant(&7u64.to_be_bytes()));
        let key = [&7u64.to_be_bytes()[..], b"key"].concat();
        let (begin, end) = (&key[..], &[&key[..], &[0]].concat()[..]);
        assert!(grant.may_read(begin, end) && grant.may_write(begin, end));
        assert!(!grant.may_write(b"x", b"x\0"));
        for wrong in [&b""[..], b"\xff", b"\xff/x"] {
            assert!(!grant.add_tenant(wrong));
        }
    }
}
