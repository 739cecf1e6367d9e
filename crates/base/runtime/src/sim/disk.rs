//! The simulated disk of one machine: names, files, delays and faults.
//!
//! Names are journaled apart from content: a file that was synced can still be lost if its directory was not. A write
//! happens at once or at the end of its delay, as with a pool; if its caller is dropped in the meantime, it still
//! happens. If its process is killed, it may happen or not.

use super::executor::{Event, Kind};
use super::files::FilesCopy;
use super::ids::ProcessId;
use super::image::{FileState, Hold, Stray};
use super::sickness::{DiskFaults, Operation};
use super::{World, current};
use crate::disk::kinds::{OpenOptions, Space};
use crate::random;
use crate::sync::Notify;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

type Inode = Arc<Mutex<FileState>>;

#[derive(Default)]
pub(super) struct DiskState {
    names: RefCell<Names>,
    pub faults: Arc<DiskFaults>,
    /// Notified when the sickness has changed.
    pub changed: Notify,
    /// Writes that were requested and have not happened yet.
    late_writes: RefCell<Vec<Rc<LateWrite>>>,
    /// Locked directories, with the number of each lock.
    locks: RefCell<BTreeMap<PathBuf, u64>>,
    locks_given: Cell<u64>,
}

#[derive(Default)]
struct Names {
    current: BTreeMap<PathBuf, Inode>,
    durable: BTreeMap<PathBuf, Inode>,
    unsynced: Vec<NameChange>,
    /// Directories are durable when they are created. No protocol depends on the loss of one.
    directories: BTreeSet<PathBuf>,
    next_id: u64,
}

#[derive(Clone)]
enum NameChange {
    Link(PathBuf, Inode),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, Inode),
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<PathBuf, Inode>) {
        match self {
            NameChange::Link(path, inode) => {
                names.insert(path, inode);
            }
            NameChange::Unlink(path) => {
                names.remove(&path);
            }
            NameChange::Rename(from, to, inode) => {
                // An older change of `from` may have been lost; the file itself is still renamed.
                if names
                    .get(&from)
                    .is_some_and(|there| Arc::ptr_eq(there, &inode))
                {
                    names.remove(&from);
                }
                names.insert(to, inode);
            }
        }
    }

    fn any_name(&self, is_it: impl Fn(&Path) -> bool) -> bool {
        match self {
            NameChange::Link(path, _) | NameChange::Unlink(path) => is_it(path),
            NameChange::Rename(from, to, _) => is_it(from) || is_it(to),
        }
    }

    fn names(&self, file: &Path) -> bool {
        self.any_name(|path| path == file)
    }

    fn touches(&self, dir: &Path) -> bool {
        self.any_name(|path| path.parent() == Some(dir))
    }
}

impl Names {
    fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.current);
        self.unsynced.push(change);
    }

    fn has_directory(&self, dir: &Path) -> bool {
        dir.as_os_str().is_empty()
            || dir == Path::new("/")
            || dir == Path::new(".")
            || self.directories.contains(dir)
    }

    fn open(&mut self, path: &Path, options: OpenOptions) -> io::Result<Inode> {
        if let Some(inode) = self.current.get(path) {
            if options.create_new {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if options.truncate && lock(inode).len() > 0 {
                lock(inode).set_len(0, false)?;
            }
            return Ok(inode.clone());
        }
        let has_parent = path.parent().is_some_and(|dir| self.has_directory(dir));
        if !(options.create || options.create_new) || !has_parent {
            return Err(not_found(path));
        }
        let inode = Arc::new(Mutex::new(FileState::new(self.next_id)));
        self.next_id += 1;
        self.change(NameChange::Link(path.to_owned(), inode.clone()));
        Ok(inode)
    }

    fn power_cut(&mut self) {
        let unsynced = std::mem::take(&mut self.unsynced);
        // Half of the disks journal in order and lose a suffix; the others lose any changes.
        let kept = random::chance(0.5).then(|| random::below(unsynced.len() as u64 + 1) as usize);
        for (i, change) in unsynced.into_iter().enumerate() {
            let is_kept = kept.map_or_else(|| random::chance(0.5), |kept| i < kept);
            if is_kept {
                change.apply(&mut self.durable);
            }
        }
        self.current = self.durable.clone();
        for inode in self.durable.values() {
            lock(inode).power_cut();
        }
    }
}

