//! Floor 6: the control plane (FDB §2.3.1, §2.3.4, §2.3.5, §2.4.4).
//!
//! - [`controller`]: the cluster controller, which knows the workers and keeps one epoch alive.
//! - [`recovery`]: from the end of one epoch to the first commit of the next, as one linear story.
//! - [`configured`]: what operators have decided.
//! - [`coordinators`]: which processes are to be the coordinators.
//! - [`management`]: what operators change about a database.
//! - [`movement`]: how a shard goes from one team to another.
//! - [`consistency`]: all replicas hold the same rows.
//! - [`placement`]: which worker gets which role. Pure.
//! - [`distributor`]: keeps every shard on a fit team, and the bytes even.
//! - [`exclusion`]: who is to have neither data nor roles.
//! - [`ratekeeper`]: how many transactions may begin.
//! - [`full_disks`]: log servers without room, and how their place is given to others.
//! - [`singletons`]: what the controller keeps up beside the epoch's roles.
//! - [`creation`]: the first state of a new database. Pure.

pub mod configured;
pub mod consistency;
pub mod controller;
pub mod coordinators;
pub mod creation;
pub mod distributor;
pub mod exclusion;
pub mod full_disks;
pub mod management;
pub mod movement;
pub mod phase;
pub mod placement;
mod polls;
pub mod ratekeeper;
pub mod recovery;
mod recruit;
pub mod singletons;
mod status;
#[cfg(test)]
mod testing;
mod time_keeper;
