//! The ssd engine: a copy-on-write B-tree (redb) in one file of [checksummed frames](frames).
//!
//! Reads use a read transaction that is taken once after every commit. The state before the commit in progress stays
//! readable, because the tree never overwrites a page that a reader can see. Commits run on a thread of their own.
//! They are two-phase and record which pages are free. So the time to open after a crash does not depend on the amount
//! of data, and it is always certain which of two commits is the last. The price is a second sync.
//!
//! A read on the loop that waits for the disk delays everything else there. So a read of a range ends as soon as it
//! has waited for a page. A pool thread first reads the pages that it goes on with, and those of all reads in the next
//! moments ([`warm`](KeyValueStore::warm)). Then the loop reads them from the caches. Cached data is read only once.
//!
//! Rows that were read one by one are kept in a [row cache](row_cache), because a walk down the tree costs several
//! cache misses and a lock each. The row cache gets a third of the engine's memory, the pages the rest.
//!
//! What a storage server must know of its own ([`KEPT_TWICE`](crate::KEPT_TWICE)) is in a second tree of the file as
//! well, whose pages are others. Where the first cannot be read, it is taken from there.
//!
//! A new engine is made under another name and renamed when it is whole.

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
mod frames;
mod keep;
#[cfg(test)]
mod kept_tests;
mod own;
mod row_cache;

use crate::batch::{NetEffect, WriteBatch};
use crate::damage::{DamagedRanges, FileDamage, Met, Reach, kept};
use crate::failure::{damage, disk_failure, forgets_what_was_refused};
use crate::{KeyValueStore, LocalBoxFuture, Wanted, parent_dir};
use bytes::Bytes;
use frames::{Backend, BlockFile, DamagedBlock, Frames, as_commit, cold_reads_here};
use own::{OWN, OwnRows, apply_own, follow_own, is_kept_twice, kept_twice, show_own};
use plinth_core::key::{is_single_key, key_after};
use plinth_core::{EngineKind, Error, Result};
use plinth_runtime::disk::Synced;
use plinth_runtime::{
    Boxed, Duration, Instant, Pace, buggify, disk, now, offload, probe, trace, trace_warn,
};
use redb::{
    AccessGuard, Builder, Database, ReadOnlyTable, ReadableDatabase, StorageError, Table,
    TableDefinition,
};
use row_cache::{Removed, RemovedRows, RowCache};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;

const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
/// One part in this many of an engine's memory is for rows.
const ROWS_SHARE: usize = 3;

/// For this long after a read has waited for the disk, reads are expected to wait.
const COLD_FOR: Duration = Duration::from_millis(200);
/// A commit that changes more rows than this updates the row cache in several turns of the loop.
const ROWS_A_TURN: usize = 2000;

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// An open tree and the file under it.
struct Tree<F: BlockFile = disk::BlockingFile> {
    database: Database,
    frames: Arc<Frames<F>>,
}

/// See the module.
pub struct SsdEngine {
    path: PathBuf,
    /// Says what is damaged.
    damage_file: PathBuf,
    file: disk::File,
    /// Memory for pages.
    cache_bytes: usize,
    tree: RefCell<Option<Arc<Tree>>>,
    /// The last committed state.
    rows: RefCell<Option<Rows>>,
    /// Cached rows of that state.
    row_cache: RefCell<RowCache>,
    failed: Cell<Option<Error>>,
    /// Kept however often its file is opened again, and in a file of its own.
    damaged: RefCell<DamagedRanges>,
    /// That file does not have all of it.
    is_unkept: Cell<bool>,
    /// The rows that are kept twice, if they cannot be read at their first place.
    own: RefCell<Option<OwnRows>>,
    this: Weak<SsdEngine>,
    committing: Cell<bool>,
    coldness: Coldness,
}

/// Whether reads are expected to wait for the disk: if one did a moment ago, the next may.
#[derive(Default)]
struct Coldness {
    cold_reads: Cell<u64>,
    until: Cell<Option<Instant>>,
}

