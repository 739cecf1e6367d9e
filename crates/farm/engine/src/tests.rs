//! Tests of the whole engine. Those of one part stand in its file.

mod simulated;
mod wire;
