//! The commands of the store. Each is a module with its flags and its code, and registers itself
//! (`plinth_terminal::commands`).

#[cfg(feature = "bench")]
mod bench;
mod copy;
mod demo;
mod dev;
mod dump;
mod keys;
mod load;
mod registered;
mod rows;
mod server;
mod shell;
#[cfg(feature = "sim")]
pub mod sim;
mod status;
mod stream;
mod token;
mod top;

pub use shell::statements;
