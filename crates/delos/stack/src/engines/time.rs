//! Timers that fire at one position of the log, on all replicas, robust to clocks that are wrong (§4.3 F).
//!
//! ```text
//!   create ──► each replica waits by its own clock, from when it applies the creation
//!          ◄── and says so, through the log; when enough replicas have, the timer fires, and its row goes
//! ```
//! A timer is for so many replicas: it fires when this many have waited for its time. So it fires too early only if as
//! many clocks are fast. A replica that restarts waits for the whole time again, unless it has said that it is over. A
//! timer is known by the position of its creation, so its end also tells the age of all that is before it in the log.
//!
//! While the engine is off, nothing fires and nobody creates a timer. Those that there are go on afterwards.

use super::above::{Above, Rule};
use super::guard::Guard;
use crate::log::{LogError, LogPos};
use crate::stack::{Answer, Applicator, Engine, Layer, Lost, ReplicaId};
use crate::store::{LocalStore, RoTx, RwTx};
use crate::words::{parse, words};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::{Error, Result};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Instant, now, planted, probe, race, sleep};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

pub const GUARD: Guard = Guard { name: "time" };
/// More timers at a time are refused. All are looked at together.
pub const TIMERS_MAX: usize = 1000;
/// A replica follows the log at least this often, and says again what may be lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The position of a timer's creation.
pub type TimerId = LogPos;

/// The engine's own entries.
const CREATION: u8 = 0;
const VOTE: u8 = 1;

/// A timer's row: `milliseconds u64 | replicas that it is for u8 | each that has waited u64`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Timer {
    millis: u64,
    needed: u8,
    voters: Vec<ReplicaId>,
}

impl Timer {
    fn key(id: TimerId) -> Vec<u8> {
        GUARD.key(&id.to_be_bytes())
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(9 + 8 * self.voters.len());
        out.put_u64_le(self.millis);
        out.put_u8(self.needed);
        self.voters.iter().for_each(|voter| out.put_u64_le(*voter));
        out.freeze()
    }

    fn parse(mut row: &[u8]) -> Option<Timer> {
        let millis = row.try_get_u64_le().ok()?;
        let needed = row.try_get_u8().ok()?;
        let mut voters = Vec::new();
        while !row.is_empty() {
            voters.push(row.try_get_u64_le().ok()?);
        }
        Some(Timer {
            millis,
            needed,
            voters,
        })
    }
}

/// True if the timer has been created and has not fired yet. For those above, who apply an entry.
///
/// # Errors
/// The disk fails.
pub fn is_running(tx: &RwTx, id: TimerId) -> Result<bool> {
    Ok(tx.get(&Timer::key(id))?.is_some())
}

/// The timers there are, in the order of their creation.
fn timers(rows: &RoTx) -> Result<Vec<(TimerId, Timer)>> {
    let parse = |(id, row): (TimerId, Bytes)| Some((id, Timer::parse(&row)?));
    let timers = GUARD.rows_by_id(rows)?.into_iter().map(parse);
    timers.collect::<Option<_>>().ok_or(Error::file_corrupt)
}

/// Forgets which replicas have waited: what was restored becomes another service, with so many replicas. Its timers
/// begin again.
///
/// # Errors
/// The disk fails.
pub fn forget_votes(tx: &mut RwTx, replicas: u8) -> Result<()> {
    let (begin, end) = GUARD.keys();
    for (key, row) in tx.range(&begin, &end, usize::MAX)? {
        let mut timer = Timer::parse(&row).ok_or(Error::file_corrupt)?;
        timer.voters.clear();
        timer.needed = timer.needed.min(replicas);
        tx.set(&key, timer.encode());
    }
    Ok(())
}

/// See the module.
#[derive(Default)]
pub struct Time {
    /// Rings when a timer is created, and when one fires.
    changes: Notify,
}
pub type TimeAbove<A> = Above<Time, A>;

impl Time {
    /// A creation: `milliseconds u64 | replicas u8`. The answer is the timer's id; it is empty if it is refused.
    fn create(&self, tx: &mut RwTx, said: &[u8], pos: LogPos) -> Result<Bytes> {
        let timer = Timer::parse(said).filter(|timer| timer.needed > 0 && timer.voters.is_empty());
        let (begin, end) = GUARD.keys();
        let Some(timer) = timer else {
            return Ok(Bytes::new());
        };
        // Those of a batch have one position.
        if is_running(tx, pos)? || tx.range(&begin, &end, TIMERS_MAX)?.len() >= TIMERS_MAX {
            return Ok(Bytes::new());
        }
        tx.set(&Timer::key(pos), timer.encode());
        self.changes.notify_all();
        Ok(Bytes::copy_from_slice(&pos.to_le_bytes()))
    }

