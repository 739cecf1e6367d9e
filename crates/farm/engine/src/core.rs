//! The state of one machine's engine, without its fabric: what it knows, and what it has to say.

use crate::active::Active;
use crate::durable::Durable;
use crate::ledger::{Ledger, Locks};
use crate::numbers::Numbers;
use crate::oat::Oat;
use crate::pace::Pace;
use crate::post::{Post, pause};
use crate::recovery::{Author, Fate, Recovery};
use crate::settings::Settings;
use crate::stage::Stage;
use crate::store::Store;
use crate::tally::Tally;
use crate::view::View;
use crate::wanted::Wanted;
use crate::wire::{Lock, Locked, Message, Number};
use plinth_farm_fabric::Machine;
use plinth_farm_memory::{Abort, Pointer};
use plinth_farm_time::{Bounds, Clock, Interval, Pending, Server, Untimed, Verdict};
use plinth_runtime::sync::{Notify, OneshotSender};
use plinth_runtime::{Duration, Instant, probe, sleep};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A wait that takes longer sleeps; a sleep ends up to a millisecond late on real machines.
const SLEEP_FROM: Duration = Duration::from_millis(2);

/// Locks that a transaction of this machine waits for.
pub struct Locking {
    /// Machines that have not answered.
    pub open: RefCell<Vec<Machine>>,
    pub granted: RefCell<Vec<Machine>>,
    /// The newest timestamp of what is locked.
    pub newest: Cell<u64>,
    pub refused: Cell<Option<Abort>>,
    pub tally: Tally,
}

/// Disks that a transaction of this machine waits for.
pub struct Keeping {
    /// Machines that have not said that they have it.
    pub open: RefCell<Vec<Machine>>,
    pub tally: Tally,
}

/// A lock that waits for memory for old versions (`mv-block`, §5.3).
pub struct Parked {
    pub coordinator: Machine,
    pub lock: Lock,
    pub until: Instant,
}

pub struct Core {
    pub own: Machine,
    pub settings: Settings,
    pub clock: Rc<Clock>,
    pub bounds: Bounds,
    pub stage: Stage,
    /// The configuration whose messages are taken.
    pub view: RefCell<Rc<View>>,
    /// The lives of its machines.
    pub authors: RefCell<Vec<Author>>,
    pub store: Store,
    pub post: Post,
    pub numbers: RefCell<Numbers>,
    pub ledger: RefCell<Ledger>,
    pub active: Active,
    pub oat: RefCell<Oat>,
    pub locking: RefCell<BTreeMap<Number, Rc<Locking>>>,
    pub keeping: RefCell<BTreeMap<Number, Rc<Keeping>>>,
    /// The machine's disk, in a durable cluster.
    pub durable: Option<Durable>,
    /// All machines with data have one.
    pub is_durable: bool,
    /// Transactions of this machine that a recovery may find committed, and whose callers do not know.
    pub committing: RefCell<BTreeSet<Number>>,
    pub recovery: RefCell<Recovery>,
    /// What transactions of ended configurations have locked here.
    pub locks: RefCell<Locks>,
    /// Regions whose replicas here are not whole.
    pub copies: RefCell<BTreeSet<u16>>,
    /// Another configuration will follow one in which somebody has failed.
    pub recovers: bool,
    pub parked: RefCell<Vec<Parked>>,
    pub wanted: Wanted,
    /// Who waits for a cell of another machine.
    pub asks: RefCell<BTreeMap<u64, OneshotSender<Pointer>>>,
    pub last_ask: Cell<u64>,
    /// Reads of objects so far. The number may wrap.
    pub reads: Cell<u32>,
    /// How many wait for a message of another machine.
    pub waiting: Cell<usize>,
    /// Somebody has begun to wait.
    pub bell: Notify,
    pub pace: Pace,
}

/// Somebody waits for a message of another machine, so the rings are looked at often.
pub struct Waiting<'a>(&'a Core);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waiting = self.0.waiting.get();
        assert!(waiting > 0, "one who waits has gone, and nobody waited");
        self.0.waiting.set(waiting - 1);
    }
}

