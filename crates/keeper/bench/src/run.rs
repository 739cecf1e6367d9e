//! Every workload, with every number of clients, on every server in turn.

use crate::line::{Failure, Line};
use crate::load::{Counted, Life, Load, steady, stubborn};
use crate::mix::Workload;
use crate::setup;
use crate::tree::Tree;
use plinth_measure::server_cpu::{self, Usage};
use plinth_runtime::random::spread;
use plinth_runtime::{
    Boxed, Duration, Either, Instant, join_all, now, race, sleep, sleep_until, spawn,
};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

/// A server that answers nothing for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);
const OPEN_LIMIT: Duration = Duration::from_secs(20);
const REACH_LIMIT: Duration = Duration::from_secs(5);
const OPENING_AT_ONCE: usize = 20;
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// How often a running command, and the progress of the sessions, are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Sessions of the other workloads are never idle. A server that is slow must not end them.
const STEADY_TIMEOUT_MS: i32 = 30_000;

/// A server to measure.
#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    /// Sessions are spread over them.
    pub addresses: Vec<SocketAddr>,
    /// Processes whose CPU time and memory count as the server's.
    pub pids: Vec<u32>,
}

/// A command that is run during the workload `failures`, for each server.
#[derive(Clone, Debug)]
pub struct Disturbance {
    /// For the shell; finds the server's name in `SERVER`.
    pub command: String,
    /// When, after the beginning of the measured interval.
    pub at: Duration,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub servers: Vec<Server>,
    pub workloads: Vec<Workload>,
    pub clients: Vec<usize>,
    /// Requests of each session under way.
    pub outstanding: usize,
    pub warmup: Duration,
    pub duration: Duration,
    pub rounds: usize,
    /// Nodes to get; also the nodes that the bulk load creates, in all rounds together.
    pub nodes: u64,
    /// Of the nodes to get and to set; one of [`RECORD_BYTES`](super::tree::RECORD_BYTES).
    pub node_bytes: usize,
    pub seed: u64,
    pub disturbance: Option<Disturbance>,
    /// Time-out of sessions that are disturbed.
    pub timeout_ms: i32,
    /// Leave the nodes where they are.
    pub keep: bool,
}

/// One workload on one server for one interval.
#[derive(Clone)]
pub struct Round {
    pub counted: Counted,
    pub duration_s: f64,
    /// `None` if its processes are not known.
    pub used: Option<Usage>,
    /// CPU seconds of the load generator.
    pub own_cpu_s: f64,
    /// Of the machine, in the last minute, when the round began.
    pub load_average: f64,
    /// Of each session, if they were disturbed.
    pub lives: Vec<Life>,
}

/// One workload with a number of clients.
pub struct Compared {
    pub workload: Workload,
    pub clients: usize,
    /// For each server, in the plan's order, its rounds.
    pub rounds: Vec<Vec<Round>>,
}

/// Looks whether every address of every server takes sessions.
///
/// # Errors
/// One line: the first that does not, and why.
pub fn reach(plan: &Plan) -> Boxed<'_, Result<(), String>> {
    Box::pin(async move {
        for server in &plan.servers {
            for address in &server.addresses {
                let opened = Line::open(*address, STEADY_TIMEOUT_MS, None, REACH_LIMIT).await;
                let line = opened.map_err(|failure| {
                let why = match failure {
                    Failure::Lost(why) => why,
                    other => other.to_string(),
                };
                let name = &server.name;
                format!(
                    "server {name} at {address} takes no session: {why}; name another with --server"
                )
            })?;
                line.close(CLOSE_LIMIT).await;
            }
        }
        Ok(())
    })
}

struct Bench<'a> {
    plan: &'a Plan,
    /// For each server.
    trees: Vec<Rc<RefCell<Tree>>>,
}

/// Makes the nodes, measures everything, and removes the nodes. `tell` gets a line about what begins now, `done` each
/// workload that was measured.
///
/// # Errors
/// One line: which server, and what is wrong. An answer that is wrong is an error, too.
pub async fn run(
    plan: &Plan,
    tell: impl Fn(&str),
    mut done: impl FnMut(Compared),
) -> Result<(), String> {
    let mut trees = Vec::new();
    for server in &plan.servers {
        let (name, addresses) = (&server.name, &server.addresses);
        let removed = setup::remove(addresses).await;
        let removed = removed.map_err(|why| at(server, &why))?;
        if removed > 0 {
            tell(&format!(
                "{name}: removed {removed} nodes of an earlier run"
            ));
        }
        let (tree, began) = (Tree::new(plan.seed, plan.nodes, plan.node_bytes), now());
        let made = setup::make(addresses, &tree, &plan.workloads).await;
        let made = made.map_err(|why| at(server, &why))?;
        let took = began.elapsed().as_secs_f64();
        tell(&format!("{name}: made {made} nodes in {took:.1} s"));
        trees.push(Rc::new(RefCell::new(tree)));
    }
    let bench = Bench { plan, trees };
    for workload in &plan.workloads {
        let most = plan.clients.iter().copied().max().unwrap_or(1);
        for clients in plan.clients.iter().copied() {
            // These are no question of how many.
            if clients < most && (workload.is_load() || workload.is_disturbed) {
                continue;
            }
            tell(&format!("{}, {clients} clients", workload.name));
            done(bench.compare(workload, clients).await?);
        }
    }
    if !plan.keep {
        for server in &plan.servers {
            let removed = setup::remove(&server.addresses).await;
            removed.map_err(|why| at(server, &why))?;
        }
    }
    Ok(())
}

