//! Floor 3: what the roles say to each other. Requests and replies, a file a role; no behaviour.

pub mod control;
pub mod coordination;
pub mod log;
pub mod rate;
pub mod status;
pub mod storage;
pub mod transaction;
