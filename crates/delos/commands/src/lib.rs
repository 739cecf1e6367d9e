//! The commands of replicated services: `plinth delos`, and `plinth table` for one kind of them.

#[cfg(feature = "bench")]
pub mod bench;
pub mod delos;
#[cfg(feature = "tables")]
pub mod table;
