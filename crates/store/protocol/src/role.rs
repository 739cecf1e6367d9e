//! The kinds of role (FDB §2.3).

use plinth_core::words;
use std::fmt;

words! {
    #[derive(PartialOrd, Ord)]
    pub enum Role {
        Coordinator = "coordinator",
        Controller = "cluster_controller",
        Sequencer = "master",
        GrvProxy = "grv_proxy",
        CommitProxy = "commit_proxy",
        Resolver = "resolver",
        Log = "log",
        Storage = "storage",
        Distributor = "data_distributor",
        Ratekeeper = "ratekeeper",
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
