//! Files that are mapped. The only unsafe code of the runtime.

use super::offload;
use crate::memory::kinds::{no_room, own_process, owned_already, wrong_size};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How often an owner tries to lock, and the pause in between. Who asks for the owner holds the lock for microseconds.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// A large page of most processors. Where they have another size, pages stay small.
pub(crate) const LARGE_PAGE_BYTES: usize = 2 << 20;

/// A mapping of a whole file, shared with other processes. It begins at a multiple of the size of large pages, because
/// those of the file are mapped as such only there.
pub(crate) struct Shared {
    first: NonNull<AtomicU64>,
    words: usize,
    _room: Room,
    file: Arc<File>,
    /// Of the file: device and number.
    identity: (u64, u64),
}

// SAFETY: the pointer is to memory of no thread, which lives until the drop, and is only read and written as atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Held by the owner. The kernel releases it when the process dies. Until then it names the process, so that a lock
/// that is held names a process that is dead, or its owner.
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.write_all_at(&[0; NAME_BYTES], 0);
    }
}

/// A process: its number, and when it was started, because numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    number: u32,
    started: u64,
}

const NAME_BYTES: usize = 12;

impl Name {
    fn of(number: u32) -> io::Result<Name> {
        const STARTED: usize = 19; // of the fields behind the name of the program; proc(5) calls it 22
        let text = std::fs::read_to_string(format!("/proc/{number}/stat"))?;
        let fields = text.rsplit(')').next().unwrap_or_default();
        let started = fields.split_whitespace().nth(STARTED);
        let started = started.and_then(|ticks| ticks.parse().ok());
        let started = started.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Name { number, started })
    }

    fn put(self, lock: &File) -> io::Result<()> {
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.extend(self.started.to_le_bytes());
        lock.write_all_at(&bytes, 0)
    }

    /// `None` if the lock names nobody yet.
    fn take(lock: &File) -> Option<Name> {
        let mut bytes = [0; NAME_BYTES];
        lock.read_exact_at(&mut bytes, 0).ok()?;
        let (number, started) = bytes.split_at(4);
        let number = u32::from_le_bytes(number.try_into().ok()?);
        let started = u64::from_le_bytes(started.try_into().ok()?);
        (number != 0).then_some(Name { number, started })
    }
}

/// Addresses of this process that nothing else gets, where something may be mapped.
struct Room {
    place: *mut c_void,
    bytes: usize,
}

impl Room {
    fn take(bytes: usize) -> io::Result<Room> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the place, so no other memory of this process is touched.
        let place = unsafe {
            let hint = std::ptr::null_mut();
            rustix::mm::mmap_anonymous(hint, bytes, ProtFlags::empty(), flags)?
        };
        Ok(Room { place, bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it was taken, with all that was mapped into it, and no reference to that outlives `self`. It cannot
        // fail so.
        let _ = unsafe { rustix::mm::munmap(self.place, self.bytes) };
    }
}

impl Shared {
    fn map(file: File, words: usize) -> io::Result<Shared> {
        let bytes = words * 8;
        let room = Room::take(bytes.saturating_add(LARGE_PAGE_BYTES))?;
        let begin = |at: usize| at.next_multiple_of(LARGE_PAGE_BYTES);
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::FIXED,
        );
        // SAFETY: it is mapped into the room, which is large enough and has nothing else.
        let place = unsafe {
            let begin = room.place.map_addr(begin);
            rustix::mm::mmap(begin, bytes, protection, flags, &file, 0)?
        };
        let first = NonNull::new(place.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Shared {
            first,
            words,
            _room: room,
            identity: identity(&file.metadata()?),
            file: Arc::new(file),
        })
    }

