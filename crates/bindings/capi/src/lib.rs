//! FoundationDB's C API (versions 510 to 800) over the Plinth client, as `libfdb_c.so`.
//!
//! Applications call from any of their threads. The client runs on event loops of its own, which the application
//! starts with `fdb_run_network`. So every call posts its work to a loop, and a call with a result returns a future.
//! The calls of one thread for one transaction are executed in their order. Loops share nothing; each has its own
//! connection to a cluster, and transactions are spread over them (`client_threads_per_version`).
//!
//! Imports go down, never in a circle:
//!
//! ```text
//! database ──► transaction     handles, and the functions that take them
//! cdc                          streams of changes, as FoundationDB 8.0 names them
//! network                      API version, network options, start and end of the loops
//! connection                   one database or tenant, on every loop
//! state                        the objects behind the handles, on their loop
//! future                       results, and how threads and callbacks wait for them
//! payload, loops               what a result holds; the loops, and how work reaches them
//! captured ──► entries         the structures of the header that point into results
//! arguments, options           what callers pass
//! ```
//!
//! `absent` has the functions that Plinth lacks: each call returns `unsupported_operation`.
//!
//! A wrong pointer from a caller is out of scope; every other wrong argument ends in FoundationDB's error code.

#![allow(clippy::missing_safety_doc)] // every function is the C API's own: its contract is the header's

/// Futures are made on one thread and destroyed on another, and this allocator is made for that. Test builds use the
/// system's allocator, so that valgrind sees every byte.
#[cfg(not(debug_assertions))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod absent;
mod arguments;
mod captured;
mod cdc;
mod connection;
mod database;
mod entries;
mod future;
mod loops;
mod network;
mod options;
mod payload;
mod state;
mod tls;
mod transaction;
