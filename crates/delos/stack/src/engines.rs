//! Engines to stack, a file each. Every one is a lower half (`…Below`), which proposals go through, and an upper half
//! (`…Above`), which entries go through ([`crate::stack`]). An engine that keeps state is switched on through the log
//! ([`guard`]).

pub mod above;
pub mod batching;
pub mod brain_doctor;
pub mod guard;
pub mod lease;
pub mod log_backup;
pub mod observer;
pub mod roster;
pub mod session_order;
pub mod time;
pub mod view_tracking;
