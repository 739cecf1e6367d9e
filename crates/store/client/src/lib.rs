//! The client that an application uses.
//!
//! A [`Database`] gives [`Transaction`]s; a transaction reads one snapshot, keeps its writes to itself, sees
//! them in its own reads, and commits everything at once (FDB §2.4.1). The transaction is pure bookkeeping
//! over a [`Cluster`], which serves reads and takes commits: one over the network for applications, one in
//! memory ([`testing::MemoryCluster`]) for tests of what is built on transactions.
//!
//! Imports go down or along a line, never in a circle:
//!
//! ```text
//! directory, subspace                   keys with a meaning; `tuple` lies in `plinth_core`
//! range_stream, mapped, locality        reads made of other reads
//! reads, writes, watch                  what is done in a transaction
//! commit ──► idempotency                packed, sent, fenced off when the answer is lost
//! special                               the keys behind \xff\xff, which no server stores
//! tenant, streams                       key spaces of their own; records of what happened
//! system_rows                           rows that the client itself keeps in the database
//! transaction ──► database              the handles
//! state, read_future                    options, snapshot, writes, what is legal now; the future of a read
//! range ──► reader                      a scan: own writes merged over the snapshot
//! attempt                               what the futures of a transaction share
//! write_log ──► write_map               own writes; the map when a read wants to see them
//! read_cache, conflicts                 what is known of the snapshot; what a change of it would break
//! options, retry, shared                limits; which errors are worth a retry; a future that several tasks drive
//! source                                a cluster: `connection` over the network, `testing` in memory
//! outage                                what is known of a cluster that is away
//! ```

mod attempt;
mod bytes_argument;
mod commit;
mod conflicts;
mod connection;
mod database;
mod directory;
mod idempotency;
pub mod knobs;
mod locality;
mod mapped;
mod options;
mod outage;
mod range;
mod range_set;
mod range_stream;
mod read_cache;
mod read_future;
mod reader;
mod reads;
mod retry;
mod shared;
mod shared_map;
mod source;
pub mod special;
mod state;
mod streams;
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
pub use connection::status::client as status_of_client;
pub use database::Database;
pub use directory::{Directory, DirectoryLayer, PARTITION};
pub use mapped::{MappedResult, MappedRow};
pub use options::{DatabaseOption, TransactionOption};
pub use outage::Outage;
pub use range::{RangeOptions, RangeResult, StreamingMode};
pub use range_stream::{RangeCursor, RangeStream};
pub use read_future::{ReadFuture, ValueFuture};
pub use source::{
    Cluster, ClusterFuture, CommitData, CommitFlags, CommitReply, CommitTracing, PackedRows,
    PointResult, PointResults, Priority, RangeChunk, RangeRequest, ReadVersionFlags, Row, Subject,
    is_commit_unknown,
};
pub use streams::{
    Stream, StreamBatch, StreamContent, StreamEntry, StreamInfo, StreamLimit, StreamOptions,
};
pub use subspace::Subspace;
pub use tenant::carried::{InTheWay, Tenants, clearing, number_of};
pub use transaction::Transaction;

/// What [`Transaction::set_authorization_token`] takes.
pub use plinth_protocol::token::Token as AuthorizationToken;

/// What [`CommitTracing::told`] gives.
pub use plinth_protocol::log::PushTrace;
pub use plinth_protocol::transaction::CommitTrace;

/// Place of an entry in a stream, and what a stream records.
pub use plinth_core::streams::{Position, StreamKind};

/// Elements of tuples, packed so that their order is kept; see also [`Subspace`].
pub use plinth_core::tuple;

use plinth_coordination::Coordinators;
use plinth_identity::Identity;
use plinth_rpc::{Credentials, Transport};
use std::rc::Rc;

/// The database of a cluster, reached over `transport`. Connects in the background; requests wait until it has.
/// Follows coordinators that move.
pub fn connect_over(transport: Transport, coordinators: impl Into<Coordinators>) -> Database {
    let caller = connection::Caller::connect(transport, coordinators.into());
    Database::new(Rc::new(caller))
}

/// The database of a cluster, over connections of its own that prove what these credentials say.
pub fn connect_with(credentials: Credentials, coordinators: impl Into<Coordinators>) -> Database {
    connect_over(Transport::client_with(credentials), coordinators)
}

/// The database of a cluster, over connections of its own, with the keys that were found beside its cluster file: an
/// application is what its file gives, and never more than an operator.
pub fn connect(coordinators: impl Into<Coordinators>) -> Database {
    let coordinators = coordinators.into();
    let credentials = coordinators.file().credentials(Identity::Operator);
    connect_with(credentials, coordinators)
}

/// Compiles the examples of the user's page.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/api.md")]
struct ApiPage;

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/streams.md")]
struct StreamsPage;
