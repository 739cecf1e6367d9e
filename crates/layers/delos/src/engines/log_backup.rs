//! Copies the log to a backup before it is trimmed, each part by one of the replicas (§4.2 D).
//!
//! ```text
//!   start  {first}                the backup begins there; also after a gap, with a manifest of its own
//!   bid    {first, end, replica}  accepted if nobody has bid from there on: the replica copies this segment
//!   take   {first, bid, replica}  accepted if that bid is not done: its bidder was too slow, or is gone
//!   done   {first, sum}           the segment is in the backup
//! ```
//! Segments follow each other without a gap. What all replicas know of them is rows; so everybody knows up to where
//! the backup is whole, and the log is trimmed no further.

use super::guard::{Guard, Seen};
use crate::backup::{Destination, Manifest, Segment, chained, put_manifest, put_segment};
use crate::entry::Entry;
use crate::log::{LogError, LogPos, SharedLog};
use crate::stack::{Answer, Applicator, Applied, Engine, Lost, ReplicaId, Upper};
use crate::store::{LocalStore, RoTx, RwTx};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::{Error, Result, Uid};
use plinth_runtime::{Duration, Instant, now, probe, random, sleep, trace_warn};
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

pub const GUARD: Guard = Guard { name: "log_backup" };

/// A segment ends with the read of the log that goes over this.
const SEGMENT_BYTES: usize = 4 << 20;
const SEGMENT_ENTRIES: usize = 1000;
/// So many entries are worth a segment when they have waited this long. Far more than the engine's own of a segment.
const FEW_ENTRIES: usize = 16;
const WAIT: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Who has not copied a segment after this time is not waited for.
pub const TAKE_AFTER: Duration = Duration::from_secs(60);

const START: u8 = 0;
const BID: u8 = 1;
const TAKE: u8 = 2;
const DONE: u8 = 3;

/// Rows. Bids and segments that are done are there until the backup is whole beyond them.
const STATE: &[u8] = b"state";
const BIDS: u8 = b'b';
const COPIED: u8 = b'c';

fn words(kind: Option<u8>, words: &[u64]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(1 + 8 * words.len());
    bytes.extend(kind);
    words.iter().for_each(|word| bytes.put_u64_le(*word));
    bytes.freeze()
}

fn parse<const N: usize>(mut bytes: &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        *word = bytes.try_get_u64_le().ok()?;
    }
    bytes.is_empty().then_some(words)
}

fn row<const N: usize>(row: &[u8]) -> Result<[u64; N]> {
    parse(row).ok_or(Error::file_corrupt)
}

fn key(kind: u8, first: LogPos) -> Vec<u8> {
    GUARD.key(&[&[kind][..], &first.to_be_bytes()].concat())
}

/// How far the backup is.
#[derive(Clone, Copy)]
struct State {
    first: LogPos,
    /// All before this is in the backup.
    next: LogPos,
    chain: u64,
    /// All before this is in the backup, or somebody copies it.
    bid_up_to: LogPos,
}

impl State {
    fn parse(stored: &[u8]) -> Result<State> {
        let [first, next, chain, bid_up_to] = row(stored)?;
        Ok(State {
            first,
            next,
            chain,
            bid_up_to,
        })
    }

    fn load(tx: &RwTx) -> Result<Option<State>> {
        let stored = tx.get(&GUARD.key(STATE))?;
        stored.map(|stored| State::parse(&stored)).transpose()
    }

    fn store(&self, tx: &mut RwTx) {
        let stored = words(None, &[self.first, self.next, self.chain, self.bid_up_to]);
        tx.set(&GUARD.key(STATE), stored);
    }
}

/// See the module.
pub struct LogBackupAbove<A> {
    upper: Upper<A>,
}

impl<A: Applicator> LogBackupAbove<A> {
    pub fn new(above: A) -> Self {
        LogBackupAbove {
            upper: Upper::new(above),
        }
    }
}

/// What nobody can read is not accepted, by all replicas alike.
fn take_in(tx: &mut RwTx, said: &[u8], pos: LogPos) -> Result<bool> {
    let Some((kind, said)) = said.split_first() else {
        return Ok(false);
    };
    let state = State::load(tx)?;
    match (kind, state) {
        (&START, state) => {
            // Again only after a gap that nothing can fill.
            let least = state.map_or(1, |state| state.next + 1);
            let Some([first]) = parse(said).filter(|[first]| (least..=pos).contains(first)) else {
                return Ok(false);
            };
            tx.clear_range(&GUARD.key(b""), &GUARD.key(&[0xff]))?;
            let state = State {
                first,
                next: first,
                chain: 0,
                bid_up_to: first,
            };
            state.store(tx);
            Ok(true)
        }
        (&BID, Some(state)) => bid(tx, state, said, pos),
        (&TAKE, Some(_)) => take(tx, said, pos),
        (&DONE, Some(state)) => done(tx, state, said),
        _ => Ok(false),
    }
}

