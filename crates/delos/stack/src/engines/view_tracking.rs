//! Knows the replicas, and how far each has the log on its own disk, so that the log can be trimmed (§4.1 A).
//!
//! A replica reports its flushed position along with the first proposal after a flush, and by itself when it has
//! reported nothing for a second. Who is silent for [`EJECT_AFTER`] is put out of the view by another replica, through
//! the log, unless a report of its own came before that. It is in the view again with its next report. The log may go
//! up to what all in the view have; who has never reported is not waited for.

use super::above::{Above, Rule};
use super::guard::Guard;
use crate::entry::Entry;
use crate::log::LogPos;
use crate::stack::{Applicator, Applied, Engine, Layer, ProposedTo, ReplicaId, Upper};
use crate::store::{LocalStore, RwTx};
use crate::words::{parse, words};
use bytes::Bytes;
use plinth_core::{Error, Result};
use plinth_runtime::{Duration, Instant, nobody_has_lied, now, probe, sleep, trace};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

pub const GUARD: Guard = Guard {
    name: "view_tracking",
};
/// A replica says how far it is at least this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Shorter than any time for which entries are worth keeping for a replica that may be gone.
pub const EJECT_AFTER: Duration = Duration::from_secs(60);

/// The engine's own entries: a report, and the end of a replica.
const REPORT: u8 = 0;
const EJECTION: u8 = 1;

fn row_of(replica: ReplicaId) -> Vec<u8> {
    GUARD.key(&replica.to_be_bytes())
}

/// See the module.
#[derive(Default)]
pub struct ViewTracking;
pub type ViewTrackingAbove<A> = Above<ViewTracking, A>;

/// A report: `replica | flushed position`. Its row: `flushed position | position of the report`.
fn take_report(tx: &mut RwTx, said: &[u8], pos: LogPos) {
    if let Some([replica, flushed]) = parse(said) {
        tx.set(&row_of(replica), words(&[flushed, pos]));
    }
}

fn eject(tx: &mut RwTx, said: &[u8]) -> Result<()> {
    let Some([replica, last_entry]) = parse(said) else {
        return Ok(());
    };
    let row = tx.get(&row_of(replica))?;
    let is_silent = row.and_then(|row| parse(&row)).map(|[_, pos]| pos) == Some(last_entry);
    if is_silent {
        probe!("delos_replica_ejected");
        tx.clear(&row_of(replica));
    }
    Ok(())
}

impl<A: Applicator> Rule<A> for ViewTracking {
    const GUARD: Guard = GUARD;

    fn own(&self, tx: &mut RwTx, said: Bytes, pos: LogPos) -> Result<Bytes> {
        match said.split_first() {
            Some((&REPORT, said)) => take_report(tx, said, pos),
            // `replica u64 | its last entry u64`
            Some((&EJECTION, said)) => eject(tx, said)?,
            _ => {}
        }
        Ok(Bytes::new())
    }

    fn pass(
        &self,
        upper: &Upper<A>,
        tx: &mut RwTx,
        entry: &Entry,
        note: Option<Bytes>,
        pos: LogPos,
    ) -> Applied<A::Return, A::Refusal> {
        if let Some(said) = note {
            take_report(tx, &said, pos);
        }
        upper.apply(tx, entry, pos)
    }
}

/// See the module.
pub struct ViewTrackingBelow<E> {
    down: E,
    store: Rc<LocalStore>,
    replica: ReplicaId,
    /// Of each replica in the view, the entry that told of it last, and when that was noticed here.
    heard: RefCell<BTreeMap<ReplicaId, (LogPos, Instant)>>,
    /// All in the view have the entries up to this one.
    everybody_has: Cell<LogPos>,
    /// What those above allow to trim.
    wanted: Cell<LogPos>,
    reported: Cell<Option<Instant>>,
    /// The position in the last report.
    told: Cell<Option<LogPos>>,
}

impl<E: Engine> ViewTrackingBelow<E> {
    pub fn new(down: E, store: Rc<LocalStore>, replica: ReplicaId) -> Self {
        ViewTrackingBelow {
            down,
            store,
            replica,
            heard: RefCell::default(),
            everybody_has: Cell::new(0),
            wanted: Cell::new(0),
            reported: Cell::new(None),
            told: Cell::new(None),
        }
    }

    fn report(&self) -> Bytes {
        let flushed = self.store.flushed();
        self.reported.set(Some(now()));
        self.told.set(Some(flushed));
        words(&[self.replica, flushed])
    }

    /// Reports, ejects and trims, for ever.
    pub async fn run(&self) -> Infallible {
        loop {
            sleep(REPORT_INTERVAL / 4).await;
            let is_time = self.reported.get();
            if is_time.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
                let report = GUARD.own_of(REPORT, &self.report());
                let _ = self.down.propose(report).await; // the next one tells the same
            }
            if self.look_at_rows().is_ok() {
                self.trim();
                self.eject_silent().await;
            }
        }
    }

    /// Learns from the rows who is in the view.
    fn look_at_rows(&self) -> Result<()> {
        let found = GUARD.rows_by_id(&self.store.snapshot())?;
        let mut heard = self.heard.borrow_mut();
        let mut before = std::mem::take(&mut *heard);
        let mut everybody_has = LogPos::MAX;
        for (id, row) in found {
            let [flushed, pos] = parse(&row).ok_or(Error::file_corrupt)?;
            // Else the log would go that this replica has not on disk.
            assert!(
                id != self.replica || flushed <= self.store.flushed() || !nobody_has_lied(),
                "this replica has said that it has {flushed} on disk, and has {}",
                self.store.flushed()
            );
            everybody_has = everybody_has.min(flushed);
            let known = before.remove(&id).filter(|(at, _)| *at == pos);
            heard.insert(id, known.unwrap_or((pos, now())));
        }
        let is_empty = heard.is_empty();
        let has = if is_empty { 0 } else { everybody_has };
        self.everybody_has.set(has);
        Ok(())
    }

    fn trim(&self) {
        let safe = self.everybody_has.get() + 1;
        self.down.set_trim_prefix(safe.min(self.wanted.get()));
    }

    async fn eject_silent(&self) {
        let silent: Vec<(ReplicaId, LogPos)> = {
            let heard = self.heard.borrow();
            let is_silent = |since: &Instant| since.elapsed() > EJECT_AFTER;
            let silent = heard.iter().filter(|(_, (_, since))| is_silent(since));
            silent.map(|(id, (pos, _))| (*id, *pos)).collect()
        };
        for (id, last_entry) in silent {
            if id != self.replica {
                trace!("DelosReplicaSilent", "replica" => id, "position" => last_entry);
                let ejection = GUARD.own_of(EJECTION, &words(&[id, last_entry]));
                let _ = self.down.propose(ejection).await; // tried again
            }
        }
    }

    /// The replicas in the view, as this replica saw them last.
    pub fn replicas(&self) -> Vec<ReplicaId> {
        self.heard.borrow().keys().copied().collect()
    }
}

impl<E: Engine> Layer for ViewTrackingBelow<E> {
    type Down = E;

    fn down(&self) -> &E {
        &self.down
    }

    fn propose(&self, mut entry: Entry) -> impl Future<Output = ProposedTo<E>> {
        // With each proposal it would cost every replica a row an entry.
        if self.told.get() != Some(self.store.flushed()) {
            GUARD.note(&mut entry, &self.report());
        }
        self.down.propose(entry)
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        self.wanted.set(self.wanted.get().max(pos));
        self.trim();
    }
}
