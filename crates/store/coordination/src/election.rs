//! Election of the cluster controller.
//!
//! ```text
//! elect ─ a majority names this candidate, twice ─► lead ─ not confirmed for a lease ─► withdraw ─► pause ─► elect
//!     └── another leads ─► follow ─ it is gone, or no longer named ───────────────────────────────► pause ─► elect
//! ```
//!
//! It promises: `leader` holds this candidate only after a majority of the coordinators has named it; a leader whose
//! heartbeats no majority confirms gives up. It does not promise that one process leads at a time: two may take
//! themselves for the leader for a while, and the coordinated state lets only one of them write.

use crate::knobs::{COORDINATOR_LEASE_MS, ELECTION_INTERVAL_MS};
use crate::{ClusterFile, Coordinators};
use plinth_core::Uid;
use plinth_protocol::coordination::{
    Candidate, GetLeader, GetLeaderReply, Nominate, NominateReply, Withdraw, ask,
};
use plinth_rpc::{Request, Transport, wait_failure};
use plinth_runtime::sync::{self, Notify, Watch};
use plinth_runtime::{Boxed, Duration, Either, TaskGroup, probe, trace};
use std::cell::Cell;
use std::rc::Rc;

/// A coordinator's answer that takes longer than this does not count in this round.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// How often a process that follows a leader asks whether there is another.
const CHECK_INTERVAL: Duration = Duration::from_millis(2000);

/// Runs for leader without end and keeps `leader` current. It holds this candidate while this candidate leads.
pub fn contend(
    transport: Transport,
    coordinators: Coordinators,
    candidate: Candidate,
    leader: Watch<Option<Candidate>>,
) -> Boxed<'static, ()> {
    Box::pin(async move {
        loop {
            let found = elect(&transport, &coordinators, &candidate).await;
            leader.set(Some(found.clone()));
            if found.controller == candidate.controller {
                trace!("ElectedController", "id" => candidate.controller.id);
                lead(&transport, &coordinators, &candidate).await;
                probe!("controller_deposed");
            } else {
                follow(&transport, &coordinators, &found).await;
            }
            leader.set(None);
            pause().await;
        }
    })
}

/// Keeps `leader` current without running, as a client does.
pub fn observe(
    transport: Transport,
    coordinators: Coordinators,
    leader: Watch<Option<Candidate>>,
) -> Boxed<'static, ()> {
    Box::pin(async move {
        loop {
            match current_leader(&transport, &coordinators).await {
                Some(found) => {
                    leader.set(Some(found.clone()));
                    follow(&transport, &coordinators, &found).await;
                    leader.set(None);
                    pause().await;
                }
                None => {
                    plinth_runtime::sleep(Duration::from_millis(ELECTION_INTERVAL_MS.get())).await
                }
            }
        }
    })
}

/// Waits a moment. Coordinators may still name a leader that is gone, until its lease ends; without a pause, asking
/// them again would only keep the processor busy.
async fn pause() {
    plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::range(20..60))).await;
}

/// Asks for votes until a majority names one leader: this candidate, or another that leads already.
async fn elect(
    transport: &Transport,
    coordinators: &Coordinators,
    candidate: &Candidate,
) -> Candidate {
    loop {
        if let Some(other) = current_leader(transport, coordinators).await
            && other.controller != candidate.controller
        {
            return other;
        }
        let cluster = &coordinators.file();
        if votes_for(transport, cluster, candidate, false, ANSWER_LIMIT).await >= cluster.majority()
            && votes_for(transport, cluster, candidate, true, ANSWER_LIMIT).await
                >= cluster.majority()
        {
            return candidate.clone();
        }
        let interval = ELECTION_INTERVAL_MS.get();
        let pause = plinth_runtime::random::range(interval / 2..interval + 1);
        plinth_runtime::sleep(Duration::from_millis(pause)).await;
    }
}

async fn votes_for(
    transport: &Transport,
    cluster: &ClusterFile,
    candidate: &Candidate,
    leading: bool,
    limit: Duration,
) -> usize {
    let request = Nominate {
        register: cluster.register(),
        candidate: candidate.clone(),
        leading,
    };
    let ours = |replies: &[NominateReply]| {
        let is_ours = |reply: &&NominateReply| reply.nominee.controller == candidate.controller;
        replies.iter().filter(is_ours).count()
    };
    let decided = |replies: &[NominateReply]| ours(replies) >= cluster.majority();
    ours(&ask_until(transport, cluster, request, limit, decided).await)
}

/// Asks every coordinator. Waits until the replies are `enough`, or every coordinator has answered, failed or taken
/// longer than `limit`: a coordinator that is gone must not hold up an election.
async fn ask_until<R: Request + Clone>(
    transport: &Transport,
    cluster: &ClusterFile,
    request: R,
    limit: Duration,
    enough: impl Fn(&[R::Reply]) -> bool,
) -> Vec<R::Reply> {
    let (sender, mut answers) = sync::queue();
    let tasks = TaskGroup::new();
    for place in &cluster.coordinators {
        let call = ask(transport, place, request.clone());
        let sender = sender.clone();
        tasks.spawn("ask coordinator", async move {
            let answer = plinth_runtime::timeout(limit, call).await;
            let _ = sender.send(answer.and_then(Result::ok)); // the others may have been enough
        });
    }
    let mut replies = Vec::new();
    for _ in &cluster.coordinators {
        if enough(&replies) {
            break;
        }
        let answer = answers.recv().await.expect("a sender is kept here");
        replies.extend(answer);
    }
    drop(sender);
    replies
}

