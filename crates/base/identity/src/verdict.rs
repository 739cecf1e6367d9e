//! What the handshake of a connection with certificates has settled.

use crate::Identity;
use std::cell::{Cell, RefCell};

/// Which side of a connection we are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// We have connected.
    Opener,
    /// We were connected to.
    Acceptor,
}

/// Shared by the one who judges certificates and the one who acts on it.
#[derive(Default, Debug)]
pub struct Verdict {
    peer: Cell<Option<Identity>>,
    failure: RefCell<Option<String>>,
}

impl Verdict {
    /// The handshake is over, and the other side is this to us.
    pub fn admit(&self, peer: Identity) {
        self.peer.set(Some(peer));
    }

    /// The connection has failed for this reason, a line for the user. The first reason stays.
    pub fn refuse(&self, why: String) {
        self.failure.borrow_mut().get_or_insert(why);
    }

    /// What the other side is to us; `None` until the handshake is over.
    pub fn peer(&self) -> Option<Identity> {
        self.peer.get()
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}