impl Coldness {
    fn is_cold(&self, cold_reads: u64) -> bool {
        if self.cold_reads.replace(cold_reads) != cold_reads {
            self.until.set(Some(now() + COLD_FOR));
        }
        let is_over = |until: Instant| now() >= until;
        if self.until.get().is_some_and(is_over) {
            self.until.set(None);
        }
        self.until.get().is_some()
    }
}

fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut name = prefix.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    prefix.with_file_name(name)
}

fn database_error(error: impl Into<redb::Error>) -> redb::Error {
    error.into()
}

/// Opens the tree in `file`, or makes one if the file is empty. `before` is one that had it, and `refused` are offsets
/// of frames that were found damaged. Blocks.
///
/// A torn write of a crash is never read: the header of a two-phase commit is written after everything that it leads
/// to is on disk. So a wrong checksum is damage from the first read on. It never reaches the tree, which does not
/// expect it.
fn open_tree<F: BlockFile>(
    file: F,
    cache_bytes: usize,
    before: Option<&Tree<F>>,
    refused: &[u64],
) -> std::result::Result<Tree<F>, redb::Error> {
    let frames = Frames::open(file, before.map(|tree| &*tree.frames), refused)?;
    let database = Builder::new()
        .set_cache_size(cache_bytes)
        .create_with_backend(Backend(frames.clone()));
    match (database, frames.damaged_at()) {
        (Ok(database), _) => Ok(Tree { database, frames }),
        (Err(_), Some(at)) => Err(redb::Error::Corrupted(format!("block checksum at {at}"))),
        (Err(error), None) => Err(error.into()),
    }
}

impl<F: BlockFile> Tree<F> {
    /// Applies a batch and makes it durable. Notes the rows that its clears remove. Gives the proof of its last sync,
    /// unless the disk is full. Blocks.
    fn commit(
        &self,
        net: &NetEffect<'_>,
        removed: &mut RemovedRows,
    ) -> std::result::Result<Option<F::Synced>, redb::Error> {
        self.frames.take_synced()?;
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut table = transaction.open_table(ROWS)?;
            apply(&mut table, net, removed)?;
            let mut own = transaction.open_table(OWN)?;
            apply_own(&mut own, &table, net)?;
        }
        transaction.commit().map_err(database_error)?;
        Ok(self.frames.take_synced()?)
    }

    /// Brings rows into the caches. Blocks.
    fn touch(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        bytes_max: usize,
    ) -> std::result::Result<(), redb::Error> {
        if begin >= end {
            return Ok(());
        }
        let rows = self.reader()?;
        let mut range = rows.range(begin..end)?;
        let mut bytes = 0;
        while let Some(row) = if reverse {
            range.next_back()
        } else {
            range.next()
        } {
            let (key, value) = row?;
            bytes += key.value().len() + value.value().len();
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(())
    }

    fn reader(&self) -> std::result::Result<Rows, redb::Error> {
        self.database
            .begin_read()?
            .open_table(ROWS)
            .map_err(database_error)
    }
}

fn apply(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    net: &NetEffect<'_>,
    removed: &mut RemovedRows,
) -> std::result::Result<(), StorageError> {
    for &(begin, end) in &net.clears {
        if end.len() == begin.len() + 1 && end.starts_with(begin) && end.ends_with(&[0]) {
            table.remove(begin)?;
            removed.note(begin);
        } else {
            table.retain_in(begin..end, |key, _| {
                removed.note(key);
                false
            })?;
        }
    }
    for &(key, value) in &net.sets {
        table.insert(key, value)?;
    }
    Ok(())
}

/// Ending of the file that says what is damaged.
const DAMAGE_SUFFIX: &str = ".lost";
/// Pause between two looks whether a commit has ended.
const COMMIT_LOOK: Duration = Duration::from_millis(10);

