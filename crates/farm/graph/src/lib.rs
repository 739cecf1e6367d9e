//! Floor 6: groundwork of a property graph on the structures of the in-memory engine, after A1 (FaRMv2, §6): values
//! with their order, the schema, and how vertices and edges lie in objects. There are no operations on a graph, no
//! queries and no indexes here yet.
#![expect(dead_code, reason = "the operations that use this come next")]

mod codec;
mod error;
mod object;
pub mod schema;
mod value;

pub use error::{Error, Result};
pub use value::{Kind, Value};

#[cfg(test)]
mod tests;
