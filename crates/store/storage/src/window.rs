//! The versioned window: every version of the last five seconds, over an engine (FDB §2.3.4, §2.4.2).
//!
//! A storage server applies mutations in version order as it pulls them from the log, serves reads at any version it
//! still has, and moves what has left the window to its engine in large batches. This module is the part of it without
//! disk, clock and tasks.
//!
//! ```text
//!        durable           oldest readable                          latest
//! ----------|--------------------|-----------------------------------|-------> versions
//!  engine   |    in the window, on its way to the engine and readable |
//! ```
//!
//! It keeps, for each key written in the window, the chain of its states by version; and for each range cleared in
//! the window, disjoint [segments](clears) with the versions of the clears. A read of a key at a version asks
//! the chain for the newest state at or below it; where the chain has none, a segment that was cleared by
//! then; and where there is none either, the engine. Atomic operations become plain states when they are applied.
//! A [journal](journal) of the keys and ranges that each version touched lets versions leave at either end at a cost
//! proportional to what leaves.
//!
//! The life of a version: [`apply`](VersionedWindow::apply), [`advance`](VersionedWindow::advance) makes it readable,
//! [`take_some`](VersionedWindow::take_some) gives the engine its net effect, and, when the engine has committed
//! that, [`forget_some`](VersionedWindow::forget_some). From [`begin_taking`](VersionedWindow::begin_taking) on, reads
//! below its version must be refused as too old: the engine is about to move past them. Reads at or above it have the
//! same answer before and after the engine's commit, because what is taken stays in the window until it is forgotten.
//! Taking and forgetting go in small steps, and so do large clears ([`clear_some`](VersionedWindow::clear_some)) and
//! rollbacks. Five seconds of writes, or one version of ten megabytes, in one step would keep readers waiting for that
//! long.
//!
//! What may never happen: a version that goes backwards; a read outside `[oldest readable, latest]`; a rollback below
//! what was taken (pitfall 15: such a version might be on disk). Each is asserted.

mod chain;
mod clears;
mod journal;
mod range;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use chain::Entry;
use clears::ClearedSegments;
use journal::{Journal, Record, Touch};
use plinth_core::key::is_single_key;
use plinth_core::{MutationKind, MutationRef, Result, Version, atomic};
use plinth_engine::WriteBatch;
use plinth_engine::sorted::SortedBlocks;
use plinth_runtime::checks::are_expensive_on;

pub use range::{RangeEnd, RangeLimits, RangeRead, read_range};

/// What the window knows about a key at a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<'a> {
    Value(&'a [u8]),
    Cleared,
    /// Not touched in the window by then: the engine has it.
    Engine,
}

/// See the module.
pub struct VersionedWindow {
    entries: SortedBlocks<Entry>,
    cleared: ClearedSegments,
    journal: Journal,
    /// Everything at or below this version has been forgotten: only the engine has it.
    durable: Version,
    /// Reads below this version are refused. Versions at or below it have been taken for the engine. Not below
    /// `durable`, and not above `latest`.
    oldest: Version,
    latest: Version,
    entry_bytes: usize,
    /// A version that is being forgotten, and one that is being undone.
    forgetting: Option<Leaving>,
    undoing: Option<Leaving>,
    /// Versions since everything was checked.
    unchecked: usize,
}

/// Everything is checked after one version for so many keys.
const KEYS_A_CHECK: usize = 4;

/// States on their way to the engine. See [`VersionedWindow::begin_taking`].
pub struct Taking {
    pub up_to: Version,
    pub batch: WriteBatch,
    /// How far it has got, in the store's own terms. Here: the number of journal records that are in the batch, and
    /// the place reached in the next one.
    pub place: (usize, usize),
}

/// A version that is leaving the window, and how far that has gone.
struct Leaving {
    record: Record,
    clears_done: usize,
    /// Begin of the rest of the next clear.
    clear_from: Option<Bytes>,
    at: usize,
}

impl Leaving {
    fn new(record: Record) -> Self {
        Leaving {
            record,
            clears_done: 0,
            clear_from: None,
            at: 0,
        }
    }

    fn is_over(&self) -> bool {
        let mut at = self.at;
        self.record.nth_clear(self.clears_done).is_none() && self.record.touch_at(&mut at).is_none()
    }

