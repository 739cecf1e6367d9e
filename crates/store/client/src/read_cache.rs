//! Results of an attempt's reads: rows, absent keys and gaps between rows, all at its one read version, so that a
//! repeated read asks no server (FDB §2.4.1).
//!
//! ```text
//! key space   --------[=============)----|-----[====)-------|---
//! pieces              what ranges proved       another
//! points                                 one key            one key
//! ```
//!
//! It holds only the database's side; its users lay own writes over it. A piece is the part of a range that a chunk
//! of rows proves: from where the scan began to its end, or to its last row if a limit ended it. The chunk is kept as
//! the server packed it, and taken apart when it is first looked into, because most transactions never read anything
//! twice. For the same reason the first point reads are only added to the end of a list.
//!
//! When the cache reaches the limit of the transaction's size, it remembers nothing more. Its contents stay, so a
//! scan of a large range does not push out the few rows that a transaction reads again.

use crate::source::{PackedRows, Row};
use plinth_core::hash::hash_bytes;
use plinth_core::{Key, Value};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::rc::Rc;

/// Point reads that are searched one by one; further ones are indexed.
const UNINDEXED_MAX: usize = 16;
/// This many values may each keep alive the buffer that they arrived in, with everything else in it.
const UNCOPIED_MAX: usize = 64;
/// After those, smaller values than this are copied.
const COPY_BYTES_MAX: usize = 16 << 10;
/// Overhead of a point, a row and a piece beyond their bytes.
const POINT_OVERHEAD_BYTES: usize = 96;
const ROW_OVERHEAD_BYTES: usize = 64;
const PIECE_OVERHEAD_BYTES: usize = 192;
/// A piece with fewer rows is read again: that costs less than stopping before it and asking once more behind it.
const WORTH_STOPPING_ROWS: usize = 64;
/// Limit of pieces that a read looks at, to find one that is worth stopping at.
const LOOKED_AT_MAX: usize = 8;

pub(crate) struct ReadCache {
    points: Points,
    /// Disjoint, by their beginnings.
    pieces: BTreeMap<Key, Piece>,
    /// Results of selectors that a server resolved: (key, offset) to (end of the legal keys, key found).
    selectors: BTreeMap<(Key, i32), (Key, Key)>,
    bytes: usize,
    bytes_max: usize,
}

struct Piece {
    end: Key,
    /// Rows outside of the piece do not count: another piece has them.
    rows: Chunk,
    row_count: usize,
    bytes: usize,
}

/// Rows of a chunk, ascending once they are taken apart.
enum Chunk {
    Packed { rows: PackedRows, reverse: bool },
    Rows(Rc<[Row]>),
}

/// Known rows of a part of the key space, ascending.
#[derive(Clone, Debug)]
pub(crate) struct KnownRows {
    rows: Option<Rc<[Row]>>,
    part: Range<usize>,
}

impl KnownRows {
    pub fn none() -> Self {
        KnownRows {
            rows: None,
            part: 0..0,
        }
    }

    fn one(key: Key, value: Value) -> Self {
        KnownRows {
            rows: Some(Rc::from([(key, value)])),
            part: 0..1,
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows
            .as_deref()
            .map_or(&[][..], |rows| &rows[self.part.clone()])
            .iter()
    }
}

impl ReadCache {
    /// Keeps about `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        ReadCache {
            points: Points::default(),
            pieces: BTreeMap::new(),
            selectors: BTreeMap::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Forgets everything and frees its memory.
    pub fn clear(&mut self) {
        *self = ReadCache::new(self.bytes_max);
    }

