//! Versions in memory, over an engine that knows only its last state.

use crate::versioned::VersionedStore;
use crate::window::{Lookup, RangeEnd, RangeRead, Taking, VersionedWindow, read_range};
use bytes::Bytes;
use plinth_core::{EngineKind, Error, MutationRef, Result, Version};
use plinth_engine::{FileDamage, KeyValueStore, LocalBoxFuture, Wanted, WriteBatch};
use plinth_protocol::DurableVersion;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Key of the engine's row that holds the durable version. It lies beyond every key of the database.
const DURABLE_KEY: &[u8] = b"\xff\xff/durable";

/// A [`VersionedWindow`] over an engine.
pub struct WindowedStore {
    window: RefCell<VersionedWindow>,
    engine: Rc<dyn KeyValueStore>,
    /// A commit is under way.
    is_committing: Cell<bool>,
}

impl WindowedStore {
    /// A store over what the engine has. A new one has missed nothing up to `after`.
    pub fn open(engine: Rc<dyn KeyValueStore>, after: Version) -> Result<Self> {
        let durable = match engine.get(DURABLE_KEY)? {
            Some(bytes) => {
                Version::from_be_bytes(bytes[..].try_into().map_err(|_| Error::file_corrupt)?)
            }
            None => after,
        };
        let window = RefCell::new(VersionedWindow::new(durable));
        Ok(WindowedStore {
            window,
            engine,
            is_committing: Cell::new(false),
        })
    }
}

impl VersionedStore for WindowedStore {
    fn durable_version(&self) -> Version {
        self.window.borrow().durable_version()
    }

    fn oldest_version(&self) -> Version {
        self.window.borrow().oldest_version()
    }

    fn window_bytes(&self) -> usize {
        self.window.borrow().bytes()
    }

    fn apply(&self, version: Version, mutation: MutationRef<'_>) -> Result<()> {
        let mut window = self.window.borrow_mut();
        window.apply(version, mutation, |key| self.engine.get(key))
    }

    fn clear_some(
        &self,
        version: Version,
        (begin, end): (&[u8], &[u8]),
        from: &[u8],
        keys_max: usize,
    ) -> Option<Bytes> {
        let mut window = self.window.borrow_mut();
        let rest = window.clear_some(version, from, end, keys_max);
        if rest.is_none() {
            window.note_clear(version, begin, end);
        }
        rest
    }

    fn advance(&self, version: Version) {
        self.window.borrow_mut().advance(version);
    }

    fn begin_rollback(&self, to: Version) {
        self.window.borrow_mut().begin_rollback(to);
    }

    fn undo_some(&self, steps_max: usize) -> bool {
        self.window.borrow_mut().undo_some(steps_max)
    }

    fn get(&self, key: &[u8], version: Version) -> Result<Option<Bytes>> {
        match self.window.borrow().get(key, version) {
            Lookup::Value(value) => Ok(Some(Bytes::copy_from_slice(value))),
            Lookup::Cleared => Ok(None),
            Lookup::Engine => self.engine.get(key),
        }
    }

    fn range(&self, read: &RangeRead<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<RangeEnd> {
        read_range(&self.window.borrow(), &*self.engine, read, emit)
    }

    fn is_cold(&self) -> bool {
        self.engine.is_cold()
    }

    fn warm(&self, wanted: &Wanted<'_>) -> Option<LocalBoxFuture<'static, ()>> {
        self.engine.warm(wanted)
    }

    fn is_untouched(&self, begin: &[u8], end: &[u8]) -> bool {
        self.window.borrow().is_untouched(begin, end)
    }

    fn own_rows(
        &self,
        begin: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.engine.range(begin, end, false, visit)
    }

    fn begin_taking(&self, up_to: Version) -> Taking {
        self.window.borrow_mut().begin_taking(up_to)
    }

    fn take_some(&self, taking: &mut Taking, touches_max: usize) -> bool {
        self.window.borrow().take_some(taking, touches_max)
    }

    fn commit(
        &self,
        up_to: Version,
        mut batch: WriteBatch,
    ) -> LocalBoxFuture<'_, Result<DurableVersion>> {
        batch.set(DURABLE_KEY, &up_to.to_be_bytes());
        assert!(
            up_to >= self.durable_version() && !self.is_committing.replace(true),
            "{up_to} is committed after {}, or beside another commit",
            self.durable_version()
        );
        Box::pin(async move {
            let committed = self.engine.commit(batch).await;
            self.is_committing.set(false);
            let synced = committed?;
            Ok(DurableVersion::new(up_to, synced))
        })
    }

    fn forget_some(&self, durable: DurableVersion, steps_max: usize) -> bool {
        let mut window = self.window.borrow_mut();
        window.forget_some(durable.version(), steps_max)
    }

    fn kind(&self) -> EngineKind {
        self.engine.kind()
    }

    fn open_again(&self) -> LocalBoxFuture<'_, Result<()>> {
        self.engine.open_again()
    }

    fn has_failed(&self) -> bool {
        self.engine.has_failed()
    }

    fn damage(&self) -> FileDamage {
        self.engine.damage()
    }

    fn disk_bytes(&self) -> u64 {
        self.engine.bytes_used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::{HELD, HELD_END};
    use crate::sample::SAMPLE;
    use crate::server::{COMMITTED, COMMITTED_END};
    use plinth_engine::KEPT_TWICE;

    #[test]
    fn what_a_server_must_know_to_serve_is_kept_twice_and_the_sample_is_not() {
        let (begin, end) = KEPT_TWICE;
        assert!(begin <= DURABLE_KEY && DURABLE_KEY < end);
        assert!(begin <= HELD && HELD_END <= end);
        assert!(begin <= COMMITTED && COMMITTED_END <= end);
        assert!(end <= SAMPLE);
    }
}
