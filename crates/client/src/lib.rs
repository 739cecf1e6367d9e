//! Floor 5: what an application holds.
//!
//! A [`Database`] gives [`Transaction`]s; a transaction reads one snapshot, keeps its writes to itself, sees
//! them in its own reads, and commits everything at once (FDB §2.4.1). The transaction is pure bookkeeping
//! over a [`Cluster`], which serves reads and takes commits: one over the network for applications, one in
//! memory ([`testing::MemoryCluster`]) for tests of what is built on transactions.
//!
//! ```text
//! database ──► transaction ──► reads    reader: own writes merged over the snapshot; read_cache: what is known of it
//!                          ──► writes   write_log ──► write_map, when a read wants to see them
//!                          ──► commit   conflicts packed, sent, fenced off when the answer is lost
//!                          ──► retry    which errors, how long to wait
//!                          ──► watch
//!                          ──► special  the keys behind \xff\xff, which no server stores
//!          ──► tenant      key spaces of their own
//! on top: subspace, directory; `tuple` lies in `plinth_core`
//! ```

mod attempt;
mod bytes_argument;
mod commit;
mod conflicts;
mod connection;
mod database;
mod directory;
mod idempotency;
mod locality;
mod mapped;
mod options;
mod range;
mod range_set;
mod read_cache;
mod reader;
mod reads;
mod retry;
mod shared;
mod shared_map;
mod source;
mod special;
mod subspace;
mod system_rows;
mod tenant;
pub mod testing;
mod transaction;
mod watch;
mod write_log;
mod write_map;
mod writes;

pub use bytes_argument::IntoKey;
pub use database::Database;
pub use directory::{Directory, DirectoryLayer, PARTITION};
pub use mapped::{MappedResult, MappedRow};
pub use options::{DatabaseOption, TransactionOption};
pub use range::{RangeOptions, RangeResult, RangeStream, StreamingMode};
pub use reads::{ReadFuture, ValueFuture};
pub use source::{
    Cluster, ClusterFuture, CommitData, CommitFlags, CommitReply, PackedRows, Priority, RangeChunk,
    RangeRequest, ReadVersionFlags, Row, Subject, is_commit_unknown,
};
pub use subspace::Subspace;
pub use transaction::Transaction;

/// Elements of tuples, packed so that their order is kept; see also [`Subspace`].
pub use plinth_core::tuple;

use plinth_coordination::Coordinators;
use plinth_rpc::Transport;
use std::rc::Rc;

/// The database of a cluster, reached over `transport`. Connects in the background: what is asked of it waits
/// until it has. Goes after coordinators that move.
pub fn connect_over(transport: Transport, coordinators: impl Into<Coordinators>) -> Database {
    let connection = connection::Connection::new(transport, coordinators.into());
    Database::new(Rc::new(connection))
}

/// The database of a cluster, over connections of its own.
pub fn connect(coordinators: impl Into<Coordinators>) -> Database {
    connect_over(Transport::client(), coordinators)
}

/// The examples of the user's page are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/api.md")]
struct ApiPage;
