//! Versions and versionstamps.

/// A point in the serial history of the database. The sequencer advances it by about 1,000,000 a second
/// (FDB §2.4.1). Never negative in a live database; [`INVALID`] means "none".
pub type Version = i64;

/// No version.
pub const INVALID: Version = -1;

/// No database reaches this version. The bound leaves room to add to a version that comes from a message.
pub const VERSION_MAX: Version = Version::MAX / 2;

/// Versions the sequencer hands out in a second.
pub const VERSIONS_PER_SECOND: i64 = 1_000_000;

/// The most versions by which handed-out commit versions may run ahead of the newest committed one. A
/// recovery jumps at least this far ahead, so that no version of a dead epoch is ever used again.
pub const MAX_VERSIONS_IN_FLIGHT: i64 = 100 * VERSIONS_PER_SECOND;

/// Ten bytes that are unique to a transaction and ordered as commits are: 8 bytes big-endian commit
/// version, then 2 bytes big-endian order inside the commit batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Versionstamp(pub [u8; 10]);

impl Versionstamp {
    pub const LEN: usize = 10;

    pub fn new(version: Version, order: u16) -> Self {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..].copy_from_slice(&order.to_be_bytes());
        Versionstamp(bytes)
    }
    pub fn version(&self) -> Version {
        Version::from_be_bytes(self.0[..8].try_into().expect("eight bytes"))
    }
    pub fn order(&self) -> u16 {
        u16::from_be_bytes([self.0[8], self.0[9]])
    }
}
