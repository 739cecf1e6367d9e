//! The sequencer of a loglet: gives positions to entries and brings them to the log servers.
//!
//! ```text
//!   Append ─► position, window ─┬─ feeder ── Store, one at a time ──► log server 1
//!             answer ◄──────────┼─ feeder ──────────────────────────► log server 2
//!             when committed    └─ feeder ──────────────────────────► log server 3
//! ```
//! Entries that come while a log server is busy go to it in the next message. A log server that does not answer holds
//! up nobody else.
//!
//! It promises: an append is answered when it is committed, or when the loglet has ended and it is certain how much
//! of it is in the log. It stores nothing before a majority of log servers has voted for it.
//! What may never happen: two sequencers store entries of one loglet; an answered append is above the end.

use crate::log::LogPos;
use crate::quorum::messages::{
    Append, Appended, Config, Entries, EntriesRead, Held, Pos, Store, Trim, Vote, Voted,
};
use crate::quorum::peers::Peers;
use crate::quorum::window::{Done, Next, Window};
use plinth_core::{Error, Uid};
use plinth_rpc::{Interface, Registration, Responder, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::Notify;
use plinth_runtime::{
    Backoff, Duration, Task, join_all, probe, race, random, spawn, trace, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// Role id at which every host of sequencers serves. A configuration names the host by its address alone: a host
/// keeps nothing on disk, and none needs to be told from the one before.
const SEQUENCERS: Uid = Uid(0x7175_6f72_756d_2073_6571_7565_6e63_6572);
/// Sequencers of one process. Those that have ended make room for others.
const SEQUENCERS_MAX: usize = 1000;
/// A log server that failed to answer is left alone for so long, and then for longer.
const ASK_AGAIN: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));

/// The host of the sequencers at an address.
pub fn host(address: SocketAddr) -> Interface {
    Interface::new(address, SEQUENCERS)
}

/// Why a sequencer takes no more entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    At(LogPos),
    /// Another sequencer has votes that this one needs.
    Outvoted,
}

/// What a sequencer has learnt from the votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Election {
    /// A majority has voted for it. It alone may store entries.
    Won,
    Lost,
    /// Some log server is sealed.
    Sealed,
}

struct Sequencer {
    id: Uid,
    peers: Peers,
    window: RefCell<Window<Responder<Append>>>,
    ended: Cell<Option<Ended>>,
    /// Some log server is sealed.
    sealed: Notify,
    /// One a log server: there is something for it.
    wake: Vec<Notify>,
}

fn answer(done: Vec<Done<Responder<Append>>>) {
    for Done { first, taken, whom } in done {
        whom.ok(Appended {
            first: Pos(first),
            taken: taken as u32,
        });
    }
}

impl Sequencer {
    fn new(transport: &Transport, config: Config) -> Sequencer {
        let servers = config.servers.len();
        Sequencer {
            id: Uid(random::uid()),
            peers: Peers::new(transport, Rc::new(config)),
            window: RefCell::new(Window::new(servers)),
            ended: Cell::new(None),
            sealed: Notify::new(),
            wake: (0..servers).map(|_| Notify::new()).collect(),
        }
    }

    fn append(&self, Entries(entries): Entries, to: Responder<Append>) {
        match self.ended.get() {
            Some(Ended::Outvoted) => return to.fail(Error::operation_obsolete),
            Some(Ended::At(end)) => {
                let first = Pos(end);
                return to.ok(Appended { first, taken: 0 });
            }
            None => {}
        }
        let mut window = self.window.borrow_mut();
        if entries.is_empty() {
            return to.fail(Error::client_invalid_operation);
        }
        if !window.has_room() {
            probe!("quorum_sequencer_full");
            return to.fail(Error::server_overloaded);
        }
        window.append(entries, to);
        drop(window);
        self.wake.iter().for_each(Notify::notify_one);
    }

    async fn run(self: Rc<Self>) {
        let elected = self.elect().await;
        match elected {
            Election::Lost => {
                trace_warn!("QuorumSequencerOutvoted", "loglet" => self.peers.config.loglet);
                self.ended.set(Some(Ended::Outvoted));
                let waiting = self.window.borrow_mut().end(1);
                waiting
                    .into_iter()
                    .for_each(|done| done.whom.fail(Error::operation_obsolete));
                return;
            }
            Election::Sealed => {}
            Election::Won => {
                trace!("QuorumSequencerElected", "loglet" => self.peers.config.loglet);
                let servers = 0..self.peers.config.servers.len();
                let feeding = join_all(servers.map(|server| self.feed(server)));
                race(feeding, self.sealed.notified()).await;
            }
        }
        // Nothing more is stored. With the end it is certain which of the appends that wait are in the log.
        let end = loop {
            match self.peers.seal().await {
                Ok(tail) => break tail.next,
                Err(error) => trace_warn!("QuorumSealWaits", "error" => error),
            }
        };
        trace!("QuorumSequencerEnds", "loglet" => self.peers.config.loglet, "end" => end);
        self.ended.set(Some(Ended::At(end)));
        // What is in the log below the end came from the sequencer that has won, and from no other.
        let end_of_own = match elected {
            Election::Won => end,
            Election::Lost | Election::Sealed => 1,
        };
        let done = self.window.borrow_mut().end(end_of_own);
        answer(done);
    }