    /// Takes room for this many bytes; false if there is not enough.
    fn take_bytes(&mut self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.bytes_max;
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// The value of `key` if it is known; the inner `None` is absent.
    pub fn get(&mut self, key: &[u8]) -> Option<Option<Value>> {
        self.points.get(key).or_else(|| self.in_pieces(key))
    }

    fn in_pieces(&mut self, key: &[u8]) -> Option<Option<Value>> {
        let (_, piece) = self.piece_from(key)?;
        let rows = piece.rows();
        let found = rows.binary_search_by(|(at, _)| at[..].cmp(key));
        Some(found.ok().map(|at| rows[at].1.clone()))
    }

    /// Adds the answer to a read of one key.
    pub fn add_point(&mut self, key: Key, value: Option<Value>) {
        let bytes = POINT_OVERHEAD_BYTES + key.len() + value.as_ref().map_or(0, Value::len);
        if self.take_bytes(bytes) {
            self.points.add(key, value);
        }
    }

    /// Adds all the rows of `[begin, end)`, in descending order if `reverse`.
    pub fn add_range(
        &mut self,
        mut begin: Key,
        mut end: Key,
        rows: &[Row],
        packed: Option<PackedRows>,
        reverse: bool,
    ) {
        // The part that is known already has the same rows: it stays, and only the rest of the new piece is added.
        if let Some((_, piece)) = self.piece_from(&begin) {
            begin = piece.end.clone();
        }
        if let Some((at, piece)) = self.last_before(&end)
            && piece.end > end
        {
            end = at.clone();
        }
        if begin >= end {
            return;
        }
        self.remove_within(&begin, &end);
        assert!(
            self.last_before(&end)
                .is_none_or(|(_, before)| before.end <= begin),
            "pieces do not overlap",
        );
        let content = packed.as_ref().map_or_else(
            || {
                rows.iter()
                    .map(|(key, value)| key.len() + value.len())
                    .sum()
            },
            PackedRows::len_bytes,
        );
        let bytes = PIECE_OVERHEAD_BYTES
            + begin.len()
            + end.len()
            + content
            + ROW_OVERHEAD_BYTES * rows.len();
        if self.take_bytes(bytes) {
            let piece = Piece {
                end,
                rows: Chunk::new(rows, packed, reverse),
                row_count: rows.len(),
                bytes,
            };
            self.pieces.insert(begin, piece);
        }
    }

    /// Drops the pieces in `[begin, end)`. None of them extends beyond.
    fn remove_within(&mut self, begin: &Key, end: &Key) {
        let bounds = (Bound::Included(&begin[..]), Bound::Excluded(&end[..]));
        while let Some((at, _)) = self.pieces.range::<[u8], _>(bounds).next() {
            let at = at.clone();
            let piece = self.pieces.remove(&at).expect("it was just seen");
            assert!(piece.end <= *end, "a piece that extends beyond stays");
            self.bytes -= piece.bytes;
        }
    }

    /// The piece that holds `key`.
    fn piece_from(&mut self, key: &[u8]) -> Option<(&Key, &mut Piece)> {
        let bounds = (Bound::Unbounded, Bound::Included(key));
        let (at, piece) = self.pieces.range_mut::<[u8], _>(bounds).next_back()?;
        (*key < piece.end[..]).then_some((at, piece))
    }

    /// The last piece that begins before `key`.
    fn last_before(&mut self, key: &[u8]) -> Option<(&Key, &mut Piece)> {
        let bounds = (Bound::Unbounded, Bound::Excluded(key));
        self.pieces.range_mut::<[u8], _>(bounds).next_back()
    }

    /// The known part from `begin` on: where it ends, at `end` at the latest, and its rows.
    pub fn known_from(&mut self, begin: &Key, end: &Key) -> Option<(Key, KnownRows)> {
        if let Some((_, piece)) = self.piece_from(begin) {
            let until = piece.end.clone().min(end.clone());
            return Some((until.clone(), piece.part(begin, &until)));
        }
        let value = self.points.get(begin)?;
        let rows = value.map_or_else(KnownRows::none, |v| KnownRows::one(begin.clone(), v));
        Some((plinth_core::key::key_after(begin), rows))
    }

    /// The known part up to `end`: where it begins, at `begin` at the earliest, and its rows.
    pub fn known_before(&mut self, begin: &Key, end: &Key) -> Option<(Key, KnownRows)> {
        if let Some((at, piece)) = self.last_before(end)
            && piece.end >= *end
        {
            let from = at.clone().max(begin.clone());
            let rows = piece.part(&from, end);
            return Some((from, rows));
        }
        let key = single_before(end)?;
        let value = self.points.get(&key)?;
        let rows = value.map_or_else(KnownRows::none, |v| KnownRows::one(key.clone(), v));
        Some((key, rows))
    }

    /// How far to read from `begin` on, where nothing is known: to `end`, or to a piece before it that holds enough.
    pub fn unknown_until(&self, begin: &Key, end: &Key) -> Key {
        let bounds = (Bound::Excluded(&begin[..]), Bound::Excluded(&end[..]));
        let mut next = self.pieces.range::<[u8], _>(bounds).take(LOOKED_AT_MAX);
        let large = next.find(|(_, piece)| piece.row_count >= WORTH_STOPPING_ROWS);
        large.map_or_else(|| end.clone(), |(at, _)| at.clone())
    }

    /// How far to read from `end` backwards: to `begin`, or to a piece behind it that holds enough.
    pub fn unknown_after(&self, begin: &Key, end: &Key) -> Key {
        let bounds = (Bound::Unbounded, Bound::Excluded(&end[..]));
        let before = self.pieces.range::<[u8], _>(bounds).rev();
        let large = before
            .take(LOOKED_AT_MAX)
            .take_while(|(_, piece)| piece.end > *begin)
            .find(|(_, piece)| piece.row_count >= WORTH_STOPPING_ROWS);
        large.map_or_else(|| begin.clone(), |(_, piece)| piece.end.clone())
    }

    /// The result of the selector without `or_equal`, if a server resolved exactly this one.
    pub fn selected(&self, key: &Key, offset: i32, keys_end: &Key) -> Option<Key> {
        let (end, found) = self.selectors.get(&(key.clone(), offset))?;
        (end == keys_end).then(|| found.clone())
    }

    pub fn add_selected(&mut self, key: Key, offset: i32, keys_end: Key, found: Key) {
        if self.take_bytes(POINT_OVERHEAD_BYTES + key.len() + found.len()) {
            self.selectors.insert((key, offset), (keys_end, found));
        }
    }
}

/// Keys read one by one, in the order of the answers. Most transactions read few of them, each once: a key costs an
/// entry at the end of a list, and a hash to find it by.
#[derive(Default)]
struct Points {
    list: Vec<Point>,
    /// By hash, the places in the list of those behind the first few. If two have the same hash, the later one is
    /// found.
    others: BTreeMap<u64, usize>,
}

struct Point {
    hash: u64,
    key: Key,
    value: Option<Value>,
}

impl Points {
    fn get(&self, key: &[u8]) -> Option<Option<Value>> {
        if self.list.is_empty() {
            return None;
        }
        let hash = hash_bytes(key);
        let mut first = self.list.iter().take(UNINDEXED_MAX);
        let point = match first.find(|point| point.hash == hash) {
            Some(point) => point,
            None => &self.list[*self.others.get(&hash)?],
        };
        (point.key[..] == *key).then(|| point.value.clone())
    }

