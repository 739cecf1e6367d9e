use super::*;
use proptest::prelude::*;

fn key(byte: u8) -> SealKey {
    SealKey::new(Secret::new([byte; 32]))
}

fn pair() -> (Sealer, Checker) {
    (Sealer::new(key(1)), Checker::new(key(1)))
}

/// Both sides after so many seals.
fn pair_at(number: u64) -> (Sealer, Checker) {
    let (mut sealer, mut checker) = pair();
    sealer.0.next = number;
    checker.direction.next = number;
    (sealer, checker)
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn aes_gcm_gives_the_third_vector_of_its_authors() {
    // Test case 3 of "The Galois/Counter Mode of Operation" (McGrew, Viega).
    let key = bytes_of("feffe9928665731c6d6a8f9467308308");
    let parts = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("128 bits"));
    let joint = Secret::new([0; 32]);
    let direction = Direction {
        parts,
        joint,
        next: 0,
    };
    let mut text = bytes_of(concat!(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
    ));
    let tag = direction.tag(0xcafe_babe_face_dbad, 0xdeca_f888, &mut text);
    assert_eq!(tag[..], bytes_of("4d5c2af327cd64a62cf35abd2ba6fab4"));
    assert_eq!(text[..4], bytes_of("42831ec2"));
}

#[test]
fn what_was_sealed_is_accepted_in_order_at_every_length_around_a_part() {
    let (mut sealer, mut checker) = pair();
    let data = vec![7; 3 * PART_BYTES + 1];
    let around = |at: usize| [at - 1, at, at + 1];
    let lengths = [0, 1, 15, 16, 17, 200].into_iter();
    let lengths = lengths
        .chain(around(PART_BYTES))
        .chain(around(2 * PART_BYTES));
    for length in lengths.chain(around(3 * PART_BYTES)) {
        let seal = sealer.seal([&data[..length]]).expect("fresh");
        assert_eq!(checker.check(&data[..length], &seal), Ok(()), "{length}");
    }
}

#[test]
fn a_repeated_a_lost_a_reordered_and_a_returned_piece_are_noticed_and_end_the_connection() {
    let sealed = || {
        let (mut sealer, checker) = pair();
        let seals = [b"one", b"two"].map(|text| (text, sealer.seal([&text[..]]).expect("fresh")));
        (seals, checker)
    };
    let ([one, two], mut checker) = sealed();
    assert_eq!(checker.check(one.0, &one.1), Ok(()));
    assert_eq!(checker.check(one.0, &one.1), Err(Broken), "repeated");
    assert_eq!(checker.check(two.0, &two.1), Err(Broken), "all is over");
    let ([one, two], mut checker) = sealed();
    assert_eq!(
        checker.check(two.0, &two.1),
        Err(Broken),
        "the first is lost"
    );
    assert_eq!(checker.check(one.0, &one.1), Err(Broken), "too late");
    // Each direction has its own key.
    let mut other = Checker::new(key(2));
    assert_eq!(other.check(one.0, &one.1), Err(Broken), "returned");
}

#[test]
fn after_a_wrong_seal_even_the_right_ones_are_refused() {
    let (mut sealer, mut checker) = pair();
    let seals = [(); 3].map(|()| sealer.seal([&b"same"[..]]).expect("fresh"));
    assert_eq!(checker.check(b"same", &seals[0]), Ok(()));
    assert_eq!(checker.check(b"lame", &seals[1]), Err(Broken));
    assert_eq!(checker.check(b"same", &seals[2]), Err(Broken));
}

#[test]
fn every_changed_bit_of_bytes_and_seal_is_noticed_in_short_and_long_pieces() {
    for length in [1, 40, PART_BYTES + 20] {
        let data = vec![7; length];
        let changes = |bits: usize| (0..bits).step_by(1 + bits / 500);
        let seal = pair().0.seal([&data[..]]).expect("fresh");
        for bit in changes(8 * length) {
            let mut changed = data.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(pair().1.check(&changed, &seal), Err(Broken), "{bit}");
        }
        for bit in changes(8 * SEAL_BYTES) {
            let mut changed = seal;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(pair().1.check(&data, &changed), Err(Broken), "{bit}");
        }
        for shorter in [&seal[..0], &seal[..15]] {
            assert_eq!(pair().1.check(&data, shorter), Err(Broken));
        }
        assert_eq!(pair().1.check(&data[1..], &seal), Err(Broken));
        assert_eq!(
            pair().1.check(&[&data[..], &[0]].concat(), &seal),
            Err(Broken)
        );
    }
}

#[test]
fn parts_that_change_places_are_noticed() {
    let data = [vec![1; PART_BYTES], vec![2; PART_BYTES]].concat();
    let swapped = [vec![2; PART_BYTES], vec![1; PART_BYTES]].concat();
    let (mut sealer, mut checker) = pair();
    let seal = sealer.seal([&data[..]]).expect("fresh");
    assert_eq!(checker.check(&swapped, &seal), Err(Broken));
}

#[test]
fn no_two_seals_of_a_connection_share_a_nonce() {
    let (mut sealer, _) = pair();
    let mut seals: Vec<Seal> = (0..1000)
        .map(|_| sealer.seal([&b"same"[..]]).expect("fresh"))
        .collect();
    seals.sort_unstable();
    seals.dedup();
    assert_eq!(seals.len(), 1000);
}

#[test]
fn keys_that_are_used_up_seal_and_accept_nothing_more() {
    let (mut sealer, mut checker) = pair_at(SEALS_MAX - 1);
    let seal = sealer.seal([&b"last"[..]]).expect("one is left");
    assert_eq!(checker.check(b"last", &seal), Ok(()));
    assert_eq!(sealer.seal([&b"more"[..]]), Err(UsedUp));
    assert_eq!(checker.check(b"more", &seal), Err(Broken));
}

proptest! {
    #[test]
    fn a_seal_does_not_depend_on_how_the_bytes_are_cut(
        lengths in proptest::collection::vec(prop_oneof![0usize..40, 0..3 * PART_BYTES], 0..6),
        byte in any::<u8>(),
    ) {
        let pieces: Vec<Vec<u8>> = lengths.iter().map(|length| vec![byte; *length]).collect();
        let (mut sealer, mut checker) = pair();
        let seal = sealer.seal(pieces.iter().map(|piece| &piece[..])).expect("fresh");
        prop_assert_eq!(checker.check(&pieces.concat(), &seal), Ok(()));
    }
}
