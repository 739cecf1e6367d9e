//! One cell: what is written is what is read, by whatever way.

use crate::cell::stores;
use crate::{Cell, Class, Header, Older, Seen, Snapshot, TIMESTAMP_MAX};
use plinth_farm_fabric::Memory;
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

const WORD: u64 = 3;

fn memory(class: Class) -> Memory {
    Memory::private(WORD as usize + class.cell_words() + 2)
}

/// The bytes as an operation of the fabric reads them.
fn bytes(memory: &Memory, class: Class) -> Vec<u8> {
    let mut bytes = vec![0; Snapshot::bytes(class)];
    let read = memory.read(8 * WORD, &mut bytes);
    read.expect("in the memory");
    bytes
}

/// What all ways of reading show, which is the same: header, older, payload of a whole version.
fn read(memory: &Memory, class: Class) -> (Header, Older, Vec<u8>) {
    let cell = Cell::new(memory, WORD, class).expect("in the memory");
    let bytes = bytes(memory, class);
    let judged = match Snapshot::judge(&bytes, class) {
        Seen::Version {
            header,
            older,
            payload,
        } => (header, older, bytes[payload].to_vec()),
        seen => panic!("{seen:?}"),
    };
    let Seen::Version {
        header,
        older,
        payload,
    } = cell.read()
    else {
        panic!("a whole version");
    };
    assert_eq!(judged, (header, older, payload.to_vec()));
    for room in [0, 1, 7, 8, 13, payload.len(), payload.len() + 9] {
        let mut into = vec![7; room];
        let payload: &[u8] = &payload;
        assert_eq!(
            cell.read_into(&mut into),
            Seen::Version {
                header,
                older,
                payload: ()
            }
        );
        let filled = room.min(payload.len());
        assert_eq!(into[..filled], payload[..filled]);
        assert!(into[filled..].iter().all(|byte| *byte == 7));
    }
    judged
}

fn classes() -> impl Strategy<Value = Class> {
    (0..20u8).prop_map(|class| Class::new(class).expect("a class"))
}

proptest! {
    #[test]
    fn a_version_is_read_as_it_was_installed(
        class in classes(),
        payload in prop::collection::vec(any::<u8>(), 0..900),
        (timestamp, older) in (1..=TIMESTAMP_MAX, any::<u64>()),
        allocated: bool,
    ) {
        let memory = memory(class);
        memory.words().iter().for_each(|word| word.store(u64::MAX, Relaxed));
        let cell = Cell::new(&memory, WORD, class).expect("in the memory");
        cell.clear();
        prop_assert_eq!(read(&memory, class), (Header::new(0, false), Older::NONE, vec![]));
        let payload = &payload[..payload.len().min(class.payload_bytes())];
        let older = Older::from_bits(older);
        prop_assert!(cell.lock(Header::new(0, false)));
        cell.install(timestamp, allocated, older, payload);
        let mut whole = payload.to_vec();
        whole.resize(class.payload_bytes(), 0);
        let whole = if allocated { whole } else { vec![] };
        prop_assert_eq!(read(&memory, class), (Header::new(timestamp, allocated), older, whole));
        // What lies before and behind it is as it was.
        let words = memory.words();
        let around = words[..WORD as usize].iter().chain(&words[WORD as usize + class.cell_words()..]);
        prop_assert!(around.into_iter().all(|word| word.load(Relaxed) == u64::MAX));
    }

    #[test]
    fn any_bytes_are_judged(class in classes(), bytes in prop::collection::vec(any::<u8>(), 0..400), before: u64) {
        if let Seen::Version { payload, .. } = Snapshot::judge(&bytes, class) {
            prop_assert!(bytes.get(payload).is_some());
        }
        if let Some((header, _, payload)) = Snapshot::judge_old(&bytes, class, before) {
            prop_assert!(bytes.get(payload).is_some() && header.timestamp() < before);
        }
    }

    #[test]
    fn a_header_keeps_its_parts(bits: u64) {
        let header = Header::from_bits(bits);
        let plain = Header::new(header.timestamp(), header.is_allocated());
        prop_assert_eq!(header.unlocked(), plain);
        prop_assert_eq!(header.locked(), plain.locked());
        prop_assert!(header == plain || header == plain.locked());
        prop_assert_eq!(header.is_locked(), header != plain);
    }
}

