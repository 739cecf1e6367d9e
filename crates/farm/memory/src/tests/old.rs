//! Old versions against a list of all versions that there ever were.

use crate::old::{Blocks, Kept};
use crate::{Cell, Class, Error, Header, Old, Older, Seen, Snapshot};
use plinth_core::testing::Generator;
use plinth_farm_fabric::Memory;
use plinth_runtime::fault::plant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

const OBJECTS: usize = 6;
const BLOCK_WORDS: u64 = 64;

fn class(object: usize) -> Class {
    Class::of([8, 20, 100][object % 3]).expect("a class")
}

/// A version of an object: never changed, only replaced.
#[derive(Clone)]
struct Version {
    timestamp: u64,
    /// `None` if it is not allocated.
    payload: Option<Vec<u8>>,
    /// Where it was kept when it was replaced; `NONE` if there was no room.
    kept: Older,
}

/// A transaction that has locked objects, and its copies.
struct Open {
    locked: Vec<(usize, Option<Kept>)>,
}

struct Stand {
    cells: Memory,
    memory: Memory,
    old: Old,
    /// By object, the newest last.
    versions: Vec<Vec<Version>>,
    open: Vec<Open>,
    now: u64,
    safe_point: u64,
    random: Generator,
}

impl Stand {
    fn new(seed: u64) -> Stand {
        let (cells, memory) = (Memory::private(OBJECTS * 64), Memory::private(64 * 4 + 9));
        let old = Old::new(&memory, BLOCK_WORDS).expect("sizes");
        let virgin = Version {
            timestamp: 0,
            payload: None,
            kept: Older::NONE,
        };
        Stand {
            cells,
            memory,
            old,
            versions: vec![vec![virgin]; OBJECTS],
            open: Vec::new(),
            now: 1,
            safe_point: 0,
            random: Generator::new(seed),
        }
    }

