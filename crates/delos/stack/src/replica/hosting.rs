//! A replica of some kind, as its process sees it: whatever its application is.

use super::messages::{Called, EngineStatus, Load, ReplicaStatus};
use super::metrics;
use super::serves::{Serves, ServiceLog, ServiceStack};
use crate::backup::Backups;
use crate::base::Stopped;
use crate::engines::guard::Guard;
use crate::engines::log_backup::BackupState;
use crate::engines::roster::{self, Member, Told};
use crate::log::LogPos;
use crate::stack::{Engine, Lost, ReplicaId};
use crate::stacks::{Measured, Standard};
use crate::store::LocalStore;
use bytes::Bytes;
use plinth_core::Result;
use plinth_engine::LocalBoxFuture;
use plinth_runtime::metric::latency::{Timed, bucket_end, bucket_of};
use plinth_runtime::metric::page::Samples;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Either, race};
use std::rc::Rc;

type Asked<'a, T> = LocalBoxFuture<'a, std::result::Result<T, Lost>>;

/// See the module.
pub trait Replica {
    /// Runs until it has to stop.
    fn run(&self) -> LocalBoxFuture<'_, Stopped>;
    /// It has its place in the roster: what the service needs beside requests begins.
    fn attend_now(&self);
    fn call<'a>(&'a self, operation: &'a str, request: &'a Bytes) -> LocalBoxFuture<'a, Called>;
    /// The replicas, with everything that was decided anywhere before the call.
    fn members(&self) -> Asked<'_, Vec<(ReplicaId, Member)>>;
    fn join<'a>(&'a self, id: ReplicaId, member: &'a Member) -> Asked<'a, Told>;
    fn remove(&self, id: ReplicaId) -> Asked<'_, Told>;
    fn switch(&self, engine: Guard, on: bool) -> Asked<'_, Told>;
    /// Why this kind of service cannot do with this engine, or without it, if so.
    fn refuses(&self, engine: Guard, on: bool) -> Option<String>;
    fn mark(&self) -> Asked<'_, Told>;
    fn back_up<'a>(&'a self, place: &'a str) -> Asked<'a, Told>;
    /// How far the backup is; `None` while it is off.
    fn backup(&self) -> Result<Option<BackupState>>;
    /// Waits until this replica has applied the log up to its end.
    fn catch_up(&self) -> Asked<'_, ()>;
    fn checksum_at(&self, mark: LogPos) -> Option<u64>;
    fn trim(&self, before: LogPos);
    fn store(&self) -> &Rc<LocalStore>;
    /// What it has done since it started.
    fn load(&self) -> Result<Load>;
    /// Adds what is on a page of metrics.
    fn add_samples(&self, out: &mut Samples, id: ReplicaId) -> Result<()>;
    /// Adds what the stack knows.
    fn describe(&self, status: &mut ReplicaStatus) -> Result<()>;
}

pub struct Hosting<D: Serves> {
    stack: Rc<ServiceStack<D>>,
    has_place: Watch<bool>,
}

impl<D: Serves> Hosting<D> {
    pub fn new(
        log: Rc<ServiceLog>,
        store: Rc<LocalStore>,
        id: ReplicaId,
        backups: Backups,
        application: D,
    ) -> Self {
        let stack = Standard::new(log, store, id, application, backups);
        // Whoever is first has the lease, while the engine is on.
        stack.lease.want(true);
        let has_place = Watch::new(false);
        Hosting { stack, has_place }
    }
}

impl<D: Serves> Replica for Hosting<D> {
    fn run(&self) -> LocalBoxFuture<'_, Stopped> {
        Box::pin(async {
            let attending = async {
                self.has_place.wait_until(|has_place| *has_place).await;
                D::attend(&self.stack).await
            };
            // It is large, and would be moved about on the stack.
            match race(Box::pin(self.stack.run()), attending).await {
                Either::Left(stopped) | Either::Right(stopped) => stopped,
            }
        })
    }

    fn attend_now(&self) {
        self.has_place.set(true);
    }

    fn call<'a>(&'a self, operation: &'a str, request: &'a Bytes) -> LocalBoxFuture<'a, Called> {
        Box::pin(D::call(&self.stack, operation, request))
    }

    fn members(&self) -> Asked<'_, Vec<(ReplicaId, Member)>> {
        Box::pin(async {
            let rows = self.stack.base.sync().await?;
            let members = roster::members(&rows);
            members.map_err(|error| Lost::Log(crate::log::LogError::Failed(error)))
        })
    }

    fn join<'a>(&'a self, id: ReplicaId, member: &'a Member) -> Asked<'a, Told> {
        Box::pin(self.stack.join(id, member))
    }

    fn remove(&self, id: ReplicaId) -> Asked<'_, Told> {
        Box::pin(self.stack.remove(id))
    }

    fn switch(&self, engine: Guard, on: bool) -> Asked<'_, Told> {
        Box::pin(self.stack.switch(engine, on))
    }

    fn refuses(&self, engine: Guard, on: bool) -> Option<String> {
        let (how, why) = match on {
            true => ("with", D::refuses(engine.name)?),
            false => ("without", D::needs(engine.name)?),
        };
        let (kind, name) = (D::KIND, engine.name);
        Some(format!(
            "a service of kind {kind} cannot do {how} the engine {name}: {why}"
        ))
    }

    fn mark(&self) -> Asked<'_, Told> {
        Box::pin(self.stack.mark())
    }

    fn back_up<'a>(&'a self, place: &'a str) -> Asked<'a, Told> {
        Box::pin(self.stack.back_up(place))
    }

    fn backup(&self) -> Result<Option<BackupState>> {
        self.stack.backup.backup()
    }

    fn catch_up(&self) -> Asked<'_, ()> {
        Box::pin(async { self.stack.base.sync().await.map(drop) })
    }

    fn checksum_at(&self, mark: LogPos) -> Option<u64> {
        self.stack.checksum_at(mark)
    }

    fn trim(&self, before: LogPos) {
        self.stack.set_trim_prefix(before);
    }

    fn store(&self) -> &Rc<LocalStore> {
        self.stack.store()
    }

    fn load(&self) -> Result<Load> {
        metrics::load(&self.stack)
    }

    fn add_samples(&self, out: &mut Samples, id: ReplicaId) -> Result<()> {
        metrics::add_stack(out, &self.stack, id)
    }

    fn describe(&self, status: &mut ReplicaStatus) -> Result<()> {
        let switches = self.stack.switches()?.into_iter();
        status.engines = switches.map(|(of, on)| (of.name.into(), on)).collect();
        status.members = roster::members(&self.stack.store().snapshot())?;
        status.in_view = self.stack.views.replicas();
        status.lease_holder = self.stack.lease.holder()?;
        let measured = self.stack.measured();
        status.measured = measured.iter().map(describe_engine).collect();
        Ok(())
    }
}

/// The time below which this part of the timed requests was answered, in microseconds.
fn percentile(timed: &Timed, part: f64) -> u64 {
    bucket_of(&timed.buckets, part).map_or(0, |i| {
        bucket_end(i).map_or(u64::MAX, |end| end.as_micros() as u64)
    })
}

fn describe_engine(of: &Measured<'_>) -> EngineStatus {
    let timed = of.proposals.timed();
    EngineStatus {
        name: of.below.into(),
        proposals: of.proposals.asked(),
        syncs: of.syncs.asked(),
        median_us: percentile(&timed, 0.5),
        p99_us: percentile(&timed, 0.99),
    }
}