fn lock(inode: &Inode) -> MutexGuard<'_, FileState> {
    inode.lock().expect("no panic while it is held")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("no such file: {}", path.display()),
    )
}

fn process_is_dead() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the process that opened this file is dead",
    )
}

/// A write that happens later, even if its caller has stopped waiting.
struct LateWrite {
    process: ProcessId,
    handle: Handle,
    offset: u64,
    data: Cell<Option<Vec<Bytes>>>,
    result: Cell<Option<io::Result<()>>>,
}

impl LateWrite {
    fn happen(&self) {
        if let Some(data) = self.data.take() {
            self.result.set(Some(self.handle.write(self.offset, &data)));
        }
    }
}

impl DiskState {
    /// Ends the pending writes of a killed process: each happens or not, at random.
    pub fn end_writes_of(&self, process: ProcessId) {
        let all = std::mem::take(&mut *self.late_writes.borrow_mut());
        let (mine, others) = all.into_iter().partition(|w| w.process == process);
        *self.late_writes.borrow_mut() = others;
        let mine: Vec<Rc<LateWrite>> = mine;
        for write in mine {
            if random::chance(0.5)
                && let Some(data) = write.data.take()
            {
                let _ = write.handle.write_unchecked(write.offset, &data);
            }
            write.data.set(None);
        }
    }

    pub fn power_cut(&self) {
        self.names.borrow_mut().power_cut();
        self.locks.borrow_mut().clear();
    }

    /// The paths of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.names.borrow().current.keys().cloned().collect()
    }

    /// Removes a file for good; false if it does not exist.
    pub fn lose(&self, path: &Path) -> bool {
        let names = &mut *self.names.borrow_mut();
        names.unsynced.retain(|change| !change.names(path));
        names.durable.remove(path);
        names.current.remove(path).is_some()
    }

    /// Copies every file in its current state; the copies are durable.
    pub fn copy_to(&self, other: &DiskState) {
        let directories = self.names.borrow().directories.clone();
        other.names.borrow_mut().directories.extend(directories);
        other.put_back(&self.copy_of(|_| true));
    }

    /// The current state of some files.
    pub fn copy_of(&self, is_meant: impl Fn(&Path) -> bool) -> FilesCopy {
        let names = self.names.borrow();
        let meant = names.current.iter().filter(|(path, _)| is_meant(path));
        let copied = meant.map(|(path, inode)| {
            let original = lock(inode);
            (path.clone(), original.read(0, original.len() as usize))
        });
        FilesCopy(copied.collect())
    }

    /// Writes these files, durably. Those that are there under such a name go.
    pub fn put_back(&self, copy: &FilesCopy) {
        let to = &mut *self.names.borrow_mut();
        for (path, bytes) in &copy.0 {
            to.next_id += 1;
            let mut copy = FileState::new(to.next_id);
            let bytes = bytes.clone();
            copy.write(0, bytes.into()).expect("it was written before");
            copy.mark_synced(copy.changes());
            let copy: Inode = Arc::new(Mutex::new(copy));
            to.unsynced.retain(|change| !change.names(path));
            to.current.insert(path.clone(), copy.clone());
            to.durable.insert(path.clone(), copy);
        }
    }

    /// Changes the bytes of a file, durably; false if it does not exist.
    pub fn change(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut copy = self.copy_of(|other| other == path);
        let Some((_, bytes)) = copy.0.first_mut() else {
            return false;
        };
        change(bytes);
        self.put_back(&copy);
        true
    }

    /// The next write to a file is lost, or lands somewhere in the file `into`; false if a file does not exist.
    pub fn lead_astray(&self, path: &Path, into: Option<&Path>) -> bool {
        let names = self.names.borrow();
        let Some(inode) = names.current.get(path) else {
            return false;
        };
        let stray = match into.map(|into| names.current.get(into)) {
            None => Stray::Nowhere,
            Some(None) => return false,
            Some(Some(into)) if Arc::ptr_eq(into, inode) => Stray::Here,
            Some(Some(into)) => Stray::Into(into.clone()),
        };
        lock(inode).stray = Some(stray);
        true
    }

    /// Cancels stray writes that have not happened yet.
    pub fn end_strays(&self) {
        let names = self.names.borrow();
        names
            .current
            .values()
            .for_each(|inode| lock(inode).stray = None);
    }

    /// Flips a bit of a file, somewhere in the range; false if there is nothing to flip.
    pub fn flip_bit(&self, path: &Path, within: Range<u64>) -> bool {
        let Some(inode) = self.names.borrow().current.get(path).cloned() else {
            return false;
        };
        let mut file = lock(&inode);
        let range = within.start..within.end.min(file.len());
        if range.is_empty() {
            return false;
        }
        file.flip_bit(random::range(range), random::below(8) as u32);
        true
    }

    /// Where these bytes stand in a file.
    pub fn places_of(&self, path: &Path, wanted: &[u8]) -> Vec<u64> {
        let Some(inode) = self.names.borrow().current.get(path).cloned() else {
            return Vec::new();
        };
        let file = lock(&inode);
        let content = file.read(0, file.len() as usize);
        let places = content.windows(wanted.len()).zip(0..);
        let places = places.filter(|(bytes, _)| *bytes == wanted);
        places.map(|(_, at)| at).collect()
    }
}

