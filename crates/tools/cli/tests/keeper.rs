//! ZooKeeper's clients on real processes: three servers and two gateways. A server and a gateway are killed, and no
//! client loses its session, an ephemeral node or an event.

use crate::common::gateways::{PATIENCE, SESSION_TIMEOUT_MS, ask, connect, page, start_gateway};
use crate::common::{self, BINARY, Cluster, Server, free_ports, text};
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, Text, create_flags, event};
use plinth_runtime::{Duration, real, sleep, timeout};
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

fn create(path: &str, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::WithStat,
        path: path.into(),
        data: Some("first".into()),
        acl: Acl::open(),
        flags,
        ttl: -1,
    }
}

fn set(path: &str, value: &'static str) -> Request {
    Request::SetData {
        path: path.into(),
        data: Some(value.into()),
        version: -1,
    }
}

async fn work(cluster: &Cluster) {
    let first_port = free_ports(2);
    let address = |i| SocketAddr::from(([127, 0, 0, 1], first_port + i));
    let mut first = start_gateway(cluster, address(0), &[]);
    let _second = start_gateway(cluster, address(1), &[]);
    let (one, two) = (
        connect(address(0), None).await,
        connect(address(1), None).await,
    );
    ask(&one, create("/app", create_flags::PERSISTENT))
        .await
        .expect("created");
    ask(&one, create("/app/live", create_flags::EPHEMERAL))
        .await
        .expect("created");
    let watched = Request::GetData {
        path: "/app".into(),
        watch: true,
    };
    ask(&one, watched.clone()).await.expect("it is there");
    ask(&two, set("/app", "second")).await.expect("set");
    let told = timeout(PATIENCE, one.next_event())
        .await
        .flatten()
        .expect("an event");
    assert_eq!(
        (told.kind, told.path),
        (event::DATA_CHANGED, Text::from("/app"))
    );

    send_signal(cluster, Signal::KILL);
    ask(&two, set("/app", "third"))
        .await
        .expect("set while a server is down");
    match ask(&one, watched).await.expect("it is there") {
        Answer::Data(Some(data), _) => assert!(data == "second" || data == "third"),
        other => panic!("{other:?}"),
    }
    first.0.kill().expect("it runs");
    move_to(address(1), one, &two).await;
}

/// Takes the session of `one`, whose gateway was killed, to the gateway at `address`, and ends it there.
async fn move_to(address: SocketAddr, one: Client, two: &Client) {
    let (session, password, seen) = one.session();
    ask(two, set("/app", "fourth"))
        .await
        .expect("set while a gateway is down");
    let one = connect(address, Some((session, password, seen))).await;
    let again = Request::SetWatches {
        relative_zxid: seen,
        data: vec!["/app".into()],
        exist: Vec::new(),
        child: Vec::new(),
        persistent: Vec::new(),
        recursive: Vec::new(),
        breaks_off: false,
    };
    ask(&one, again).await.expect("set again");
    let told = timeout(PATIENCE, one.next_event())
        .await
        .flatten()
        .expect("an event");
    assert_eq!(told.kind, event::DATA_CHANGED);
    let live = Request::Exists {
        path: "/app/live".into(),
        watch: false,
    };
    ask(two, live.clone()).await.expect("its session lives");
    one.close().await.expect("closed");
    assert_eq!(ask(two, live).await, Err(Code::NO_NODE));
}

