//! What a replica does for the backup.

use super::rows::{
    AGAIN, BID, Bid, COPIED, COPYING, CopyBid, DONE, GUARD, State, TAKE, bids, copy_bid, start,
};
use crate::backup::objects::{Page, RowsCopy, Segment};
use crate::backup::{Backups, Outcome, Patient, Place, claim, put_manifest, put_segment};
use crate::engines::batching;
use crate::entry::Entry;
use crate::log::{LogError, LogPos, SharedLog};
use crate::stack::{Answer, Engine, Layer, Lost, ReplicaId};
use crate::store::LocalStore;
use crate::store::copy::Held;
use crate::words::words;
use bytes::{Buf, Bytes};
use plinth_core::{Error, Result};
use plinth_runtime::{
    Duration, Instant, Pace, knob, now, planted, probe, random, sleep, trace, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;

knob! {
    /// What a service has executed is in its backup after about so long.
    BACKUP_WAIT_MS: u64 = "delos_backup_wait_ms", 10_000, sim 500, 30_000, legal 100, 3_600_000;
    /// Entries without a request, which engines have made for themselves, may wait for so long.
    BACKUP_OWN_WAIT_MS: u64 = "delos_backup_own_wait_ms", 600_000, sim 1000, 60_000, legal 1000, 3_600_000;
}

/// Requests that were executed wait for so long before they are copied, if they are few.
pub fn wait() -> Duration {
    Duration::from_millis(BACKUP_WAIT_MS.get())
}

/// A segment ends with the read of the log that goes over this.
const SEGMENT_BYTES: usize = 4 << 20;
const SEGMENT_ENTRIES: usize = 1000;
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Who has not copied a segment after this time is not waited for, nor one who copies rows and says nothing. Nor is a
/// place that does not answer.
pub const TAKE_AFTER: Duration = Duration::from_secs(60);
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(15);
const PAGE_BYTES: usize = 2 << 20;
/// While rows are copied, nothing is flushed: with so much in memory the copy is given up.
const UNFLUSHED_BYTES_MAX: usize = 1 << 30;

/// How far the backup is, as far as this replica has written it down there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackupState {
    /// Empty if no operator has named one.
    pub place: String,
    pub session: LogPos,
    /// The service can be restored to any position from this one on, if to any.
    pub from: Option<LogPos>,
    /// All entries of the session before this one are in the backup.
    pub next: LogPos,
    /// What hinders this replica now; empty if nothing does.
    pub problem: String,
}

/// What another replica has said last, at which position, and when that was noticed.
#[derive(Default)]
struct Slow(Cell<Option<(LogPos, Instant)>>);

impl Slow {
    /// True if it has said nothing else for long.
    fn is_slow(&self, pos: LogPos) -> bool {
        match self.0.get() {
            Some((at, since)) if at == pos => since.elapsed() >= TAKE_AFTER,
            _ => {
                self.0.set(Some((pos, now())));
                false
            }
        }
    }
}

type Said<T> = std::result::Result<T, String>;

fn failed(error: Error) -> String {
    format!("the local store fails: {error}")
}

/// See `log_backup.rs`.
pub struct LogBackupBelow<E, L> {
    down: E,
    log: Rc<L>,
    backups: Backups,
    store: Rc<LocalStore>,
    replica: ReplicaId,
    place: RefCell<Option<(String, Rc<dyn Place>)>>,
    /// What those above allow to trim.
    wanted: Cell<LogPos>,
    /// The manifest that this replica wrote last: its session and end.
    told: Cell<(LogPos, LogPos)>,
    /// The session, and how far its backup was, when this was looked at last: the log may be trimmed up to there.
    seen: Cell<(LogPos, LogPos)>,
    /// The segment that another replica copies, and the copy of the rows: since when each is known here.
    slow_segment: Slow,
    slow_copy: Slow,
    /// What nobody copies yet begins there, and since when.
    waiting: Cell<(LogPos, Instant)>,
    problem: RefCell<String>,
}

