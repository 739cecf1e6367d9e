//! A property graph on the structures of the in-memory engine, after A1 (*Fast General Distributed
//! Transactions with Opacity using Global Time*, FaRMv2, §6). "§" in this crate refers to that paper.
//!
//! ```text
//!   Graph ── root ── schema ── vertex types ── table: primary key ──▶ vertex ── lists of edges, both directions
//!                       │            └──────── indexes: value ────────▶ │            │
//!                       └───── edge types                               └ properties └──▶ edge ── properties
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `graph` | the root object, and the schema of a snapshot |
//! | `transaction` | operations inside a transaction: what all of them need |
//! | `types` | changes of the schema |
//! | `vertices`, `edges`, `lists` | vertices, edges, and the lists of edges of a vertex |
//! | `indexes`, `build` | secondary indexes: kept and looked up, made and dropped in pieces |
//! | `query`, `evaluate` | queries that follow edges, and their evaluation |
//! | `ship`, `wire` | stages of a query on the machines that have its vertices |
//! | `desk`, `frames` | the same over a fabric |
//! | `census` | a walk that proves a graph sound |
//! | `testing` | a model of the graph, random calls, and the judge of what they answered |
//! | `object`, `schema`, `value`, `codec` | what lies in objects, and how |
//!
//! Promises: all operations are part of the caller's transaction, at its snapshot with its own changes. An edge is at
//! both of its ends or at none. An index that can be looked up has every vertex with a value, and no other. A
//! transaction goes by the schema of its snapshot, and conflicts with a change of it. A query whose stages are
//! evaluated on several machines answers what it answers on one. Bytes of other machines are an error at worst, never
//! a panic.
//!
//! Transactions that write must be serializable: under snapshot isolation nothing of this holds.
//!
//! The page for users is `docs/farm-graph.md`.

mod build;
mod census;
mod codec;
mod desk;
mod edges;
mod error;
mod evaluate;
mod frames;
mod graph;
mod indexes;
mod lists;
mod object;
mod query;
pub mod schema;
mod ship;
pub mod testing;
mod transaction;
mod types;
mod value;
mod vertices;
mod wire;

pub use census::Census;
pub use desk::{Desk, Settings, Snapshots};
pub use edges::{Adjacent, After, EdgeRecord, Edges};
pub use error::{Error, Result};
pub use graph::Graph;
pub use indexes::{Behind, Found, INDEXED_BYTES_MAX};
pub use lists::Direction;
pub use query::{
    Compare, Condition, FRONTIER_MAX, Query, Reached, Returns, Row, STEPS_MAX, Start, Step,
};
pub use ship::Ship;
pub use transaction::{Edge, GraphTx, Record, Vertex};
pub use types::KEY_BYTES_MAX;
pub use value::{Kind, Value};
pub use vertices::DELETED_EDGES_MAX;

/// The examples of the page for users.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/farm-graph.md")]
struct Page;

#[cfg(test)]
mod tests;
