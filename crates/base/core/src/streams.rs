//! Streams: what was appended, or what changed in some ranges, as rows of the system keyspace in commit order.
//!
//! ```text
//! \xff/streams/map/<name>                        StreamRecord; the commit proxies keep a copy
//! \xff/streams/lastId                            id given out last, 8 bytes big-endian
//! \xff\x02/streams/<id, 8 B>/e<position, 12 B>   a row with one entry or several
//! \xff\x02/streams/<id, 8 B>/f                   position: the entries before it are gone
//! \xff\x02/streams/<id, 8 B>/h                   a position: no entry is behind it; changes with every row
//! \xff\x02/streams/<id, 8 B>/c<consumer>         position of a consumer: it has handled everything before it
//! ```
//!
//! A row of an *append* stream is one entry, as its writer gave it: a versionstamped write of the client. The rows of
//! a *changes* stream are added by the commit proxy, at the version of the changes:
//!
//! ```text
//! row     format: u8 (1) | entry …
//! entry   order in the commit batch: u16 | length: u32 | packed mutations        big-endian
//! ```
//!
//! A row is full at about [`ROW_BYTES`]. A transaction with more changes continues in the next row, as the next
//! *piece*. `docs/decisions/0011-streams-are-rows.md` says why streams are rows.

use crate::key::{KeyRange, SYSTEM_BEGIN, prefix_end};
use crate::mutation::{MutationBatch, MutationKind, MutationRef};
use crate::version::Version;
use crate::{record, variants};
use bytes::{Buf, BufMut, Bytes, BytesMut};

pub const STREAMS: &[u8] = b"\xff/streams/";
pub const STREAM_MAP: &[u8] = b"\xff/streams/map/";
pub const STREAM_MAP_END: &[u8] = b"\xff/streams/map0";
pub const LAST_STREAM_ID: &[u8] = b"\xff/streams/lastId";
pub const STREAM_DATA: &[u8] = b"\xff\x02/streams/";

/// Longest name of a stream or a consumer, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Largest entry of an append stream.
pub const ENTRY_BYTES_MAX: usize = crate::key::VALUE_BYTES_MAX;
/// At most this many changes streams have a key in common: each adds its own copy of a change to the version, and a
/// version has to fit into a frame.
pub const OVERLAP_MAX: usize = 3;
/// Largest number of streams in a database.
pub const STREAMS_MAX: usize = 1000;
/// A row of changes with this many bytes takes no further mutation.
const ROW_BYTES: usize = 32 << 10;
const ROW_FORMAT: u8 = 1;
const ENTRY_HEAD_BYTES: usize = 6;

variants! {
    #[derive(Copy, Eq)]
    pub enum StreamKind {
        /// Transactions append entries.
        Append = 0,
        /// The mutations in some ranges, in commit order.
        Changes = 1,
    }
}

impl StreamKind {
    pub fn name(self) -> &'static str {
        match self {
            StreamKind::Append => "append",
            StreamKind::Changes => "changes",
        }
    }
}

record! {
    /// What the database knows of a stream.
    pub struct StreamRecord {
        pub id: u64,
        pub kind: StreamKind,
        /// Of a changes stream: ranges below `\xff`, in order, that neither overlap nor touch.
        pub ranges: Vec<KeyRange>,
        /// The oldest entries are cut while the stream holds more bytes than this; 0 means no limit.
        pub bytes_max: u64,
        /// Entries older than this are cut; 0 means no limit.
        pub seconds_max: u64,
    }
}

impl StreamRecord {
    /// True if entries are removed only when every consumer has handled them.
    pub fn keeps_all(&self) -> bool {
        self.bytes_max == 0 && self.seconds_max == 0
    }
}

/// The place of an entry: order of commits first, then order inside the transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Position {
    pub version: Version,
    /// Order of the transaction in its commit batch.
    pub order: u16,
    /// Number of the append in its transaction, or piece of the transaction's changes.
    pub piece: u16,
}

impl Position {
    pub const LEN: usize = 12;
    /// Before every entry.
    pub const START: Position = Position {
        version: 0,
        order: 0,
        piece: 0,
    };

