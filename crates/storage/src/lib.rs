//! Floor 5: the storage server (FDB §2.3.2, §2.4.3).
//!
//! - [`window`]: every version of the last five seconds, over an engine that has what is older. Pure.
//! - [`server`]: pulls its stream of the log into the window, moves it to the engine, and answers reads.
//! - [`watches`]: who waits for which key to change. Pure.

pub mod server;
pub mod watches;
pub mod window;
