//! Tests of the whole engine. Those of one part stand in its file.

mod cluster;
mod hostile;
mod loading;
mod memories;
mod options;
mod real;
mod simulated;
mod transactions;
mod wire;