    /// A replica has waited: `timer u64 | replica u64`.
    fn vote(&self, tx: &mut RwTx, said: &[u8]) -> Result<()> {
        let Some([id, replica]) = parse(said) else {
            return Ok(());
        };
        let Some(row) = tx.get(&Timer::key(id))? else {
            return Ok(());
        };
        let mut timer = Timer::parse(&row).ok_or(Error::file_corrupt)?;
        let is_counted_again = planted!(
            "delos_timer_twice",
            "a replica that says twice that a timer is over counts as two"
        );
        if timer.voters.contains(&replica) && !is_counted_again {
            probe!("delos_timer_vote_repeated");
            return Ok(());
        }
        timer.voters.push(replica);
        if timer.voters.len() < timer.needed.into() {
            tx.set(&Timer::key(id), timer.encode());
            return Ok(());
        }
        tx.clear(&Timer::key(id));
        self.changes.notify_all();
        Ok(())
    }
}

impl<A: Applicator> Rule<A> for Time {
    const GUARD: Guard = GUARD;

    fn own(&self, tx: &mut RwTx, said: Bytes, pos: LogPos) -> Result<Bytes> {
        match said.split_first() {
            Some((&CREATION, said)) => self.create(tx, said, pos),
            Some((&VOTE, said)) => self.vote(tx, said).map(|()| Bytes::new()),
            _ => Ok(Bytes::new()),
        }
    }
}

/// See the module.
pub struct TimeBelow<E> {
    down: E,
    store: Rc<LocalStore>,
    replica: ReplicaId,
    changes: Notify,
    /// When each timer is over, by this replica's clock.
    ends: RefCell<BTreeMap<TimerId, Instant>>,
}

impl<E: Engine> TimeBelow<E> {
    pub fn new<A: Applicator>(
        down: E,
        store: Rc<LocalStore>,
        replica: ReplicaId,
        above: &TimeAbove<A>,
    ) -> Self {
        TimeBelow {
            down,
            store,
            replica,
            changes: above.rule.changes.clone(),
            ends: RefCell::default(),
        }
    }

    /// Creates a timer that fires when `time` has passed at as many replicas as `needed`, one at least. `None` if the
    /// engine is off, or there are [`TIMERS_MAX`] timers. A timer for more replicas than there are never fires.
    ///
    /// # Errors
    /// Those of the proposal. There may be a timer then, of which nobody knows.
    pub async fn create(
        &self,
        time: Duration,
        needed: u8,
    ) -> std::result::Result<Option<TimerId>, Lost> {
        let timer = Timer {
            millis: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            needed,
            voters: Vec::new(),
        };
        let entry = GUARD.own_of(CREATION, &timer.encode());
        Ok(match self.down.propose(entry).await? {
            Answer::Own(mut id) => id.try_get_u64_le().ok(),
            _ => None,
        })
    }

    /// Waits until a timer that was created has fired.
    ///
    /// # Errors
    /// The replica stops, or its disk fails.
    pub async fn fired(&self, id: TimerId) -> std::result::Result<(), Lost> {
        loop {
            let change = self.changes.notified();
            let rows = self.down.sync().await?;
            let row = rows.get(&Timer::key(id)).map_err(LogError::Failed);
            if row.map_err(Lost::Log)?.is_none() {
                return Ok(());
            }
            drop(rows);
            race(change, sleep(LOOK_INTERVAL)).await;
        }
    }

    /// Waits for the timers' ends, and says so, for ever.
    pub async fn run(&self) -> Infallible {
        loop {
            let change = self.changes.notified();
            let _ = self.look_around().await; // the next look does the same
            race(change, sleep(self.pause())).await;
        }
    }

    /// Until the next timer is over, if it is soon.
    fn pause(&self) -> Duration {
        let ends = self.ends.borrow();
        let left = ends.values().map(|end| end.saturating_since(now()));
        let left = left.filter(|left| *left > Duration::ZERO);
        left.min().unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)
    }

    async fn look_around(&self) -> std::result::Result<(), Lost> {
        drop(self.down.sync().await?); // nothing else may play the log here
        let over = self.look_at_rows().map_err(LogError::Failed);
        for id in over.map_err(Lost::Log)? {
            let vote = GUARD.own_of(VOTE, &words(&[id, self.replica]));
            self.down.propose(vote).await?;
        }
        Ok(())
    }

    /// Begins to wait for new timers. The timers that are over, and this replica has not said it.
    fn look_at_rows(&self) -> Result<Vec<TimerId>> {
        let rows = self.store.snapshot();
        let mut ends = self.ends.borrow_mut();
        let mut before = std::mem::take(&mut *ends);
        for (id, timer) in timers(&rows)? {
            if !timer.voters.contains(&self.replica) {
                let end = || now() + Duration::from_millis(timer.millis);
                ends.insert(id, before.remove(&id).unwrap_or_else(end));
            }
        }
        if !GUARD.was_on(&rows)? {
            return Ok(Vec::new());
        }
        let over = ends.iter().filter(|(_, end)| now() >= **end);
        Ok(over.map(|(id, _)| *id).collect())
    }
}

impl<E: Engine> Layer for TimeBelow<E> {
    type Down = E;

    fn down(&self) -> &E {
        &self.down
    }
}
