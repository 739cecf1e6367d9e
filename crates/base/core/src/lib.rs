//! The basic types of the database as pure data.
//!
//! Keys, ranges, selectors, versions, mutations, the effect of each atomic operation, packed mutation batches, the
//! tuple encoding, error codes, identifiers. No I/O, no time, no randomness, no async.

pub mod atomic;
pub mod client_rows;
pub mod codec;
pub mod config;
pub mod conflict_ranges;
pub mod distribution;
pub mod error;
pub mod hash;
pub mod id;
pub mod key;
pub mod log_body;
pub mod mutation;
pub mod output;
pub mod range_map;
pub mod selector;
pub mod shard_order;
pub mod similar;
pub mod streams;
pub mod system_keys;
pub mod testing;
pub mod transaction_tag;
pub mod tuple;
pub mod varint;
pub mod version;
mod words;

pub use config::{DatabaseConfig, EngineKind};
pub use error::{Error, Result};
pub use id::{Epoch, Tag, Uid};
pub use key::{Key, KeyRange, Value};
pub use mutation::{Mutation, MutationBatch, MutationKind, MutationRef};
pub use selector::KeySelector;
pub use version::{Version, Versionstamp};
