//! The backup of a service on real processes: three replicas, one of which is killed. What is restored, to a position
//! in the middle and to the end, answers as the service did.

use crate::common::object_server::ObjectServer;
use crate::common::{BINARY, Directory, Server, error_line, free_ports, text};
use plinth_runtime::Duration;
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const AGAIN: &str = "again and again";
const PATIENCE: Duration = Duration::from_secs(60);

struct Machines {
    directory: Directory,
    first_port: u16,
    endpoint: String,
    processes: Vec<Option<Server>>,
}

impl Machines {
    /// Processes that wait for a service. Buckets are at `endpoint`.
    fn new(name: &str, count: u16, endpoint: &str) -> Self {
        let mut all = Machines {
            directory: Directory::new(name),
            first_port: free_ports(count),
            endpoint: endpoint.into(),
            processes: Vec::new(),
        };
        for i in 0..count {
            let process = all.start(i);
            all.processes.push(Some(process));
        }
        all
    }

    fn address(&self, i: u16) -> String {
        format!("127.0.0.1:{}", self.first_port + i)
    }

    fn start(&self, i: u16) -> Server {
        let mut command = Command::new(BINARY);
        command
            .args(["delos", "server", "--listen", &self.address(i)])
            .args(["--knob", "delos_backup_wait_ms=100"])
            .arg("--data-dir")
            .arg(self.directory.file(&format!("r{i}")))
            .env("AWS_ACCESS_KEY_ID", "me")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .stdin(Stdio::null());
        Server(command.spawn().expect("it starts"))
    }

    fn file(&self, service: &str) -> String {
        let file = self.directory.file(&format!("{service}.delos"));
        file.display().to_string()
    }

    fn replicas(&self, range: std::ops::Range<u16>) -> Vec<String> {
        let each = range.map(|i| ["--replica".into(), format!("r{i}={}", self.address(i))]);
        each.flatten().collect()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.arg("delos").args(arguments);
        command.output().expect("it runs")
    }

    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn operate(&self, command: &str, service: &str, more: &[&str]) -> String {
        let file = self.file(service);
        self.succeeds(&[&[command, file.as_str(), "--timeout", "30"], more].concat())
    }

    fn json(&self, command: &str, service: &str, more: &[&str]) -> Value {
        let said = self.operate(command, service, more);
        serde_json::from_str(&said).expect("JSON")
    }

    fn create(&self, service: &str, range: std::ops::Range<u16>) {
        let file = self.file(service);
        let replicas = self.replicas(range);
        let replicas: Vec<&str> = replicas.iter().map(String::as_str).collect();
        let named = ["create", service, "--kind", "lock", "--file", file.as_str()];
        self.succeeds(&[&named[..], &replicas].concat());
    }

    fn restore(
        &self,
        service: &str,
        from: &str,
        range: std::ops::Range<u16>,
        more: &[&str],
    ) -> Output {
        let file = self.file(service);
        let replicas = self.replicas(range);
        let replicas: Vec<&str> = replicas.iter().map(String::as_str).collect();
        let named = ["restore", service, "--from", from, "--file", file.as_str()];
        self.run(&[&named[..], &["--timeout", "60"], &replicas, more].concat())
    }

    fn acquire(&self, service: &str, name: &str) -> u64 {
        let request = json!({ "name": name, "owner": "me", "ttl_ms": 86_400_000 });
        let held = self.json("call", service, &["acquire", &request.to_string()]);
        held["token"].as_u64().expect("a token")
    }

