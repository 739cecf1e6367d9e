//! Transactions of the in-memory engine, after *Fast General Distributed Transactions with Opacity using
//! Global Time* (FaRMv2, §4.2, 4.4 to 4.8). "§" in this crate refers to that paper, and
//! `docs/decisions/0013-farm-on-fences.md` says where it goes its own way.
//!
//! ```text
//!   Transaction ── reads: own memory, or one-sided ──────────────────────────────▶ memory of primaries
//!       │ commit
//!       ▼
//!   coordinator ── Lock ─▶ primaries   timestamp   validate   CommitBackup ─▶ backups   CommitPrimary ─▶ primaries
//!       ▲                                                                                     │
//!       └───────── truncated ◀──────────── everybody ◀──────── Truncate, on other messages ◀──┘
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `engine` | a machine's engine, as its users see it |
//! | `transaction`, `reads` | a transaction while it runs: its snapshot, what it has read and will write |
//! | `commit` | the coordinator's side of a commit |
//! | `primary`, `backup` | the participants' side |
//! | `rounds`, `pace`, `oat` | oldest active transaction, safe point, what it lets be used again |
//! | `driver`, `site` | takes what has arrived; reads other machines' memory |
//! | `core` | the state of a machine |
//! | `store` | its replicas and old versions |
//! | `numbers`, `active` | as a coordinator: what is not truncated everywhere, and which snapshots are in use |
//! | `stage`, `change`, `handover`, `letters`, `copy`, `links` | from one configuration to the next |
//! | `durable`, `keep` | what a machine keeps on its disk |
//! | `image`, `load`, `wanted` | replicas that are on disk only, and their way into memory |
//! | `ledger` | as a participant: what is locked, committed, logged, truncated |
//! | `post`, `tally` | messages to other machines, in order, and who waits for their acknowledgement |
//! | `wire`, `view`, `settings` | messages, configurations, options |
//! | `recovery` | what becomes of transactions when a configuration ends |
//!
//! Promises: all reads of a transaction, also of one that aborts, are of one snapshot: the newest versions at or below
//! its read timestamp. A serializable one commits only if that snapshot is the present at its write timestamp.
//! Timestamps are in the order of real time for strict transactions. What was reported as committed is in the memory
//! of all replicas of its regions, or in rings that they take in. What was not committed has no effect.
//! What may never happen: a version that a transaction may still read is collected, or a slab goes to another size
//! while one may still look at its headers; a lock that nobody ends; a commit that ends half because its caller is
//! gone.
//!
//! Where this differs from the paper:
//! - **One rule for locks and validation.** Whoever relies on an object has a snapshot at which it has read it, or
//!   could have. So its newest version must not be above that snapshot: there is no version to compare.
//! - **A new object may lie where one has just been freed.** Its lock does not look at the snapshot. The primary's
//!   answer tells the newest timestamp that is replaced, and the coordinator takes a later one or gives up.
//! - **The second round of the safe point heeds what is active here**: see `oat`.
//! - **A blocked writer (`mv-block`) waits for a time only.** What it waits for may be blocks that its own snapshot
//!   keeps.
//!
//! Failures: the membership (`farm/node`) says when a configuration ends and the next one begins. Transactions that
//! were committing wait for their outcome, and others go on. An engine that is [started](Engine::start) in a view has
//! one configuration only: a machine that cannot be reached makes its transactions `Failed`, or `Unknown` if they may
//! have committed. In a durable cluster (see `durable`), what was reported is also on the disks of all replicas, and
//! all machines may die at once.
//!
//! Pointers are trusted as far as they come from the transaction's snapshot. One that is older may show anything once
//! its slab has gone to objects of another size.

mod active;
mod backup;
mod change;
mod commit;
mod copy;
mod core;
mod driver;
mod durable;
mod engine;
mod handover;
mod image;
mod keep;
mod ledger;
mod letters;
mod links;
mod load;
mod numbers;
mod oat;
mod pace;
mod post;
mod primary;
mod reads;
pub mod recovery;
mod rounds;
mod settings;
mod site;
mod stage;
mod store;
mod tally;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transaction;
mod view;
mod wanted;
mod wire;

pub use durable::Disk;
pub use engine::{AccountState, Engine, Keeps, KnownState, MemoryUse};
pub use links::Links;
pub use settings::{Options, Policy, Settings};
pub use site::Handler;
pub use store::Unfit;
pub use transaction::{Committed, Transaction};
pub use view::{Configuration, Place, Replicas, Seat, View};
pub use wire::Room;

#[cfg(test)]
mod tests;
