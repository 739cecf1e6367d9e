//! Services of Delos over TLS, on real processes without any key: each gets in as far as its certificate leads, and
//! everybody else hears in one line what to do.

use crate::common::certificates::{Files, IDENTITIES};
use crate::common::{BINARY, Directory, Server, error_line, free_ports, text};
use plinth_tls::testing::{Authority, Wanted};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Processes of replicas, with the certificate `node`.
struct Place {
    directory: Directory,
    files: Files,
    first_port: u16,
    processes: Vec<Option<Server>>,
}

impl Place {
    /// Nothing runs yet.
    fn bare(name: &str, count: u16) -> Place {
        let directory = Directory::new(name);
        Place {
            files: Files::new(&directory.0),
            directory,
            first_port: free_ports(count),
            processes: Vec::new(),
        }
    }

    /// Nobody enters its processes without a certificate.
    fn new(name: &str, count: u16) -> Place {
        let mut place = Place::bare(name, count);
        for i in 0..count {
            let mut serve = place.replica(i, ":tls");
            serve.envs(place.files.variables_of("node"));
            place.processes.push(Some(start(serve)));
        }
        place
    }

    fn address(&self, i: u16) -> String {
        format!("127.0.0.1:{}", self.first_port + i)
    }

    /// Without a certificate.
    fn replica(&self, i: u16, ending: &str) -> Command {
        let mut serve = Command::new(BINARY);
        serve.args(["delos", "server", "--listen"]);
        serve.arg(format!("{}{ending}", self.address(i)));
        serve
            .arg("--data-dir")
            .arg(self.directory.file(&format!("r{i}")));
        serve.stdin(Stdio::null());
        serve
    }

    fn service(&self) -> PathBuf {
        self.directory.file("service.delos")
    }

    /// `plinth delos create` for these replicas, with what follows each address.
    fn create(&self, kind: &str, endings: &[&str]) -> Command {
        let mut create = Command::new(BINARY);
        create.args(["delos", "create", "service", "--kind", kind, "--file"]);
        create.arg(self.service());
        for (ending, i) in endings.iter().zip(0..) {
            let at = format!("r{i}={}{ending}", self.address(i));
            create.args(["--replica", &at]);
        }
        create
    }

    /// What an operator or a client says with the certificate `who`.
    fn ask(&self, who: &str, command: &str, more: &[&str]) -> Output {
        let mut asked = ask(&self.service(), command, more);
        asked.envs(self.files.variables_of(who));
        asked.output().expect("it runs")
    }

    /// The token of a new lock. When the log's sequencer goes, nobody knows what became of a request. The owner of a
    /// lock may ask again then, and has the same lock.
    fn acquire(&self, who: &str, name: &str) -> u64 {
        let (request, began) = (acquire(name), Instant::now());
        let said = loop {
            let asked = self.ask(who, "call", &["acquire", &request]);
            let is_unknown = text(&asked.stderr).contains("nobody knows whether the entry is");
            if !is_unknown || began.elapsed() > PATIENCE {
                break succeeds(&asked);
            }
        };
        let held: Value = serde_json::from_str(&said).expect("JSON");
        held["token"].as_u64().expect("a token")
    }

