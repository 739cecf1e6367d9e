//! What the cluster agrees on before it can agree on anything else (FDB §2.3.1, §2.3.4).
//!
//! - [`cluster_file`]: the file that names the coordinators; [`coordinators`]: where they are now; [`Family`]: whose
//!   file it is; [`Tenant`]: whose a directory is.
//! - [`key_file`] and [`certificates`]: what a process has to show to others.
//! - [`coordinator`]: one coordinator. Generation registers on its disk, and a vote for the cluster controller.
//! - [`coordinated_state`]: the value that survives any minority of coordinators (disk Paxos), and moves with them;
//!   [`SharedState`]: for several that change it by turns.
//! - [`election`]: one cluster controller at a time, as far as a majority can tell. Safety never depends on the
//!   election: two controllers at once are harmless, because only one can write the coordinated state.

pub mod certificates;
pub mod cluster_file;
pub mod coordinated_state;
pub mod coordinator;
pub mod coordinators;
pub mod election;
mod family;
pub mod key_file;
pub mod knobs;
mod look;
mod owner;
mod register;
mod shared_state;
mod tenant;
mod unusable;

pub use cluster_file::{ClusterFile, places};
pub use coordinated_state::CoordinatedState;
pub use coordinators::Coordinators;
pub use family::{DELOS_ENDING, DEV_DESCRIPTION, FARM_DESCRIPTION, Family};
pub use look::{Look, look_at, together};
pub use register::Unheard;
pub use shared_state::SharedState;
pub use tenant::{Tenant, refuse_occupied};
pub use unusable::{cannot_use, why};
