//! Transactions over the cluster in memory: against a model, and behaviour by behaviour.

mod behaviour;
mod commits;
mod directory;
mod mapped;
mod model;
mod outstanding;
mod repeated;
mod special;
mod streams;
