use super::*;
use proptest::prelude::*;

fn big(negative: bool, magnitude: &[u8]) -> Element {
    Element::integer(negative, magnitude).expect("few enough bytes")
}

fn bytes(value: &[u8]) -> Element {
    Element::from(value)
}

fn check(vectors: &[(Vec<Element>, &[u8])]) {
    for (elements, packed) in vectors {
        assert_eq!(
            pack(elements).expect("complete")[..],
            **packed,
            "{elements:?}"
        );
        assert_eq!(
            unpack(&Bytes::copy_from_slice(packed)).as_ref(),
            Ok(elements)
        );
    }
}

#[test]
fn the_examples_of_the_specification_hold() {
    let nested = vec![bytes(b"foo\x00bar"), Element::Null, Element::Nested(vec![])];
    check(&[
        (vec![], b""),
        (vec![Element::Null], b"\x00"),
        (vec![bytes(b"foo\x00bar")], b"\x01foo\x00\xffbar\x00"),
        (
            vec!["F\u{d4}O\u{0}bar".into()],
            b"\x02F\xc3\x94O\x00\xffbar\x00",
        ),
        (
            vec![nested.into()],
            b"\x05\x01foo\x00\xffbar\x00\x00\xff\x05\x00\x00",
        ),
        (vec![(-5_551_212).into()], b"\x11\xabK\x93"),
        (vec![(-1).into()], b"\x13\xfe"),
        (vec![(-42f32).into()], b"\x20\x3d\xd7\xff\xff"),
    ]);
}

#[test]
fn strings_and_nested_tuples_end_by_themselves() {
    check(&[
        (vec![bytes(b"")], b"\x01\x00"),
        (
            vec![bytes(b"\x00\x00\x04")],
            b"\x01\x00\xff\x00\xff\x04\x00",
        ),
        (vec![bytes(b"\x00"), Element::Null], b"\x01\x00\xff\x00\x00"),
        (vec![bytes(b"\xff"), bytes(b"")], b"\x01\xff\x00\x01\x00"),
        (
            vec!["\u{1f525}".into(), "".into()],
            b"\x02\xf0\x9f\x94\xa5\x00\x02\x00",
        ),
        (vec![vec![Element::Null].into()], b"\x05\x00\xff\x00"),
        (
            vec![vec![Element::Null].into(), "hello".into()],
            b"\x05\x00\xff\x00\x02hello\x00",
        ),
        (
            vec![vec![Element::Null, "hell\0".into()].into()],
            b"\x05\x00\xff\x02hell\x00\xff\x00\x00",
        ),
    ]);
}

