//! The rows of the system keyspace that every client may write. All others are for operators and servers.
//!
//! ```text
//! \xff/metadataVersion          its own stamp, and nothing else
//! \xff\x02/idmp/<version>/<id>  the proof that a transaction happened: its own stamp
//! \xff/streams/…                the list of streams
//! \xff\x02/streams/…            entries of streams, and how far consumers are
//! \xff/SC/…                     no rows: only conflict ranges have such keys
//! ```
//!
//! None of them decides what a server does, except the list of streams. Commit proxies refuse a list that is too long.

use crate::atomic;
use crate::codec::Codec;
use crate::conflict_ranges::{ConflictRange, Endpoint};
use crate::key::{SYSTEM_BEGIN, prefix_end};
use crate::mutation::{MutationKind, MutationRef};
use crate::streams::{
    LAST_STREAM_ID, NAME_BYTES_MAX, STREAM_DATA, STREAM_MAP, STREAMS, StreamKind, StreamRecord,
    canonical_ranges,
};
use crate::system_keys::{IDEMPOTENCY, METADATA_VERSION};
use crate::version::Versionstamp;
use bytes::Bytes;

/// Prefix of keys that only occur in conflict ranges: one for each transaction that is not in conflict with itself.
pub const SELF_CONFLICT: &[u8] = b"\xff/SC/";

/// A stamp, followed by the offset where it goes: the one operand for [`METADATA_VERSION`] and for the rows of
/// [`IDEMPOTENCY`].
pub const STAMP_OPERAND: &[u8] = &[0; Versionstamp::LEN + 4];

/// Length of the key of a row that proves that a transaction happened: a version, a slash and an id follow the prefix.
const IDEMPOTENCY_KEY_BYTES: usize = IDEMPOTENCY.len() + 8 + 1 + 16;

/// True if every client may do this to the system keyspace. The mutation is well-formed.
pub fn may_write(mutation: &MutationRef<'_>) -> bool {
    let MutationRef {
        kind,
        first,
        second,
    } = *mutation;
    match kind {
        MutationKind::ClearRange => [STREAM_MAP, STREAM_DATA]
            .iter()
            .any(|prefix| is_within(prefix, first, second)),
        MutationKind::Set if first.starts_with(STREAM_MAP) => is_stream(first, second),
        MutationKind::Set if first == LAST_STREAM_ID => second.len() == size_of::<u64>(),
        MutationKind::Set => first.starts_with(STREAM_DATA),
        MutationKind::SetVersionstampedKey => {
            let place = atomic::versionstamp_offset(first);
            first.starts_with(STREAM_DATA) && place.is_some_and(|at| at >= STREAM_DATA.len())
        }
        MutationKind::SetVersionstampedValue => {
            let is_stamp = second == STAMP_OPERAND;
            (is_stamp && is_own_stamp(first)) || first.starts_with(STREAM_DATA)
        }
        _ => false,
    }
}

/// True if every client may make others conflict with this range. Whoever may could stop those who write there.
pub fn may_conflict(range: &ConflictRange<'_>) -> bool {
    if range.end <= Endpoint::at(SYSTEM_BEGIN) {
        return true;
    }
    let end = range.end.to_key();
    let within = |prefix: &&[u8]| is_within(prefix, range.begin, &end);
    [
        SELF_CONFLICT,
        METADATA_VERSION,
        IDEMPOTENCY,
        STREAMS,
        STREAM_DATA,
    ]
    .iter()
    .any(within)
}

/// True for [`METADATA_VERSION`], and for a row that proves that a transaction happened.
pub fn is_own_stamp(key: &[u8]) -> bool {
    let is_proof = key.starts_with(IDEMPOTENCY) && key.len() == IDEMPOTENCY_KEY_BYTES;
    is_proof || key == METADATA_VERSION
}

/// True if no row is in this range: a transaction has made it up to be in conflict with itself.
pub fn is_only_conflict(range: &ConflictRange<'_>) -> bool {
    range.begin.starts_with(SELF_CONFLICT)
        && is_within(SELF_CONFLICT, range.begin, &range.end.to_key())
}

fn is_within(prefix: &[u8], begin: &[u8], end: &[u8]) -> bool {
    begin.starts_with(prefix) && prefix_end(prefix).is_some_and(|last| *end <= last[..])
}

