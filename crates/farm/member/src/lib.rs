//! Floor 5: membership of the in-memory engine: configurations, regions, and the clock of a process.

mod change;
mod placement;
mod record;
mod register;

pub use placement::{NoRoom, Regions};
pub use record::{
    Cluster, Place, REGIONS_MAX, REPLICATION_MAX, Record, Replica, Seat, ZONE_BYTES_MAX, is_lost,
    primary,
};
pub use register::{CoordinatedRegister, LocalRegister, Register};

#[cfg(test)]
mod tests;
