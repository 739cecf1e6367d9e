//! Files.
//!
//! A write is visible to every reader when it has returned, and durable when a `sync` that began after that
//! has returned `Ok`. A new name, a rename or a removal is durable after [`sync_dir`] of its directory.
//! A sync that fails is never tried again: what it should have saved may be gone, so the caller dies
//! (pitfall 12). If the future of a write is dropped, the write may happen, now or a little later, or not.

use crate::{real, sim};
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};

/// All false: open an existing file for reading and writing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// Creates the file if it does not exist.
    pub create: bool,
    /// Empties it.
    pub truncate: bool,
    /// Creates it, and fails if it exists.
    pub create_new: bool,
    /// Opens it for reading only: also where nothing may be written.
    pub read_only: bool,
}

#[derive(Clone, Debug)]
enum AnyFile {
    Real(real::disk::File),
    Sim(sim::disk::File),
}

/// An open file; clones are the same file. It stays readable after its name was removed.
#[derive(Clone, Debug)]
pub struct File(AnyFile);

macro_rules! on_file {
    ($self:ident, $file:ident => $call:expr) => {
        match &$self.0 {
            AnyFile::Real($file) => $call.await,
            AnyFile::Sim($file) => $call.await,
        }
    };
}

macro_rules! on_disk {
    ($disk:ident => $call:expr) => {
        match sim::current() {
            Some(world) => {
                let $disk = sim::disk::Disk::of(&world);
                $call.await
            }
            None => {
                let $disk = RealDisk;
                $call.await
            }
        }
    };
}

pub async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
    Ok(File(match sim::current() {
        Some(world) => AnyFile::Sim(sim::disk::Disk::of(&world).open(path, options).await?),
        None => AnyFile::Real(real::disk::open(path, options).await?),
    }))
}

impl File {
    /// Fewer than `len` bytes come back only at the end of the file.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        on_file!(self, f => f.read_at(offset, len))
    }

    pub async fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        on_file!(self, f => f.write_at(offset, data))
    }

    /// Writes the slices one after the other, from `offset` on.
    pub async fn write_vectored_at(&self, offset: u64, data: Vec<Bytes>) -> io::Result<()> {
        on_file!(self, f => f.write_vectored_at(offset, data))
    }

    /// Write and sync in one trip to the pool: the floor of a durable append.
    pub async fn write_and_sync(&self, offset: u64, data: Vec<Bytes>) -> io::Result<()> {
        on_file!(self, f => f.write_and_sync(offset, data))
    }

    /// Makes every write that has returned durable, and the file's length with it.
    pub async fn sync(&self) -> io::Result<()> {
        on_file!(self, f => f.sync())
    }

    /// Sets the length: cuts the end off, or appends zeros.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        on_file!(self, f => f.truncate(len))
    }

    pub async fn size(&self) -> io::Result<u64> {
        on_file!(self, f => f.size())
    }

    /// Makes the file at least `len` long with zeros that take up their space on the disk: an overwrite of
    /// them cannot fail for want of room, and its sync changes no metadata.
    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        on_file!(self, f => f.allocate(len))
    }

    /// The same file for code that runs inside `offload`.
    pub fn blocking(&self) -> BlockingFile {
        BlockingFile(match &self.0 {
            AnyFile::Real(f) => AnyBlockingFile::Real(f.blocking()),
            AnyFile::Sim(f) => AnyBlockingFile::Sim(f.blocking()),
        })
    }
}

#[derive(Clone, Debug)]
enum AnyBlockingFile {
    Real(real::disk::BlockingFile),
    Sim(sim::disk::BlockingFile),
}

/// A file whose calls block: for engines that run inside [`offload`](crate::offload).
#[derive(Clone, Debug)]
pub struct BlockingFile(AnyBlockingFile);

macro_rules! on_blocking {
    ($self:ident, $file:ident => $call:expr) => {
        match &$self.0 {
            AnyBlockingFile::Real($file) => $call,
            AnyBlockingFile::Sim($file) => $call,
        }
    };
}

