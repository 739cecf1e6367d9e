//! The kinds of role (FDB §2.3).

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    Coordinator,
    Controller,
    Sequencer,
    GrvProxy,
    CommitProxy,
    Resolver,
    Log,
    Storage,
    Distributor,
    Ratekeeper,
}

impl Role {
    /// FoundationDB's name, as its status document has it: users and their tools know these.
    pub fn name(self) -> &'static str {
        match self {
            Role::Coordinator => "coordinator",
            Role::Controller => "cluster_controller",
            Role::Sequencer => "master",
            Role::GrvProxy => "grv_proxy",
            Role::CommitProxy => "commit_proxy",
            Role::Resolver => "resolver",
            Role::Log => "log",
            Role::Storage => "storage",
            Role::Distributor => "data_distributor",
            Role::Ratekeeper => "ratekeeper",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
