//! Random fields of requests, with a preference for harmful values.

use bytes::Bytes;
use plinth_core::Uid;
use plinth_core::codec::Source;
use plinth_rpc::Interface;
use plinth_runtime::random::{self, below, chance};
use std::net::SocketAddr;

/// Keys at the edges of the key space, and beyond them.
const EDGES: [&[u8]; 6] = [
    b"",
    b"\xff",
    b"\xff\xff",
    b"\xff/keyServers/",
    b"\xff/conf",
    b"\x00",
];
/// Versions of a new database are below this.
const VERSION_MAX: u64 = 300_000_000;
const LONG: u64 = 100_000;

pub struct RandomFields<'a> {
    known: &'a [Interface],
    /// Depth of nested lists. Inner lists are short, so that the whole fits into a frame.
    lists: u32,
}

impl<'a> RandomFields<'a> {
    pub fn new(known: &'a [Interface]) -> Self {
        RandomFields { known, lists: 0 }
    }

    fn role(&self) -> Option<&Interface> {
        self.known
            .get(below(self.known.len().max(1) as u64) as usize)
    }
}

impl Source for RandomFields<'_> {
    fn below(&mut self, n: u64) -> u64 {
        below(n)
    }

    fn number(&mut self) -> u128 {
        match below(8) {
            0 => 0,
            1 => 1,
            2 => u128::MAX,
            3 => u128::from(below(100)),
            4 => 1 << below(128),
            5 => (1 << below(128)) - 1,
            6 => (u128::from(random::u64()) << 64) | u128::from(random::u64()),
            _ => u128::from(below(VERSION_MAX)),
        }
    }

    fn bytes(&mut self) -> Bytes {
        let length = match below(20) {
            0..10 => below(4),
            10..19 => below(100),
            _ => below(if self.lists < 3 { LONG } else { 100 }),
        };
        let mut bytes = vec![0; length as usize];
        random::fill(&mut bytes);
        if chance(0.3) {
            let edge = EDGES[below(EDGES.len() as u64) as usize];
            bytes.splice(0..0, edge.iter().copied());
        }
        bytes.into()
    }

    fn id(&mut self) -> Uid {
        let known = self.role().map(|role| role.id);
        known.filter(|_| chance(0.5)).unwrap_or(Uid(self.number()))
    }

    fn address(&mut self) -> SocketAddr {
        let known = self.role().map(|role| role.address);
        let other = || {
            SocketAddr::from((
                [10, 9, below(256) as u8, below(256) as u8],
                below(65_536) as u16,
            ))
        };
        known.filter(|_| chance(0.5)).unwrap_or_else(other)
    }

    fn count(&mut self) -> usize {
        self.lists += 1;
        let most = if self.lists < 3 { 1000 } else { 4 };
        (if chance(0.05) { below(most) } else { below(4) }) as usize
    }
}
