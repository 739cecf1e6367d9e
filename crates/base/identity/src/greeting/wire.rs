//! The bytes of a greeting.
//!
//! ```text
//! hello:  version 1 | number of offers: u8 | (key id: 8 bytes | identity: u8)… | address meant: 18 bytes
//!         | nonce: 32 bytes
//! answer: version 1 | 0                                     I have no keys, or you offered none
//!         version 1 | 1 | key id: 8 bytes | nonce: 32 bytes | proof: 32 bytes
//!         version 1 | 2                                     I know none of these keys
//!         version 1 | 3 | own address: 18 bytes             You meant another process
//! proof:  32 bytes
//! ```
//!
//! An address is the 16 bytes of an IPv6 address, or of an IPv4 address mapped into one, and a port (u16 be). Port 0
//! means none.
//!
//! A side that does not know the other's version answers with its own and nothing behind it.

use super::{NONCE_BYTES, Nonce, Refusal};
use crate::identity::Identity;
use crate::keys::KeyId;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const VERSION: u8 = 1;
/// Generations that an opener offers. The oldest ones beyond are left out.
pub const OFFERS_MAX: usize = 8;
pub const PROOF_BYTES: usize = 32;
const OFFER_BYTES: usize = KeyId::BYTES + 1;
const ADDRESS_BYTES: usize = 18;
/// A longer hello is none.
pub const HELLO_BYTES_MAX: usize = 2 + OFFERS_MAX * OFFER_BYTES + ADDRESS_BYTES + NONCE_BYTES;
/// A longer answer is none.
pub const ANSWER_BYTES_MAX: usize = 2 + KeyId::BYTES + NONCE_BYTES + PROOF_BYTES;

const OPEN: u8 = 0;
const CHOSEN: u8 = 1;
const UNKNOWN_KEYS: u8 = 2;
const MISDIRECTED: u8 = 3;

fn encode_address(address: Option<SocketAddr>) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    if let Some(address) = address {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes[..16].copy_from_slice(&ip.octets());
        bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    }
    bytes
}

fn decode_address(bytes: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let [ip @ .., high, low] = bytes;
    let port = u16::from_be_bytes([*high, *low]);
    let ip = IpAddr::V6(Ipv6Addr::from(*ip)).to_canonical();
    (port != 0).then(|| SocketAddr::new(ip, port))
}

pub(super) fn is_same_place(one: SocketAddr, other: SocketAddr) -> bool {
    encode_address(Some(one)) == encode_address(Some(other))
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub offers: Vec<(KeyId, Identity)>,
    /// The process that the opener wants.
    pub meant: Option<SocketAddr>,
    pub nonce: Nonce,
}

impl Hello {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HELLO_BYTES_MAX);
        bytes.extend([VERSION, self.offers.len() as u8]);
        for (id, identity) in &self.offers {
            bytes.extend_from_slice(id.bytes());
            bytes.push(identity.number());
        }
        bytes.extend_from_slice(&encode_address(self.meant));
        bytes.extend_from_slice(&self.nonce);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Hello, Refusal> {
        let (count, rest) = after_version(bytes)?;
        if usize::from(count) > OFFERS_MAX {
            return Err(Refusal::Malformed);
        }
        let parts = || {
            let (offers, rest) = rest.split_at_checked(usize::from(count) * OFFER_BYTES)?;
            let (meant, nonce) = rest.split_first_chunk()?;
            let offers: Option<Vec<_>> = offers.chunks_exact(OFFER_BYTES).map(offer).collect();
            Some(Hello {
                offers: offers?,
                meant: decode_address(meant),
                nonce: nonce.try_into().ok()?,
            })
        };
        parts().ok_or(Refusal::Malformed)
    }
}

/// Nobody has no key to offer.
fn offer(bytes: &[u8]) -> Option<(KeyId, Identity)> {
    let (identity, id) = bytes.split_last()?;
    let identity = Identity::from_number(*identity).filter(|one| *one != Identity::Nobody)?;
    Some((KeyId::new(id.try_into().ok()?), identity))
}

/// The second byte, and what follows it.
fn after_version(bytes: &[u8]) -> Result<(u8, &[u8]), Refusal> {
    match bytes {
        [VERSION, second, rest @ ..] => Ok((*second, rest)),
        [VERSION] | [] => Err(Refusal::Malformed),
        [version, ..] => Err(Refusal::Version(*version)),
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer<'a> {
    Open,
    Chosen { id: KeyId, proof: &'a [u8] },
    UnknownKeys,
    Misdirected(Option<SocketAddr>),
}

impl Answer<'_> {
    pub fn open() -> Vec<u8> {
        vec![VERSION, OPEN]
    }

    pub fn unknown_keys() -> Vec<u8> {
        vec![VERSION, UNKNOWN_KEYS]
    }

    pub fn misdirected(own: SocketAddr) -> Vec<u8> {
        let address = encode_address(Some(own));
        [&[VERSION, MISDIRECTED][..], &address].concat()
    }

    /// A choice, without its proof.
    pub fn chosen(id: KeyId, nonce: &Nonce) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ANSWER_BYTES_MAX);
        bytes.extend([VERSION, CHOSEN]);
        bytes.extend_from_slice(id.bytes());
        bytes.extend_from_slice(nonce);
        bytes
    }

    /// The answer to a hello of another version.
    pub fn version() -> Vec<u8> {
        vec![VERSION]
    }

    pub fn decode(bytes: &[u8]) -> Result<Answer<'_>, Refusal> {
        let parts = |rest| choice(rest).ok_or(Refusal::Malformed);
        match after_version(bytes)? {
            (OPEN, []) => Ok(Answer::Open),
            (UNKNOWN_KEYS, []) => Ok(Answer::UnknownKeys),
            (MISDIRECTED, rest) => {
                let address = rest.try_into().map_err(|_| Refusal::Malformed)?;
                Ok(Answer::Misdirected(decode_address(address)))
            }
            (CHOSEN, rest) => parts(rest),
            _ => Err(Refusal::Malformed),
        }
    }
}

fn choice(bytes: &[u8]) -> Option<Answer<'_>> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (_nonce, proof) = rest.split_at_checked(NONCE_BYTES)?;
    let id = KeyId::new(*id);
    (proof.len() == PROOF_BYTES).then_some(Answer::Chosen { id, proof })
}

/// The part of a choice that its proof covers.
pub(super) fn before_proof(answer: &[u8]) -> &[u8] {
    &answer[..answer.len() - PROOF_BYTES]
}
