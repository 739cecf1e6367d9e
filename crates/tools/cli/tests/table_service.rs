//! Tables as a replicated service, on real processes: three replicas, gateways that speak gRPC, clients in the middle
//! of transactions, and a replica that is killed.

use crate::common::{BINARY, Directory, Server, error_line, free_ports, text};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, join_all, race, sleep};
use plinth_table::language::{Statement, parse};
use plinth_table::proto::{self, Query, request::What};
use plinth_table::request::{Request, Transaction};
use plinth_table::service::TablesClient;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use tonic::transport::Endpoint;

const REPLICAS: u16 = 3;
const GATEWAYS: u16 = 2;
const CLIENTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);

struct Service {
    directory: Directory,
    first_port: u16,
    replicas: Vec<Option<Server>>,
    _gateways: Vec<Server>,
}

fn plinth(arguments: &[&str]) -> Output {
    Command::new(BINARY)
        .args(arguments)
        .output()
        .expect("it runs")
}

fn succeeds(arguments: &[&str]) -> String {
    let output = plinth(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

impl Service {
    fn start(name: &str) -> Service {
        let mut service = Service {
            directory: Directory::new(name),
            first_port: free_ports(REPLICAS + GATEWAYS),
            replicas: Vec::new(),
            _gateways: Vec::new(),
        };
        for i in 0..REPLICAS {
            let replica = service.replica(i);
            service.replicas.push(Some(replica));
        }
        let file = service.file();
        let named: Vec<String> = (0..REPLICAS)
            .map(|i| format!("r{i}={}", service.address(i)))
            .collect();
        let mut create = vec![
            "delos", "create", "tables", "--kind", "table", "--file", &file,
        ];
        named.iter().for_each(|at| create.extend(["--replica", at]));
        succeeds(&create);
        service._gateways = (0..GATEWAYS).map(|i| service.gateway(i)).collect();
        service
    }

    fn address(&self, i: u16) -> String {
        format!("127.0.0.1:{}", self.first_port + i)
    }

    fn gateway_address(&self, i: u16) -> String {
        self.address(REPLICAS + i)
    }

    fn file(&self) -> String {
        self.directory.file("tables.delos").display().to_string()
    }

    fn replica(&self, i: u16) -> Server {
        let mut command = Command::new(BINARY);
        command
            .args([
                "delos",
                "server",
                "--listen",
                &self.address(i),
                "--data-dir",
            ])
            .arg(self.directory.file(&format!("r{i}")));
        Server(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }

    fn gateway(&self, i: u16) -> Server {
        let (file, address) = (self.file(), self.gateway_address(i));
        let mut command = Command::new(BINARY);
        command.args(["table", "server", "-C", &file, "--listen", &address]);
        Server(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }

    fn kill(&mut self, i: u16) {
        self.replicas[usize::from(i)] = None;
    }

    fn restart(&mut self, i: u16) {
        self.replicas[usize::from(i)] = Some(self.replica(i));
    }

    /// The answers of the shell at a gateway, once it listens.
    fn shell(&self, gateway: u16, statements: &str) -> Vec<Value> {
        let address = self.gateway_address(gateway);
        let begun = Instant::now();
        let said = loop {
            let asked = [
                "table",
                "cli",
                "--connect",
                &address,
                "--json",
                "--exec",
                statements,
            ];
            let output = plinth(&asked);
            let said = text(&output.stdout);
            if output.status.success() {
                break said;
            }
            let last: Value =
                serde_json::from_str(said.lines().last().unwrap_or("{}")).expect("JSON");
            let error = last["error"].as_str().unwrap_or_default();
            assert!(error.contains("is a server of tables there"), "{error}");
            assert!(begun.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let lines = said.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    fn client(&self, gateway: u16) -> TablesClient {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.gateway_address(gateway)));
        TablesClient::new(endpoint.expect("an address").connect_lazy())
    }
}

/// The transaction of these statements.
fn transaction(statements: &str) -> proto::Request {
    let mut asked = Transaction {
        conditions: Vec::new(),
        operations: Vec::new(),
    };
    for statement in parse(statements).expect("statements") {
        match statement {
            Statement::Operations(operations) => asked.operations.extend(operations),
            Statement::Require(condition) => asked.conditions.push(condition),
            other => panic!("{other:?}"),
        }
    }
    let what = proto::Request::from(Request::Transaction(asked)).what;
    assert!(matches!(what, Some(What::Transaction(_))));
    proto::Request { what }
}

/// What clients were told about the notes that they wrote.
#[derive(Default)]
struct Told {
    done: BTreeSet<i64>,
    unsure: BTreeSet<i64>,
    not_done: BTreeSet<i64>,
}

/// Writes one note after the other, each with one more in the count, until it is over.
async fn write(
    mut client: TablesClient,
    next: &Cell<i64>,
    is_over: &Cell<bool>,
    told: &RefCell<Told>,
) {
    while !is_over.get() {
        let id = next.replace(next.get() + 1);
        let asked = transaction(&format!(
            "insert into notes (id) values ({id}); update counts set n = n + 1 where id = 1"
        ));
        let answer = client.execute(asked).await;
        let mut told = told.borrow_mut();
        match answer {
            Ok(answer) => {
                assert_eq!(answer.changed, [1, 1]);
                told.done.insert(id);
            }
            Err(status) => match status.code() {
                tonic::Code::Unknown => drop(told.unsure.insert(id)),
                tonic::Code::Unavailable => drop(told.not_done.insert(id)),
                _ => panic!("{status}"),
            },
        };
    }
}

/// A read succeeds all the time: it is asked for again elsewhere.
async fn read(mut client: TablesClient, is_over: &Cell<bool>) {
    let mut least = 0;
    while !is_over.get() {
        let asked = Query {
            table: "counts".into(),
            limit: 1,
            ..Query::default()
        };
        let page = client.read(asked).await.expect("a page");
        let Some(proto::value::Is::Int(count)) = page.rows[0].values[1].is else {
            panic!("{page:?}");
        };
        assert!(count >= least, "{count} after {least}: a read goes back");
        least = count;
        sleep(Duration::from_millis(5)).await;
    }
}

/// Where clients of gRPC have their sockets.
fn sockets() -> tokio::runtime::Handle {
    let sockets = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let handle = sockets.handle().clone();
    std::thread::spawn(move || sockets.block_on(std::future::pending::<()>()));
    handle
}

#[test]
fn transactions_go_on_when_a_replica_is_killed_and_none_is_lost_or_done_twice() {
    let mut service = Service::start("table-service");
    service.shell(
        0,
        "create table notes (id int, primary key (id)); \
         create table counts (id int, n int, primary key (id)); \
         insert into counts (id, n) values (1, 0)",
    );
    service.shell(1, "tables");
    let handle = sockets();
    let _entered = handle.enter();
    let (next, is_over, told) = (Cell::new(0), Cell::new(false), RefCell::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|i| service.client(i as u16 % GATEWAYS))
        .collect();
    let readers = [service.client(0), service.client(1)];
    block_on(async {
        let writing = clients
            .into_iter()
            .map(|client| write(client, &next, &is_over, &told));
        let reading = readers.map(|client| read(client, &is_over));
        let written = |told: &RefCell<Told>| told.borrow().done.len();
        let disturbing = async {
            // The first one has the log's sequencer.
            for i in [0, 1] {
                let before = written(&told);
                while written(&told) < before + 100 {
                    sleep(Duration::from_millis(20)).await;
                }
                service.kill(i);
                let before = written(&told);
                while written(&told) < before + 100 {
                    sleep(Duration::from_millis(20)).await;
                }
                service.restart(i);
                let begun = Instant::now();
                while !serves_all(&service) {
                    assert!(begun.elapsed() < PATIENCE, "not all replicas serve again");
                    sleep(Duration::from_millis(100)).await;
                }
            }
            is_over.set(true);
            std::future::pending::<()>().await;
        };
        let clients = async { (join_all(writing).await, join_all(reading).await) };
        let disturbed = race(clients, disturbing);
        let ended = plinth_runtime::timeout(PATIENCE * 4, disturbed).await;
        assert!(ended.is_some(), "clients are stuck");
    });
    let told = told.into_inner();
    let found = service.shell(
        1,
        "select id from notes limit 1000000; select n from counts",
    );
    let ids = found[0]["rows"].as_array().expect("rows").iter();
    let ids: BTreeSet<i64> = ids.map(|row| row["id"].as_i64().expect("an id")).collect();
    let lost: Vec<&i64> = told.done.difference(&ids).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let wrong: Vec<&i64> = told.not_done.intersection(&ids).collect();
    assert!(wrong.is_empty(), "done, and said not to be: {wrong:?}");
    assert!(ids.is_subset(&told.done.union(&told.unsure).copied().collect()));
    assert_eq!(
        found[1]["rows"],
        json!([{ "n": ids.len() }]),
        "none is done twice"
    );
    let checked = succeeds(&["delos", "check", "-C", &service.file(), "--json"]);
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    assert_eq!(checked["equal"], true);
}

fn serves_all(service: &Service) -> bool {
    let status = plinth(&["delos", "status", "-C", &service.file(), "--json"]);
    let status: Value = serde_json::from_str(&text(&status.stdout)).unwrap_or_default();
    let replicas = status["replicas"].as_array();
    replicas.is_some_and(|all| all.iter().all(|replica| replica["serves"] == true))
}

#[test]
fn an_index_is_filled_in_steps_and_wrong_input_gets_one_line() {
    let service = Service::start("table-steps");
    service.shell(0, "create table t (a int, b int, primary key (a))");
    for begin in [0, 1000, 2000] {
        let rows: Vec<String> = (begin..begin + 1000)
            .map(|a| format!("({a}, {a})"))
            .collect();
        service.shell(
            0,
            &format!("insert into t (a, b) values {}", rows.join(", ")),
        );
    }
    let found = service.shell(
        1,
        "create index by_b on t (b); select a from t where b = 2999",
    );
    assert_eq!(
        (&found[1]["rows"], &found[1]["index"]),
        (&json!([{ "a": 2999 }]), &json!("by_b"))
    );
    let address = service.gateway_address(0);
    let refused = plinth(&[
        "table",
        "cli",
        "--connect",
        &address,
        "--exec",
        "select * from nobody",
    ]);
    assert_eq!(
        error_line(&refused).trim_end(),
        "plinth: unknown: there is no table \"nobody\""
    );
    let raw = plinth(&["delos", "call", "-C", &service.file(), "read", "{}"]);
    assert!(
        error_line(&raw).contains("plinth table server -C"),
        "{}",
        error_line(&raw)
    );
    let fly = plinth(&["delos", "call", "-C", &service.file(), "fly"]);
    assert!(error_line(&fly).contains("there is no operation \"fly\""));
    let missing = plinth(&["table", "server", "-C", "/nowhere/x.delos"]);
    assert!(
        error_line(&missing).contains("service file"),
        "{}",
        error_line(&missing)
    );
    let taken = plinth(&[
        "table",
        "server",
        "--cluster-file",
        &service.file(),
        "--listen",
        &address,
    ]);
    assert!(error_line(&taken).contains(&format!("cannot listen at {address} (--listen)")));
    assert_eq!(plinth(&["table", "server"]).status.code(), Some(2));
}
