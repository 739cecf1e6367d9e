//! Makes the log servers of a new epoch. Beside one that shows no sign of life for a moment, a spare is asked for the
//! same log, and the first that is made has the place:
//!
//! ```text
//! the worker that was chosen ─ no sign ─► a spare beside it ─ no sign ─► another one ...
//!            └───────────────────────┴─────► the first log that is made ◄────┘
//! ```
//!
//! The others are named nowhere. Their workers remove them when the epoch begins, or as soon as they are made after
//! that.

use super::{Plan, Roles, placed};
use crate::configured::Configured;
use crate::context::Context;
use crate::exclusion;
use crate::placement::{self, Asked};
use crate::recruit::{RECRUIT_LIMIT, ask, new_id, outcome};
use plinth_core::{Error, Result, Tag, Version};
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::log::{GetCopyProgress, GetLogStatus, LogGeneration, LogStatus, RecruitLog};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sync::{self, QueueSender};
use plinth_runtime::{
    Duration, Either, Instant, TaskGroup, now, probe, race, sleep, timeout, trace, trace_warn,
};
use std::cell::RefCell;

/// Without a sign for this long, a spare is asked beside those that were asked before.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often a log server that is being made is asked for its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Spares for one place. A cluster of which every disk is slow does not get slower by more of them.
const SPARES_MAX: usize = 4;

/// Worker and log server.
type Made = (Interface, Interface);

enum Event {
    Made(Made),
    Failed(Interface, Error),
    /// It has copied more, up to this version.
    Copied(Interface, Version),
}

/// Makes the log of each place of the generation. Returns the workers and log servers that have the places.
pub(super) async fn make(
    context: &Context,
    plan: &Plan,
    roles: &Roles,
    generation: &LogGeneration,
) -> Result<Vec<Made>> {
    let chosen = roles.logs.iter().zip(&roles.log_domains).enumerate();
    let asked = chosen.map(|(place, ((worker, _), domain))| Asked {
        place,
        worker: *worker,
        domain: domain.clone(),
    });
    let servers = plan.servers.servers.iter();
    let mut tags: Vec<Tag> = servers.map(|(_, record)| record.tag).collect();
    tags.push(Tag::SYSTEM);
    let makers = Makers {
        context,
        plan,
        generation,
        tags,
        asked: RefCell::new(asked.collect()),
    };
    let places = roles.logs.iter().enumerate();
    let making = places.map(|(place, chosen)| makers.first(place, *chosen));
    plinth_runtime::join_all(making).await.into_iter().collect()
}

struct Makers<'a> {
    context: &'a Context,
    plan: &'a Plan,
    generation: &'a LogGeneration,
    /// All tags in use.
    tags: Vec<Tag>,
    /// The workers that were asked.
    asked: RefCell<Vec<Asked>>,
}

impl Makers<'_> {
    /// The first log server that is made for the place.
    async fn first(&self, place: usize, chosen: Made) -> Result<Made> {
        let (sender, mut events) = sync::queue();
        let tasks = TaskGroup::new();
        self.begin(&tasks, &sender, place, chosen);
        let (begun, mut open, mut spares) = (now(), 1, 0);
        let (mut sign, mut looked) = (begun, begun);
        let mut error = Error::recruitment_failed;
        while sign.elapsed() < RECRUIT_LIMIT {
            let patience = PATIENCE.saturating_sub(looked.elapsed());
            match timeout(patience, events.recv()).await.flatten() {
                Some(Event::Made(made)) => {
                    if made != chosen {
                        probe!("spare_has_the_log");
                        trace!("SpareHasTheLog", "place" => place, "at" => made.0.address, "not" => chosen.0.address);
                    }
                    return Ok(made);
                }
                Some(Event::Copied(log, to)) => {
                    (sign, looked) = (now(), now());
                    self.tell_progress(log, to);
                    continue;
                }
                Some(Event::Failed(worker, why)) => {
                    outcome::<RecruitLog>(self.context, &worker, why);
                    (open, error) = (open - 1, why);
                }
                None => {}
            }
            if open > 0 && looked.elapsed() < PATIENCE {
                continue;
            }
            looked = now();
            match (spares < SPARES_MAX).then(|| self.spare(place)).flatten() {
                Some(spare) => {
                    probe!("spare_is_asked_for_a_log");
                    self.begin(&tasks, &sender, place, spare);
                    (open, spares) = (open + 1, spares + 1);
                }
                None if open == 0 => return Err(error),
                None => self.tell_silence(place, begun),
            }
        }
        Err(Error::recruitment_failed)
    }

    fn begin(&self, tasks: &TaskGroup, sender: &QueueSender<Event>, place: usize, one: Made) {
        let (worker, log) = one;
        // The places and the versions are the same for all that are asked. What else is in it does not matter to them.
        let mut generation = self.generation.clone();
        generation.logs[place] = log;
        let request = RecruitLog {
            id: log.id,
            epoch: self.plan.epoch,
            generation,
            place: place as u32,
            old: self.plan.old.clone(),
            tags: self.tags.clone(),
        };
        let making = ask(&self.context.transport, &worker, request);
        let (transport, sender) = (self.context.transport.clone(), sender.clone());
        tasks.spawn("make log", async move {
            let copied = |to| drop(sender.send(Event::Copied(log, to)));
            let event = match follow(&transport, log, making, copied).await {
                Ok(()) => Event::Made(one),
                Err(error) => Event::Failed(worker, error),
            };
            let _ = sender.send(event); // another one may have been first
        });
    }

    /// The best worker for the place among those that were not asked yet.
    fn spare(&self, place: usize) -> Option<Made> {
        let (config, excluded) = (&self.plan.configured.config, &self.plan.configured.excluded);
        let asked = self.context.workers.with(|workers| {
            let mut able: Vec<&RegisterWorker> = workers.values().collect();
            able.retain(|worker| !exclusion::is_excluded(worker, excluded));
            let able = placement::all_reach_all(&able, self.context.transport.address());
            let standing = |worker: &RegisterWorker| self.context.disk_standing(worker);
            placement::spare_for_log(&able, config, standing, place, &self.asked.borrow())
        })?;
        let worker = asked.worker;
        self.asked.borrow_mut().push(asked);
        Some((worker, Interface::new(worker.address, new_id())))
    }

    fn tell_progress(&self, log: Interface, to: Version) {
        probe!("recovery_waits_for_copier");
        self.context.phase.wait_for(format!(
            "log server {} at {}, which has copied the end of the old log up to version {to} of {}",
            log.id, log.address, self.plan.recovered_to
        ));
    }

    /// Says which disks the recovery waits for, where no other process may have the log.
    fn tell_silence(&self, place: usize, since: Instant) {
        let asked = self.asked.borrow();
        let asked = asked.iter().filter(|asked| asked.place == place);
        let names = asked.map(|asked| {
            let address = asked.worker.address;
            let disk = self.context.workers.with(|workers| {
                let mut there = workers.values().filter(|w| w.worker == asked.worker);
                there.find_map(|worker| worker.disk.clone())
            });
            match disk.filter(|disk| !disk.works) {
                Some(disk) => format!("{address} (the disk of {}: {})", disk.directory, disk.what),
                None => address.to_string(),
            }
        });
        let names: Vec<String> = names.collect();
        self.context.phase.wait_for(format!(
            "a new log server at {}, asked for {:.1} s ago and not on its disk yet; no other process may have it",
            names.join(" or "),
            since.elapsed().as_secs_f64()
        ));
    }
}

