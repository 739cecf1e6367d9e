//! What a worker proves and asks for when a connection begins.

use crate::frame;
use bytes::{BufMut, Bytes};
use plinth_core::output::Output;
use plinth_identity::greeting::{
    Acceptor, Answered, Context, NONCE_BYTES, Nonce, Opener, Refusal, Strangers,
};
use plinth_identity::keys::Keyring;
use plinth_identity::{Identity, Side, Verdict};
use plinth_runtime::net::Layer;
use plinth_runtime::{Task, planted, secret};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

const PURPOSE: &str = "rpc";

/// Begins the handshake by certificates on a new connection: TLS.
pub type Handshakes = Rc<dyn Fn(Side) -> (Box<dyn Layer>, Rc<Verdict>)>;

/// The keys of a worker, and who it wants to be. Clones share them, so that keys can change while it runs. Connections
/// that have greeted stay as they are.
#[derive(Clone)]
pub struct Credentials {
    inner: Rc<Inner>,
    /// What its connections are for: see [`Context::purpose`].
    purpose: &'static str,
}

struct Inner {
    keys: RefCell<Option<Keyring>>,
    identity: Identity,
    strangers: Cell<Strangers>,
    any_address: Cell<bool>,
    certificates: RefCell<Option<Handshakes>>,
    /// Keep them current.
    followers: RefCell<Vec<Task<()>>>,
    /// Opens all connections with certificates, and never without.
    opens_by_certificate: Cell<bool>,
    /// Who comes without a certificate and without a key is nobody.
    wants_certificates: Cell<bool>,
}

impl Credentials {
    /// No keys: everybody is trusted, and nothing is sealed.
    pub fn none() -> Credentials {
        Credentials::new(None, Identity::Nobody)
    }

    /// `identity`: who this worker wants to be where it connects to.
    pub fn new(keys: Option<Keyring>, identity: Identity) -> Credentials {
        let inner = Rc::new(Inner {
            keys: RefCell::new(keys),
            identity,
            strangers: Cell::new(Strangers::Refused),
            any_address: Cell::new(false),
            certificates: RefCell::default(),
            followers: RefCell::default(),
            opens_by_certificate: Cell::new(false),
            wants_certificates: Cell::new(false),
        });
        Credentials {
            inner,
            purpose: PURPOSE,
        }
    }

    /// The same keys, for connections that are not this crate's. A proof for one purpose is no proof for another.
    pub fn for_purpose(&self, purpose: &'static str) -> Credentials {
        Credentials {
            inner: self.inner.clone(),
            purpose,
        }
    }

    /// Accepts connections with certificates beside others.
    pub fn with_certificates(self, handshakes: Handshakes) -> Credentials {
        self.inner.certificates.replace(Some(handshakes));
        self
    }

    /// `follower` exchanges the certificates while it runs. It ends with the last clone.
    pub fn kept_current_by(self, follower: Task<()>) -> Credentials {
        self.inner.followers.borrow_mut().push(follower);
        self
    }

    /// Opens all its connections with certificates, whatever the other side says, and none if it has no certificate.
    pub fn opening_by_certificate(self) -> Credentials {
        self.inner.opens_by_certificate.set(true);
        self
    }

    /// Who comes without a certificate and without a key is nobody, whatever the keys say of such.
    pub fn closed_without_certificate(self) -> Credentials {
        self.inner.wants_certificates.set(true);
        self
    }

    /// True if it can open and accept connections with certificates.
    pub fn has_certificates(&self) -> bool {
        self.inner.certificates.borrow().is_some()
    }

    /// Connections may lead to another address than the one that was meant: somebody translates addresses on the way.
    pub fn for_any_address(self) -> Credentials {
        self.inner.any_address.set(true);
        self
    }

    /// Talks to processes that have no keys, too: for a cluster that is given its keys while it runs.
    pub fn tolerating_strangers(self) -> Credentials {
        self.inner.strangers.set(Strangers::Tolerated);
        self
    }

