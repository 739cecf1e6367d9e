//! The kinds of services that a process can host, and how it is started.

use super::hosting::{Hosting, Replica};
use super::serves::{Serves, ServiceLog};
use super::settings::Settings;
use crate::backup::restore::{Plan, play};
use crate::backup::{Backups, Doing, OpenPlace, Place};
use crate::stack::{ReplicaId, Upper};
use crate::stacks::above;
use crate::store::LocalStore;
use plinth_coordination::ClusterFile;
use plinth_coordination::certificates::missing;
use plinth_core::EngineKind;
use plinth_rpc::Credentials;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Of this program.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

type Start = fn(Rc<ServiceLog>, Rc<LocalStore>, ReplicaId, Backups, &Settings) -> Rc<dyn Replica>;

/// A kind of service, which a process is given a list of. It is a `static` of the crate that has the service: the code
/// of a replica is made there, and not by everybody who names the kind.
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
    /// Where others reach it, if not at `listen`.
    pub public: Option<SocketAddr>,
    /// Kinds of services that it can host.
    pub kinds: &'static [&'static Kind],
    pub engine: EngineKind,
    pub cache_bytes: usize,
    /// Only a replica of this service, if one is named.
    pub service: Option<String>,
    pub settings: Settings,
    /// Opens the places of backups: [`directories`](crate::backup::directories), if it can open no others.
    pub places: OpenPlace,
}

impl Config {
    /// The address by which others know the process.
    pub(super) fn address(&self) -> SocketAddr {
        self.public.unwrap_or(self.listen)
    }

    pub fn kind(&self, name: &str) -> Option<&'static Kind> {
        self.kinds.iter().copied().find(|kind| kind.name == name)
    }

    /// What the process proves to others. Without it everybody is trusted.
    pub(super) fn credentials(&self) -> Credentials {
        let found = self.settings.get::<Credentials>();
        found.map_or_else(Credentials::none, |found| (*found).clone())
    }

    /// Refuses a service that asks for TLS if the process has no certificate. `what` names the service.
    ///
    /// # Errors
    /// A line for an operator.
    pub(super) fn check_certificates(
        &self,
        service: &ClusterFile,
        what: &str,
    ) -> Result<(), String> {
        match service.is_tls && !self.credentials().has_certificates() {
            true => Err(missing(what)),
            false => Ok(()),
        }
    }

    /// From now on the process opens no connection without a certificate, if the service asks for that.
    pub(super) fn open_as_asked(&self, service: &ClusterFile) {
        if service.is_tls {
            self.credentials().opening_by_certificate();
        }
    }
}
