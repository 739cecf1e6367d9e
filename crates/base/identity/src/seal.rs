//! Seals: each piece of a connection that has greeted is authenticated.
//!
//! A seal is the tag of AES-128-GCM over the bytes, with a number as nonce that both sides count: so bytes that were
//! changed, left out, repeated, reordered or sent back are noticed. The bytes themselves stay readable; who needs them
//! secret uses TLS. After a failure nothing more is accepted, and the connection ends: a forger has one attempt.
//!
//! GCM computes a tag over encrypted bytes. The bytes are encrypted in a buffer of this thread, and only the tag is
//! kept. GMAC, which encrypts nothing, would do as well, but `ring` computes it several times more slowly over long
//! pieces: it takes them block by block. The example `identity_speed` measures both. The tag is as hard to forge as
//! that of a message of AES-GCM: key and nonce fix the encryption of given bytes, and a forger sees less of it.
//!
//! A longer piece is cut into parts of [`PART_BYTES`], each with a tag under a nonce of its own, and the seal is an
//! HMAC over these tags, which nobody sees. The HMAC has its own key: if the tags were authenticated by GCM under the
//! same key, changes to two parts could be chosen that cancel. So a long piece needs no memory beyond one part.

use crate::secret::Secret;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use std::cell::Cell;
use std::fmt;
use subtle::ConstantTimeEq;

pub const SEAL_BYTES: usize = 16;
/// What is authenticated at a time.
pub const PART_BYTES: usize = 64 << 10;
/// A direction of a connection ends after so many seals: after 2⁴⁸ tags somebody could notice, with probability 2⁻³²,
/// that AES is not a random function.
const SEALS_MAX: u64 = 1 << 48;
/// The number of the part if a piece is one part.
const WHOLE: u32 = u32::MAX;

pub type Seal = [u8; SEAL_BYTES];

/// The secret of one direction of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealKey(Secret);

impl SealKey {
    pub(crate) fn new(secret: Secret) -> SealKey {
        SealKey(secret)
    }
}

/// This direction has sealed as many pieces as is safe. The connection ends, and the next one has new keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedUp;

impl fmt::Display for UsedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the keys of this connection are used up; connect again")
    }
}

impl std::error::Error for UsedUp {}

/// A seal is wrong, or one was before. The connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes were changed, lost, repeated or reordered on the way; see who is between the two processes")
    }
}

impl std::error::Error for Broken {}

thread_local! {
    /// Room for one part. Nothing in it is secret: the bytes travel in the clear.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Computes the seals of one direction, in order.
struct Direction {
    parts: LessSafeKey,
    joint: Secret,
    next: u64,
}

impl Direction {
    fn new(key: SealKey) -> Direction {
        let bytes = &key.0.derive("plinth-seal-1 parts");
        let parts = UnboundKey::new(&AES_128_GCM, &bytes.bytes()[..AES_128_GCM.key_len()]);
        Direction {
            parts: LessSafeKey::new(parts.expect("a key of that length")),
            joint: key.0.derive("plinth-seal-1 joint"),
            next: 0,
        }
    }

    fn seal<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Seal, UsedUp> {
        let number = self.next;
        if number >= SEALS_MAX {
            return Err(UsedUp);
        }
        self.next += 1;
        let mut room = ROOM.take();
        room.clear();
        let mut tags: Vec<u8> = Vec::new();
        for mut piece in pieces {
            while !piece.is_empty() {
                if room.len() == PART_BYTES {
                    let part = (tags.len() / SEAL_BYTES) as u32;
                    tags.extend_from_slice(&self.tag(number, part, &mut room));
                    room.clear();
                }
                let (now, later) = piece.split_at(piece.len().min(PART_BYTES - room.len()));
                room.extend_from_slice(now);
                piece = later;
            }
        }
        let seal = if tags.is_empty() {
            self.tag(number, WHOLE, &mut room)
        } else {
            let part = (tags.len() / SEAL_BYTES) as u32;
            tags.extend_from_slice(&self.tag(number, part, &mut room));
            self.join(number, &tags)
        };
        ROOM.set(room);
        Ok(seal)
    }

    /// The tag of a part, which is encrypted in place.
    fn tag(&self, number: u64, part: u32, bytes: &mut [u8]) -> Seal {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        nonce[8..].copy_from_slice(&part.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .parts
            .seal_in_place_separate_tag(nonce, Aad::empty(), bytes)
            .expect("a part is in the bounds of GCM");
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(tag.as_ref());
        seal
    }

    fn join(&self, number: u64, tags: &[u8]) -> Seal {
        let mut context = hmac::Context::with_key(&self.joint.hmac_key());
        context.update(&number.to_be_bytes());
        context.update(tags);
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&context.sign().as_ref()[..SEAL_BYTES]);
        seal
    }
}

/// Seals what is sent, in the order in which it is sent.
pub struct Sealer(Direction);

impl Sealer {
    pub fn new(key: SealKey) -> Sealer {
        Sealer(Direction::new(key))
    }

    /// The seal of the next bytes. It does not depend on how they are cut into pieces.
    pub fn seal<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Seal, UsedUp> {
        self.0.seal(pieces)
    }
}

/// Checks the seals of what arrives, in the order in which it arrives.
pub struct Checker {
    direction: Direction,
    is_broken: bool,
}

impl Checker {
    pub fn new(key: SealKey) -> Checker {
        Checker {
            direction: Direction::new(key),
            is_broken: false,
        }
    }

    /// Whether these are the next bytes that the other side has sealed. After the first failure all is refused.
    pub fn check(&mut self, bytes: &[u8], seal: &[u8]) -> Result<(), Broken> {
        let expected = match self.direction.seal([bytes]) {
            Ok(expected) if !self.is_broken => expected,
            _ => return Err(Broken),
        };
        if !bool::from(expected[..].ct_eq(seal)) {
            self.is_broken = true;
            return Err(Broken);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
