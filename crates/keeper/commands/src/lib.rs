//! The commands of the keeper: a gateway that serves ZooKeeper's clients from a cluster, and trees that come and go.
//! What operators choose for ZooKeeper's clients, and the AdminServer, are for other servers of them, too.

pub mod admin;
#[cfg(feature = "bench")]
pub mod bench;
mod gateway;
pub mod guests;
mod migrate;
mod name;
pub mod zookeeper;

pub use gateway::{Arguments, run};
