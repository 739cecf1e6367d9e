//! The pure parts against a model with true time, and servers in the simulator.

mod drift;
mod failover;
mod intervals;
mod jumps;
mod messages;
mod model;
mod restores;
mod simulated;
mod timestamps;
mod waits;