    async fn elect(&self) -> Election {
        let all = self.peers.config.servers.len();
        let majority = self.peers.config.majority();
        let mut backoff = ASK_AGAIN;
        loop {
            let (mut own, mut others) = (0, 0);
            let judge = |_, Voted { sequencer, held }| {
                own += usize::from(sequencer == self.id);
                others += usize::from(sequencer != self.id && sequencer != Uid::NONE);
                // Only a sequencer with a majority of the votes can have stored anything.
                let is_taken = held.next.0 > 1 || others > all - majority;
                if held.is_sealed {
                    Some(Election::Sealed)
                } else if is_taken {
                    Some(Election::Lost)
                } else {
                    (own == majority).then_some(Election::Won)
                }
            };
            let vote = Vote {
                loglet: self.peers.config.loglet,
                sequencer: self.id,
            };
            if let Some(elected) = self.peers.ask(vote, judge).await {
                return elected;
            }
            probe!("quorum_sequencer_waits_for_votes");
            backoff.wait().await;
        }
    }

    /// Brings one log server what it lacks, as long as the sequencer lives. The call waits as long as the log server
    /// does, for instance for a full disk.
    async fn feed(&self, server: usize) {
        let mut backoff = ASK_AGAIN;
        loop {
            let next = self.window.borrow().next_for(server);
            let (from, heard) = match next {
                Next::Nothing => {
                    self.wake[server].notified().await;
                    continue;
                }
                Next::Store { first, entries } => (first, self.store(server, first, entries).await),
                Next::Copy { from, to } => (from, self.copy(server, from, to).await),
            };
            match heard {
                Some(held) if held.is_sealed => {
                    self.sealed.notify_one();
                    return;
                }
                Some(held) => {
                    let done = self.window.borrow_mut().hear(server, &held);
                    answer(done);
                    if held.next.0 != from {
                        backoff.reset();
                        continue;
                    }
                }
                None => probe!("quorum_server_does_not_answer"),
            }
            backoff.wait().await;
        }
    }

    async fn store(
        &self,
        server: usize,
        first: LogPos,
        entries: Vec<bytes::Bytes>,
    ) -> Option<Held> {
        let store = Store {
            loglet: self.peers.config.loglet,
            sequencer: self.id,
            first: Pos(first),
            committed: Pos(self.window.borrow().committed()),
            entries: Entries(entries),
        };
        self.peers.call(server, store).await.ok()
    }

    /// Brings entries that are not in memory any more, from another log server.
    async fn copy(&self, server: usize, from: LogPos, to: LogPos) -> Option<Held> {
        let sources = self.window.borrow().sources(server, from);
        let source = *sources.get(random::below(sources.len().max(1) as u64) as usize)?;
        probe!("quorum_server_catches_up");
        let EntriesRead { held, entries } = self.peers.read(source, from, to).await?;
        let before = held.trimmed_before;
        if before.0 > from {
            let loglet = self.peers.config.loglet;
            return self.peers.call(server, Trim { loglet, before }).await.ok();
        }
        self.store(server, from, entries.0).await
    }
}

struct Running {
    sequencer: Rc<Sequencer>,
    _task: Task<()>,
}

/// Starts the sequencers of loglets that are appended to, and serves until it is dropped.
pub struct SequencerHost {
    _registration: Registration,
    _gauge: Gauge,
}

struct Sequencers {
    transport: Transport,
    running: RefCell<BTreeMap<Uid, Running>>,
}

impl Sequencers {
    fn append(&self, request: Append, to: Responder<Append>) {
        let Append { config, entries } = request;
        let is_here = Some(config.sequencer) == self.transport.address();
        if !config.is_sound() || !is_here {
            return to.fail(Error::client_invalid_operation);
        }
        match self.sequencer(config) {
            Ok(sequencer) => sequencer.append(entries, to),
            Err(error) => to.fail(error),
        }
    }

    fn sequencer(&self, config: Config) -> Result<Rc<Sequencer>, Error> {
        let mut all = self.running.borrow_mut();
        if let Some(running) = all.get(&config.loglet) {
            let is_same = *running.sequencer.peers.config == config;
            return match is_same {
                true => Ok(running.sequencer.clone()),
                false => Err(Error::client_invalid_operation),
            };
        }
        if all.len() >= SEQUENCERS_MAX {
            all.retain(|_, running| running.sequencer.ended.get().is_none());
        }
        if all.len() >= SEQUENCERS_MAX {
            return Err(Error::server_overloaded);
        }
        let loglet = config.loglet;
        let sequencer = Rc::new(Sequencer::new(&self.transport, config));
        let running = Running {
            sequencer: sequencer.clone(),
            _task: spawn("quorum sequencer", sequencer.clone().run()),
        };
        let former = all.insert(loglet, running);
        assert!(former.is_none(), "loglet {loglet} has two sequencers here");
        Ok(sequencer)
    }
}

impl SequencerHost {
    pub fn new(transport: &Transport) -> SequencerHost {
        let sequencers = Rc::new(Sequencers {
            transport: transport.clone(),
            running: RefCell::default(),
        });
        let gauge = Gauge::of("quorum_appends", &sequencers, |all: &Sequencers| {
            let all = all.running.borrow();
            let waiting = all
                .values()
                .map(|of| of.sequencer.window.borrow().waiting());
            waiting.sum()
        });
        let append = move |request, to| sequencers.append(request, to);
        SequencerHost {
            _registration: transport.serve::<Append>(SEQUENCERS, append),
            _gauge: gauge,
        }
    }
}
