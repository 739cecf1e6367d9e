//! The pure parts as properties, and members in the simulator.

mod lives;
mod placement;
mod records;
mod registers;
mod restores;
mod simulated;
