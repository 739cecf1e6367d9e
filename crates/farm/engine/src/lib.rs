//! Floor 5
mod active;
mod backup;
mod commit;
mod core;
mod driver;
mod engine;
mod ledger;
mod numbers;
mod oat;
mod post;
mod primary;
mod reads;
mod rounds;
mod settings;
mod site;
mod store;
mod tally;
mod transaction;
mod view;
mod wire;

pub use engine::Engine;
pub use settings::{Options, Policy, Settings};
pub use site::Handler;
pub use store::Unfit;
pub use transaction::{Committed, Transaction};
pub use view::{Place, Replicas, View};
pub use wire::Room;

#[cfg(test)]
mod tests;
