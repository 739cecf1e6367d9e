//! Real processes in their own network namespaces, under every fault that is possible without the simulator: killed,
//! stopped, cut off in one direction, losing packets, on a full and on a slow disk, restarted all at once, excluded
//! under load.
//!
//! Gateways of the keeper are among them. The test runs in rounds. A checked load runs while faults strike. Then all
//! is healed, and the cluster must serve again. Then everything is checked: by the simulator's oracles (the check for
//! serializability is exact, because the history has commit versions), by Porcupine (single keys, and nodes of the
//! keeper) and by adya (lists, after Elle), and all replicas are compared. `PLINTH_CHAOS_SECONDS` sets the duration;
//! `make chaos` runs for half an hour. The test prints the faults of each round and the gaps without a commit.

mod histories;
mod net;
mod servers;

use crate::common;
use histories::Histories;
use plinth_client::Database;
use plinth_control::consistency::Comparison;
use plinth_coordination::ClusterFile;
use plinth_rpc::Transport;
use plinth_runtime::random::{below, range};
use plinth_runtime::{Duration, Instant, Task, now, sleep, spawn};
use plinth_sim::workloads::{self, Day};
use plinth_workload::{Site, Workload};
use servers::Servers;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

const SERVERS: usize = 5;
/// Of the keeper. Their addresses come after those of the servers.
const GATEWAYS: usize = 2;
const PROCESSES: usize = SERVERS + GATEWAYS;
const NAME: &str =
    "chaos::nothing_acknowledged_is_lost_or_reordered_while_real_processes_and_networks_break";
/// Duration of a round up to the healing.
const ROUND: Duration = Duration::from_secs(40);
/// The cluster must serve within this time after the healing.
const SERVE_LIMIT: Duration = Duration::from_secs(60);
const FINISH_LIMIT: Duration = Duration::from_secs(120);
/// A longer time without a commit is reported as a gap.
const GAP: Duration = Duration::from_millis(1000);

type Shared = Rc<RefCell<Servers>>;

/// Builds the checker, once.
fn build_porcupine() -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos/porcupine");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("porcupine");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(source)
        .output()
        .expect("go can be run");
    assert!(built.status.success(), "{}", common::text(&built.stderr));
    program
}

#[test]
fn nothing_acknowledged_is_lost_or_reordered_while_real_processes_and_networks_break() {
    let porcupine = build_porcupine(); // outside of the namespaces, because the build may need the network
    if net::enter(NAME) {
        return;
    }
    let seconds = std::env::var("PLINTH_CHAOS_SECONDS").map_or(40, |text| {
        text.parse().expect("PLINTH_CHAOS_SECONDS is a number")
    });
    plinth_runtime::real::block_on(async {
        let servers: Shared = Rc::new(RefCell::new(Servers::start(SERVERS, GATEWAYS)));
        let supervised = servers.clone();
        spawn("supervisor", async move {
            loop {
                supervised.borrow_mut().supervise();
                sleep(Duration::from_millis(50)).await;
            }
        })
        .detach();
        let cluster_file = servers.borrow().cluster_file();
        let file = ClusterFile::load(&cluster_file).await.expect("a file");
        let database = plinth_client::connect(file);
        let (start, mut round) = (now(), 0);
        while round == 0 || start.elapsed() < Duration::from_secs(seconds) {
            one_round(&servers, &database, round, &porcupine).await;
            round += 1;
        }
        eprintln!(
            "{round} rounds in {:?}: all histories check",
            start.elapsed()
        );
    });
}

