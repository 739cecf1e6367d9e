//! Hostile bytes in files.

use crate::journal::format::{self, Block, Segment};
use bytes::Bytes;
use plinth_core::output::Output;
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
