//! Where clients come in: a plain port, and one by TLS (ZooKeeper's `secureClientPort`).

use crate::wire::Text;
use bytes::BytesMut;
use plinth_rpc::Audit;
use plinth_runtime::net::layered;
use plinth_runtime::serve::Connection;
use plinth_runtime::{Duration, probe, timeout};
use plinth_tls::Guests;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// A client that has not finished the handshake by then is refused. Its greeting has as much time again.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Room for the first bytes of a stream.
const FIRST_READ_BYTES: usize = 4 << 10;

/// Addresses to listen at. At least one must be given.
#[derive(Clone, Default)]
pub struct Doors {
    pub plain: Option<SocketAddr>,
    /// With the certificates for it.
    pub secure: Option<(SocketAddr, Guests)>,
}

impl From<SocketAddr> for Doors {
    fn from(address: SocketAddr) -> Doors {
        Doors {
            plain: Some(address),
            secure: None,
        }
    }
}

impl Doors {
    /// The addresses, for people.
    pub fn shown(&self) -> String {
        let plain = self.plain.map(|address| address.to_string());
        let secure = self.secure.as_ref();
        let secure = secure.map(|(address, _)| format!("{address} (TLS)"));
        let all: Vec<String> = plain.into_iter().chain(secure).collect();
        all.join(" and ")
    }
}

/// How a client has come in.
#[derive(Clone, Default)]
pub struct Origin {
    pub is_secure: bool,
    /// The subject of the certificate that it has shown.
    pub certified: Option<Text>,
}

/// The secure port.
pub struct Secure {
    pub address: SocketAddr,
    guests: Guests,
    audit: Audit,
    under_way: Rc<Cell<usize>>,
    failed: Cell<u64>,
}

/// A handshake, as long as it is under way.
struct UnderWay(Rc<Cell<usize>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Secure {
    pub fn new(address: SocketAddr, guests: Guests) -> Secure {
        Secure {
            address,
            guests,
            audit: Audit::new(),
            under_way: Rc::default(),
            failed: Cell::new(0),
        }
    }

    /// Handshakes that are under way.
    pub fn under_way(&self) -> usize {
        self.under_way.get()
    }

    /// Handshakes that have failed.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// `None` if the client is refused, which is on record, or has gone.
    pub async fn enter(&self, connection: Connection) -> Option<(Connection, Origin)> {
        let peer = connection.peer;
        self.under_way.set(self.under_way.get() + 1);
        let under_way = UnderWay(self.under_way.clone());
        // Boxed: a connection that has greeted has no need of this room.
        let entered = timeout(HANDSHAKE_LIMIT, Box::pin(self.greet(connection))).await;
        drop(under_way);
        let refusal = match entered {
            Some(Ok(entered)) => {
                if let Some((_, origin)) = &entered
                    && let Some(name) = &origin.certified
                {
                    self.audit.greeted(peer, format_args!("x509:{name}"));
                }
                return entered;
            }
            Some(Err(why)) => why,
            None => {
                probe!("keeper_handshake_is_too_slow");
                format!(
                    "the client has not finished the TLS handshake within {} s",
                    HANDSHAKE_LIMIT.as_secs()
                )
            }
        };
        self.failed.set(self.failed.get() + 1);
        self.audit.connection_refused(peer, refusal);
        None
    }

    /// `None` if the client has gone before it said a word, as those do that only look whether somebody listens.
    async fn greet(
        &self,
        mut connection: Connection,
    ) -> Result<Option<(Connection, Origin)>, String> {
        let mut arrived = BytesMut::with_capacity(FIRST_READ_BYTES);
        if !matches!(connection.reader.read(&mut arrived).await, Ok(1..)) {
            return Ok(None);
        }
        let (layer, guest) = self.guests.begin();
        let (reader, writer) = (connection.reader, connection.writer);
        let Ok((reader, writer)) = layered(reader, writer, arrived, layer).await else {
            let cut = || "the client has cut the connection in the TLS handshake".into();
            return Err(guest.failure().unwrap_or_else(cut));
        };
        (connection.reader, connection.writer) = (reader, writer);
        let origin = Origin {
            is_secure: true,
            certified: guest.name().map(|name| (*name).into()),
        };
        Ok(Some((connection, origin)))
    }
}
