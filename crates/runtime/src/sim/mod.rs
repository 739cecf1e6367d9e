//! The simulated backend.
#![allow(dead_code, unused_variables, clippy::unused_async)]
use crate::Instant;
use std::rc::Rc;
use std::task::{Context, Poll};
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ProcessId(pub u32);
pub(crate) struct World;
pub fn is_entered() -> bool {
    false
}
pub(crate) fn current() -> Option<Rc<World>> {
    None
}
pub(crate) fn enter_process(_: ProcessId) {}
pub fn current_process() -> ProcessId {
    ProcessId(0)
}
pub(crate) struct TimerHandle;
impl TimerHandle {
    pub fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}
impl World {
    pub fn spawn(&self, _: &'static str, _: Rc<dyn crate::task::Runnable>) {}
    pub async fn offload<T>(&self, f: impl FnOnce() -> T) -> T {
        f()
    }
    pub fn local_now(&self) -> Instant {
        Instant(0)
    }
    pub fn unix_time_ms(&self) -> u64 {
        0
    }
    pub fn set_local_timer(self: &Rc<Self>, _: Instant) -> TimerHandle {
        TimerHandle
    }
    pub fn keep_trace(&self, _: String) {}
    pub fn write_trace_head(&self, _: &mut String) {}
    pub async fn listen(&self, _: std::net::SocketAddr) -> std::io::Result<network::Listener> {
        unreachable!()
    }
    pub async fn connect(
        &self,
        _: std::net::SocketAddr,
    ) -> std::io::Result<(network::Reader, network::Writer)> {
        unreachable!()
    }
}
pub(crate) mod network {
    use std::io;
    pub enum Listener {}
    pub enum Reader {}
    pub enum Writer {}
    impl Listener {
        pub async fn accept(&mut self) -> io::Result<(Reader, Writer, std::net::SocketAddr)> {
            match *self {}
        }
        pub fn local_addr(&self) -> std::net::SocketAddr {
            match *self {}
        }
    }
    impl Reader {
        pub async fn read(&mut self, _: &mut bytes::BytesMut) -> io::Result<usize> {
            match *self {}
        }
    }
    impl Writer {
        pub async fn write_all(&mut self, _: bytes::Bytes) -> io::Result<()> {
            match *self {}
        }
        pub fn shutdown(&mut self) -> io::Result<()> {
            match *self {}
        }
    }
}
pub(crate) mod disk {
    use bytes::Bytes;
    use std::io;
    use std::path::Path;
    #[derive(Clone, Debug)]
    pub enum File {}
    #[derive(Clone, Debug)]
    pub enum BlockingFile {}
    pub enum DirLock {}
    pub struct Disk;
    impl Disk {
        pub fn of(_: &std::rc::Rc<super::World>) -> Disk {
            Disk
        }
        pub async fn open(&self, _: &Path, _: crate::disk::OpenOptions) -> io::Result<File> {
            unreachable!()
        }
        pub async fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
            unreachable!()
        }
        pub async fn remove(&self, _: &Path) -> io::Result<()> {
            unreachable!()
        }
        pub async fn sync_dir(&self, _: &Path) -> io::Result<()> {
            unreachable!()
        }
        pub async fn create_dir_all(&self, _: &Path) -> io::Result<()> {
            unreachable!()
        }
        pub async fn exists(&self, _: &Path) -> bool {
            unreachable!()
        }
        pub async fn list_dir(&self, _: &Path) -> io::Result<Vec<String>> {
            unreachable!()
        }
        pub async fn lock_dir(&self, _: &Path) -> io::Result<DirLock> {
            unreachable!()
        }
    }
    impl File {
        pub async fn read_at(&self, _: u64, _: usize) -> io::Result<Bytes> {
            match *self {}
        }
        pub async fn write_at(&self, _: u64, _: Bytes) -> io::Result<()> {
            match *self {}
        }
        pub async fn write_vectored_at(&self, _: u64, _: Vec<Bytes>) -> io::Result<()> {
            match *self {}
        }
        pub async fn write_and_sync(&self, _: u64, _: Vec<Bytes>) -> io::Result<()> {
            match *self {}
        }
        pub async fn sync(&self) -> io::Result<()> {
            match *self {}
        }
        pub async fn truncate(&self, _: u64) -> io::Result<()> {
            match *self {}
        }
        pub async fn size(&self) -> io::Result<u64> {
            match *self {}
        }
        pub async fn allocate(&self, _: u64) -> io::Result<()> {
            match *self {}
        }
        pub fn blocking(&self) -> BlockingFile {
            match *self {}
        }
    }
    impl BlockingFile {
        pub fn read_exact_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            match *self {}
        }
        pub fn write_all_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            match *self {}
        }
        pub fn sync(&self) -> io::Result<()> {
            match *self {}
        }
        pub fn set_len(&self, _: u64) -> io::Result<()> {
            match *self {}
        }
        pub fn len(&self) -> io::Result<u64> {
            match *self {}
        }
    }
}