impl SsdEngine {
    /// Opens or makes the engine in `<prefix>.redb`, with `cache_bytes` of memory for pages and rows.
    pub fn open(prefix: &Path, create: bool, cache_bytes: usize) -> Boxed<'_, Result<Rc<Self>>> {
        Box::pin(async move {
            let path = with_suffix(prefix, ".redb");
            let exists = disk::exists(&path).await;
            let exists = exists.map_err(|error| disk_failure(&path, "look for", &error))?;
            if !exists && !create {
                return Err(Error::file_not_found);
            }
            let open_path = if exists {
                path.clone()
            } else {
                with_suffix(&path, ".new")
            };
            let options = disk::OpenOptions {
                create: !exists,
                truncate: !exists,
                exclusive: true,
                ..disk::OpenOptions::default()
            };
            let opened = disk::open(&open_path, options).await;
            let file = opened.map_err(|error| disk_failure(&open_path, "open", &error))?;
            let size = file.size().await;
            let size = size.map_err(|error| disk_failure(&open_path, "open", &error))?;
            if exists && size == 0 {
                // The file got its name after it was complete, so this is not a new engine.
                return Err(damage(&path, 0, Error::file_corrupt, "the file is empty"));
            }
            let rows_bytes = cache_bytes / ROWS_SHARE;
            let damage_file = with_suffix(prefix, DAMAGE_SUFFIX);
            let damaged = match exists {
                true => kept::read(&damage_file).await?,
                false => DamagedRanges::default(),
            };
            let engine = Rc::new_cyclic(|this| SsdEngine {
                path,
                damage_file,
                this: this.clone(),
                file,
                cache_bytes: cache_bytes - rows_bytes,
                tree: RefCell::new(None),
                rows: RefCell::new(None),
                row_cache: RefCell::new(RowCache::new(rows_bytes, plinth_runtime::random::u64())),
                failed: Cell::new(None),
                damaged: RefCell::new(damaged),
                is_unkept: Cell::new(false),
                own: RefCell::default(),
                committing: Cell::new(false),
                coldness: Coldness::default(),
            });
            engine.open_file(!exists, None).await?;
            engine.publish(&open_path).await?;
            engine.find_own_rows().await?;
            trace!("SsdEngineOpened", "file" => engine.path.display(), "bytes" => engine.bytes_used());
            Ok(engine)
        })
    }

    /// Opens the tree in the file and takes its last state for reading. `before` is the one that had the file.
    async fn open_file(&self, is_new: bool, before: Option<Arc<Tree>>) -> Result<()> {
        self.row_cache.borrow_mut().clear();
        let (file, cache_bytes) = (self.file.blocking(), self.cache_bytes);
        let mut removed = self.row_cache.borrow().removed_rows();
        let refused = match forgets_what_was_refused() {
            true => Vec::new(),
            false => self.damaged.borrow().blocks(),
        };
        let opened = self.file.offload(true, move || {
            let tree = open_tree(file, cache_bytes, before.as_deref(), &refused)?;
            if is_new {
                tree.commit(&WriteBatch::new().net_effect(), &mut removed)?;
            }
            let rows = tree.reader()?;
            Ok((tree, rows))
        });
        let (tree, rows) = opened
            .await
            .map_err(|error| self.failure("open", error, None, None))?;
        if tree.frames.is_full() {
            return Err(Error::disk_full);
        }
        *self.rows.borrow_mut() = Some(rows);
        if let Some(left) = self.tree.replace(Some(Arc::new(tree))) {
            left.frames.leave();
        }
        Ok(())
    }

    /// Opens the file again after a read or a commit met damage: the tree refuses everything from then on, and most of
    /// it may be intact.
    async fn open_again(&self) -> Result<()> {
        while self.committing.get() {
            plinth_runtime::sleep(COMMIT_LOOK).await;
        }
        let Some(error) = self.failed.get() else {
            return Ok(());
        };
        if !error.is_damage() {
            return Err(error);
        }
        *self.rows.borrow_mut() = None;
        let left = self.tree.borrow_mut().take();
        if let Some(left) = &left {
            left.frames.leave();
        }
        self.open_file(false, left).await?;
        self.keep_damage().await?;
        self.failed.set(None);
        probe!("ssd_engine_opens_again_after_damage");
        Ok(())
    }

    /// Gives a new engine's file its name, and makes the name durable. This is also done for an old file, because the
    /// process that named it may have died before the name was durable.
    async fn publish(&self, opened_as: &Path) -> Result<()> {
        let named = async {
            if opened_as != self.path {
                disk::rename(opened_as, &self.path).await?;
            }
            disk::sync_dir(parent_dir(&self.path)).await.map(drop)
        };
        named
            .await
            .map_err(|error| disk_failure(&self.path, "rename", &error))
    }

    fn check(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), Err)
    }

    /// The code of an error of the tree. Emits an event that names the place, once for each.
    fn failure(
        &self,
        doing: &str,
        error: redb::Error,
        frames: Option<&Frames<disk::BlockingFile>>,
        place: Option<Met>,
    ) -> Error {
        let met = match &error {
            redb::Error::Io(error) => DamagedBlock::of(error),
            _ => None,
        };
        if let Some(DamagedBlock { at, what }) = met {
            self.is_unkept.set(true);
            if self.damaged.borrow_mut().note(at, place) {
                damage(&self.path, at, Error::checksum_failed, what);
            }
            return Error::checksum_failed;
        }
        // Another read has met it, and this one comes too late.
        if frames.and_then(Frames::damaged_at).is_some() {
            return Error::checksum_failed;
        }
        match error {
            redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                trace_warn!("EngineFileDamaged", "file" => self.path.display(), "offset" => 0, "what" => error);
                Error::file_corrupt
            }
            redb::Error::Io(error) => disk_failure(&self.path, doing, &error),
            redb::Error::Corrupted(what) => damage(&self.path, 0, Error::file_corrupt, &what),
            error => {
                trace_warn!("EngineFailed", "file" => self.path.display(), "doing" => doing, "error" => error);
                Error::io_error
            }
        }
    }

    fn read_failure(&self, error: StorageError, place: Met) -> Error {
        let tree = self.tree.borrow().clone();
        let frames = tree.as_ref().map(|tree| &*tree.frames);
        let code = self.failure("read", error.into(), frames, Some(place));
        self.failed.set(Some(code));
        code
    }

    async fn commit_batch(&self, batch: WriteBatch) -> Result<Synced> {
        self.check()?;
        // Still set if the future of a commit was dropped: it is not known how far that commit got.
        assert!(
            !self.committing.replace(true),
            "a commit while another is in progress or was abandoned"
        );
        let result = self.write(batch).await;
        if let Err(code) = result
            && code != Error::disk_full
        {
            self.failed.set(Some(code));
        }
        self.committing.set(false);
        result
    }

    async fn write(&self, batch: WriteBatch) -> Result<Synced> {
        let tree = self
            .tree
            .borrow()
            .clone()
            .ok_or(Error::operation_cancelled)?;
        let shared = tree.clone();
        let mut removed = self.row_cache.borrow().removed_rows();
        let committed = self.file.offload(true, move || {
            let synced = as_commit(|| shared.commit(&batch.net_effect(), &mut removed))?;
            Ok((synced, shared.reader()?, batch, removed.finish()))
        });
        let committed = committed.await;
        if tree.frames.is_full() {
            // The tree's present state is not on disk. The last committed state is: open the file again from there.
            probe!("ssd engine: the disk is full");
            drop(committed);
            self.open_file(false, Some(tree)).await?;
            return Err(Error::disk_full);
        }
        let (synced, rows, batch, removed) =
            committed.map_err(|error| self.failure("commit", error, Some(&tree.frames), None))?;
        self.forget_made_anew(&batch);
        if let Some(own) = &mut *self.own.borrow_mut() {
            follow_own(own, &batch.net_effect());
        }
        self.show(rows, &batch, removed).await;
        Ok(synced.expect("a commit of the tree syncs"))
    }

    /// Damage is known no more where a commit has written all anew.
    fn forget_made_anew(&self, batch: &WriteBatch) {
        let mut damaged = self.damaged.borrow_mut();
        if !damaged.is_empty() {
            let clears = batch.net_effect().clears;
            let made_anew = |(begin, end): &(&[u8], &[u8])| damaged.made_anew(begin, end);
            clears.iter().for_each(made_anew);
        }
    }

    /// Shows readers the committed state. A row that the commit changes leaves the row cache before that and comes
    /// back after it, so that a large commit does not need one large turn of the loop.
    async fn show(&self, rows: Rows, batch: &WriteBatch, removed: Removed) {
        let mut pace = Pace::new();
        self.row_cache.borrow_mut().stop_keeping();
        let mut cached = Vec::new();
        for (first, ops) in portions(batch.len()).rev() {
            self.row_cache
                .borrow_mut()
                .drop_changed(batch, first, ops, &mut cached);
            pace.rest_if_over().await;
        }
        let removed = removed.hashes();
        for (first, hashes) in portions(removed.map_or(0, <[u64]>::len)) {
            let hashes = &removed.expect("there are some")[first..first + hashes];
            self.row_cache.borrow_mut().drop_removed(hashes);
            pace.rest_if_over().await;
        }
        if removed.is_none() {
            let dropped = self.row_cache.borrow_mut().take_all();
            offload(move || drop(dropped)).await;
            cached.clear();
        }
        *self.rows.borrow_mut() = Some(rows);
        self.row_cache.borrow_mut().keep_again();
        for (first, ops) in portions(cached.len()) {
            let changed = &cached[first..first + ops];
            let removed = removed.unwrap_or_default();
            self.row_cache
                .borrow_mut()
                .keep_changed(batch, changed, removed);
            pace.rest_if_over().await;
        }
    }

    /// Shows rows until `visit` returns false. With `warm_only` it also stops when it has waited for the disk, and
    /// then returns the last key shown.
    fn scan(
        &self,
        (begin, end): (&[u8], &[u8]),
        reverse: bool,
        warm_only: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<Bytes>> {
        self.check()?;
        if begin >= end {
            return Ok(None);
        }
        if let Some(own) = self.own.borrow().as_ref()
            && kept_twice(begin, end) == Some((begin, end))
        {
            show_own(own, (begin, end), reverse, visit);
            return Ok(None);
        }
        let rows = self.rows.borrow();
        let rows = rows.as_ref().ok_or(Error::operation_cancelled)?;
        let last = self.last_before_damage((begin, end), reverse)?;
        let cold_before = cold_reads_here();
        let ends_early = warm_only && buggify!();
        let met = |shown: Option<&[u8]>| Self::met((begin, end), reverse, shown);
        let mut range = rows
            .range(begin..end)
            .map_err(|error| self.read_failure(error, met(None)))?;
        let mut shown: Option<AccessGuard<'_, &[u8]>> = None;
        while let Some(row) = if reverse {
            range.next_back()
        } else {
            range.next()
        } {
            let (key, value) = row.map_err(|error| {
                let shown = shown.as_ref().map(AccessGuard::value);
                self.read_failure(error, met(shown))
            })?;
            if !visit(key.value(), value.value()) {
                break;
            }
            if warm_only && (ends_early || cold_reads_here() != cold_before) {
                return Ok(Some(Bytes::copy_from_slice(key.value())));
            }
            if last.as_ref().is_some_and(|last| last == key.value()) {
                probe!("ssd_engine_stops_before_known_damage");
                return Err(Error::checksum_failed);
            }
            shown = Some(key);
        }
        Ok(None)
    }

    /// The last row that a read of a range may ask for, if damage is known behind it. Fails if it begins with damage.
    fn last_before_damage(
        &self,
        (begin, end): (&[u8], &[u8]),
        reverse: bool,
    ) -> Result<Option<Bytes>> {
        let damaged = self.damaged.borrow();
        if damaged.is_empty() {
            return Ok(None); // in the hot path
        }
        let reach = match reverse {
            true => damaged.reach_back(begin, end),
            false => damaged.reach(begin, end),
        };
        match reach {
            Reach::All => Ok(None),
            Reach::Until(last) => Ok(last.map(Bytes::copy_from_slice)),
            Reach::Nothing => Err(Error::checksum_failed),
        }
    }

    /// The place that a read of a range does not get past, behind the last row that it has shown.
    fn met((begin, end): (&[u8], &[u8]), reverse: bool, last: Option<&[u8]>) -> Met {
        let shown = last.is_some();
        match (reverse, last) {
            (false, None) => Met::From {
                key: Bytes::copy_from_slice(begin),
                shown,
            },
            (false, Some(last)) => Met::From {
                key: key_after(last),
                shown,
            },
            (true, last) => Met::Before {
                key: Bytes::copy_from_slice(last.unwrap_or(end)),
                shown,
            },
        }
    }
}

