//! A golden trace: a gateway hangs, a session of its clients goes on at another gateway, and the first one wakes.
//!
//! ```sh
//! PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-keeper --test all golden::
//! ```

#[path = "../../../store/sim/tests/golden/story.rs"]
mod story;

use bytes::Bytes;
use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::Client;
use plinth_keeper::sessions::SessionRow;
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::{Acl, Answer, CreateKind, Request, create_flags, event};
use plinth_keeper::{Keeper, Options};
use plinth_runtime::sim::{Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, now, sleep, sleep_until, trace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Included};
use std::path::Path;
use story::{Event, Place, Places, check, tell};

const COMMAND: &str = "PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-keeper --test all golden::";
const SEEDS: [u64; 3] = [1, 2, 3];
const LIMIT: Duration = Duration::from_secs(300);
const TRACE_LINES: usize = 100_000;
const LOOK: Duration = Duration::from_millis(20);
const TIMEOUT_MS: i32 = 10_000;
/// By then a client has given up a gateway that hangs, and the other gateway has seen that it is silent.
const GIVEN_UP: Duration = Duration::from_secs(7);
/// Until nothing is left of what the gateway had.
const HANGS: Duration = Duration::from_secs(25);

const PLACES: Places = &[
    ("StoreHas", Place::Step),
    ("OperatorStops", Place::Step),
    ("ClientWrote", Place::Step),
    ("KeeperGatewaySilent", Place::Step),
    ("ClientConnects", Place::Step),
    ("KeeperSessionTaken", Place::Here),
    ("KeeperWatchesSetAgain", Place::Step),
    ("ClientHears", Place::Step),
    ("ClientSees", Place::Step),
    ("KeeperSessionExpires", Place::Step),
    ("KeeperGatewayRemoved", Place::Step),
    ("KeeperSessionLeaves", Place::Step),
    ("KeeperGatewayLost", Place::Step),
    ("KeeperGatewayBegins", Place::With("KeeperGatewayLost")),
];

fn address(machine: u8) -> SocketAddr {
    ([10, 0, 0, machine], 2181).into()
}

/// Starts a gateway on the next machine: the simulator's numbers of processes are those of the machines.
fn start(machine: u8, cluster: &MemoryCluster) -> ProcessId {
    let id = control().add_machine(Locality::default());
    let cluster = cluster.clone();
    control().start_process(id, address(machine), move || {
        let cluster = cluster.clone();
        Box::pin(async move {
            let database = cluster.database();
            let keeper = Keeper::listen(database, address(machine), Options::default()).await;
            keeper.expect("its port is free").serve().await;
        })
    })
}

async fn connect(name: &str, machine: u8, session: Option<(i64, Bytes, i64)>) -> Client {
    trace!("ClientConnects", "client" => name, "machine" => format!("m{machine}"));
    loop {
        match Client::connect(address(machine), TIMEOUT_MS, session.clone()).await {
            Ok(client) => {
                let id = format!("{:#x}", client.session_id());
                trace!("ClientConnected", "client" => name, "session" => id);
                return client;
            }
            Err(_) => sleep(LOOK).await,
        }
    }
}

async fn ask(client: &Client, request: Request) -> Answer {
    client.submit(request).await.expect("it is answered").1
}

async fn create(client: &Client, path: &str, flags: i32) {
    let request = Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some(Bytes::from_static(b"old")),
        acl: Acl::open(),
        flags,
        ttl: -1,
    };
    ask(client, request).await;
}

async fn sync(client: &Client) {
    let path = Some("/".into());
    ask(client, Request::Sync { path }).await;
}

async fn get(client: &Client, path: &str, watch: bool) -> String {
    let path = path.into();
    match ask(client, Request::GetData { path, watch }).await {
        Answer::Data(Some(data), _) => String::from_utf8_lossy(&data).into_owned(),
        other => panic!("{other:?}"),
    }
}

async fn list(client: &Client, path: &str, watch: bool) -> String {
    let path = path.into();
    match ask(client, Request::GetChildren { path, watch }).await {
        Answer::Children(names) => {
            let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            names.join(" and ")
        }
        other => panic!("{other:?}"),
    }
}