impl<E: Engine, L: SharedLog + 'static> LogBackupBelow<E, L> {
    pub fn new(
        down: E,
        log: Rc<L>,
        backups: Backups,
        store: Rc<LocalStore>,
        replica: ReplicaId,
    ) -> Self {
        LogBackupBelow {
            down,
            log,
            backups,
            store,
            replica,
            place: RefCell::default(),
            wanted: Cell::new(0),
            told: Cell::new((0, 0)),
            seen: Cell::new((0, 0)),
            slow_segment: Slow::default(),
            slow_copy: Slow::default(),
            waiting: Cell::new((0, now())),
            problem: RefCell::default(),
        }
    }

    /// Copies, and lets the log be trimmed, for ever.
    pub async fn run(&self) -> Infallible {
        loop {
            // Replicas do not look at the same moment, so that one is the first to bid.
            sleep(LOOK_INTERVAL.mul_f64(0.5 + random::unit())).await;
            self.trim();
            let worked = self.work().await;
            let problem = worked.err().unwrap_or_default();
            let fails = !problem.is_empty();
            if fails {
                trace_warn!("DelosBackupFails", "why" => problem, "replica" => self.replica);
            }
            self.problem.replace(problem);
            if fails {
                sleep(LOOK_INTERVAL * 10).await;
            }
        }
    }

    /// Makes a place this service's, and nothing else. True if it was empty.
    ///
    /// # Errors
    /// A line: the place cannot be used, or is another service's.
    pub async fn claim(&self, place: &str) -> Said<bool> {
        let opened = self.open(place)?;
        claim(opened.as_ref(), &self.backups.origin).await
    }

    /// Names the place of the backup, which was [claimed](Self::claim): the backup begins there, or goes on. The
    /// engine is on. The session.
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn start(
        &self,
        place: &str,
        is_empty: bool,
    ) -> std::result::Result<Said<LogPos>, Lost> {
        let answer = self
            .down
            .propose(GUARD.own(&start(place, is_empty)))
            .await?;
        let session = match answer {
            Answer::Own(mut session) => session.try_get_u64_le().ok(),
            _ => None,
        };
        Ok(session.ok_or_else(|| "the engine log_backup was switched off meanwhile".into()))
    }

    /// `None` while the engine is off.
    ///
    /// # Errors
    /// The disk fails.
    pub fn backup(&self) -> Result<Option<BackupState>> {
        let problem = self.problem.borrow().clone();
        Ok(self.state()?.map(|state| match state {
            None => BackupState {
                problem,
                ..BackupState::default()
            },
            Some(state) => {
                // Only what a manifest tells of can be restored.
                let (session, next) = self.told.get();
                let is_told = session == state.session;
                BackupState {
                    from: state.copy.filter(|_| is_told).map(|copy| copy.pos),
                    place: state.place,
                    session: state.session,
                    next: if is_told { next } else { state.first },
                    problem,
                }
            }
        }))
    }

    /// None while the engine is off.
    fn state(&self) -> Result<Option<Option<State>>> {
        let rows = self.store.snapshot();
        match GUARD.was_on(&rows)? {
            true => State::read(&rows).map(Some),
            false => Ok(None),
        }
    }

    fn trim(&self) {
        let allowed = match self.state() {
            // It may have been switched on by an entry that is not applied here yet.
            Ok(None) => self.store.applied() + 1,
            Ok(Some(Some(state))) => {
                let (now, before) = ((state.session, state.next), self.seen.get());
                assert!(
                    before <= now,
                    "the log may be trimmed to {before:?} (session, position), and the backup is at {now:?}"
                );
                self.seen.set(now);
                state.next
            }
            // Nothing is known to be in the backup.
            Ok(Some(None)) | Err(_) => 0,
        };
        let trims_all = planted!(
            "delos_trims_beyond_backup",
            "entries are trimmed that are not in the backup yet"
        );
        let allowed = if trims_all { LogPos::MAX } else { allowed };
        self.down.set_trim_prefix(allowed.min(self.wanted.get()));
    }

    /// Says something about a session; true if it is accepted.
    async fn say(&self, kind: u8, session: LogPos, said: &[u64]) -> Said<bool> {
        let said = words(&[&[session][..], said].concat());
        match self.down.propose(GUARD.own_of(kind, &said)).await {
            Ok(answer) => Ok(matches!(answer, Answer::Own(said) if !said.is_empty())),
            Err(lost) => Err(lost.to_string()),
        }
    }

    fn open(&self, name: &str) -> Said<Rc<dyn Place>> {
        let mut known = self.place.borrow_mut();
        if let Some((known, place)) = &*known
            && *known == name
        {
            return Ok(place.clone());
        }
        let place = (self.backups.open)(name)?;
        let limit = TAKE_AFTER;
        let place: Rc<dyn Place> = Rc::new(Patient { place, limit });
        *known = Some((name.into(), place.clone()));
        Ok(place)
    }

    async fn work(&self) -> Said<()> {
        let Some(Some(state)) = self.state().map_err(failed)? else {
            return Ok(());
        };
        let place = self.open(&state.place)?;
        let place = place.as_ref();
        self.tell(place, &state).await?;
        self.look_at_bids(place, &state).await?;
        if state.copy.is_none() {
            self.look_at_copy(place, &state).await?;
        }
        let Some(segment) = self.read(&state, state.bid_up_to, None).await? else {
            return Ok(());
        };
        if !self.is_worth_it(&segment) {
            return Ok(());
        }
        let bid = [segment.first, segment.end(), self.replica];
        match self.say(BID, state.session, &bid).await? {
            true => self.copy(place, state.session, &segment).await,
            false => Ok(()), // somebody was faster
        }
    }

    /// Entries from a position on, as many as a segment has, or up to `end`. `None` if they are gone: the backup
    /// begins anew then.
    async fn read(
        &self,
        state: &State,
        first: LogPos,
        end: Option<LogPos>,
    ) -> Said<Option<Segment>> {
        match self.read_segment(first, end).await {
            Ok(segment) => Ok(Some(segment)),
            Err(LogError::Trimmed(first)) => {
                // Not accepted if only this replica is so far behind.
                self.say(AGAIN, state.session, &[first]).await?;
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    async fn read_segment(
        &self,
        first: LogPos,
        end: Option<LogPos>,
    ) -> std::result::Result<Segment, LogError> {
        let is_known = end.is_some();
        let end = end.unwrap_or(self.store.applied() + 1);
        let mut entries: Vec<Bytes> = Vec::new();
        let mut bytes = 0;
        loop {
            let next = first + entries.len() as u64;
            let is_full = bytes >= SEGMENT_BYTES || entries.len() >= SEGMENT_ENTRIES;
            if next >= end || (is_full && !is_known) {
                return Ok(Segment { first, entries });
            }
            let read = self.log.read_next(next, SEGMENT_BYTES).await?;
            if read.is_empty() {
                return Ok(Segment { first, entries });
            }
            for (_, entry) in read.into_iter().take_while(|(pos, _)| *pos < end) {
                if is_known || entries.len() < SEGMENT_ENTRIES {
                    bytes += entry.len();
                    entries.push(entry);
                }
            }
        }
    }

    fn is_worth_it(&self, segment: &Segment) -> bool {
        let (first, since) = self.waiting.get();
        if first != segment.first {
            self.waiting.set((segment.first, now()));
            return is_full(segment);
        }
        let is_over = |wait: Duration| since.elapsed() >= wait;
        let own_wait = Duration::from_millis(BACKUP_OWN_WAIT_MS.get());
        is_full(segment)
            || (is_over(wait()) && has_request(segment))
            || (is_over(own_wait) && !segment.entries.is_empty())
    }

    async fn copy(&self, place: &dyn Place, session: LogPos, segment: &Segment) -> Said<()> {
        let sum = put_segment(place, self.backups.origin.log, session, segment).await?;
        let done = [segment.first, sum.into()];
        self.say(DONE, session, &done).await.map(drop)
    }

    /// Writes how far the backup is whole.
    async fn tell(&self, place: &dyn Place, state: &State) -> Outcome {
        let Some(manifest) = state.manifest() else {
            return Ok(());
        };
        if (manifest.session, manifest.next) <= self.told.get() {
            return Ok(());
        }
        put_manifest(place, self.backups.origin.log, &manifest).await?;
        self.told.set((manifest.session, manifest.next));
        Ok(())
    }

    /// Copies segments of this replica that an earlier life has left, and takes over the first one if it is late.
    async fn look_at_bids(&self, place: &dyn Place, state: &State) -> Said<()> {
        let bids = bids(&self.store.snapshot()).map_err(failed)?;
        let own = |bid: &&Bid| bid.replica == self.replica;
        for bid in bids.iter().filter(own) {
            let segment = self.read(state, bid.first, Some(bid.end)).await?;
            if let Some(segment) = segment.filter(|segment| segment.end() == bid.end) {
                self.copy(place, state.session, &segment).await?;
            }
        }
        let Some(other) = bids.iter().find(|bid| !own(bid)) else {
            return Ok(());
        };
        if self.slow_segment.is_slow(other.pos) {
            let taken = [other.first, other.pos, self.replica];
            self.say(TAKE, state.session, &taken).await?;
        }
        Ok(())
    }

    /// Copies the rows, unless another replica does and goes on with it.
    async fn look_at_copy(&self, place: &dyn Place, state: &State) -> Said<()> {
        if self.store.flushed() < state.session {
            return Ok(());
        }
        let known = copy_bid(&self.store.snapshot()).map_err(failed)?;
        let instead_of = match known {
            // Of an attempt that has failed. Nobody renews it without progress.
            Some(bid) if bid.replica == self.replica => {
                return self.copy_rows(place, state.session).await;
            }
            Some(CopyBid { pos, .. }) => {
                if !self.slow_copy.is_slow(pos) {
                    return Ok(());
                }
                probe!("delos_copy_taken_over");
                pos
            }
            None => 0,
        };
        let copying = [self.replica, instead_of];
        match self.say(COPYING, state.session, &copying).await? {
            true => self.copy_rows(place, state.session).await,
            false => Ok(()),
        }
    }

    async fn copy_rows(&self, place: &dyn Place, session: LogPos) -> Said<()> {
        let Some(held) = Held::new(&self.store).map_err(failed)? else {
            return Ok(()); // they are being flushed; the next look tries again
        };
        if held.pos < session {
            return Ok(());
        }
        let mut copy = RowsCopy {
            pos: held.pos,
            replica: self.replica,
            pages: 0,
            checksum: held.checksum,
        };
        let (mut after, mut said_at, mut pace) = (None, now(), Pace::new());
        loop {
            let rows = held.rows(after.as_ref(), PAGE_BYTES).map_err(failed)?;
            let Some((last, _)) = rows.last() else {
                break;
            };
            after = Some(last.clone());
            let (pos, number) = (copy.pos, copy.pages);
            let page = Page { pos, number, rows };
            let name = copy.page_name(session, number);
            place
                .put(&name, page.encode(self.backups.origin.log))
                .await?;
            copy.pages += 1;
            if self.store.unflushed_bytes() > UNFLUSHED_BYTES_MAX {
                return Err(format!(
                    "backup {}: too slow to copy the rows: while they are copied, changes stay in memory, and these \
                     have more than {UNFLUSHED_BYTES_MAX} bytes",
                    place.name()
                ));
            }
            if said_at.elapsed() > SAY_AGAIN_AFTER {
                if !self.say(COPYING, session, &[self.replica, 0]).await? {
                    return Ok(()); // another one was thought faster
                }
                said_at = now();
            }
            pace.rest_if_over().await;
        }
        drop(held);
        let RowsCopy {
            pos,
            pages,
            checksum,
            ..
        } = copy;
        trace!("DelosRowsCopied", "position" => pos, "pages" => pages);
        let copied = [pos, self.replica, pages, checksum];
        self.say(COPIED, session, &copied).await.map(drop)
    }
}

fn is_full(segment: &Segment) -> bool {
    let bytes: usize = segment.entries.iter().map(Bytes::len).sum();
    bytes >= SEGMENT_BYTES || segment.entries.len() >= SEGMENT_ENTRIES
}

/// True if it has something of the application's, maybe in a batch.
fn has_request(segment: &Segment) -> bool {
    let is_request =
        |entry: Entry| entry.payload.is_some() || entry.header(batching::GUARD.name).is_some();
    let mut entries = segment.entries.iter().cloned();
    entries.any(|entry| Entry::decode(entry).is_ok_and(is_request))
}

impl<E: Engine, L: SharedLog + 'static> Layer for LogBackupBelow<E, L> {
    type Down = E;

    fn down(&self) -> &E {
        &self.down
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        self.wanted.set(self.wanted.get().max(pos));
        self.trim();
    }
}
