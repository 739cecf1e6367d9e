//! Questions that clients and the sequencer ask all log servers of a loglet: where it ends, and to end it.

use crate::log::{LogError, LogPos, Tail};
use crate::quorum::messages::{
    Accept, AskTail, BATCH_BYTES, Ballot, Config, EntriesRead, Fill, Finish, Held, Pos, Promise,
    Promised, ReadEntries, Trim,
};
use crate::quorum::tails::{Found, Search, proposal};
use plinth_core::{Error, Uid};
use plinth_rpc::{Call, Request, Transport};
use plinth_runtime::sync::queue;
use plinth_runtime::{
    Backoff, Duration, TaskGroup, join_all, nobody_has_lied, now, probe, random, sleep, spawn,
    timeout, trace,
};
use std::rc::Rc;

/// A log server that has not answered within this time counts as one that does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long a majority is waited for before the log counts as one that cannot be reached.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two rounds of questions.
const NEXT_ROUND: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(200));
/// Servers that have different tails for so long do not get the entries from a sequencer.
const REPAIR_AFTER: Duration = Duration::from_millis(300);
/// How long the end of a loglet is told to log servers outside the majority.
const TELL_ALL: Duration = Duration::from_secs(5);

/// The log servers of a loglet. Clones are the same.
#[derive(Clone)]
pub struct Peers {
    pub transport: Transport,
    pub config: Rc<Config>,
}

/// What became of a ballot.
enum Outcome {
    Agreed(LogPos),
    /// A ballot with this number is ahead of it.
    Outrun(u64),
    /// Too few servers answered, or had all entries.
    Unreachable,
}

pub(super) fn unreachable() -> LogError {
    LogError::Failed(Error::connection_failed)
}

impl Peers {
    pub fn new(transport: &Transport, config: Rc<Config>) -> Peers {
        Peers {
            transport: transport.clone(),
            config,
        }
    }

    fn loglet(&self) -> Uid {
        self.config.loglet
    }

    pub fn call<R: Request>(&self, server: usize, request: R) -> Call<R> {
        let endpoint = self.config.servers[server].endpoint::<R>();
        self.transport.call(&endpoint, request)
    }

    /// Asks all servers. Shows each answer to `judge` until it has a result; `None` if it has none after the last.
    pub async fn ask<R: Request + Clone, T>(
        &self,
        request: R,
        mut judge: impl FnMut(usize, R::Reply) -> Option<T>,
    ) -> Option<T> {
        let (sender, mut answers) = queue();
        let asking = TaskGroup::new();
        for server in 0..self.config.servers.len() {
            let (call, sender) = (self.call(server, request.clone()), sender.clone());
            asking.spawn("ask log server", async move {
                if let Some(Ok(answer)) = timeout(ANSWER_LIMIT, call).await {
                    let _ = sender.send((server, answer)); // enough others may have answered
                }
            });
        }
        drop(sender);
        while let Some((server, answer)) = answers.recv().await {
            let result = judge(server, answer);
            if result.is_some() {
                return result;
            }
        }
        None
    }

    /// The tail: above all appends that were answered before this was called. Ends the loglet for good if somebody
    /// has begun to seal it.
    ///
    /// # Errors
    /// A majority of the log servers cannot be reached.
    pub async fn find_tail(&self) -> Result<Tail, LogError> {
        let mut search = Search::new(self.config.servers.len());
        let (begun, mut backoff) = (now(), NEXT_ROUND);
        loop {
            search.begin_round();
            let loglet = self.loglet();
            let judge = |server, held| search.hear(server, held);
            match self.ask(AskTail { loglet }, judge).await {
                Some(Found::Tail(next)) => return Ok(Tail::open(next)),
                Some(Found::End(end)) => return Ok(Tail::sealed(end)),
                Some(Found::Sealed) => return self.seal().await,
                None => probe!("quorum_tails_differ"),
            }
            if begun.elapsed() >= PATIENCE {
                return Err(unreachable());
            }
            let is_majority = search.heard() >= self.config.majority();
            if let Some(to) = search.at_least()
                && is_majority
                && begun.elapsed() >= REPAIR_AFTER
            {
                probe!("quorum_tail_repaired");
                self.fill(to, search.held()).await;
            }
            backoff.wait().await;
        }
    }

    /// Lets no more entries in, and agrees on the end of the loglet.
    ///
    /// # Errors
    /// A majority of the log servers cannot be reached; the loglet may be sealed all the same.
    pub async fn seal(&self) -> Result<Tail, LogError> {
        let (begun, mut number) = (now(), 1);
        loop {
            let proposer = Uid(random::uid());
            trace!("QuorumSeals", "loglet" => self.loglet(), "ballot" => number);
            match self.try_ballot(Ballot { number, proposer }).await {
                Outcome::Agreed(end) => return Ok(Tail::sealed(end)),
                Outcome::Outrun(other) => {
                    probe!("quorum_ballot_outrun");
                    number = other.saturating_add(1);
                }
                Outcome::Unreachable => number = number.saturating_add(1),
            }
            if begun.elapsed() >= PATIENCE {
                return Err(unreachable());
            }
            sleep(Duration::from_millis(random::range(5..50))).await;
        }
    }

