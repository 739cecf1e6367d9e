//! Floor 4: objects of the in-memory engine in the memory of one machine, after *Fast General Distributed Transactions
//! with Opacity using Global Time* (FaRMv2, §3.1, 4.4, 4.5, 4.8). "§" in this crate refers to that paper, and
//! `docs/decisions/0013-farm-on-fences.md` says where it goes its own way.
//!
//! ```text
//!   Sizes ── regions of the fabric ─┬─ slot: Region ── slabs ── Cell: header │ older │ payload │ footer
//!                                   │          ▲ Slabs: what is free, at a primary   │
//!                                   └─ old versions: Old ── blocks ── versions ◀─────┘
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `pointer` | addresses of objects, and the sizes that they can have |
//! | `cell` | an object's newest version: locked, replaced, and read by others meanwhile |
//! | `region` | a replica: its slabs, its cells, its objects |
//! | `slabs`, `bitmap` | a primary's free cells and slabs |
//! | `old` | old versions, and when a block of them is free again |
//! | `layout` | sizes, and where what lies in the fabric |
//! | `objects` | what structures see of a transaction |
//!
//! Promises: a version that a reader takes as one is one, whatever the writer did meanwhile. An old version is there
//! while a transaction with a snapshot at the safe point or later may need it. A place is given out once until it is
//! given back, and a slab goes to objects of another size when no transaction can reach the former ones. Bytes that
//! make no sense are an error, never a panic.
//!
//! One thread changes a machine's memory: its own. Nothing here waits, sends, or reads a clock; times are arguments.

mod bitmap;
mod cell;
mod error;
mod layout;
pub mod objects;
mod old;
pub mod pointer;
mod region;
mod slabs;

pub use cell::{Cell, Header, Older, Seen, Snapshot, TIMESTAMP_MAX};
pub use error::Error;
pub use layout::Sizes;
pub use objects::{Abort, Objects};
pub use old::{BLOCK_WORDS, Blocks, Kept, Old, OldVersion};
pub use pointer::{CELL_EXTRA_WORDS, CLASSES, Class, OBJECT_BYTES_MAX, Pointer};
pub use region::{Region, SLAB_WORDS, Shape, Walk};
pub use slabs::Slabs;

#[cfg(test)]
mod tests;
