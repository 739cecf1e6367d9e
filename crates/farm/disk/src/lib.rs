//! What a machine of the in-memory engine has on disk, after *Fast General Distributed Transactions with
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
//! | `layout` | how regions are cut up for the disk |
//! | `backup` | the newest versions of objects: log, maps, reads |
//! | `backup/open`, `clean`, `scan`, `sync` | what its name says, for a backup |
//! | `backup/store`, `group`, `maps` | its state in memory |
//! | `backup/blocks`, `manifest` | its bytes on disk |
//!
//! What may never happen: a record or a version that was said to be durable, and is not there after a power cut;
//! bytes of a damaged file that pass for an object.
//!
//! The store has a disk queue of its own (`store/log`). The engine shares only the base with the store, so it is not
//! used here.

pub mod backup;
mod error;
pub mod journal;
mod layout;

pub use backup::blocks::Version;
pub use backup::{Applied, Backup, Figures, Scan};
pub use error::Error;
pub use journal::{Durable, Journal, Position};
pub use layout::Layout;

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
    /// A backup writes when it holds so many bytes that could be on disk.
    pub BACKUP_BUFFER_BYTES: usize = "farm_backup_buffer_bytes", MIB, sim 4 * KIB, MIB, legal KIB, 256 * MIB;
    /// A shorter manifest is not written anew.
    pub BACKUP_MANIFEST_BYTES: usize = "farm_backup_manifest_bytes", 256 * KIB, sim KIB, 256 * KIB;
    /// An extent is cleaned when less than this share of it is live.
    pub BACKUP_CLEAN_BELOW: f64 = "farm_backup_clean_below", 0.5, sim 0.3, 0.8, legal 0.05, 0.9;
    /// How fast extents are cleaned in the background.
    pub BACKUP_CLEAN_BYTES_PER_SECOND: usize = "farm_backup_clean_bytes_per_second", 64 * MIB,
        sim MIB, 1024 * MIB, legal 64 * KIB, 1024 * MIB;
}

#[cfg(test)]
mod tests;