/// A file opened by one life of a process: the common part of both kinds of file handles.
#[derive(Clone)]
struct Handle {
    inode: Inode,
    /// The path under which the file was opened.
    path: Arc<Path>,
    faults: Arc<DiskFaults>,
    life: Arc<AtomicBool>,
    /// Set if the handle is exclusive.
    _hold: Option<Arc<Hold>>,
}

impl Handle {
    /// Fails if the process is dead, and at random if the disk is sick.
    fn check(&self, operation: Operation, offset: u64, len: usize) -> io::Result<()> {
        if !self.life.load(Ordering::Relaxed) {
            return Err(process_is_dead());
        }
        if let Some(world) = current() {
            let id = lock(&self.inode).id;
            world.executor.record(
                Kind::Disk,
                id << 8 | operation as u64,
                offset ^ ((len as u64) << 40),
            );
        }
        self.faults.strike(operation)
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.check(Operation::Read, offset, len)?;
        Ok(lock(&self.inode).read(offset, len))
    }

    fn write(&self, offset: u64, data: &[Bytes]) -> io::Result<()> {
        self.check(Operation::Write, offset, data.iter().map(Bytes::len).sum())?;
        self.write_unchecked(offset, data)
    }

    fn write_unchecked(&self, mut offset: u64, data: &[Bytes]) -> io::Result<()> {
        let stray = lock(&self.inode).stray.take();
        if let Some(stray) = stray {
            return self.write_astray(offset, data, &stray);
        }
        let mut file = lock(&self.inode);
        let is_full = self.faults.is_full.load(Ordering::Relaxed);
        for slice in data {
            if is_full && !file.has_space(offset, slice.len()) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.write(offset, slice.clone())?;
            offset += slice.len() as u64;
        }
        Ok(())
    }

    /// The content at the offset stays, and the file gets the length that the write would give it.
    fn write_astray(&self, offset: u64, data: &[Bytes], stray: &Stray) -> io::Result<()> {
        let end = offset + data.iter().map(|slice| slice.len() as u64).sum::<u64>();
        let mut file = lock(&self.inode);
        if file.len() < end {
            file.set_len(end, false)?;
        }
        match stray {
            Stray::Nowhere => {
                crate::probe!("disk_loses_a_write");
                Ok(())
            }
            Stray::Here => {
                crate::probe!("disk_misdirects_a_write");
                file.write_anywhere(data)
            }
            Stray::Into(other) => {
                crate::probe!("disk_misdirects_a_write");
                drop(file);
                lock(other).write_anywhere(data)
            }
        }
    }

