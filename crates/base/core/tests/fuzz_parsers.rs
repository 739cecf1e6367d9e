//! Every parser of this crate that receives bytes from a socket, a file or a shell, against damaged input. No input
//! causes a panic, and accepted input keeps its meaning when it is written and read again.

use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::system_keys::ShardRecord;
use plinth_core::testing::fuzz;
use plinth_core::tuple::{self, Element};
use plinth_core::{
    KeyRange, KeySelector, Mutation, MutationBatch, MutationKind, Tag, Uid, Versionstamp, atomic,
    key, varint,
};
use std::net::SocketAddr;

fn batches() -> Vec<Vec<u8>> {
    let mutations = [
        Mutation::set(&b"key"[..], vec![7; 200]),
        Mutation::clear_range(&b"a"[..], &b"b"[..]),
        Mutation {
            kind: MutationKind::Add,
            first: Bytes::from_static(b"n"),
            second: Bytes::from_static(&[1; 8]),
        },
        Mutation {
            kind: MutationKind::SetVersionstampedKey,
            first: Bytes::from(vec![0; 14]),
            second: Bytes::new(),
        },
    ];
    (0..=mutations.len())
        .map(|count| {
            MutationBatch::from_mutations(mutations[..count].iter().map(Mutation::as_ref))
                .into_bytes()
                .to_vec()
        })
        .collect()
}

#[test]
fn a_damaged_mutation_batch_is_refused_or_means_what_it_says() {
    fuzz("mutation batch", 1, batches(), |input| {
        let Some(batch) = MutationBatch::parse(Bytes::copy_from_slice(input)) else {
            return false;
        };
        let again = MutationBatch::from_mutations(batch.iter());
        assert!(
            again.bytes().len() <= input.len(),
            "lengths may be written longer than needed, never shorter"
        );
        assert!(batch.iter().eq(again.iter()));
        assert!(
            batch
                .iter_owned()
                .zip(batch.iter())
                .all(|(owned, borrowed)| owned.as_ref() == borrowed)
        );
        true
    });
}

#[test]
fn a_damaged_tuple_is_refused_or_packs_again() {
    let elements = [
        Element::Null,
        Element::from(&b"by\0tes"[..]),
        "text\0".into(),
        vec![Element::Null, vec!["deep".into()].into()].into(),
        (-5_551_212).into(),
        u64::MAX.into(),
        Element::integer(true, &[9; 40]).expect("few enough bytes"),
        1.5f32.into(),
        (-1.5f64).into(),
        true.into(),
        Element::Uuid([7; 16]),
        Element::Versionstamp {
            stamp: Some(Versionstamp::new(5, 6)),
            user_version: 7,
        },
    ];
    let mut corpus: Vec<Vec<u8>> = elements
        .chunks(1)
        .map(|one| tuple::pack(one).expect("complete").to_vec())
        .collect();
    corpus.push(tuple::pack(&elements).expect("complete").to_vec());
    fuzz("tuple", 2, corpus, |input| {
        let Ok(elements) = tuple::unpack(&Bytes::copy_from_slice(input)) else {
            return false;
        };
        // An incomplete versionstamp is the only element that unpacks but that `pack` refuses.
        if let Ok(packed) = tuple::pack(&elements) {
            assert_eq!(tuple::unpack(&packed).as_ref(), Ok(&elements));
        }
        true
    });
}

#[test]
fn a_damaged_escape_is_refused_or_prints_again() {
    let corpus = [
        &b"plain"[..],
        br"\x00\xff\\",
        br"a\tb\n\r\0",
        "\u{1f525}\\x7f".as_bytes(),
    ];
    fuzz("printable key", 3, corpus.map(<[u8]>::to_vec), |input| {
        assert_eq!(
            key::unprintable(&key::printable(input)).as_deref(),
            Some(input)
        );
        let text = String::from_utf8_lossy(input);
        key::unprintable(&text)
            .is_some_and(|bytes| key::unprintable(&key::printable(&bytes)) == Some(bytes))
    });
}

#[test]
fn a_damaged_varint_is_refused_or_is_read_within_its_bytes() {
    let corpus = [0, 127, 128, 1 << 14, 1 << 21, 1 << 28, u32::MAX].map(|value| {
        let mut out = Vec::new();
        varint::put_u32(&mut out, value);
        out
    });
    fuzz("varint", 4, corpus, |input| {
        let mut at = 0;
        let Some(value) = varint::get_u32(input, &mut at) else {
            return false;
        };
        assert!(
            (varint::len_u32(value)..=5).contains(&at) && at <= input.len(),
            "{value} read from {at} bytes"
        );
        true
    });
}

#[test]
fn a_damaged_versionstamp_parameter_is_refused_or_filled_in_place() {
    let param = |len: usize, offset: u32| [&vec![0; len][..], &offset.to_le_bytes()].concat();
    fuzz(
        "versionstamp parameter",
        5,
        [param(10, 0), param(30, 7), param(30, 20)],
        |input| {
            let Some(placed) = atomic::place_versionstamp(input, Versionstamp::new(1, 2)) else {
                return false;
            };
            assert_eq!(placed.len() + 4, input.len());
            assert!(
                atomic::versionstamped_key_range(input, 0)
                    .is_some_and(|range| range.contains(&placed))
            );
            true
        },
    );
}

/// Lists of every type with an encoding, so that all kinds of counts and lengths can be damaged.
type Everything = (
    Vec<(KeyRange, KeySelector)>,
    (
        Vec<(SocketAddr, Option<Tag>)>,
        (ShardRecord, (String, Vec<bool>)),
    ),
);

#[test]
fn a_damaged_record_is_refused_or_encodes_again() {
    let whole: Everything = (
        vec![
            (
                KeyRange::single(b"k"),
                KeySelector::first_greater_than(&b"s"[..])
            );
            3
        ],
        (
            vec![
                ("127.0.0.1:4500".parse().expect("an address"), Some(Tag(7))),
                ("[::1]:4501".parse().expect("an address"), None),
            ],
            (
                ShardRecord {
                    team: vec![Uid(1), Uid(2)],
                    destination: vec![],
                },
                ("text".to_owned(), vec![true, false]),
            ),
        ),
    );
    fuzz("record", 6, [whole.to_bytes().to_vec()], |input| {
        let Some(value) = Everything::from_bytes(Bytes::copy_from_slice(input)) else {
            return false;
        };
        assert_eq!(
            Everything::from_bytes(value.to_bytes()).as_ref(),
            Some(&value)
        );
        true
    });
}