    async fn try_ballot(&self, ballot: Ballot) -> Outcome {
        let loglet = self.loglet();
        let mut promises: Vec<(usize, Promised)> = Vec::new();
        let judge = |server, promised: Promised| {
            if let Some(Pos(end)) = promised.held.end {
                return Some(Outcome::Agreed(end));
            }
            if promised.ballot > ballot {
                return Some(Outcome::Outrun(promised.ballot.number));
            }
            assert!(promised.held.is_sealed, "a promise without a seal");
            promises.push((server, promised));
            (promises.len() == self.config.majority()).then_some(Outcome::Unreachable)
        };
        match self.ask(Promise { loglet, ballot }, judge).await {
            Some(Outcome::Unreachable) => {} // a majority has promised
            Some(decided) => return decided,
            None => return Outcome::Unreachable,
        }
        let end = proposal(&promises);
        let committed = promises
            .iter()
            .map(|(_, promised)| promised.held.committed.0);
        let committed = committed.max().unwrap_or(1);
        assert!(
            committed <= end || !nobody_has_lied(),
            "{ballot:?} proposes the end {end}, and appends below {committed} were answered"
        );
        trace!("QuorumEndProposed", "loglet" => loglet, "end" => end);
        let mut held = vec![None; self.config.servers.len()];
        for (server, promised) in promises {
            held[server] = Some(promised.held);
        }
        self.fill(end, &held).await;
        let mut accepted = 0;
        let judge = |_, promised: Promised| {
            if let Some(Pos(end)) = promised.held.end {
                return Some(Outcome::Agreed(end));
            }
            if promised.ballot > ballot {
                return Some(Outcome::Outrun(promised.ballot.number));
            }
            accepted += usize::from(promised.accepted == Some((ballot, Pos(end))));
            (accepted == self.config.majority()).then_some(Outcome::Agreed(end))
        };
        let end = Pos(end);
        let accept = Accept {
            loglet,
            ballot,
            end,
        };
        let outcome = self.ask(accept, judge).await;
        if let Some(Outcome::Agreed(end)) = outcome {
            trace!("QuorumSealed", "loglet" => loglet, "end" => end);
            self.tell_end(end);
        }
        outcome.unwrap_or(Outcome::Unreachable)
    }

    /// Tells all servers the end, so that one answer is enough to know it.
    fn tell_end(&self, end: LogPos) {
        let (peers, loglet) = (self.clone(), self.loglet());
        let telling = async move {
            let end = Pos(end);
            let told = peers.ask(Finish { loglet, end }, |_, _| None::<()>);
            timeout(TELL_ALL, told).await; // whoever asks the others finds the end by a ballot
        };
        spawn("tell the end", telling).detach();
    }

    /// Copies entries to servers that lack some below `to`, from one that has them. `held` says what is known of each
    /// server.
    async fn fill(&self, to: LogPos, held: &[Option<Held>]) {
        let has_all = |held: &Option<Held>| held.as_ref().is_some_and(|held| held.next.0 >= to);
        let Some(source) = held.iter().position(has_all) else {
            return;
        };
        let behind = held.iter().enumerate().filter_map(|(server, held)| {
            let from = held.as_ref()?.next.0;
            (from < to).then(|| self.copy(source, server, from, to))
        });
        join_all(behind).await;
    }

    async fn copy(&self, source: usize, server: usize, from: LogPos, to: LogPos) -> Option<()> {
        probe!("quorum_entries_copied");
        let loglet = self.loglet();
        let mut next = Pos(from);
        while next.0 < to {
            let EntriesRead { held, entries } = self.read(source, next.0, to).await?;
            let has = if held.trimmed_before > next {
                let before = held.trimmed_before;
                timeout(ANSWER_LIMIT, self.call(server, Trim { loglet, before })).await?
            } else {
                let fill = Fill {
                    loglet,
                    first: next,
                    entries,
                };
                timeout(ANSWER_LIMIT, self.call(server, fill)).await?
            };
            let before = std::mem::replace(&mut next, has.ok()?.next);
            if next <= before {
                return None; // it does not take them
            }
        }
        Some(())
    }

    /// Entries from `from` on, below `limit` or known to be committed, that one server has; `None` if it does not
    /// answer.
    pub async fn read(&self, server: usize, from: LogPos, limit: LogPos) -> Option<EntriesRead> {
        self.read_some(server, from, limit, BATCH_BYTES).await
    }

    pub async fn read_some(
        &self,
        server: usize,
        from: LogPos,
        limit: LogPos,
        bytes_max: usize,
    ) -> Option<EntriesRead> {
        let request = ReadEntries {
            loglet: self.loglet(),
            from: Pos(from),
            limit: Pos(limit),
            bytes_max: bytes_max.min(BATCH_BYTES) as u32,
        };
        timeout(ANSWER_LIMIT, self.call(server, request))
            .await?
            .ok()
    }
}