#[test]
fn integers_take_as_few_bytes_as_they_need() {
    let two_to_64 = [1, 0, 0, 0, 0, 0, 0, 0, 0];
    check(&[
        (vec![0.into()], b"\x14"),
        (vec![1.into()], b"\x15\x01"),
        (vec![255.into()], b"\x15\xff"),
        (vec![(-255).into()], b"\x13\x00"),
        (vec![256.into()], b"\x16\x01\x00"),
        (vec![(-256).into()], b"\x12\xfe\xff"),
        (vec![65_536.into()], b"\x17\x01\x00\x00"),
        (
            vec![i64::MAX.into()],
            b"\x1c\x7f\xff\xff\xff\xff\xff\xff\xff",
        ),
        (
            vec![i64::MIN.into()],
            b"\x0c\x7f\xff\xff\xff\xff\xff\xff\xff",
        ),
        (
            vec![(1u64 << 63).into()],
            b"\x1c\x80\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            vec![u64::MAX.into()],
            b"\x1c\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        (
            vec![big(true, &[0xff; 8])],
            b"\x0c\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            vec![big(false, &two_to_64)],
            b"\x1d\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            vec![big(true, &two_to_64)],
            b"\x0b\xf6\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
    ]);
    assert_eq!(Element::integer(false, &[1; 256]), None);
    assert_eq!(Element::integer(false, &[0; 300]), Some(Element::Int(0)));
    assert_eq!(Element::from(u64::MAX).as_u64(), Some(u64::MAX));
    assert_eq!(
        (Element::from(-1).as_u64(), Element::from(7).as_u64()),
        (None, Some(7))
    );
}

#[test]
fn an_integer_written_longer_than_needed_is_read_all_the_same() {
    // One of the bindings writes 2^64 - 1 in the long form.
    let long = Bytes::from_static(b"\x1d\x08\xff\xff\xff\xff\xff\xff\xff\xff");
    assert_eq!(unpack(&long), Ok(vec![u64::MAX.into()]));
    assert_eq!(
        unpack(&Bytes::from_static(b"\x16\x00\x05")),
        Ok(vec![5.into()])
    );
}

#[test]
#[allow(clippy::approx_constant)] // known encodings of these very numbers
fn floats_booleans_and_uuids_have_fixed_sizes() {
    check(&[
        (vec![3.14f32.into()], b"\x20\xc0\x48\xf5\xc3"),
        (
            vec![(-3.14f64).into()],
            b"\x21\x3f\xf6\xe1\x47\xae\x14\x7a\xe0",
        ),
        (vec![0f32.into()], b"\x20\x80\x00\x00\x00"),
        (
            vec![(-0f64).into()],
            b"\x21\x7f\xff\xff\xff\xff\xff\xff\xff",
        ),
        (
            vec![f64::NEG_INFINITY.into()],
            b"\x21\x00\x0f\xff\xff\xff\xff\xff\xff",
        ),
        (
            vec![f32::from_bits(u32::MAX).into()],
            b"\x20\x00\x00\x00\x00",
        ),
        (vec![false.into(), true.into()], b"\x26\x27"),
        (
            vec![Element::Uuid(*b"0123456789abcdef")],
            b"\x300123456789abcdef",
        ),
    ]);
}

#[test]
fn a_complete_versionstamp_is_twelve_bytes() {
    let stamp = Versionstamp([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    check(&[(
        vec![Element::Versionstamp {
            stamp: Some(stamp),
            user_version: 657,
        }],
        b"\x33\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x02\x91",
    )]);
}

#[test]
fn a_tuple_packed_for_a_versionstamp_reads_as_complete_after_the_commit() {
    let elements = |stamp| {
        let inner = vec![
            Element::Null,
            Element::Versionstamp {
                stamp,
                user_version: 3,
            },
        ];
        vec!["log".into(), Element::Nested(inner), 7.into()]
    };
    let param = pack_with_versionstamp(b"\x15\x2a", &elements(None)).expect("one stamp");
    let stamp = Versionstamp::new(123_456, 7);
    let key = crate::atomic::place_versionstamp(&param, stamp).expect("it fits");
    assert_eq!(key[..2], b"\x15\x2a"[..]);
    assert_eq!(
        unpack(&Bytes::from(key).slice(2..)),
        Ok(elements(Some(stamp)))
    );
}

#[test]
fn exactly_one_incomplete_versionstamp_is_asked_for_or_none() {
    let incomplete = Element::incomplete_versionstamp(0);
    let refused = Err(Error::client_invalid_operation);
    assert_eq!(pack(std::slice::from_ref(&incomplete)), refused);
    assert_eq!(pack(&[vec![incomplete.clone()].into()]), refused);
    assert_eq!(pack_with_versionstamp(b"", &[1.into()]), refused);
    assert_eq!(
        pack_with_versionstamp(b"", &[incomplete.clone(), vec![incomplete].into()]),
        refused
    );
}

#[test]
fn the_range_of_a_tuple_holds_what_is_longer_and_not_itself() {
    let range = range(&["a".into()]).expect("complete");
    assert!(!range.contains(&pack(&["a".into()]).expect("complete")));
    for longer in [
        Element::Null,
        bytes(b"\xff"),
        u64::MAX.into(),
        Element::Uuid([0xff; 16]),
        vec![].into(),
    ] {
        assert!(range.contains(&pack(&["a".into(), longer]).expect("complete")));
    }
    assert!(!range.contains(&pack(&["a\0".into()]).expect("complete")));
    assert!(!range.contains(&pack(&["b".into()]).expect("complete")));
}

#[test]
fn malformed_bytes_are_refused() {
    let malformed: &[&[u8]] = &[
        b"\x01abc",
        b"\x01ab\x00\xff",
        b"\x02\xff\x00",
        b"\x05",
        b"\x05\x00\xff",
        b"\x05\x01a\x00",
        b"\x15",
        b"\x1c\x01",
        b"\x1d",
        b"\x1d\x09\x01",
        b"\x0b\x00",
        b"\x20\x00",
        b"\x21",
        b"\x30",
        b"\x33\x00",
        b"\x03",
        b"\x25",
        b"\x40",
        b"\xff",
    ];
    for input in malformed {
        assert_eq!(
            unpack(&Bytes::from_static(input)),
            Err(Error::invalid_tuple_data_type),
            "{input:?}"
        );
    }
}

#[test]
fn nesting_is_bounded_on_both_ways() {
    let nest = |depth: usize| {
        (1..depth).fold(Element::Nested(vec![]), |inner, _| {
            Element::Nested(vec![inner])
        })
    };
    let deepest = [nest(DEPTH_MAX)];
    assert_eq!(
        unpack(&pack(&deepest).expect("just allowed")).as_deref(),
        Ok(&deepest[..])
    );
    assert_eq!(
        pack(&[nest(DEPTH_MAX + 1)]),
        Err(Error::client_invalid_operation)
    );
    assert_eq!(
        unpack(&Bytes::from(vec![NESTED; 1_000_000])),
        Err(Error::invalid_tuple_data_type)
    );
}

fn any_element() -> impl Strategy<Value = Element> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()];
    let text = prop_oneof![Just('\0'), Just('\u{1}'), Just('\u{ffff}'), any::<char>()];
    let small = prop_oneof![-300i64..300, any::<i64>(), Just(i64::MIN), Just(i64::MAX)];
    let leaf = prop_oneof![
        Just(Element::Null),
        proptest::collection::vec(byte.clone(), 0..6).prop_map(|v| Element::Bytes(v.into())),
        proptest::collection::vec(text, 0..5).prop_map(|v| Element::Text(v.into_iter().collect())),
        small.prop_map(Element::Int),
        (any::<bool>(), proptest::collection::vec(byte, 7..=12))
            .prop_map(|(negative, v)| big(negative, &v)),
        any::<u32>().prop_map(|bits| Element::Float(f32::from_bits(bits))),
        any::<u64>().prop_map(|bits| Element::Double(f64::from_bits(bits))),
        any::<bool>().prop_map(Element::Bool),
        any::<[u8; 16]>().prop_map(Element::Uuid),
        (0..i64::MAX, any::<u16>(), any::<u16>()).prop_map(|(version, order, user_version)| {
            Element::Versionstamp {
                stamp: Some(Versionstamp::new(version, order)),
                user_version,
            }
        }),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        proptest::collection::vec(inner, 0..4).prop_map(Element::Nested)
    })
}

