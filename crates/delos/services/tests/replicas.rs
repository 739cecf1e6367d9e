//! Three processes of a queue service in the simulator: they and their network break while clients push, and what was
//! answered is there, once.

use bytes::Bytes;
use plinth_coordination::{ClusterFile, Coordinators, places};
use plinth_core::{EngineKind, Error, Uid};
use plinth_delos::backup::directories;
use plinth_delos::coordinated_register::CoordinatedRegister;
use plinth_delos::quorum::client::QuorumLoglets;
use plinth_delos::quorum::messages::Config as LogletConfig;
use plinth_delos::replica::messages::{
    Adopt, AskChecksum, AskLoad, AskStatus, CallService, Called, Greet, MarkLog, ReconfigureLog,
    RemoveReplica, ReplicaStatus, SwitchEngine, TrimLog, process,
};
use plinth_delos::replica::{Config, Settings, serve};
use plinth_delos::virtual_log::VirtualLog;
use plinth_rpc::{Interface, Request, Transport};
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, join_all, race, random, sleep, timeout};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

const PATIENCE: Duration = Duration::from_secs(60);

fn address(n: u8) -> SocketAddr {
    ([10, 0, 3, n], 4700).into()
}

fn service() -> ClusterFile {
    ClusterFile::new("jobs", "a1", places((0..3).map(address)))
}

/// A process of a replica on a machine of its own, and the lines with which it ended.
#[derive(Clone)]
struct Node {
    machine: MachineId,
    process: ProcessId,
    said: Rc<RefCell<Vec<String>>>,
}

fn config(n: u8) -> Config {
    Config {
        directory: "/data".into(),
        listen: address(n),
        public: None,
        kinds: &plinth_services::KINDS,
        engine: EngineKind::Memory,
        cache_bytes: 1 << 20,
        service: None,
        settings: Settings::default(),
        places: directories,
    }
}

fn node(sim: &Simulation, n: u8) -> Node {
    let machine = sim.add_machine(Locality::default());
    let said = Rc::new(RefCell::new(Vec::new()));
    let told = said.clone();
    let process = sim.start_process(machine, address(n), move || {
        let told = told.clone();
        Box::pin(async move {
            let Err(line) = serve(config(n)).await;
            told.borrow_mut().push(line);
        })
    });
    Node {
        machine,
        process,
        said,
    }
}

async fn ask<R: Request>(n: u8, request: R) -> Result<R::Reply, Error> {
    let transport = Transport::client();
    let endpoint = process(address(n)).endpoint::<R>();
    let asked = timeout(Duration::from_secs(40), transport.call(&endpoint, request));
    asked.await.unwrap_or(Err(Error::timed_out))
}

