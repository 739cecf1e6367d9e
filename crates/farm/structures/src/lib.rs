//! Floor 5: structures of objects: hash table, B-tree, keys and values.

pub mod btree;
pub mod catalog;
mod census;
mod error;
pub mod hash;
pub mod kv;
mod page;
mod value;

pub use census::Census;
pub use error::{Error, Result};
pub use value::VALUE_BYTES_MAX;

#[cfg(test)]
mod tests;
