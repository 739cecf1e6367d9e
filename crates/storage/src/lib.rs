//! Floor 5: the storage server (FDB §2.3.2, §2.4.3).
//!
//! - [`window`]: every version of the last five seconds, over an engine that has what is older. Pure.
//! - [`ownership`]: which ranges are held, from which version on. Pure.
//! - [`incoming`]: ranges that are being copied from those who hold them. Pure.
//! - [`server`]: pulls its stream of the log into the window, moves it to the engine, and answers reads.
//! - [`sample`], [`write_rate`]: how much data lies where, and how fast it is written. Pure.
//! - [`watches`]: who waits for which key to change. Pure.

pub mod incoming;
pub mod ownership;
pub mod sample;
pub mod server;
pub mod watches;
pub mod window;
pub mod write_rate;