    fn add(&mut self, key: Key, value: Option<Value>) {
        let (hash, at) = (hash_bytes(&key), self.list.len());
        if at < UNINDEXED_MAX {
            self.list.reserve_exact(UNINDEXED_MAX - at);
        } else {
            self.others.insert(hash, at);
        }
        let value = if at < UNCOPIED_MAX {
            value
        } else {
            value.map(unshared)
        };
        self.list.push(Point { hash, key, value });
    }
}

impl Piece {
    fn rows(&mut self) -> &Rc<[Row]> {
        self.rows.unpacked()
    }

    /// The rows of `[begin, end)`, which lies in the piece.
    fn part(&mut self, begin: &Key, end: &Key) -> KnownRows {
        let rows = self.rows().clone();
        let from = rows.partition_point(|(key, _)| key < begin);
        let to = rows.partition_point(|(key, _)| key < end);
        KnownRows {
            part: from..to,
            rows: Some(rows),
        }
    }
}

impl Chunk {
    fn new(rows: &[Row], packed: Option<PackedRows>, reverse: bool) -> Self {
        match packed {
            Some(packed) => Chunk::Packed {
                rows: packed.map_bytes(unshared),
                reverse,
            },
            None if reverse => Chunk::Rows(rows.iter().rev().cloned().collect()),
            None => Chunk::Rows(rows.into()),
        }
    }