    fn sync(&self, changes: u64) -> io::Result<()> {
        self.check(Operation::Sync, 0, 0)?;
        let mut file = lock(&self.inode);
        if let Some(lie) = self.faults.lie_about(&self.path) {
            crate::probe!("disk_sync_lies");
            file.lie(lie.in_order);
            return Ok(());
        }
        // File systems with delayed allocation find out here that there is no space.
        if self.faults.is_full.load(Ordering::Relaxed) && file.has_grown() && random::chance(0.3) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.mark_synced(changes);
        Ok(())
    }

    fn set_len(&self, len: u64, allocates: bool) -> io::Result<()> {
        self.check(Operation::Write, len, 0)?;
        let is_full = self.faults.is_full.load(Ordering::Relaxed);
        let mut file = lock(&self.inode);
        if allocates && is_full && len > file.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if allocates && len <= file.len() {
            return Ok(());
        }
        file.set_len(len, allocates)
    }
}

/// The disk of the running process's machine.
pub(crate) struct Disk {
    world: Rc<World>,
    state: Rc<DiskState>,
    process: ProcessId,
}

impl World {
    fn disk_delay_ns(&self, operation: Operation, faults: &DiskFaults) -> u64 {
        let config = self.config.borrow();
        let range = match operation {
            Operation::Read => &config.disk_read_us,
            Operation::Write => &config.disk_write_us,
            Operation::Sync => &config.disk_sync_us,
        };
        let mut us = random::range(range.start..range.end.max(range.start + 1));
        if random::chance(config.disk_tail_probability) {
            us += random::below(config.disk_tail_us_max + 1);
        }
        // Long enough for a power cut to happen in between.
        if operation == Operation::Sync && crate::buggify!(0.3) {
            us += random::below(200_000);
        }
        1000 * us * u64::from(faults.slowness.load(Ordering::Relaxed))
    }
}

impl Disk {
    pub fn of(world: &Rc<World>) -> Disk {
        let process = world.current.get();
        Disk {
            world: world.clone(),
            state: world.disk_of(world.machine_of(process)),
            process,
        }
    }

    async fn delay(&self, operation: Operation) -> io::Result<()> {
        let life = self.world.life_of(self.process);
        let faults = &self.state.faults;
        let ns = self.world.disk_delay_ns(operation, faults);
        self.world.sleep_ns(ns).await;
        let hangs = faults.wait_while_it_hangs(operation, &self.state.changed);
        hangs.await;
        if !life.load(Ordering::Relaxed) {
            return Err(process_is_dead());
        }
        self.world
            .executor
            .record(Kind::Disk, operation as u64, u64::from(self.process.0));
        faults.strike(operation)
    }

