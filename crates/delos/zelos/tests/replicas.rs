//! Three processes of Zelos in the simulator: they and their network break while ZooKeeper's clients write, read and
//! watch, and the keeper's own oracle looks at what they are told.

#[path = "replicas/clickhouse.rs"]
mod clickhouse;

use plinth_coordination::{ClusterFile, Coordinators, places};
use plinth_core::{EngineKind, Error, Uid};
use plinth_delos::backup::directories;
use plinth_delos::coordinated_register::CoordinatedRegister;
use plinth_delos::quorum::client::QuorumLoglets;
use plinth_delos::quorum::messages::Config as LogletConfig;
use plinth_delos::replica::messages::{
    Adopt, AskChecksum, AskStatus, Greet, MarkLog, SwitchEngine, process,
};
use plinth_delos::replica::{Config, Kind, Settings, serve};
use plinth_delos::virtual_log::VirtualLog;
use plinth_keeper::Options;
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, create_flags, event};
use plinth_keeper::workload::Keeping;
use plinth_rpc::{Interface, Request as Rpc, Transport};
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, join_all, now, race, random, sleep, sleep_until, timeout};
use plinth_workload::{Day, Site};
use plinth_zelos::Door;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

const PATIENCE: Duration = Duration::from_secs(60);
const SESSION_MS: i32 = 4000;
static KINDS: [&Kind; 1] = [&plinth_zelos::KIND];

fn address(n: u8) -> SocketAddr {
    ([10, 0, 3, n], 4700).into()
}

fn door(n: u8) -> SocketAddr {
    ([10, 0, 3, n], 2181).into()
}

fn service() -> ClusterFile {
    ClusterFile {
        description: "tree".into(),
        id: "a1".into(),
        coordinators: places((0..3).map(address)),
        keys: None,
        is_tls: false,
        certificates: None,
    }
}

/// A process of a replica on a machine of its own, and the lines with which it ended.
#[derive(Clone)]
struct Node {
    machine: MachineId,
    process: ProcessId,
    said: Rc<RefCell<Vec<String>>>,
}