    fn unpacked(&mut self) -> &Rc<[Row]> {
        if let Chunk::Packed { rows, reverse } = self {
            let mut rows = rows.decode().expect("it was decoded when it came");
            if *reverse {
                rows.reverse();
            }
            *self = Chunk::Rows(rows.into());
        }
        match self {
            Chunk::Rows(rows) => rows,
            Chunk::Packed { .. } => unreachable!("it was just taken apart"),
        }
    }
}

fn unshared(bytes: Value) -> Value {
    if bytes.len() > COPY_BYTES_MAX {
        bytes
    } else {
        Value::copy_from_slice(&bytes)
    }
}

/// The key directly before `end`, if there is one.
pub(crate) fn single_before(end: &Key) -> Option<Key> {
    end.ends_with(&[0]).then(|| end.slice(..end.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::codec::Codec;
    use plinth_core::key::key_after;
    use plinth_protocol::storage::GetRangeReply;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Rows = BTreeMap<Key, Value>;

    fn universe() -> Vec<Key> {
        (b'a'..=b'h')
            .flat_map(|c| [vec![c], vec![c, 0], vec![c, b'x']])
            .map(Key::from)
            .collect()
    }

    #[derive(Clone, Debug)]
    enum Read {
        Point(Key),
        /// Begin, end, rows at most, whether in reverse, whether as a server packs them.
        Range(Key, Key, usize, bool, bool),
    }

    fn read() -> impl Strategy<Value = Read> {
        let key = || prop::sample::select(universe());
        prop_oneof![
            2 => key().prop_map(Read::Point),
            3 => (key(), key(), 1usize..5, any::<bool>(), any::<bool>())
                .prop_map(|(a, b, limit, reverse, packed)| {
                    Read::Range(a.clone().min(b.clone()), a.max(b), limit, reverse, packed)
                }),
        ]
    }

    fn pack(rows: &[Row]) -> PackedRows {
        let mut packed = plinth_core::output::Output::copying();
        for (key, value) in rows {
            Key::from([&b"12"[..], key].concat()).put(&mut packed);
            value.put(&mut packed);
        }
        let reply = GetRangeReply {
            rows: packed.into_bytes(),
            row_count: rows.len() as u32,
            more: false,
        };
        PackedRows::new(&reply).without_prefix(2)
    }

    /// Reads from `base` as a server would, and adds the answer to `cache`. Returns the range that the answer proves.
    fn perform(cache: &mut ReadCache, base: &Rows, read: &Read) -> (Key, Key) {
        let (begin, end, limit, reverse, packed) = match read.clone() {
            Read::Point(key) => {
                cache.add_point(key.clone(), base.get(&key).cloned());
                return (key.clone(), key_after(&key));
            }
            Read::Range(begin, end, limit, reverse, packed) => (begin, end, limit, reverse, packed),
        };
        let mut rows: Vec<Row> = base
            .iter()
            .filter(|(key, _)| begin <= **key && **key < end)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if reverse {
            rows.reverse();
        }
        let (mut from, mut to) = (begin, end);
        if rows.len() > limit {
            rows.truncate(limit);
            let last = rows[limit - 1].0.clone();
            if reverse {
                from = last;
            } else {
                to = key_after(&last);
            }
        }
        let packed = packed.then(|| pack(&rows));
        cache.add_range(from.clone(), to.clone(), &rows, packed, reverse);
        (from, to)
    }

    fn expect_rows(base: &Rows, begin: &Key, end: &Key, known: &KnownRows) {
        let want: Vec<&Key> = base
            .keys()
            .filter(|key| *begin <= **key && **key < *end)
            .collect();
        let got: Vec<&Key> = known.iter().map(|(key, _)| key).collect();
        assert_eq!(got, want, "in {begin:?}..{end:?}");
        assert!(
            known
                .iter()
                .all(|(key, value)| base.get(key) == Some(value))
        );
    }

    /// The rows of a snapshot, with values as long as `lengths` says.
    fn base(lengths: std::ops::Range<usize>) -> impl Strategy<Value = BTreeMap<Key, Vec<u8>>> {
        let value = prop::collection::vec(0u8..9, lengths);
        prop::collection::btree_map(prop::sample::select(universe()), value, 0..20)
    }

    proptest! {
        #[test]
        fn what_is_known_is_what_was_read_and_no_more(
            base in base(0..3),
            reads in prop::collection::vec(read(), 0..40),
        ) {
            let base: Rows = base.into_iter().map(|(key, value)| (key, value.into())).collect();
            let mut cache = ReadCache::new(1 << 20);
            let (mut known, mut by_ranges) = (BTreeSet::new(), BTreeSet::new());
            for read in &reads {
                let (from, to) = perform(&mut cache, &base, read);
                let proven = universe().into_iter().filter(|key| from <= *key && *key < to);
                match read {
                    Read::Point(_) => known.extend(proven),
                    Read::Range(..) => by_ranges.extend(proven),
                }
            }
            known.extend(by_ranges.iter().cloned());
            let last = Key::from_static(b"zz");
            for key in universe() {
                let value = known.contains(&key).then(|| base.get(&key).cloned());
                prop_assert_eq!(cache.get(&key), value, "{:?} after {:?}", key, reads);
                let after = cache.known_from(&key, &last);
                prop_assert_eq!(after.is_some(), known.contains(&key));
                if let Some((until, rows)) = after {
                    prop_assert!(key < until && until <= last);
                    prop_assert!(universe().iter().filter(|k| key <= **k && **k < until).all(|k| known.contains(k)));
                    expect_rows(&base, &key, &until, &rows);
                }
                let (first, end) = (Key::new(), key_after(&key));
                let before = cache.known_before(&first, &end);
                prop_assert_eq!(before.is_some(), known.contains(&key));
                if let Some((from, rows)) = before {
                    prop_assert!(first <= from && from < end);
                    prop_assert!(universe().iter().filter(|k| from <= **k && **k < end).all(|k| known.contains(k)));
                    expect_rows(&base, &from, &end, &rows);
                }
            }
        }

        #[test]
        fn pieces_are_disjoint_and_no_more_than_the_limit_is_kept(
            base in base(0..200),
            reads in prop::collection::vec(read(), 0..60),
            bytes_max in 0usize..4000,
        ) {
            let base: Rows = base.into_iter().map(|(key, value)| (key, value.into())).collect();
            let mut cache = ReadCache::new(bytes_max);
            for read in &reads {
                perform(&mut cache, &base, read);
                prop_assert!(cache.bytes <= bytes_max);
                let mut end = Key::new();
                for (at, piece) in &cache.pieces {
                    prop_assert!(end <= *at && *at < piece.end);
                    end = piece.end.clone();
                }
                for key in universe() {
                    if let Some(value) = cache.get(&key) {
                        prop_assert_eq!(value, base.get(&key).cloned());
                    }
                }
            }
        }
    }

    #[test]
    fn a_read_goes_on_through_small_pieces_and_stops_at_one_that_saves_something() {
        let key = |i: u32| Key::from(format!("{i:04}"));
        let rows: Rows = (0..1000)
            .map(|i| (key(i), Value::from_static(b"v")))
            .collect();
        let mut cache = ReadCache::new(1 << 20);
        let mut add = |from, to| {
            perform(
                &mut cache,
                &rows,
                &Read::Range(key(from), key(to), 1000, false, false),
            );
        };
        add(10, 12);
        add(20, 90);
        add(500, 700);
        assert_eq!(cache.unknown_until(&key(0), &key(999)), key(20));
        assert_eq!(cache.unknown_until(&key(0), &key(15)), key(15));
        assert_eq!(cache.unknown_after(&key(0), &key(999)), key(700));
        assert_eq!(cache.unknown_after(&key(0), &key(20)), key(0));
    }

    #[test]
    fn a_small_value_does_not_keep_the_buffer_it_came_in() {
        let buffer = Value::from(vec![7u8; 64 << 10]);
        let mut cache = ReadCache::new(1 << 20);
        for i in 0..100u8 {
            cache.add_point(Key::from(vec![i]), Some(buffer.slice(..10)));
        }
        let within = |value: &Value| buffer.as_ptr_range().contains(&value.as_ptr());
        let kept = (0..100u8).filter(|i| within(&cache.get(&[*i]).flatten().expect("there")));
        assert_eq!(
            kept.count(),
            UNCOPIED_MAX,
            "so many references, whatever is read"
        );
    }
}