#[allow(clippy::len_without_is_empty)] // a length that can fail is not a container's
impl BlockingFile {
    /// Fails with `UnexpectedEof` when the file ends before the buffer is full.
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        on_blocking!(self, f => f.read_exact_at(offset, buffer))
    }

    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        on_blocking!(self, f => f.write_all_at(offset, data))
    }

    pub fn sync(&self) -> io::Result<()> {
        on_blocking!(self, f => f.sync())
    }

    pub fn set_len(&self, len: u64) -> io::Result<()> {
        on_blocking!(self, f => f.set_len(len))
    }

    pub fn len(&self) -> io::Result<u64> {
        on_blocking!(self, f => f.len())
    }

    /// Reads through this handle and its clones that had to wait for the disk.
    pub fn cold_reads(&self) -> u64 {
        on_blocking!(self, f => f.cold_reads())
    }
}

/// The real disk's functions as methods, so that [`on_disk`] can name both backends alike.
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
    async fn exists(&self, path: &Path) -> bool {
        real::disk::exists(path).await
    }
    async fn list_dir(&self, dir: &Path) -> io::Result<Vec<String>> {
        real::disk::list_dir(dir).await
    }
    async fn space(&self, dir: &Path) -> io::Result<Space> {
        real::disk::space(dir).await
    }
}

/// Replaces `to` if it exists, in one step.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    on_disk!(disk => disk.rename(from, to))
}

pub async fn remove(path: &Path) -> io::Result<()> {
    on_disk!(disk => disk.remove(path))
}

/// Makes the names in a directory durable.
pub async fn sync_dir(dir: &Path) -> io::Result<()> {
    on_disk!(disk => disk.sync_dir(dir))
}

pub async fn create_dir_all(dir: &Path) -> io::Result<()> {
    on_disk!(disk => disk.create_dir_all(dir))
}

pub async fn exists(path: &Path) -> bool {
    on_disk!(disk => disk.exists(path))
}

/// The names in a directory, sorted.
pub async fn list_dir(dir: &Path) -> io::Result<Vec<String>> {
    on_disk!(disk => disk.list_dir(dir))
}

/// Bytes of the disk that holds a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub total: u64,
    /// What is left for this process.
    pub free: u64,
}

pub async fn space(dir: &Path) -> io::Result<Space> {
    on_disk!(disk => disk.space(dir))
}

/// The whole file. For small ones: nothing bounds it but the file itself. It need not be writable.
pub async fn read_file(path: &Path) -> io::Result<Bytes> {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let file = open(path, options).await?;
    let len = file.size().await?;
    let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    file.read_at(0, len).await
}

/// Replaces a small file so that, whatever happens, the old or the new content is there, whole.
pub async fn write_file_durably(path: &Path, data: Bytes) -> io::Result<()> {
    write_file_durably_by(path, data, "tmp").await
}

/// The same by way of a neighbour with this ending: who shares the file with other processes needs one of its own.
pub async fn write_file_durably_by(path: &Path, data: Bytes, ending: &str) -> io::Result<()> {
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
        ..OpenOptions::default()
    };
    let file = open(&temporary, options).await?;
    let replaced = async {
        file.write_and_sync(0, vec![data]).await?;
        rename(&temporary, path).await
    };
    if let Err(error) = replaced.await {
        let _ = remove(&temporary).await; // what cannot take its place shall not lie about
        return Err(error);
    }
    sync_dir(dir).await
}

enum AnyDirLock {
    Real(#[allow(dead_code)] real::disk::DirLock),
    Sim(#[allow(dead_code)] sim::disk::DirLock),
}

/// Keeps other processes out of a directory until it is dropped or its process dies.
pub struct DirLock(#[allow(dead_code)] AnyDirLock);

/// Fails with `WouldBlock` when another holds the directory.
pub async fn lock_dir(dir: &Path) -> io::Result<DirLock> {
    Ok(DirLock(match sim::current() {
        Some(world) => AnyDirLock::Sim(sim::disk::Disk::of(&world).lock_dir(dir).await?),
        None => AnyDirLock::Real(real::disk::lock_dir(dir).await?),
    }))
}