    /// Drops the clears of the version, part by part, before its states. Until they are gone every key keeps its
    /// states: a key without a state would read as cleared where an earlier clear is left. Returns what is left of
    /// `steps`.
    fn drop_clears(
        &mut self,
        mut steps: usize,
        mut drop_some: impl FnMut((&[u8], &[u8]), usize) -> Option<Bytes>,
    ) -> usize {
        while steps > 0
            && let Some((begin, end)) = self.record.nth_clear(self.clears_done)
        {
            let begin = self.clear_from.as_deref().unwrap_or(begin);
            let portion = steps.min(CLEARS_A_STEP);
            self.clear_from = drop_some((begin, end), portion);
            if self.clear_from.is_none() {
                self.clears_done += 1;
                steps -= 1;
            } else {
                steps -= portion;
            }
        }
        steps
    }
}

/// Behind every key that a window has.
const BEYOND_ALL_KEYS: &[u8] = b"\xff\xff\xff";
/// Approximate number of bytes that one step copies for the engine.
const BYTES_A_STEP: usize = 1 << 20;
/// Segments of cleared ranges that are processed in one step.
const CLEARS_A_STEP: usize = 500;

impl VersionedWindow {
    /// An empty window over an engine that has everything up to `version`.
    pub fn new(version: Version) -> Self {
        VersionedWindow {
            entries: SortedBlocks::new(),
            cleared: ClearedSegments::new(),
            journal: Journal::new(),
            durable: version,
            oldest: version,
            latest: version,
            entry_bytes: 0,
            forgetting: None,
            undoing: None,
            unchecked: 0,
        }
    }

    pub fn durable_version(&self) -> Version {
        self.durable
    }

    /// The oldest version that may be read.
    pub fn oldest_version(&self) -> Version {
        self.oldest
    }

    pub fn latest_version(&self) -> Version {
        self.latest
    }

    /// Memory held, within a few percent.
    pub fn bytes(&self) -> usize {
        self.entry_bytes + self.cleared.bytes() + self.journal.bytes()
    }

