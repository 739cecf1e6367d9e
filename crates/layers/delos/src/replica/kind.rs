//! The kinds of services that a process can host, and how it is started.

use super::hosting::{Hosting, Replica};
use super::serves::{Serves, ServiceLog};
use super::settings::Settings;
use crate::stack::ReplicaId;
use crate::store::LocalStore;
use plinth_core::EngineKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Of this program.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// A kind of service. A process is given a list of them.
pub struct Kind {
    pub name: &'static str,
    pub(super) start: fn(Rc<ServiceLog>, Rc<LocalStore>, ReplicaId, &Settings) -> Rc<dyn Replica>,
}

impl Kind {
    pub const fn of<D: Serves>() -> Kind {
        Kind {
            name: D::KIND,
            start: |log, store, id, settings| {
                Rc::new(Hosting::new(log, store, id, D::create(settings)))
            },
        }
    }
}

/// How a process is started.
#[derive(Clone)]
pub struct Config {
    pub directory: PathBuf,
    pub listen: SocketAddr,
    /// Kinds of services that it can host.
    pub kinds: &'static [Kind],
    pub engine: EngineKind,
    pub cache_bytes: usize,
    /// Only a replica of this service, if one is named.
    pub service: Option<String>,
    pub settings: Settings,
}

impl Config {
    pub fn kind(&self, name: &str) -> Option<&'static Kind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}
