//! The parts of the controller that a recovery works with. They outlive the epochs.

use crate::configured::Classes;
use crate::creation::{self, Creation};
use crate::phase::Phases;
use crate::placement::DiskStanding;
use plinth_coordination::Coordinators;
use plinth_core::{DatabaseConfig, Uid};
use plinth_protocol::control::{DatabaseState, RegisterWorker};
use plinth_protocol::database::DatabaseId;
use plinth_rpc::Transport;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Instant, planted, probe};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A disk that was full may be used again after this time.
const FULL: Duration = Duration::from_secs(60);
/// The same of a disk that was slow in a recovery. If it hangs, its worker knows by then.
const SLOW: Duration = Duration::from_secs(10);

pub struct Context {
    pub transport: Transport,
    pub coordinators: Coordinators,
    /// Live workers by process.
    pub workers: Watch<BTreeMap<Uid, RegisterWorker>>,
    /// The database of the coordinated state, once that is certain.
    pub database: Cell<Option<DatabaseId>>,
    /// Classes that operators have set. They override the classes that processes declare.
    pub classes: RefCell<Classes>,
    /// Requests of `configure new`.
    pub creation: Creation,
    /// Configuration of the living epoch, for status.
    pub config: Watch<Option<DatabaseConfig>>,
    /// For status.
    pub phase: Phases,
    pub full_disks: Noted,
    /// Disks that did not take what a recovery wrote.
    pub slow_disks: Noted,
    /// Others reach log servers that this process does not: it is not to be controller.
    pub is_cut_off: Cell<bool>,
}

impl Context {
    pub fn new(transport: &Transport, coordinators: &Coordinators) -> Self {
        Context {
            transport: transport.clone(),
            coordinators: coordinators.clone(),
            workers: Watch::new(BTreeMap::new()),
            database: Cell::new(None),
            classes: RefCell::default(),
            creation: Creation::default(),
            config: Watch::new(None),
            phase: Phases::default(),
            full_disks: Noted::kept_for(FULL),
            slow_disks: Noted::kept_for(SLOW),
            is_cut_off: Cell::new(false),
        }
    }

    /// Notes of which database the state is, and forgets workers that hold data of another one.
    pub fn knows_of(&self, state: &DatabaseState) {
        if !state.is_confirmed || self.database.get() == Some(state.database) {
            return;
        }
        self.database.set(Some(state.database));
        let database = &state.database;
        let is_foreign = |worker: &RegisterWorker| creation::holds_another(worker, database);
        if self
            .workers
            .with(|workers| workers.values().any(is_foreign))
        {
            probe!("controller_forgets_workers_of_another_database");
            self.workers
                .update(|workers| workers.retain(|_, worker| !is_foreign(worker)));
        }
    }

    pub fn disk_standing(&self, worker: &RegisterWorker) -> DiskStanding {
        match &worker.disk {
            _ if planted!(
                "sick_disks_are_trusted",
                "a recovery makes log servers on a disk that it knows does not work"
            ) =>
            {
                DiskStanding::Good
            }
            Some(sick) if !sick.works => DiskStanding::Sick,
            _ if self.full_disks.has(worker) => DiskStanding::Full,
            Some(_) => DiskStanding::Doubted,
            None if self.slow_disks.has(worker) => DiskStanding::Doubted,
            None => DiskStanding::Good,
        }
    }
}

/// Workers of which something was noted not long ago.
pub struct Noted {
    seen: RefCell<BTreeMap<SocketAddr, Instant>>,
    forget: Duration,
}

impl Noted {
    fn kept_for(forget: Duration) -> Self {
        let seen = RefCell::default();
        Noted { seen, forget }
    }

    pub fn report(&self, address: SocketAddr) {
        self.seen
            .borrow_mut()
            .insert(address, plinth_runtime::now());
    }

    fn has(&self, worker: &RegisterWorker) -> bool {
        let now = plinth_runtime::now();
        let seen = self.seen.borrow().get(&worker.worker.address).copied();
        seen.is_some_and(|at| now.saturating_since(at) < self.forget)
    }
}
