//! Files.
//!
//! A write is visible to every reader when it has returned, and durable when a `sync` that began after that has
//! returned `Ok`. A new name, a rename or a removal is durable after [`sync_dir`] of its directory.
//! A sync that fails is never tried again: the data that it should have saved may be gone, so the caller ends
//! (pitfall 12). If the future of a write is dropped, the write may happen now, a little later, or not at all.
//!
//! Every operation is timed, and every failure recorded, in the [`Health`] of its directory.

mod health;
pub(crate) mod kinds;
mod synced;

pub use health::{Health, Trouble};
pub use kinds::{OpenOptions, Space};
pub use synced::Synced;

use crate::real::lane::Lane;
use crate::{Boxed, Duration, real, sim};
use bytes::Bytes;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Longest wait for an exclusive file.
const HELD_LIMIT: Duration = Duration::from_secs(20);
const HELD_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
enum AnyFile {
    Real(real::disk::File),
    Sim(sim::disk::File),
}

/// An open file; clones are the same file. It stays readable after its name was removed.
#[derive(Clone, Debug)]
pub struct File {
    file: AnyFile,
    health: Health,
    /// Created by the first work that writes.
    lane: Rc<OnceCell<Lane>>,
}

macro_rules! on_file {
    ($self:ident, $what:literal, $file:ident => $call:expr) => {
        match &$self.file {
            AnyFile::Real($file) => $self.health.watch($what, $call).await,
            AnyFile::Sim($file) => $self.health.watch($what, $call).await,
        }
    };
}

/// Runs an operation on a name, or in a directory.
macro_rules! on_disk {
    (in $directory:expr, $what:literal, $disk:ident => $call:expr) => {
        match sim::current() {
            Some(world) => {
                let $disk = sim::disk::Disk::of(&world);
                health($directory).watch($what, $call).await
            }
            None => {
                let $disk = RealDisk;
                health($directory).watch($what, $call).await
            }
        }
    };
    ($path:expr, $what:literal, $disk:ident => $call:expr) => {
        on_disk!(in parent($path), $what, $disk => $call)
    };
}

/// The health of every directory in which this process has used a file.
#[derive(Default)]
struct Healths(RefCell<BTreeMap<PathBuf, Health>>);

impl Healths {
    fn of(&self, directory: &Path) -> Health {
        if let Some(known) = self.0.borrow().get(directory) {
            return known.clone();
        }
        let health = Health::default();
        let mut all = self.0.borrow_mut();
        all.insert(directory.to_path_buf(), health.clone());
        health
    }
}

thread_local! {
    /// One for each thread, because a worker is a thread.
    static HEALTHS: Healths = Healths::default();
}

/// The health of the disk under `directory`, as observed by this process.
pub fn health(directory: &Path) -> Health {
    match sim::current() {
        Some(world) => world.local::<Healths>().of(directory),
        None => HEALTHS.with(|healths| healths.of(directory)),
    }
}

/// The directory that contains a name.
fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

pub fn open(path: &Path, options: OpenOptions) -> Boxed<'_, io::Result<File>> {
    Box::pin(async move {
        let health = health(parent(path));
        let give_up_at = crate::now() + HELD_LIMIT;
        loop {
            let opening = async {
                let opened = match sim::current() {
                    Some(world) => {
                        let opened = sim::disk::Disk::of(&world).open(path, options).await;
                        opened.map(AnyFile::Sim)
                    }
                    None => real::disk::open(path, options).await.map(AnyFile::Real),
                };
                match opened {
                    // The file is held; this is not a failure of the disk.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                    opened => opened.map(Some),
                }
            };
            if let Some(file) = health.watch("opening", opening).await? {
                let lane = Rc::default();
                return Ok(File { file, health, lane });
            }
            if crate::now() >= give_up_at {
                let held = format!("{} is held by somebody else", path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, held));
            }
            crate::probe!("file_is_still_held");
            crate::sleep(HELD_PAUSE).await;
        }
    })
}

