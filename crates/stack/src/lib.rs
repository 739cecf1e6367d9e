//! Test support: programs for the stack machines that FoundationDB's bindings ship for their tests, what must come out of
//! them, and such a machine for our own client.
//!
//! A binding's tester reads instructions from the database, carries them out on a stack through its API, and writes the stack
//! back. [`generate`] makes random programs together with the rows that they must leave: it follows along on a
//! [`model`] of the database that shares nothing with Plinth's code, and leaves out what it could not predict.
//! [`machine`] is the tester for the Rust client.

pub mod generate;
pub mod machine;
pub mod model;
pub mod program;
mod rng;

pub use program::{Outcome, Program};