    /// All locks of a service, with their tokens, but for those of [`Self::await_backup`].
    fn list(&self, service: &str) -> Vec<(String, u64)> {
        let said = self.json("call", service, &["list", r#"{"limit":1000}"#]);
        let locks = said["locks"].as_array().or(said.as_array());
        let locks = locks.unwrap_or_else(|| panic!("a list: {said}")).iter();
        let each = locks.map(|lock| {
            let name = lock["name"].as_str().expect("a name").to_string();
            (name, lock["token"].as_u64().expect("a token"))
        });
        each.filter(|(name, _)| name != AGAIN).collect()
    }

    /// Waits until the backup is beyond everything that has been answered. The last position that it has.
    fn await_backup(&self, service: &str) -> u64 {
        let (begun, position) = (Instant::now(), self.position(service));
        loop {
            let status = self.json("status", service, &["--json"]);
            if let Some(last) = status["backup"]["to"].as_u64().filter(|to| *to >= position) {
                return last;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{position}: {}",
                status["backup"]
            );
            // Something has to come for what is there to be worth an object.
            self.acquire(service, AGAIN);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn position(&self, service: &str) -> u64 {
        let status = self.json("status", service, &["--json"]);
        status["position"].as_u64().expect("a position")
    }
}

/// Acquires locks until it is told to end. How many.
fn load(machines: &Machines, prefix: &str, is_over: &AtomicBool) -> u64 {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        machines.acquire("locks", &format!("{prefix}-{count}"));
        count += 1;
    }
    count
}

fn has_backup_on(status: &Value) -> bool {
    let engines = status["engines"].as_array().expect("a list");
    let backup = engines.iter().find(|engine| engine["name"] == "log_backup");
    backup.expect("it is an engine")["on"] == true
}

#[test]
fn a_service_is_restored_to_a_position_in_the_middle_and_to_the_end() {
    let mut machines = Machines::new("delos-backup", 7, "http://127.0.0.1:9");
    machines.create("locks", 0..3);
    let place = machines.directory.file("backup").display().to_string();
    // It has lived before: what was then is not in the log any more.
    for i in 0..20 {
        machines.acquire("locks", &format!("old-{i}"));
    }
    machines.operate("trim", "locks", &[]);
    let begun = machines.json("backup", "locks", &["--to", &place, "--json"]);
    assert!(
        begun["from"].as_u64().is_some_and(|from| from > 20),
        "{begun}"
    );

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = ["a", "b"].map(|prefix| scope.spawn(|| load(&machines, prefix, &is_over)));
        std::thread::sleep(Duration::from_secs(2));
        is_over.store(true, Ordering::Relaxed);
        let counts = clients.map(|client| client.join().expect("no request fails"));
        assert!(counts.iter().all(|count| *count > 0));
    });
    // It is in the part of the log that a restore plays.
    machines.operate("enable-engine", "locks", &["log_backup"]);
    machines.await_backup("locks");
    let middle = machines.position("locks");
    let in_the_middle = machines.list("locks");
    // The first one has the log's sequencer.
    machines.processes[0] = None;
    machines.acquire("locks", "later");
    machines.operate("trim", "locks", &[]);
    let last = machines.await_backup("locks");
    assert!(last > middle);
    let at_the_end = machines.list("locks");
    let shown = machines.operate("status", "locks", &[]);
    assert!(
        shown.contains(&format!("in {place}: positions ")),
        "{shown}"
    );

    let restored = machines.restore("whole", &place, 3..6, &[]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert_eq!(machines.list("whole"), at_the_end);
    let status = machines.json("status", "whole", &["--json"]);
    assert_eq!(status["replicas"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        status["backup"],
        Value::Null,
        "its backup is not the old one's"
    );
    assert!(!has_backup_on(&status));
    let token = machines.acquire("whole", "new");
    assert!(token > 20, "{token}: it goes on");
    machines.operate("check", "whole", &[]);

    let (beyond, missing) = ((last + 1000).to_string(), "/nowhere/at/all");
    let error = machines.restore("x", &place, 6..7, &["--to-position", &beyond]);
    assert!(error_line(&error).contains("was asked for"));
    let error = machines.restore("x", missing, 6..7, &[]);
    assert!(error_line(&error).contains("it is no backup of a service"));
    let middle = middle.to_string();
    let restored = machines.restore("part", &place, 6..7, &["--to-position", &middle]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert_eq!(machines.list("part"), in_the_middle);
    assert!(error_line(&machines.restore("y", &place, 6..7, &[])).contains("already"));
    machines.operate("backup", "locks", &["--off"]);
    let status = machines.json("status", "locks", &["--json"]);
    assert_eq!(status["backup"], Value::Null);
}

#[test]
fn a_backup_in_a_bucket_is_restored_and_one_that_is_cut_short_says_so() {
    let store = ObjectServer::start();
    let machines = Machines::new("delos-bucket", 3, &store.url());
    machines.create("locks", 0..1);
    let place = "s3://backups/of/locks";
    machines.operate("backup", "locks", &["--to", place]);
    for i in 0..5 {
        machines.acquire("locks", &format!("l-{i}"));
    }
    machines.await_backup("locks");
    let all = machines.list("locks");
    let segments = store.names("/backups/of/locks/segment-");
    assert!(!segments.is_empty());
    let segment = segments.first().expect("one");
    let kept = store.take(segment);
    let error = machines.restore("short", place, 1..2, &[]);
    assert!(error_line(&error).contains("it is cut short: segment-"));
    store.put(segment, kept[..kept.len() - 1].to_vec());
    let error = machines.restore("short", place, 1..2, &[]);
    assert!(error_line(&error).contains("its checksum is wrong"));
    store.put(segment, kept);
    let restored = machines.restore("again", place, 1..2, &[]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert_eq!(machines.list("again"), all);
    // The other service's place.
    let file = machines.file("again");
    let taken = machines.run(&["backup", &file, "--to", place]);
    assert!(error_line(&taken).contains("the backup of another service"));
    store.refuse();
    let error = machines.restore("refused", place, 2..3, &[]);
    assert!(error_line(&error).contains("backup s3://backups/of/locks/service"));
}
