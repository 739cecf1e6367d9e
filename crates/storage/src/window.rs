//! The versioned window: every version of the last five seconds, over an engine (FDB §2.3.4, §2.4.2).
//!
//! A storage server applies mutations in version order as it pulls them from the log, serves reads at any version
//! it still has, and moves what has left the window to its engine in large batches. This is the part of it that has no
//! disk, no clock and no tasks.
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
//! Both go in small steps: five seconds of writes in one step would keep readers waiting for as long as it takes.
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
use journal::{Journal, Touch};
use plinth_core::{MutationKind, MutationRef, Result, Version, atomic};
use plinth_engine::WriteBatch;
use plinth_engine::sorted::SortedBlocks;

pub use range::{RangeEnd, RangeLimits, read_range};

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
    /// Everything at or below has been forgotten: it is the engine's.
    durable: Version,
    /// Reads below are refused; what is at or below has been taken for the engine.
    oldest: Version,
    latest: Version,
    entry_bytes: usize,
}

/// What is on its way to the engine. See [`VersionedWindow::begin_taking`].
pub struct Taking {
    up_to: Version,
    pub batch: WriteBatch,
    /// Records of the journal that are in the batch.
    records: usize,
}

/// `[begin, end)` holds the key `begin` and no other.
fn is_single_key(begin: &[u8], end: &[u8]) -> bool {
    end.len() == begin.len() + 1 && end.ends_with(&[0]) && end.starts_with(begin)
}

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

    /// The engine alone knows what is in `[begin, end)`: no version of the window has anything to say about it.
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
        assert!(
            version > self.latest && version >= self.journal.last_version(),
            "version {version} applied after {} (latest {})",
            self.journal.last_version(),
            self.latest
        );
        let (first, second) = (mutation.first, mutation.second);
        match mutation.kind {
            MutationKind::Set => self.write(version, first, Some(second), false),
            MutationKind::ClearRange if is_single_key(first, second) => {
                self.write(version, first, None, false)
            }
            MutationKind::ClearRange => self.clear_range(version, first, second),
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

    fn clear_range(&mut self, version: Version, begin: &[u8], end: &[u8]) {
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
        self.journal.clear(version, begin, end);
    }

    /// Everything at or below `version` has been applied and may be read.
    pub fn advance(&mut self, version: Version) {
        assert!(
            version >= self.latest && version >= self.journal.last_version(),
            "advance to {version} from {} with {} applied",
            self.latest,
            self.journal.last_version()
        );
        self.latest = version;
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
    /// clears, then the newest state of each key. [`take_some`](Self::take_some) goes on with it. It stays in the
    /// window until it is forgotten; reads below `up_to` are no longer allowed. Taking again before forgetting gives
    /// the earlier part again, harmlessly.
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
            records: 0,
        }
    }

    /// Takes about `touches_max` states more. False if that was all. Versions above may come and go in between.
    pub fn take_some(&self, taking: &mut Taking, touches_max: usize) -> bool {
        let mut touches = 0;
        while touches < touches_max {
            let Some(record) = self.journal.nth_up_to(taking.records, taking.up_to) else {
                return false;
            };
            taking.records += 1;
            for touch in record.touches() {
                touches += 1;
                self.take(taking.up_to, record.version(), touch, &mut taking.batch);
            }
        }
        true
    }

    fn take(&self, up_to: Version, version: Version, touch: Touch<'_>, batch: &mut WriteBatch) {
        let Touch { key, by_range } = touch;
        // A key's chain is in the journal once for every version in it; the newest of these speaks for it.
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
            // A range clear that is in the batch already put it there.
            None if by_range => {}
            None => batch.clear(key),
        }
    }

    /// Drops about `touches_max` states of what was taken for `up_to`, because the engine has it. False if that was all.
    pub fn forget_some(&mut self, up_to: Version, touches_max: usize) -> bool {
        assert!(
            (self.durable..=self.oldest).contains(&up_to),
            "forget {up_to} outside [{}, {}]",
            self.durable,
            self.oldest
        );
        let mut touches = 0;
        while touches < touches_max {
            let Some(record) = self.journal.pop_first(up_to) else {
                self.durable = up_to;
                return false;
            };
            // Not up to `up_to` at once: a state that is gone before a clear below it would read as cleared.
            let version = record.version();
            self.durable = version;
            for Touch { key, .. } in record.touches() {
                touches += 1;
                let bytes = &mut self.entry_bytes;
                self.entries
                    .update_or_remove(key, |entry| entry.drop_up_to(version, bytes));
            }
            for (begin, end) in record.clears() {
                self.cleared.drop_up_to(version, begin, end);
            }
        }
        true
    }

    /// Drops everything above `to`: versions that a recovery has undone (pitfall 15).
    pub fn rollback(&mut self, to: Version) {
        assert!(
            to >= self.oldest,
            "rollback to {to}, but {} was taken for the engine",
            self.oldest
        );
        self.latest = self.latest.min(to);
        while let Some(record) = self.journal.pop_last(to) {
            for Touch { key, .. } in record.touches() {
                let bytes = &mut self.entry_bytes;
                self.entries
                    .update_or_remove(key, |entry| entry.drop_above(to, bytes));
            }
            for (begin, end) in record.clears() {
                self.cleared.drop_above(to, begin, end);
            }
        }
    }
}
