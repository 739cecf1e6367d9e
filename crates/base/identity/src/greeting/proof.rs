//! What was said so far, the proofs over it, and the keys that follow from it.

use super::Session;
use crate::keys::Key;
use crate::seal::SealKey;
use crate::secret::Secret;
use ring::digest::{self, SHA256};
use ring::hmac;

/// Who proves. The two never prove the same words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Opener,
    Acceptor,
}

impl Side {
    fn label(self) -> &'static [u8] {
        match self {
            Side::Opener => b"plinth-greeting-1 proof of the opener",
            Side::Acceptor => b"plinth-greeting-1 proof of the acceptor",
        }
    }
}

/// A hash of everything that was said, piece by piece with its length, so that no two conversations share one.
#[derive(Clone)]
pub(super) struct Transcript(digest::Context);

impl Transcript {
    pub fn new(purpose: &str, hello: &[u8]) -> Transcript {
        let mut said = Transcript(digest::Context::new(&SHA256));
        said.add(b"plinth-greeting-1");
        said.add(purpose.as_bytes());
        said.add(hello);
        said
    }

    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(&(piece.len() as u64).to_le_bytes());
        self.0.update(piece);
    }

    fn hash(&self) -> digest::Digest {
        self.0.clone().finish()
    }

    fn words_of(&self, side: Side) -> Vec<u8> {
        [side.label(), self.hash().as_ref()].concat()
    }

    pub fn prove(&self, key: &Key, side: Side) -> [u8; super::PROOF_BYTES] {
        let tag = hmac::sign(&proof_key(key), &self.words_of(side));
        let mut proof = [0; super::PROOF_BYTES];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// In constant time.
    pub fn is_proved(&self, key: &Key, side: Side, proof: &[u8]) -> bool {
        hmac::verify(&proof_key(key), &self.words_of(side), proof).is_ok()
    }

    /// The keys of both directions, after the last proof was added.
    pub fn session(&self, key: &Key, side: Side) -> Session {
        let secret = key.secret().derive("plinth-greeting-1 sessions");
        let secret = secret.derive_with_salt(self.hash().as_ref(), "plinth-greeting-1 session");
        let direction = |label: &str| SealKey::new(secret.derive(label));
        let there = direction("from the opener to the acceptor");
        let back = direction("from the acceptor to the opener");
        match side {
            Side::Opener => Session {
                send: there,
                receive: back,
            },
            Side::Acceptor => Session {
                send: back,
                receive: there,
            },
        }
    }
}

/// A key that is used for nothing but proofs.
fn proof_key(key: &Key) -> hmac::Key {
    let secret: Secret = key.secret().derive("plinth-greeting-1 proofs");
    secret.hmac_key()
}