impl File {
    /// Fewer than `len` bytes come back only at the end of the file.
    pub fn read_at(&self, offset: u64, len: usize) -> Boxed<'_, io::Result<Bytes>> {
        Box::pin(async move { on_file!(self, "read", f => f.read_at(offset, len)) })
    }

    pub fn write_at(&self, offset: u64, data: Bytes) -> Boxed<'_, io::Result<()>> {
        Box::pin(async move { on_file!(self, "write", f => f.write_at(offset, data)) })
    }

    /// Writes the slices one after the other, from `offset` on.
    pub fn write_vectored_at(&self, offset: u64, data: Vec<Bytes>) -> Boxed<'_, io::Result<()>> {
        Box::pin(async move { on_file!(self, "write", f => f.write_vectored_at(offset, data)) })
    }

    /// Write and sync in one call to the pool: the fastest durable append.
    pub fn write_and_sync(&self, offset: u64, data: Vec<Bytes>) -> Boxed<'_, io::Result<Synced>> {
        Box::pin(async move {
            Synced::by(on_file!(self, "write with a sync", f => f.write_and_sync(offset, data)))
        })
    }

    /// Makes every write that has returned durable, and the file's length with it.
    pub fn sync(&self) -> Boxed<'_, io::Result<Synced>> {
        Box::pin(async move { Synced::by(on_file!(self, "sync", f => f.sync())) })
    }

    /// Sets the length: cuts the end off, or appends zeros.
    pub fn truncate(&self, len: u64) -> Boxed<'_, io::Result<()>> {
        Box::pin(async move { on_file!(self, "truncation", f => f.truncate(len)) })
    }

    pub fn size(&self) -> Boxed<'_, io::Result<u64>> {
        Box::pin(async move { on_file!(self, "look at a file", f => f.size()) })
    }

    /// Makes the file at least `len` long with zeros that take up their space on the disk: an overwrite of
    /// them cannot fail for want of room, and its sync changes no metadata.
    pub fn allocate(&self, len: u64) -> Boxed<'_, io::Result<()>> {
        Box::pin(async move { on_file!(self, "allocation", f => f.allocate(len)) })
    }

    /// The same file, for code that runs inside `offload`.
    pub fn blocking(&self) -> BlockingFile {
        let file = match &self.file {
            AnyFile::Real(f) => AnyBlockingFile::Real(f.blocking()),
            AnyFile::Sim(f) => AnyBlockingFile::Sim(f.blocking()),
        };
        BlockingFile {
            file,
            health: self.health.clone(),
        }
    }

    /// [`offload`](crate::offload) for work on this file. Work that writes runs on a thread of the file's own, one
    /// piece after another. If a simulated disk hangs, the work waits here; on a real one, the calls of
    /// [`BlockingFile`] wait.
    pub async fn offload<T: Send + 'static>(
        &self,
        writes: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if let AnyFile::Sim(file) = &self.file {
            let waiting = async {
                file.wait_while_it_hangs(writes).await;
                Ok(())
            };
            let _: io::Result<()> = self.health.watch("commit", waiting).await;
        } else if writes {
            return self.lane.get_or_init(Lane::start).offload(work).await;
        }
        crate::offload(work).await
    }
}

#[derive(Clone, Debug)]
enum AnyBlockingFile {
    Real(real::disk::BlockingFile),
    Sim(sim::disk::BlockingFile),
}

/// A file whose calls block: for engines that run inside [`File::offload`].
#[derive(Clone, Debug)]
pub struct BlockingFile {
    file: AnyBlockingFile,
    health: Health,
}

macro_rules! on_blocking {
    ($self:ident, $what:literal, $file:ident => $call:expr) => {
        match &$self.file {
            AnyBlockingFile::Real($file) => $self.health.watch_blocking($what, || $call),
            AnyBlockingFile::Sim($file) => $self.health.watch_blocking($what, || $call),
        }
    };
}

#[allow(clippy::len_without_is_empty)] // a length that can fail is not a container's
impl BlockingFile {
    /// Fails with `UnexpectedEof` when the file ends before the buffer is full.
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if let AnyBlockingFile::Real(file) = &self.file
            && file.read_cached_at(offset, buffer)
        {
            return Ok(());
        }
        on_blocking!(self, "read", f => f.read_exact_at(offset, buffer))
    }

    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        on_blocking!(self, "write", f => f.write_all_at(offset, data))
    }

    pub fn sync(&self) -> io::Result<Synced> {
        Synced::by(on_blocking!(self, "sync", f => f.sync()))
    }

    pub fn set_len(&self, len: u64) -> io::Result<()> {
        on_blocking!(self, "truncation", f => f.set_len(len))
    }

    pub fn len(&self) -> io::Result<u64> {
        on_blocking!(self, "look at a file", f => f.len())
    }

    /// Reads through this handle and its clones that had to wait for the disk.
    pub fn cold_reads(&self) -> u64 {
        match &self.file {
            AnyBlockingFile::Real(f) => f.cold_reads(),
            AnyBlockingFile::Sim(f) => f.cold_reads(),
        }
    }
}

/// The real disk's functions as methods, so that [`on_disk`] can use one syntax for both backends.
struct RealDisk;

impl RealDisk {
    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        real::disk::rename(from, to).await
    }
    async fn remove(&self, path: &Path) -> io::Result<()> {
        real::disk::remove(path).await
    }
    async fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        real::disk::sync_dir(dir).await
    }
    async fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        real::disk::create_dir_all(dir).await
    }
    async fn exists(&self, path: &Path) -> io::Result<bool> {
        real::disk::exists(path).await
    }
    async fn mode(&self, path: &Path) -> io::Result<u32> {
        real::disk::mode(path).await
    }
    async fn list_dir(&self, dir: &Path) -> io::Result<Vec<String>> {
        real::disk::list_dir(dir).await
    }
    async fn space(&self, dir: &Path) -> io::Result<Space> {
        real::disk::space(dir).await
    }
    async fn forget_cached(&self, path: &Path) -> io::Result<()> {
        real::disk::forget_cached(path).await
    }
}

