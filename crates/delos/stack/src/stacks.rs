//! The standard stack (Figure 6): all engines, in one order, under any application and over any log.
//!
//! ```text
//!   application
//!   batching         proposals that come together share an entry
//!   session_order    each proposal once, in the order of its replica
//!   brain_doctor     an operator changes rows
//!   lease            one replica reads without asking the log
//!   time             timers
//!   log_backup       a backup, up to which the log may be trimmed
//!   view_tracking    who has how much of the log on disk
//!   roster           the replicas by name, and which engines each has
//!   base             plays the log
//! ```
//! Why this order: only the application may be above Batching. BrainDoctor's entries change what those above Lease
//! read, and all replicas propose entries of Time and ViewTracking, whoever has the lease. An [`Observer`] above each
//! engine measures it.
//!
//! All engines but Base, Roster and the observers are off until the log switches them on ([`Standard::switch`]), which
//! the roster lets it do when all replicas have the engine (§3.4).

use crate::backup::Backups;
use crate::base::{Base, Stopped};
use crate::engines::batching::{self, BatchingAbove, BatchingBelow, Returned};
use crate::engines::brain_doctor::{self, BrainDoctorAbove, BrainDoctorBelow};
use crate::engines::guard::Guard;
use crate::engines::lease::{self, LeaseAbove, LeaseBelow};
use crate::engines::log_backup::{self, LogBackupAbove, LogBackupBelow};
use crate::engines::observer::Observer;
use crate::engines::roster::{self, Member, RosterAbove, Told};
use crate::engines::session_order::{self, SessionOrderAbove, SessionOrderBelow};
use crate::engines::time::{self, TimeAbove, TimeBelow};
use crate::engines::view_tracking::{self, ViewTrackingAbove, ViewTrackingBelow};
use crate::log::{LogPos, SharedLog};
use crate::stack::{Application, Engine, Layer, Lost, ReplicaId, Spent, Top};
use crate::store::LocalStore;
use plinth_core::Result;
use plinth_runtime::metric::latency::Latency;
use plinth_runtime::{Duration, Either, race};
use std::rc::Rc;

/// The engines that the log switches on and off, from the bottom to the top.
pub const ENGINES: [Guard; 7] = [
    view_tracking::GUARD,
    log_backup::GUARD,
    time::GUARD,
    lease::GUARD,
    brain_doctor::GUARD,
    session_order::GUARD,
    batching::GUARD,
];

/// The engine with this name.
pub fn engine(name: &str) -> Option<Guard> {
    ENGINES.into_iter().find(|guard| guard.name == name)
}

/// What is above each engine, from the top to the bottom.
type OnOrder<D> = BatchingAbove<Top<D>>;
type OnDoctor<D> = SessionOrderAbove<OnOrder<D>>;
type OnLease<D> = BrainDoctorAbove<OnDoctor<D>>;
type OnTime<D> = LeaseAbove<OnLease<D>>;
type OnBackup<D> = TimeAbove<OnTime<D>>;
type OnViews<D> = LogBackupAbove<OnBackup<D>>;
type OnRoster<D> = ViewTrackingAbove<OnViews<D>>;
pub type OnBase<D> = RosterAbove<OnRoster<D>>;

type Return<D> = <D as Application>::Return;
type Refusal<D> = <D as Application>::Refusal;

type Seen<E> = Rc<Observer<E>>;
type Bottom<L, D> = Base<L, OnBase<D>>;
type Views<L, D> = ViewTrackingBelow<Seen<Rc<Bottom<L, D>>>>;
type Backup<L, D> = LogBackupBelow<Seen<Views<L, D>>, L>;
type Time<L, D> = TimeBelow<Seen<Backup<L, D>>>;
type Lease<L, D> = LeaseBelow<Seen<Time<L, D>>>;
type Doctor<L, D> = BrainDoctorBelow<Seen<Lease<L, D>>>;
type Order<L, D> =
    SessionOrderBelow<Seen<Doctor<L, D>>, Returned<Return<D>, Refusal<D>>, Refusal<D>>;
type Batching<L, D> = BatchingBelow<Seen<Order<L, D>>, Return<D>, Refusal<D>>;

/// How long what is below a place of the stack takes.
pub struct Measured<'a> {
    pub below: &'static str,
    pub proposals: &'a Latency,
    pub syncs: &'a Latency,
}

/// How long a part of the stack took to apply entries, of those that were timed.
#[derive(Clone, PartialEq, Debug)]
pub struct Applying {
    pub part: &'static str,
    pub sum: Duration,
    /// How often the clock was read to know it.
    pub clocks: u64,
}

