//! Floor 5: structures of objects: hash table, B-tree, keys and values.

pub mod btree;
mod error;
mod page;
mod value;

pub use error::{Error, Result};
pub use value::VALUE_BYTES_MAX;

#[cfg(test)]
mod tests;
