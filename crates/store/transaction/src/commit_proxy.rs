//! The commit proxy (FDB §2.4.1, §2.4.3, §2.6): batches transactions and walks each batch through a pipeline.
//!
//! ```text
//! version ─► resolve ─► assign ─► log ─► report
//! ```
//!
//! It promises: a commit is acknowledged only when every log server has its version on disk and the sequencer knows it
//! (pitfall 2); a transaction is admitted only if every resolver admits it; all mutations of a transaction take effect
//! at one version.
//!
//! - *version*: the sequencer gives the batch's commit version and the one before it.
//! - *resolve*: every resolver judges the conflict ranges in its own part of the keyspace; all must admit.
//! - *assign*: strictly in version order, system mutations (other proxies' first) are applied to the copy of the
//!   system keyspace; then each mutation gets the tags of its shard's team. Rows of [streams](plinth_core::streams)
//!   with the version's changes are added.
//! - *log*: every log server gets a message for the version, possibly an empty one; k of them store each mutation.
//! - *report*: when all log servers have made the version durable, the proxy reports it to the sequencer. After the
//!   sequencer's answer it answers the clients (pitfall 2).
//!
//! Several batches are under way at once. When there is room for another batch, it is formed from the requests that
//! have arrived. So a batch is a single transaction when the proxy is idle, and large under load. The proxy never
//! repairs anything: when a sequencer, resolver or log server does not answer, the proxy ends, and the recovery
//! decides the outcome of its batches. Its clients then learn that the result is unknown.

mod accept;
mod assign;
mod durable;
mod held;
mod latency;
mod partitions;
mod pipeline;
mod resolve;
mod stream_rows;
mod tallies;
mod traced;

pub use pipeline::start;
