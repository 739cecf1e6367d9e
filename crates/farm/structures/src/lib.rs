//! Floor 5: structures of objects: hash table, B-tree, keys and values.

pub mod btree;
mod census;
mod error;
pub mod hash;
mod page;
mod value;

pub use census::Census;
pub use error::{Error, Result};
pub use value::VALUE_BYTES_MAX;

#[cfg(test)]
mod tests;
