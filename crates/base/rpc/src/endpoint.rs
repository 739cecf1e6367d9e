//! Addresses of roles and of their requests.

use crate::Request;
use plinth_core::{Uid, record};
use std::net::SocketAddr;

/// Address and token of one kind of request at one role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub token: u64,
}

record! {
    /// A role as the rest of the cluster refers to it: the address of its worker, and its id. Every request type has
    /// its own endpoint there, derived from both.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub struct Interface {
        pub address: SocketAddr,
        pub id: Uid,
    }
}

impl Interface {
    pub fn new(address: SocketAddr, id: Uid) -> Self {
        Interface { address, id }
    }
    pub fn endpoint<R: Request>(&self) -> Endpoint {
        Endpoint {
            address: self.address,
            token: token::<R>(self.id),
        }
    }
}

/// The token of request `R` at role `id`. Never one of the reserved small numbers of [`crate::frame`].
pub(crate) fn token<R: Request>(id: Uid) -> u64 {
    token_of(R::METHOD, id)
}

pub(crate) fn token_of(method: u16, id: Uid) -> u64 {
    let mut x = (id.0 >> 64) as u64 ^ (id.0 as u64).rotate_left(32);
    x ^= u64::from(method).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)) | 1 << 63
}
