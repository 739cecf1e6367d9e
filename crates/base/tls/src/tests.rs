//! Two sides in memory, with somebody in between.

use crate::testing::{Authority, Pair, Wanted, material, self_signed};
use crate::{Certificates, Material, Policy};
use bytes::BytesMut;
use plinth_identity::{Identity, Side, Verdict};
use plinth_runtime::net::Layer;
use rcgen::ExtendedKeyUsagePurpose;
use std::rc::Rc;

mod files;
mod guests;
mod peers;
mod tampering;

fn policy(rules: &[&str], identities: &[&str]) -> Policy {
    Policy::parse(rules.iter().copied(), identities.iter().copied()).expect("valid")
}

fn certificates(own: &Pair, ca: &str, policy: Policy) -> Certificates {
    Certificates::new(&material(own, ca), policy).expect("they fit")
}

/// One side, and what it has heard.
struct End {
    layer: Box<dyn Layer>,
    verdict: Rc<Verdict>,
    heard: BytesMut,
    /// What was sent to it and is not whole yet.
    unread: BytesMut,
    has_failed: bool,
}

impl End {
    fn new(certificates: &Certificates, side: Side) -> End {
        let (layer, verdict) = certificates.begin(side);
        End {
            layer,
            verdict,
            heard: BytesMut::new(),
            unread: BytesMut::new(),
            has_failed: false,
        }
    }

    /// Takes bytes and returns what it answers.
    fn take(&mut self, bytes: &[u8]) -> BytesMut {
        let mut answer = BytesMut::new();
        if !self.has_failed {
            self.unread.extend_from_slice(bytes);
            let received = self
                .layer
                .receive(&mut self.unread, &mut self.heard, &mut answer);
            self.has_failed = received.is_err();
        }
        answer
    }

    fn say(&mut self, what: &[u8]) -> BytesMut {
        let mut wire = BytesMut::new();
        self.layer.send(what, &mut wire).expect("it has greeted");
        wire
    }

    fn is_open(&self) -> bool {
        self.layer.is_greeted() && !self.has_failed
    }

    fn failure(&self) -> String {
        self.verdict
            .failure()
            .unwrap_or_else(|| "it has not failed".into())
    }
}

/// Lets both sides greet.
fn greet(opener: &Certificates, acceptor: &Certificates) -> (End, End) {
    let mut opener = End::new(opener, Side::Opener);
    let mut acceptor = End::new(acceptor, Side::Acceptor);
    let mut to_acceptor = opener.take(&[]);
    loop {
        let to_opener = acceptor.take(&to_acceptor);
        to_acceptor = opener.take(&to_opener);
        if to_acceptor.is_empty() && to_opener.is_empty() {
            return (opener, acceptor);
        }
    }
}

/// One authority, and what it has issued.
struct Place {
    authority: Authority,
}

impl Place {
    fn new() -> Place {
        Place {
            authority: Authority::new("Our root"),
        }
    }

    fn issue(&self, name: &str) -> Pair {
        self.authority.issue(&Wanted::named(name))
    }

    fn process(&self, name: &str, policy: Policy) -> Certificates {
        certificates(&self.issue(name), &self.authority.pem, policy)
    }
}