fn bid(tx: &mut RwTx, state: State, said: &[u8], pos: LogPos) -> Result<bool> {
    let Some([first, end, replica]) = parse(said) else {
        return Ok(false);
    };
    if first != state.bid_up_to || end <= first || end > pos {
        return Ok(false);
    }
    tx.set(&key(BIDS, first), words(None, &[end, replica, pos]));
    let bid_up_to = end;
    State { bid_up_to, ..state }.store(tx);
    Ok(true)
}

fn take(tx: &mut RwTx, said: &[u8], pos: LogPos) -> Result<bool> {
    let Some([first, bid, replica]) = parse(said) else {
        return Ok(false);
    };
    let Some(stored) = tx.get(&key(BIDS, first))? else {
        return Ok(false);
    };
    let [end, _, bid_at] = row(&stored)?;
    if bid_at != bid {
        return Ok(false);
    }
    probe!("delos_segment_taken_over");
    tx.set(&key(BIDS, first), words(None, &[end, replica, pos]));
    Ok(true)
}

fn done(tx: &mut RwTx, mut state: State, said: &[u8]) -> Result<bool> {
    let Some([first, sum]) = parse(said) else {
        return Ok(false);
    };
    let Some(stored) = tx.get(&key(BIDS, first))? else {
        return Ok(false);
    };
    let [end, _, _] = row(&stored)?;
    tx.clear(&key(BIDS, first));
    tx.set(&key(COPIED, first), words(None, &[end, sum]));
    while let Some(stored) = tx.get(&key(COPIED, state.next))? {
        let [end, sum] = row(&stored)?;
        tx.clear(&key(COPIED, state.next));
        state.chain = chained(state.chain, end, sum as u32);
        state.next = end;
    }
    state.store(tx);
    Ok(true)
}

impl<A: Applicator> Applicator for LogBackupAbove<A> {
    type Return = A::Return;
    type Refusal = A::Refusal;

    fn apply(&self, tx: &mut RwTx, entry: &Entry, pos: LogPos) -> Applied<A::Return, A::Refusal> {
        self.upper.pass_over();
        match GUARD.look(tx, entry)? {
            Seen::Passing(_) => self.upper.apply(tx, entry, pos),
            Seen::Over => Ok(Answer::Own(Bytes::new())),
            Seen::Own(said) => Ok(Answer::Own(match take_in(tx, &said, pos)? {
                true => Bytes::from_static(b"yes"),
                false => Bytes::new(),
            })),
        }
    }

    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        self.upper.post_apply(entry, pos);
    }
}

/// See the module.
pub struct LogBackupBelow<E, L, D> {
    down: E,
    log: Rc<L>,
    /// The log's identity, which the backup carries.
    id: Uid,
    to: D,
    store: Rc<LocalStore>,
    replica: ReplicaId,
    /// What those above allow to trim.
    wanted: Cell<LogPos>,
    /// The manifest that this replica wrote last.
    told: Cell<LogPos>,
    /// A bid of another replica that is not done, and since when it is known here.
    slow: Cell<Option<(LogPos, LogPos, Instant)>>,
    /// What nobody copies yet begins there, and since when.
    waiting: Cell<(LogPos, Instant)>,
}

