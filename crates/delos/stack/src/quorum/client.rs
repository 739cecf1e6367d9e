//! A loglet on log servers, as those see it who use it.
//!
//! Appends that wait while others are under way share the next message. Reads go to one log server, as long as it has
//! what is asked for.
//!
//! What becomes of an append: the sequencer answers, or it is certain that it was never sent and the loglet is sealed,
//! or it is unknown. A sequencer that has gone is not replaced. Then no append succeeds until somebody seals the
//! loglet and goes on in another one.

use crate::entry::ENTRY_BYTES_MAX;
use crate::log::{LogError, LogPos, SharedLog, Tail};
use crate::quorum::messages::{
    Append, Appended, Config, Entries, EntriesRead, Pos, Trim, batch_len,
};
use crate::quorum::peers::{Peers, unreachable};
use crate::quorum::sequencer::host;
use crate::virtual_log::Loglets;
use bytes::Bytes;
use plinth_core::Error;
use plinth_rpc::Transport;
use plinth_runtime::sync::{Notify, OneshotSender, Permit, Permits, oneshot};
use plinth_runtime::{
    Backoff, Duration, Either, Task, TaskGroup, nobody_has_lied, now, probe, race, random, sleep,
    spawn,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Messages with appends under way at a time.
const UNDER_WAY_MAX: usize = 4;
/// How long a sequencer, or a log server with an entry, is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
const READ_AGAIN: Backoff = Backoff::new(PAUSE, Duration::from_millis(200));
/// When an append takes so long, the log servers are asked whether the loglet is sealed: its sequencer may not know.
const SEAL_CHECK: Duration = Duration::from_secs(1);

type Waiting = (Bytes, OneshotSender<Result<LogPos, LogError>>);

struct Shared {
    peers: Peers,
    waiting: RefCell<VecDeque<Waiting>>,
    wake: Notify,
    /// All entries below this are committed.
    known: Cell<LogPos>,
    /// The tail of a sealed loglet.
    end: Cell<Option<LogPos>>,
    trimmed_before: Cell<LogPos>,
    /// The log server that is read from.
    reads_from: Cell<usize>,
}

/// See the module.
pub struct QuorumLog {
    shared: Rc<Shared>,
    _sending: Task<()>,
}

impl QuorumLog {
    /// The loglet of this configuration, which begins with its first append.
    ///
    /// # Errors
    /// [`Error::client_invalid_operation`] if nobody can use the configuration.
    pub fn new(transport: &Transport, config: Config) -> Result<QuorumLog, Error> {
        if !config.is_sound() {
            return Err(Error::client_invalid_operation);
        }
        let any = random::below(config.servers.len() as u64) as usize;
        let shared = Rc::new(Shared {
            peers: Peers::new(transport, Rc::new(config)),
            waiting: RefCell::default(),
            wake: Notify::new(),
            known: Cell::new(1),
            end: Cell::new(None),
            trimmed_before: Cell::new(1),
            reads_from: Cell::new(any),
        });
        let sending = spawn("quorum appends", shared.clone().send_all());
        Ok(QuorumLog {
            shared,
            _sending: sending,
        })
    }
}

fn answer_all(replies: Vec<OneshotSender<Result<LogPos, LogError>>>, error: LogError) {
    for reply in replies {
        let _ = reply.send(Err(error)); // the caller may have stopped waiting
    }
}

impl Shared {
    fn learn(&self, committed: LogPos) {
        assert!(
            self.end.get().is_none_or(|end| committed <= end) || !nobody_has_lied(),
            "entries up to {committed} are committed, and the loglet ends at {:?}",
            self.end
        );
        self.known.set(self.known.get().max(committed));
    }

    async fn send_all(self: Rc<Self>) {
        let (sending, under_way) = (TaskGroup::new(), Permits::new(UNDER_WAY_MAX));
        loop {
            if self.waiting.borrow().is_empty() {
                self.wake.notified().await;
                continue;
            }
            let permit = under_way.take().await;
            let batch: Vec<Waiting> = {
                let mut waiting = self.waiting.borrow_mut();
                let count = batch_len(waiting.iter().map(|(entry, _)| entry));
                waiting.drain(..count).collect()
            };
            sending.spawn("quorum append", self.clone().send(batch, permit));
        }
    }

    async fn send(self: Rc<Self>, batch: Vec<Waiting>, _permit: Permit) {
        let (entries, replies): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let endpoint = host(self.peers.config.sequencer).endpoint::<Append>();
        let begun = now();
        loop {
            let append = Append {
                config: (*self.peers.config).clone(),
                entries: Entries(entries.clone()),
            };
            let call = self.peers.transport.call(&endpoint, append);
            let error = match race(call, self.sealed_meanwhile()).await {
                Either::Left(Ok(appended)) => return self.answer(&appended, replies),
                Either::Left(Err(error)) => error,
                Either::Right(()) => return answer_all(replies, LogError::Unknown),
            };
            let is_refused = matches!(
                error,
                Error::connection_failed | Error::server_overloaded | Error::operation_obsolete
            );
            if !is_refused {
                probe!("quorum_append_unknown");
                return answer_all(replies, LogError::Unknown);
            }
            // The sequencer has certainly not taken it.
            if let Ok(tail) = self.find_tail().await
                && tail.is_sealed
            {
                return answer_all(replies, LogError::Sealed);
            }
            if error == Error::operation_obsolete || begun.elapsed() >= PATIENCE {
                return answer_all(replies, LogError::Unknown);
            }
            sleep(PAUSE * 4).await;
        }
    }

    /// Resolves when the loglet is sealed, and the sequencer had time to find out.
    async fn sealed_meanwhile(&self) {
        loop {
            sleep(SEAL_CHECK).await;
            if let Ok(tail) = self.find_tail().await
                && tail.is_sealed
            {
                sleep(SEAL_CHECK).await;
                probe!("quorum_sequencer_left_behind");
                return;
            }
        }
    }

    fn answer(&self, appended: &Appended, replies: Vec<OneshotSender<Result<LogPos, LogError>>>) {
        let Appended { first, taken } = appended;
        let end = first.0 + u64::from(*taken).min(replies.len() as u64);
        if *taken > 0 {
            self.learn(end); // else the entries were to be above the end
        }
        for (pos, reply) in (first.0..).zip(replies) {
            let _ = reply.send(match pos < end {
                true => Ok(pos),
                false => Err(LogError::Sealed),
            }); // the caller may have stopped waiting
        }
    }

    async fn find_tail(&self) -> Result<Tail, LogError> {
        if let Some(next) = self.end.get() {
            return Ok(Tail::sealed(next));
        }
        let tail = self.peers.find_tail().await?;
        self.found(tail);
        Ok(tail)
    }

    fn found(&self, tail: Tail) {
        self.learn(tail.next);
        if tail.is_sealed {
            let before = self.end.replace(Some(tail.next));
            assert!(
                before.is_none_or(|end| end == tail.next) || !nobody_has_lied(),
                "the end moves from {before:?} to {}",
                tail.next
            );
        }
    }

    /// Reads from the log server that served the last read, or the next one that has something. `None` if none has.
    async fn read(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Option<Vec<(LogPos, Bytes)>>, LogError> {
        let all = self.peers.config.servers.len();
        for _ in 0..all {
            let (server, limit) = (self.reads_from.get(), self.known.get());
            let read = self.peers.read_some(server, from, limit, bytes_max).await;
            if let Some(EntriesRead { held, entries }) = read {
                self.learn(held.committed.0);
                let Pos(first) = held.trimmed_before;
                if first > from {
                    return Err(LogError::Trimmed(first));
                }
                // It was asked for those below the limit, and those that it knows to be committed.
                let most = self.known.get().saturating_sub(from) as usize;
                assert!(
                    entries.0.len() <= most || !nobody_has_lied(),
                    "log server {server} sends {} entries from {from} on, and {} is the limit",
                    entries.0.len(),
                    self.known.get()
                );
                if !entries.0.is_empty() && most > 0 {
                    return Ok(Some((from..).zip(entries.0).take(most).collect()));
                }
            }
            probe!("quorum_reads_elsewhere");
            self.reads_from.set((server + 1) % all);
        }
        Ok(None)
    }
}

impl SharedLog for QuorumLog {
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError> {
        if entry.len() > ENTRY_BYTES_MAX {
            return Err(LogError::TooLong(entry.len()));
        }
        if self.shared.end.get().is_some() {
            return Err(LogError::Sealed);
        }
        let (reply, answer) = oneshot();
        self.shared.waiting.borrow_mut().push_back((entry, reply));
        self.shared.wake.notify_one();
        answer.await.unwrap_or(Err(LogError::Unknown))
    }

    async fn check_tail(&self) -> Result<Tail, LogError> {
        self.shared.find_tail().await
    }

    async fn read_next(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        if from == 0 {
            return Err(LogError::Trimmed(1));
        }
        if from >= self.shared.known.get() && from >= self.check_tail().await?.next {
            return Ok(Vec::new());
        }
        let (begun, mut backoff) = (now(), READ_AGAIN);
        loop {
            if let Some(entries) = self.shared.read(from, bytes_max).await? {
                return Ok(entries);
            }
            if begun.elapsed() >= PATIENCE {
                return Err(unreachable());
            }
            backoff.wait().await;
        }
    }

    async fn prefix_trim(&self, before: LogPos) -> Result<(), LogError> {
        let before = before.min(self.shared.known.get());
        if before <= self.shared.trimmed_before.get() {
            return Ok(());
        }
        let peers = &self.shared.peers;
        let mut heard = 0;
        let enough = |_, _| {
            heard += 1;
            (heard == peers.config.majority()).then_some(())
        };
        let trim = Trim {
            loglet: peers.config.loglet,
            before: Pos(before),
        };
        let trimmed = peers.ask(trim, enough).await;
        trimmed.ok_or(unreachable())?;
        self.shared.trimmed_before.set(before);
        Ok(())
    }

    async fn seal(&self) -> Result<Tail, LogError> {
        let tail = match self.shared.end.get() {
            Some(_) => return self.check_tail().await,
            None => self.shared.peers.seal().await?,
        };
        self.shared.found(tail);
        Ok(tail)
    }
}

/// Opens the loglets that descriptions of [`Config::to_description`] name.
pub struct QuorumLoglets {
    pub transport: Transport,
}

impl Loglets for QuorumLoglets {
    type Log = QuorumLog;

    async fn open(&self, description: &Bytes) -> Result<QuorumLog, LogError> {
        let config = Config::from_description(description);
        let config = config.ok_or(LogError::Failed(Error::client_invalid_operation))?;
        QuorumLog::new(&self.transport, config).map_err(LogError::Failed)
    }
}
