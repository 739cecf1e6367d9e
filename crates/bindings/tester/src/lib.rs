//! Test support: programs for the stack machines that FoundationDB's bindings ship for their tests, the expected
//! results, and such a machine for the Rust client.
//!
//! A binding's tester reads instructions from the database, executes them on a stack through its API, and writes the
//! stack back. [`generate`] makes random programs together with the rows that they must leave. It follows each
//! program on a [`model`] of the database that shares no code with Plinth, and avoids instructions whose result it
//! cannot predict. [`machine`] is the tester for the Rust client.

pub mod generate;
pub mod machine;
pub mod model;
pub mod program;
mod rng;

pub use program::{Outcome, Program};
