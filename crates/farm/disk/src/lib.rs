//! Floor 5: what a machine of the in-memory engine has on disk, after *Fast General Distributed Transactions with
//! Opacity using Global Time* (FaRMv2, §4.9). "§" in this crate refers to that paper.
//!
//! ```text
//!   CommitBackup ──▶ Journal ─ one sync for all that has gathered ─▶ acknowledged
//!                       │ when the transaction is truncated
//!                       ▼
//!                    Backup ─ versions of objects in a log ─ sync ─▶ the journal's begin may go
//!                       ├─ read     one object, while its new primary does not have it yet
//!                       ├─ scan     all objects of a region, for the new primary
//!                       └─ clean    copies what is live out of old extents
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `error` | what can go wrong, and where |
//! | `journal` | records that are durable in order: commits before they are applied |
//!
//! What may never happen: a record or a version that was said to be durable, and is not there after a power cut;
//! bytes of a damaged file that pass for an object.
//!
//! The store has a disk queue of its own (`store/log`). The engine shares only the base with the store, so it is not
//! used here.

mod error;
pub mod journal;

pub use error::Error;
pub use journal::{Durable, Journal, Position};

use plinth_runtime::knob;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

knob! {
    /// Size of a file of a journal, unless one record needs more.
    pub JOURNAL_SEGMENT_BYTES: usize = "farm_journal_segment_bytes", 16 * MIB, sim 4 * KIB, MIB,
        legal 4 * KIB, 1024 * MIB;
    /// A journal refuses records while so many bytes wait for the disk.
    pub JOURNAL_WAITING_BYTES_MAX: usize = "farm_journal_waiting_bytes_max", 64 * MIB, sim 64 * KIB, 64 * MIB,
        legal 64 * KIB, 1024 * MIB;
}

#[cfg(test)]
mod tests;