async fn one_round(servers: &Shared, database: &Database, round: usize, porcupine: &Path) {
    let cleared = database.run(async |tr| {
        // The gateways' tree stays.
        tr.clear_range(&b""[..], &b"keeper/"[..]);
        tr.clear_range(&b"keeper0"[..], &b"\xff"[..]);
        Ok(())
    });
    cleared.await.expect("cleared");
    let cluster_file = servers.borrow().cluster_file();
    let cluster = ClusterFile::load(&cluster_file).await.expect("a file");
    let gateways: Vec<SocketAddr> = (SERVERS..PROCESSES).map(net::address).collect();
    let mut chosen = workloads::for_real_clusters();
    chosen.extend(workloads_of_keeper(&gateways, cluster));
    for workload in &chosen {
        workload.setup(database.clone()).await;
    }
    let end = now() + ROUND;
    let day = Day {
        end,
        think_ms: (1, 60),
    };
    let histories = Rc::new(Histories::new(round));
    let clients = start_clients(database, &chosen, &histories, &gateways, day);
    let gaps = spawn("gaps", watch_for_gaps(database.clone(), end));
    let broken = break_things(servers, end).await;
    heal(servers).await;
    let gaps = gaps.await;
    eprintln!(
        "round {round}, seconds and what was done: {}",
        broken.join("; ")
    );
    let gaps: Vec<String> = gaps
        .iter()
        .map(|(from, took)| format!("{:.1} for {:.1} s", from.as_secs_f64(), took.as_secs_f64()))
        .collect();
    eprintln!("  nobody could commit: [{}]", gaps.join("; "));
    let served = database.run(async |tr| {
        tr.set("\u{a0}alive", "yes");
        Ok(())
    });
    let served = plinth_runtime::timeout(SERVE_LIMIT, served).await;
    served.expect("it serves again in time").expect("commits");
    let deadline = now() + FINISH_LIMIT;
    for (name, client) in clients {
        let left = deadline.saturating_since(now());
        let finished = plinth_runtime::timeout(left, client).await;
        finished.unwrap_or_else(|| panic!("{name}: a client never comes to its end"));
    }
    for workload in &chosen {
        let verdict = workload.check(database.clone()).await;
        verdict.unwrap_or_else(|broken| panic!("round {round}: {}: {broken}", workload.name()));
    }
    let directory = servers.borrow().directory.0.clone();
    histories.check(&directory, porcupine);
    compare_replicas(database, round).await;
}

/// The names of the clients and their tasks.
fn start_clients(
    database: &Database,
    chosen: &[Rc<dyn Workload>],
    histories: &Rc<Histories>,
    gateways: &[SocketAddr],
    day: Day,
) -> Vec<(&'static str, Task<()>)> {
    let mut clients: Vec<(&'static str, Task<()>)> = Vec::new();
    for workload in chosen {
        for client in 0..workload.clients() {
            let (worker, database) = (workload.clone(), database.clone());
            let work = async move { worker.work(database, client, day).await };
            clients.push((workload.name(), spawn("client", work)));
        }
    }
    for client in 0..4 {
        let (h, d) = (histories.clone(), database.clone());
        let work = async move { h.use_registers(d, client, day.end).await };
        clients.push(("registers", spawn("client", work)));
        let (h, d) = (histories.clone(), database.clone());
        let work = async move { h.append_to_lists(d, day.end).await };
        clients.push(("lists", spawn("client", work)));
        let (h, g) = (histories.clone(), gateways.to_vec());
        let work = async move { h.use_nodes(&g, client, day.end).await };
        clients.push(("nodes", spawn("client", work)));
    }
    clients
}

/// The workloads that gateways of the keeper have in the simulator.
fn workloads_of_keeper(gateways: &[SocketAddr], cluster: ClusterFile) -> Vec<Rc<dyn Workload>> {
    let applications = plinth_workload::applications();
    let keeper = applications.into_iter().find(|a| a.name == "keeper");
    let site = Rc::new(Site {
        servers: gateways.to_vec(),
        cluster,
    });
    let kinds = keeper.expect("it is linked").workloads.iter();
    kinds.map(|kind| (kind.make)(site.clone())).collect()
}

async fn compare_replicas(database: &Database, round: usize) {
    let mut comparison = Comparison::new(&Transport::client(), database);
    while comparison.next().is_some() {
        comparison.step().await;
    }
    let compared = &comparison.compared;
    assert_eq!(compared.differences, [], "round {round}");
    eprintln!("  replicas: {} rows are the same everywhere", compared.rows);
}

/// Watches for gaps between commits that are longer than `GAP`. Returns when in the round each began, and its
/// length.
async fn watch_for_gaps(database: Database, end: Instant) -> Vec<(Duration, Duration)> {
    let (mut gaps, mut last) = (Vec::new(), now());
    let start = now();
    while now() < end {
        let committed = database.run(async |tr| {
            tr.set("\u{a0}beat", now().0.to_le_bytes());
            Ok(())
        });
        committed.await.expect("the retry loop ends with success");
        if last.elapsed() > GAP {
            gaps.push((last - start, last.elapsed()));
        }
        last = now();
        sleep(Duration::from_millis(20)).await;
    }
    gaps
}

fn ms(range_ms: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(range(range_ms))
}

fn later(after: Duration, servers: &Shared, action: impl FnOnce(&Servers) + 'static) {
    let servers = servers.clone();
    spawn("later", async move {
        sleep(after).await;
        action(&servers.borrow());
    })
    .detach();
}

/// Strikes with random faults until `end`. Returns their descriptions.
async fn break_things(servers: &Shared, end: Instant) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        sleep(ms(500..5000)).await;
        if now() + Duration::from_secs(1) >= end {
            plinth_runtime::sleep_until(end).await;
            return done;
        }
        let at = now();
        let what = break_one(servers).await;
        let into = ROUND.saturating_sub(end.saturating_since(at));
        done.push(format!("{:.1} {what}", into.as_secs_f64()));
    }
}