impl Core {
    pub fn waiting(&self) -> Waiting<'_> {
        self.waiting.set(self.waiting.get() + 1);
        if self.waiting.get() == 1 {
            self.bell.notify_all();
        }
        Waiting(self)
    }

    pub fn view(&self) -> Rc<View> {
        self.view.borrow().clone()
    }

    /// A transaction of this machine has ended everywhere. Others hear of the mark with the next message.
    pub fn raise_below(&self) {
        let below = self.numbers.borrow().below();
        self.post.set_below(below);
        if let Some(account) = self.ledger.borrow_mut().of(self.own) {
            account.raise(below);
        }
    }

    /// A machine cannot be reached. The transaction fails when the configuration ends, so that who tries again does
    /// not meet the same.
    pub async fn end_with<T>(&self, number: u64) -> Result<T, Abort> {
        if self.recovers {
            self.stage.ended(number).await;
        }
        Err(Abort::Failed)
    }

    /// What became of a transaction that was committing when its configuration ended: its write timestamp, or
    /// `Failed`. Waits for the recovery. `Unknown` if there is none.
    pub async fn outcome(&self, number: Number) -> Result<u64, Abort> {
        loop {
            let fate = self.recovery.borrow().outcome(number);
            if let Some(fate) = fate {
                probe!("farm outcome told by a recovery");
                self.recovery.borrow_mut().forget(number);
                return match fate {
                    Fate::Committed { written_at } => Ok(written_at),
                    Fate::WithoutEffect => Err(Abort::Failed),
                };
            }
            if self.stage.has_left() || !self.recovers {
                return Err(Abort::Unknown);
            }
            self.stage.changed().await;
        }
    }

    pub async fn pause(&self) {
        pause(self.settings.pause).await;
    }

    // ---- time ----

    /// The master's time; `None` while nobody may use it.
    pub fn interval(&self) -> Result<Option<Interval>, Abort> {
        match self.clock.time() {
            Ok(interval) => Ok(self.may_be_used(interval).then_some(interval)),
            Err(Untimed::Broken) => Err(Abort::Left),
            Err(Untimed::Disabled | Untimed::Unsynchronised) => Ok(None),
        }
    }

    /// The same. Waits until it may be used.
    pub async fn time(&self) -> Result<Interval, Abort> {
        loop {
            match self.interval()? {
                Some(interval) => return Ok(interval),
                None => sleep(self.settings.idle).await,
            }
        }
    }

    /// Waits until the upper bound of `then` is surely past (Figure 4). Returns it.
    pub async fn until_past(&self, then: Interval) -> Result<u64, Abort> {
        let pending = Pending::new(then);
        let mut now = then;
        loop {
            let ns = match pending.check(now, &self.bounds) {
                Verdict::Past(timestamp) => return Ok(timestamp),
                Verdict::Wait(ns) => Duration::from_nanos(ns),
            };
            if self.settings.pause > Duration::ZERO {
                sleep(ns).await;
            } else if ns > SLEEP_FROM {
                sleep(ns - SLEEP_FROM).await;
            } else {
                self.pause().await;
            }
            // Others may have read a clock that shows it. That is as good, and costs no reading.
            if let Some(floor) = self.clock.look(Server::floor) {
                let (lower, upper) = (floor, floor);
                if let Verdict::Past(timestamp) =
                    pending.check(Interval { lower, upper }, &self.bounds)
                {
                    return Ok(timestamp);
                }
            }
            now = self.time().await?;
        }
    }

    /// A timestamp that was not past when this was called, and is now.
    pub async fn timestamp(&self) -> Result<u64, Abort> {
        let now = self.time().await?;
        self.until_past(now).await
    }

    // ---- what others answer ----

    /// A primary has answered a lock.
    pub fn lock_answered(&self, number: Number, by: Machine, reply: Result<u64, Abort>) {
        let locking = self.locking.borrow().get(&number).cloned();
        let Some(locking) = locking else {
            return;
        };
        let open = locking.open.borrow().iter().position(|m| *m == by);
        let Some(at) = open else {
            return;
        };
        locking.open.borrow_mut().remove(at);
        match reply {
            Ok(newest) => {
                locking.newest.set(locking.newest.get().max(newest));
                locking.granted.borrow_mut().push(by);
            }
            Err(abort) => locking.refused.set(Some(abort)),
        }
        locking.tally.done();
    }

    /// A machine has these transactions on its disk.
    pub fn kept(&self, numbers: &[Number], by: Machine) {
        for number in numbers {
            let keeping = self.keeping.borrow().get(number).cloned();
            let Some(keeping) = keeping else {
                continue;
            };
            let open = keeping.open.borrow().iter().position(|m| *m == by);
            if let Some(at) = open {
                keeping.open.borrow_mut().remove(at);
                keeping.tally.done();
            }
        }
    }

    /// Answers a lock of `coordinator`, which may be this machine.
    pub fn answer_lock(&self, coordinator: Machine, number: Number, reply: Result<u64, Abort>) {
        match coordinator == self.own {
            true => self.lock_answered(number, self.own, reply),
            false => {
                let reply = Locked(reply);
                let reply = Message::LockReply { number, reply };
                self.post.push(coordinator, reply, None);
            }
        }
    }
}