    pub async fn open(&self, path: &Path, options: OpenOptions) -> io::Result<File> {
        self.delay(match options.read_only {
            true => Operation::Read,
            false => Operation::Write,
        })
        .await?;
        let life = self.world.life_of(self.process);
        let mut names = self.state.names.borrow_mut();
        let existing = names.current.get(path);
        if options.exclusive && existing.is_some_and(|inode| lock(inode).is_held()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let inode = names.open(path, options)?;
        let hold = options.exclusive.then(|| Arc::new(Hold(life.clone())));
        if let Some(hold) = &hold {
            lock(&inode).held_by = Arc::downgrade(hold);
        }
        let handle = Handle {
            inode,
            path: path.into(),
            faults: self.state.faults.clone(),
            life,
            _hold: hold,
        };
        Ok(File(Rc::new(OpenFile {
            handle,
            disk: self.state.clone(),
            process: self.process,
        })))
    }

    pub async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.delay(Operation::Write).await?;
        let mut names = self.state.names.borrow_mut();
        let inode = names
            .current
            .get(from)
            .cloned()
            .ok_or_else(|| not_found(from))?;
        names.change(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    pub async fn remove(&self, path: &Path) -> io::Result<()> {
        self.delay(Operation::Write).await?;
        let mut names = self.state.names.borrow_mut();
        if !names.current.contains_key(path) {
            return Err(not_found(path));
        }
        names.change(NameChange::Unlink(path.to_owned()));
        Ok(())
    }

    /// Makes the changes of names before the call durable.
    pub async fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let before = self.state.names.borrow().unsynced.len();
        self.delay(Operation::Sync).await?;
        let names = &mut *self.state.names.borrow_mut();
        let unsynced = std::mem::take(&mut names.unsynced);
        for (i, change) in unsynced.into_iter().enumerate() {
            let is_lie = change.any_name(|name| self.state.faults.lie_about(name).is_some());
            if i < before && change.touches(dir) && !is_lie {
                change.apply(&mut names.durable);
            } else {
                names.unsynced.push(change);
            }
        }
        Ok(())
    }

    pub async fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.delay(Operation::Write).await?;
        let mut names = self.state.names.borrow_mut();
        names
            .directories
            .extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    pub async fn exists(&self, path: &Path) -> io::Result<bool> {
        self.delay(Operation::Read).await?;
        let names = self.state.names.borrow();
        Ok(names.current.contains_key(path) || names.has_directory(path))
    }

    pub async fn mode(&self, path: &Path) -> io::Result<u32> {
        match self.exists(path).await? {
            true => Ok(0o100_600),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub async fn list_dir(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.delay(Operation::Read).await?;
        let names = self.state.names.borrow();
        if !names.has_directory(dir) {
            return Err(not_found(dir));
        }
        let all = names.current.keys().chain(&names.directories);
        let here = all.filter(|path| path.parent() == Some(dir));
        let mut list: Vec<String> = here
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
        list.sort_unstable();
        Ok(list)
    }

    /// A simulated disk has no cache to drop.
    pub async fn forget_cached(&self, path: &Path) -> io::Result<()> {
        self.delay(Operation::Read).await?;
        let is_there = self.state.names.borrow().current.contains_key(path);
        is_there.then_some(()).ok_or_else(|| not_found(path))
    }

    /// A disk has a terabyte, all of it free until it is full.
    pub async fn space(&self, dir: &Path) -> io::Result<Space> {
        if !self.state.names.borrow().has_directory(dir) {
            return Err(not_found(dir));
        }
        let total = 1 << 40;
        let is_full = self.state.faults.is_full.load(Ordering::Relaxed);
        let free = if is_full { 0 } else { total };
        Ok(Space { total, free })
    }

    pub async fn lock_dir(&self, dir: &Path) -> io::Result<DirLock> {
        self.delay(Operation::Read).await?;
        if !self.state.names.borrow().has_directory(dir) {
            return Err(not_found(dir));
        }
        let mut locks = self.state.locks.borrow_mut();
        if locks.contains_key(dir) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let number = self.state.locks_given.get();
        self.state.locks_given.set(number + 1);
        locks.insert(dir.to_owned(), number);
        Ok(DirLock {
            disk: self.state.clone(),
            dir: dir.to_owned(),
            number,
        })
    }
}

pub(crate) struct DirLock {
    disk: Rc<DiskState>,
    dir: PathBuf,
    number: u64,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        let mut locks = self.disk.locks.borrow_mut();
        // After a power cut the lock may belong to another process.
        if locks.get(&self.dir) == Some(&self.number) {
            locks.remove(&self.dir);
        }
    }
}

struct OpenFile {
    handle: Handle,
    disk: Rc<DiskState>,
    process: ProcessId,
}

#[derive(Clone)]
pub(crate) struct File(Rc<OpenFile>);

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "simulated file {}", lock(&self.0.handle.inode).id)
    }
}

impl File {
    fn world(&self) -> io::Result<Rc<World>> {
        current().ok_or_else(|| io::Error::other("a simulated file is used outside its simulation"))
    }

