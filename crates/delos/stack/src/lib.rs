//! Replicated services as a stack of log-structured protocols over a shared log (Delos, SOSP'21).
//!
//! ```text
//!   application        Applicator: a state machine, and the reads of its state
//!   engine …           Engine below, Applicator above: one concern each, with headers and rows of its own
//!   base               plays the log forward, one entry after the other
//!   ─────────────────────────────────────────────────────────────
//!   shared log         entries in one order                              (log.rs)
//!   local store        what the replica made of them                     (store.rs)
//! ```
//! All replicas apply the same entries in the same order, so their local stores are the same at the same position.
//!
//! Promises: a proposal that was answered is in the log for good, and every later [`sync`](stack::Engine::sync) of
//! every replica sees its effect. A proposal is applied in one transaction of the store, whole or not at all.
//! What may never happen: two replicas with different stores at one position; an entry applied twice or skipped.

pub mod backup;
pub mod base;
mod blocks;
pub mod coordinated_register;
pub mod engines;
pub mod entry;
pub mod file_log;
pub mod log;
pub mod quorum;
pub mod replica;
pub mod stack;
pub mod stacks;
pub mod store;
pub mod store_register;
pub mod stream_log;
#[cfg(test)]
mod tests;
pub mod virtual_log;
mod words;
mod workload;
