//! Floor 8: FoundationDB's C API (versions 510 to 800) over the Plinth client, as `libfdb_c.so`.
//!
//! Applications call from any of their threads; the client lives on event loops of its own, which the application starts with
//! `fdb_run_network`. So every call posts its work to a loop and, where it has a result, gives a future back; what one thread
//! posts for one transaction happens in that order. Loops share nothing; each has its own connection to a cluster, and
//! transactions are spread over them (`client_threads_per_version`).
//!
//! - [`network`]: API version, options, the loops' life.
//! - [`future`]: results, and how threads and callbacks wait for them.
//! - [`database`], [`transaction`]: handles; the objects behind them live in [`state`] on their loop.
//! - [`mapped`]: index rows, and the rows that they lead to.
//! - [`absent`]: what FoundationDB has and Plinth does not: each call gives `unsupported_operation`.
//!
//! A caller's wrong pointer is out of scope; everything else that it can pass ends in FoundationDB's error code.

#![allow(clippy::missing_safety_doc)] // every function is the C API's own: its contract is the header's

/// Futures are made on one thread and destroyed on another, which is what this allocator is made for. Builds for tests have
/// the system's, so that valgrind sees every byte.
#[cfg(not(debug_assertions))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod absent;
mod arguments;
mod database;
mod future;
mod network;
mod options;
mod state;
mod transaction;