/// Asks until there is an answer.
async fn insist<R: Request + Clone>(n: u8, request: R) -> R::Reply {
    let asking = async {
        loop {
            if let Ok(reply) = ask(n, request.clone()).await {
                return reply;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let within = timeout(PATIENCE, asking).await;
    within.expect("it answers in time")
}

async fn status(n: u8) -> ReplicaStatus {
    insist(n, AskStatus {}).await
}

async fn await_service(nodes: Range<u8>) {
    for n in nodes {
        let serving = async {
            while !status(n).await.waits_for.is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(PATIENCE, serving).await.is_none() {
            panic!("replica {n} waits for {}", status(n).await.waits_for);
        }
    }
}

async fn adopt(n: u8) -> String {
    adopt_into(n, &service()).await
}

async fn adopt_into(n: u8, service: &ClusterFile) -> String {
    let adopt = Adopt {
        service: service.to_string(),
        kind: "queue".into(),
        name: format!("replica-{n}"),
    };
    insist(n, adopt).await.refused
}

async fn servers(nodes: Range<u8>) -> Vec<Interface> {
    let greetings = join_all(nodes.map(|n| insist(n, Greet {}))).await;
    let servers = greetings.into_iter();
    servers.map(|greeting| greeting.log_server).collect()
}

async fn create() {
    let servers = servers(0..3).await;
    for n in 0..3 {
        assert_eq!(adopt(n).await, "");
    }
    let first = LogletConfig {
        loglet: Uid(1),
        sequencer: address(0),
        servers,
    };
    let transport = Transport::client();
    let register = CoordinatedRegister::new(&transport, &Coordinators::from(service()));
    let opened = VirtualLog::open(
        register,
        QuorumLoglets { transport },
        first.to_description(),
    );
    opened.await.map(drop).expect("the map is written");
    await_service(0..3).await;
}

async fn switch(n: u8, engine: &str, on: bool) -> String {
    let engine = engine.into();
    insist(n, SwitchEngine { engine, on }).await.refused
}

async fn call(n: u8, operation: &str, request: Value) -> Result<Called, Error> {
    let called = CallService {
        operation: operation.into(),
        request: Bytes::from(request.to_string()),
    };
    ask(n, called).await
}

/// What clients know: bodies that were pushed, with their ids, and those of which nobody knows.
#[derive(Default)]
struct Known {
    pushed: BTreeMap<String, u64>,
    unsure: Vec<String>,
    next: u64,
    /// This replica and the next two are asked.
    first: u8,
}

impl Known {
    fn after(&self, n: u8) -> u8 {
        self.first + (n - self.first + 1) % 3
    }
}

async fn push(known: &RefCell<Known>) {
    let number = known.borrow().next;
    known.borrow_mut().next += 1;
    let body = format!("job {number}");
    let request = json!({ "queue": "q", "body": body });
    let mut n = known.borrow().first + random::below(3) as u8;
    loop {
        match call(n, "push", request.clone()).await {
            Ok(Called::Done(answer)) => {
                let answer: Value = serde_json::from_slice(&answer).expect("JSON");
                let id = answer["id"].as_u64().expect("an id");
                known.borrow_mut().pushed.insert(body, id);
                return;
            }
            Ok(Called::Lost { may_be_done, .. }) if may_be_done => break,
            Ok(Called::Elsewhere(_) | Called::Lost { .. }) | Err(Error::connection_failed) => {
                n = known.borrow().after(n);
                sleep(Duration::from_millis(20)).await;
            }
            Ok(refused) => panic!("{body}: {refused:?}"),
            Err(_) => break,
        }
    }
    known.borrow_mut().unsure.push(body);
}

async fn push_some(known: &RefCell<Known>, count: usize) {
    for _ in 0..count {
        push(known).await;
        sleep(Duration::from_millis(random::below(100))).await;
    }
}

/// Everything that was answered is there once, and nothing twice.
async fn check(known: &RefCell<Known>) {
    let mut there: BTreeMap<String, u64> = BTreeMap::new();
    let mut n = known.borrow().first + 1;
    loop {
        let take = json!({ "queue": "q", "for_ms": 3_600_000 });
        let taken = call(n, "take", take).await;
        if matches!(taken, Ok(Called::Elsewhere(_))) {
            n = known.borrow().after(n);
            continue;
        }
        let Ok(Called::Done(answer)) = taken else {
            panic!("nothing is taken: {taken:?}");
        };
        let message: Value = serde_json::from_slice(&answer).expect("JSON");
        if message.is_null() {
            break;
        }
        let body = message["body"].as_str().expect("a body").to_string();
        let id = message["id"].as_u64().expect("an id");
        let before = there.insert(body.clone(), id);
        assert_eq!(before, None, "{body} is there twice");
    }
    let known = known.borrow();
    for (body, id) in &known.pushed {
        assert_eq!(there.get(body), Some(id), "{body} was answered");
    }
    for body in there.keys() {
        let is_known = known.pushed.contains_key(body) || known.unsure.contains(body);
        assert!(is_known, "nobody pushed {body}");
    }
}

async fn compare(nodes: &[u8]) {
    let told = insist(nodes[0], MarkLog {}).await;
    assert_eq!(told.refused, "");
    let mark = told.pos;
    let mut sums = Vec::new();
    for n in nodes {
        sums.push(insist(*n, AskChecksum { mark }).await.checksum);
    }
    let is_equal = sums.iter().all(|sum| *sum == sums[0]);
    assert!(sums[0].is_some() && is_equal, "{sums:?}");
}

/// Breaks one thing at a time, and mends it.
async fn break_things(nodes: Vec<Node>) {
    loop {
        sleep(Duration::from_millis(random::below(2000))).await;
        let first = random::below(3) as usize;
        let (node, other) = (&nodes[first], &nodes[(first + 1) % 3]);
        let while_ms = Duration::from_millis(random::below(2000));
        match random::below(6) {
            0 => {
                control().kill_process(node.process, KillKind::Kill);
                sleep(while_ms).await;
                control().restart_process(node.process);
            }
            1 => control().reboot_machine(node.machine, while_ms),
            2 => control().pause_process(node.process, while_ms),
            3 => {
                control().partition(node.machine, other.machine, random::chance(0.5));
                sleep(while_ms).await;
                control().heal(node.machine, other.machine);
            }
            4 => drop(control().cut_connections(node.machine, other.machine)),
            _ => {
                let engines = ["lease", "batching", "session_order"];
                let engine = engines[random::below(3) as usize].into();
                let on = random::chance(0.5);
                let _ = ask(first as u8, SwitchEngine { engine, on }).await; // it may be gone
            }
        }
    }
}

async fn survive(nodes: Vec<Node>) -> (usize, usize) {
    create().await;
    for engine in ["view_tracking", "session_order", "batching"] {
        assert_eq!(switch(0, engine, true).await, "");
    }
    let known = RefCell::new(Known::default());
    let pushing = join_all((0..4).map(|_| push_some(&known, 30)));
    race(pushing, break_things(nodes.clone())).await;
    control().heal_all();
    for node in &nodes[..3] {
        control().boot(node.machine);
        control().restart_process(node.process);
    }
    await_service(0..3).await;
    push_some(&known, 3).await;
    check(&known).await;
    compare(&[0, 1, 2]).await;
    for node in &nodes {
        assert_eq!(*node.said.borrow(), Vec::<String>::new());
    }
    let known = known.borrow();
    (known.pushed.len(), known.unsure.len())
}

fn run<T: 'static, W: Future<Output = T> + 'static>(
    seed: u64,
    work: impl FnOnce(Vec<Node>) -> W + 'static,
) -> T {
    run_with(5, seed, work)
}

fn run_with<T: 'static, W: Future<Output = T> + 'static>(
    count: u8,
    seed: u64,
    work: impl FnOnce(Vec<Node>) -> W + 'static,
) -> T {
    let sim = Simulation::new(seed, SimConfig::default());
    let nodes: Vec<Node> = (0..count).map(|n| node(&sim, n)).collect();
    sim.run(async move { work(nodes).await }).result
}

#[test]
fn what_was_answered_is_there_once_while_processes_and_the_network_break() {
    let (mut pushed, mut unsure) = (0, 0);
    for seed in 0..40 {
        let of = run(seed, survive);
        pushed += of.0;
        unsure += of.1;
    }
    assert!(pushed > 5 * unsure, "{pushed} answered, {unsure} not");
}

#[test]
fn the_log_goes_on_elsewhere_under_load_and_no_request_fails() {
    run(7, |_| async {
        create().await;
        let known = RefCell::new(Known::default());
        let servers = servers(0..3).await;
        let exchange = async {
            for n in (0..3).cycle() {
                sleep(Duration::from_millis(200)).await;
                let reconfigured = ReconfigureLog {
                    sequencer: address(n),
                    servers: servers.clone(),
                };
                assert_eq!(insist(1, reconfigured).await.refused, "");
            }
        };
        let pushing = join_all((0..8).map(|_| push_some(&known, 30)));
        race(pushing, exchange).await;
        assert_eq!(known.borrow().unsure, Vec::<String>::new());
        let loglets = status(0).await.loglets.len();
        assert!(loglets > 3, "it was hardly exchanged: {loglets}");
        check(&known).await;
        compare(&[0, 1, 2]).await;
    });
}

#[test]
fn another_machine_takes_the_place_of_one_that_is_lost_for_good() {
    for seed in 0..10 {
        run(seed, |nodes| async move {
            create().await;
            let known = RefCell::new(Known::default());
            push_some(&known, 20).await;
            assert_eq!(adopt(3).await, "");
            await_service(3..4).await;
            control().lose_machine(nodes[0].machine);
            let transport = Transport::client();
            let coordinators = Coordinators::from(service());
            let register = CoordinatedRegister::new(&transport, &coordinators);
            let moved = register.move_to(places((1..4).map(address))).await;
            moved.expect("it is moved");
            let reconfigured = ReconfigureLog {
                sequencer: address(1),
                servers: servers(1..4).await,
            };
            assert_eq!(insist(1, reconfigured).await.refused, "");
            let lost = status(1).await.members;
            let lost = lost.iter().find(|(_, member)| member.name == "replica-0");
            let id = lost.expect("it is in the roster").0;
            assert_eq!(insist(2, RemoveReplica { id }).await.refused, "");
            push_some(&known, 20).await;
            // Now one of the former three may be gone, too.
            control().kill_process(nodes[1].process, KillKind::Kill);
            push_some(&known, 20).await;
            for n in [2, 3] {
                control().kill_process(nodes[n].process, KillKind::Kill);
                control().restart_process(nodes[n].process);
            }
            await_service(2..4).await;
            control().restart_process(nodes[1].process);
            await_service(1..4).await;
            check(&known).await;
            assert_eq!(status(3).await.members.len(), 3);
        });
    }
}

/// Lets the log go on with these log servers.
async fn reconfigure(at: u8, servers: Vec<Interface>) {
    let reconfigured = ReconfigureLog {
        sequencer: address(at),
        servers,
    };
    assert_eq!(insist(at, reconfigured).await.refused, "");
}

async fn remove(at: u8, name: &str) {
    let members = status(at).await.members;
    let found = members.iter().find(|(_, member)| member.name == name);
    let id = found.expect("it is in the roster").0;
    assert_eq!(insist(at, RemoveReplica { id }).await.refused, "");
}

/// The machine of one of the three replicas from `lost` on is gone, and another one takes its place.
async fn replace(nodes: &[Node], coordinators: &Coordinators, lost: u8) {
    control().lose_machine(nodes[usize::from(lost)].machine);
    let next = lost + 1..lost + 4;
    assert_eq!(adopt_into(lost + 3, &coordinators.file()).await, "");
    await_service(lost + 3..lost + 4).await;
    let transport = Transport::client();
    let register = CoordinatedRegister::new(&transport, coordinators);
    let moved = register.move_to(places(next.clone().map(address))).await;
    moved.expect("it is moved");
    reconfigure(lost + 1, servers(next).await).await;
    remove(lost + 2, &format!("replica-{lost}")).await;
}

/// Asks that the log be trimmed, and waits until it is.
async fn trim(at: u8) {
    let flushed = status(at).await.flushed;
    let trimmed = async {
        loop {
            let asked = TrimLog { before: u64::MAX };
            assert_eq!(insist(at, asked).await.refused, "");
            sleep(Duration::from_secs(1)).await;
            if insist(at, AskLoad {}).await.trimmed >= flushed {
                return;
            }
        }
    };
    // A replica that is gone is waited for a minute.
    let within = timeout(3 * PATIENCE, trimmed).await;
    within.expect("the log forgets what all have on disk");
}

#[test]
fn when_all_machines_were_exchanged_a_new_replica_is_a_copy_and_the_log_forgets() {
    for seed in 0..10 {
        run_with(8, seed, |nodes| async move {
            create().await;
            assert_eq!(switch(0, "view_tracking", true).await, "");
            let known = RefCell::new(Known::default());
            let coordinators = Coordinators::from(service());
            push_some(&known, 10).await;
            for lost in 0..3 {
                replace(&nodes, &coordinators, lost).await;
                known.borrow_mut().first = lost + 1;
                push_some(&known, 10).await;
            }
            sleep(Duration::from_secs(5)).await;
            // Nobody has the log's begin any more.
            assert_eq!(adopt_into(6, &coordinators.file()).await, "");
            await_service(6..7).await;
            push_some(&known, 5).await;
            compare(&[3, 4, 5, 6]).await;
            trim(3).await;
            assert_eq!(adopt_into(7, &coordinators.file()).await, "");
            await_service(7..8).await;
            compare(&[3, 4, 5, 6, 7]).await;
            check(&known).await;
        });
    }
}

#[test]
fn when_a_part_amid_the_log_is_gone_a_new_replica_is_a_copy() {
    for seed in 0..10 {
        run(seed, |nodes| async move {
            create().await;
            assert_eq!(switch(0, "view_tracking", true).await, "");
            let known = RefCell::new(Known::default());
            push_some(&known, 5).await;
            reconfigure(0, servers(0..1).await).await;
            push_some(&known, 5).await;
            reconfigure(1, servers(1..3).await).await;
            push_some(&known, 5).await;
            sleep(Duration::from_secs(5)).await;
            control().lose_machine(nodes[0].machine);
            remove(1, "replica-0").await;
            // The coordinators still are the first three.
            assert_eq!(adopt(3).await, "");
            await_service(3..4).await;
            compare(&[1, 2, 3]).await;
            trim(1).await;
            known.borrow_mut().first = 1;
            push_some(&known, 5).await;
            check(&known).await;
        });
    }
}

async fn await_end(node: &Node) -> String {
    let ended = async {
        while node.said.borrow().is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("it ends");
    node.said.borrow()[0].clone()
}

#[test]
fn who_was_away_while_the_log_was_trimmed_ends_and_a_new_replica_is_a_copy() {
    for seed in 0..10 {
        run(seed, |nodes| async move {
            create().await;
            assert_eq!(switch(0, "view_tracking", true).await, "");
            let known = RefCell::new(Known::default());
            push_some(&known, 20).await;
            control().kill_process(nodes[2].process, KillKind::Kill);
            push_some(&known, 20).await;
            // Nobody waits for it any more.
            sleep(Duration::from_secs(130)).await;
            assert_eq!(insist(0, TrimLog { before: u64::MAX }).await.refused, "");
            sleep(Duration::from_secs(5)).await;
            control().restart_process(nodes[2].process);
            let line = await_end(&nodes[2]).await;
            let start = "replica \"replica-2\" of \"jobs\": the log begins at ";
            assert!(line.starts_with(start), "{line}");
            assert_eq!(adopt(3).await, "");
            await_service(3..4).await;
            push_some(&known, 5).await;
            compare(&[0, 1, 3]).await;
            check(&known).await;
        });
    }
}

#[test]
fn a_full_disk_is_in_the_status_of_its_replica_while_it_has_no_room() {
    run(11, |nodes| async move {
        create().await;
        let known = RefCell::new(Known::default());
        assert!(!status(2).await.disk_full);
        control().set_disk_full(nodes[2].machine, true);
        let is_full = |wanted: bool| async move {
            let told = async {
                while status(2).await.disk_full != wanted {
                    sleep(Duration::from_millis(100)).await;
                }
            };
            timeout(PATIENCE, told).await.expect("it is told");
        };
        race(is_full(true), push_some(&known, 1000)).await;
        assert!(!status(0).await.disk_full, "its own is not full");
        assert_eq!(status(2).await.waits_for, "", "it serves meanwhile");
        control().set_disk_full(nodes[2].machine, false);
        is_full(false).await;
    });
}

#[test]
fn a_process_that_cannot_be_what_it_is_asked_to_be_says_so() {
    run(8, |nodes| async move {
        create().await;
        let adopt = |service: &str, kind: &str, name: &str| Adopt {
            service: service.into(),
            kind: kind.into(),
            name: name.into(),
        };
        let jobs = service().to_string();
        let taken = adopt(&jobs, "queue", "replica-1");
        assert_eq!(insist(3, taken).await.refused, "");
        let line = await_end(&nodes[3]).await;
        let start = "replica \"replica-1\" of \"jobs\": another replica, at 10.0.3.1:4700, has";
        assert!(line.starts_with(start), "{line}");
        let by_tls = jobs.replace(',', ":tls,") + ":tls";
        for (node, asked, says) in [
            (
                1,
                adopt(&by_tls, "queue", "replica-1"),
                "it is that replica already, with a service's file without :tls",
            ),
            (
                1,
                adopt("locks:b1@10.0.3.0:4700", "lock", "x"),
                "it is replica \"replica-1\" of \"jobs\" already",
            ),
            (
                4,
                adopt(&jobs, "ledger", "x"),
                "its program has no kind \"ledger\"; it has lock, queue",
            ),
            (
                4,
                adopt(&jobs, "queue", "x y"),
                "the name of a replica may have",
            ),
            (4, adopt("jobs", "queue", "x"), "the service's file: there"),
            (
                4,
                adopt("jobs:b1@10.0.3.0:4700:tls", "queue", "x"),
                "the service asks for TLS; give --tls-certificate-file",
            ),
        ] {
            let refused = insist(node, asked).await.refused;
            assert!(refused.starts_with(says), "{refused}");
        }
        let unknown = switch(0, "warp", true).await;
        let says =
            "there is no engine \"warp\"; there are view_tracking, log_backup, time, lease, ";
        assert!(unknown.starts_with(says), "{unknown}");
        let Ok(Called::Refused { code, .. }) = call(0, "fly", json!({})).await else {
            panic!("there is no such operation");
        };
        assert_eq!(code, "unknown_operation");
        let waits = call(4, "peek", json!({})).await;
        let Ok(Called::Lost { may_be_done, why }) = waits else {
            panic!("it has no replica: {waits:?}");
        };
        assert!(
            !may_be_done && why.contains("waits for an operator"),
            "{why}"
        );
    });
}
