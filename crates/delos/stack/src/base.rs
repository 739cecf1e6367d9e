//! The engine at the bottom: plays the log forward and applies each entry, in order, once (§3.2).
//!
//! It is passive: it plays up to the entry of a proposal, or to the tail that a sync has found. Each entry is one
//! transaction of the store, which also moves the applied position. The store is flushed now and then, and the log
//! trimmed to what the engines above and the flushed store allow.

use crate::entry::{ENTRY_BYTES_MAX, Entry};
use crate::log::{LogError, LogPos, SharedLog};
use crate::stack::{Answer, Applicator, Engine, Failure, Lost, Proposed, Spent, Upper};
use crate::store::{LocalStore, RoTx};
use crate::words::{parse, words};
use bytes::Bytes;
use plinth_core::Error;
use plinth_runtime::metric::latency::Latency;
use plinth_runtime::sync::{Notify, OneshotSender, oneshot};
use plinth_runtime::{
    Duration, Either, Pace, nobody_has_lied, now, planted, probe, race, random, sleep, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const HEADER: &str = "base";
/// Bytes of entries that are read at a time.
const READ_BYTES: usize = 1 << 20;
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// With so many bytes the store is flushed without waiting for the interval.
const FLUSH_BYTES: usize = 32 << 20;

/// Where the time of applying goes, beside what is above, of the entries that are timed.
#[derive(Default)]
pub struct Stages {
    /// Reading the entry, and making its transaction.
    pub begin: Spent,
    pub commit: Spent,
    /// Telling those above that it is applied.
    pub post_apply: Spent,
}

/// Why a replica stops. The line is for an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped(pub String);

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The line about an entry that a replica cannot apply, with a way out.
pub(crate) fn stopped_at(pos: LogPos, error: Error) -> String {
    let way_out = match error {
        Error::incompatible_software_version => "; start a newer release".into(),
        // It follows from the log, so every replica comes to it again at each start.
        Error::internal_error => format!(
            "; every replica stops there: start a release that executes it, or restore a backup with --to-position {}",
            pos.saturating_sub(1)
        ),
        Error::file_corrupt => {
            "; a row of this replica is damaged: remove the replica, and add one with an empty \
            data directory"
                .into()
        }
        _ => String::new(),
    };
    format!("the entry at position {pos}: {error}{way_out}")
}

type Reply<A> = OneshotSender<Answer<<A as Applicator>::Return, <A as Applicator>::Refusal>>;

/// See the module.
pub struct Base<L, A: Applicator> {
    log: Rc<L>,
    store: Rc<LocalStore>,
    pub(crate) upper: Upper<A>,
    pub stages: Stages,
    /// Names this life of the replica in the entries that it proposes.
    proposer: u64,
    next_proposal: Cell<u64>,
    proposals: RefCell<BTreeMap<u64, Reply<A>>>,
    /// Syncs that wait for a look at the tail, and those that wait for a position.
    syncs: RefCell<Vec<OneshotSender<RoTx>>>,
    syncing: RefCell<Vec<(LogPos, OneshotSender<RoTx>)>>,
    /// Play up to this position.
    target: Cell<LogPos>,
    trim_before: Cell<LogPos>,
    /// What this replica has let the log forget.
    trimmed: Cell<LogPos>,
    applies: Latency,
    wake_player: Notify,
    wake_checker: Notify,
    wake_flusher: Notify,
    /// A proposal was told that rows of the log are gone.
    is_cleared: Cell<bool>,
    has_stopped: Cell<bool>,
}

impl<L: SharedLog + 'static, A: Applicator> Base<L, A> {
    pub fn new(log: Rc<L>, store: Rc<LocalStore>, applicator: A) -> Rc<Self> {
        Rc::new(Base {
            log,
            store,
            upper: Upper::new(applicator),
            stages: Stages::default(),
            proposer: random::u64(),
            next_proposal: Cell::new(0),
            proposals: RefCell::default(),
            syncs: RefCell::default(),
            syncing: RefCell::default(),
            target: Cell::new(0),
            trim_before: Cell::new(0),
            trimmed: Cell::new(0),
            applies: Latency::default(),
            wake_player: Notify::new(),
            wake_checker: Notify::new(),
            wake_flusher: Notify::new(),
            is_cleared: Cell::new(false),
            has_stopped: Cell::new(false),
        })
    }

    pub fn store(&self) -> &Rc<LocalStore> {
        &self.store
    }

    pub fn applicator(&self) -> &A {
        &self.upper.applicator
    }

    /// The last entry of the log that this replica knows of.
    pub fn tail(&self) -> LogPos {
        self.target.get().max(self.store.applied())
    }

    /// The entries before this one may go from the log, as far as this replica is concerned.
    pub fn trimmed(&self) -> LogPos {
        self.trimmed.get()
    }

    /// How long it takes to apply an entry.
    pub fn applies(&self) -> &Latency {
        &self.applies
    }

    /// Plays, flushes and trims until the replica has to stop. Everything waits while this does not run.
    pub async fn run(&self) -> Stopped {
        let stopped = race(self.play(), race(self.check_tails(), self.keep_house())).await;
        self.has_stopped.set(true);
        self.proposals.borrow_mut().clear();
        self.syncs.borrow_mut().clear();
        self.syncing.borrow_mut().clear();
        match stopped {
            Either::Left(stopped)
            | Either::Right(Either::Left(stopped) | Either::Right(stopped)) => stopped,
        }
    }

    fn play_to(&self, pos: LogPos) {
        if pos > self.target.get() {
            self.target.set(pos);
        }
        self.wake_player.notify_one();
    }

    async fn play(&self) -> Stopped {
        let mut pace = Pace::new();
        loop {
            if self.is_cleared.get() {
                return cleared();
            }
            self.finish_syncs();
            let next = self.store.applied() + 1;
            if next > self.target.get() {
                self.wake_player.notified().await;
                continue;
            }
            match self.log.read_next(next, READ_BYTES).await {
                // A reader of the log may be behind the one who told the position.
                Ok(entries) if entries.is_empty() => sleep(RETRY_PAUSE).await,
                Ok(entries) => {
                    for (pos, bytes) in entries {
                        if let Err(stopped) = self.apply(pos, bytes) {
                            return stopped;
                        }
                        pace.rest_if_over().await;
                    }
                }
                Err(LogError::Trimmed(first)) => {
                    return Stopped(format!(
                        "the log begins at {first}, and this replica is at {next}: restore it from another replica, \
                         or from a backup"
                    ));
                }
                Err(LogError::Cleared) => return cleared(),
                Err(error) => {
                    probe!("delos_read_fails");
                    trace_warn!("DelosReadFailed", "error" => error, "position" => next);
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn apply(&self, pos: LogPos, bytes: Bytes) -> Result<(), Stopped> {
        let stop =
            |why: &dyn std::fmt::Display| Stopped(format!("the entry at position {pos}: {why}"));
        // To read the clock for each entry would slow an engine by a fifth.
        let began = self.applies.ask().then(now);
        let mut entry = Entry::decode(bytes).map_err(|malformed| stop(&malformed))?;
        let is_old = planted!(
            "delos_header_dropped",
            "an old replica drops a header that it does not know, where the others have it"
        ) && self.proposer.is_multiple_of(2);
        if is_old {
            entry.remove_header("session_order");
        }
        let mut tx = self.store.begin(pos);
        if began.is_some() {
            tx.time();
        }
        self.stages.begin.add_since(began);
        let answer = match self.upper.apply(&mut tx, &entry, pos) {
            Ok(answer) => answer,
            Err(Failure::Stop(error)) => return Err(Stopped(stopped_at(pos, error))),
            Err(Failure::Refused(_)) => unreachable!("what is above makes an answer of it"),
        };
        let since = began.map(|_| now());
        tx.commit().map_err(|error| stop(&error))?;
        let since = self.stages.commit.add_since(since);
        self.upper.post_apply(&entry, pos);
        self.stages.post_apply.add_since(since);
        if let Some(began) = began {
            self.applies.answered(began);
        }
        if let Some([proposer, number]) = entry.header(HEADER).and_then(|said| parse(said))
            && proposer == self.proposer
            && let Some(reply) = self.proposals.borrow_mut().remove(&number)
        {
            let _ = reply.send(answer); // the proposer may wait no longer
        }
        if self.store.unflushed_bytes() >= FLUSH_BYTES {
            self.wake_flusher.notify_one();
        }
        Ok(())
    }

    fn finish_syncs(&self) {
        let applied = self.store.applied();
        let mut waiting = self.syncing.borrow_mut();
        let done: Vec<_> = waiting.extract_if(.., |(pos, _)| *pos <= applied).collect();
        drop(waiting);
        for (_, reply) in done {
            let _ = reply.send(self.store.snapshot());
        }
    }

    /// All syncs that come while the tail is looked at share the next look.
    async fn check_tails(&self) -> Stopped {
        loop {
            let waiting = std::mem::take(&mut *self.syncs.borrow_mut());
            if waiting.is_empty() {
                self.wake_checker.notified().await;
                continue;
            }
            let applied = self.store.applied();
            let tail = loop {
                match self.log.check_tail().await {
                    Ok(tail) => break tail,
                    Err(LogError::Cleared) => return cleared(),
                    Err(error) => {
                        trace_warn!("DelosTailUnknown", "error" => error);
                        sleep(RETRY_PAUSE).await;
                    }
                }
            };
            // What was read before is below the tail. Log servers whose disks have lied may have lost it.
            assert!(
                tail.next > applied || !nobody_has_lied(),
                "the tail is {}, and {applied} is applied here",
                tail.next
            );
            let last = tail.next.saturating_sub(1);
            let mut syncing = self.syncing.borrow_mut();
            syncing.extend(waiting.into_iter().map(|reply| (last, reply)));
            drop(syncing);
            self.play_to(last);
        }
    }

    async fn keep_house(&self) -> Stopped {
        loop {
            race(sleep(FLUSH_INTERVAL), self.wake_flusher.notified()).await;
            match self.store.flush().await {
                Ok(()) => {}
                // The entries are in the log, and the rows in memory.
                Err(Error::disk_full) => trace_warn!("DelosDiskFull"),
                Err(error) => return Stopped(format!("the local store fails: {error}")),
            }
            let before = self.trim_before.get().min(self.store.flushed() + 1);
            let trimmed = self.trimmed.get();
            assert!(
                trimmed <= before && before <= self.store.flushed() + 1,
                "the log goes up to {before}, after {trimmed}, and the disk here has {}",
                self.store.flushed()
            );
            match self.log.prefix_trim(before).await {
                Ok(()) => self.trimmed.set(before),
                Err(LogError::Cleared) => return cleared(),
                Err(error) => trace_warn!("DelosTrimFailed", "error" => error),
            }
        }
    }
}

fn cleared() -> Stopped {
    Stopped(LogError::Cleared.to_string())
}

impl<L: SharedLog + 'static, A: Applicator> Engine for Base<L, A> {
    type Return = A::Return;
    type Refusal = A::Refusal;

    async fn propose(&self, mut entry: Entry) -> Proposed<A::Return, A::Refusal> {
        if self.has_stopped.get() {
            return Err(Lost::Stopped);
        }
        let number = self.next_proposal.get();
        self.next_proposal.set(number + 1);
        entry.set_header(HEADER, words(&[self.proposer, number]));
        let bytes = entry.encode();
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(Lost::Log(LogError::TooLong(bytes.len())));
        }
        // Before it is in the log: others may play it at once.
        let (sender, receiver) = oneshot();
        self.proposals.borrow_mut().insert(number, sender);
        let _forgotten = Forgotten(&self.proposals, number);
        let appended = self.log.append(bytes).await;
        if appended == Err(LogError::Cleared) {
            self.is_cleared.set(true);
            self.wake_player.notify_one();
        }
        let pos = appended.map_err(Lost::Log)?;
        self.play_to(pos);
        receiver.await.map_err(|_| Lost::Stopped)
    }

    async fn sync(&self) -> Result<RoTx, Lost> {
        if self.has_stopped.get() {
            return Err(Lost::Stopped);
        }
        let (sender, receiver) = oneshot();
        self.syncs.borrow_mut().push(sender);
        self.wake_checker.notify_one();
        receiver.await.map_err(|_| Lost::Stopped)
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        self.trim_before.set(self.trim_before.get().max(pos));
    }
}

/// Forgets a proposal when its proposer waits no longer.
struct Forgotten<'a, T>(&'a RefCell<BTreeMap<u64, T>>, u64);

impl<T> Drop for Forgotten<'_, T> {
    fn drop(&mut self) {
        self.0.borrow_mut().remove(&self.1);
    }
}