async fn hear(client: &Client) {
    let event = client.next_event().await.expect("it is connected");
    let what = match event.kind {
        event::DATA_CHANGED => "data",
        event::CHILDREN_CHANGED => "children",
        other => panic!("an event of kind {other}"),
    };
    trace!("ClientHears", "client" => "a", "path" => event.path, "what" => what);
}

/// What the clients of a story have in common.
struct Stage {
    cluster: MemoryCluster,
    sessions: [i64; 3],
}

impl Stage {
    /// Tells who has which session, and which leases there are.
    fn look(&self) {
        let rows = Rows::new(&Options::default().tree);
        let all = self.cluster.rows();
        let owner = |session: &i64| {
            let row = SessionRow::parse(all.get(&rows.session(*session)[..])?)?;
            Some(format!("{session:#x}:{}", row.owner))
        };
        let sessions: Vec<String> = self.sessions.iter().filter_map(owner).collect();
        let leases = rows.all_gateways();
        let (begin, end) = (&leases.begin[..], &leases.end[..]);
        let leases = all.range::<[u8], _>((Included(begin), Excluded(end)));
        let leases = leases.filter_map(|(key, _)| Rows::last_number(key));
        let leases: Vec<String> = leases.map(|gateway| gateway.to_string()).collect();
        trace!("StoreHas", "sessions" => sessions.join(" "), "leases" => leases.join(" "));
    }
}

/// The data of `/config`, and the list of `/jobs`, are watched again.
fn watches(seen: i64) -> Request {
    Request::SetWatches {
        relative_zxid: seen,
        data: vec!["/config".into()],
        exist: Vec::new(),
        child: vec!["/jobs".into()],
        persistent: Vec::new(),
        recursive: Vec::new(),
        breaks_off: false,
    }
}

async fn story() {
    let cluster = MemoryCluster::new();
    let first = start(1, &cluster);
    start(2, &cluster);
    let a = connect("a", 1, None).await;
    let b = connect("b", 1, None).await;
    let c = connect("c", 2, None).await;
    create(&a, "/config", create_flags::PERSISTENT).await;
    create(&a, "/jobs", create_flags::PERSISTENT).await;
    create(&a, "/jobs/a", create_flags::EPHEMERAL).await;
    create(&b, "/jobs/b", create_flags::EPHEMERAL).await;
    sync(&a).await;
    get(&a, "/config", true).await;
    list(&a, "/jobs", true).await;
    sync(&c).await;
    sleep(Duration::from_secs(2)).await;
    let sessions = [&a, &b, &c].map(Client::session_id);
    let stage = Stage { cluster, sessions };
    trace!("StoryBegins");
    stage.look();
    trace!("OperatorStops", "machine" => "m1");
    control().pause_process(first, HANGS);
    let stopped = now();
    drop(b);
    let request = Request::SetData {
        path: "/config".into(),
        data: Some(Bytes::from_static(b"new")),
        version: -1,
    };
    ask(&c, request).await;
    trace!("ClientWrote", "client" => "c", "path" => "/config", "data" => "new");
    sleep_until(stopped + GIVEN_UP).await;
    assert!(a.failure().is_some(), "it hears nothing of its gateway");
    let session = a.session();
    let seen = session.2;
    let a = connect("a", 2, Some(session)).await;
    stage.look();
    ask(&a, watches(seen)).await;
    hear(&a).await;
    let config = get(&a, "/config", false).await;
    trace!("ClientSees", "client" => "a", "path" => "/config", "what" => config);
    let jobs = list(&a, "/jobs", false).await;
    trace!("ClientSees", "client" => "a", "path" => "/jobs", "what" => jobs);
    hear(&a).await;
    let jobs = list(&a, "/jobs", false).await;
    trace!("ClientSees", "client" => "a", "path" => "/jobs", "what" => jobs);
    stage.look();
    sleep_until(stopped + HANGS + Duration::from_secs(2)).await;
    stage.look();
    let d = connect("d", 1, None).await;
    let jobs = list(&d, "/jobs", false).await;
    trace!("ClientSees", "client" => "d", "path" => "/jobs", "what" => jobs);
}

