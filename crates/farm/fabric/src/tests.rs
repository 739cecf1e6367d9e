//! The parts alone, one contract for all backends, and machines in the simulator.

mod certificates;
mod contract;
mod greetings;
mod memories;
mod rings;
mod simulated;
mod stands;
mod wire;
