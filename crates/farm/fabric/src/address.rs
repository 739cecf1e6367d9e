//! Names of machines and places, limits, and what can go wrong.

use plinth_core::{codec_for, variants};

/// Most machines that a memory has rings for.
pub const MACHINES_MAX: usize = 1024;
/// Most regions of a memory.
pub const REGIONS_MAX: usize = 1024;
/// Most bytes of one read or write, so that none holds up the loop of who serves it.
pub const OPERATION_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a message. A ring may allow fewer.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
pub(crate) const WORD_BYTES: usize = 8;

/// A machine's number, below the number of machines of the cluster's memories.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Machine(pub u16);

codec_for!(Machine(u16));

/// A word of a region of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    pub machine: Machine,
    pub region: u16,
    /// In bytes, a multiple of eight.
    pub offset: u64,
}

/// Who asks, and in which configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    pub machine: Machine,
    pub configuration: u64,
}

variants! {
    /// Why an operation was not acknowledged. It has had no effect, except after [`Error::Unreachable`], when nobody
    /// knows: it has had all of it, a part (of a write), or none, and will have no more once the receiver has closed
    /// the configuration.
    #[derive(Copy, Eq)]
    pub enum Error {
        /// The machine does not answer, or was not opened.
        Unreachable = 0,
        /// One side has closed the configuration or the connection, or does not have the other as a member.
        Closed = 1,
        /// No such region, or the range is not in it.
        OutOfBounds = 2,
        /// Not whole words.
        Unaligned = 3,
        /// Longer than an operation, or a message for this ring, may be.
        TooLarge = 4,
        /// The receiver has not released enough messages yet, or too many operations are under way.
        Full = 5,
        /// The other's ring contradicts itself.
        Damaged = 6,
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::Unreachable => "the machine does not answer",
            Error::Closed => "the configuration or the connection is closed",
            Error::OutOfBounds => "the range is not in the region",
            Error::Unaligned => "the range is not of whole words",
            Error::TooLarge => "the operation or the message is too large",
            Error::Full => "the receiver has no room for more",
            Error::Damaged => "the receiver's ring is damaged",
        })
    }
}

impl std::error::Error for Error {}
