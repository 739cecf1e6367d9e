//! The processes that have registered.

use plinth_core::Uid;
use plinth_protocol::control::RegisterWorker;
use std::collections::BTreeMap;

/// By their ids.
pub type Workers = BTreeMap<Uid, RegisterWorker>;
