//! The commands of the store. Each is a module with its flags and its code.

#[cfg(feature = "bench")]
pub mod bench;
pub mod copy;
pub mod demo;
pub mod dev;
pub mod dump;
pub mod keys;
pub mod load;
mod rows;
pub mod server;
pub mod shell;
#[cfg(feature = "sim")]
pub mod sim;
pub mod status;
pub mod stream;
pub mod token;
pub mod top;
