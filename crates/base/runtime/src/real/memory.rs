//! Files that are mapped. The only unsafe code of the runtime.

use super::offload;
use crate::memory::{owned_already, wrong_size};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// How often an owner tries to lock, and the pause in between. Who asks for the owner holds the lock for microseconds.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// A mapping of a whole file, shared with other processes.
pub(crate) struct Shared {
    first: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the pointer is to memory of no thread, which lives until the drop, and is only read and written as atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Held by the owner. The kernel releases it when the process dies.
pub(crate) struct Lock(#[allow(dead_code)] File);

impl Shared {
    fn map(file: &File, words: usize) -> io::Result<Shared> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so no other memory of this process is touched.
        let place = unsafe {
            let (hint, bytes) = (std::ptr::null_mut(), words * 8);
            rustix::mm::mmap(hint, bytes, protection, MapFlags::SHARED, file, 0)?
        };
        let first = NonNull::new(place.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Shared { first, words })
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping begins at a page, so it is aligned, has this many words, and lives as long as `self`.
        // Any bits are an `AtomicU64`. Other processes change the words at any time, which atomics allow.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this is what `map` has mapped, and no reference to it outlives `self`. It cannot fail so.
        let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.words * 8) };
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).open(path)
}

/// Beside the memory: its lock, so that it exists before the memory does.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).mode(0o600);
    let file = options.open(lock_path(path))?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // Perhaps somebody only asks whether it is owned.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(owned_already(path))
}

/// Makes a file of zeros under another name, and gives it its name when it is complete.
fn make(path: &Path, words: usize) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let unfinished = PathBuf::from(name);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.mode(0o600).open(&unfinished)?;
    file.set_len(words as u64 * 8)?;
    std::fs::rename(&unfinished, path)?;
    Ok(file)
}

pub(crate) async fn own(path: &Path, words: usize) -> io::Result<(Shared, bool, Lock)> {
    let path = path.to_owned();
    offload(move || {
        let lock = lock(&path)?;
        let (file, is_new) = match open(&path) {
            Ok(file) => (file, false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (make(&path, words)?, true),
            Err(error) => return Err(error),
        };
        let bytes = file.metadata()?.len();
        if bytes != words as u64 * 8 {
            return Err(wrong_size(&path, bytes, words));
        }
        Ok((Shared::map(&file, words)?, is_new, Lock(lock)))
    })
    .await
}

pub(crate) async fn attach(path: &Path) -> io::Result<Shared> {
    let path = path.to_owned();
    offload(move || {
        let file = open(&path)?;
        let words = file.metadata()?.len() / 8;
        if words == 0 {
            return Err(wrong_size(&path, 0, 1));
        }
        let words = usize::try_from(words).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Shared::map(&file, words)
    })
    .await
}

pub(crate) async fn is_owned(path: &Path) -> io::Result<bool> {
    let path = path.to_owned();
    offload(move || {
        let file = match open(&lock_path(&path)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        // Shared, so that two who ask do not take each other for the owner.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    })
    .await
}
