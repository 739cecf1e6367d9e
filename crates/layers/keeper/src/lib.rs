//! ZooKeeper's service on top of the store.

pub mod wire;
