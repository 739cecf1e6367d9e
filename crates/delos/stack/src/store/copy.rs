//! A copy of the rows that a replica has on disk, for a new replica that cannot play the log from its begin.
//!
//! ```text
//!   Held      one replica's rows, which are not flushed while they are read ──► pages
//!   Copying   pages ──► the engine of another replica, with a mark; the mark goes with the last page
//! ```
//! The rows are those of one position, whose checksum comes along: a copy that differs is refused. A copy that was
//! interrupted is begun again.

use super::{LocalStore, META, OWNER, ROWS, engine_key, hash_of};
use crate::log::LogPos;
use crate::words::{parse, words};
use bytes::Bytes;
use plinth_core::{Error, Result};
use plinth_engine::{KeyValueStore, WriteBatch};
use plinth_runtime::{Boxed, nobody_has_lied};
use std::rc::Rc;

/// The row of an engine whose copy is not complete.
const MARK: &[u8] = b"c";
const END: &[u8] = &[ROWS + 1];

/// A row of the store, as on disk.
pub type Row = (Bytes, Bytes);

/// See the module. While it lives, the log is played, and what it changes stays in memory.
pub struct Held {
    store: Rc<LocalStore>,
    pub pos: LogPos,
    pub checksum: u64,
}

impl Held {
    /// `None` if the rows are being flushed, or were never.
    ///
    /// # Errors
    /// The disk fails.
    pub fn new(store: &Rc<LocalStore>) -> Result<Option<Held>> {
        if store.flushing.get() != store.flushed() || store.flushed() == 0 {
            return Ok(None);
        }
        let meta = store.engine.get(META)?.ok_or(Error::file_corrupt)?;
        let [pos, checksum] = parse(&meta).ok_or(Error::file_corrupt)?;
        // Nobody else writes there.
        assert!(
            pos == store.flushed() || !nobody_has_lied(),
            "the disk has rows of {pos}, and {} was flushed",
            store.flushed()
        );
        store.held.update(|held| held + 1);
        Ok(Some(Held {
            store: store.clone(),
            pos,
            checksum,
        }))
    }

    /// The rows behind `after`, about as many as have `bytes_max` bytes, and one at least; none at the end.
    ///
    /// # Errors
    /// The disk fails.
    pub fn rows(&self, after: Option<&Bytes>, bytes_max: usize) -> Result<Vec<Row>> {
        let begin = match after {
            Some(key) => [&engine_key(key)[..], &[0]].concat(),
            None => vec![ROWS],
        };
        let (mut rows, mut bytes) = (Vec::new(), 0);
        self.store
            .engine
            .range(&begin, END, false, &mut |key, value| {
                bytes += key.len() + value.len();
                rows.push((
                    Bytes::copy_from_slice(&key[1..]),
                    Bytes::copy_from_slice(value),
                ));
                bytes < bytes_max
            })?;
        Ok(rows)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let held = self.store.held.get();
        assert!(held > 0, "rows are let go that nobody has held");
        self.store.held.set(held - 1);
    }
}

/// Removes what an interrupted copy has left.
///
/// # Errors
/// The disk is full or broken.
pub fn clear_interrupted(engine: &Rc<dyn KeyValueStore>) -> Boxed<'_, Result<()>> {
    Box::pin(async move {
        match engine.get(MARK)? {
            Some(_) => clear_all(engine).await,
            None => Ok(()),
        }
    })
}

/// Removes all rows and what is known about them, but not whose they are.
///
/// # Errors
/// The disk is full or broken.
pub fn clear_all(engine: &Rc<dyn KeyValueStore>) -> Boxed<'_, Result<()>> {
    Box::pin(async move {
        let mut batch = WriteBatch::new();
        batch.clear_range(&[ROWS], END);
        batch.clear(MARK);
        batch.clear(META);
        engine.commit(batch).await.map(drop)
    })
}