/// The first place and the length of each portion of `len` items.
fn portions(len: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    let at_once = if buggify!() { 7 } else { ROWS_A_TURN };
    let firsts = (0..len).step_by(at_once);
    firsts.map(move |first| (first, at_once.min(len - first)))
}

impl KeyValueStore for SsdEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.check()?;
        let rows = self.rows.borrow();
        let rows = rows.as_ref().ok_or(Error::operation_cancelled)?;
        if let Some(value) = self.row_cache.borrow().get(key) {
            return Ok(Some(value));
        }
        if let Some(own) = self.own.borrow().as_ref()
            && is_kept_twice(key)
        {
            return Ok(own.get(key).cloned());
        }
        if self.damaged.borrow().has(key) {
            return Err(Error::checksum_failed);
        }
        match rows.get(key) {
            Ok(None) => Ok(None),
            Ok(Some(found)) => {
                let value = found.value();
                self.row_cache.borrow_mut().keep(key, value);
                Ok(Some(Bytes::copy_from_slice(value)))
            }
            Err(error) => Err(self.read_failure(error, Met::Key(Bytes::copy_from_slice(key)))),
        }
    }

    fn range(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.scan((begin, end), reverse, false, visit).map(|_| ())
    }

    fn range_while_warm(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<Bytes>> {
        self.scan((begin, end), reverse, true, visit)
    }

    fn is_cold(&self) -> bool {
        let tree = self.tree.borrow();
        let cold_reads = tree.as_ref().map_or(0, |tree| tree.frames.cold_reads());
        self.coldness.is_cold(cold_reads) || buggify!()
    }

    fn warm(&self, wanted: &Wanted<'_>) -> Option<LocalBoxFuture<'static, ()>> {
        if !self.is_cold() {
            return None;
        }
        let tree = self.tree.borrow().clone()?;
        let is_one_row = is_single_key(wanted.begin, wanted.end);
        if is_one_row && self.row_cache.borrow().get(wanted.begin).is_some() {
            return None;
        }
        let (begin, end) = (wanted.begin.to_vec(), wanted.end.to_vec());
        let (reverse, bytes) = (wanted.reverse, wanted.bytes);
        // The error comes again when the rows are really read.
        let file = self.file.clone();
        Some(Box::pin(async move {
            let touch = move || drop(tree.touch(&begin, &end, reverse, bytes));
            file.offload(false, touch).await;
        }))
    }

    fn commit(&self, batch: WriteBatch) -> LocalBoxFuture<'_, Result<Synced>> {
        Box::pin(self.commit_batch(batch))
    }

    fn open_again(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(SsdEngine::open_again(self))
    }

    fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    fn damage(&self) -> FileDamage {
        FileDamage {
            file: self.path.clone(),
            parts: self.damaged.borrow().parts(),
        }
    }

    fn bytes_used(&self) -> u64 {
        self.tree
            .borrow()
            .as_ref()
            .map_or(0, |tree| tree.frames.bytes_used())
    }

    fn kind(&self) -> EngineKind {
        EngineKind::Ssd
    }

    /// Closes the file in a state that can be opened without reading the log of free pages.
    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async move {
            *self.rows.borrow_mut() = None;
            let tree = self.tree.borrow_mut().take();
            self.file.offload(true, move || drop(tree)).await;
            Ok(())
        })
    }
}
