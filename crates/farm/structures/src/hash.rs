//! A hash table: associative hopscotch with chains.
//!
//! ```text
//!   hash ──▶ bucket i ─next─▶ bucket i+1 ─▶ … ring of eight          a bucket is an object with some slots
//!               │ overflow
//!               ▼
//!            block ──▶ block              entries that are at home in i, and for which there is no room
//! ```
//!
//! A key lies in its home, else in the bucket behind it, else in the chain of its home. A home counts its entries
//! next door, so a lookup reads the second bucket only if there are some. An insertion that finds both buckets full
//! makes room: it moves entries of the second one into the third, and so on for a few steps. A removal brings an entry
//! of a chain back. With opacity that is all: an entry that moves is never seen in both places, or in none (§2).
//!
//! Promises: an operation sees the table at its transaction's snapshot with the transaction's own changes, whatever it
//! remembers of where buckets are. A table never shrinks; it grows only by [`HashTable::grow`].

mod bucket;
mod census;
mod change;
mod grow;
mod sip;
mod table;

pub use bucket::Settings;
pub use table::HashTable;
