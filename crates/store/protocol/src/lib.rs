//! The messages between roles. Requests and replies, one file for each role; no behaviour.

pub mod control;
pub mod coordination;
pub mod database;
mod durable;
pub mod knobs;
pub mod log;
pub mod rate;
pub mod role;
pub mod status;
pub mod storage;
pub mod tally;
pub mod token;
pub mod transaction;

pub use durable::DurableVersion;
