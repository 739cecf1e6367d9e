//! Reads one tag through all generations of the log (FDB §2.4.3, §2.4.4).
//!
//! A reader asks for everything of its tag from a version on. The generation that holds this version serves it: a
//! sealed old one up to the version where the next begins, the current one beyond. If a log server does not answer,
//! another of its set is asked. If a recovery changes the log system while a request waits, the reader gets an error
//! and asks again.

use plinth_core::{Epoch, Error, Result, Tag, Version};
use plinth_protocol::log::{LogGeneration, LogSystem, Peek, PeekReply, Pop};
use plinth_rpc::{Interface, Request, Transport};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Boxed, Duration, Either, Instant, TaskGroup, never, probe};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A peek that got no answer for this time is made again: its server may have failed without notice.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long a recovery waits for one server of a set before it asks another as well.
const HEDGE: Duration = Duration::from_millis(50);
/// Pause after every server of a set failed.
const RETRY: Duration = Duration::from_millis(50);

/// Servers of a set that have given nothing for this long are told. A recovery takes less.
const SILENCE_TOLD: Duration = Duration::from_secs(3);

pub struct LogCursor {
    transport: Transport,
    system: Watch<LogSystem>,
    tag: Tag,
    /// Which member of the log set to ask first.
    preferred: Cell<usize>,
    unheard: Unheard,
}

/// What a reader of the log waits for, for people.
#[derive(Clone, Default)]
pub struct Unheard(Rc<RefCell<Option<Waiting>>>);

struct Waiting {
    since: Instant,
    for_what: String,
}

impl Unheard {
    /// Which log servers give nothing, from which version on, and why; empty if that is not so, or not for long.
    pub fn told(&self) -> String {
        let waiting = self.0.borrow();
        let waiting = waiting
            .as_ref()
            .filter(|it| it.since.elapsed() >= SILENCE_TOLD);
        waiting.map_or_else(String::new, |it| it.for_what.clone())
    }

    fn note(&self, for_what: String) {
        let before = self.0.borrow().as_ref().map(|it| it.since);
        let since = before.unwrap_or_else(plinth_runtime::now);
        self.0.replace(Some(Waiting { since, for_what }));
    }

    fn has_answered(&self) {
        self.0.replace(None);
    }
}

impl LogCursor {
    pub fn new(transport: &Transport, system: Watch<LogSystem>, tag: Tag) -> Self {
        LogCursor {
            transport: transport.clone(),
            system,
            tag,
            preferred: Cell::new(0),
            unheard: Unheard::default(),
        }
    }

    /// What its peeks wait for.
    pub fn unheard(&self) -> Unheard {
        self.unheard.clone()
    }

    /// The log's contents for the tag from `begin` on, and the epoch of the generation that answered. Waits until
    /// there is something. The reply never reaches beyond the generation that holds `begin`.
    ///
    /// [`Error::operation_obsolete`] if the log system has changed meanwhile. The caller may have to drop what it took
    /// from an older epoch before it asks again.
    pub fn peek(&self, begin: Version, bytes_max: u32) -> Boxed<'_, Result<(Epoch, PeekReply)>> {
        Box::pin(async move {
            loop {
                let asked = self.peek_once(begin, bytes_max);
                match plinth_runtime::race(self.system.changed(), asked).await {
                    Either::Left(()) => {
                        probe!("peek_meets_recovery");
                        return Err(Error::operation_obsolete);
                    }
                    Either::Right(Ok(answer)) => return Ok(answer),
                    Either::Right(Err(_)) => {
                        if let Either::Left(()) = plinth_runtime::race(
                            self.system.changed(),
                            plinth_runtime::sleep(RETRY),
                        )
                        .await
                        {
                            return Err(Error::operation_obsolete);
                        }
                    }
                }
            }
        })
    }

    async fn peek_once(&self, begin: Version, bytes_max: u32) -> Result<(Epoch, PeekReply)> {
        let found = self
            .system
            .with(|system| system.generation_of(begin).map(|(g, end)| (g.clone(), end)));
        let Some((generation, end)) = found else {
            // No log is known yet, or all generations that held the version are gone.
            return Err(Error::operation_obsolete);
        };
        let set: Vec<usize> = generation.log_set(self.tag).collect();
        let mut failures = Vec::new();
        for attempt in 0..set.len() {
            let choice = (self.preferred.get() + attempt) % set.len();
            let request = Peek {
                tag: self.tag,
                begin,
                bytes_max,
                return_if_blocked: false,
            };
            let log = generation.logs[set[choice]];
            let call = self.transport.call(&log.endpoint::<Peek>(), request);
            let answer = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
            let clipped = answer.map(|answer| answer.map(|reply| clip(reply, begin, end)));
            match clipped {
                Some(Ok(Some(reply))) => {
                    self.preferred.set(choice);
                    self.unheard.has_answered();
                    return Ok((generation.epoch, reply));
                }
                failed => failures.push(format!("{} ({})", log.address, why(failed))),
            }
            probe!("peek_tries_another_replica");
        }
        self.unheard.note(format!(
            "versions from {begin} on, of epoch {}, from {}",
            generation.epoch,
            failures.join(", ")
        ));
        Err(Error::all_alternatives_failed)
    }

    /// Tells every server that stores the tag, in every generation, that nothing below `version` is needed.
    pub fn pop(&self, version: Version) {
        let servers: Vec<Interface> = self.system.with(|system| {
            system
                .generations
                .iter()
                .flat_map(|g| g.log_set(self.tag).map(|place| g.logs[place]))
                .collect()
        });
        for server in servers {
            let request = Pop {
                tag: self.tag,
                version,
            };
            drop(self.transport.call(&server.endpoint::<Pop>(), request)); // a lost pop is repeated by the next
        }
    }
}