fn any_tuple() -> impl Strategy<Value = Vec<Element>> {
    proptest::collection::vec(any_element(), 0..4)
}

proptest! {
    #[test]
    fn what_was_packed_is_unpacked(elements in any_tuple()) {
        let packed = pack(&elements).expect("complete");
        prop_assert_eq!(unpack(&packed), Ok(elements));
    }

    #[test]
    fn packed_bytes_are_ordered_as_their_elements(
        shared in any_tuple(), a in any_tuple(), b in any_tuple(),
    ) {
        // With a common beginning, tuples are neighbours and their order is decided late.
        let a = [&shared[..], &a[..]].concat();
        let b = [&shared[..], &b[..]].concat();
        let (packed_a, packed_b) = (pack(&a).expect("complete"), pack(&b).expect("complete"));
        prop_assert_eq!(packed_a.cmp(&packed_b), a.cmp(&b), "{:?} and {:?}", a, b);
    }

    #[test]
    fn any_bytes_unpack_to_a_tuple_that_packs_or_to_an_error(
        input in proptest::collection::vec(prop_oneof![0u8..=0x33, any::<u8>()], 0..60),
    ) {
        if let Ok(elements) = unpack(&Bytes::from(input)) {
            let incomplete = |e: Error| e == Error::client_invalid_operation;
            match pack(&elements) {
                Ok(packed) => prop_assert_eq!(unpack(&packed), Ok(elements)),
                Err(error) => prop_assert!(incomplete(error)),
            }
        }
    }
}
