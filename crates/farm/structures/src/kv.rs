//! Keys and values with transactions that look like the store's, in a B-tree of objects.
//!
//! ```text
//!   database.run(async |tx| { … })        the retry loop
//!        │ set, clear, atomic_op           kept until the commit, and seen by the transaction's own reads
//!        │ get, get_key, get_range         at one snapshot of the engine, from the first read on
//!        └ commit                          writes go to the tree; the engine commits its objects
//! ```
//!
//! Names, arguments and errors are those of the store (`plinth_client`). What differs:
//! - Reads are futures that are not issued before their first poll; they see the writes made until then.
//! - Every read conflicts with those who change what it has read: there are no snapshot reads. What conflicts is a
//!   leaf of the tree, so neighbours of a key may conflict too. With `leaf_entries_max: 1` they do not.
//! - A write reads its leaf at the commit, and conflicts with those who change it before. An atomic operation reads
//!   the value, and conflicts with every other change of it.
//! - Reads never become too old while their transaction lives, as long as the engine keeps old versions.
//! - Keys are as long as the tree allows (256 bytes by default), values as in the store. There are no system keys.
//! - There are no options, versionstamps, watches, read versions and special keys.
//! - A commit does not wait for reads: it fails with `commit_read_incomplete` while one is under way.
//! - A call after the commit fails with `used_during_commit` until [`Transaction::reset`].
//! - `file_corrupt`: an object of the tree is damaged. The trace tells which (`FarmObjectDamaged`).

mod commit;
mod database;
mod reads;
mod transaction;
mod writes;

pub use database::{Database, Engine};
pub use reads::{RangeOptions, RangeResult};
pub use transaction::Transaction;
