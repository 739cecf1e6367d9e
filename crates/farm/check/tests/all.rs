//! Tests of the in-memory engine's world: one program, which is linked once, with a module for each suite.

mod golden;
mod simulated;
mod workloads;