    async fn delay(&self, operation: Operation) -> io::Result<()> {
        let world = self.world()?;
        let ns = world.disk_delay_ns(operation, &self.0.disk.faults);
        world.sleep_ns(ns).await;
        self.hang(operation).await;
        Ok(())
    }

    async fn hang(&self, operation: Operation) {
        let disk = &self.0.disk;
        let hangs = disk.faults.wait_while_it_hangs(operation, &disk.changed);
        hangs.await;
    }

    /// Waits while the disk hangs: for work on a pool, which may also write and sync.
    pub async fn wait_while_it_hangs(&self, writes: bool) {
        let operation = match writes {
            true => Operation::Sync,
            false => Operation::Read,
        };
        self.hang(operation).await;
    }

    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.delay(Operation::Read).await?;
        Ok(self.0.handle.read(offset, len)?.into())
    }

    pub async fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        self.write_vectored_at(offset, vec![data]).await
    }

    pub async fn write_vectored_at(&self, offset: u64, data: Vec<Bytes>) -> io::Result<()> {
        self.hang(Operation::Write).await;
        if random::chance(0.5) {
            self.0.handle.write(offset, &data)?;
            return self.delay(Operation::Write).await;
        }
        let world = self.world()?;
        let write = Rc::new(LateWrite {
            process: self.0.process,
            handle: self.0.handle.clone(),
            offset,
            data: Cell::new(Some(data)),
            result: Cell::new(None),
        });
        let at = world.executor.now() + world.disk_delay_ns(Operation::Write, &self.0.disk.faults);
        self.0.disk.late_writes.borrow_mut().push(write.clone());
        let (disk, late) = (self.0.disk.clone(), write.clone());
        let happen = move |_: &Rc<World>| {
            late.happen();
            disk.late_writes
                .borrow_mut()
                .retain(|w| !Rc::ptr_eq(w, &late));
        };
        world.executor.schedule(at, Event::Call(Box::new(happen)));
        // The same time, but later in the queue: the write has happened when this ends.
        world.sleep_until_ns(at).await;
        write
            .result
            .take()
            .unwrap_or_else(|| Err(process_is_dead()))
    }

    pub async fn write_and_sync(&self, offset: u64, data: Vec<Bytes>) -> io::Result<()> {
        self.write_vectored_at(offset, data).await?;
        self.sync().await
    }

    pub async fn sync(&self) -> io::Result<()> {
        // The sync covers only changes before the call.
        let changes = lock(&self.0.handle.inode).changes();
        self.delay(Operation::Sync).await?;
        self.0.handle.sync(changes)
    }

    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        self.delay(Operation::Write).await?;
        self.0.handle.set_len(len, false)
    }

    pub async fn size(&self) -> io::Result<u64> {
        self.0.handle.check(Operation::Read, 0, 0)?;
        Ok(lock(&self.0.handle.inode).len())
    }

    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        self.delay(Operation::Write).await?;
        self.0.handle.set_len(len, true)
    }

    pub fn blocking(&self) -> BlockingFile {
        BlockingFile(self.0.handle.clone())
    }
}

/// A file whose calls take no time: the caller runs inside `offload`, which adds the delay.
#[derive(Clone)]
pub(crate) struct BlockingFile(Handle);

impl std::fmt::Debug for BlockingFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "simulated file {}", lock(&self.0.inode).id)
    }
}

impl BlockingFile {
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.check(Operation::Read, offset, buffer.len())?;
        lock(&self.0.inode).read_exact(offset, buffer)
    }

    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, &[Bytes::copy_from_slice(data)])
    }

    pub fn sync(&self) -> io::Result<()> {
        let changes = lock(&self.0.inode).changes();
        self.0.sync(changes)
    }

    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len, false)
    }

    pub fn len(&self) -> io::Result<u64> {
        self.0.check(Operation::Read, 0, 0)?;
        Ok(lock(&self.0.inode).len())
    }

    /// Reads take no time here.
    pub fn cold_reads(&self) -> u64 {
        0
    }
}
