//! TCP. A write is tried at once and waits only when the socket's buffer is full.

use super::pulse::Pulse;
use crate::machine::usage::Connections;
use bytes::{BufMut as _, Bytes, BytesMut};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Most bytes of one read. A read of megabytes into memory that is used for the first time takes tens of milliseconds,
/// and the loop can do nothing else meanwhile.
const READ_BYTES_MAX: usize = 256 << 10;
/// Room reserved for a read when little is left: the most bytes that one read appends to a fresh buffer.
const READ_BYTES: usize = 64 << 10;
/// A read makes more room in its buffer if there is less than this: for fewer bytes the system call costs too much.
pub const READ_ROOM_BYTES: usize = 4 << 10;

pub(crate) struct Listener {
    tcp: TcpListener,
    /// Answers questions about the loop while the loop is busy.
    _pulse: Option<Pulse>,
}
pub(crate) struct Reader(
    OwnedReadHalf,
    #[expect(dead_code, reason = "it counts when it goes")] Arc<Open>,
);
pub(crate) struct Writer(
    OwnedWriteHalf,
    #[expect(dead_code, reason = "it counts when it goes")] Arc<Open>,
);

/// Of all connections of this process, on any thread.
static ESTABLISHED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);
static ERRORS: AtomicU64 = AtomicU64::new(0);
static SENT_BYTES: AtomicU64 = AtomicU64::new(0);
static RECEIVED_BYTES: AtomicU64 = AtomicU64::new(0);

fn count(of: &AtomicU64, more: usize) {
    of.fetch_add(more as u64, Ordering::Relaxed);
}

pub(crate) fn counts() -> Connections {
    let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
    Connections {
        established: read(&ESTABLISHED),
        closed: read(&CLOSED),
        errors: read(&ERRORS),
        sent_bytes: read(&SENT_BYTES),
        received_bytes: read(&RECEIVED_BYTES),
    }
}

/// A connection that is counted as closed when both halves are gone.
struct Open;

impl Drop for Open {
    fn drop(&mut self) {
        count(&CLOSED, 1);
    }
}

pub(crate) async fn listen(
    address: SocketAddr,
    public: Option<SocketAddr>,
) -> io::Result<Listener> {
    let tcp = TcpListener::bind(address).await?;
    let own = tcp.local_addr()?;
    let _pulse = Pulse::start(own, public.filter(|_| own.ip().is_unspecified()));
    Ok(Listener { tcp, _pulse })
}

/// Files reserved for uses other than accepted connections: at most this many, and at most a quarter.
const OTHER_FILES: u64 = 1000;

pub(crate) fn connections_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |files| {
        (files - OTHER_FILES.min(files / 4)) as usize
    })
}

/// How many files this process has open, and how many it may have; `None` if the system does not say.
pub(crate) fn open_files() -> Option<(u64, u64)> {
    const OPEN: &str = "/proc/self/fd";
    // Newer systems give the number as the size of the directory.
    let open = match std::fs::metadata(OPEN).ok()?.len() {
        0 => std::fs::read_dir(OPEN).ok()?.count() as u64,
        open => open,
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    Some((open, limit.unwrap_or(u64::MAX)))
}

pub(crate) async fn connect(address: SocketAddr) -> io::Result<(Reader, Writer)> {
    let connected = TcpStream::connect(address).await;
    split(connected.inspect_err(|_| count(&ERRORS, 1))?)
}

pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

fn split(stream: TcpStream) -> io::Result<(Reader, Writer)> {
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    count(&ESTABLISHED, 1);
    let open = Arc::new(Open);
    Ok((Reader(read, open.clone()), Writer(write, open)))
}

impl Listener {
    pub async fn accept(&mut self) -> io::Result<(Reader, Writer, SocketAddr)> {
        loop {
            let (stream, peer) = self.tcp.accept().await?;
            // A connection that died while it waited to be accepted is skipped; the listener continues.
            if let Ok((reader, writer)) = split(stream) {
                return Ok((reader, writer, peer));
            }
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

impl Reader {
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            // Memory is reserved only when there is something to read, so an idle connection costs none.
            self.0.readable().await?;
            if buffer.capacity() - buffer.len() < READ_ROOM_BYTES {
                buffer.reserve(READ_BYTES);
            }
            // Not `try_read_buf`: it does not note that a short read has emptied the socket, so that the next call
            // would ask the system again.
            let mut room = (&mut *buffer).limit(READ_BYTES_MAX);
            match self.0.read_buf(&mut room).await {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => {
                    count(&RECEIVED_BYTES, read);
                    return Ok(read);
                }
                Err(broken) => {
                    count(&ERRORS, 1);
                    return Err(broken);
                }
            }
        }
    }
}

impl Writer {
    pub async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        let mut rest = &data[..];
        while !rest.is_empty() {
            match self.0.try_write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    count(&SENT_BYTES, n);
                    rest = &rest[n..];
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.0.writable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}