    /// The first position of a version.
    pub fn of_version(version: Version) -> Self {
        Position {
            version,
            ..Position::START
        }
    }
    /// The last position of a version.
    pub fn end_of_version(version: Version) -> Self {
        Position {
            version,
            order: u16::MAX,
            piece: u16::MAX,
        }
    }
    /// The position right behind this one.
    pub fn next(self) -> Self {
        let packed = u32::from(self.order) << 16 | u32::from(self.piece);
        match packed.checked_add(1) {
            Some(next) => Position {
                version: self.version,
                order: (next >> 16) as u16,
                piece: next as u16,
            },
            None => Position::of_version(self.version + 1),
        }
    }
    /// Form in a key: sorts as positions do. Its first ten bytes are the transaction's versionstamp.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.version.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.order.to_be_bytes());
        bytes[10..].copy_from_slice(&self.piece.to_be_bytes());
        bytes
    }
    /// `None` unless these are twelve bytes of a version that a database can have.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; Self::LEN] = bytes.try_into().ok()?;
        let mut rest = &bytes[..];
        let version = rest.get_i64();
        (0..=crate::version::VERSION_MAX)
            .contains(&version)
            .then(|| Position {
                version,
                order: rest.get_u16(),
                piece: rest.get_u16(),
            })
    }
}

// ---- keys ----

pub fn map_key(name: &[u8]) -> Bytes {
    [STREAM_MAP, name].concat().into()
}

fn data_key(id: u64, kind: &[u8], rest: &[u8]) -> Bytes {
    let mut key = Vec::with_capacity(STREAM_DATA.len() + 8 + kind.len() + rest.len());
    key.extend_from_slice(STREAM_DATA);
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(kind);
    key.extend_from_slice(rest);
    key.into()
}

fn prefix_range(prefix: Bytes) -> KeyRange {
    let end = prefix_end(&prefix).expect("it ends with a letter or a slash");
    KeyRange::new(prefix, end)
}

pub fn entry_key(id: u64, position: Position) -> Bytes {
    data_key(id, b"/e", &position.to_bytes())
}

/// What precedes the position in the key of an entry.
pub fn entry_prefix(id: u64) -> Bytes {
    data_key(id, b"/e", b"")
}

/// Position in the key of an entry.
pub fn position_of_key(id: u64, key: &[u8]) -> Option<Position> {
    Position::from_bytes(key.strip_prefix(&entry_prefix(id)[..])?)
}

pub fn entries_range(id: u64) -> KeyRange {
    prefix_range(entry_prefix(id))
}

pub fn floor_key(id: u64) -> Bytes {
    data_key(id, b"/f", b"")
}

pub fn head_key(id: u64) -> Bytes {
    data_key(id, b"/h", b"")
}

pub fn consumer_key(id: u64, consumer: &[u8]) -> Bytes {
    data_key(id, b"/c", consumer)
}

pub fn consumers_range(id: u64) -> KeyRange {
    prefix_range(data_key(id, b"/c", b""))
}

/// Everything that a stream stores.
pub fn data_range(id: u64) -> KeyRange {
    prefix_range(data_key(id, b"/", b""))
}

// ---- ranges ----

/// Sorts the ranges and joins those that overlap or touch. `None` if there is none, or if one is empty or reaches
/// beyond ordinary keys.
pub fn canonical_ranges(mut ranges: Vec<KeyRange>) -> Option<Vec<KeyRange>> {
    let legal = |range: &KeyRange| !range.is_empty() && range.end[..] <= *SYSTEM_BEGIN;
    if ranges.is_empty() || !ranges.iter().all(legal) {
        return None;
    }
    ranges.sort();
    let mut joined: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.begin <= last.end => last.end = last.end.clone().max(range.end),
            _ => joined.push(range),
        }
    }
    Some(joined)
}

/// The largest number of these streams that have a key in common.
pub fn overlap<'a>(streams: impl IntoIterator<Item = &'a StreamRecord>) -> usize {
    let mut borders: Vec<(&[u8], i32)> = Vec::new();
    for range in streams.into_iter().flat_map(|stream| &stream.ranges) {
        borders.push((&range.begin, 1));
        borders.push((&range.end, -1));
    }
    borders.sort_unstable();
    let mut depth = 0i32;
    let depths = borders.iter().map(|(_, step)| {
        depth += step;
        depth
    });
    depths.max().unwrap_or(0) as usize
}

