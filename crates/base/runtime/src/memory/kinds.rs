//! Memory without a file, and why a memory cannot be had.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub(crate) fn plain(words: usize) -> Arc<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

pub(crate) fn wrong_size(path: &Path, found: u64, wanted: usize) -> io::Error {
    let text = format!(
        "{} has {found} bytes where {} are wanted: remove it, or ask for the size that it has",
        path.display(),
        wanted as u64 * 8
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// `bytes` are wanted, and `free` are left.
pub(crate) fn no_room(path: &Path, bytes: u64, free: u64) -> io::Error {
    let text = format!(
        "{}: no room for a memory of {bytes} bytes, {} too few are free there: make room, enlarge the file system, \
         or ask for a smaller memory",
        path.display(),
        bytes.saturating_sub(free).max(1)
    );
    io::Error::new(io::ErrorKind::StorageFull, text)
}

pub(crate) fn own_process(path: &Path) -> io::Error {
    let text = format!("this process owns the memory {} itself", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

pub(crate) fn owned_already(path: &Path) -> io::Error {
    let text = format!("another process owns the memory {}", path.display());
    io::Error::new(io::ErrorKind::WouldBlock, text)
}
