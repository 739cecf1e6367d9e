//! The transaction system (FDB §2.3.2, §2.4). Sequencer, GRV proxies, commit proxies, resolvers.
//!
//! None of these roles keeps anything on disk. Each is a state machine in a thin shell. A `start` function starts the
//! shell: it registers the role's endpoints and returns the future that runs the role.

pub mod commit_proxy;
pub mod conflict_set;
pub mod grv_proxy;
pub mod knobs;
pub mod resolver;
pub mod sequencer;
pub mod system_state;