/// Sends heartbeats while this candidate leads. Returns when a heartbeat is not confirmed that began more than a
/// lease after the last one that a majority confirmed. Busy coordinators answer late, so a beat does not wait for the
/// answers to the one before. After a long turn of this process the beats under way may have failed: another one is
/// sent before the candidate gives up.
async fn lead(transport: &Transport, coordinators: &Coordinators, candidate: &Candidate) {
    let cluster = &coordinators.file();
    let lease = Duration::from_millis(COORDINATOR_LEASE_MS.get());
    let confirmed = Rc::new(Cell::new(plinth_runtime::now()));
    let is_over = Rc::new(Notify::new());
    let beats = TaskGroup::new();
    let beating = async {
        loop {
            plinth_runtime::sleep(lease / 4).await;
            let (transport, cluster) = (transport.clone(), cluster.clone());
            let (candidate, confirmed) = (candidate.clone(), confirmed.clone());
            let is_over = is_over.clone();
            beats.spawn("heartbeat", async move {
                let asked = plinth_runtime::now();
                let votes = votes_for(&transport, &cluster, &candidate, true, lease / 2).await;
                if votes >= cluster.majority() {
                    confirmed.set(confirmed.get().max(asked));
                } else if asked.saturating_since(confirmed.get()) > lease {
                    is_over.notify_one();
                }
            });
        }
    };
    let _: Either<(), ()> = plinth_runtime::race(beating, is_over.notified()).await;
    withdraw(transport, cluster, candidate.controller.id);
}

/// Returns when `leader` is gone or another leads.
async fn follow(transport: &Transport, coordinators: &Coordinators, leader: &Candidate) {
    let replaced = async {
        let mut unknown = 0;
        loop {
            plinth_runtime::sleep(CHECK_INTERVAL).await;
            match current_leader(transport, coordinators).await {
                Some(other) if other.controller != leader.controller => return,
                Some(_) => unknown = 0,
                // A majority has named no leader, twice: the leader has lost its lease.
                None => unknown += 1,
            }
            if unknown >= 2 {
                return;
            }
        }
    };
    plinth_runtime::race(wait_failure(transport, leader.controller), replaced).await;
}

/// The leader that most coordinators name, of the majority that answers first; `None` if none is named. Follows
/// coordinators that have moved.
pub fn current_leader<'a>(
    transport: &'a Transport,
    coordinators: &'a Coordinators,
) -> Boxed<'a, Option<Candidate>> {
    Box::pin(async move {
        loop {
            let cluster = coordinators.file();
            let request = GetLeader {
                register: cluster.register(),
            };
            let enough = |replies: &[GetLeaderReply]| {
                // A coordinator that has lost its registers does not vote.
                let voters = replies.iter().filter(|reply| reply.lost.is_none());
                let has_moved = replies.iter().any(|reply| !reply.successor.is_empty());
                match replies.iter().all(|reply| reply.database.is_none()) {
                    true => voters.count() >= cluster.majority() || has_moved,
                    false => voters.count() >= cluster.majority() && !are_of_two(replies),
                }
            };
            let replies = ask_until(transport, &cluster, request, ANSWER_LIMIT, enough).await;
            // A successor is only reported once it has the state: one answer is enough, unless it is of a database
            // that the others have not.
            for reply in &replies {
                let against = |other: &&GetLeaderReply| are_others(other.database, reply.database);
                if replies.iter().filter(against).count() < cluster.majority() {
                    coordinators.follow(&reply.successor);
                }
            }
            if coordinators.file() == cluster {
                return most_named(replies);
            }
        }
    })
}

/// True for two databases.
fn are_others(one: Option<Uid>, other: Option<Uid>) -> bool {
    one.is_some() && other.is_some() && one != other
}

fn are_of_two(replies: &[GetLeaderReply]) -> bool {
    let mut all = replies.iter().map(|reply| reply.database);
    let first = all.clone().flatten().next();
    all.any(|database| are_others(first, database))
}

/// What the controller answers; `None` if nobody leads, or it does not answer.
pub async fn ask_controller<R: Request>(
    transport: &Transport,
    coordinators: &Coordinators,
    request: R,
) -> Option<R::Reply> {
    let leader = current_leader(transport, coordinators).await?;
    let endpoint = leader.controller.endpoint::<R>();
    transport.call(&endpoint, request).await.ok()
}

fn most_named(replies: Vec<GetLeaderReply>) -> Option<Candidate> {
    let named: Vec<Candidate> = replies
        .into_iter()
        .filter_map(|reply| reply.leader)
        .collect();
    let votes = |c: &Candidate| {
        named
            .iter()
            .filter(|other| other.controller == c.controller)
            .count()
    };
    named
        .iter()
        .max_by_key(|c| (votes(c), c.controller.id))
        .cloned()
}

fn withdraw(transport: &Transport, cluster: &ClusterFile, id: Uid) {
    for place in &cluster.coordinators {
        let request = Withdraw {
            register: cluster.register(),
            id,
        };
        drop(ask(transport, place, request)); // the lease ends by itself too
    }
}