    /// In place: the file is in memory, and a thread of the pool may have to wait for a processor.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(identity(&std::fs::metadata(path)?) == self.identity)
    }

    pub async fn reserve(&self, words: Range<usize>) -> io::Result<()> {
        let file = self.file.clone();
        offload(move || {
            let (first, bytes) = (words.start as u64 * 8, words.len() as u64 * 8);
            match reserve(&file, first, bytes) {
                // The file was filled when it was made: it has no holes.
                Err(error) if cannot_reserve(&error) => Ok(()),
                reserved => reserved,
            }
        })
        .await
    }

    pub async fn release(&self, words: Range<usize>) -> io::Result<()> {
        let file = self.file.clone();
        offload(move || {
            let (first, bytes) = (words.start as u64 * 8, words.len() as u64 * 8);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&*file, flags, first, bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
                released => Ok(released?),
            }
        })
        .await
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping begins at a page, so it is aligned, has this many words, and lives as long as the room.
        // Any bits are an `AtomicU64`. Other processes change the words at any time, which atomics allow.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

fn identity(data: &std::fs::Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
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

fn lock(path: &Path, bytes: u64) -> io::Result<Lock> {
    let mut options = File::options();
    options.read(true).write(true).create(true).mode(0o600);
    let file = options.open(lock_path(path))?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let named = Name::of(std::process::id()).and_then(|own| own.put(&file));
                named.map_err(|error| explain(error, path, &file, bytes))?;
                return Ok(Lock(file));
            }
            // Perhaps somebody only asks whether it is owned.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(owned_already(path))
}

/// Makes a file of zeros under another name, and gives it its name when it is complete.
fn make(path: &Path, words: usize, is_sparse: bool) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let unfinished = PathBuf::from(name);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.mode(0o600).open(&unfinished)?;
    let bytes = words as u64 * 8;
    let wanted = if is_sparse { 1 } else { bytes };
    #[cfg(target_os = "linux")]
    if !is_sparse {
        take_large_pages(&file, words);
    }
    let made = match file.set_len(bytes).and_then(|()| reserve(&file, 0, wanted)) {
        Err(error) if cannot_reserve(&error) => fill(&file, bytes),
        reserved => reserved,
    };
    let named = made.and_then(|()| std::fs::rename(&unfinished, path));
    named.map_err(|error| {
        // Before the file is removed: then there is more room.
        let error = explain(error, path, &file, bytes);
        let _ = std::fs::remove_file(&unfinished);
        error
    })?;
    Ok(file)
}

/// Gives a new file large pages if it lies in memory, there is room for it, and the kernel has some. Objects are read
/// at random, and the processor remembers the places of too few small pages. The kernel does this when it is asked,
/// whatever it does by itself, but for `deny` in `transparent_hugepage/shmem_enabled`. The rest of the file gets small
/// pages when it is [reserved](reserve).
#[cfg(target_os = "linux")]
fn take_large_pages(file: &File, words: usize) {
    const TMPFS: i128 = 0x0102_1994;
    const COLLAPSE: libc::c_int = 25; // `MADV_COLLAPSE` of Linux 6.1, which not every C library names
    let (bytes, pages) = (words as u64 * 8, words * 8 / LARGE_PAGE_BYTES);
    let is_memory = rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type as i128 == TMPFS);
    let has_room =
        rustix::fs::fstatvfs(file).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= bytes);
    if pages == 0 || !is_memory || !has_room || file.set_len(bytes).is_err() {
        return;
    }
    // The kernel makes large pages of what is there, so there is something of each.
    for page in 0..pages {
        let at = (page * LARGE_PAGE_BYTES) as u64;
        if rustix::fs::fallocate(file, FallocateFlags::empty(), at, 1).is_err() {
            return;
        }
    }
    let mapped = file.try_clone().and_then(|file| Shared::map(file, words));
    if let Ok(mapped) = mapped {
        let begin = mapped.first.as_ptr().cast();
        // SAFETY: the range is in the mapping, and no byte of it changes.
        unsafe { libc::madvise(begin, pages * LARGE_PAGE_BYTES, COLLAPSE) };
    }
}

