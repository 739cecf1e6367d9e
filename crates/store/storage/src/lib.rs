//! The storage server (FDB §2.3.2, §2.4.3).
//!
//! - [`versioned`]: what the server needs of the place where it keeps its rows; [`windowed`]: the one that it has.
//! - [`window`]: every version of the last five seconds, over an engine with the older data. Pure.
//! - [`ownership`]: which ranges are held, from which version on. Pure.
//! - [`incoming`]: ranges that are being copied from servers that hold them. Pure.
//! - [`server`]: pulls its stream of the log into the store, makes it durable there, and answers reads.
//! - [`sample`], [`write_rate`]: how much data lies where, and how fast it is written. Pure.
//! - [`watches`]: the watches that wait for each key to change. Pure.

pub mod incoming;
pub mod knobs;
pub mod ownership;
pub mod sample;
pub mod server;
pub mod versioned;
pub mod watches;
pub mod window;
pub mod windowed;
pub mod write_rate;