#[test]
fn a_cell_that_is_not_in_the_memory_is_none() {
    let class = Class::new(0).expect("a class");
    let memory = Memory::private(5);
    assert!(Cell::new(&memory, 1, class).is_some());
    for word in [2, 5, 6, 1 << 40, u64::MAX] {
        assert!(Cell::new(&memory, word, class).is_none());
    }
}

#[test]
fn a_lock_has_one_owner_and_names_the_version() {
    let class = Class::of(16).expect("a class");
    let memory = memory(class);
    let cell = Cell::new(&memory, WORD, class).expect("in the memory");
    let virgin = Header::new(0, false);
    assert!(!cell.lock(virgin.locked()), "nobody expects a lock");
    assert!(!cell.lock(Header::new(1, true)) && !cell.lock(Header::new(0, true)));
    assert!(cell.lock(virgin));
    assert!(!cell.lock(virgin) && !cell.lock(virgin.locked()));
    assert_eq!(cell.header(), virgin.locked());
    let locked = Seen::Locked {
        header: virgin.locked(),
        older: Older::NONE,
    };
    assert_eq!(cell.read_into(&mut []), locked);
    cell.unlock(virgin);
    assert_eq!(cell.header(), virgin);
    assert!(cell.lock(virgin));
    cell.install(5, true, Older::at(9), b"five");
    assert!(!cell.lock(virgin), "another version");
    assert!(cell.lock(Header::new(5, true)));
    let bytes = bytes(&memory, class);
    let Seen::Locked { header, older } = Snapshot::judge(&bytes, class) else {
        panic!("it is locked");
    };
    assert_eq!((header.timestamp(), older.word()), (5, Some(9)));
}

#[test]
fn only_a_newer_version_is_applied_and_it_ends_a_lock() {
    let class = Class::of(16).expect("a class");
    let memory = memory(class);
    let cell = Cell::new(&memory, WORD, class).expect("in the memory");
    assert!(!cell.apply(0, true, b"never"));
    assert!(cell.apply(10, true, b"ten"));
    for timestamp in [0, 9, 10] {
        assert!(!cell.apply(timestamp, true, b"old"));
    }
    let (header, older, payload) = read(&memory, class);
    assert_eq!(
        (header, older, &payload[..3]),
        (Header::new(10, true), Older::NONE, &b"ten"[..])
    );
    assert!(cell.lock(header));
    assert!(!cell.apply(10, true, b"old") && cell.header().is_locked());
    assert!(cell.apply(11, false, b""));
    assert_eq!(read(&memory, class).0, Header::new(11, false));
}

/// The words of a cell before each store of `change`, and after the last.
fn states(memory: &Memory, class: Class, change: impl FnOnce()) -> Vec<Vec<u64>> {
    let words = &memory.words()[WORD as usize..][..class.cell_words()];
    let first = std::ptr::from_ref(&words[0]).addr();
    let mut state: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
    let mut states = vec![state.clone()];
    for (address, value) in stores::of(change) {
        state[(address - first) / 8] = value;
        states.push(state.clone());
    }
    let now = words.iter().map(|word| word.load(Relaxed));
    assert_eq!(states.last(), Some(&now.collect()), "every store is known");
    states
}

/// Judges what every reader may find that loads the words in their order: each in a state that is not before that of
/// the word before it. It is enough that the state changes twice on the way.
fn judge_all(states: &[Vec<u64>], class: Class, older_of: fn(u64) -> Older) -> usize {
    let (words, mut whole) = (class.cell_words(), 0);
    let mut judge = |[first, second, third]: [usize; 3], left: usize, right: usize| {
        let state = |at| match at {
            _ if at < left => &states[first],
            _ if at < right => &states[second],
            _ => &states[third],
        };
        let bytes: Vec<u8> = (0..words)
            .flat_map(|at| state(at)[at].to_le_bytes())
            .collect();
        match Snapshot::judge(&bytes, class) {
            Seen::Torn => {}
            Seen::Locked { header, older } => assert_eq!(older, older_of(header.timestamp())),
            Seen::Version {
                header,
                older,
                payload,
            } => {
                whole += 1;
                assert_eq!(older, older_of(header.timestamp()));
                let word = header.timestamp().to_le_bytes();
                let payload = bytes[payload].as_chunks::<8>().0;
                assert!(
                    payload.iter().all(|found| *found == word),
                    "a mixed version"
                );
            }
        }
    };
    let steps = states.len();
    for first in 0..steps {
        for second in first..steps {
            for third in second..steps {
                for left in 0..=words {
                    (left..=words).for_each(|right| judge([first, second, third], left, right));
                }
            }
        }
    }
    whole
}