    /// For connections that begin from now on.
    pub fn set_keys(&self, keys: Option<Keyring>) {
        self.inner.keys.replace(keys);
    }

    /// What somebody is to us who has proved nothing. A worker without the keys of servers trusts everybody, unless it
    /// wants certificates.
    pub fn stranger(&self) -> Identity {
        let keys = self.inner.keys.borrow();
        let keys = keys.as_ref();
        match keys.filter(|keys| keys.highest() == Identity::Server) {
            _ if self.inner.wants_certificates.get() => Identity::Nobody,
            Some(keys) => keys.open_to(),
            None => Identity::Server,
        }
    }

    /// What protects a connection that is opened; `None` if that is done without certificates.
    pub(crate) fn open(&self) -> Result<Option<(Box<dyn Layer>, Rc<Verdict>)>, Refusal> {
        if !self.inner.opens_by_certificate.get() {
            return Ok(None);
        }
        let handshakes = self.inner.certificates.borrow();
        match &*handshakes {
            Some(begin) => Ok(Some(begin(Side::Opener))),
            None => Err(Refusal::Certificate(
                "the cluster file asks for TLS, and this process has no certificate".into(),
            )),
        }
    }

    /// What may protect a connection that is accepted.
    pub(crate) fn accepts(&self) -> Option<Handshakes> {
        self.inner.certificates.borrow().clone()
    }

    fn context_of(&self, to: SocketAddr) -> Context {
        Context {
            purpose: self.purpose,
            address: Some(to).filter(|_| !self.inner.any_address.get()),
        }
    }

    /// For a connection that is protected already: it has no key to offer, and means an address.
    pub(crate) fn opener_by_certificate(&self, to: SocketAddr) -> Opener {
        let (context, nobody) = (self.context_of(to), Identity::Nobody);
        Opener::new(context, None, nobody, Strangers::Refused, nonce())
    }

    /// Begins the greeting of a connection to this address. `None`: it has nothing to prove.
    pub fn opener(&self, to: SocketAddr) -> Option<Opener> {
        let context = self.context_of(to);
        let keys = self.inner.keys.borrow();
        let keys = keys.as_ref()?;
        // Whoever has lower keys only is what they give.
        let identity = self.inner.identity.min(keys.highest());
        let strangers = self.inner.strangers.get();
        let may_offer = identity > Identity::Nobody;
        may_offer.then(|| Opener::new(context, Some(keys), identity, strangers, nonce()))
    }

    /// Takes the hello of a connection to `own`, where others reach this worker. `certified`: what the certificate of
    /// the other side stands for, if it has shown one.
    pub fn greeted(
        &self,
        own: Option<SocketAddr>,
        certified: Option<Identity>,
        hello: &[u8],
    ) -> Answered {
        let context = Context {
            purpose: self.purpose,
            address: own,
        };
        if let Some(peer) = certified {
            return Acceptor::certified(context, peer, hello);
        }
        let keys = self.inner.keys.borrow();
        Acceptor::greeted(context, keys.as_ref(), hello, nonce())
    }
}

fn nonce() -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    if !planted!(
        "rpc_nonce_is_used_twice",
        "all greetings have the same nonce"
    ) {
        secret::fill(&mut nonce);
    }
    nonce
}

/// A frame of the greeting.
pub(crate) fn said(what: &[u8]) -> Bytes {
    let mut out = Output::new();
    let put = |out: &mut Output| out.buffer().put_slice(what);
    frame::encode(&mut out, frame::HELLO, 0, put).expect("greetings are short");
    out.into_bytes()
}

/// The first frame of a connection. Who has nothing to prove says the version only, and hears no answer.
pub(crate) fn hello(opener: Option<&Opener>) -> Bytes {
    let version = frame::PROTOCOL_VERSION.to_le_bytes();
    let greeting = opener.map_or(&[][..], Opener::hello);
    said(&[&version[..], greeting].concat())
}

/// What somebody without keys says first, for tests of servers: frames of requests may follow at once.
pub fn hello_of_nobody() -> Bytes {
    hello(None)
}