impl<E: Engine, L: SharedLog + 'static, D: Destination> LogBackupBelow<E, L, D> {
    pub fn new(
        down: E,
        log: Rc<L>,
        id: Uid,
        to: D,
        store: Rc<LocalStore>,
        replica: ReplicaId,
    ) -> Self {
        LogBackupBelow {
            down,
            log,
            id,
            to,
            store,
            replica,
            wanted: Cell::new(0),
            told: Cell::new(0),
            slow: Cell::new(None),
            waiting: Cell::new((0, now())),
        }
    }

    /// Copies, and lets the log be trimmed, for ever.
    pub async fn run(&self) -> Infallible {
        loop {
            // Replicas do not look at the same moment, so that one is the first to bid.
            sleep(LOOK_INTERVAL.mul_f64(0.5 + random::unit())).await;
            self.trim();
            match self.work().await {
                Ok(()) => {}
                Err(why) => {
                    trace_warn!("DelosBackupFails", "why" => why, "replica" => self.replica);
                    sleep(LOOK_INTERVAL * 10).await;
                }
            }
        }
    }

    /// None while the engine is off.
    fn state(&self) -> Result<Option<Option<State>>> {
        let rows = self.store.snapshot();
        if !GUARD.was_on(&rows)? {
            return Ok(None);
        }
        let stored = rows.get(&GUARD.key(STATE))?;
        Ok(Some(stored.map(|row| State::parse(&row)).transpose()?))
    }

    fn trim(&self) {
        let allowed = match self.state() {
            // It may have been switched on by an entry that is not applied here yet.
            Ok(None) => self.store.applied() + 1,
            Ok(Some(Some(state))) => state.next,
            // Nothing is known to be in the backup.
            Ok(Some(None)) | Err(_) => 0,
        };
        self.down.set_trim_prefix(allowed.min(self.wanted.get()));
    }

    async fn say(&self, kind: u8, said: &[u64]) -> std::result::Result<bool, String> {
        let answer = self.down.propose(GUARD.own(&words(Some(kind), said))).await;
        match answer {
            Ok(answer) => Ok(matches!(answer, Answer::Own(said) if !said.is_empty())),
            Err(lost) => Err(lost.to_string()),
        }
    }

    async fn work(&self) -> std::result::Result<(), String> {
        let state = self.state().map_err(|error| error.to_string())?;
        let Some(state) = state else {
            return Ok(());
        };
        let Some(state) = state else {
            let first = match self.log.read_next(1, 1).await {
                Ok(_) => 1,
                Err(LogError::Trimmed(first)) => first,
                Err(error) => return Err(error.to_string()),
            };
            return self.begin(first).await;
        };
        self.tell(state).await?;
        self.look_at_bids().await?;
        let segment = match self.read(state.bid_up_to, None).await {
            Ok(segment) => segment,
            Err(LogError::Trimmed(first)) => return self.begin(first).await,
            Err(error) => return Err(error.to_string()),
        };
        if !self.is_worth_it(&segment) {
            return Ok(());
        }
        let bid = [segment.first, segment.end(), self.replica];
        match self.say(BID, &bid).await? {
            true => self.copy(&segment).await,
            false => Ok(()), // somebody was faster
        }
    }

    /// Entries from a position on, as many as a segment has, or up to `end`.
    async fn read(
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
        }
        let bytes: usize = segment.entries.iter().map(Bytes::len).sum();
        let is_full = bytes >= SEGMENT_BYTES || segment.entries.len() >= SEGMENT_ENTRIES;
        let is_old = first == segment.first && since.elapsed() >= WAIT;
        is_full || (is_old && segment.entries.len() >= FEW_ENTRIES)
    }

    /// While the engine was off, nobody kept the entries before `first` for it.
    async fn begin(&self, first: LogPos) -> std::result::Result<(), String> {
        self.say(START, &[first]).await.map(drop)
    }

    async fn copy(&self, segment: &Segment) -> std::result::Result<(), String> {
        let sum = put_segment(&self.to, self.id, segment).await?;
        self.say(DONE, &[segment.first, sum.into()]).await.map(drop)
    }

    /// Writes how far the backup is whole.
    async fn tell(&self, state: State) -> std::result::Result<(), String> {
        if state.next <= self.told.get() || state.next == state.first {
            return Ok(());
        }
        let manifest = Manifest {
            first: state.first,
            next: state.next,
            chain: state.chain,
        };
        put_manifest(&self.to, self.id, &manifest).await?;
        self.told.set(state.next);
        Ok(())
    }

    /// Copies segments of this replica that an earlier life has left, and takes over the first one if it is late.
    async fn look_at_bids(&self) -> std::result::Result<(), String> {
        let (begin, end) = (key(BIDS, 0), key(BIDS, LogPos::MAX));
        let bids = self.store.snapshot().range(&begin, &end, 100);
        let bids = bids.map_err(|error| error.to_string())?;
        let mut first_of_others = None;
        for (key, stored) in bids {
            let failed = |error: Error| error.to_string();
            let first = key.last_chunk::<8>().copied().map(u64::from_be_bytes);
            let first = first.ok_or_else(|| failed(Error::file_corrupt))?;
            let [end, replica, bid] = row(&stored).map_err(failed)?;
            if replica != self.replica {
                first_of_others = first_of_others.or(Some((first, end, bid)));
                continue;
            }
            let segment = match self.read(first, Some(end)).await {
                Ok(segment) => segment,
                Err(LogError::Trimmed(first)) => return self.begin(first).await,
                Err(error) => return Err(error.to_string()),
            };
            if segment.end() == end {
                self.copy(&segment).await?;
            }
        }
        let Some((first, _, bid)) = first_of_others else {
            self.slow.set(None);
            return Ok(());
        };
        match self.slow.get() {
            Some((at, known, since)) if (at, known) == (first, bid) => {
                if since.elapsed() >= TAKE_AFTER {
                    self.say(TAKE, &[first, bid, self.replica]).await?;
                }
            }
            _ => self.slow.set(Some((first, bid, now()))),
        }
        Ok(())
    }
}

impl<E: Engine, L: SharedLog + 'static, D: Destination> Engine for LogBackupBelow<E, L, D> {
    type Return = E::Return;
    type Refusal = E::Refusal;

    async fn propose(
        &self,
        entry: Entry,
    ) -> std::result::Result<Answer<E::Return, E::Refusal>, Lost> {
        self.down.propose(entry).await
    }

    async fn sync(&self) -> std::result::Result<RoTx, Lost> {
        self.down.sync().await
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        self.wanted.set(self.wanted.get().max(pos));
        self.trim();
    }
}
