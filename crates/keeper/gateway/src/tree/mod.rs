//! The tree of nodes: how it lies in the store, and what operations do to it.

mod basics;
pub mod change;
pub mod clickhouse;
pub mod execute;
pub mod locks;
mod needs;
pub mod node;
pub mod plan;
pub mod quota;
pub mod rows;
#[cfg(test)]
mod serial;
#[cfg(test)]
mod tests;
pub mod totals;
pub mod touched;
pub mod written;
