//! Streams of bytes between processes.
//!
//! Bytes of one connection arrive in order and once, or the connection fails. There is no bound on the delay, and a
//! completed write does not mean that the bytes have arrived. Dropping both halves closes the connection.

mod chosen;
mod layer;
#[cfg(test)]
mod tests;

pub use crate::real::net::READ_ROOM_BYTES;
pub use chosen::Chosen;
pub use layer::{Layer, layered};

use crate::{Boxed, Duration, real, sim};
use bytes::{Bytes, BytesMut};
use layer::{ReadLayer, WriteLayer};
use std::io;
use std::net::SocketAddr;

enum AnyListener {
    Real(real::net::Listener),
    Sim(sim::network::Listener),
}
enum AnyReader {
    Real(real::net::Reader),
    Sim(sim::network::Reader),
}
enum AnyWriter {
    Real(real::net::Writer),
    Sim(sim::network::Writer),
}

/// Accepts connections at one address. Dropping it frees the address.
pub struct Listener(AnyListener);
/// The half of a connection that receives.
pub struct Reader {
    bare: AnyReader,
    layer: Option<Box<ReadLayer>>,
}
/// The half of a connection that sends.
pub struct Writer {
    bare: AnyWriter,
    layer: Option<WriteLayer>,
}

/// Listens at `address`. Port 0 takes any free port; see [`Listener::local_addr`].
pub fn listen(address: SocketAddr) -> Boxed<'static, io::Result<Listener>> {
    Box::pin(async move { listen_as(address, None).await })
}

/// The same, if others reach it at `public`.
pub fn listen_as(
    address: SocketAddr,
    public: Option<SocketAddr>,
) -> Boxed<'static, io::Result<Listener>> {
    Box::pin(async move {
        Ok(Listener(match sim::current() {
            Some(world) => AnyListener::Sim(world.listen(address).await?),
            None => AnyListener::Real(real::net::listen(address, public).await?),
        }))
    })
}

/// Number of connections that a listener should keep: the system's limit for this process, less what the process needs
/// itself.
pub fn connections_max() -> usize {
    match sim::current() {
        Some(_) => usize::MAX,
        None => real::net::connections_max(),
    }
}

/// How many files this process has open, connections among them, and how many it may have; `None` if the system does
/// not say.
pub fn open_files() -> Option<(u64, u64)> {
    match sim::current() {
        Some(_) => None,
        None => real::net::open_files(),
    }
}

pub fn connect(address: SocketAddr) -> Boxed<'static, io::Result<(Reader, Writer)>> {
    Box::pin(async move {
        Ok(match sim::current() {
            Some(world) => sim_halves(world.connect(address).await?),
            None => real_halves(real::net::connect(address).await?),
        })
    })
}

/// The addresses that the host's name has at present, in a fixed order: those of IPv4 first. Fails if it has none.
pub fn resolve(host: &str, port: u16) -> Boxed<'_, io::Result<Vec<SocketAddr>>> {
    Box::pin(async move {
        let mut found = match sim::current() {
            Some(world) => world.resolve(host, port).await?,
            None => real::net::resolve(host, port).await?,
        };
        found.sort_unstable();
        found.dedup();
        match found.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(found),
        }
    })
}

/// Asks the process that listens at `address`, past its event loop, how long the current turn of the loop, or one that
/// has just ended, has taken. Zero if none was long. `None` if the question fails; without an answer, the future never
/// ends.
pub fn pulse(address: SocketAddr) -> Boxed<'static, Option<Duration>> {
    Box::pin(async move {
        match sim::current() {
            Some(world) => world.pulse(address).await,
            None => real::pulse::pulse(address).await.ok(),
        }
    })
}

fn real_halves((reader, writer): (real::net::Reader, real::net::Writer)) -> (Reader, Writer) {
    bare(AnyReader::Real(reader), AnyWriter::Real(writer))
}

fn sim_halves((reader, writer): (sim::network::Reader, sim::network::Writer)) -> (Reader, Writer) {
    bare(AnyReader::Sim(reader), AnyWriter::Sim(writer))
}

/// Halves without a layer.
fn bare(reader: AnyReader, writer: AnyWriter) -> (Reader, Writer) {
    let (bare, layer) = (reader, None);
    let reader = Reader { bare, layer };
    let (bare, layer) = (writer, None);
    (reader, Writer { bare, layer })
}

impl Listener {
    /// The next connection, with the address of the peer.
    pub fn accept(&mut self) -> Boxed<'_, io::Result<(Reader, Writer, SocketAddr)>> {
        Box::pin(async move {
            let (halves, peer) = match &mut self.0 {
                AnyListener::Real(l) => {
                    let (reader, writer, peer) = l.accept().await?;
                    (real_halves((reader, writer)), peer)
                }
                AnyListener::Sim(l) => {
                    let (reader, writer, peer) = l.accept().await?;
                    (sim_halves((reader, writer)), peer)
                }
            };
            Ok((halves.0, halves.1, peer))
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            AnyListener::Real(l) => l.local_addr(),
            AnyListener::Sim(l) => Ok(l.local_addr()),
        }
    }
}

impl AnyReader {
    async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            AnyReader::Real(r) => r.read(buffer).await,
            AnyReader::Sim(r) => r.read(buffer).await,
        }
    }
}

impl AnyWriter {
    async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        match self {
            AnyWriter::Real(w) => w.write_all(data).await,
            AnyWriter::Sim(w) => w.write_all(data).await,
        }
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            AnyWriter::Real(w) => w.shutdown().await,
            AnyWriter::Sim(w) => w.shutdown(),
        }
    }
}

impl Reader {
    /// Appends the bytes that have arrived and returns their number. 0 means that the other side has ended its stream.
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match &mut self.layer {
            None => self.bare.read(buffer).await,
            Some(layer) => layer.read(&mut self.bare, buffer).await,
        }
    }
}

impl Writer {
    /// Passes all of `data` to the network. Waits while the network's buffer for the connection is full.
    ///
    /// If the future is dropped, a part of the data may have been sent: such a connection must not be used any more.
    pub async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        let data = match &self.layer {
            None => data,
            Some(layer) => layer.seal(&data)?,
        };
        self.bare.write_all(data).await
    }

    /// Ends the stream of this side: the other side reads the bytes that were sent, then 0.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(layer) = &self.layer {
            self.bare.write_all(layer.end()).await?;
        }
        self.bare.shutdown().await
    }
}
