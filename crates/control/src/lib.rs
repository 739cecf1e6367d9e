//! Floor 6: the control plane (FDB §2.3.1, §2.3.4, §2.3.5, §2.4.4).
//!
//! - [`controller`]: the cluster controller, which knows the workers and keeps one epoch alive.
//! - [`recovery`]: from the end of one epoch to the first commit of the next, as one linear story.
//! - [`movement`]: how a shard goes from one team to another.
//! - [`placement`]: which worker gets which role. Pure.
//! - [`full_disks`]: log servers without room, and how their place is given to others.
//! - [`creation`]: the first state of a new database. Pure.

pub mod controller;
pub mod creation;
pub mod full_disks;
pub mod movement;
pub mod placement;
pub mod recovery;
mod status;
mod time_keeper;
