//! The kinds of services that a process can host, and how it is started.

use super::hosting::{Hosting, Replica};
use super::serves::{Serves, ServiceLog};
use super::settings::Settings;
use crate::backup::restore::{Plan, play};
use crate::backup::{Backups, Doing, OpenPlace, Place};
use crate::stack::{ReplicaId, Upper};
use crate::stacks::above;
use crate::store::LocalStore;
use plinth_core::EngineKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Of this program.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

type Start = fn(Rc<ServiceLog>, Rc<LocalStore>, ReplicaId, Backups, &Settings) -> Rc<dyn Replica>;

/// A kind of service. A process is given a list of them.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub(super) start: Start,
    /// Plays the log of a backup.
    pub(crate) play: for<'a> fn(&'a dyn Place, &'a Plan, &'a Rc<LocalStore>) -> Doing<'a>,
}

impl Kind {
    pub const fn of<D: Serves>() -> Kind {
        Kind {
            name: D::KIND,
            start: |log, store, id, backups, settings| {
                let application = D::create(settings);
                Rc::new(Hosting::new(log, store, id, backups, application))
            },
            play: |from, plan, store| {
                Box::pin(async move {
                    let upper = Upper::new(above(D::create(&Settings::default()), store));
                    play(from, plan, store, &upper).await
                })
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
    /// Opens the places of backups: [`directories`](crate::backup::directories), if it can open no others.
    pub places: OpenPlace,
}

impl Config {
    pub fn kind(&self, name: &str) -> Option<&'static Kind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}
