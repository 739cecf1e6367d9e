//! A B-tree whose inner nodes are cached on every machine.
//!
//! ```text
//!   root object ──▶ ┌ inner ─────────────┐        every node has its fences: the keys it is for
//!    stays where    │ -∞ … ∞             │
//!    it is          └─┬────────┬───────┬─┘
//!                ┌ -∞ … f ┐┌ f … p ┐┌ p … ∞ ┐      a leaf is always read in the transaction
//! ```
//!
//! Promises: an operation sees the tree at its transaction's snapshot with the transaction's own changes, whatever the
//! cache holds. With a cache that has the inner nodes, a lookup is one read, and an insertion without a split one read
//! and one write.
//!
//! A leaf that has lost its last entry is taken out and freed, with the inner nodes that were there for it alone;
//! nodes that are not empty are never merged. So a tree from which most keys were removed in no order keeps its
//! leaves, and a queue does not.

mod cache;
mod census;
mod change;
mod node;
mod scan;
mod tree;

pub use cache::Cache;
pub use node::Settings;
pub use scan::Rows;
pub use tree::BTree;
