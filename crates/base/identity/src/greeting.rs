//! The greeting: both sides of a new connection prove that they know a key, without showing it.
//!
//! ```text
//! opener                                           acceptor
//!   |── hello: keys it could use, a nonce ────────────>|
//!   |<── answer: the key chosen, a nonce, its proof ───|   or: I have no keys, I know none of these
//!   |── its proof ────────────────────────────────────>|
//! ```
//!
//! A proof is an HMAC over everything that was said before it, both nonces included, under a key that is derived from
//! the chosen one. The two sides prove under different labels. So a proof is good once, in one direction, for one
//! purpose and one process ([`Context`]). Both sides derive the keys of the [seals](crate::seal) from the same words.
//!
//! An acceptor has the keys of servers, and therefore all lower ones. The opener learns that the other side knows the
//! opener's own key. Others who have this very key could stand there as well: those who share a key trust each other,
//! or use TLS.
//!
//! Without keys on one side both remain nobody to each other, and nothing is sealed. An opener with keys takes this
//! for a refusal, unless it was told otherwise ([`Strangers`]), because an attacker can say it too.

mod proof;
mod wire;

#[cfg(test)]
mod tests;

pub use wire::{ANSWER_BYTES_MAX, HELLO_BYTES_MAX, OFFERS_MAX, PROOF_BYTES};

use crate::identity::Identity;
use crate::keys::{Key, KeyId, Keyring};
use crate::seal::SealKey;
use plinth_core::texts;
use proof::{Side, Transcript};
use std::fmt;
use std::net::SocketAddr;
use wire::{Answer, Hello};

pub const NONCE_BYTES: usize = 32;

/// Random bytes of the operating system, for one greeting. If they are used twice, a recorded proof is good again.
pub type Nonce = [u8; NONCE_BYTES];

/// What the connection is for, and where it leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// For example `rpc`. A proof for one purpose is no proof for another.
    pub purpose: &'static str,
    /// The opener: where it connects to. The acceptor: the address that others have of it. If both are told, they
    /// must be the same. Otherwise somebody on the way could lead all connections to one of three coordinators, whose
    /// single vote would look like a majority. `None` if addresses are translated on the way.
    pub address: Option<SocketAddr>,
}

/// What an opener with keys does when the other side has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strangers {
    Refused,
    /// For a cluster that is given its keys while it runs. It talks to anybody.
    Tolerated,
}

/// What a greeting has settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What the other side is to us.
    pub peer: Identity,
    /// What we are to the other side.
    pub own: Identity,
    /// By which key; `None` if both are nobody.
    pub key: Option<KeyId>,
    /// `None` if both are nobody.
    pub session: Option<Session>,
}

impl Outcome {
    fn strangers() -> Outcome {
        Outcome {
            peer: Identity::Nobody,
            own: Identity::Nobody,
            key: None,
            session: None,
        }
    }
}

/// The keys of the two directions of a connection, as one side sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub send: SealKey,
    pub receive: SealKey,
}

texts! {
    /// Why a greeting has failed. The connection is closed.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Refusal {
        /// These bytes are not what is said at this point.
        Malformed = "the greeting is malformed: the other side is not a Plinth process";
        /// The other side greets in another way: another release.
        Version(version: u8) = "the other side greets in version {version}; use the same release on both";
        /// To the opener: the other side has no keys, and we have these.
        PeerHasNoKeys(ids: Vec<KeyId>) =
            "the other side has no keys; give it the key file with {}, or remove the key file here", Ids(ids);
        /// To the opener: the other side knows none of our keys.
        KeysUnknownToPeer(ids: Vec<KeyId>) =
            "the other side does not know our key {}; give it that key, or take its key file here", Ids(ids);
        /// To the acceptor: the other side has keys, and we know none of them.
        KeysUnknownToUs(ids: Vec<KeyId>) =
            "the other side has key {}, which is not in our key file; add it, or give the other side ours", Ids(ids);
        /// The connection leads to another process than the opener meant.
        Misdirected { meant: Option<SocketAddr>, reached: Option<SocketAddr> } =
            "the connection was meant for {} and has reached {}; see who leads it there, or whether addresses are \
            translated on the way", Place(meant), Place(reached);
        /// The other side does not have the key that it named, or somebody has changed what was said.
        WrongProof(id: KeyId) = "the other side names key {id} and does not have it; somebody may be in between";
        /// The handshake by certificates has failed, for the reason in this line.
        Certificate(why: String) = "{why}";
    }
}

struct Ids<'a>(&'a [KeyId]);

impl fmt::Display for Ids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.0.iter().map(KeyId::to_string).collect();
        write!(f, "{}", ids.join(", "))
    }
}

