//! A machine that keeps what it has on its own disk, so that the loss of power everywhere loses nothing that was
//! acknowledged (§5.6: what is logged here is the writes of transactions and not their operations, so that they are
//! redone in any order).
//!
//! ```text
//!   CommitBackup ─▶ journal ── on disk ─▶ Kept, to the coordinator: CommitPrimary waits for all of them
//!   Truncate     ─▶ line ──▶ backup ── sync ─▶ the journal's begin is cut off
//!   recovery     ─▶ journal ── on disk ─▶ Done: a region opens when all its replicas have the decisions on disk
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `durable` | what waits for the disk, and what may be cut off the journal |
//! | `record` | the entries of a journal |
//! | `replay` | what a journal says. Pure |
//! | `disk` | a disk that is opened, and loaded into memory |
//! | `write` | the tasks that wait for the disk |
//!
//! Promises:
//! - When a transaction is reported, and before anybody can read what it has written, all replicas of its regions,
//!   primaries too, have its writes on disk.
//! - No timestamp was used that is after the newest mark of time on the disk ([`Entry::Time`]). So a restart of
//!   everybody, which goes on above the marks, never gives out a timestamp again, not even one of a read.
//! - A disk whose replica of a region is whole in the newest configuration has all of the region: in its backup, in
//!   its journal, or in the records that [`Recovery`](crate::recovery::Recovery) is given after a restart. So a
//!   restart of everybody is one more configuration, and its recovery decides what is open.
//!
//! **Why a restart decides as the machines before would have.** A record stays in the journal until its transaction is
//! truncated everywhere, and what is cut off is named by a mark that is on disk before ([`Entry::Below`]). So each
//! whole replica that is read again knows of each reported transaction. What a recovery has decided is in the journal
//! of each replica before the region is open ([`Entry::Settled`]).
//!
//! **Why no old object comes back.** A place may have held objects of several sizes, one after the other, and a
//! restart may tell of all of them again. They are redone in the order of time. A version that is not newer than what
//! its slab was freed at stays away ([`Entry::Freed`]). An object takes a slab over from another class only if it is
//! newer than all that was there. And the backup takes in what the memory has taken, in the same order.

mod disk;
mod record;
mod replay;
mod write;

pub use disk::Disk;
pub use record::{Commit, Entry, Freed, Settled};

use crate::recovery::{Below, Id, Record, Redone};
use crate::wire::{Change, Number, Write};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_farm_disk::{Backup, Journal, Position, Version};
use plinth_farm_fabric::Machine;
use plinth_runtime::disk::Health;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Instant, knob};
use record::below_of;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

knob! {
    /// A longer journal is cut off as soon as that can be.
    pub JOURNAL_BYTES: usize = "farm_journal_bytes", 256 << 20, sim 8 << 10, 1 << 20;
    /// No commit is acknowledged while so many bytes wait for the backup.
    pub LINE_BYTES_MAX: usize = "farm_backup_line_bytes_max", 256 << 20, sim 16 << 10, 1 << 20;
    /// A disk on which an operation takes longer counts as failed: the process ends, and the others go on without it.
    pub DISK_HANG_SECONDS: f64 = "farm_disk_hang_seconds", 5.0, sim 0.2, 5.0, legal 0.05, 1e6;
    /// How far the mark of time on the disk is ahead. It is moved on when half of that has passed.
    pub TIME_AHEAD_SECONDS: f64 = "farm_time_ahead_seconds", 3600.0, sim 0.1, 60.0, legal 0.01, 1e6;
}

/// So long does a disk count as full after something waited for room.
const FULL_FOR: Duration = Duration::from_secs(1);

/// Somebody waits for a position of the journal to be on disk.
pub enum Waiter {
    Commit {
        coordinator: Machine,
        number: Number,
    },
    /// All that a recovery was told.
    Known,
    Settled {
        region: u16,
    },
}

/// What the backup is to take in, in this order.
pub enum Item {
    Apply {
        position: Position,
        versions: Vec<Version>,
    },
    Free {
        position: Position,
        freed: Freed,
    },
    Clear {
        position: Position,
        region: u16,
    },
    /// Some of a replica that was copied from another machine.
    Copied(Vec<Version>),
    /// That was all of it, in the configuration with this number.
    Whole {
        configuration: u64,
        region: u16,
    },
    /// The safe point.
    Safe(u64),
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Item::Apply { versions, .. } | Item::Copied(versions) => {
                versions.iter().map(Version::bytes).sum()
            }
            _ => 0,
        }
    }

    fn position(&self) -> Option<Position> {
        match self {
            Item::Apply { position, .. }
            | Item::Free { position, .. }
            | Item::Clear { position, .. } => Some(*position),
            Item::Copied(_) | Item::Whole { .. } | Item::Safe(_) => None,
        }
    }
}

/// Why an entry of the journal stays.
#[derive(Default)]
struct Stays {
    /// It is a transaction's that is not known to be truncated everywhere. The number is of the configuration.
    open: Option<(Id, u64)>,
    /// So many items of the line have it.
    in_line: usize,
}

