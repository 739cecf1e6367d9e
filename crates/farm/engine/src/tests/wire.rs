//! Bundles come back from bytes, and no bytes do harm.

use crate::wire::{Bundle, Change, Horizon, Lock, Locked, Message, Room, Truncation, Write};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::testing::fuzz;
use plinth_farm_memory::{Abort, Class, Pointer};
use proptest::prelude::*;

fn pointer() -> impl Strategy<Value = Pointer> {
    let class = (0..20u8).prop_filter_map("a class", Class::new);
    (any::<u16>(), class, 1..1u64 << 30)
        .prop_map(|(region, class, word)| Pointer::new(region, class, word))
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let change = prop::sample::select(vec![Change::Allocate, Change::Update, Change::Free]);
    let payload = prop::collection::vec(any::<u8>(), 0..200);
    let write = (pointer(), change, payload).prop_map(|(at, change, mut payload)| {
        payload.truncate(at.class().payload_bytes());
        Write {
            at,
            change,
            payload: Bytes::from(payload),
        }
    });
    prop::collection::vec(write, 0..6)
}

fn message() -> impl Strategy<Value = Message> {
    let regions = prop::collection::vec(any::<u16>(), 0..4);
    let parts = (
        0..12u8,
        any::<u64>(),
        any::<u64>(),
        regions,
        writes(),
        pointer(),
    );
    parts.prop_map(|(kind, number, time, regions, writes, at)| match kind {
        0 => Message::Lock(Lock {
            number,
            read_at: time,
            regions,
            writes,
        }),
        1 => Message::LockReply {
            number,
            reply: Locked(Ok(time)),
        },
        2 => Message::LockReply {
            number,
            reply: Locked(Err(Abort::Full)),
        },
        3 => Message::Unlock { number },
        4 => Message::CommitBackup {
            number,
            written_at: time,
            regions,
            writes,
        },
        5 => Message::CommitPrimary {
            number,
            written_at: time,
        },
        6 => Message::Reserve {
            ask: number,
            region: time as u16,
            class: 3,
        },
        7 => Message::ReserveReply { ask: number, at },
        8 => Message::ReserveReply {
            ask: number,
            at: Pointer::NULL,
        },
        9 => Message::Unreserve { at },
        10 => Message::FreeSlab {
            region: time as u16,
            slab: number as u32,
            at: time,
        },
        _ => Message::Oat(Horizon {
            oldest: number,
            safe: time,
        }),
    })
}

fn bundle() -> impl Strategy<Value = Bundle> {
    let numbers = || prop::collection::vec(any::<u64>(), 0..5);
    let truncation =
        (any::<u64>(), numbers(), numbers()).prop_map(|(below, truncate, truncated)| Truncation {
            below,
            truncate,
            truncated,
        });
    let messages = prop::collection::vec(message(), 0..6);
    (truncation, messages).prop_map(|(truncation, messages)| Bundle {
        truncation,
        messages,
    })
}

proptest! {
    #[test]
    fn a_bundle_comes_back_from_its_bytes_and_a_part_of_it_does_not(bundle in bundle(), cut: prop::sample::Index) {
        let bytes = bundle.to_bytes();
        prop_assert_eq!(bytes.first().copied().and_then(Room::of), Some(Room::Engine));
        prop_assert_eq!(Bundle::from_bytes(bytes.clone()), Some(bundle));
        prop_assert_eq!(Bundle::from_bytes(bytes.slice(..cut.index(bytes.len()))), None);
    }

    #[test]
    fn a_message_is_no_longer_than_it_says(message in message()) {
        prop_assert!(message.to_bytes().len() <= message.bytes(), "{message:?}");
    }

    #[test]
    fn any_bytes_are_a_bundle_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Bundle::from_bytes([&[Room::Engine.tag()][..], &bytes].concat().into());
    }
}

#[test]
fn a_damaged_bundle_does_no_harm() {
    let write = Write {
        at: Pointer::new(2, Class::of(100).expect("one"), 77),
        change: Change::Update,
        payload: Bytes::from_static(&[7; 30]),
    };
    let bundle = Bundle {
        truncation: Truncation {
            below: 5,
            truncate: vec![7, 9],
            truncated: vec![3],
        },
        messages: vec![
            Message::Lock(Lock {
                number: 8,
                read_at: 1 << 40,
                regions: vec![1, 2],
                writes: vec![write; 3],
            }),
            Message::Reserve {
                ask: 1,
                region: 2,
                class: 3,
            },
        ],
    };
    fuzz(
        "farm engine bundle",
        1,
        [bundle.to_bytes().to_vec()],
        |input| {
            let bundle = Bundle::from_bytes(Bytes::copy_from_slice(input));
            if let Some(bundle) = &bundle {
                assert_eq!(Bundle::from_bytes(bundle.to_bytes()).as_ref(), Some(bundle));
            }
            bundle.is_some()
        },
    );
}

#[test]
fn each_room_has_its_byte_and_other_bytes_have_none() {
    for room in [
        Room::Engine,
        Room::Member,
        Room::Recovery,
        Room::Application,
    ] {
        assert_eq!(Room::of(room.tag()), Some(room));
    }
    assert_eq!(
        (Room::of(0), Room::of(5), Room::of(255)),
        (None, None, None)
    );
}
