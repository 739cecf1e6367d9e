//! Identifiers of roles, tags and epochs.

use std::fmt;

/// Identifies one instance of a role or process, for ever. 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uid(pub u128);

impl Uid {
    pub const NONE: Uid = Uid(0);
    pub fn from_parts(high: u64, low: u64) -> Self {
        Uid((u128::from(high) << 64) | u128::from(low))
    }
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Uid(u128::from_be_bytes(bytes.try_into().ok()?)))
    }
    /// The first 64 bits: enough to identify it in a log line.
    pub fn short(self) -> u64 {
        (self.0 >> 64) as u64
    }
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32)
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten()
            .map(Uid)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.short())
    }
}

/// Names a stream of mutations in the log: one for each storage server, and a few special ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u32);

impl Tag {
    /// The stream of system-key mutations, from which a recovery rebuilds the proxies' copy of the system keyspace.
    pub const SYSTEM: Tag = Tag(u32::MAX);
}

/// One life of the transaction system (FDB §2.3.5). Grows by at least one with every recovery.
pub type Epoch = u64;