/// See the module. Nothing goes on while [`Standard::run`] does not run.
pub struct Standard<L: SharedLog + 'static, D: Application> {
    pub base: Rc<Bottom<L, D>>,
    seen_base: Seen<Rc<Bottom<L, D>>>,
    pub views: Seen<Views<L, D>>,
    pub backup: Seen<Backup<L, D>>,
    pub time: Seen<Time<L, D>>,
    pub lease: Seen<Lease<L, D>>,
    pub doctor: Seen<Doctor<L, D>>,
    order: Seen<Order<L, D>>,
    batching: Seen<Batching<L, D>>,
}

fn seen<E: Engine>(guard: Guard, engine: E) -> Seen<E> {
    Rc::new(Observer::new(guard.name, engine))
}

/// What is above Base.
pub fn above<D: Application>(application: D, store: &Rc<LocalStore>) -> OnBase<D> {
    let above = SessionOrderAbove::new(BatchingAbove::new(Top(application)));
    let above = LeaseAbove::new(BrainDoctorAbove::new(above));
    let above = LogBackupAbove::new(TimeAbove::new(above));
    RosterAbove::new(ViewTrackingAbove::new(above), &ENGINES, store)
}

/// Makes the rows of a service, which were restored, those of a new service with so many replicas: what they say of
/// the old one's replicas and of its backup goes. The application's rows, and the engines that are on, stay. One entry
/// more is applied then.
///
/// # Errors
/// The disk fails.
pub fn make_new(store: &Rc<LocalStore>, replicas: u8) -> Result<()> {
    let mut tx = store.begin(store.applied() + 1);
    roster::forget_replicas(&mut tx)?;
    let of_replicas = [view_tracking::GUARD, lease::GUARD, session_order::GUARD];
    for engine in [&of_replicas[..], &[log_backup::GUARD]].concat() {
        let (begin, end) = engine.keys();
        tx.clear_range(&begin, &end)?;
    }
    roster::forget_switch(&mut tx, log_backup::GUARD);
    time::forget_votes(&mut tx, replicas)?;
    tx.commit()
}