struct Place<'a>(&'a Option<SocketAddr>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("any process"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The side that has connected.
pub struct Opener {
    context: Context,
    offers: Vec<Key>,
    strangers: Strangers,
    hello: Vec<u8>,
}

impl Opener {
    /// Wants to be `identity`, by the keys of `keys` that give it. Without such keys it wants to be nobody.
    pub fn new(
        context: Context,
        keys: Option<&Keyring>,
        identity: Identity,
        strangers: Strangers,
        nonce: Nonce,
    ) -> Opener {
        let mut offers = keys.map_or_else(Vec::new, |keys| keys.of(identity));
        offers.truncate(OFFERS_MAX);
        let hello = Hello {
            offers: offers
                .iter()
                .map(|key| (key.id(), key.identity()))
                .collect(),
            meant: context.address,
            nonce,
        };
        Opener {
            context,
            offers,
            strangers,
            hello: hello.encode(),
        }
    }

    /// What to say first.
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Takes the answer. Returns what to say next, if anything, and what has been settled.
    pub fn answered(self, answer: &[u8]) -> Result<(Option<[u8; PROOF_BYTES]>, Outcome), Refusal> {
        let ids = || self.offers.iter().map(Key::id).collect();
        let (id, proof) = match Answer::decode(answer)? {
            Answer::Open if self.offers.is_empty() || self.strangers == Strangers::Tolerated => {
                return Ok((None, Outcome::strangers()));
            }
            Answer::Open => return Err(Refusal::PeerHasNoKeys(ids())),
            Answer::UnknownKeys if self.offers.is_empty() => return Err(Refusal::Malformed),
            Answer::UnknownKeys => return Err(Refusal::KeysUnknownToPeer(ids())),
            Answer::Misdirected(reached) => {
                let meant = self.context.address;
                return Err(Refusal::Misdirected { meant, reached });
            }
            Answer::Chosen { id, proof } => (id, proof),
        };
        let key = self.offers.iter().find(|key| key.id() == id);
        let key = key.ok_or(Refusal::Malformed)?;
        let mut said = Transcript::new(self.context.purpose, &self.hello);
        said.add(wire::before_proof(answer));
        if !said.is_proved(key, Side::Acceptor, proof) {
            return Err(Refusal::WrongProof(id));
        }
        said.add(proof);
        let own_proof = said.prove(key, Side::Opener);
        said.add(&own_proof);
        let outcome = Outcome {
            peer: Identity::Server,
            own: key.identity(),
            key: Some(id),
            session: Some(said.session(key, Side::Opener)),
        };
        Ok((Some(own_proof), outcome))
    }
}

/// The refusal of a hello that means another process than the one at `own`, if it does.
fn misdirected(own: Option<SocketAddr>, meant: Option<SocketAddr>) -> Option<Answered> {
    let (reached, wanted) = (own?, meant?);
    let refusal = Refusal::Misdirected {
        meant,
        reached: own,
    };
    let is_here = wire::is_same_place(wanted, reached);
    (!is_here).then(|| Answered::refused(Answer::misdirected(reached), refusal))
}

/// The side that was connected to. It waits for the opener's proof.
pub struct Acceptor {
    key: Key,
    said: Transcript,
}

/// What an acceptor does after a hello.
pub enum Next {
    /// Nothing more is said.
    Settled(Outcome),
    Proof(Acceptor),
    /// The connection is closed when the answer has been sent.
    Refused(Refusal),
}

/// What an acceptor says to a hello, and what it does then.
pub struct Answered {
    /// Empty if there is no answer to such a hello.
    pub answer: Vec<u8>,
    pub next: Next,
}

impl Answered {
    fn refused(answer: Vec<u8>, refusal: Refusal) -> Answered {
        let next = Next::Refused(refusal);
        Answered { answer, next }
    }
}

impl Acceptor {
    /// Takes the hello of a new connection. A process whose keys do not make it a server accepts like one without.
    pub fn greeted(
        context: Context,
        keys: Option<&Keyring>,
        hello: &[u8],
        nonce: Nonce,
    ) -> Answered {
        let Hello { offers, meant, .. } = match Hello::decode(hello) {
            Ok(hello) => hello,
            Err(refusal @ Refusal::Version(_)) => {
                return Answered::refused(Answer::version(), refusal);
            }
            Err(refusal) => return Answered::refused(Vec::new(), refusal),
        };
        let keys = keys.filter(|keys| keys.highest() == Identity::Server);
        let Some(keys) = keys.filter(|_| !offers.is_empty()) else {
            let next = Next::Settled(Outcome::strangers());
            let answer = Answer::open();
            return Answered { answer, next };
        };
        if let Some(misdirected) = misdirected(context.address, meant) {
            return misdirected;
        }
        let known = |(id, identity): &(KeyId, Identity)| keys.get(*id, *identity);
        let Some(key) = offers.iter().find_map(known) else {
            let ids = offers.into_iter().map(|(id, _)| id).collect();
            return Answered::refused(Answer::unknown_keys(), Refusal::KeysUnknownToUs(ids));
        };
        let mut said = Transcript::new(context.purpose, hello);
        let mut answer = Answer::chosen(key.id(), &nonce);
        said.add(&answer);
        let proof = said.prove(key, Side::Acceptor);
        said.add(&proof);
        answer.extend_from_slice(&proof);
        let key = key.clone();
        let next = Next::Proof(Acceptor { key, said });
        Answered { answer, next }
    }

    /// Takes the hello of a connection on which both sides have shown certificates, and whose bytes are protected
    /// already: only the address counts. `peer`: what the certificate stands for.
    pub fn certified(context: Context, peer: Identity, hello: &[u8]) -> Answered {
        let meant = match Hello::decode(hello) {
            Ok(hello) => hello.meant,
            Err(refusal @ Refusal::Version(_)) => {
                return Answered::refused(Answer::version(), refusal);
            }
            Err(refusal) => return Answered::refused(Vec::new(), refusal),
        };
        if let Some(misdirected) = misdirected(context.address, meant) {
            return misdirected;
        }
        let next = Next::Settled(Outcome {
            peer,
            own: Identity::Server,
            key: None,
            session: None,
        });
        let answer = Answer::open();
        Answered { answer, next }
    }

    /// Takes the opener's proof.
    pub fn proved(mut self, proof: &[u8]) -> Result<Outcome, Refusal> {
        if proof.len() != PROOF_BYTES {
            return Err(Refusal::Malformed);
        }
        if !self.said.is_proved(&self.key, Side::Opener, proof) {
            return Err(Refusal::WrongProof(self.key.id()));
        }
        self.said.add(proof);
        Ok(Outcome {
            peer: self.key.identity(),
            own: Identity::Server,
            key: Some(self.key.id()),
            session: Some(self.said.session(&self.key, Side::Acceptor)),
        })
    }
}