async fn look_at_pages(cluster: &Cluster) {
    let first_port = free_ports(2);
    let address = |i| SocketAddr::from(([127, 0, 0, 1], first_port + i));
    let admin = address(1).to_string();
    let _gateway = start_gateway(cluster, address(0), &["--pages", &admin]);
    let client = connect(address(0), None).await;
    for (path, flags) in [
        ("/a", create_flags::PERSISTENT),
        ("/b", create_flags::EPHEMERAL),
    ] {
        ask(&client, create(path, flags)).await.expect("created");
    }
    let command = |name: &str| -> serde_json::Value {
        let answer = page(address(1), &format!("/commands/{name}"));
        serde_json::from_str(&answer).expect("JSON")
    };
    let monitored = async || loop {
        let said = command("monitor");
        if said["ephemerals_count"] == 1 {
            return said;
        }
        sleep(Duration::from_millis(100)).await; // the totals are at most a second old
    };
    let said = timeout(PATIENCE, monitored()).await.expect("counted");
    // The four that are always there, the root's second name, and the two created.
    assert_eq!(
        (&said["znode_count"], &said["command"]),
        (&7.into(), &"monitor".into())
    );
    assert_eq!(said["cnt_updatelatency"], 2);
    assert_eq!(command("isro")["read_only"], false);
    assert_eq!(command("cons")["connections"][0]["packets_received"], 2);
    assert_eq!(command("nonsense")["error"], "Unknown command: nonsense");
    let ready = page(address(1), "/ready");
    assert!(ready.contains("\"status\":\"ok\""), "{ready}");
    let metrics = page(address(1), "/metrics");
    let cluster = metrics
        .split("cluster=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let cluster = cluster.expect("every metric names its cluster");
    let process = format!("cluster=\"{cluster}\",process=\"{}\"", address(0));
    for line in [
        format!("znode_count{{{process}}} 7"),
        format!("plinth_keeper_requests_total{{{process},request=\"create\"}} 2"),
    ] {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    assert!(page(address(1), "/commands").contains("watches_by_path"));
}

/// Creates ephemeral nodes, 500 with each request.
async fn create_many(client: &Client, number: usize) {
    for first in (0..number).step_by(500) {
        let names = first..number.min(first + 500);
        let operations = names.map(|n| create(&format!("/many-{n}"), create_flags::EPHEMERAL));
        let multi = Request::Multi {
            operations: operations.collect(),
        };
        ask(client, multi).await.expect("created");
    }
}

async fn end_a_large_session(cluster: &Cluster) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let _gateway = start_gateway(cluster, address, &[]);
    let (one, two) = (connect(address, None).await, connect(address, None).await);
    create_many(&one, 2300).await;
    one.close().await.expect("closed");
    let list = Request::GetChildren {
        path: "/".into(),
        watch: false,
    };
    match ask(&two, list).await.expect("it is there") {
        Answer::Children(names) => assert_eq!(names, [Text::from("zookeeper")]),
        other => panic!("{other:?}"),
    }
}

fn get(path: &str) -> Request {
    Request::GetData {
        path: path.into(),
        watch: false,
    }
}

fn send_signal(cluster: &Cluster, signal: Signal) {
    let pid = cluster.pid(0).expect("it runs");
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, signal).expect("it is ours");
}

