//! Zelos: ZooKeeper's service on a Delos stack (Delos §4.3), instead of the transactional store.
//!
//! ```text
//!   ZooKeeper's clients ──► the keeper's front end (plinth-keeper) ── reads ──► its replica, the local store
//!                                   │ operations                                   ▲ changes
//!                                   ▼                                              │
//!                   front.rs ──► entry.rs ──► the stack, the shared log ──► application.rs, on every replica
//! ```
//! Each replica is a gateway. What its clients write goes into the log, a batch an entry; every replica executes the
//! entries in the order of the log, with the keeper's own code. So nothing conflicts, and nothing is tried again.
//!
//! Promises: those of ZooKeeper. An answered write is in the log for good. All replicas have the same rows at the same
//! position: what an entry does follows from the entry and the rows, never from a clock, a random number or a setting
//! of the replica that executes it.
//! What may never happen: an operation of a session that this gateway no longer has is executed.

mod application;
mod backing;
mod done;
mod door;
mod entry;
mod front;
mod serving;
#[cfg(test)]
mod tests;
mod view;

pub use application::Zelos;
pub use door::{Beside, Door};
pub use serving::KIND;

use plinth_runtime::{knob, metric};

knob! {
    /// How often a replica whose own clients write nothing looks for what those of others have written.
    pub LOOK_MS: u64 = "zelos_look_ms", 5, sim 1, 50, legal 1, 1000;
    /// The same for a replica to which no client is connected.
    pub IDLE_LOOK_MS: u64 = "zelos_idle_look_ms", 100, sim 1, 200, legal 1, 1000;
    /// Most entries of a replica that are under way; what comes meanwhile shares the next one.
    pub ENTRIES_AT_ONCE: usize = "zelos_entries_at_once", 4, sim 1, 4, legal 1, 100;
}

metric! {
    pub ENTRIES: Counter = "plinth_zelos_entries_total", "entries that this replica has written for its clients";
}