/// Takes the room for these bytes of the file, so that no store finds none.
fn reserve(file: &File, first: u64, bytes: u64) -> io::Result<()> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), first, bytes) {
            Err(Errno::INTR) => {}
            reserved => return Ok(reserved?),
        }
    }
}

fn cannot_reserve(error: &io::Error) -> bool {
    let kind = Errno::from_io_error(error);
    matches!(kind, Some(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// What [`reserve`] does, on a file system that cannot: writes zeros.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < bytes {
        let some = (bytes - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..some as usize], at)?;
        at += some;
    }
    Ok(())
}

/// What a lack of room means to who reads it. Beside the free bytes there is what the file holds already.
fn explain(error: io::Error, path: &Path, file: &File, bytes: u64) -> io::Error {
    if error.kind() != io::ErrorKind::StorageFull {
        return error;
    }
    let held = file.metadata().map_or(0, |data| data.blocks() * 512);
    let free = rustix::fs::fstatvfs(file).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    no_room(path, bytes, free.saturating_add(held))
}

pub(crate) async fn own(
    path: &Path,
    words: usize,
    is_sparse: bool,
) -> io::Result<(Shared, bool, Lock)> {
    let path = path.to_owned();
    offload(move || {
        let lock = lock(&path, words as u64 * 8)?;
        let (file, is_new) = match open(&path) {
            Ok(file) => (file, false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (make(&path, words, is_sparse)?, true),
            Err(error) => return Err(error),
        };
        let bytes = file.metadata()?.len();
        if bytes != words as u64 * 8 {
            return Err(wrong_size(&path, bytes, words));
        }
        match reserve(&file, 0, if is_sparse { 1 } else { bytes }) {
            Err(error) if !cannot_reserve(&error) => {
                return Err(explain(error, &path, &file, bytes));
            }
            _ => (),
        }
        Ok((Shared::map(file, words)?, is_new, lock))
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
        Shared::map(file, words)
    })
    .await
}

/// The file of the lock while somebody holds it.
fn held(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(lock_path(path)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Shared, so that two who ask do not take each other for the owner.
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => Ok(Some(file)),
        Err(error) => Err(error.into()),
    }
}

/// In place: whoever asks may ask often, and for somebody whose death holds up all.
pub(crate) fn owner(path: &Path) -> io::Result<Option<u32>> {
    let named = |lock| Name::take(&lock).map_or(0, |name| name.number);
    Ok(held(path)?.map(named))
}

/// Who holds the lock.
fn named(lock: &File) -> io::Result<Name> {
    // It has the lock, and has not said yet who it is.
    Name::take(lock).ok_or_else(|| io::ErrorKind::WouldBlock.into())
}

/// `None` if that process has ended.
fn process_of(owner: Name) -> io::Result<Option<OwnedFd>> {
    let number = i32::try_from(owner.number).ok().and_then(Pid::from_raw);
    let number = number.ok_or(io::ErrorKind::InvalidData)?;
    let process = match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // What was opened is the owner, or was started later under its number.
    let is_it = Name::of(owner.number).is_ok_and(|found| found == owner);
    Ok(is_it.then_some(process))
}

pub(crate) async fn owner_ended(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    let opened = offload(move || match held(&path)? {
        Some(lock) => process_of(named(&lock)?),
        None => Ok(None),
    });
    if let Some(process) = opened.await? {
        // SAFETY: the descriptor is open, is always the same, and lives as long as what it is given to.
        let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE)? };
        let _ended = process.readable().await?;
    }
    Ok(())
}

pub(crate) async fn kill_owner(path: &Path) -> io::Result<bool> {
    let path = path.to_owned();
    offload(move || {
        let Some(lock) = held(&path)? else {
            return Ok(false);
        };
        let owner = named(&lock)?;
        if owner.number == std::process::id() {
            return Err(own_process(&path));
        }
        let Some(process) = process_of(owner)? else {
            return Ok(false);
        };
        rustix::process::pidfd_send_signal(process, Signal::KILL)?;
        Ok(true)
    })
    .await
}