    fn cell(&self, object: usize) -> Cell<'_> {
        let cell = Cell::new(&self.cells, object as u64 * 64, class(object));
        cell.expect("in the memory")
    }

    fn begin(&mut self) {
        let mut locked = Vec::new();
        for _ in 0..=self.random.below(3) {
            let object = self.random.below(OBJECTS);
            let header = self.cell(object).header();
            let cell = Cell::new(&self.cells, object as u64 * 64, class(object));
            let cell = cell.expect("in the memory");
            if header.is_locked() || !cell.lock(header) {
                continue;
            }
            let room = self.old.room_after(class(object));
            let kept = self.old.keep(cell);
            // Who was told that nothing needs to happen before has had room.
            assert!(kept.is_some() || room != Some(0));
            locked.push((object, kept));
        }
        self.open.push(Open { locked });
    }

    fn end(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let open = self.open.swap_remove(self.random.below(self.open.len()));
        let commits = self.random.below(3) > 0;
        self.now += 1 + self.random.below(5) as u64;
        for (object, kept) in open.locked {
            if !commits {
                self.cell(object).unlock(self.cell(object).header());
                if let Some(kept) = kept {
                    self.old.abort(kept);
                }
                continue;
            }
            let byte = self.random.next_u64() as u8;
            let payload = vec![byte; class(object).payload_bytes()];
            let payload = (self.random.below(4) > 0).then_some(payload);
            let older = kept.as_ref().map_or(Older::NONE, Kept::older);
            let bytes = payload.as_deref().unwrap_or_default();
            self.cell(object)
                .install(self.now, payload.is_some(), older, bytes);
            let versions = &mut self.versions[object];
            versions.last_mut().expect("one").kept = older;
            versions.push(Version {
                timestamp: self.now,
                payload,
                kept: Older::NONE,
            });
            if let Some(kept) = kept {
                self.old.commit(kept, self.now);
            }
        }
    }

    fn collect(&mut self) {
        let behind = self.random.below(12) as u64;
        self.safe_point = self.safe_point.max(self.now.saturating_sub(behind));
        let before = self.old.blocks();
        let freed = self.old.collect(self.safe_point);
        assert_eq!(self.old.blocks().free, before.free + freed);
    }

    /// No version that a snapshot at the safe point or later may need is in a freed block, and a walk finds it.
    fn check(&mut self) {
        for object in 0..OBJECTS {
            for pair in self.versions[object].windows(2) {
                let is_needed = pair[1].timestamp > self.safe_point;
                if is_needed && pair[0].kept != Older::NONE {
                    assert!(self.old.is_kept(pair[0].kept), "a version is needed");
                }
            }
            let ahead = (self.now - self.safe_point) as usize;
            let snapshot = self.safe_point + self.random.below(ahead + 1) as u64;
            self.check_snapshot(object, snapshot);
        }
    }

    fn check_snapshot(&self, object: usize, snapshot: u64) {
        let versions = &self.versions[object];
        let at = versions.partition_point(|version| version.timestamp <= snapshot) - 1;
        let mut before = u64::MAX;
        let (mut header, mut older) = match self.cell(object).read_into(&mut []) {
            Seen::Version { header, older, .. } | Seen::Locked { header, older } => (header, older),
            Seen::Torn => panic!("one thread tears nothing"),
        };
        let mut steps = versions.len() - 1;
        while header.timestamp() > snapshot {
            before = header.timestamp();
            steps -= 1;
            if versions[steps].kept == Older::NONE {
                assert_eq!(older, Older::NONE, "there was no room");
                return;
            }
            let found = self.old.read(older, class(object), before);
            let found = found.expect("a version is needed");
            let bytes = self.read_as_another(older, object);
            let judged = Snapshot::judge_old(&bytes, class(object), before).expect("the same");
            assert_eq!((found.header, found.older), (judged.0, judged.1));
            assert_eq!(found.payload, bytes[judged.2]);
            let payload = found.header.is_allocated().then(|| found.payload.to_vec());
            assert_eq!(payload, versions[steps].payload);
            (header, older) = (found.header, found.older);
        }
        assert_eq!(header.timestamp(), versions[at].timestamp);
        assert!(header.timestamp() < before);
    }

    /// By an operation of the fabric, which reads all that the class may have.
    fn read_as_another(&self, older: Older, object: usize) -> Vec<u8> {
        let mut bytes = vec![0; Snapshot::old_bytes(class(object))];
        let offset = older.offset().expect("a place");
        let read = self.memory.read(offset, &mut bytes);
        read.expect("in the memory");
        bytes
    }

    fn run(mut self, steps: usize) -> (usize, usize) {
        let (mut full, mut kept) = (0, 0);
        for _ in 0..steps {
            match self.random.below(20) {
                0..9 => self.begin(),
                9..19 => self.end(),
                _ => self.collect(),
            }
            let last = self.open.last().map_or(&[][..], |open| &open.locked);
            full += last.iter().filter(|(_, kept)| kept.is_none()).count();
            kept += last.iter().filter(|(_, kept)| kept.is_some()).count();
            self.check();
        }
        while !self.open.is_empty() {
            self.end();
        }
        self.old.collect(u64::MAX);
        let all = self.memory.words().len() / BLOCK_WORDS as usize;
        let empty = Blocks {
            all,
            free: all,
            undecided: 0,
        };
        assert_eq!(self.old.blocks(), empty, "nothing stays for ever");
        (full, kept)
    }
}

#[test]
fn a_version_that_a_snapshot_may_need_is_never_in_a_freed_block() {
    let (mut full, mut kept) = (0, 0);
    for seed in 0..150 {
        let (was_full, were_kept) = Stand::new(seed).run(400);
        full += was_full;
        kept += were_kept;
    }
    assert!(full > 0 && kept > 1000, "{full} {kept}");
}

#[test]
fn versions_that_are_collected_early_are_missed() {
    plant(Some("farm_old_version_collected_early"));
    let found = (0..20).any(|seed| {
        let run = || Stand::new(seed).run(400);
        catch_unwind(AssertUnwindSafe(run)).is_err()
    });
    plant(None);
    assert!(found);
    plinth_runtime::fault::found("farm_old_version_collected_early");
}

