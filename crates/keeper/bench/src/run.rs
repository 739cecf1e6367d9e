//! Every workload, with every number of clients, on every server in turn.

use crate::line::{Failure, Line};
use crate::load::{Counted, Life, Load, steady, stubborn};
use crate::mix::Workload;
use crate::setup;
use crate::tree::Tree;
use plinth_measure::disk::bytes_in;
use plinth_measure::server_cpu::{self, Usage};
use plinth_runtime::random::spread;
use plinth_runtime::{
    Boxed, Duration, Either, Instant, join_all, now, race, sleep, sleep_until, spawn,
};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
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

/// What all servers do before anything is measured: virtual machines compile what they run often.
const WARMING: &str = "reads-50";
const WARMING_CLIENTS: usize = 100;

/// A server to measure.
#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    /// Sessions are spread over them.
    pub addresses: Vec<SocketAddr>,
    /// Its processes.
    pub parts: Vec<Part>,
    /// Where it keeps its data, if what it takes on the disk is to be measured.
    pub directory: Option<PathBuf>,
}

/// Processes whose CPU time and memory are a part of the server's.
#[derive(Clone, Debug)]
pub struct Part {
    /// Empty if there is only one.
    pub name: String,
    pub pids: Vec<u32>,
}

impl Server {
    fn pids(&self) -> Vec<u32> {
        let pids = self.parts.iter().flat_map(|part| &part.pids);
        pids.copied().collect()
    }

    /// Of each part; `None` if its processes are not known.
    fn usage(&self) -> Option<Vec<Usage>> {
        let parts = self.parts.iter();
        let used: Vec<Usage> = parts
            .map(|part| server_cpu::usage(&part.pids))
            .collect::<Option<_>>()?;
        (!used.is_empty()).then_some(used)
    }
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
    /// The server whose figures divide those of the others.
    pub peer: usize,
    pub workloads: Vec<Workload>,
    pub clients: Vec<usize>,
    /// Requests of each session under way.
    pub outstanding: usize,
    pub warmup: Duration,
    /// How long all servers work before the first round.
    pub first_warmup: Duration,
    pub duration: Duration,
    /// Wait for so long at most until a server has finished what a round has left to it.
    pub settle: Duration,
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
    /// That the servers can use.
    pub cores: usize,
    /// They do not share them with the sessions.
    pub has_own_cores: bool,
}

/// One workload on one server for one interval.
#[derive(Clone)]
pub struct Round {
    pub counted: Counted,
    pub duration_s: f64,
    /// `None` if its processes are not known.
    pub used: Option<Used>,
    /// On the disk, when the servers had settled.
    pub disk_bytes: Option<u64>,
    /// CPU seconds of the load generator.
    pub own_cpu_s: f64,
    /// Of the machine, in the last minute, when the round began.
    pub load_average: f64,
    /// Of each session, if they were disturbed.
    pub lives: Vec<Life>,
}

/// What a round costs a server.
#[derive(Clone)]
pub struct Used {
    /// Of each part, in the measured interval.
    pub parts: Vec<Usage>,
    /// CPU seconds from the first request, of the warm-up, until the server had finished all that followed from them.
    pub whole_cpu_s: f64,
    /// Requests in that time.
    pub whole_operations: u64,
}

/// One workload with a number of clients.
pub struct Compared {
    pub workload: Workload,
    pub clients: usize,
    pub outstanding: usize,
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
        tell(&format!(
            "{name}: removing what an earlier run has left, and making {} records",
            plan.nodes
        ));
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
    bench.warm(&tell).await?;
    for workload in &plan.workloads {
        let most = plan.clients.iter().copied().max().unwrap_or(1);
        // These are no question of how many.
        let numbers = match workload.clients {
            Some(clients) => vec![clients],
            None if workload.is_load() || workload.is_disturbed => vec![most],
            None => plan.clients.clone(),
        };
        for clients in numbers {
            tell(&format!("{}, {clients} clients", workload.name));
            done(bench.compare(workload, clients).await?);
        }
    }
    match plan.keep {
        true => Ok(()),
        false => clean(plan).await,
    }
}

/// Removes the nodes of a run from all servers.
///
/// # Errors
/// One line: which server, and what is wrong.
pub fn clean(plan: &Plan) -> Boxed<'_, Result<(), String>> {
    Box::pin(async move {
        for server in &plan.servers {
            let removed = setup::remove(&server.addresses).await;
            removed.map_err(|why| at(server, &why))?;
        }
        Ok(())
    })
}

/// An error line that names the server.
pub(crate) fn at(server: &Server, why: &str) -> String {
    format!("server {} at {}: {why}", server.name, server.addresses[0])
}