// ---- rows of changes ----

/// Collects the changes of one version for one stream.
pub struct ChangeRows {
    version: Version,
    rows: Vec<(Position, BytesMut)>,
    /// Order and piece of the open entry, and where its head is in the last row.
    open: Option<(u16, u16, usize)>,
}

impl ChangeRows {
    pub fn new(version: Version) -> Self {
        ChangeRows {
            version,
            rows: Vec::new(),
            open: None,
        }
    }

    /// Adds the mutations of the transaction with this order that lie in `ranges`; clears are clipped to them.
    /// Transactions come in ascending order.
    pub fn add(&mut self, ranges: &[KeyRange], order: u16, mutations: &MutationBatch) {
        let packed = &mutations.bytes()[..];
        // Neighbours that are taken as they are form one run, which is copied at once.
        let (mut run, mut at) = (0, 0);
        for (mutation, end) in crate::mutation::iter_packed(packed) {
            let whole = match mutation.kind {
                MutationKind::ClearRange => {
                    let within = |range: &KeyRange| {
                        range.begin[..] <= *mutation.first && *mutation.second <= range.end[..]
                    };
                    mutation.first < mutation.second
                        && holder(ranges, mutation.first).is_some_and(within)
                }
                _ => holder(ranges, mutation.first)
                    .is_some_and(|range| range.contains(mutation.first)),
            };
            if !whole {
                self.put(order, &packed[run..at]);
                run = end;
                if mutation.kind == MutationKind::ClearRange {
                    self.add_clipped(ranges, order, mutation);
                }
            } else if end - run >= ROW_BYTES {
                self.put(order, &packed[run..end]);
                run = end;
            }
            at = end;
        }
        self.put(order, &packed[run..at]);
        self.open = None;
    }

    fn add_clipped(&mut self, ranges: &[KeyRange], order: u16, clear: MutationRef<'_>) {
        let from = ranges.partition_point(|range| range.end[..] <= *clear.first);
        for range in &ranges[from..] {
            let begin = clear.first.max(&range.begin[..]);
            let end = clear.second.min(&range.end[..]);
            if begin >= end {
                return;
            }
            let mut packed = BytesMut::new();
            MutationRef::clear_range(begin, end).pack(&mut packed);
            self.put(order, &packed);
        }
    }

    /// Adds whole packed mutations to the transaction's entry, which begins with the first of them.
    fn put(&mut self, order: u16, packed: &[u8]) {
        if packed.is_empty() {
            return;
        }
        let full = |(_, row): &(Position, BytesMut)| row.len() >= ROW_BYTES;
        if self.rows.last().is_none_or(full) {
            let piece = self.open.map_or(0, |(_, piece, _)| piece + 1);
            let mut row = BytesMut::with_capacity(packed.len().max(ROW_BYTES / 8));
            row.put_u8(ROW_FORMAT);
            let position = Position {
                version: self.version,
                order,
                piece,
            };
            self.rows.push((position, row));
            self.begin_entry(order, piece);
        } else if self.open.is_none() {
            self.begin_entry(order, 0);
        }
        let (_, _, head) = self.open.expect("just begun");
        let (_, row) = self.rows.last_mut().expect("just begun");
        row.put_slice(packed);
        let length = (row.len() - head - ENTRY_HEAD_BYTES) as u32;
        row[head + 2..head + ENTRY_HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    }

    fn begin_entry(&mut self, order: u16, piece: u16) {
        let (_, row) = self.rows.last_mut().expect("entries lie in rows");
        self.open = Some((order, piece, row.len()));
        row.put_u16(order);
        row.put_u32(0);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows, in order, with the positions that their keys have.
    pub fn finish(self) -> impl Iterator<Item = (Position, Bytes)> {
        self.rows.into_iter().map(|(at, row)| (at, row.freeze()))
    }
}

/// The last range that begins at or before `key`.
fn holder<'a>(ranges: &'a [KeyRange], key: &[u8]) -> Option<&'a KeyRange> {
    let after = ranges.partition_point(|range| range.begin[..] <= *key);
    ranges[..after].last()
}

