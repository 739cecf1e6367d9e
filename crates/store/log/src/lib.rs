//! The log system (FDB §2.3.2, §2.4.3, §2.4.4).
//!
//! - [`disk_queue`]: an append-only file of checksummed blocks, one sync for all that has gathered.
//! - [`log_server`]: the state machine: versions in a chain, seen by tag.
//! - [`serve`]: its shell, and its restart from disk.
//! - [`creation`]: makes the log server of a new generation, with the copying that a recovery asks for.
//! - [`damaged`]: answers in the place of a log server whose files are damaged.
//! - [`cursor`]: reads one tag through all generations of the log.

mod block_index;
pub mod creation;
pub mod cursor;
pub mod damaged;
pub mod disk_queue;
mod disk_reads;
mod entries;
mod holes;
pub mod knobs;
pub mod log_server;
pub mod serve;
mod traces;