#[test]
fn words_of_two_versions_are_never_a_version() {
    let class = Class::of(32).expect("a class");
    let memory = memory(class);
    let cell = Cell::new(&memory, WORD, class).expect("in the memory");
    let payload = |timestamp: u64| timestamp.to_le_bytes().repeat(class.payload_bytes() / 8);
    let install = |timestamp, allocated| {
        let older = Older::at(timestamp);
        cell.install(timestamp, allocated, older, &payload(timestamp));
    };
    assert!(cell.lock(Header::new(0, false)));
    install(3, true);
    for (was, next, allocated) in [(3, 4, true), (4, 5, false)] {
        let header = Header::new(was, true);
        let mut all = states(&memory, class, || ());
        assert!(cell.lock(header));
        all.extend(states(&memory, class, || install(next, allocated)));
        assert!(judge_all(&all, class, Older::at) > 0);
    }
    // Back to life, beside a reader who begins in the middle of its lock.
    assert!(cell.lock(Header::new(5, false)));
    let all = states(&memory, class, || install(6, true));
    assert!(judge_all(&all, class, Older::at) > 0);
}

#[test]
fn a_backup_can_be_read_while_it_applies() {
    let class = Class::of(32).expect("a class");
    let memory = memory(class);
    let cell = Cell::new(&memory, WORD, class).expect("in the memory");
    let apply = |timestamp: u64| {
        let payload = timestamp.to_le_bytes().repeat(class.payload_bytes() / 8);
        assert!(cell.apply(timestamp, true, &payload));
    };
    apply(3);
    let all = states(&memory, class, || apply(4));
    assert!(judge_all(&all, class, |_| Older::NONE) > 0);
}

#[test]
fn a_version_that_is_replaced_while_it_is_read_here_is_torn() {
    let class = Class::of(32).expect("a class");
    let memory = memory(class);
    let cell = Cell::new(&memory, WORD, class).expect("in the memory");
    let before = Header::new(3, true);
    assert!(cell.apply(3, true, b"before"));
    let read_while = |change: &dyn Fn()| cell.see(|_| change());
    let whole = Seen::Version {
        header: before,
        older: Older::NONE,
        payload: (),
    };
    assert_eq!(read_while(&|| assert!(cell.lock(before))), whole);
    let install = || cell.install(4, true, Older::NONE, b"after");
    cell.unlock(before);
    let replace = || {
        assert!(cell.lock(before));
        install();
    };
    assert_eq!(read_while(&replace), Seen::Torn);
    assert_eq!(
        read_while(&|| assert!(cell.apply(5, true, b""))),
        Seen::Torn
    );
    assert_eq!(
        read_while(&|| assert!(cell.apply(6, false, b""))),
        Seen::Torn
    );
    // Also if there is no payload to read.
    assert_eq!(
        read_while(&|| assert!(cell.apply(7, true, b""))),
        Seen::Torn
    );
}

#[test]
fn a_cell_that_is_away_looks_locked_to_all_and_takes_any_version() {
    let class = Class::of(20).expect("a class");
    let memory = memory(class);
    let cell = Cell::new(&memory, WORD, class).expect("in the memory");
    cell.set_away();
    let (header, older) = (cell.header(), Older::AWAY);
    assert!(cell.is_away() && header.is_locked() && older.word().is_none());
    assert!(!cell.lock(header) && !cell.lock(Header::from_bits(0)));
    assert_eq!(
        Snapshot::judge(&bytes(&memory, class), class),
        Seen::Locked { header, older }
    );
    // A lock of a cell that never had a version is another thing.
    cell.clear();
    assert!(cell.lock(cell.header()) && !cell.is_away());
    cell.set_away();
    assert!(cell.apply(1, true, b"came") && !cell.is_away());
    assert_eq!(&read(&memory, class).2[..4], b"came");
}