/// What a recovery has decided for a region, until it is done in memory.
pub type Settling = BTreeMap<u16, (Position, Vec<Redone>)>;

/// What the disk has told at the start: for the first configuration.
struct Restored {
    records: Vec<(u16, Record)>,
    below: Vec<Below>,
}

pub struct Durable {
    journal: Journal,
    backup: Backup,
    /// Entries for which the journal had no room yet.
    unwritten: RefCell<VecDeque<Bytes>>,
    waiters: RefCell<VecDeque<(Position, u64, Waiter)>>,
    waiter: Notify,
    /// The first one may be under way to the backup.
    line: RefCell<VecDeque<Rc<Item>>>,
    line_bytes: Cell<usize>,
    item: Notify,
    done: Notify,
    stays: RefCell<BTreeMap<Position, Stays>>,
    pub settling: RefCell<Settling>,
    /// Regions that the disk may have something of.
    regions: RefCell<BTreeSet<u16>>,
    /// By region and slab: versions up to this timestamp are of objects that were there before the slab was freed. A
    /// recovery may bring them again, for other replicas.
    freed: RefCell<BTreeMap<(u16, u32), u64>>,
    restored: RefCell<Option<Restored>>,
    cut: Cell<Position>,
    /// No timestamp after it is used here: the disk says so.
    time_mark: Cell<u64>,
    time_wanted: Notify,
    /// When something waited for room on the disk last.
    full_at: Cell<Option<Instant>>,
    /// Of the directories that it writes to.
    healths: Vec<Health>,
}

pub fn version(write: &Write, timestamp: u64) -> Version {
    Version {
        pointer: write.at,
        timestamp,
        is_allocated: write.change != Change::Free,
        payload: write.payload.clone(),
    }
}

impl Durable {
    fn new(journal: Journal, backup: Backup, healths: Vec<Health>) -> Durable {
        Durable {
            journal,
            backup,
            unwritten: RefCell::default(),
            waiters: RefCell::default(),
            waiter: Notify::new(),
            line: RefCell::default(),
            line_bytes: Cell::new(0),
            item: Notify::new(),
            done: Notify::new(),
            stays: RefCell::default(),
            settling: RefCell::default(),
            regions: RefCell::default(),
            freed: RefCell::default(),
            restored: RefCell::new(None),
            cut: Cell::new(Position(0)),
            time_mark: Cell::new(0),
            time_wanted: Notify::new(),
            full_at: Cell::new(None),
            healths,
        }
    }

    // ---- the journal ----

    /// Appends after everything before, at once if the disk has room.
    pub fn append(&self, entry: &Entry) -> Position {
        let position = self.end();
        let mut unwritten = self.unwritten.borrow_mut();
        let bytes = entry.to_bytes();
        let appended = match unwritten.is_empty() {
            true => self.journal.append(bytes.clone()).ok(),
            false => None,
        };
        match appended {
            Some(appended) => assert_eq!(appended, position, "an entry goes to another place"),
            // An error that stays is met by who waits for it.
            None => {
                unwritten.push_back(bytes);
                self.waiter.notify_one();
            }
        }
        position
    }

    /// The position that the next entry gets.
    fn end(&self) -> Position {
        Position(self.journal.end().0 + self.unwritten.borrow().len() as u64)
    }

    /// Of the newest entry.
    pub fn last(&self) -> Option<Position> {
        self.end().0.checked_sub(1).map(Position)
    }

    pub fn wait(&self, position: Position, configuration: u64, waiter: Waiter) {
        let waiting = (position, configuration, waiter);
        let mut waiters = self.waiters.borrow_mut();
        let last = waiters.back().map(|(last, ..)| *last);
        // Those that are on disk are found by halving.
        assert!(
            last.is_none_or(|last| last <= position),
            "one who waits for {position:?} comes behind one who waits for {last:?}"
        );
        waiters.push_back(waiting);
        self.waiter.notify_one();
    }

    /// A transaction is to be kept for its coordinator.
    pub fn keep(&self, configuration: u64, commit: Commit) -> Position {
        let (id, stays) = (commit.id, Stays::default());
        let position = self.append(&Entry::Commit(commit));
        let open = Some((id, configuration));
        let stays = Stays { open, ..stays };
        let before = self.stays.borrow_mut().insert(position, stays);
        assert!(before.is_none(), "two entries have {position:?}");
        let (coordinator, number) = (id.author.machine, id.number);
        let waiter = Waiter::Commit {
            coordinator,
            number,
        };
        self.wait(position, configuration, waiter);
        position
    }

    fn note_freed(&self, region: u16, slab: u32, at: u64) {
        let mut freed = self.freed.borrow_mut();
        let known = freed.entry((region, slab)).or_default();
        *known = at.max(*known);
    }

