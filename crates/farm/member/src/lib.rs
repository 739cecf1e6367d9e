//! Floor 5: membership of the in-memory engine: configurations, regions, and the clock of a process.

mod change;
mod core;
mod decide;
mod frame;
mod life;
mod manage;
mod member;
mod placement;
mod post;
mod record;
mod register;
mod view;

pub use frame::TAG;
pub use life::Life;
pub use member::{Member, Options, create};
pub use placement::{NoRoom, Regions};
pub use record::{
    Cluster, Place, REGIONS_MAX, REPLICATION_MAX, Record, Replica, Seat, ZONE_BYTES_MAX, is_lost,
    primary,
};
pub use register::{CoordinatedRegister, LocalRegister, Register};
pub use view::{Left, View};

#[cfg(test)]
mod tests;