/// Why a log server gives nothing.
fn why(failed: Option<Result<Option<PeekReply>>>) -> String {
    match failed {
        None => "no answer".into(),
        Some(Ok(_)) => "it lacks them".into(),
        Some(Err(Error::file_corrupt)) => "its files are damaged there".into(),
        Some(Err(Error::connection_failed)) => "cannot be reached".into(),
        Some(Err(Error::broken_promise)) => "its process does not have it".into(),
        Some(Err(error)) => error.to_string(),
    }
}

/// Cuts a reply at the version where the next generation takes over. `None` if the reply does not advance: the server
/// lacks versions that it should hold.
fn clip(
    mut reply: PeekReply,
    begin: Version,
    generation_end: Option<Version>,
) -> Option<PeekReply> {
    if let Some(end) = generation_end {
        reply.end = reply.end.min(end);
        reply.messages.retain(|message| message.version < end);
    }
    let is_sorted = reply.messages.is_sorted_by(|a, b| a.version < b.version);
    let is_inside = reply
        .messages
        .last()
        .is_none_or(|last| last.version < reply.end);
    if never!(!is_sorted || !is_inside, "PeekOutOfOrder", "begin" => begin, "end" => reply.end) {
        return None;
    }
    (reply.end > begin).then_some(reply)
}

/// Reads everything of `tag` in `range` from the servers of `generation` that answered a recovery's seal. For the
/// recovery itself, which must not wait for servers that are gone.
pub fn read_sealed<'a>(
    transport: &'a Transport,
    generation: &'a LogGeneration,
    answered: &'a [bool],
    tag: Tag,
    range: std::ops::RangeInclusive<Version>,
) -> Boxed<'a, Result<Vec<plinth_protocol::log::VersionedMessages>>> {
    Box::pin(async move {
        let (mut next, to) = (*range.start(), *range.end());
        let mut messages = Vec::new();
        let places = generation.log_set(tag).filter(|place| answered[*place]);
        let mut servers: Vec<Interface> = places.map(|place| generation.logs[place]).collect();
        while next <= to {
            let request = Peek {
                tag,
                begin: next,
                bytes_max: 1 << 20,
                return_if_blocked: true,
            };
            let advances = move |reply: &PeekReply| reply.end > next;
            let Some((server, reply)) = ask(transport, &servers, request, advances).await else {
                return Err(Error::cluster_recovery_failed);
            };
            servers.sort_by_key(|other| other.id != server.id);
            next = reply.end;
            let wanted = reply.messages.into_iter();
            messages.extend(wanted.filter(|m| range.contains(&m.version)));
        }
        Ok(messages)
    })
}

/// The first reply that advances, and the server that sent it. When a server is slow or fails, the next one is asked
/// as well. Servers that refuse connections come last.
pub(crate) async fn ask<R: Request + Clone>(
    transport: &Transport,
    servers: &[Interface],
    request: R,
    advances: impl Fn(&R::Reply) -> bool + Copy + 'static,
) -> Option<(Interface, R::Reply)> {
    let mut servers = servers.to_vec();
    servers.sort_by_key(|server| transport.refusals(server.address));
    let (sender, mut replies) = plinth_runtime::sync::queue();
    let tasks = TaskGroup::new();
    for server in servers {
        let call = transport.call(&server.endpoint::<R>(), request.clone());
        let sender = sender.clone();
        tasks.spawn("peek", async move {
            let reply = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
            let reply = reply.and_then(Result::ok).filter(advances);
            let _ = sender.send(reply.map(|reply| (server, reply))); // another may have been faster
        });
        if let Some(Some(Some(reply))) = plinth_runtime::timeout(HEDGE, replies.recv()).await {
            return Some(reply);
        }
        probe!("log_tail_read_from_another");
    }
    drop(sender);
    while let Some(reply) = replies.recv().await {
        if reply.is_some() {
            return reply;
        }
    }
    None
}
