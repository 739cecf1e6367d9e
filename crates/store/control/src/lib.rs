//! The control plane (FDB §2.3.1, §2.3.4, §2.3.5, §2.4.4).
//!
//! - [`controller`]: the cluster controller, which knows the workers and keeps one epoch alive.
//! - [`recovery`]: from the end of one epoch to the first commit of the next, as one linear story.
//! - [`configured`]: the configuration that operators have set.
//! - [`coordinators`]: chooses and checks the coordinators.
//! - [`management`]: changes that operators make to a database.
//! - [`access`]: who may read and write what, as operators change it.
//! - [`movement`]: how a shard goes from one team to another.
//! - [`consistency`]: checks that all replicas hold the same rows.
//! - [`placement`]: which worker gets which role. Pure.
//! - [`distribution`]: what operators say about that: off, or a zone under maintenance.
//! - [`distributor`]: keeps every shard on a fit team, and balances the bytes.
//! - [`replica`]: whether a copy counts: its server answers and is not far behind. Pure.
//! - [`exclusion`]: processes that must have neither data nor roles.
//! - [`ratekeeper`]: how many transactions may begin.
//! - [`full_disks`]: replaces log servers whose disk is full or sick.
//! - `growth`: takes better places for log servers, when there are some: for more of them, and none excluded.
//! - [`singletons`]: keeps the roles running that do not belong to the epoch.
//! - `beat`: one commit a second, by which all processes see that commits go through.
//! - `streams`: removes entries of streams that nobody needs.
//! - [`creation`]: the first state of a new database. Pure.

pub mod access;
mod beat;
mod cluster;
pub mod configured;
pub mod consistency;
mod context;
pub mod controller;
pub mod coordinators;
pub mod creation;
pub mod distribution;
pub mod distributor;
pub mod exclusion;
pub mod full_disks;
mod growth;
pub mod knobs;
pub mod management;
pub mod movement;
pub mod phase;
pub mod placement;
mod polls;
pub mod ratekeeper;
pub mod recovery;
mod recruit;
pub mod replica;
mod rows;
pub mod singletons;
mod status;
mod streams;
#[cfg(test)]
mod testing;
mod time_keeper;

pub use status::damage_line;