/// A copy into an engine that has no rows yet.
pub struct Copying {
    engine: Rc<dyn KeyValueStore>,
    checksum: u64,
}

impl Copying {
    pub fn new(engine: &Rc<dyn KeyValueStore>) -> Copying {
        Copying {
            engine: engine.clone(),
            checksum: 0,
        }
    }

    /// # Errors
    /// The disk is full or broken.
    pub async fn add(&mut self, rows: &[Row]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.set(MARK, b"");
        for (key, value) in rows {
            self.checksum = self.checksum.wrapping_add(hash_of(key, value));
            batch.set(&engine_key(key), value);
        }
        self.engine.commit(batch).await.map(drop)
    }

    /// Makes it the store of `owner`, at this position.
    ///
    /// # Errors
    /// [`Error::checksum_failed`] if the rows are not those that were promised. The disk is full or broken.
    pub async fn finish(self, owner: &str, pos: LogPos, checksum: u64) -> Result<()> {
        if self.checksum != checksum {
            return Err(Error::checksum_failed);
        }
        let mut batch = WriteBatch::new();
        batch.set(META, &words(&[pos, checksum]));
        batch.set(OWNER, owner.as_bytes());
        batch.clear(MARK);
        self.engine.commit(batch).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::EngineKind;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};
    use std::path::Path;

    async fn engine(name: &str) -> Rc<dyn KeyValueStore> {
        let path = Path::new("/").join(name);
        let opened = plinth_engine::open(EngineKind::Memory, &path, true, 1 << 20).await;
        opened.expect("an engine")
    }

    fn apply(store: &Rc<LocalStore>, value: &'static str) {
        let mut tx = store.begin(store.applied() + 1);
        for n in 0..100u8 {
            tx.set(&[n], value);
        }
        tx.commit().expect("applied");
    }

    async fn copy(held: &Held, to: &Rc<dyn KeyValueStore>, pages: usize) -> Copying {
        let mut copying = Copying::new(to);
        let mut after = None;
        for _ in 0..pages {
            let rows = held.rows(after.as_ref(), 20).expect("read");
            let Some((last, _)) = rows.last() else {
                break;
            };
            after = Some(last.clone());
            copying.add(&rows).await.expect("written");
        }
        copying
    }

    #[test]
    fn a_copy_has_the_rows_of_one_position_while_the_log_goes_on() {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let ran = sim.run_on(machine, async {
            let from = LocalStore::open(engine("from").await).expect("a store");
            assert!(Held::new(&from).expect("read").is_none(), "never flushed");
            apply(&from, "one");
            from.flush().await.expect("flushed");
            let held = Held::new(&from).expect("read").expect("held");
            let checksum = from.checksum();
            apply(&from, "two");
            from.flush().await.expect("it waits");
            assert_eq!(from.flushed(), 1);
            let to = engine("to").await;
            drop(copy(&held, &to, 2).await);
            assert!(LocalStore::open(to.clone()).is_err(), "it is not complete");
            clear_interrupted(&to).await.expect("cleared");
            let copying = copy(&held, &to, 10).await;
            let wrong = copying.finish("x", held.pos, held.checksum).await;
            assert_eq!(wrong, Err(Error::checksum_failed));
            clear_interrupted(&to).await.expect("cleared");
            let copying = copy(&held, &to, 1000).await;
            let done = copying.finish("x", held.pos, held.checksum).await;
            done.expect("complete");
            clear_interrupted(&to).await.expect("nothing to clear");
            let store = LocalStore::open(to).expect("a store");
            assert_eq!((store.applied(), store.checksum()), (1, checksum));
            assert_eq!(store.claim("x").await, Ok(true));
            assert_eq!(store.claim("y").await, Ok(false));
            drop(held);
            from.flush().await.expect("flushed");
            assert_eq!(from.flushed(), 2);
        });
        ran.expect("nothing kills it");
    }
}