/// Renames a file. Atomically replaces `to` if it exists.
pub fn rename<'a>(from: &'a Path, to: &'a Path) -> Boxed<'a, io::Result<()>> {
    Box::pin(async move { on_disk!(to, "rename", disk => disk.rename(from, to)) })
}

pub fn remove(path: &Path) -> Boxed<'_, io::Result<()>> {
    Box::pin(async move { on_disk!(path, "removal", disk => disk.remove(path)) })
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> Boxed<'_, io::Result<Synced>> {
    Box::pin(async move { Synced::by(on_disk!(in dir, "sync", disk => disk.sync_dir(dir))) })
}

pub fn create_dir_all(dir: &Path) -> Boxed<'_, io::Result<()>> {
    Box::pin(
        async move { on_disk!(in dir, "making of a directory", disk => disk.create_dir_all(dir)) },
    )
}

/// Whether there is a file or directory. Who takes a disk that cannot be read for an empty one loses what is on it.
pub fn exists(path: &Path) -> Boxed<'_, io::Result<bool>> {
    Box::pin(async move { on_disk!(path, "look at a file", disk => disk.exists(path)) })
}

/// Who may read, write and execute a file: the bits of `chmod`. In a simulation only the owner may.
pub fn mode(path: &Path) -> Boxed<'_, io::Result<u32>> {
    Box::pin(async move { on_disk!(path, "look at a file", disk => disk.mode(path)) })
}

/// The names in a directory, sorted.
pub fn list_dir(dir: &Path) -> Boxed<'_, io::Result<Vec<String>>> {
    Box::pin(async move { on_disk!(in dir, "look at a directory", disk => disk.list_dir(dir)) })
}

pub fn space(dir: &Path) -> Boxed<'_, io::Result<Space>> {
    Box::pin(async move { on_disk!(in dir, "look at the space", disk => disk.space(dir)) })
}

/// Drops a file's pages from the system's cache, so that the file is read from the disk again. After a failed write
/// the two may differ: systems keep the data that they could not write, and treat it as written.
pub fn forget_cached(path: &Path) -> Boxed<'_, io::Result<()>> {
    Box::pin(async move { on_disk!(path, "look at a file", disk => disk.forget_cached(path)) })
}

/// Reads a whole file. For small files: only the file itself limits the size. The file need not be writable.
pub fn read_file(path: &Path) -> Boxed<'_, io::Result<Bytes>> {
    Box::pin(async move {
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let file = open(path, options).await?;
        let len = file.size().await?;
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        file.read_at(0, len).await
    })
}

/// Replaces a small file so that, after any failure, either the old or the new content is there in full.
pub fn write_file_durably(path: &Path, data: Bytes) -> Boxed<'_, io::Result<Synced>> {
    Box::pin(async move { write_file_durably_by(path, data, "tmp").await })
}

/// As [`write_file_durably`], with this ending for the temporary file. Processes that share a file need different
/// endings.
pub fn write_file_durably_by<'a>(
    path: &'a Path,
    data: Bytes,
    ending: &'a str,
) -> Boxed<'a, io::Result<Synced>> {
    Box::pin(async move { replace_durably(path, data, ending, false).await })
}

/// As [`write_file_durably_by`]. Only the owner may read and write the file.
pub fn write_private_durably<'a>(
    path: &'a Path,
    data: Bytes,
    ending: &'a str,
) -> Boxed<'a, io::Result<Synced>> {
    Box::pin(async move { replace_durably(path, data, ending, true).await })
}

async fn replace_durably(
    path: &Path,
    data: Bytes,
    ending: &str,
    private: bool,
) -> io::Result<Synced> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let mut temporary_name = name.to_owned();
    temporary_name.push(".");
    temporary_name.push(ending);
    let temporary: PathBuf = dir.join(temporary_name);
    let options = OpenOptions {
        create: true,
        truncate: true,
        private,
        ..OpenOptions::default()
    };
    let file = open(&temporary, options).await?;
    let replaced = async {
        file.write_and_sync(0, vec![data]).await?;
        rename(&temporary, path).await
    };
    if let Err(error) = replaced.await {
        let _ = remove(&temporary).await; // do not leave an unused temporary file behind
        return Err(error);
    }
    sync_dir(dir).await
}

enum AnyDirLock {
    Real(#[allow(dead_code)] real::disk::DirLock),
    Sim(#[allow(dead_code)] sim::disk::DirLock),
}

/// A lock that keeps other processes out of a directory until it is dropped or its process dies.
pub struct DirLock(#[allow(dead_code)] AnyDirLock);

/// Locks a directory. Fails with `WouldBlock` if another process holds it.
pub fn lock_dir(dir: &Path) -> Boxed<'_, io::Result<DirLock>> {
    Box::pin(async move {
        Ok(DirLock(match sim::current() {
            Some(world) => AnyDirLock::Sim(sim::disk::Disk::of(&world).lock_dir(dir).await?),
            None => AnyDirLock::Real(real::disk::lock_dir(dir).await?),
        }))
    })
}
