//! One writer, and readers on other threads.

use crate::{Cell, Class, Header, Old, Older, Seen, Snapshot};
use plinth_farm_fabric::Memory;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

const READERS: usize = 2;
/// No transaction reads.
const IDLE: u64 = u64::MAX;

fn class() -> Class {
    Class::of(4000).expect("a class")
}

/// Every word tells the version and its place.
fn payload(timestamp: u64) -> Vec<u8> {
    let words = 0..class().payload_bytes() as u64 / 8;
    words
        .flat_map(|at| (timestamp << 16 | at).to_le_bytes())
        .collect()
}

fn check(payload: &[u8], timestamp: u64) {
    let words = payload.as_chunks::<8>().0;
    assert_eq!(payload.len(), class().payload_bytes());
    for (word, at) in words.iter().zip(0..) {
        let word = u64::from_le_bytes(*word);
        assert_eq!(
            (word >> 16, word & 0xffff),
            (timestamp, at),
            "a mixed version"
        );
    }
}

/// What the threads share.
struct Stand {
    cells: Memory,
    old: Memory,
    /// The newest timestamp that is installed.
    now: AtomicU64,
    /// Of each reader's transaction; 0 while it begins.
    snapshots: [AtomicU64; READERS],
    /// What each reader has read whole.
    reads: [AtomicU64; READERS],
    is_over: AtomicBool,
    has_failed: AtomicBool,
}

impl Stand {
    fn new() -> Stand {
        let stand = Stand {
            cells: Memory::private(class().cell_words() + 1),
            old: Memory::private(1 << 15),
            now: AtomicU64::new(1),
            snapshots: [const { AtomicU64::new(IDLE) }; READERS],
            reads: [const { AtomicU64::new(0) }; READERS],
            is_over: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        };
        stand.cell().apply(1, true, &payload(1));
        stand
    }

    fn cell(&self) -> Cell<'_> {
        Cell::new(&self.cells, 1, class()).expect("in the memory")
    }

    /// No version is taken out of it that is not one.
    fn read_newest(&self, reader: usize) {
        let mut copy = vec![0; class().payload_bytes()];
        let mut bytes = vec![0; Snapshot::bytes(class())];
        let reads = &self.reads[reader];
        while !self.is_over.load(SeqCst) {
            if let Seen::Version { header, .. } = self.cell().read_into(&mut copy) {
                check(&copy, header.timestamp());
                reads.fetch_add(1, SeqCst);
            }
            self.cells.read(8, &mut bytes).expect("in the memory");
            let judged = Snapshot::judge(&bytes, class());
            if let Seen::Version {
                header, payload, ..
            } = judged
            {
                check(&bytes[payload], header.timestamp());
                reads.fetch_add(1, SeqCst);
            }
        }
    }

    /// One object at one snapshot, as another machine reads it. `None` while the version is locked.
    fn read_at(&self, snapshot: u64) -> Option<()> {
        let mut bytes = vec![0; Snapshot::bytes(class())];
        self.cells.read(8, &mut bytes).expect("in the memory");
        let (mut header, mut older) = match Snapshot::judge(&bytes, class()) {
            Seen::Version {
                header,
                older,
                payload,
            } => {
                check(&bytes[payload], header.timestamp());
                (header, older)
            }
            // The version before does not change.
            Seen::Locked { header, older } if header.timestamp() > snapshot => (header, older),
            Seen::Locked { .. } | Seen::Torn => return None,
        };
        while header.timestamp() > snapshot {
            let offset = older.offset().expect("its history reaches back");
            let bytes = &mut bytes[..Snapshot::old_bytes(class())];
            self.old.read(offset, bytes).expect("in the memory");
            let before = header.timestamp();
            let version = Snapshot::judge_old(bytes, class(), before);
            let (found, next, payload) = version.expect("nobody has collected it");
            check(&bytes[payload], found.timestamp());
            assert_eq!(found.timestamp(), before - 1, "each version is kept");
            (header, older) = (found, next);
        }
        assert_eq!(header.timestamp(), snapshot);
        Some(())
    }

    /// Transactions one after the other.
    fn read_snapshots(&self, reader: usize) {
        let (own, reads) = (&self.snapshots[reader], &self.reads[reader]);
        while !self.is_over.load(SeqCst) {
            // In this order, so that the safe point does not pass the snapshot before it is known.
            own.store(0, SeqCst);
            let snapshot = self.now.load(SeqCst);
            own.store(snapshot, SeqCst);
            for _ in 0..20 {
                reads.fetch_add(u64::from(self.read_at(snapshot).is_some()), SeqCst);
            }
            own.store(IDLE, SeqCst);
        }
    }

    /// The timestamps to write: many, and until every reader has met some of them.
    fn timestamps(&self, least: u64) -> impl Iterator<Item = u64> {
        let all_read = || self.reads.iter().all(|reads| reads.load(SeqCst) > 1000);
        let goes_on = move |timestamp: &u64| {
            if *timestamp > least {
                std::thread::yield_now();
            }
            *timestamp < least || !(all_read() || self.has_failed.load(SeqCst))
        };
        (2..1 << 40).take_while(goes_on)
    }

    fn safe_point(&self) -> u64 {
        let now = self.now.load(SeqCst);
        let snapshots = self.snapshots.iter().map(|at| at.load(SeqCst));
        snapshots.fold(now, u64::min)
    }

    /// Replaces the version. The lock is short, so that readers often begin before it.
    fn write(&self, timestamp: u64, keep: impl FnOnce() -> Older) {
        let (cell, payload) = (self.cell(), payload(timestamp));
        assert!(cell.lock(Header::new(timestamp - 1, true)));
        cell.install(timestamp, true, keep(), &payload);
        self.now.store(timestamp, SeqCst);
    }
}

/// Says so when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs `read` on threads while `write` runs here.
#[allow(clippy::disallowed_methods)] // a race needs threads
fn race(stand: &Stand, read: impl Fn(usize) + Sync, write: impl FnOnce()) {
    std::thread::scope(|scope| {
        for at in 0..READERS {
            let read = &read;
            scope.spawn(move || {
                // A reader ends before the writer does only if it has failed.
                let _over = Over(&stand.has_failed);
                read(at);
            });
        }
        let _over = Over(&stand.is_over);
        write();
    });
}

#[test]
fn no_reader_sees_a_mixed_version() {
    let stand = Stand::new();
    let write = || {
        for timestamp in stand.timestamps(40_000) {
            stand.write(timestamp, || Older::NONE);
        }
    };
    race(&stand, |at| stand.read_newest(at), write);
}

#[test]
fn a_snapshot_stays_readable_while_versions_are_replaced_and_collected() {
    let stand = Stand::new();
    let mut old = Old::new(&stand.old, 1 << 11).expect("sizes");
    let keep = |old: &mut Old| loop {
        match old.keep(stand.cell()) {
            Some(kept) => return kept,
            None if old.collect(stand.safe_point()) > 0 => {}
            None => {
                assert!(!stand.has_failed.load(SeqCst), "a reader has failed");
                std::thread::yield_now();
            }
        }
    };
    let write = || {
        for timestamp in stand.timestamps(20_000) {
            let mut kept = None;
            stand.write(timestamp, || kept.insert(keep(&mut old)).older());
            old.commit(kept.expect("it was kept"), timestamp);
        }
    };
    race(&stand, |at| stand.read_snapshots(at), write);
}
