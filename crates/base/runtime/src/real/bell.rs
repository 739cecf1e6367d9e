//! Bells: named pipes. Both sides open them for reading and writing, so that neither ever waits for the other or meets
//! a pipe without it.

use super::offload;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe::Receiver;

/// Most rings that one read takes off.
const RINGS: usize = 64;

pub(crate) struct Bell(Receiver);

pub(crate) struct Rope(OwnedFd);

/// Opens the pipe at `path`, and nothing else that may be there.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pipe = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(pipe) => pipe,
        Err(Errno::LOOP | Errno::ISDIR) => return Err(no_bell(path)),
        Err(error) => return Err(error.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&pipe)?.st_mode);
    match kind {
        FileType::Fifo => Ok(pipe),
        _ => Err(no_bell(path)),
    }
}

fn no_bell(path: &Path) -> io::Error {
    let text = format!(
        "{} is no pipe that wakes a process: remove it",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

pub(crate) async fn hang(path: &Path) -> io::Result<Bell> {
    let path: PathBuf = path.to_owned();
    let pipe = offload(
        move || match rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR) {
            Ok(()) | Err(Errno::EXIST) => open(&path),
            Err(error) => Err(error.into()),
        },
    );
    let pipe = pipe.await?;
    Ok(Bell(Receiver::from_owned_fd_unchecked(pipe)?))
}

pub(crate) async fn find(path: &Path) -> io::Result<Rope> {
    let path: PathBuf = path.to_owned();
    offload(move || open(&path).map(Rope)).await
}

impl Bell {
    /// Returns also if another task has taken the rings off: it was woken by them.
    pub async fn rung(&self) {
        if self.0.readable().await.is_err() {
            // The loop ends, and this task with it.
            return std::future::pending().await;
        }
        // To the end: after it, the loop knows that the pipe is empty.
        while self.0.try_read(&mut [0; RINGS]).is_ok() {}
    }
}

impl Rope {
    pub fn ring(&self) {
        // A pipe that is full has rung already. Anything else cannot happen to a pipe that this side reads, too.
        while rustix::io::write(&self.0, &[1]) == Err(Errno::INTR) {}
    }
}
