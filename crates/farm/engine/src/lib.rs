mod active;
mod ledger;
mod numbers;
mod post;
mod settings;
mod tally;
mod view;
mod wire;
pub use settings::{Options, Settings};
pub use view::{Place, Replicas, View};
pub use wire::Room;
#[cfg(test)]
mod tests;