#[test]
fn a_block_with_versions_of_undecided_transactions_stays_and_aborted_ones_do_not_hold_it() {
    let mut stand = Stand::new(1);
    let lock = |stand: &Stand| assert!(stand.cell(0).lock(Header::new(0, false)));
    lock(&stand);
    let cell = Cell::new(&stand.cells, 0, class(0)).expect("in the memory");
    let kept = stand.old.keep(cell).expect("room");
    assert_eq!(stand.old.collect(u64::MAX), 0);
    assert_eq!(stand.old.blocks().undecided, 1);
    stand.old.abort(kept);
    assert_eq!(stand.old.collect(0), 0, "nothing is before the first time");
    assert_eq!(stand.old.collect(1), 1);
    let kept = stand.old.keep(cell).expect("room");
    // Transactions commit in another order than that of their timestamps.
    let earlier = stand.old.keep(cell).expect("room");
    assert_eq!(stand.old.blocks().free, 3, "in the same block");
    stand.old.commit(kept, 10);
    stand.old.commit(earlier, 5);
    assert_eq!((stand.old.collect(10), stand.old.collect(11)), (0, 1));
}

#[test]
fn who_finds_no_room_learns_when_there_will_be_some() {
    let memory = Memory::private(128);
    let cells = Memory::private(64);
    let mut old = Old::new(&memory, 64).expect("sizes");
    let wide = Class::of(300).expect("a class");
    let cell = Cell::new(&cells, 0, wide).expect("in the memory");
    assert!(cell.apply(1, true, b""));
    assert_eq!(old.room_after(wide), Some(0));
    let kept = [old.keep(cell), old.keep(cell)].map(|kept| kept.expect("room"));
    assert_eq!((old.keep(cell), old.room_after(wide)), (None, None));
    let [first, second] = kept;
    old.commit(first, 20);
    assert_eq!(old.room_after(wide), Some(20));
    old.commit(second, 15);
    assert_eq!(old.room_after(wide), Some(15));
    assert_eq!((old.collect(15), old.collect(16)), (0, 1));
    assert_eq!(old.room_after(wide), Some(0));
    let wider = Class::of(700).expect("a class");
    assert_eq!(old.room_after(wider), None, "larger than a block");
    let cells = Memory::private(wider.cell_words());
    let cell = Cell::new(&cells, 0, wider).expect("in the memory");
    assert_eq!(old.keep(cell), None);
}

#[test]
fn a_place_that_is_none_has_no_version() {
    let memory = Memory::private(128);
    let old = Old::new(&memory, 64).expect("sizes");
    let mut random = Generator::new(1);
    for round in 0..2000 {
        let (class, bits) = (random.below(53) as u8, random.next_u64() >> (round % 64));
        let class = Class::new(class).expect("a class");
        if round % 10 == 0 {
            let words = memory.words().iter();
            words.for_each(|word| word.store(random.next_u64(), Relaxed));
        }
        let before = random.next_u64();
        if let Some(version) = old.read(Older::from_bits(bits), class, before) {
            assert!(version.header.timestamp() < before);
        }
    }
    for bits in [0, 129, u64::MAX] {
        let none = old.read(
            Older::from_bits(bits),
            Class::new(0).expect("one"),
            u64::MAX,
        );
        assert_eq!(none, None);
    }
}

#[test]
fn without_memory_nothing_is_kept() {
    let mut old = Old::new(&Memory::private(63), 64).expect("sizes");
    let cells = Memory::private(8);
    let cell = Cell::new(&cells, 0, class(0)).expect("in the memory");
    assert_eq!(old.keep(cell), None);
    assert_eq!((old.room_after(class(0)), old.collect(u64::MAX)), (None, 0));
    for words in [0, 63, 1 << 31] {
        let old = Old::new(&Memory::private(64), words);
        assert!(matches!(old.err(), Some(Error::Sizes(_))));
    }
}