fn config(n: u8) -> Config {
    let options = Options {
        enforce_quota: true,
        ..Options::default()
    };
    let (listen, beside) = (door(n).into(), None);
    let door = Door {
        listen,
        options,
        beside,
    };
    Config {
        directory: "/data".into(),
        listen: address(n),
        public: None,
        kinds: &KINDS,
        engine: EngineKind::Memory,
        cache_bytes: 1 << 20,
        service: None,
        settings: Settings::default().with(door),
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

/// Asks until there is an answer.
async fn insist<R: Rpc + Clone>(n: u8, request: R) -> R::Reply {
    let transport = Transport::client();
    let endpoint = process(address(n)).endpoint::<R>();
    let asking = async {
        loop {
            let asked = timeout(
                Duration::from_secs(5),
                transport.call(&endpoint, request.clone()),
            );
            if let Ok(reply) = asked.await.unwrap_or(Err(Error::timed_out)) {
                return reply;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let within = timeout(PATIENCE, asking).await;
    within.expect("it answers in time")
}

async fn await_service() {
    for n in 0..3 {
        let serving = async {
            while !insist(n, AskStatus {}).await.waits_for.is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, serving).await.expect("it serves");
    }
}

async fn switch(engine: &str) {
    let (engine, on) = (engine.into(), true);
    let told = insist(0, SwitchEngine { engine, on }).await;
    assert_eq!(told.refused, "");
}

async fn create() {
    let greetings = join_all((0..3).map(|n| insist(n, Greet {}))).await;
    let servers: Vec<Interface> = greetings.iter().map(|g| g.log_server).collect();
    for n in 0..3 {
        let adopt = Adopt {
            service: service().to_string(),
            kind: "zelos".into(),
            name: format!("replica-{n}"),
        };
        assert_eq!(insist(n, adopt).await.refused, "");
    }
    let first = LogletConfig {
        loglet: Uid(1),
        sequencer: address(0),
        servers,
    };
    let transport = Transport::client();
    let register = CoordinatedRegister::new(&transport, &Coordinators::from(service()));
    let loglets = QuorumLoglets { transport };
    let opened = VirtualLog::open(register, loglets, first.to_description()).await;
    opened.map(drop).expect("the map is written");
    await_service().await;
    for engine in ["view_tracking", "session_order", "batching"] {
        switch(engine).await;
    }
}

fn run<T: 'static, W: Future<Output = T> + 'static>(
    seed: u64,
    work: impl FnOnce(Vec<Node>) -> W + 'static,
) -> T {
    let sim = Simulation::new(seed, SimConfig::default());
    let nodes: Vec<Node> = (0..3).map(|n| node(&sim, n)).collect();
    sim.run(async move { work(nodes).await }).result
}

async fn compare() {
    let told = insist(0, MarkLog {}).await;
    assert_eq!(told.refused, "");
    let mark = told.pos;
    let mut sums = Vec::new();
    for n in 0..3 {
        sums.push(insist(n, AskChecksum { mark }).await.checksum);
    }
    let is_equal = sums.iter().all(|sum| *sum == sums[0]);
    assert!(sums[0].is_some() && is_equal, "{sums:?}");
}

/// Breaks one thing at a time, and mends it.
async fn break_things(nodes: &[Node]) {
    loop {
        sleep(Duration::from_millis(random::below(4000))).await;
        let first = random::below(3) as usize;
        let (node, other) = (&nodes[first], &nodes[(first + 1) % 3]);
        let while_ms = Duration::from_millis(random::below(4000));
        match random::below(5) {
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
            _ => drop(control().cut_connections(node.machine, other.machine)),
        }
    }
}

fn heal(nodes: &[Node]) {
    control().heal_all();
    for node in nodes {
        control().boot(node.machine);
        control().restart_process(node.process);
    }
}

/// A day of clients, and what the oracle says.
async fn a_day(nodes: Vec<Node>) -> Result<(), String> {
    create().await;
    let site = Rc::new(Site {
        servers: (0..3).map(door).collect(),
        cluster: service(),
    });
    let keeping = Keeping::new(site);
    keeping.make_nodes().await;
    // The quota is counted by then.
    sleep(Duration::from_secs(15)).await;
    let day = Day {
        end: now() + Duration::from_secs(60),
        think_ms: (0, 300),
    };
    let working = join_all((0..4).map(|client| keeping.live(client, day)));
    race(working, break_things(&nodes)).await;
    heal(&nodes);
    await_service().await;
    let verdict = keeping.check_clients().await;
    compare().await;
    for node in &nodes {
        assert_eq!(*node.said.borrow(), Vec::<String>::new());
    }
    verdict
}

#[test]
fn clients_are_told_what_zookeeper_promises_while_replicas_and_the_network_break() {
    for seed in 0..15 {
        if let Err(broken) = run(seed, a_day) {
            panic!("seed {seed}: {broken}");
        }
    }
}

async fn connect(n: u8, session: Option<(i64, bytes::Bytes, i64)>) -> Client {
    let connecting = async {
        loop {
            match Client::connect(door(n), SESSION_MS, session.clone()).await {
                Ok(client) => return client,
                Err(Failure::Refused(code)) => panic!("refused: {code:?}"),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    timeout(PATIENCE, connecting).await.expect("it connects")
}

fn node_at(path: &str, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: None,
        acl: Acl::open(),
        flags,
        ttl: -1,
    }
}

async fn ask(client: &Client, request: Request) -> Result<Answer, Code> {
    let asked = timeout(PATIENCE, client.submit(request)).await;
    match asked.expect("an answer") {
        Ok((_, answer)) => Ok(answer),
        Err(Failure::Refused(code)) => Err(code),
        Err(error) => panic!("{error}"),
    }
}

fn exists(path: &str, watch: bool) -> Request {
    let path = path.into();
    Request::Exists { path, watch }
}

async fn await_event(client: &Client) -> (i32, String) {
    let event = timeout(PATIENCE, client.next_event()).await;
    let event = event.expect("in time").expect("connected");
    (event.kind, event.path.to_string())
}

#[test]
fn a_session_moves_with_its_nodes_and_its_reads_do_not_go_back() {
    run(1, |_| async {
        create().await;
        let first = connect(0, None).await;
        for path in ["/a", "/b"] {
            ask(&first, node_at(path, create_flags::EPHEMERAL))
                .await
                .expect("made");
        }
        let second = connect(1, Some(first.session())).await;
        assert_eq!(second.session_id(), first.session_id());
        // Its former gateway has let it go.
        while first.failure().is_none() {
            sleep(Duration::from_millis(10)).await;
        }
        for path in ["/a", "/b"] {
            ask(&second, exists(path, false))
                .await
                .expect("it is there");
        }
        let other = connect(2, None).await;
        ask(&other, exists("/a", true)).await.expect("it is there");
        second.close().await.expect("closed");
        assert_eq!(await_event(&other).await, (event::DELETED, "/a".into()));
        assert_eq!(ask(&other, exists("/b", false)).await, Err(Code::NO_NODE));
        compare().await;
    });
}

/// A client whose connection breaks, and that comes back just in time, anywhere.
async fn come_back(number: u64) {
    let any = || random::below(3) as u8;
    let ms = Duration::from_millis;
    sleep(ms(60 * number)).await;
    let client = connect(any(), None).await;
    let heard = now();
    ask(&client, exists("/", false)).await.expect("the root");
    let session = client.session();
    drop(client);
    sleep_until(heard + ms(random::range(3850..4000))).await;
    let back = connect(any(), Some(session.clone())).await;
    assert_eq!(back.session_id(), session.0);
    for _ in 0..20 {
        ask(&back, exists("/", false)).await.expect("it lives");
        sleep(ms(100)).await;
    }
}

#[test]
fn a_client_that_comes_back_in_time_keeps_its_session_at_any_replica() {
    run(3, |_| async {
        create().await;
        join_all((0..30).map(come_back)).await;
    });
}

#[test]
fn the_engine_that_the_service_needs_stays_on() {
    run(4, |_| async {
        create().await;
        for (engine, is_needed) in [("session_order", true), ("batching", false)] {
            let (name, on) = (engine.into(), false);
            let told = insist(0, SwitchEngine { engine: name, on }).await;
            let says = "a service of kind zelos cannot do without the engine session_order: ";
            assert_eq!(
                told.refused.starts_with(says),
                is_needed,
                "{}",
                told.refused
            );
            assert_eq!(told.refused.is_empty(), !is_needed, "{}", told.refused);
        }
    });
}

#[test]
fn another_replica_ends_the_sessions_of_one_that_is_gone() {
    run(2, |nodes| async move {
        create().await;
        let gone = connect(2, None).await;
        ask(&gone, node_at("/e", create_flags::EPHEMERAL))
            .await
            .expect("made");
        let other = connect(0, None).await;
        ask(&other, exists("/e", true)).await.expect("it is there");
        control().kill_process(nodes[2].process, KillKind::Kill);
        let killed = now();
        assert_eq!(await_event(&other).await, (event::DELETED, "/e".into()));
        let took = killed.elapsed();
        assert!(took < Duration::from_millis(5500), "it took {took:?}");
        control().restart_process(nodes[2].process);
        await_service().await;
        let session = Some(gone.session());
        let taken = Client::connect(door(2), SESSION_MS, session).await;
        assert!(matches!(
            taken,
            Err(Failure::Refused(Code::SESSION_EXPIRED))
        ));
        compare().await;
    });
}
