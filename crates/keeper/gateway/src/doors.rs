//! Where clients come in: a plain port, and one by TLS (ZooKeeper's `secureClientPort`).

use crate::wire::Text;
use plinth_rpc::Audit;
use plinth_runtime::net::Chosen;
use plinth_runtime::serve::Connection;
use plinth_tls::Guests;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Addresses to listen at. At least one must be given.
#[derive(Clone, Default)]
pub struct Doors {
    pub plain: Option<SocketAddr>,
    /// How an operator has chosen it.
    pub plain_by: Chosen,
    /// With the certificates for it.
    pub secure: Option<(SocketAddr, Guests)>,
    pub secure_by: Chosen,
}

impl From<SocketAddr> for Doors {
    fn from(address: SocketAddr) -> Doors {
        Doors {
            plain: Some(address),
            ..Doors::default()
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
        let entered = self.guests.enter(connection).await;
        drop(under_way);
        let refusal = match entered {
            Ok(None) => return None,
            Ok(Some((connection, name))) => {
                if let Some(name) = &name {
                    self.audit.greeted(peer, format_args!("x509:{name}"));
                }
                let origin = Origin {
                    is_secure: true,
                    certified: name.map(|name| (*name).into()),
                };
                return Some((connection, origin));
            }
            Err(why) => why,
        };
        self.failed.set(self.failed.get() + 1);
        self.audit.connection_refused(peer, refusal);
        None
    }
}