/// What sessions and gateways are called in the story: their ids are drawn.
#[derive(Default)]
struct Names {
    sessions: BTreeMap<String, String>,
    gateways: BTreeMap<String, String>,
}

impl Names {
    fn of(trace: &[String]) -> Names {
        let mut names = Names::default();
        for line in trace {
            let event: Value = serde_json::from_str(line).expect("an event is JSON");
            match event["type"].as_str() {
                Some("ClientConnected") => {
                    let text = |field: &str| event[field].as_str().expect("a text").to_owned();
                    names.sessions.insert(text("session"), text("client"));
                }
                Some("KeeperGatewayBegins") => {
                    let mut name = format!("m{}", event["process"]);
                    if names.gateways.values().any(|other| *other == name) {
                        name += " anew";
                    }
                    names.gateways.insert(event["gateway"].to_string(), name);
                }
                _ => {}
            }
        }
        names
    }

    fn session(&self, id: &str) -> &str {
        self.sessions.get(id).map_or("?", String::as_str)
    }

    fn gateway(&self, id: &str) -> &str {
        self.gateways.get(id).map_or("?", String::as_str)
    }

    fn in_words(&self, event: &Event) -> Option<String> {
        let text = |field: &str| event.text(field);
        let gateway = |field: &str| self.gateway(&event.text(field)).to_owned();
        let session = || self.session(&event.text("session")).to_owned();
        Some(match event.kind().as_str() {
            "StoreHas" => self.rows_in_words(&text("sessions"), &text("leases")),
            "OperatorStops" => text("machine"),
            "ClientConnects" => format!("{} to {}", text("client"), text("machine")),
            "ClientWrote" => format!("{}: {} is {}", text("client"), text("path"), text("data")),
            "ClientHears" => {
                let (client, what, path) = (text("client"), text("what"), text("path"));
                format!("{client}: the {what} of {path} changed")
            }
            "ClientSees" => format!("{}: {} has {}", text("client"), text("path"), text("what")),
            "KeeperGatewaySilent" => gateway("gateway"),
            "KeeperSessionTaken" => format!("{} from {}", session(), gateway("from")),
            "KeeperSessionLeaves" => format!("{} to {}", session(), gateway("to")),
            "KeeperWatchesSetAgain" => {
                let (all, missed) = (text("watches"), text("missed"));
                format!(
                    "of {}: {all} watches, {missed} has missed a change",
                    session()
                )
            }
            "KeeperSessionExpires" => format!("{} of {}", session(), gateway("gateway")),
            "KeeperGatewayRemoved" => gateway("gateway"),
            "KeeperGatewayLost" => format!("{}: {}", gateway("gateway"), text("why")),
            "KeeperGatewayBegins" => gateway("gateway"),
            _ => return None,
        })
    }

    fn rows_in_words(&self, sessions: &str, leases: &str) -> String {
        let of = |session: &str| {
            let (session, owner) = session.split_once(':').expect("a session and its owner");
            format!("{} of {}", self.session(session), self.gateway(owner))
        };
        let sessions: Vec<String> = sessions.split(' ').map(of).collect();
        // A lone number is one in the trace, too.
        let mut leases: Vec<&str> = leases.split(' ').map(|id| self.gateway(id)).collect();
        leases.sort_unstable();
        let (sessions, leases) = (sessions.join(", "), leases.join(", "));
        format!("sessions: {sessions}; leases: {leases}")
    }
}

#[test]
fn a_session_goes_on_at_another_gateway_with_its_watches_and_ephemeral_nodes() {
    let told = |seed| {
        let config = SimConfig {
            trace_lines_max: TRACE_LINES,
            ..SimConfig::default()
        };
        let simulation = Simulation::new(seed, config);
        simulation
            .run_until(story(), LIMIT)
            .expect("the story ends");
        let trace = simulation.trace_tail();
        let names = Names::of(&trace);
        tell(&trace, PLACES, |event| names.in_words(event))
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/session_handover.txt");
    check(&path, COMMAND, &SEEDS, told);
}
