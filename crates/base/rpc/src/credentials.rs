//! What a worker proves and asks for when a connection begins.

use crate::frame;
use bytes::{BufMut, Bytes};
use plinth_core::output::Output;
use plinth_identity::Identity;
use plinth_identity::greeting::{
    Acceptor, Answered, Context, NONCE_BYTES, Nonce, Opener, Strangers,
};
use plinth_identity::keys::Keyring;
use plinth_runtime::{planted, random};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

const PURPOSE: &str = "rpc";

/// The keys of a worker, and who it wants to be. Clones share them, so that keys can change while it runs. Connections
/// that have greeted stay as they are.
#[derive(Clone)]
pub struct Credentials(Rc<Inner>);

struct Inner {
    keys: RefCell<Option<Keyring>>,
    identity: Identity,
    strangers: Cell<Strangers>,
    any_address: Cell<bool>,
}

impl Credentials {
    /// No keys: everybody is trusted, and nothing is sealed.
    pub fn none() -> Credentials {
        Credentials::new(None, Identity::Nobody)
    }

    /// `identity`: who this worker wants to be where it connects to.
    pub fn new(keys: Option<Keyring>, identity: Identity) -> Credentials {
        Credentials(Rc::new(Inner {
            keys: RefCell::new(keys),
            identity,
            strangers: Cell::new(Strangers::Refused),
            any_address: Cell::new(false),
        }))
    }

    /// Connections may lead to another address than the one that was meant: somebody translates addresses on the way.
    pub fn for_any_address(self) -> Credentials {
        self.0.any_address.set(true);
        self
    }

    /// Talks to processes that have no keys, too: for a cluster that is given its keys while it runs.
    pub fn tolerating_strangers(self) -> Credentials {
        self.0.strangers.set(Strangers::Tolerated);
        self
    }

    /// For connections that begin from now on.
    pub fn set_keys(&self, keys: Option<Keyring>) {
        self.0.keys.replace(keys);
    }

    /// What somebody is to us who has proved nothing. A worker without the keys of servers trusts everybody.
    pub(crate) fn stranger(&self) -> Identity {
        let keys = self.0.keys.borrow();
        let keys = keys.as_ref();
        keys.filter(|keys| keys.highest() == Identity::Server)
            .map_or(Identity::Server, Keyring::open_to)
    }

    /// `None`: it has nothing to prove.
    pub(crate) fn opener(&self, to: SocketAddr) -> Option<Opener> {
        let context = Context {
            purpose: PURPOSE,
            address: Some(to).filter(|_| !self.0.any_address.get()),
        };
        let keys = self.0.keys.borrow();
        let keys = keys.as_ref()?;
        // Whoever has lower keys only is what they give.
        let identity = self.0.identity.min(keys.highest());
        let strangers = self.0.strangers.get();
        let may_offer = identity > Identity::Nobody;
        may_offer.then(|| Opener::new(context, Some(keys), identity, strangers, nonce()))
    }

    pub(crate) fn greeted(&self, own: Option<SocketAddr>, hello: &[u8]) -> Answered {
        let context = Context {
            purpose: PURPOSE,
            address: own,
        };
        let keys = self.0.keys.borrow();
        Acceptor::greeted(context, keys.as_ref(), hello, nonce())
    }
}

fn nonce() -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    if !planted!(
        "rpc_nonce_is_used_twice",
        "all greetings have the same nonce"
    ) {
        random::fill_secret(&mut nonce);
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
