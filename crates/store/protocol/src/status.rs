//! The cluster at a glance.

use plinth_core::record;
use plinth_rpc::requests;

record! {
    pub struct GetStatus {}

    /// One JSON document.
    pub struct StatusReply {
        pub json: String,
    }
}

requests! {
    GetStatus = 70 for Readers => StatusReply;
}