/// Connects as a client that may be read-only, until it is.
async fn connect_to_read(address: SocketAddr, session: (i64, bytes::Bytes, i64)) -> Client {
    loop {
        let session = Some(session.clone());
        match Client::connect_to_read(address, SESSION_TIMEOUT_MS, session).await {
            Ok(client) if client.is_read_only() => return client,
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn read_without_database(cluster: &Cluster) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let _gateway = start_gateway(cluster, address, &[]);
    let client = connect(address, None).await;
    let persistent = create_flags::PERSISTENT;
    ask(&client, create("/app", persistent))
        .await
        .expect("created");
    send_signal(cluster, Signal::STOP);
    let reader = timeout(PATIENCE, connect_to_read(address, client.session())).await;
    let reader = reader.expect("a gateway that is cut off serves readers");
    let ended = async { while client.next_event().await.is_some() {} };
    timeout(PATIENCE, ended)
        .await
        .expect("others are disconnected");
    assert_eq!(reader.session_id(), client.session_id());
    let found = ask(&reader, get("/app")).await;
    assert!(matches!(found, Ok(Answer::Data(Some(data), _)) if data == "first"));
    assert_eq!(
        ask(&reader, set("/app", "new")).await,
        Err(Code::NOT_READ_ONLY)
    );
    let not_cached = ask(&reader, get("/zookeeper/quota")).await;
    assert_eq!(not_cached, Err(Code::CONNECTION_LOSS));
    let stranger = Client::connect(address, 1000, None).await;
    assert!(stranger.is_err(), "who wants to write is not served");
    send_signal(cluster, Signal::CONT);
    let ended = async { while reader.next_event().await.is_some() {} };
    timeout(PATIENCE, ended).await.expect("it is disconnected");
    let client = connect(address, Some(reader.session())).await;
    ask(&client, set("/app", "new"))
        .await
        .expect("the session lives");
}

async fn clear_everything(cluster: &Cluster) {
    let first_port = free_ports(3);
    let address = |i| SocketAddr::from(([127, 0, 0, 1], first_port + i));
    let pages = address(2).to_string();
    let mut gateway = start_gateway(cluster, address(0), &["--pages", &pages]);
    let client = connect(address(0), None).await;
    let app = create("/app", create_flags::PERSISTENT);
    ask(&client, app.clone()).await.expect("created");
    cluster.cli(r#"clearrange "" \xff"#);
    let written = timeout(PATIENCE, client.submit(set("/app", "lost"))).await;
    assert!(
        written.expect("it ends").is_err(),
        "nothing is acknowledged"
    );
    let stopped = async {
        loop {
            let said = page(address(2), "/commands/srvr");
            if said.contains("tree `default' is gone") {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, stopped).await.expect("its page says why");
    assert!(page(address(2), "/metrics").contains("plinth_keeper_serving{cluster=\""));
    assert!(gateway.0.try_wait().expect("asked").is_none(), "it stays");

    let listen = address(1).to_string();
    let another = cluster.plinth(&["keeper", "server", "--listen", &listen]);
    let said = common::text(&another.stderr);
    let line = said.lines().last().expect("it says why");
    assert_eq!(another.status.code(), Some(1), "{said}");
    for words in ["tree `default' is gone", "plinth keeper status"] {
        assert!(line.contains(words), "{said}");
    }
    let status = cluster.plinth(&["keeper", "status"]);
    assert_eq!(status.status.code(), Some(1));
    let status = common::text(&status.stdout);
    for words in ["gone: there is no record", "plinth keeper drop"] {
        assert!(status.contains(words), "{status}");
    }
    assert!(cluster.plinth(&["keeper", "drop"]).status.success());
    let line = common::error_line(&cluster.plinth(&["keeper", "drop"]));
    assert!(line.contains("there is no tree `default'"), "{line}");
    let _anew = start_gateway(cluster, address(1), &[]);
    let client = connect(address(1), None).await;
    ask(&client, app).await.expect("created again");
    let said = page(address(2), "/commands/srvr");
    assert!(
        said.contains("is gone"),
        "the first one does not join: {said}"
    );
    let line = common::error_line(&cluster.plinth(&["keeper", "drop"]));
    assert!(line.contains("has its nodes"), "{line}");
    let line = common::error_line(&cluster.plinth(&["keeper", "drop", "--whole"]));
    let named = format!("is served at {}; it stays", address(1));
    assert!(line.contains(&named) && line.contains("--force"), "{line}");
    ask(&client, set("/app", "still there"))
        .await
        .expect("nothing is dropped");
    let dropped = cluster.plinth(&["keeper", "drop", "--whole", "--force"]);
    assert!(dropped.status.success());
    let told = common::text(&dropped.stderr);
    assert!(told.contains(&address(1).to_string()), "{told}");
}

#[test]
fn a_gateway_whose_tree_is_cleared_says_so_and_an_operator_begins_anew() {
    let cluster = Cluster::start("keeper-cleared", 1, &[]);
    real::block_on(clear_everything(&cluster));
}

#[test]
fn clients_read_while_the_database_cannot_be_reached() {
    let cluster = Cluster::start("keeper-read-only", 1, &[]);
    real::block_on(read_without_database(&cluster));
}

#[test]
fn a_session_ends_that_has_more_ephemeral_nodes_than_a_transaction_deletes() {
    let cluster = Cluster::start("keeper-large-session", 1, &[]);
    real::block_on(end_a_large_session(&cluster));
}

#[test]
fn a_gateway_shows_the_pages_of_an_admin_server_and_its_metrics() {
    let cluster = Cluster::start("keeper-pages", 1, &[]);
    real::block_on(look_at_pages(&cluster));
}

#[test]
fn sessions_watches_and_ephemerals_outlive_a_server_and_a_gateway() {
    let cluster = Cluster::start("keeper", 3, &["--replication", "double"]);
    real::block_on(work(&cluster));
}

#[test]
fn the_bench_measures_gateways_and_tells_what_the_end_of_one_costs() {
    let cluster = Cluster::start("keeper-bench", 1, &["--engine", "memory"]);
    let first_port = free_ports(2);
    let address = |i| SocketAddr::from(([127, 0, 0, 1], first_port + i));
    let first = start_gateway(&cluster, address(0), &[]);
    let _second = start_gateway(&cluster, address(1), &[]);
    real::block_on(async {
        for i in 0..2 {
            let client = connect(address(i), None).await;
            client.close().await.expect("closed");
        }
    });
    let file = |name| cluster.directory.file(name).to_string_lossy().into_owned();
    let (known, json, html) = (file("calibration"), file("json"), file("html"));
    let reference = plinth_measure::calibrate::REFERENCE.to_json();
    std::fs::write(&known, reference.to_string()).expect("writes");
    let output = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args([
            "keeper",
            "bench",
            "run",
            "--workload",
            "clickhouse,ycsb-f,bulk-load,failures",
        ])
        .args([
            "--clients",
            "6",
            "--rounds",
            "1",
            "--nodes",
            "300",
            "--seed",
            "1",
        ])
        .args(["--duration", "4", "--warmup", "0.1", "--disturb-at", "1"])
        .args(["--server", &format!("both={},{}", address(0), address(1))])
        .args(["--disturb", &format!("kill -9 {}", first.0.id())])
        .args(["--calibration", &known, "--json", &json, "--html", &html])
        .output()
        .expect("the binary was built");
    assert!(output.status.success(), "{}", common::text(&output.stderr));
    let lines = std::fs::read_to_string(&json).expect("it was written");
    let parse = |line| serde_json::from_str(line).expect("JSON");
    let objects: Vec<serde_json::Value> = lines.lines().map(parse).collect();
    assert_eq!(objects.len(), 4);
    for object in &objects {
        assert!(
            object["operations_per_second"].as_f64() > Some(1.0),
            "{object}"
        );
    }
    assert!(objects[0]["server_cpu_s"].as_f64() > Some(0.0));
    let sessions = &objects[3]["sessions"];
    assert_eq!(
        (&sessions["moved"], &sessions["lost"]),
        (&3.into(), &0.into())
    );
    let page = std::fs::read_to_string(&html).expect("it was written");
    assert!(page.contains("Sessions that were disturbed"), "{page}");
    makes_tables(&json, &html, &file("markdown"));
}

fn makes_tables(json: &str, html: &str, markdown: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args(["keeper", "bench", "report", json, "--output", html])
        .args(["--markdown", markdown])
        .output()
        .expect("the binary was built");
    assert!(output.status.success(), "{}", common::text(&output.stderr));
    let tables = std::fs::read_to_string(markdown).expect("it was written");
    assert!(
        tables.contains("\n| `clickhouse` | 6 | both | "),
        "{tables}"
    );
}

#[test]
fn a_gateway_says_that_its_database_does_not_answer_and_that_it_does() {
    let cluster = Cluster::stopped("keeper-alone", 1, &[]);
    cluster.write_cluster_file(1);
    let file = cluster.directory.file("gateway");
    let listen = format!("127.0.0.1:{}", free_ports(1));
    let mut command = Command::new(BINARY);
    command.args(["keeper", "server", "--listen", &listen, "-C"]);
    command.arg(cluster.cluster_file());
    command.stderr(std::fs::File::create(&file).expect("a file"));
    let _gateway = Server(command.spawn().expect("the binary was built"));
    let says = |line: &str| {
        let began = Instant::now();
        loop {
            let said = text(&std::fs::read(&file).expect("it is there"));
            if said.contains(line) {
                assert_eq!(said.matches(line).count(), 1, "{said}");
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{line} is not in: {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    says(&format!(
        "coordinators tried: {} (cannot be reached)",
        cluster.addresses()[0]
    ));
    let _server = Server(cluster.start_server(0));
    cluster.cli("configure new single memory");
    says("its database answers again");
}
