//! Memory that outlives the process: words of 64 bits, which other processes of the machine may map.
//!
//! Promises: one process at a time owns a memory. What was stored in it is there for the next owner, and for all who
//! have mapped it, until the machine loses power or the file is removed. A new memory has all zeros; nobody finds one
//! that is half made. Words are reached only as atomics, so a process that writes at the same time does no harm.
//!
//! A memory has all the room that it will need before anybody gets it: who stored to a page for which there is none
//! would be killed. A file system that cannot reserve room gets zeros written instead. That finds out that it is full,
//! but one that copies what it overwrites, or packs zeros, may be full later: keep memories off those.
//!
//! Trust: whoever may write to the file may store anything, and can end its readers by truncating it. So only the
//! user who made it may open it (mode 0600). On Linux, put it below `/dev/shm`: elsewhere, pages are also written to
//! the disk.

mod bell;
pub(crate) mod kinds;

pub use bell::{Bell, Rope};

use crate::{Duration, random, real, sim, sleep};
use kinds::plain;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

const TOO_SMALL: &str = "a memory has at least one word";

/// A memory that is mapped here. The mapping ends when the last clone is dropped.
#[derive(Clone)]
pub struct Mapping(Any);

#[derive(Clone)]
enum Any {
    Shared(Arc<real::memory::Shared>),
    Plain(Arc<[AtomicU64]>),
}

/// A memory that this process owns. Dropping it lets another process become its owner.
pub struct Owned {
    pub mapping: Mapping,
    /// False if a former owner has made it.
    pub is_new: bool,
    _lock: Lock,
}

enum Lock {
    Real { _file: real::memory::Lock },
    Sim { _owner: Arc<()> },
}

impl Mapping {
    /// Memory of this process alone, all zeros.
    pub fn private(words: usize) -> Mapping {
        Mapping(Any::Plain(plain(words)))
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        match &self.0 {
            Any::Shared(shared) => shared.words(),
            Any::Plain(words) => words,
        }
    }
}

impl Mapping {
    /// Takes the room for these words of a sparse memory. Whoever stores to others may be killed.
    ///
    /// Errors: `StorageFull` if there is no room, and those of the system.
    pub async fn reserve(&self, words: Range<usize>) -> io::Result<()> {
        match &self.0 {
            Any::Shared(shared) if !words.is_empty() => shared.reserve(words).await,
            _ => Ok(()),
        }
    }

    /// Gives the room for these words back. They are zeros afterwards, except on file systems that cannot do so, and
    /// at the ends of the range as far as they share a page with others.
    pub async fn release(&self, words: Range<usize>) -> io::Result<()> {
        match &self.0 {
            Any::Shared(shared) if !words.is_empty() => shared.release(words).await,
            Any::Shared(_) => Ok(()),
            Any::Plain(plain) => {
                let released = plain.get(words).unwrap_or_default();
                released.iter().for_each(|word| word.store(0, Release));
                Ok(())
            }
        }
    }

    /// True if `path` names this memory: nobody has removed it, and made another there.
    pub async fn is_at(&self, path: &Path) -> io::Result<bool> {
        match (&self.0, sim::current()) {
            (Any::Shared(shared), _) => shared.is_at(path),
            (Any::Plain(words), Some(world)) => Ok(world.is_memory_at(words, path)),
            (Any::Plain(_), None) => Ok(false),
        }
    }
}

/// Makes the memory in the file `path` with this number of words, or takes over the one that is there.
///
/// Errors: `WouldBlock` if another process owns it, `InvalidData` if it has another size, `StorageFull` if there is no
/// room for it, and those of the system.
pub async fn own(path: &Path, words: usize) -> io::Result<Owned> {
    own_one(path, words, false).await
}

/// The same with room for nothing yet: the owner [reserves](Mapping::reserve) what it stores to.
pub async fn own_sparse(path: &Path, words: usize) -> io::Result<Owned> {
    own_one(path, words, true).await
}

async fn own_one(path: &Path, words: usize, is_sparse: bool) -> io::Result<Owned> {
    if words == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, TOO_SMALL));
    }
    Ok(match sim::current() {
        Some(world) => {
            let (words, is_new, owner) = world.own_memory(path, words)?;
            Owned {
                mapping: Mapping(Any::Plain(words)),
                is_new,
                _lock: Lock::Sim { _owner: owner },
            }
        }
        None => {
            let (shared, is_new, file) = real::memory::own(path, words, is_sparse).await?;
            Owned {
                mapping: Mapping(Any::Shared(Arc::new(shared))),
                is_new,
                _lock: Lock::Real { _file: file },
            }
        }
    })
}

/// Maps a memory that a process of this machine has made. The owner may be dead.
pub async fn attach(path: &Path) -> io::Result<Mapping> {
    Ok(Mapping(match sim::current() {
        Some(world) => Any::Plain(world.attach_memory(path)?),
        None => Any::Shared(Arc::new(real::memory::attach(path).await?)),
    }))
}

/// True if a living process owns the memory. False if there is none.
pub async fn is_owned(path: &Path) -> io::Result<bool> {
    Ok(owner(path).await?.is_some())
}

/// The number of the living process that owns the memory. It is 0 while nobody knows.
pub async fn owner(path: &Path) -> io::Result<Option<u32>> {
    match sim::current() {
        Some(world) => Ok(world.memory_owner(path)),
        None => real::memory::owner(path),
    }
}

/// Returns when the process that owns the memory has ended, or a moment later; at once if there is none. It may return
/// for no reason, and does not if the owner gives the memory up and lives on: [`is_owned`] says what is true.
///
/// Errors: `WouldBlock` while nobody knows which process it is, and those of the system.
pub async fn owner_ended(path: &Path) -> io::Result<()> {
    match sim::current() {
        Some(_) => sim_owner_ended(path).await,
        None => real::memory::owner_ended(path).await,
    }
}

async fn sim_owner_ended(path: &Path) -> io::Result<()> {
    let first = owner(path).await?;
    while first.is_some() && owner(path).await? == first && !random::chance(0.1) {
        sleep(Duration::from_micros(random::range(500..5000))).await;
    }
    Ok(())
}

/// Kills the process that owns the memory, as a power cut would. Returns false if there is none. It may live on for a
/// moment: [`is_owned`] says when it is dead.
///
/// Errors: `InvalidInput` if it is this process, `PermissionDenied`, and those of the system.
pub async fn kill_owner(path: &Path) -> io::Result<bool> {
    match sim::current() {
        Some(world) => world.kill_memory_owner(path),
        None => real::memory::kill_owner(path).await,
    }
}

#[cfg(test)]
mod tests;