    /// The version is of an object that was there before its slab was freed.
    pub fn is_over(&self, region: u16, slab: u32, written_at: u64) -> bool {
        let freed = self.freed.borrow();
        let freed = freed.get(&(region, slab));
        freed.is_some_and(|freed| written_at <= *freed)
    }

    /// The region's replica here has no objects from here on.
    pub fn clear(&self, region: u16) {
        self.freed.borrow_mut().retain(|(of, _), _| *of != region);
        let position = self.append(&Entry::Anew { region });
        self.push(Item::Clear { position, region });
    }

    pub fn free(&self, freed: Freed) {
        let position = self.append(&Entry::Freed(freed));
        self.push(Item::Free { position, freed });
    }

    // ---- the disk itself ----

    /// Commits wait for room on the disk, or did a moment ago.
    pub fn is_full(&self) -> bool {
        let full_at = self.full_at.get();
        full_at.is_some_and(|at| at.elapsed() < FULL_FOR)
    }

    // ---- time ----

    pub fn has_marked(&self, time: u64) -> bool {
        let has = time <= self.time_mark.get();
        if !has {
            self.time_wanted.notify_one();
        }
        has
    }

    // ---- the line to the backup ----

    pub fn push(&self, item: Item) {
        if let Item::Free { freed, .. } = &item {
            self.note_freed(freed.region, freed.slab, freed.at);
        }
        if let Some(position) = item.position() {
            self.stays.borrow_mut().entry(position).or_default().in_line += 1;
        }
        self.line_bytes.set(self.line_bytes.get() + item.bytes());
        self.line.borrow_mut().push_back(Rc::new(item));
        self.item.notify_one();
    }

    pub fn apply<'a>(
        &self,
        position: Position,
        written_at: u64,
        writes: impl Iterator<Item = &'a Write>,
    ) {
        let versions: Vec<Version> = writes.map(|write| version(write, written_at)).collect();
        if !versions.is_empty() {
            self.push(Item::Apply { position, versions });
        }
    }

    /// The backup has the first item of the line.
    pub fn has_taken(&self, item: &Item) {
        let first = self.line.borrow_mut().pop_front();
        let is_first = first.is_some_and(|first| std::ptr::eq(&raw const *first, item));
        let (bytes, waiting) = (item.bytes(), self.line_bytes.get());
        assert!(
            is_first && bytes <= waiting,
            "the backup has {bytes} bytes of {waiting}, and not the first ones: {is_first}"
        );
        self.line_bytes.set(waiting - bytes);
        if let Some(position) = item.position() {
            let mut stays = self.stays.borrow_mut();
            // Without a place among those that stay, the journal may have been cut off behind it.
            let stays = stays.get_mut(&position).filter(|stays| stays.in_line > 0);
            let stays = stays.unwrap_or_else(|| panic!("nothing of {position:?} was in the line"));
            stays.in_line -= 1;
        }
        self.done.notify_all();
    }

    pub fn backup(&self) -> &Backup {
        &self.backup
    }

    /// Versions of a region's objects that the backup may not have yet, in order.
    pub fn versions_in_line(&self, region: u16) -> Vec<Version> {
        let line = self.line.borrow();
        let versions = line.iter().flat_map(|item| match &**item {
            Item::Apply { versions, .. } | Item::Copied(versions) => &versions[..],
            _ => &[],
        });
        let here = versions.filter(|version| version.pointer.region() == region);
        here.cloned().collect()
    }

    /// Everything below this position is in the backup and settled: `below` says what is.
    pub fn settled_below(&self, below: &[Below]) -> Position {
        let mut stays = self.stays.borrow_mut();
        let is_open = |open: (Id, u64)| open.0.number >= below_of(below, open.0);
        stays.retain(|_, stays| stays.in_line > 0 || stays.open.is_some_and(is_open));
        let first = stays.first_key_value().map(|(position, _)| *position);
        first.unwrap_or_else(|| self.end())
    }

    /// All regions are open in this configuration: what former ones have left open is decided, and on disk.
    pub fn opened(&self, configuration: u64) {
        for stays in self.stays.borrow_mut().values_mut() {
            stays.open = stays.open.filter(|(_, of)| *of >= configuration);
        }
    }

    /// What the disk knows, and nobody else here: to be asked for once.
    pub fn restored(&self, is_here: impl Fn(u16) -> bool) -> (Vec<(u16, Record)>, Vec<Below>) {
        let Some(Restored { mut records, below }) = self.restored.take() else {
            return (Vec::new(), Vec::new());
        };
        records.retain(|(region, _)| is_here(*region));
        (records, below)
    }

    /// A configuration has begun, in which replicas of these regions have kept what they had, and those of others are
    /// new or are gone.
    pub fn arranged(&self, kept: &[u16], here: &[u16]) {
        let had = std::mem::take(&mut *self.regions.borrow_mut());
        for region in had.iter().filter(|region| !kept.contains(region)) {
            self.clear(*region);
        }
        self.regions.borrow_mut().extend(here);
    }
}
