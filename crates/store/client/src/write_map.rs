//! A transaction's own writes as its reads see them: what every key has become, as far as that is known without
//! asking the database (FDB §2.4.1: read-your-writes lives in the client).
//!
//! A key is in one of four states:
//!
//! | state | after | a read |
//! |---|---|---|
//! | unmodified | nothing | is the database's |
//! | known | a set, a clear, an atomic operation on a known key | needs nothing, conflicts with nothing |
//! | pending | atomic operations on an unmodified key | takes the database's value through them |
//! | unreadable | a versionstamped operation that may have hit it | fails: the stamp is not known yet |
//!
//! Unreadable wins over the others until the key is cleared, as in FoundationDB.

use crate::range_set::RangeSet;
use crate::shared_map::SharedMap;
use crate::source::Row;
use bytes::Bytes;
use plinth_core::key::key_after;
use plinth_core::{Key, Mutation, MutationKind, Value, Version, atomic};
use std::ops::Bound;

/// Atomic operations that wait for a value, in the order in which they were issued.
pub(crate) type PendingOperations = Vec<(MutationKind, Bytes)>;

#[derive(Clone, Debug)]
pub(crate) enum Point {
    /// The value, whatever the database holds; `None` is absent.
    Known(Option<Value>),
    Pending(PendingOperations),
}

/// The transaction's own writes to one key, as a read sees them.
#[derive(Debug)]
pub(crate) enum Lookup<'a> {
    Unmodified,
    Known(Option<Value>),
    Pending(&'a PendingOperations),
    Unreadable,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct WriteMap {
    /// Has precedence over `cleared`. A single cleared key is a point, too.
    points: SharedMap<Point>,
    cleared: RangeSet,
    unreadable: RangeSet,
}

/// The value after `operations` on top of `base`.
pub(crate) fn fold(operations: &PendingOperations, base: Option<Value>) -> Option<Value> {
    operations.iter().fold(base, |value, (kind, operand)| {
        atomic::apply(*kind, value.as_deref(), operand)
    })
}

impl WriteMap {
    /// Applies the next mutation. `version_min`: no stamp of this transaction is below it.
    pub fn apply(&mut self, mutation: Mutation, version_min: Version) {
        let Mutation {
            kind,
            first: key,
            second,
        } = mutation;
        match kind {
            MutationKind::Set => {
                self.points.insert(key, Point::Known(Some(second)));
            }
            MutationKind::ClearRange => self.clear(key, second),
            MutationKind::SetVersionstampedKey => {
                let range = atomic::versionstamped_key_range(&key, version_min)
                    .expect("the offset was checked when the operation was issued");
                self.unreadable.insert(range.begin, range.end);
            }
            MutationKind::SetVersionstampedValue => {
                let end = key_after(&key);
                self.unreadable.insert(key, end);
            }
            _ => self.operate(kind, key, second),
        }
    }

    fn clear(&mut self, begin: Key, end: Key) {
        self.unreadable.remove(&begin, &end);
        if is_single(&begin, &end) {
            self.points.insert(begin, Point::Known(None));
            return;
        }
        self.points.remove_range(&begin, &end);
        self.cleared.insert(begin, end);
    }

    fn operate(&mut self, kind: MutationKind, key: Key, operand: Bytes) {
        match self.points.get_mut(&key) {
            Some(Point::Known(value)) => *value = atomic::apply(kind, value.as_deref(), &operand),
            Some(Point::Pending(operations)) => operations.push((kind, operand)),
            None => {
                let point = if self.cleared.contains(&key) {
                    Point::Known(atomic::apply(kind, None, &operand))
                } else {
                    Point::Pending(vec![(kind, operand)])
                };
                self.points.insert(key, point);
            }
        }
    }

    pub fn lookup(&self, key: &[u8]) -> Lookup<'_> {
        if self.unreadable.contains(key) {
            return Lookup::Unreadable;
        }
        self.lookup_bypassed(key)
    }

    /// Looks `key` up as if no versionstamped operation had been issued.
    pub fn lookup_bypassed(&self, key: &[u8]) -> Lookup<'_> {
        match self.points.get(key) {
            Some(Point::Known(value)) => Lookup::Known(value.clone()),
            Some(Point::Pending(operations)) => {
                debug_assert!(
                    !self.cleared.contains(key),
                    "operations on a cleared key are resolved at once",
                );
                Lookup::Pending(operations)
            }
            None if self.cleared.contains(key) => Lookup::Known(None),
            None => Lookup::Unmodified,
        }
    }

    /// True if `key` is a point with a value that is known without the database.
    pub fn is_known_point(&self, key: &[u8]) -> bool {
        matches!(self.points.get(key), Some(Point::Known(_)))
    }

    pub fn cleared(&self) -> &RangeSet {
        &self.cleared
    }

    pub fn unreadable(&self) -> &RangeSet {
        &self.unreadable
    }

    fn points_in(
        &self,
        begin: &[u8],
        end: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&Key, &Point)> {
        self.points
            .range(Bound::Included(begin), Bound::Excluded(end))
    }

    /// True if something in `[begin, end)` was set, cleared or changed.
    pub fn touches(&self, begin: &[u8], end: &[u8]) -> bool {
        let meets = |ranges: &RangeSet| ranges.first_beyond(begin).is_some_and(|(at, _)| at < end);
        begin < end
            && (self.points_in(begin, end).next().is_some()
                || meets(&self.cleared)
                || meets(&self.unreadable))
    }

    /// Passes the rows of `[begin, end)` to `sink` until it returns false: own writes over `rows`, the database's
    /// rows of the range. Descending if `reverse`, and then `rows` must be too; else ascending. The cost depends only
    /// on the rows that `sink` takes.
    pub fn merge(
        &self,
        (begin, end): (&[u8], &[u8]),
        reverse: bool,
        rows: impl Iterator<Item = Row>,
        sink: impl FnMut(Key, Value) -> bool,
    ) {
        let points = self.points_in(begin, end);
        if reverse {
            merge_ordered(points.rev(), rows, |a, b| a > b, sink);
        } else {
            merge_ordered(points, rows, |a, b| a < b, sink);
        }
    }

    /// Passes to `found`, in order, the parts of `[begin, end)` whose content is not known without the database: a
    /// read of the range conflicts with these.
    pub fn unknown_parts(&self, begin: &Key, end: &Key, mut found: impl FnMut(Key, Key)) {
        let mut cursor = begin.clone();
        while cursor < *end {
            let clear = self
                .cleared
                .first_beyond(&cursor)
                .filter(|(at, _)| *at < end);
            let (gap_end, next) = match clear {
                Some((at, at_end)) => (at.clone().max(cursor.clone()), at_end.clone()),
                None => (end.clone(), end.clone()),
            };
            self.unknown_around_points(&cursor, &gap_end, &mut found);
            // Pending operations never lie in a cleared range: they were resolved there.
            assert!(cursor < next, "each part lies behind the one before");
            cursor = next;
        }
    }

    fn unknown_around_points(&self, begin: &Key, end: &Key, found: &mut impl FnMut(Key, Key)) {
        let mut from = begin.clone();
        for (key, point) in self.points_in(begin, end) {
            if matches!(point, Point::Known(_)) {
                if from < *key {
                    found(from, key.clone());
                }
                from = key_after(key);
            }
        }
        if from < *end {
            found(from, end.clone());
        }
    }
}

