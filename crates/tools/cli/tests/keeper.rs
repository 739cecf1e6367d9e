//! ZooKeeper's clients on real processes: three servers and two gateways. A server and a gateway are killed, and no
//! client loses its session, an ephemeral node or an event.

mod common;

use common::{Cluster, Server, free_ports};
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, Text, create_flags, event};
use plinth_runtime::{Duration, real, sleep, timeout};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

const TIMEOUT_MS: i32 = 10_000;
const PATIENCE: Duration = Duration::from_secs(30);

fn start_gateway(cluster: &Cluster, address: SocketAddr) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.args(["keeper", "--listen", &address.to_string(), "-C"]);
    let command = command.arg(cluster.cluster_file()).stdin(Stdio::null());
    Server(command.spawn().expect("a gateway starts"))
}

/// Connects within `PATIENCE`.
async fn connect(address: SocketAddr, session: Option<(i64, bytes::Bytes, i64)>) -> Client {
    let connecting = async {
        loop {
            match Client::connect(address, TIMEOUT_MS, session.clone()).await {
                Ok(client) => return client,
                Err(Failure::Refused(code)) => panic!("{address} refuses: {code}"),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    timeout(PATIENCE, connecting)
        .await
        .expect("a gateway serves")
}

async fn ask(client: &Client, request: Request) -> Result<Answer, Code> {
    match timeout(PATIENCE, client.submit(request)).await {
        Some(Ok((_, answer))) => Ok(answer),
        Some(Err(Failure::Refused(code))) => Err(code),
        other => panic!("no answer: {other:?}"),
    }
}

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
    let mut first = start_gateway(cluster, address(0));
    let _second = start_gateway(cluster, address(1));
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

    let server = cluster.pid(0).expect("it runs");
    assert!(
        Command::new("kill")
            .args(["-9", &server.to_string()])
            .status()
            .expect("kill")
            .success()
    );
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

#[test]
fn sessions_watches_and_ephemerals_outlive_a_server_and_a_gateway() {
    let cluster = Cluster::start("keeper", 3, &["--replication", "double"]);
    real::block_on(work(&cluster));
}