    /// Number of keys that have a state in the window.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.cleared.is_empty()
    }

    /// True if only the engine has data in `[begin, end)`: no version of the window touched it.
    pub fn is_untouched(&self, begin: &[u8], end: &[u8]) -> bool {
        let cleared = self.cleared.next_cleared(begin, Version::MAX);
        self.entries.range(begin, end, false).next().is_none()
            && cleared.is_none_or(|(from, _)| from >= end)
    }

    /// Applies one mutation at `version`, which is above the latest and not below the last one applied. Keys and
    /// values are copied. `existing` reads the engine; only an atomic operation on a key that the window does not know
    /// asks it. If it fails, nothing has changed.
    pub fn apply(
        &mut self,
        version: Version,
        mutation: MutationRef<'_>,
        existing: impl FnOnce(&[u8]) -> Result<Option<Bytes>>,
    ) -> Result<()> {
        self.assert_next(version);
        let (first, second) = (mutation.first, mutation.second);
        match mutation.kind {
            MutationKind::Set => self.write(version, first, Some(second), false),
            MutationKind::ClearRange if is_single_key(first, second) => {
                self.write(version, first, None, false)
            }
            MutationKind::ClearRange => {
                self.clear_entries(version, first, second);
                self.note_clear(version, first, second);
            }
            kind => {
                let value = match self.state_at(first, Version::MAX) {
                    Lookup::Value(value) => atomic::apply(kind, Some(value), second),
                    Lookup::Cleared => atomic::apply(kind, None, second),
                    Lookup::Engine => atomic::apply(kind, existing(first)?.as_deref(), second),
                };
                self.write(version, first, value.as_deref(), false);
            }
        }
        Ok(())
    }

    fn assert_next(&self, version: Version) {
        assert!(
            version > self.latest && version >= self.journal.last_version(),
            "version {version} applied after {} (latest {})",
            self.journal.last_version(),
            self.latest
        );
        assert!(self.undoing.is_none(), "a rollback is under way");
    }

    fn write(&mut self, version: Version, key: &[u8], value: Option<&[u8]>, by_range: bool) {
        let (bytes, journal) = (&mut self.entry_bytes, &mut self.journal);
        self.entries.upsert(key, |found| {
            let Some(entry) = found else {
                journal.touch(version, key, by_range);
                let entry = Entry::new(key, version, value);
                *bytes += entry.first_bytes();
                return Some(entry);
            };
            if entry.newest_version() != version {
                journal.touch(version, key, by_range);
            }
            entry.push(version, value, bytes);
            None
        });
    }

    /// Clears, at `version`, the beginning of `[begin, end)`: up to `keys_max` keys of the window, or about as many
    /// cleared ranges. Returns where to go on; `None` if that was all. Then the whole range must be noted with
    /// [`note_clear`](Self::note_clear) before anything else is applied.
    pub fn clear_some(
        &mut self,
        version: Version,
        begin: &[u8],
        end: &[u8],
        keys_max: usize,
    ) -> Option<Bytes> {
        self.assert_next(version);
        if begin >= end {
            return None;
        }
        let beyond = self.entries.range(begin, end, false).nth(keys_max);
        let by_keys = beyond.map(|entry| entry.key_bytes());
        let by_clears = self.cleared.nth_end(begin, end, keys_max);
        let stop = match (by_keys, by_clears) {
            (Some(key), Some(other)) => Some(key.min(other)),
            (stop, None) | (None, stop) => stop,
        };
        // One step at least: a segment that began before `begin` ends behind it.
        let stop = stop
            .filter(|stop| *stop > begin)
            .map(Bytes::copy_from_slice);
        self.clear_entries(version, begin, stop.as_deref().unwrap_or(end));
        stop
    }

    fn clear_entries(&mut self, version: Version, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let (bytes, journal) = (&mut self.entry_bytes, &mut self.journal);
        self.entries.for_each_mut(begin, end, |entry| {
            if entry.newest_value().is_none() {
                return;
            }
            if entry.newest_version() != version {
                journal.touch(version, entry.key_bytes(), true);
            }
            entry.push(version, None, bytes);
        });
        self.cleared.clear(version, begin, end);
    }

    /// See [`clear_some`](Self::clear_some).
    pub fn note_clear(&mut self, version: Version, begin: &[u8], end: &[u8]) {
        if begin < end {
            self.journal.clear(version, begin, end);
        }
    }

    /// Notes that everything at or below `version` has been applied and may be read.
    pub fn advance(&mut self, version: Version) {
        assert!(
            version >= self.latest && version >= self.journal.last_version(),
            "advance to {version} from {} with {} applied",
            self.latest,
            self.journal.last_version()
        );
        self.latest = version;
        assert!(
            self.durable <= self.oldest && self.oldest <= self.latest,
            "durable {}, oldest {}, latest {}",
            self.durable,
            self.oldest,
            self.latest
        );
        self.unchecked += 1;
        if are_expensive_on() && self.unchecked > self.entries.len() / KEYS_A_CHECK {
            self.unchecked = 0;
            self.check();
        }
    }

    /// Asserts that keys lie in order and versions in each chain, and that what counts memory counts right.
    fn check(&self) {
        self.entries.check();
        let all = self.entries.range(b"", BEYOND_ALL_KEYS, false);
        let bytes: usize = all.map(Entry::check).sum();
        assert_eq!(
            bytes,
            self.entry_bytes,
            "bytes of {} keys",
            self.entries.len()
        );
        self.cleared.check();
        self.journal.check();
    }

    #[inline]
    fn state_at(&self, key: &[u8], version: Version) -> Lookup<'_> {
        if let Some(state) = self.entries.get(key).and_then(|entry| entry.at(version)) {
            return state.map_or(Lookup::Cleared, Lookup::Value);
        }
        if self.cleared.is_cleared(key, version) {
            Lookup::Cleared
        } else {
            Lookup::Engine
        }
    }

    fn assert_readable(&self, version: Version) {
        assert!(
            (self.oldest..=self.latest).contains(&version),
            "read at {version} outside [{}, {}]",
            self.oldest,
            self.latest
        );
    }

    /// The state of `key` at `version`, which must be readable.
    #[inline]
    pub fn get(&self, key: &[u8], version: Version) -> Lookup<'_> {
        self.assert_readable(version);
        self.state_at(key, version)
    }

    /// Begins to take the net effect of every version at or below `up_to` that has not been forgotten, for the engine:
    /// clears, then the newest state of each key. [`take_some`](Self::take_some) continues. The states stay in the
    /// window until they are forgotten. Reads below `up_to` are no longer allowed. Taking again before forgetting
    /// gives the earlier part again, which does no harm.
    pub fn begin_taking(&mut self, up_to: Version) -> Taking {
        assert!(
            (self.oldest..=self.latest).contains(&up_to),
            "take {up_to} outside [{}, {}]",
            self.oldest,
            self.latest
        );
        self.oldest = up_to;
        let mut batch = WriteBatch::new();
        self.journal
            .clears_up_to(up_to, |begin, end| batch.clear_range(begin, end));
        Taking {
            up_to,
            batch,
            place: (0, 0),
        }
    }

    /// Takes up to `touches_max` more states, fewer if they are large. False if that was all. Versions above may come
    /// and go between calls.
    pub fn take_some(&self, taking: &mut Taking, touches_max: usize) -> bool {
        let mut touches = 0;
        let bytes_max = taking.batch.bytes() + BYTES_A_STEP;
        while touches < touches_max && taking.batch.bytes() < bytes_max {
            let (records, at) = &mut taking.place;
            let Some(record) = self.journal.nth_up_to(*records, taking.up_to) else {
                return false;
            };
            touches += 1;
            match record.touch_at(at) {
                Some(touch) => self.take(taking.up_to, record.version(), touch, &mut taking.batch),
                None => (*records, *at) = (*records + 1, 0),
            }
        }
        true
    }

    fn take(&self, up_to: Version, version: Version, touch: Touch<'_>, batch: &mut WriteBatch) {
        let Touch { key, by_range } = touch;
        // A key is in the journal once for every version of its chain. The newest of these gives the state to write.
        let entry = self
            .entries
            .get(key)
            .expect("a key in the journal is in the window");
        let (newest, value) = entry
            .at_with_version(up_to)
            .expect("the touch itself is at or below");
        match value {
            _ if newest != version => {}
            Some(value) => batch.set(key, value),
            // A range clear in the batch has cleared the key already.
            None if by_range => {}
            None => batch.clear(key),
        }
    }

    /// Drops up to `steps_max` of the states that were taken for `up_to`: the engine has them. False if that was all.
    pub fn forget_some(&mut self, up_to: Version, steps_max: usize) -> bool {
        assert!(
            (self.durable..=self.oldest).contains(&up_to),
            "forget {up_to} outside [{}, {}]",
            self.durable,
            self.oldest
        );
        let mut steps = steps_max.max(1);
        while steps > 0 {
            let next = || self.journal.pop_first(up_to).map(Leaving::new);
            let Some(mut leaving) = self.forgetting.take().or_else(next) else {
                self.durable = up_to;
                return false;
            };
            // Not up to `up_to` at once: a key whose state is dropped before a clear below it would read as cleared.
            let version = leaving.record.version();
            self.durable = version;
            let (entries, bytes) = (&mut self.entries, &mut self.entry_bytes);
            let cleared = &mut self.cleared;
            steps = leaving.drop_clears(steps, |range, most| {
                cleared.drop_up_to(version, range, most)
            });
            while steps > 0 {
                steps -= 1;
                let Some(touch) = leaving.record.touch_at(&mut leaving.at) else {
                    break;
                };
                entries.update_or_remove(touch.key, |entry| entry.drop_up_to(version, bytes));
            }
            if !leaving.is_over() {
                self.forgetting = Some(leaving);
            }
        }
        true
    }

    /// Begins to drop everything above `to`: versions that a recovery has undone (pitfall 15). From now on they cannot
    /// be read. [`undo_some`](Self::undo_some) drops them, and nothing may be applied before it is done.
    pub fn begin_rollback(&mut self, to: Version) {
        assert!(
            to >= self.oldest,
            "rollback to {to}, but {} was taken for the engine",
            self.oldest
        );
        self.latest = self.latest.min(to);
    }

    /// Drops up to `steps_max` states above the latest version. False if that was all.
    pub fn undo_some(&mut self, steps_max: usize) -> bool {
        let to = self.latest;
        let mut steps = steps_max.max(1);
        while steps > 0 {
            let next = || self.journal.pop_last(to).map(Leaving::new);
            let Some(mut leaving) = self.undoing.take().or_else(next) else {
                return false;
            };
            let (entries, bytes) = (&mut self.entries, &mut self.entry_bytes);
            let cleared = &mut self.cleared;
            steps = leaving.drop_clears(steps, |range, most| cleared.drop_above(to, range, most));
            while steps > 0 {
                steps -= 1;
                let Some(touch) = leaving.record.touch_at(&mut leaving.at) else {
                    break;
                };
                entries.update_or_remove(touch.key, |entry| entry.drop_above(to, bytes));
            }
            if !leaving.is_over() {
                self.undoing = Some(leaving);
            }
        }
        true
    }
}
