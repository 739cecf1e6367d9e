//! The parts alone, one contract for all backends, and machines in the simulator.

mod contract;
mod simulated;
mod stands;