/// An error line that names the server.
fn at(server: &Server, why: &str) -> String {
    format!("server {} at {}: {why}", server.name, server.addresses[0])
}

impl Bench<'_> {
    async fn compare(&self, workload: &Workload, clients: usize) -> Result<Compared, String> {
        let mut rounds = vec![Vec::new(); self.plan.servers.len()];
        for round in 0..self.plan.rounds {
            for (index, server) in self.plan.servers.iter().enumerate() {
                // The same requests for each server, others in each round.
                let seed = spread(self.plan.seed ^ spread(round as u64 ^ (clients as u64) << 32));
                self.trees[index].borrow_mut().reseed(seed);
                if workload.is_load() {
                    let (nodes, parts) = (self.plan.nodes, self.plan.rounds as u64);
                    let part = nodes * (round as u64 + 1) / parts - nodes * round as u64 / parts;
                    self.trees[index].borrow_mut().extend_load(part);
                }
                let measured = self.measure(index, workload, clients).await;
                rounds[index].push(measured.map_err(|why| at(server, &why))?);
                let checked = setup::check_writes(&server.addresses, &self.trees[index]).await;
                checked.map_err(|why| at(server, &why))?;
            }
        }
        Ok(Compared {
            workload: workload.clone(),
            clients,
            rounds,
        })
    }

    /// What the sessions of a round share.
    fn load(&self, index: usize, workload: &Workload, clients: usize) -> Load {
        Load {
            shape: workload.shape,
            outstanding: self.plan.outstanding,
            addresses: self.plan.servers[index].addresses.clone(),
            timeout_ms: match workload.is_disturbed {
                true => self.plan.timeout_ms,
                false => STEADY_TIMEOUT_MS,
            },
            tree: self.trees[index].clone(),
            counted: RefCell::new(Counted::new()),
            is_over: Cell::new(false),
            answers: Cell::new(0),
            last_answer: Cell::new(now()),
            working: Cell::new(clients),
        }
    }

    async fn measure(
        &self,
        index: usize,
        workload: &Workload,
        clients: usize,
    ) -> Result<Round, String> {
        let server = &self.plan.servers[index];
        let load = Rc::new(self.load(index, workload, clients));
        let load_average = load_average();
        let lines = open_all(&load, clients).await?;
        let failed = Rc::new(RefCell::new(None));
        let work = lines.into_iter().enumerate().map(|(number, line)| {
            let (load, failed, is_disturbed) =
                (load.clone(), failed.clone(), workload.is_disturbed);
            spawn("client", async move {
                let worked = match is_disturbed {
                    true => stubborn(&load, line, number)
                        .await
                        .map(|(life, line)| (Some(life), line)),
                    false => steady(&load, line).await.map(|line| (None, Some(line))),
                };
                load.working.set(load.working.get() - 1);
                worked
                    .map_err(|why| {
                        load.is_over.set(true);
                        failed.borrow_mut().get_or_insert(why);
                    })
                    .ok()
            })
        });
        let work: Vec<_> = work.collect();
        let measuring = async {
            let timed = self.time(server, workload, &load).await;
            // An error of the disturbing command ends the sessions, too.
            load.is_over.set(true);
            let worked = join_all(work).await;
            timed.map(|timed| (timed, worked))
        };
        let watched = race(measuring, stuck(&load, workload)).await;
        let Either::Left(measured) = watched else {
            let limit = STUCK_AFTER.as_secs();
            return Err(format!(
                "no answer for {limit} s to any of {clients} sessions"
            ));
        };
        let (timed, worked) = measured?;
        if let Some(why) = failed.take() {
            return Err(why);
        }
        let (lives, lines): (Vec<_>, Vec<_>) = worked.into_iter().flatten().unzip();
        close_all(lines.into_iter().flatten().collect()).await;
        Ok(Round {
            counted: load.counted.replace(Counted::new()),
            duration_s: timed.duration_s,
            used: timed.used,
            own_cpu_s: timed.own_cpu_s,
            load_average,
            lives: lives.into_iter().flatten().collect(),
        })
    }

    /// Sets the measured interval, and waits for its end.
    async fn time(
        &self,
        server: &Server,
        workload: &Workload,
        load: &Load,
    ) -> Result<Timed, String> {
        if !workload.is_load() {
            wait(load, now() + self.plan.warmup).await;
        }
        let (own, from) = ([std::process::id()], now());
        let (before, own_before) = (server_cpu::usage(&server.pids), server_cpu::usage(&own));
        load.counted.borrow_mut().from = Some(from);
        let end = from + self.plan.duration;
        match &self.plan.disturbance {
            _ if workload.is_load() => {
                while load.working.get() > 0 {
                    sleep(LOOK_INTERVAL).await;
                }
            }
            Some(disturbance) if workload.is_disturbed => {
                wait(load, from + disturbance.at).await;
                disturb(server, disturbance, end).await?;
                wait(load, end).await;
            }
            _ => wait(load, end).await,
        }
        let until = match workload.is_load() {
            true => load.last_answer.get(),
            false => now(),
        };
        load.counted.borrow_mut().until = Some(until);
        let since = |after: Option<Usage>, before: Option<Usage>| {
            after
                .zip(before)
                .map(|(after, before)| after.since(&before))
        };
        Ok(Timed {
            duration_s: (until - from).as_secs_f64(),
            used: since(server_cpu::usage(&server.pids), before),
            own_cpu_s: since(server_cpu::usage(&own), own_before).map_or(0.0, |used| used.cpu_s),
        })
    }
}

