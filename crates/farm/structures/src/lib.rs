//! Structures of objects for the in-memory engine, after *Fast General Distributed Transactions with Opacity
//! using Global Time* (FaRMv2, §2 and 5.1). "§" in this crate refers to that paper.
//!
//! ```text
//!   kv          transactions that look like the store's        catalog     names of trees and tables
//!    └─ btree   ordered, inner nodes cached                      └─ btree
//!       hash    two adjacent buckets
//!          └──────── objects at one snapshot: `plinth_farm_memory::Objects`
//! ```
//!
//! All of it runs inside the caller's transaction. Nothing is spawned, and nothing waits but for objects.
//!
//! Promises: an operation sees its transaction's snapshot with the transaction's own changes, whatever caches hold,
//! and also if the transaction will abort. Objects that a structure does not need any more are freed in the
//! transaction that makes them so. Damaged memory is an error that names the object ([`Error::Damaged`]), never a
//! panic. A call that refuses its arguments has changed nothing; after any other error of a change the transaction
//! must be given up.
//!
//! Caches hold places of objects that may be gone, or be other objects by now. A place is followed by a read in the
//! transaction, and the object there must carry the mark of its structure. So structures rely on an engine in this:
//! - A read at a place that once was an object's gives what the snapshot has there, or `NotAllocated`, and the
//!   transaction goes on. Where memory has gone to objects of another size, any bytes will do, and `TooOld`.
//! - A place is not allocated to a transaction whose snapshot still has another object there.

pub mod btree;
pub mod catalog;
mod census;
mod error;
pub mod hash;
mod keyed;
pub mod kv;
mod page;
pub mod testing;
mod value;

pub use census::Census;
pub use error::{Error, Result, damaged};
pub use value::VALUE_BYTES_MAX;

#[cfg(test)]
mod tests;