/// Returns when a log server of the new epoch has not put on disk what it was given, for a while, and others could
/// have the logs.
pub(super) async fn one_stalls(context: &Context, configured: &Configured, logs: &[Made]) {
    let mut seen: Vec<(Version, Instant)> = vec![(0, now()); logs.len()];
    loop {
        sleep(PROGRESS_INTERVAL).await;
        let asked = logs.iter().map(|(_, log)| {
            let call = context
                .transport
                .call(&log.endpoint::<GetLogStatus>(), GetLogStatus {});
            timeout(PATIENCE, call)
        });
        let answers = plinth_runtime::join_all(asked).await;
        let answers = answers
            .into_iter()
            .map(|answer| answer.and_then(Result::ok));
        for (((worker, log), status), seen) in logs.iter().zip(answers).zip(&mut seen) {
            // One that does not answer is found by those who write to it.
            let is_waiting = |status: &LogStatus| status.durable < status.version;
            let Some(status) = status.filter(is_waiting) else {
                seen.1 = now();
                continue;
            };
            if status.durable != seen.0 {
                *seen = (status.durable, now());
            } else if seen.1.elapsed() >= PATIENCE && leaves(context, configured, worker) {
                trace_warn!("LeavingSlowDisk", "address" => worker.address, "log" => log.id);
                return;
            }
        }
    }
}

/// Notes that the disk of a worker is slow. True if others could have the logs.
fn leaves(context: &Context, configured: &Configured, worker: &Interface) -> bool {
    context.slow_disks.report(worker.address);
    let others = context
        .workers
        .with(|workers| placed(context, configured, workers));
    let is_there = |roles: Roles| roles.logs.iter().any(|(other, _)| other == worker);
    if others.is_none_or(is_there) {
        context.phase.wait_for(format!(
            "the disk of the new log server at {}, which has not taken the recovery transaction yet; no other process \
             may have the log",
            worker.address
        ));
        return false;
    }
    probe!("recovery_leaves_slow_disk");
    true
}

/// Waits until a log server is made, and tells meanwhile how far it has copied.
async fn follow(
    transport: &Transport,
    log: Interface,
    making: impl Future<Output = Result<()>>,
    copied: impl Fn(Version),
) -> Result<()> {
    let mut making = std::pin::pin!(making);
    let mut pieces = 0;
    loop {
        let progress = async {
            sleep(PROGRESS_INTERVAL).await;
            let asked = transport.call(&log.endpoint::<GetCopyProgress>(), GetCopyProgress {});
            timeout(PATIENCE, asked).await
        };
        match race(making.as_mut(), progress).await {
            Either::Left(made) => return made,
            Either::Right(Some(Ok(progress))) if progress.pieces > pieces => {
                pieces = progress.pieces;
                copied(progress.to);
            }
            Either::Right(_) => {}
        }
    }
}