    fn await_all(&self) {
        let began = Instant::now();
        loop {
            let said = succeeds(&self.ask("node", "status", &["--json"]));
            let status: Value = serde_json::from_str(&said).expect("JSON");
            let replicas = status["replicas"].as_array().expect("a list");
            if replicas.iter().all(|replica| replica["serves"] == true) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn start(mut command: Command) -> Server {
    Server(command.spawn().expect("it starts"))
}

fn ask(file: &Path, command: &str, more: &[&str]) -> Command {
    let mut asked = Command::new(BINARY);
    asked.args(["delos", command, "-C"]).arg(file);
    asked.args(["--timeout", "20"]).args(more);
    asked
}

fn acquire(name: &str) -> String {
    json!({ "name": name, "owner": "me", "ttl_ms": 3_600_000 }).to_string()
}

fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The line with which a command ends, at once.
fn ends(command: &mut Command, word: &str) {
    let began = Instant::now();
    let line = error_line(&command.output().expect("it runs"));
    assert!(line.contains(word), "{word}: {line}");
    assert!(began.elapsed() < PATIENCE, "{line}");
}

#[test]
fn a_service_over_tls_lets_each_in_as_far_as_its_certificate_leads() {
    let mut place = Place::new("delos-tls", 4);
    ["alice", "app-1", "stolen"]
        .iter()
        .for_each(|name| place.files.user(name));
    let of = |who: &str| place.files.variables_of(who);
    let all = [":tls"; 3];
    let mut create = place.create("lock", &all);
    ends(create.envs(of("app-1")), "a server's certificate");
    let mut create = place.create("lock", &all);
    succeeds(&create.envs(of("node")).output().expect("it runs"));
    let file = std::fs::read_to_string(place.service()).expect("a file");
    assert_eq!(file.matches(":tls").count(), 3, "{file}");

    assert_eq!(place.acquire("app-1", "first"), 1);
    let refused = place.ask("app-1", "reconfigure-log", &["--sequencer", "r1"]);
    let line = error_line(&refused);
    assert!(line.contains("does not stand for who may"), "{line}");
    succeeds(&place.ask("alice", "reconfigure-log", &["--sequencer", "r1"]));
    assert_eq!(place.acquire("app-1", "second"), 2);

    // Who has no certificate, none that counts, or one of another authority.
    let request = acquire("third");
    let service = place.service();
    let call = || ask(&service, "call", &["acquire", &request]);
    ends(&mut call(), "asks for TLS; give --tls-certificate-file");
    ends(
        call().envs(of("stolen")),
        "the rules of the other side refuse",
    );
    let foreign = Authority::new("Our root");
    place
        .files
        .put("foreign", &foreign.issue(&Wanted::named("node")));
    ends(call().envs(of("foreign")), "compare the CA files");
    let bare = place.directory.file("bare.delos");
    std::fs::write(&bare, file.replace(":tls", "")).expect("written");
    let bare_call = || ask(&bare, "call", &["acquire", &request]);
    ends(&mut bare_call(), "use its file with :tls");

    // Replicas speak TLS among themselves after a restart, too.
    place.processes[0] = None;
    // A process that is down hides no reason.
    ends(call().envs(of("foreign")), "compare the CA files");
    ends(&mut bare_call(), "use its file with :tls");
    ends(
        &mut place.replica(0, ""),
        "service.delos asks for TLS; give",
    );
    let mut again = place.replica(0, ":tls");
    again.envs(place.files.variables_of("node"));
    place.processes[0] = Some(start(again));
    place.await_all();
    assert_eq!(place.acquire("app-1", "third"), 3);
    let added = format!("r3={}:tls", place.address(3));
    succeeds(&place.ask("node", "add-replica", &[&added]));
    let checked = succeeds(&place.ask("alice", "check", &["--json"]));
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    assert_eq!(checked["equal"], true);
}

#[test]
fn a_service_moves_to_tls_while_it_is_used() {
    let mut place = Place::bare("delos-move", 3);
    place.files.user("app-1");
    let started = [0, 1, 2].map(|i| Some(start(place.replica(i, ""))));
    place.processes.extend(started);
    succeeds(&place.create("lock", &[""; 3]).output().expect("it runs"));
    assert_eq!(place.acquire("app-1", "first"), 1);
    let asking = std::fs::read_to_string(place.service()).expect("a file");
    let asking = asking.trim_end().replace(',', ":tls,") + ":tls\n";
    let mut token = 1;
    for stage in ["with certificates", "they open by TLS", "closed"] {
        for i in 0..3 {
            place.processes[usize::from(i)] = None;
            if stage == "they open by TLS" {
                let own = place.directory.file(&format!("r{i}/service.delos"));
                std::fs::write(own, &asking).expect("written");
            }
            let mut again = place.replica(i, if stage == "closed" { ":tls" } else { "" });
            again.envs(place.files.variables_of("node"));
            place.processes[usize::from(i)] = Some(start(again));
            place.await_all();
            token += 1;
            let name = format!("{stage} {i}");
            assert_eq!(place.acquire("app-1", &name), token, "{name}");
        }
        if stage == "they open by TLS" {
            std::fs::write(place.service(), &asking).expect("written");
        }
    }
    let bare = place.directory.file("bare.delos");
    std::fs::write(&bare, asking.replace(":tls", "")).expect("written");
    let mut asked = ask(&bare, "call", &["acquire", &acquire("last")]);
    ends(&mut asked, "use its file with :tls");
}

/// A gateway by TLS at `secure`, whose clients are those of another authority: its options are about them, and the
/// variables about the service.
fn secured_gateway(place: &Place, secure: &str) -> Server {
    let mut secured = Command::new(BINARY);
    secured.args(["table", "server", "--listen", &format!("{secure}:tls")]);
    secured.arg("--cluster-file").arg(place.service());
    secured.stdin(Stdio::null());
    secured.envs(place.files.variables_of("app-1"));
    ends(&mut secured, "--tls-certificate-file is missing");
    let of_clients = Authority::new("Root of clients");
    place.files.put_ca("clients", &[&of_clients.pem]);
    let issued = of_clients.issue(&Wanted::named("reader"));
    place.files.put("reader", &issued);
    for (option, name, ending) in [
        ("--tls-certificate-file", "node", "crt"),
        ("--tls-key-file", "node", "key"),
        ("--tls-ca-file", "clients", "crt"),
    ] {
        secured.arg(option).arg(place.files.file(name, ending));
    }
    secured.args(["--tls-verify-peers", "S.CN=reader"]);
    for (name, _) in place.files.variables_of("app-1") {
        secured.env_remove(name);
    }
    ends(
        &mut secured,
        "towards the service, a gateway has those of the variables only",
    );
    secured.envs(place.files.variables_of("app-1"));
    start(secured)
}

#[test]
fn tables_over_tls_are_served_by_a_gateway_with_a_certificate() {
    let place = Place::new("tables-tls", 1);
    place.files.user("app-1");
    let mut create = place.create("table", &[":tls"]);
    create.envs(place.files.variables_of("node"));
    succeeds(&create.output().expect("it runs"));
    let listen = format!("127.0.0.1:{}", free_ports(1));
    let gateway = || {
        let mut serve = Command::new(BINARY);
        serve.args(["table", "server", "--listen", &listen, "-C"]);
        serve.arg(place.service()).stdin(Stdio::null());
        serve
    };
    ends(&mut gateway(), "asks for TLS; give --tls-certificate-file");
    let secure = format!("127.0.0.1:{}", free_ports(1));
    let _secured = secured_gateway(&place, &secure);
    let mut with = gateway();
    with.envs(place.files.variables("app-1", "ca"));
    let _gateway = start(with);
    let began = Instant::now();
    loop {
        let mut shell = Command::new(BINARY);
        let statements = "create table notes (id int, primary key (id))";
        let asked = shell.args(["table", "cli", "--connect", &listen, "--exec", statements]);
        let output = asked.output().expect("it runs");
        if output.status.success() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", text(&output.stderr));
        std::thread::sleep(Duration::from_millis(100));
    }
    // This shell trusts who signs certificates of processes, as the gateway's is, and shows one of clients.
    let mut shell = Command::new(BINARY);
    shell.args([
        "table",
        "cli",
        "--connect",
        &format!("{secure}:tls"),
        "--exec",
        "tables",
    ]);
    let certified = shell.envs(place.files.variables("reader", "ca"));
    let tables = succeeds(&certified.output().expect("it runs"));
    assert!(tables.contains("notes"), "{tables}");
}

#[test]
fn what_is_said_of_certificates_means_something_or_is_refused() {
    let place = Place::bare("delos-tls-wrong", 2);
    let serve = |ending: &str, more: &[&str]| {
        let mut serve = place.replica(0, ending);
        serve.args(more);
        serve
    };
    ends(&mut serve(":tls", &[]), ":tls asks for TLS; give");
    let rules = ["--tls-identity", "server:S.CN=node"];
    let useless =
        "--tls-identity or --tls-password, or the variable of one of them, asks for TLS; give";
    ends(&mut serve("", &rules), useless);
    for variable in ["PLINTH_TLS_IDENTITY", "FDB_TLS_VERIFY_PEERS"] {
        ends(serve("", &[]).env(variable, "server:S.CN=node"), useless);
    }
    let of = |ending: &str, name: &str| place.files.file(name, ending).display().to_string();
    let own = [
        "--tls-certificate-file",
        &of("crt", "node"),
        "--tls-key-file",
        &of("key", "node"),
    ];
    ends(&mut serve("", &own), "--tls-ca-file is missing");
    let secure = format!("127.0.0.1:{}", free_ports(1));
    let secure = ["--zookeeper-secure-listen", &secure];
    let ca = of("crt", "ca");
    let both = [&own[..], &secure, &["--client-ca-file", &ca]].concat();
    ends(&mut serve(":tls", &both), ":tls asks for TLS; give");
    let about_processes = [&own[..], &secure, &["--client-ca-file", &ca], &rules].concat();
    ends(
        &mut serve("", &about_processes),
        "--tls-identity are about processes",
    );
    // ZooKeeper's clients would be servers.
    let mixed = [&own[..], &secure, &["--tls-ca-file", &ca]].concat();
    ends(
        &mut serve("", &mixed),
        "somebody else sign theirs, whom --client-ca-file names",
    );
    let more = ["--client-ca-file", &ca, "--tls-verify-peers", "S.O=Plinth"];
    ends(
        &mut serve("", &[&mixed[..], &more].concat()),
        "somebody else sign theirs",
    );
    let mut mixed = serve("", &secure);
    mixed.envs(place.files.variables("node", "ca"));
    ends(&mut mixed, "somebody else sign theirs");

    let page = ["--pages", "0.0.0.0:1"];
    ends(&mut serve(":tls", &page), "no keys to guard it");
    // A tool says that it does not use what it is given.
    let mut unused = place.create("lock", &[""]);
    unused
        .args(own)
        .args(["--tls-ca-file", &ca, "--timeout", "1"]);
    let said = text(&unused.output().expect("it runs").stderr);
    assert!(
        said.contains("speaks without TLS: no address of --replica has"),
        "{said}"
    );

    ends(&mut place.create("lock", &[":tls"]), "asks for TLS; give");
    let mut some = place.create("lock", &[":tls", ""]);
    some.env("PLINTH_TLS_IDENTITY", IDENTITIES);
    ends(&mut some, "others do not");
}

/// Waits until a file has this in it.
fn has(file: &Path, what: &str) {
    let began = Instant::now();
    loop {
        let content = std::fs::read_to_string(file).unwrap_or_default();
        if content.contains(what) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {content}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_replica_that_trusts_strangers_says_so_and_its_record_has_who_is_refused() {
    let place = Place::bare("delos-tls-open", 1);
    let said = place.directory.file("said");
    let mut serve = place.replica(0, "");
    serve.envs(place.files.variables_of("node"));
    serve.stderr(std::fs::File::create(&said).expect("a file"));
    let _replica = start(serve);
    has(&said, "there are certificates and no keys");
    let foreign = Authority::new("Our root");
    let issued = foreign.issue(&Wanted::named("node"));
    place.files.put("foreign", &issued);
    let mut create = place.create("lock", &[":tls"]);
    ends(
        create.envs(place.files.variables("foreign", "ca")),
        "compare the CA files",
    );
    has(
        &place.directory.file("r0/audit.jsonl"),
        "not signed by a trusted root",
    );
}