/// The entries of a row of changes whose key has the position `first`. `None` if the row is malformed.
pub fn parse_changes(first: Position, mut row: Bytes) -> Option<Vec<(Position, MutationBatch)>> {
    if row.try_get_u8().ok()? != ROW_FORMAT {
        return None;
    }
    let mut entries: Vec<(Position, MutationBatch)> = Vec::new();
    while !row.is_empty() {
        let (order, length) = (row.try_get_u16().ok()?, row.try_get_u32().ok()? as usize);
        if length > row.len() {
            return None;
        }
        let position = match entries.last() {
            None => first,
            Some(_) => Position {
                order,
                piece: 0,
                ..first
            },
        };
        let follows = entries.last().is_none_or(|(before, _)| *before < position);
        if order != position.order || !follows {
            return None;
        }
        let mutations = MutationBatch::parse(row.split_to(length))?;
        entries.push((position, mutations));
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::Mutation;
    use proptest::prelude::*;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(begin, end)
    }

    fn batch(mutations: &[Mutation]) -> MutationBatch {
        MutationBatch::from_mutations(mutations.iter().map(Mutation::as_ref))
    }

    /// All mutations of the rows, with their positions, after a round trip.
    fn read(rows: ChangeRows) -> Vec<(Position, Vec<Mutation>)> {
        let entries = rows
            .finish()
            .flat_map(|(first, row)| parse_changes(first, row).expect("well formed"));
        entries
            .map(|(position, mutations)| (position, mutations.iter_owned().collect()))
            .collect()
    }

    #[test]
    fn changes_outside_the_ranges_are_left_out_and_clears_are_clipped() {
        let ranges = [range("b", "d"), range("f", "g")];
        let mut rows = ChangeRows::new(7);
        let first = [
            Mutation::set("a", "out"),
            Mutation::set("b", "in"),
            Mutation::clear_range("a", "z"),
            Mutation::set("d", "out"),
            Mutation::clear_range("b", "c"),
            Mutation::clear_range("d", "f"),
            Mutation::clear_range("c", "b"),
        ];
        rows.add(&ranges, 0, &batch(&first));
        rows.add(&ranges, 3, &batch(&[Mutation::set("e", "out")]));
        rows.add(&ranges, 5, &batch(&[Mutation::set("fa", "in")]));
        let at = |order| Position {
            version: 7,
            order,
            piece: 0,
        };
        let expected = vec![
            (
                at(0),
                vec![
                    Mutation::set("b", "in"),
                    Mutation::clear_range("b", "d"),
                    Mutation::clear_range("f", "g"),
                    Mutation::clear_range("b", "c"),
                ],
            ),
            (at(5), vec![Mutation::set("fa", "in")]),
        ];
        assert_eq!(read(rows), expected);
    }

    #[test]
    fn a_large_transaction_continues_in_further_rows_as_pieces_in_order() {
        let all = [range("", "\u{7f}")];
        let large: Vec<Mutation> = (0..40)
            .map(|i| Mutation::set(format!("{i:02}"), vec![b'x'; 9000]))
            .collect();
        let mut rows = ChangeRows::new(1);
        rows.add(&all, 0, &batch(&[Mutation::set("small", "1")]));
        rows.add(&all, 1, &batch(&large));
        rows.add(&all, 2, &batch(&[Mutation::set("small", "2")]));
        let entries = read(rows);
        assert!(entries.len() > 8, "{}", entries.len());
        let of_large: Vec<_> = entries.iter().filter(|(at, _)| at.order == 1).collect();
        let pieces: Vec<u16> = of_large.iter().map(|(at, _)| at.piece).collect();
        assert_eq!(pieces, (0..of_large.len() as u16).collect::<Vec<_>>());
        let together = of_large.iter().flat_map(|(_, mutations)| mutations.clone());
        assert!(together.eq(large));
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn positions_sort_as_their_bytes_do_and_follow_each_other() {
        let last = Position::end_of_version(4);
        assert_eq!(last.next(), Position::of_version(5));
        let piece = Position { piece: 9, ..last };
        assert!(piece < piece.next() && piece.to_bytes() < piece.next().to_bytes());
        assert_eq!(Position::from_bytes(&piece.to_bytes()), Some(piece));
        assert_eq!(Position::from_bytes(&[0xff; 12]), None, "no such version");
        assert_eq!(position_of_key(3, &entry_key(3, piece)), Some(piece));
        assert_eq!(position_of_key(3, &floor_key(3)), None);
    }

    #[test]
    fn overlap_counts_streams_at_one_key_and_touching_ranges_do_not_overlap() {
        let stream = |ranges| StreamRecord {
            id: 1,
            kind: StreamKind::Changes,
            ranges,
            bytes_max: 0,
            seconds_max: 0,
        };
        assert_eq!(overlap(&[]), 0);
        let streams = [
            stream(vec![range("a", "c"), range("x", "z")]),
            stream(vec![range("c", "d")]),
            stream(vec![range("b", "cc")]),
        ];
        assert_eq!(overlap(&streams), 2);
    }

    #[test]
    fn ranges_are_sorted_and_joined_and_system_keys_are_refused() {
        let mixed = vec![
            range("c", "d"),
            range("a", "b"),
            range("b", "c"),
            range("x", "z"),
        ];
        let joined = vec![range("a", "d"), range("x", "z")];
        assert_eq!(canonical_ranges(mixed), Some(joined));
        for bad in [vec![], vec![range("b", "a")], vec![KeyRange::all()]] {
            assert_eq!(canonical_ranges(bad), None);
        }
    }

    proptest! {
        #[test]
        fn every_change_of_a_key_in_the_ranges_comes_once_and_in_order(
            keys in proptest::collection::vec((0u8..40, 0u8..40, any::<bool>()), 0..60),
        ) {
            let key = |n: u8| Bytes::from(vec![b'a' + n / 10, b'0' + n % 10]);
            let ranges = [KeyRange::new(key(3), key(12)), KeyRange::new(key(20), key(30))];
            let mutations: Vec<Mutation> = keys
                .iter()
                .map(|(a, b, clear)| match clear {
                    true => Mutation::clear_range(key(*a), key(*b)),
                    false => Mutation::set(key(*a), key(*b)),
                })
                .collect();
            let mut rows = ChangeRows::new(1);
            rows.add(&ranges, 0, &batch(&mutations));
            let came: Vec<Mutation> = read(rows).into_iter().flat_map(|(_, m)| m).collect();
            for n in 0..40 {
                let touches = |m: &&Mutation| match m.kind {
                    MutationKind::ClearRange => m.first <= key(n) && key(n) < m.second,
                    _ => m.first == key(n),
                };
                let inside = ranges.iter().any(|range| range.contains(&key(n)));
                let expected: Vec<_> = mutations
                    .iter()
                    .filter(touches)
                    .filter(|_| inside)
                    .map(|m| (m.kind, (m.kind == MutationKind::Set).then(|| m.second.clone())))
                    .collect();
                let seen: Vec<_> = came
                    .iter()
                    .filter(touches)
                    .map(|m| (m.kind, (m.kind == MutationKind::Set).then(|| m.second.clone())))
                    .collect();
                prop_assert_eq!(seen, expected, "key {}", n);
            }
        }
    }

    /// Fuzz target: a row of changes, as a client reads it.
    #[test]
    fn a_damaged_row_is_refused_or_has_entries_in_order() {
        let mut rows = ChangeRows::new(9);
        let all = [range("", "\u{7f}")];
        for order in [0, 4] {
            let mutations = [Mutation::set("k", "v"), Mutation::clear_range("a", "b")];
            rows.add(&all, order, &batch(&mutations));
        }
        let corpus: Vec<_> = rows.finish().map(|(_, row)| row.to_vec()).collect();
        let first = Position::of_version(9);
        crate::testing::fuzz("row of changes", 1, corpus, |input| {
            let Some(entries) = parse_changes(first, Bytes::copy_from_slice(input)) else {
                return false;
            };
            assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
            true
        });
    }
}
