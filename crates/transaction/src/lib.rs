//! Floor 4: the transaction system (FDB §2.3.2, §2.4). Sequencer, GRV proxies, commit proxies, resolvers.
//!
//! None of these roles keeps anything on disk. Each is a state machine in a thin shell; a shell is started by a
//! `start` function that registers its endpoints and returns the future that is the role's life.

pub mod commit_proxy;
pub mod conflict_set;
pub mod grv_proxy;
pub mod resolver;
pub mod sequencer;
pub mod system_state;
