//! Hostile bytes in files.

use crate::backup::blocks::{Blocks, Identity, Item, Version, Writer};
use crate::backup::manifest::{ExtentRecord, GroupRecord, Record};
use crate::journal::format::{self, Block, Segment};
use crate::layout::{Key, Layout};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_farm_memory::{Class, Pointer};
use proptest::prelude::*;

const SEGMENT: Segment = Segment { id: 5, first: 30 };

fn records() -> impl Strategy<Value = Vec<Bytes>> {
    let record = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    prop::collection::vec(record, 0..6)
}

proptest! {
    #[test]
    fn a_block_of_a_journal_comes_back_and_no_changed_byte_is_believed(
        records in records(), first in 30u64..100, at: prop::sample::Index, bit in 0..8u32,
    ) {
        let block = Block { first, needed: first / 2, records };
        let mut out = Output::new();
        block.encode(&mut out, SEGMENT, 64);
        let whole = out.into_bytes();
        let mut file = vec![0; 64];
        file.extend_from_slice(&whole);
        let (found, length) = format::parse_block(&file.clone().into(), SEGMENT, 64).expect("whole");
        prop_assert_eq!((found.first, found.needed, length), (block.first, block.needed, whole.len()));
        prop_assert_eq!(found.records, block.records);
        prop_assert!(format::has_later_block(&file.clone().into(), SEGMENT, 3));
        let elsewhere = Segment { first: 31, ..SEGMENT };
        prop_assert!(format::parse_block(&file.clone().into(), elsewhere, 64).is_none());
        let place = 64 + at.index(whole.len());
        file[place] ^= 1 << bit;
        prop_assert!(format::parse_block(&file.into(), SEGMENT, 64).is_none());
    }

    #[test]
    fn any_bytes_are_a_block_of_a_journal_or_none(
        bytes in prop::collection::vec(any::<u8>(), 0..400), offset in 0usize..500,
    ) {
        let bytes = Bytes::from(bytes);
        prop_assert!(format::parse_block(&bytes, SEGMENT, offset).is_none());
        prop_assert!(!format::has_later_block(&bytes, SEGMENT, offset));
        prop_assert_eq!(format::parse_head(&bytes), format::Head::Broken);
    }
}

const IDENTITY: Identity = Identity {
    id: 9,
    place: 4,
    sequence: 77,
};

fn versions() -> impl Strategy<Value = Vec<Version>> {
    let version = (1u64..100, 1u64..1 << 62, any::<bool>(), 0usize..1500).prop_map(
        |(word, timestamp, is_allocated, bytes)| Version {
            pointer: Pointer::new(word as u16, Class::of(bytes).expect("a size"), word),
            timestamp,
            is_allocated,
            payload: vec![word as u8; bytes].into(),
        },
    );
    prop::collection::vec(version, 1..30)
}

/// Writes what has room to an extent of 16 blocks, closing blocks now and then.
fn write(versions: &[Version], close: usize) -> (Vec<(u32, Version)>, Bytes) {
    let mut writer = Writer::new(IDENTITY, 512, 16);
    let mut written = Vec::new();
    for (i, version) in versions.iter().enumerate() {
        if writer.has_room(version) {
            written.push((writer.push(version), version.clone()));
        }
        if i % close == 0 {
            writer.close();
        }
    }
    writer.close();
    let (begin, bytes) = writer.take_complete().expect("there are some");
    assert_eq!((begin, bytes.len()), (0, 512 * writer.complete() as usize));
    (written, bytes)
}

proptest! {
    #[test]
    fn versions_come_back_from_blocks_and_no_changed_byte_is_believed(
        versions in versions(), close in 1usize..9, at: prop::sample::Index, bit in 0..8u32,
    ) {
        let (written, bytes) = write(&versions, close);
        let mut blocks = Blocks::new(512, 0);
        blocks.add(bytes.clone(), Some(IDENTITY)).expect("whole");
        let found: Vec<_> = blocks.walk().map(|item| item.expect("whole")).collect();
        let expected: Vec<_> = written.into_iter().map(|(n, v)| (n, Item::Whole(v))).collect();
        prop_assert_eq!(found, expected);
        let mut changed = bytes.to_vec();
        let place = at.index(changed.len());
        changed[place] ^= 1 << bit;
        let broken = Blocks::new(512, 0).add(changed.into(), Some(IDENTITY)).expect_err("changed");
        prop_assert_eq!(broken.0 as usize, place / 512);
        let other = Identity { sequence: 78, ..IDENTITY };
        prop_assert!(Blocks::new(512, 0).add(bytes.clone(), Some(other)).is_err());
        prop_assert!(Blocks::new(512, 1).add(bytes, Some(IDENTITY)).is_err());
    }

    /// Also where no checksum of a block holds hostile bytes back.
    #[test]
    fn any_bytes_are_versions_or_none(
        versions in versions(), close in 1usize..9,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
    ) {
        let (written, bytes) = write(&versions, close);
        let mut bytes = bytes.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for from in [0, 1] {
            let mut blocks = Blocks::new(512, from);
            let rest = bytes[512 * (from as usize).min(bytes.len() / 512)..].to_vec();
            if blocks.add(rest.into(), None).is_err() {
                continue;
            }
            for item in blocks.walk() {
                let Ok((_, Item::Whole(found))) = item else { continue };
                let is_own = written.iter().any(|(_, version)| *version == found);
                prop_assert!(is_own, "its own checksum has let {found:?} pass");
            }
        }
    }

    #[test]
    fn a_record_of_the_manifest_comes_back_and_any_bytes_are_one_or_none(
        extents in prop::collection::vec((any::<u16>(), any::<u32>(), any::<u64>(), any::<u32>()), 0..5),
        freed in prop::collection::vec((any::<u32>(), any::<u64>()), 0..5),
        numbers: (u64, u64, u16, u32), noise in prop::collection::vec(any::<u8>(), 0..300), cut: prop::sample::Index,
    ) {
        let extent = |(local, place, sequence, blocks)| ExtentRecord { local, place, sequence, blocks };
        let group = GroupRecord {
            key: Key { region: numbers.2, subregion: numbers.3 },
            extents: extents.into_iter().map(extent).collect(),
            freed,
        };
        let record = Record {
            is_whole: true,
            layout: Layout::of(numbers.0, 1 << 17),
            safe_point: numbers.1,
            next_sequence: numbers.0,
            groups: vec![group.clone(), group],
        };
        let bytes = record.to_bytes();
        prop_assert_eq!(Record::from_bytes(bytes.clone()), Some(record));
        prop_assert_eq!(Record::from_bytes(bytes.slice(..cut.index(bytes.len()))), None);
        let mut mixed = bytes.to_vec();
        let at = cut.index(mixed.len());
        mixed.truncate(at);
        mixed.extend_from_slice(&noise);
        let _ = Record::from_bytes(mixed.into());
        let _ = Record::from_bytes(noise.into());
    }
}
