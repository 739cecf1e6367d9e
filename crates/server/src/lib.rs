//! Floor 7: the worker that hosts roles, and the cluster inside one process.
//!
//! - [`worker`]: one event loop with one address. Registers with the cluster controller, makes the roles it is asked
//!   for, brings back from disk what it hosted before.
//! - [`data_directory`]: the lock, the owner and the contents of a data directory.
//! - [`metrics`]: what a worker can say of itself in numbers.
//! - [`embedded`]: a whole durable cluster inside the caller's process.

pub mod data_directory;
pub mod embedded;
mod hosting;
pub mod metrics;
mod snapshots;
mod vitals;
pub mod worker;

pub use embedded::{Embedded, EmbeddedOptions, OpenEmbedded, create_database};
pub use worker::{WorkerConfig, run_worker, run_worker_on};
