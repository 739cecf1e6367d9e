//! The commands of replicated services: `plinth delos`, and `plinth table` for one kind of them.

#[cfg(feature = "bench")]
mod bench;
mod delos;
#[cfg(feature = "tables")]
mod table;

#[cfg(feature = "tables")]
pub use table::statements;