async fn break_one(servers: &Shared) -> String {
    let victim = below(PROCESSES as u64) as usize;
    let other = (victim + 1 + below(PROCESSES as u64 - 1) as usize) % PROCESSES;
    match below(10) {
        0..=2 => {
            servers.borrow_mut().kill(victim, ms(0..4000));
            format!("kill {victim}")
        }
        3 => {
            servers.borrow().pause(victim);
            later(Duration::from_secs(10), servers, move |s| s.go_on(victim));
            format!("stop {victim} for 10 s")
        }
        4 => {
            servers.borrow().net.block(victim, other);
            later(ms(1000..8000), servers, |s| s.net.heal());
            format!("cut {victim} to {other}")
        }
        5 => {
            servers.borrow().net.isolate(victim);
            later(ms(1000..8000), servers, |s| s.net.heal());
            format!("isolate {victim}")
        }
        6 => {
            servers.borrow().net.lose(5);
            later(ms(3000..10_000), servers, |s| s.net.heal());
            "lose 5 %".into()
        }
        7 => {
            servers.borrow().fill_disk();
            later(ms(1000..8000), servers, |s| s.clear_disk());
            format!("fill the disk of {}", SERVERS - 1)
        }
        8 => {
            if below(2) == 0 {
                servers.borrow().restart_all();
                return "restart all".into();
            }
            let hogs = servers.borrow().slow_disk(5);
            later(Duration::from_secs(6), servers, move |_| {
                hogs.into_iter().for_each(|mut hog| drop(hog.wait()));
            });
            "slow disk".into()
        }
        _ => exclude_for_a_while(servers, victim % SERVERS).await,
    }
}

async fn exclude_for_a_while(servers: &Shared, victim: usize) -> String {
    let target = net::address(victim).to_string();
    let cluster_file = servers.borrow().cluster_file();
    let run = |statement: String| {
        let cluster_file = cluster_file.clone();
        plinth_runtime::offload(move || {
            common::plinth(
                &cluster_file,
                &["cli", "--timeout", "5", "--exec", &statement],
            )
        })
    };
    let excluded = run(format!("exclude no_wait {target}")).await;
    sleep(ms(500..4000)).await;
    // Whether or not the exclusion succeeded, take it back. The healing at the end of the round includes all
    // processes again.
    run("include all".into()).await;
    match excluded.status.success() {
        true => format!("exclude {victim} for a while"),
        false => format!("exclude {victim}: refused"),
    }
}

async fn heal(servers: &Shared) {
    {
        let servers = servers.borrow();
        servers.net.heal();
        servers.clear_disk();
        (0..PROCESSES).for_each(|i| servers.go_on(i));
    }
    let start = now();
    loop {
        let cluster_file = servers.borrow().cluster_file();
        let included = plinth_runtime::offload(move || {
            common::plinth(&cluster_file, &["cli", "--exec", "include all"])
        });
        let output = included.await;
        if output.status.success() {
            return;
        }
        let said = common::text(&output.stderr);
        assert!(
            start.elapsed() < SERVE_LIMIT,
            "nobody can be included: {said}"
        );
    }
}
