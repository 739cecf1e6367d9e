//! The worker that hosts roles, and the cluster inside one process.
//!
//! - [`worker`]: one event loop with one address. Registers with the cluster controller, makes the roles it is asked
//!   for, brings back from disk what it hosted before.
//! - [`data_directory`]: the lock, the owner and the contents of a data directory.
//! - `hosting`: the roles of a worker, and those that wait for its disk.
//! - `access`: what is configured for clients, for the storage servers of a worker.
//! - `disk_watch`: whether the disk of the worker can be trusted.
//! - [`metrics`]: the metrics of a worker.
//! - `readiness`: whether a user could work at a worker just now.
//! - [`embedded`]: a whole durable cluster inside the caller's process.

mod access;
mod data_directory;
mod disk_watch;
pub mod embedded;
mod hosting;
pub mod knobs;
pub mod metrics;
mod own_name;
mod progress;
mod rates;
mod readiness;
mod snapshots;
mod vitals;
pub mod worker;

pub use data_directory::{FORMAT as DATA_DIRECTORY_FORMAT, accept_lost_registers};
pub use embedded::{
    Embedded, EmbeddedOptions, NotCreated, OpenEmbedded, create_database, create_database_as,
};
pub use plinth_engine::SSD_CACHE_BYTES;
pub use worker::{WorkerConfig, run_worker, run_worker_on};