fn is_stream(key: &[u8], value: &[u8]) -> bool {
    let name = &key[STREAM_MAP.len()..];
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(&0);
    let record = StreamRecord::from_bytes(Bytes::copy_from_slice(value));
    is_name
        && record.is_some_and(|record| match record.kind {
            StreamKind::Append => record.ranges.is_empty(),
            StreamKind::Changes => canonical_ranges(record.ranges.clone()) == Some(record.ranges),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflict_ranges::ConflictRangesBuilder;
    use crate::key::KeyRange;
    use crate::streams;
    use crate::system_keys::{CONFIG, DATABASE_LOCK, TENANTS, idempotency_rows_from};

    fn may(kind: MutationKind, first: &[u8], second: &[u8]) -> bool {
        may_write(&MutationRef {
            kind,
            first,
            second,
        })
    }

    /// A key with a stamp at `offset`.
    fn stamped(prefix: &[u8], offset: u32) -> Vec<u8> {
        [prefix, &[0; Versionstamp::LEN + 2], &offset.to_le_bytes()].concat()
    }

    #[test]
    fn the_stamp_of_metadata_and_the_proof_of_a_commit_are_stamps_and_nothing_else() {
        let proof = [&idempotency_rows_from(7)[..], b"/", &[1; 16]].concat();
        for key in [METADATA_VERSION, &proof] {
            let kind = MutationKind::SetVersionstampedValue;
            assert!(may(kind, key, STAMP_OPERAND));
            assert!(!may(kind, key, &stamped(b"", 1)) && !may(MutationKind::Set, key, b"x"));
            assert!(!may(MutationKind::ClearRange, key, &[key, b"\0"].concat()));
        }
        let longer = [&proof[..], b"x"].concat();
        for wrong in [&proof[..proof.len() - 1], &longer, CONFIG, b"\xff\x02/x"] {
            assert!(!may(
                MutationKind::SetVersionstampedValue,
                wrong,
                STAMP_OPERAND
            ));
        }
    }

    #[test]
    fn a_client_may_write_streams_and_no_row_beside_them() {
        let record = |kind, ranges: &[(&'static str, &'static str)]| {
            let range = |(begin, end): &(&'static str, &'static str)| KeyRange::new(*begin, *end);
            let ranges = ranges.iter().map(range).collect();
            let (id, bytes_max, seconds_max) = (1, 0, 0);
            let record = StreamRecord {
                id,
                kind,
                ranges,
                bytes_max,
                seconds_max,
            };
            record.to_bytes()
        };
        let set = |key: &[u8], value: &[u8]| may(MutationKind::Set, key, value);
        let name = streams::map_key(b"s");
        assert!(set(&name, &record(StreamKind::Append, &[])));
        assert!(set(
            &name,
            &record(StreamKind::Changes, &[("a", "b"), ("c", "d")])
        ));
        for wrong in [
            record(StreamKind::Append, &[("a", "b")]),
            record(StreamKind::Changes, &[]),
            record(StreamKind::Changes, &[("b", "a")]),
            record(StreamKind::Changes, &[("a", "c"), ("b", "d")]),
            Bytes::from_static(b"x"),
        ] {
            assert!(!set(&name, &wrong));
        }
        for name in [&b""[..], b"a\0b", &[7; 256]] {
            let append = record(StreamKind::Append, &[]);
            assert!(!set(&streams::map_key(name), &append));
        }
        assert!(set(LAST_STREAM_ID, &[0; 8]) && !set(LAST_STREAM_ID, &[0; 9]));
        assert!(set(&streams::floor_key(1), b"x") && !set(b"\xff/streams/x", b"x"));
        let entry = streams::entry_prefix(1);
        let stamp = |offset: usize| {
            let key = stamped(&entry, offset as u32);
            may(MutationKind::SetVersionstampedKey, &key, b"x")
        };
        assert!(stamp(entry.len()) && stamp(STREAM_DATA.len()));
        assert!(!stamp(STREAM_DATA.len() - 1) && !stamp(1));
        let clear = |range: KeyRange| may(MutationKind::ClearRange, &range.begin, &range.end);
        assert!(clear(KeyRange::single(&name)) && clear(streams::data_range(1)));
        assert!(!clear(KeyRange::new(name.clone(), &b"\xff/t"[..])));
        assert!(!clear(KeyRange::new(STREAMS, &b"\xff/streams0"[..])));
    }

    #[test]
    fn what_decides_about_servers_and_others_is_not_for_clients() {
        let kinds = (0..=u8::MAX).filter_map(MutationKind::from_u8);
        for kind in kinds {
            for key in [
                CONFIG,
                DATABASE_LOCK,
                TENANTS,
                b"\xff",
                b"\xff/keyServers/",
                b"\xff/SC/x",
            ] {
                assert!(!may(kind, key, STAMP_OPERAND), "{kind:?}");
            }
        }
    }

    #[test]
    fn a_client_makes_others_conflict_where_it_may_write() {
        let may = |begin: &[u8], end: &[u8]| {
            let mut builder = ConflictRangesBuilder::new();
            builder.add(begin, end);
            builder.build().iter().all(|range| may_conflict(&range))
        };
        assert!(may(b"", b"\xff") && may(b"\xff/SC/x", b"\xff/SC/x\0"));
        assert!(may(METADATA_VERSION, b"\xff/metadataVersion\0"));
        assert!(may(STREAM_MAP, streams::STREAM_MAP_END));
        for (begin, end) in [
            (&b""[..], &b"\xff\0"[..]),
            (b"\xfe", b"\xff\xff"),
            (CONFIG, b"\xff/conf\0"),
            (b"\xff/SC/", b"\xff/SD"),
            (b"\xff/metadataVersion", b"\xff/metadataVersioo\0"),
        ] {
            assert!(!may(begin, end));
        }
    }
}