/// Merges `points` and `rows`, which both come in the order of `is_before`.
fn merge_ordered<'a>(
    points: impl Iterator<Item = (&'a Key, &'a Point)>,
    rows: impl Iterator<Item = Row>,
    is_before: impl Fn(&Key, &Key) -> bool,
    mut sink: impl FnMut(Key, Value) -> bool,
) {
    let mut rows = rows.peekable();
    for (key, point) in points {
        while let Some((row_key, value)) = rows.next_if(|(row_key, _)| is_before(row_key, key)) {
            if !sink(row_key, value) {
                return;
            }
        }
        let base = rows
            .next_if(|(row_key, _)| row_key == key)
            .map(|(_, value)| value);
        let value = match point {
            Point::Known(value) => value.clone(),
            Point::Pending(operations) => fold(operations, base),
        };
        if let Some(value) = value
            && !sink(key.clone(), value)
        {
            return;
        }
    }
    for (key, value) in rows {
        if !sink(key, value) {
            return;
        }
    }
}

/// True if `[begin, end)` holds exactly one key.
fn is_single(begin: &[u8], end: &[u8]) -> bool {
    end.len() == begin.len() + 1 && end[begin.len()] == 0 && end.starts_with(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &'static str) -> Key {
        Key::from_static(text.as_bytes())
    }
    fn operation(kind: MutationKind, name: &'static str, operand: &'static [u8]) -> Mutation {
        Mutation {
            kind,
            first: key(name),
            second: Bytes::from_static(operand),
        }
    }
    fn unknown(map: &WriteMap, begin: &'static str, end: &'static str) -> Vec<(Key, Key)> {
        let mut parts = Vec::new();
        map.unknown_parts(&key(begin), &key(end), |b, e| parts.push((b, e)));
        parts
    }

    #[test]
    fn an_atomic_operation_is_resolved_as_soon_as_its_key_is_known() {
        let mut map = WriteMap::default();
        map.apply(operation(MutationKind::Add, "a", &[1]), 0);
        assert!(matches!(map.lookup(b"a"), Lookup::Pending(operations) if operations.len() == 1));
        map.apply(Mutation::clear_range(key("a"), key("c")), 0);
        map.apply(operation(MutationKind::Add, "b", &[1]), 0);
        map.apply(operation(MutationKind::Add, "b", &[2]), 0);
        assert!(matches!(map.lookup(b"b"), Lookup::Known(Some(value)) if value[..] == [3]));
        assert!(matches!(map.lookup(b"a"), Lookup::Known(None)));
        assert!(matches!(map.lookup(b"c"), Lookup::Unmodified));
    }

    #[test]
    fn a_versionstamped_key_hides_its_range_until_it_is_cleared() {
        let mut map = WriteMap::default();
        map.apply(
            operation(
                MutationKind::SetVersionstampedKey,
                "q0123456789\x01\0\0\0",
                b"v",
            ),
            5,
        );
        let stamp = |version: u64| [&b"q"[..], &version.to_be_bytes(), &[0, 0]].concat();
        assert!(matches!(map.lookup(&stamp(5)), Lookup::Unreadable));
        assert!(
            matches!(map.lookup(&stamp(4)), Lookup::Unmodified),
            "below every stamp to come"
        );
        map.apply(Mutation::set(stamp(9), "x"), 5);
        assert!(
            matches!(map.lookup(&stamp(9)), Lookup::Unreadable),
            "the stamp may come over the set"
        );
        map.apply(Mutation::clear_range(key("p"), key("r")), 5);
        assert!(matches!(map.lookup(&stamp(9)), Lookup::Known(None)));
    }

    #[test]
    fn unknown_parts_leave_out_sets_and_clears_but_not_pending_operations() {
        let mut map = WriteMap::default();
        map.apply(Mutation::clear_range(key("c"), key("e")), 0);
        map.apply(Mutation::set(key("a"), "1"), 0);
        map.apply(operation(MutationKind::Add, "f", &[1]), 0);
        map.apply(Mutation::clear_range(key("g"), key("g\0")), 0);
        let parts = [("a\0", "c"), ("e", "g"), ("g\0", "h")].map(|(b, e)| (key(b), key(e)));
        assert_eq!(unknown(&map, "a", "h"), parts);
        assert_eq!(unknown(&map, "c", "e"), []);
        assert_eq!(unknown(&map, "a", "a\0"), []);
        assert_eq!(unknown(&map, "d", "f"), [(key("e"), key("f"))]);
    }

    #[test]
    fn merged_rows_are_the_databases_with_own_writes_over_them_in_both_directions() {
        let mut map = WriteMap::default();
        map.apply(Mutation::set(key("b"), "B"), 0);
        map.apply(operation(MutationKind::AppendIfFits, "c", b"+"), 0);
        map.apply(operation(MutationKind::AppendIfFits, "d", b"+"), 0);
        map.apply(Mutation::clear_range(key("e"), key("e\0")), 0);
        let rows = [("a", "1"), ("c", "2"), ("e", "3"), ("f", "4")].map(|(k, v)| (key(k), key(v)));
        let mut want = [("a", "1"), ("b", "B"), ("c", "2+"), ("d", "+"), ("f", "4")]
            .map(|(k, v)| (key(k), key(v)));
        for (reverse, mut rows) in [(false, rows.to_vec()), (true, rows.to_vec())] {
            if reverse {
                rows.reverse();
                want.reverse();
            }
            for limit in 1..=want.len() {
                let mut merged = Vec::new();
                map.merge((b"", b"z"), reverse, rows.iter().cloned(), |key, value| {
                    merged.push((key, value));
                    merged.len() < limit
                });
                assert_eq!(merged, want[..limit], "no more is looked at than is taken");
            }
        }
    }
}