impl<L: SharedLog + 'static, D: Application> Standard<L, D> {
    /// The stack of the replica with this identity, which has `store` for itself.
    pub fn new(
        log: Rc<L>,
        store: Rc<LocalStore>,
        replica: ReplicaId,
        application: D,
        backups: Backups,
    ) -> Rc<Self> {
        let base = Base::new(log.clone(), store.clone(), above(application, &store));
        let on_backup = base.applicator().above().above().above();
        let on_time = on_backup.above();
        let on_doctor = on_time.above().above();
        let seen_base = Rc::new(Observer::new("base", base.clone()));
        let views = ViewTrackingBelow::new(seen_base.clone(), store.clone(), replica);
        let views = seen(view_tracking::GUARD, views);
        let backup = LogBackupBelow::new(views.clone(), log, backups, store.clone(), replica);
        let backup = seen(log_backup::GUARD, backup);
        let time = TimeBelow::new(backup.clone(), store.clone(), replica, on_backup);
        let time = seen(time::GUARD, time);
        let lease = LeaseBelow::new(time.clone(), store.clone(), replica, on_time);
        let lease = seen(lease::GUARD, lease);
        let down = lease.clone();
        let doctor = seen(brain_doctor::GUARD, BrainDoctorBelow { down });
        let order = SessionOrderBelow::new(doctor.clone(), store.clone(), on_doctor);
        let order = seen(session_order::GUARD, order);
        let batching = BatchingBelow::new(order.clone(), store);
        let batching = seen(batching::GUARD, batching);
        Rc::new(Standard {
            base,
            seen_base,
            views,
            backup,
            time,
            lease,
            doctor,
            order,
            batching,
        })
    }

    /// Runs all engines until the replica has to stop.
    pub async fn run(&self) -> Stopped {
        // Boxed: each race has room for what it races again.
        let tracking = race(Box::pin(self.views.run()), Box::pin(self.backup.run()));
        let timing = race(Box::pin(self.time.run()), Box::pin(self.lease.run()));
        let high = race(Box::pin(self.order.run()), Box::pin(self.batching.run()));
        let engines = race(race(tracking, timing), high);
        match race(Box::pin(self.base.run()), engines).await {
            Either::Left(stopped) => self.roster().stopped().map_or(stopped, Stopped),
            Either::Right(_) => unreachable!("they run for ever"),
        }
    }

    fn roster(&self) -> &OnBase<D> {
        self.base.applicator()
    }

    pub fn application(&self) -> &D {
        let on_time = self.roster().above().above().above().above();
        &on_time.above().above().above().above().0
    }

    pub fn store(&self) -> &Rc<LocalStore> {
        self.base.store()
    }

    /// Switches an engine on or off, on all replicas at one position of the log. Refused if a replica lacks it (§3.4).
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn switch(&self, engine: Guard, on: bool) -> std::result::Result<Told, Lost> {
        roster::propose_switch(&self.base, engine, on).await
    }

    /// Begins a backup in this place, or goes on with the one that is there. The session, or why it is refused.
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn back_up(&self, place: &str) -> std::result::Result<Told, Lost> {
        // Before the engine is on, which would go on with the former place.
        let is_empty = match self.backup.claim(place).await {
            Ok(is_empty) => is_empty,
            Err(line) => return Ok(Err(line)),
        };
        match self.switch(log_backup::GUARD, true).await? {
            Ok(_) => self.backup.start(place, is_empty).await,
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Says who the replica with this identity is. Refused if another one has its name or its address.
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn join(&self, id: ReplicaId, member: &Member) -> std::result::Result<Told, Lost> {
        roster::propose_join(&self.base, id, member).await
    }

    /// Removes a replica from the roster, for good.
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn remove(&self, id: ReplicaId) -> std::result::Result<Told, Lost> {
        roster::propose_leave(&self.base, id).await
    }

    /// Marks a position at which every replica remembers the checksum of its rows.
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn mark(&self) -> std::result::Result<Told, Lost> {
        roster::propose_mark(&self.base).await
    }

    /// The checksum at a mark, if this replica has it.
    pub fn checksum_at(&self, mark: LogPos) -> Option<u64> {
        self.roster().checksum_at(mark)
    }

    /// The engines, from the bottom to the top, and whether each is on as far as this replica has applied the log.
    ///
    /// # Errors
    /// The disk fails.
    pub fn switches(&self) -> Result<Vec<(Guard, bool)>> {
        let rows = self.store().snapshot();
        let engines = ENGINES.into_iter();
        engines
            .map(|guard| Ok((guard, guard.was_on(&rows)?)))
            .collect()
    }

    /// Where the time of applying entries goes: each part by itself, from the bottom to the top.
    pub fn applying(&self) -> Vec<Applying> {
        let stages = &self.base.stages;
        let whole = |part, spent: &Spent| Applying {
            part,
            sum: spent.sum(),
            clocks: spent.times(),
        };
        let roster = self.roster();
        let views = roster.above();
        let (backup, time) = (views.above(), views.above().above());
        let lease = time.above();
        let (doctor, order) = (lease.above(), lease.above().above());
        let batching = order.above();
        // What each has spent with all above it.
        let above = [
            ("roster", &self.base.upper.spent),
            (view_tracking::GUARD.name, &roster.upper.spent),
            (log_backup::GUARD.name, &views.upper.spent),
            (time::GUARD.name, &backup.upper.spent),
            (lease::GUARD.name, &time.upper.spent),
            (brain_doctor::GUARD.name, &lease.upper.spent),
            (session_order::GUARD.name, &doctor.upper.spent),
            (batching::GUARD.name, &order.upper.spent),
            ("application", &batching.upper.spent),
        ];
        let engines = above.windows(2).map(|pair| Applying {
            part: pair[0].0,
            sum: pair[0].1.sum().saturating_sub(pair[1].1.sum()),
            clocks: pair[0].1.times() + pair[1].1.times(),
        });
        let begin = whole("base: begin", &stages.begin);
        let mut all: Vec<Applying> = [begin].into_iter().chain(engines).collect();
        all.push(whole("application", &batching.upper.spent));
        all.push(whole("base: commit", &stages.commit));
        all.push(whole("post_apply", &stages.post_apply));
        all
    }

    /// Of each engine with all that is below it, from the bottom to the top.
    pub fn measured(&self) -> [Measured<'_>; 8] {
        fn of<E>(seen: &Observer<E>) -> Measured<'_> {
            Measured {
                below: seen.below,
                proposals: &seen.proposals,
                syncs: &seen.syncs,
            }
        }
        [
            of(&self.seen_base),
            of(&self.views),
            of(&self.backup),
            of(&self.time),
            of(&self.lease),
            of(&self.doctor),
            of(&self.order),
            of(&self.batching),
        ]
    }
}

impl<L: SharedLog + 'static, D: Application> Layer for Standard<L, D> {
    type Down = Seen<Batching<L, D>>;

    fn down(&self) -> &Self::Down {
        &self.batching
    }
}
