//! Floor 4: objects of the in-memory engine in the memory of machines (FaRMv2, §3.1, 4.4, 4.5, 4.8).

pub mod objects;
pub mod pointer;

pub use objects::{Abort, Objects};
pub use pointer::{CELL_EXTRA_WORDS, CLASSES, Class, OBJECT_BYTES_MAX, Pointer};