struct Timed {
    duration_s: f64,
    used: Option<Usage>,
    own_cpu_s: f64,
}

/// Waits until `end`, or until the sessions have ended.
async fn wait(load: &Load, end: Instant) {
    while now() < end && !load.is_over.get() {
        sleep_until(end.min(now() + LOOK_INTERVAL)).await;
    }
}

/// Ends when no session has had an answer for too long.
async fn stuck(load: &Load, workload: &Workload) {
    let (mut answers, mut since) = (0, now());
    while workload.is_disturbed || since.elapsed() < STUCK_AFTER {
        sleep(LOOK_INTERVAL).await;
        if load.answers.get() != answers {
            (answers, since) = (load.answers.get(), now());
        }
    }
}

/// Opens the sessions, a few at a time: a server's queue of new connections may be short.
async fn open_all(load: &Rc<Load>, clients: usize) -> Result<Vec<Line>, String> {
    let left = Rc::new(Cell::new(0..clients));
    let opening = (0..OPENING_AT_ONCE).map(|_| {
        let (load, left) = (load.clone(), left.clone());
        spawn("open", async move {
            let mut lines = Vec::new();
            let next = || {
                let mut numbers = left.take();
                let number = numbers.next();
                left.set(numbers);
                number
            };
            while let Some(number) = next() {
                let address = load.addresses[number % load.addresses.len()];
                lines.push(Line::open(address, load.timeout_ms, None, OPEN_LIMIT).await?);
            }
            Ok::<_, Failure>(lines)
        })
    });
    let opened = join_all(opening.collect::<Vec<_>>()).await;
    let opened: Result<Vec<Vec<Line>>, _> = opened.into_iter().collect();
    let opened =
        opened.map_err(|failure| format!("not all of {clients} sessions can begin: {failure}"))?;
    Ok(opened.into_iter().flatten().collect())
}

async fn close_all(lines: Vec<Line>) {
    let closing = lines
        .into_iter()
        .map(|line| spawn("close", line.close(CLOSE_LIMIT)));
    join_all(closing.collect::<Vec<_>>()).await;
}

/// Runs the operator's command, until `end` at most.
async fn disturb(server: &Server, disturbance: &Disturbance, end: Instant) -> Result<(), String> {
    let mut command = Command::new("sh");
    command
        .args(["-c", &disturbance.command])
        .env("SERVER", &server.name);
    let child = command.stdin(Stdio::null()).spawn();
    let mut child: Child = child.map_err(|error| format!("--disturb: sh: {error}"))?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("--disturb: the command ended with {status}")),
            Ok(None) if now() >= end => {
                let _ = child.kill(); // it may just have ended
                let _ = child.wait();
                return Ok(());
            }
            Ok(None) => sleep(LOOK_INTERVAL).await,
            Err(error) => return Err(format!("--disturb: {error}")),
        }
    }
}

/// 0 where the system does not tell.
#[allow(clippy::disallowed_methods)] // it reads the machine's file, not the database's
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or(0.0)
}