impl Bench<'_> {
    /// Lets every server work for a while.
    async fn warm(&self, tell: &impl Fn(&str)) -> Result<(), String> {
        let are_there = |workload: &Workload| !workload.is_load();
        if self.plan.first_warmup.is_zero() || !self.plan.workloads.iter().any(are_there) {
            return Ok(());
        }
        let plan = Plan {
            warmup: Duration::ZERO,
            duration: self.plan.first_warmup,
            rounds: 1,
            outstanding: 1,
            ..self.plan.clone()
        };
        let warming = Bench {
            plan: &plan,
            trees: self.trees.clone(),
        };
        let workload = Workload::parse(WARMING).expect("it is known");
        let seconds = plan.duration.as_secs_f64();
        tell(&format!("warming up, {seconds} s each"));
        warming.compare(&workload, WARMING_CLIENTS).await.map(drop)
    }

    async fn compare(&self, workload: &Workload, clients: usize) -> Result<Compared, String> {
        let servers = self.plan.servers.len();
        let mut rounds = vec![Vec::new(); servers];
        for round in 0..self.plan.rounds {
            // Each is the first one in turn, and comes after another one.
            for index in (0..servers).map(|place| (place + round) % servers) {
                let server = &self.plan.servers[index];
                // The same requests for each server, others in each round.
                let seed = spread(self.plan.seed ^ spread(round as u64 ^ (clients as u64) << 32));
                self.trees[index].borrow_mut().begin_round(seed);
                if workload.is_load() {
                    let (nodes, parts) = (self.plan.nodes, self.plan.rounds as u64);
                    let part = nodes * (round as u64 + 1) / parts - nodes * round as u64 / parts;
                    self.trees[index].borrow_mut().extend_load(part);
                }
                let measured = self.measure(index, workload, clients).await;
                rounds[index].push(measured.map_err(|why| at(server, &why))?);
                self.check(index).await.map_err(|why| at(server, &why))?;
            }
        }
        Ok(Compared {
            workload: workload.clone(),
            clients,
            outstanding: self.outstanding(workload),
            rounds,
        })
    }

    /// Looks whether what was answered in a round is so, and removes what must not stay.
    async fn check(&self, index: usize) -> Result<(), String> {
        let (server, tree) = (&self.plan.servers[index], &self.trees[index]);
        setup::check_writes(&server.addresses, tree).await?;
        if setup::remove_passing(&server.addresses, tree).await? > 0 {
            server_cpu::until_settled(&server.pids(), self.plan.settle).await;
        }
        Ok(())
    }

    fn outstanding(&self, workload: &Workload) -> usize {
        workload.outstanding.unwrap_or(self.plan.outstanding)
    }

    /// What the sessions of a round share.
    fn load(&self, index: usize, workload: &Workload, clients: usize) -> Load {
        Load {
            shape: workload.shape,
            outstanding: self.outstanding(workload),
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
        let used = self.settle(server, &timed, load.answers.get()).await;
        Ok(Round {
            counted: load.counted.replace(Counted::new()),
            duration_s: timed.duration_s,
            used,
            disk_bytes: server.directory.as_deref().map(bytes_in),
            own_cpu_s: timed.own_cpu_s,
            load_average,
            lives: lives.into_iter().flatten().collect(),
        })
    }

    /// Waits until the server has nothing left to do, and counts what the round has cost it.
    async fn settle(&self, server: &Server, timed: &Timed, operations: u64) -> Option<Used> {
        let used = timed.used.clone()?;
        let until_now = cpu_s(&server.usage()?) - timed.cpu_s_before?;
        let after = server_cpu::until_settled(&server.pids(), self.plan.settle).await;
        Some(Used {
            parts: used,
            whole_cpu_s: until_now + after,
            whole_operations: operations,
        })
    }

    /// Sets the measured interval, and waits for its end.
    async fn time(
        &self,
        server: &Server,
        workload: &Workload,
        load: &Load,
    ) -> Result<Timed, String> {
        let cpu_s_before = server.usage().as_deref().map(cpu_s);
        if !workload.is_load() {
            wait(load, now() + self.plan.warmup).await;
        }
        let (own, from) = ([std::process::id()], now());
        let (before, own_before) = (server.usage(), server_cpu::usage(&own));
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
        let until = match load.working.get() {
            0 => load.last_answer.get(),
            _ => now(),
        };
        load.counted.borrow_mut().until = Some(until);
        let after = server.usage().zip(before);
        let used = after.map(|(after, before)| {
            let parts = after.iter().zip(&before);
            parts.map(|(after, before)| after.since(before)).collect()
        });
        let own_after = server_cpu::usage(&own).zip(own_before);
        Ok(Timed {
            duration_s: until.saturating_since(from).as_secs_f64(),
            used,
            cpu_s_before,
            own_cpu_s: own_after.map_or(0.0, |(after, before)| after.since(&before).cpu_s),
        })
    }
}

struct Timed {
    duration_s: f64,
    /// Of each part of the server.
    used: Option<Vec<Usage>>,
    /// Of the whole server, before the warm-up.
    cpu_s_before: Option<f64>,
    own_cpu_s: f64,
}

fn cpu_s(parts: &[Usage]) -> f64 {
    parts.iter().map(|part| part.cpu_s).sum()
}

/// Waits until `end`, or until the sessions have ended.
async fn wait(load: &Load, end: Instant) {
    while now() < end && !load.is_over.get() && load.working.get() > 0 {
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
        opened.map_err(|failure| {
            let remedy = match &failure {
                Failure::Lost(_) => {
                    "; a server may allow an address so many connections and no more: \
                     --max-connections-per-address of a gateway, maxClientCnxns of ZooKeeper; or say fewer --clients"
                }
                _ => "",
            };
            format!("not all of {clients} sessions can begin: {failure}{remedy}")
        })?;
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
