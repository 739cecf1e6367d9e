//! Objects of the in-memory engine in the memory of one machine, after *Fast General Distributed Transactions
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
//! An object's life at its primary:
//!
//! ```
//! use plinth_farm_fabric::Memory;
//! use plinth_farm_memory::{Class, Error, Old, Older, Region, Seen, Sizes, Slabs};
//!
//! let sizes = Sizes { slab_words: 1024, block_words: 1024, ..Sizes::new(1, 5000, 3000) };
//! sizes.check()?;
//! let [slot, old] = [sizes.region_words, sizes.old_words].map(|words| Memory::private(words as usize));
//! let (region, mut old) = (Region::make(&slot, 7, sizes.slab_words)?, Old::new(&old, sizes.block_words)?);
//! let mut slabs = Slabs::open(&region);
//! let class = Class::of(5).expect("it is small");
//! let (at, virgin) = slabs.reserve(class).expect("room");
//! let cell = region.cell(at)?;
//! assert!(cell.lock(virgin));
//! cell.install(100, true, Older::NONE, b"first");
//! // Another version, which a transaction locks, and commits at a time that it learns later.
//! let first = cell.header();
//! assert!(cell.lock(first));
//! let kept = old.keep(cell).expect("room");
//! cell.install(200, true, kept.older(), b"other");
//! old.commit(kept, 200);
//! let Seen::Version { header, older, payload } = cell.read() else { panic!("nobody has locked it") };
//! assert_eq!((header.timestamp(), &payload[..5]), (200, &b"other"[..]));
//! // A transaction with a snapshot at 150 goes on at the version before.
//! let version = old.read(older, class, header.timestamp()).expect("the safe point is not above 150");
//! assert_eq!((version.header.timestamp(), &version.payload[..5]), (100, &b"first"[..]));
//! assert_eq!((old.collect(200), old.collect(201)), (0, 1));
//! // The end: its place is given out again, and its slab, when nobody can know it any more.
//! assert!(cell.lock(header));
//! let kept = old.keep(cell).expect("room");
//! cell.install(300, false, kept.older(), b"");
//! old.commit(kept, 300);
//! slabs.release(at, 300)?;
//! assert_eq!(slabs.release(at, 300), Err(Error::NotReserved));
//! assert_eq!(slabs.reuse(301), [0]);
//! slabs.put_free(0)?;
//! # Ok::<(), Error>(())
//! ```
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
