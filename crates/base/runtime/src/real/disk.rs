//! Files. Calls that may block run on the pool; a read of cached pages is answered in place.

use super::offload;
use crate::disk::kinds::{OpenOptions, Space};
use bytes::Bytes;
use rustix::fs::FlockOperation;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longer reads go to the pool at once: their copy would hold up the loop.
const INLINE_READ_BYTES_MAX: usize = 64 << 10;
const ZEROS_BYTES: usize = 1 << 20;
/// Most slices in one system call.
const SLICES_MAX: usize = 1024;
const LOCK_FILE: &str = "plinth.lock";

#[derive(Clone, Debug)]
pub(crate) struct File(Arc<std::fs::File>);

pub(crate) async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
    let path = path.to_owned();
    offload(move || {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.create)
            .truncate(options.truncate && !options.exclusive)
            .create_new(options.create_new)
            .mode(if options.private { 0o600 } else { 0o666 })
            .open(path)?;
        if options.exclusive {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            if options.truncate {
                file.set_len(0)?;
            }
        }
        Ok(File(Arc::new(file)))
    })
    .await
}

impl File {
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if len <= INLINE_READ_BYTES_MAX
            && let Some(bytes) = self.read_cached(offset, len)
        {
            return Ok(bytes);
        }
        let file = self.0.clone();
        offload(move || read_fully(&file, offset, len)).await
    }

    /// Reads the whole range if it is in the page cache; otherwise `None`. Never blocks.
    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let mut buffer = vec![0; len];
        let slices = &mut [IoSliceMut::new(&mut buffer)];
        match rustix::io::preadv2(&*self.0, slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == len => Some(buffer.into()),
            _ => None,
        }
    }

    pub async fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let file = self.0.clone();
        offload(move || file.write_all_at(&data, offset)).await
    }

    pub async fn write_vectored_at(&self, offset: u64, data: Vec<Bytes>) -> io::Result<()> {
        let file = self.0.clone();
        offload(move || write_vectored(&file, offset, &data)).await
    }

    pub async fn write_and_sync(&self, offset: u64, data: Vec<Bytes>) -> io::Result<()> {
        let file = self.0.clone();
        offload(move || {
            write_vectored(&file, offset, &data)?;
            file.sync_data()
        })
        .await
    }

    pub async fn sync(&self) -> io::Result<()> {
        let file = self.0.clone();
        offload(move || file.sync_data()).await
    }

    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        let file = self.0.clone();
        offload(move || file.set_len(len)).await
    }

    pub async fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        let file = self.0.clone();
        offload(move || allocate(&file, len)).await
    }

    pub fn blocking(&self) -> BlockingFile {
        BlockingFile {
            file: self.0.clone(),
            cold_reads: Arc::default(),
        }
    }
}

fn read_fully(file: &std::fs::File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    buffer.truncate(done);
    Ok(buffer.into())
}

fn write_vectored(file: &std::fs::File, mut offset: u64, data: &[Bytes]) -> io::Result<()> {
    if let [one] = data {
        return file.write_all_at(one, offset);
    }
    let mut slices: Vec<IoSlice<'_>> = data
        .iter()
        .filter(|b| !b.is_empty())
        .map(|b| IoSlice::new(b))
        .collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let count = rest.len().min(SLICES_MAX);
        match rustix::io::pwritev(file, &rest[..count], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                offset += n as u64;
                IoSlice::advance_slices(&mut rest, n);
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Zeros are written, not only reserved: a later overwrite then changes no metadata, and its sync is one write.
fn allocate(file: &std::fs::File, len: u64) -> io::Result<()> {
    let mut at = file.metadata()?.len();
    if at >= len {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), at, len - at) {
        // File systems without it still get the zeros below.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(e) => return Err(e.into()),
    }
    let zeros = vec![0; ZEROS_BYTES];
    while at < len {
        let n = (len - at).min(ZEROS_BYTES as u64);
        file.write_all_at(&zeros[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

#[derive(Clone, Debug)]
pub(crate) struct BlockingFile {
    file: Arc<std::fs::File>,
    /// Reads that were not wholly in the page cache.
    cold_reads: Arc<AtomicU64>,
}

impl BlockingFile {
    /// Reads the whole buffer if it is in the page cache; otherwise returns false. Never blocks.
    pub fn read_cached_at(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let slices = &mut [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&*self.file, slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == buffer.len() => return true,
            Ok(_) | Err(Errno::AGAIN) => drop(self.cold_reads.fetch_add(1, Ordering::Relaxed)),
            Err(_) => {} // a file system without this call; other errors recur in the blocking read
        }
        false
    }
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    pub fn cold_reads(&self) -> u64 {
        self.cold_reads.load(Ordering::Relaxed)
    }
}

/// A lock, held until dropped. The kernel releases it when the process dies.
pub(crate) struct DirLock(#[allow(dead_code)] std::fs::File);

pub(crate) async fn lock_dir(dir: &Path) -> io::Result<DirLock> {
    let path = dir.join(LOCK_FILE);
    offload(move || {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(DirLock(file))
    })
    .await
}

async fn on_pool<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.to_owned();
    offload(move || work(path)).await
}

pub(crate) async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let to = to.to_owned();
    on_pool(from, move |from| std::fs::rename(from, to)).await
}

pub(crate) async fn remove(path: &Path) -> io::Result<()> {
    on_pool(path, std::fs::remove_file).await
}

pub(crate) async fn sync_dir(dir: &Path) -> io::Result<()> {
    on_pool(dir, |dir| std::fs::File::open(dir)?.sync_all()).await
}

pub(crate) async fn create_dir_all(dir: &Path) -> io::Result<()> {
    on_pool(dir, std::fs::create_dir_all).await
}

pub(crate) async fn exists(path: &Path) -> io::Result<bool> {
    on_pool(path, |path| path.try_exists()).await
}

pub(crate) async fn mode(path: &Path) -> io::Result<u32> {
    use std::os::unix::fs::PermissionsExt;
    on_pool(path, |path| Ok(path.metadata()?.permissions().mode())).await
}

pub(crate) async fn space(dir: &Path) -> io::Result<Space> {
    let dir = dir.to_owned();
    offload(move || {
        let found = rustix::fs::statvfs(&dir)?;
        Ok(Space {
            total: found.f_blocks * found.f_frsize,
            free: found.f_bavail * found.f_frsize,
        })
    })
    .await
}

pub(crate) async fn forget_cached(path: &Path) -> io::Result<()> {
    on_pool(path, |path| {
        let file = std::fs::File::open(path)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    })
    .await
}

pub(crate) async fn list_dir(dir: &Path) -> io::Result<Vec<String>> {
    on_pool(dir, |dir| {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // Names that are not UTF-8 belong to others and are skipped.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    })
    .await
}
