//! The commit proxy (FDB §2.4.1, §2.4.3, §2.6): batches transactions and walks each batch through a pipeline.
//!
//! ```text
//! version ─► resolve ─► assign ─► log ─► report
//! ```
//!
//! - *version*: the sequencer gives the batch's commit version and the one before it.
//! - *resolve*: every resolver judges the ranges that are its own; all must admit.
//! - *assign*: strictly in version order, system mutations (other proxies' first) are applied to the copy of the
//!   system keyspace; then each mutation gets the tags of its shard's team.
//! - *log*: every log server gets a message for the version, maybe an empty one; k of them store each mutation.
//! - *report*: when all are durable the sequencer is told, and after its answer the clients (pitfall 2).
//!
//! Several batches are under way at once; the next is formed from whatever has arrived when there is room for
//! it, so batches are single transactions when idle and large under load. The proxy never repairs anything: when
//! a sequencer, resolver or log server does not answer, it ends, and the recovery decides what became of
//! its batches. Its clients then learn that the result is unknown.

mod assign;
mod latency;
mod partitions;
mod pipeline;
mod resolve;

pub use pipeline::start;
