//! ZooKeeper's clients at the secure port of a gateway: kazoo, and ZooKeeper's own.

use crate::common::gateways::{page, start_gateway};
use crate::common::{BINARY, Cluster, Directory, Server, error_line, free_ports, text};
use plinth_tls::testing::{Authority, Pair, Wanted};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Gateways look at their files once a second.
const LOOK: Duration = Duration::from_millis(2500);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A file that `make keeper-tools` has installed beside the builds.
fn client(path: &str) -> PathBuf {
    let build = Path::new(BINARY).parent().expect("it lies in a directory");
    let path = build.join("../keeper-clients").join(path);
    assert!(
        path.exists(),
        "{} is missing; `make keeper-tools` installs it",
        path.display()
    );
    path
}

fn source(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keeper/secure");
    own.join(name)
}

/// Certificates of an authority, and where a gateway listens.
struct Place {
    directory: Directory,
    authority: Authority,
    plain: SocketAddr,
    secure: SocketAddr,
    admin: SocketAddr,
}

impl Place {
    fn new(name: &str) -> Place {
        let first = free_ports(3);
        let at = |n| SocketAddr::new(HERE, first + n);
        let place = Place {
            directory: Directory::new(name),
            authority: Authority::new("Our root"),
            plain: at(0),
            secure: at(1),
            admin: at(2),
        };
        std::fs::write(place.file("ca.pem"), &place.authority.pem).expect("written");
        let wanted = Wanted {
            // Java asks for the name of an address, and compares both.
            places: &["127.0.0.1", "localhost"],
            ..Wanted::named("keeper")
        };
        place.put("keeper", &place.authority.issue(&wanted));
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    /// Writes a certificate and its key, one by one and together.
    fn put(&self, name: &str, pair: &Pair) {
        let files = [
            ("crt", pair.certificate.clone()),
            ("key", pair.key.clone()),
            ("pem", format!("{}{}", pair.key, pair.certificate)),
        ];
        for (ending, content) in files {
            let path = self.file(&format!("{name}.{ending}"));
            std::fs::write(&path, content).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("a mode");
        }
    }

    /// The certificate of a client of our authority.
    fn user(&self, name: &str) {
        self.put(name, &self.authority.issue(&Wanted::named(name)));
    }

    /// Arguments of a process with a secure port, whose address `flag` names.
    fn arguments(&self, flag: &str, more: &[&str]) -> Vec<String> {
        let of = |name: &str| self.file(name).display().to_string();
        let mut all = vec![
            flag.to_owned(),
            self.secure.to_string(),
            "--tls-certificate-file".into(),
            of("keeper.crt"),
            "--tls-key-file".into(),
            of("keeper.key"),
            "--client-ca-file".into(),
            of("ca.pem"),
            "--trace".into(),
            of("trace.jsonl"),
        ];
        all.extend(more.iter().map(|one| one.to_string()));
        all
    }

    fn gateway(&self, cluster: &Cluster, more: &[&str]) -> Server {
        let mut arguments = self.arguments("--secure-listen", more);
        arguments.extend(["--pages".into(), self.admin.to_string()]);
        arguments.extend(["--commands".into(), "*".into()]);
        let arguments: Vec<&str> = arguments.iter().map(|one| &one[..]).collect();
        let gateway = start_gateway(cluster, self.plain, &arguments);
        self.await_gateway();
        gateway
    }

    fn await_gateway(&self) {
        let began = Instant::now();
        while self.word("isro") != "rw" {
            assert!(began.elapsed() < PATIENCE, "the gateway does not serve");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The answer to a word at the plain port; empty if there is none.
    fn word(&self, word: &str) -> String {
        let asked = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.plain)?;
            stream.write_all(word.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        asked().unwrap_or_default()
    }

    /// What kazoo says as `who`, at the secure port.
    fn kazoo(&self, who: Option<&str>, what: &[&str]) -> String {
        let of = |ending: &str| match who {
            Some(who) => self.file(&format!("{who}.{ending}")),
            None => "-".into(),
        };
        let ca = self.file("ca.pem");
        self.run_kazoo(self.secure, [&ca, &of("crt"), &of("key")], what)
    }

    fn run_kazoo(&self, address: SocketAddr, files: [&Path; 3], what: &[&str]) -> String {
        let mut kazoo = Command::new(client("python/bin/python"));
        kazoo.arg(source("client.py")).arg(address.to_string());
        said(kazoo.args(files).args(what))
    }

    /// Waits until the secure port serves; makes the node `/a`.
    fn await_kazoo(&self) {
        let began = Instant::now();
        while self.kazoo(Some("alice"), &["auth", "/a"]) == "refused" {
            assert!(began.elapsed() < PATIENCE);
        }
    }

    /// The same at the plain port.
    fn plain_kazoo(&self, what: &[&str]) -> String {
        self.run_kazoo(self.plain, [Path::new("-"); 3], what)
    }

    /// What ZooKeeper's own client says as `who`.
    fn java(&self, who: &str, protocol: &str, path: &str) -> String {
        let libraries = client("java/lib").join("*");
        let mut java = Command::new("java");
        java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(libraries)
            .arg(source("Secure.java"))
            .arg(self.secure.to_string())
            .arg(self.file("ca.pem"))
            .arg(match who {
                "-" => "-".into(),
                who => self.file(&format!("{who}.pem")),
            });
        said(java.args([protocol, path]))
    }

    /// Waits for an event of this type that has all of `parts`.
    fn is_told(&self, kind: &str, parts: &[&str]) {
        let began = Instant::now();
        loop {
            let trace = std::fs::read_to_string(self.file("trace.jsonl")).unwrap_or_default();
            let mut events = trace.lines().filter(|line| line.contains(kind));
            if events.any(|line| parts.iter().all(|part| line.contains(part))) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{kind} {parts:?}: {trace}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let (said, failed) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said} {failed}");
    said.trim().to_owned()
}

#[test]
fn a_node_is_open_to_the_certificate_that_its_access_list_names_and_to_no_other() {
    let cluster = Cluster::start("secure-acl", 1, &[]);
    let place = Place::new("secure-acl-files");
    for name in ["alice", "bob", "root"] {
        place.user(name);
    }
    let _gateway = place.gateway(&cluster, &["--x509-super-user", "CN=root,O=Plinth"]);
    let alice = "CN=alice,O=Plinth";
    let made = place.kazoo(Some("alice"), &["create", "/a", alice]);
    assert_eq!(made, "secret");
    place.is_told("ConnectionGreeted", &["x509:CN=alice,O=Plinth"]);
    assert_eq!(place.kazoo(Some("alice"), &["read", "/a"]), "secret");
    assert_eq!(place.kazoo(Some("bob"), &["read", "/a"]), "no auth");
    assert_eq!(place.plain_kazoo(&["read", "/a"]), "no auth");
    assert_eq!(place.kazoo(Some("root"), &["read", "/a"]), "secret");
    let own = place.kazoo(Some("bob"), &["auth", "/b"]);
    assert!(
        own.contains("x509") && own.contains("CN=bob,O=Plinth"),
        "{own}"
    );
    assert!(own.ends_with("own"), "{own}");
    // Lists may name owners of certificates from the plain port, too.
    assert_eq!(place.plain_kazoo(&["create", "/c", alice]), "no auth");
    assert_eq!(place.kazoo(Some("alice"), &["read", "/c"]), "secret");
    let said = place.word("conf");
    let ports = [
        ("clientPort", place.plain),
        ("secureClientPort", place.secure),
    ];
    for (name, address) in ports {
        assert!(
            said.contains(&format!("{name}={}\n", address.port())),
            "{said}"
        );
    }
    let said = page(place.admin, "/commands/connections");
    assert!(said.contains("\"secure_connections\""), "{said}");
}

#[test]
fn who_has_no_good_certificate_is_refused_in_time_and_on_record() {
    let cluster = Cluster::start("secure-refused", 1, &[]);
    let place = Place::new("secure-refused-files");
    place.user("alice");
    let foreign = Authority::new("Our root").issue(&Wanted::named("mallory"));
    place.put("mallory", &foreign);
    let old = Wanted {
        to: 2001,
        ..Wanted::named("old")
    };
    place.put("old", &place.authority.issue(&old));
    let _gateway = place.gateway(&cluster, &[]);
    // It says a part of its first message, and no more.
    let mut slow = TcpStream::connect(place.secure).expect("it listens");
    slow.write_all(&[0x16, 3, 1]).expect("writes");
    let began = Instant::now();
    assert_eq!(place.kazoo(None, &["read", "/"]), "refused");
    place.is_told("ConnectionRefused", &["shown no certificate"]);
    assert_eq!(place.kazoo(Some("mallory"), &["read", "/"]), "refused");
    place.is_told("ConnectionRefused", &["CN=mallory", "ca.pem has signed it"]);
    slow.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let ended = slow.read(&mut [0; 100]);
    assert!(!ended.is_ok_and(|bytes| bytes > 0) && began.elapsed() < PATIENCE);
    place.is_told("ConnectionRefused", &["within 10 s"]);
    assert_eq!(place.kazoo(Some("old"), &["read", "/"]), "refused");
    place.is_told("ConnectionRefused", &["CN=old", "not good at this time"]);
    for garbage in [&b"ruok"[..], &[0xff; 10_000], &[0, 0, 0, 44, 0, 0, 0, 0]] {
        let mut stranger = TcpStream::connect(place.secure).expect("it listens");
        stranger.write_all(garbage).expect("writes");
        let limit = Some(Duration::from_secs(5));
        stranger.set_read_timeout(limit).expect("a limit");
        let mut heard = Vec::new();
        // It may be cut while it writes; it hears no answer of a keeper.
        let _ = stranger.read_to_end(&mut heard);
        assert!(!heard.starts_with(b"imok"));
    }
    place.is_told("ConnectionRefused", &["does not speak TLS"]);
    assert_eq!(
        place.kazoo(Some("alice"), &["create", "/a", "CN=alice,O=Plinth"]),
        "secret"
    );
    let numbers = place.word("mntr");
    let failed = numbers
        .lines()
        .find_map(|line| line.strip_prefix("zk_unsuccessful_handshake\t"));
    let failed: u64 = failed
        .and_then(|count| count.parse().ok())
        .expect("a number");
    assert!(failed >= 7, "{numbers}");
    let said = page(place.admin, "/metrics");
    assert!(said.contains("plinth_connections_refused_total"), "{said}");
}

#[test]
fn certificates_are_asked_for_as_the_operator_says_and_files_may_change() {
    let cluster = Cluster::start("secure-want", 1, &[]);
    let place = Place::new("secure-want-files");
    place.user("alice");
    let next = Authority::new("The next root");
    place.put("bob", &next.issue(&Wanted::named("bob")));
    let gateway = place.gateway(&cluster, &["--client-auth", "want"]);
    let made = place.kazoo(Some("alice"), &["create", "/a", "CN=alice,O=Plinth"]);
    assert_eq!(made, "secret");
    assert_eq!(place.kazoo(None, &["read", "/a"]), "no auth");
    assert_eq!(place.kazoo(Some("bob"), &["read", "/a"]), "refused");
    // Both authorities, from here on.
    let ca = format!("{}{}", place.authority.pem, next.pem);
    std::fs::write(place.file("ca.pem"), ca).expect("written");
    std::thread::sleep(LOOK);
    assert_eq!(place.kazoo(Some("bob"), &["read", "/a"]), "no auth");
    assert_eq!(place.kazoo(Some("alice"), &["read", "/a"]), "secret");
    drop(gateway);
    let _gateway = place.gateway(&cluster, &["--client-auth", "none"]);
    assert_eq!(place.kazoo(Some("alice"), &["read", "/a"]), "no auth");
}

#[test]
fn zookeepers_own_client_is_served_over_both_versions() {
    let cluster = Cluster::start("secure-java", 1, &[]);
    let place = Place::new("secure-java-files");
    place.user("alice");
    let foreign = Authority::new("Our root").issue(&Wanted::named("alice"));
    place.put("mallory", &foreign);
    let _gateway = place.gateway(&cluster, &[]);
    let made = place.kazoo(Some("alice"), &["create", "/a", "CN=alice,O=Plinth"]);
    assert_eq!(made, "secret");
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        let told = place.java("alice", protocol, "/a");
        for line in [
            "is x509:CN=alice,O=Plinth",
            "is ip:127.0.0.1",
            "made for CN=alice,O=Plinth",
            "read secret",
        ] {
            assert!(told.lines().any(|said| said == line), "{protocol}: {told}");
        }
    }
    assert_eq!(place.java("mallory", "TLSv1.3", "/a"), "refused");
    assert_eq!(place.java("-", "TLSv1.2", "/a"), "refused");
}

#[test]
fn a_secure_port_alone_needs_no_plain_one_and_wrong_files_are_named() {
    let cluster = Cluster::start("secure-alone", 1, &[]);
    let place = Place::new("secure-alone-files");
    place.user("alice");
    let keeper = |arguments: &[String]| {
        let mut keeper = Command::new(BINARY);
        keeper.args(["keeper", "server"]).args(arguments).arg("-C");
        keeper.arg(cluster.cluster_file()).stdin(Stdio::null());
        keeper
    };
    let arguments = place.arguments("--secure-listen", &[]);
    let without = |flag: &str| {
        let at = arguments
            .iter()
            .position(|one| one == flag)
            .expect("it is there");
        [&arguments[..at], &arguments[at + 2..]].concat()
    };
    for (flag, says) in [
        ("--tls-key-file", "--tls-key-file is missing"),
        ("--client-ca-file", "give --client-ca-file or --tls-ca-file"),
        ("--secure-listen", "--secure-listen"),
    ] {
        let output = keeper(&without(flag)).output().expect("it runs");
        assert!(!output.status.success());
        let line = text(&output.stderr);
        assert!(line.contains(says), "{flag}: {line}");
    }
    let rules = place.arguments("--secure-listen", &["--tls-verify-peers", "S.CN=node"]);
    let line = text(&keeper(&rules).output().expect("it runs").stderr);
    assert!(line.contains("are about processes"), "{line}");
    let wrong = place.arguments("--secure-listen", &["--x509-super-user", "root"]);
    let line = text(&keeper(&wrong).output().expect("it runs").stderr);
    assert!(line.contains("CN=admin"), "{line}");
    let key = place.file("keeper.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).expect("a mode");
    let line = error_line(&keeper(&arguments).output().expect("it runs"));
    assert!(line.contains("keeper.key: others can read"), "{line}");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("a mode");
    let everywhere = format!("0.0.0.0:{}", place.admin.port());
    let arguments = place.arguments("--secure-listen", &["--pages", &everywhere]);
    let _gateway = Server(keeper(&arguments).spawn().expect("it runs"));
    place.await_kazoo();
    assert!(TcpStream::connect(place.plain).is_err());
    // Its pages are for those who have a key of the cluster.
    let ask = |token: &str| {
        let mut stream = TcpStream::connect(place.admin).expect("the page is served");
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: keeper\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert!(ask("none").starts_with("HTTP/1.1 401"));
    let token = cluster.plinth(&["keys", "page-token"]);
    let answer = ask(text(&token.stdout).trim());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_replica_of_zelos_has_a_secure_port_too() {
    let place = Place::new("secure-zelos");
    place.user("alice");
    place.user("bob");
    let address = SocketAddr::new(HERE, free_ports(1)).to_string();
    let mut serve = Command::new(BINARY);
    serve
        .args(["delos", "server", "--listen", &address, "--data-dir"])
        .arg(place.file("r0"))
        .args(place.arguments("--zookeeper-secure-listen", &[]));
    let _replica = Server(serve.spawn().expect("it runs"));
    let began = Instant::now();
    loop {
        let mut create = Command::new(BINARY);
        create
            .args(["delos", "create", "tree", "--kind", "zelos", "--replica"])
            .arg(format!("r0={address}"))
            .arg("--file")
            .arg(place.file("tree.delos"));
        let output = create.output().expect("it runs");
        if output.status.success() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", text(&output.stderr));
        std::thread::sleep(Duration::from_millis(100));
    }
    place.await_kazoo();
    let alice = "CN=alice,O=Plinth";
    let made = place.kazoo(Some("alice"), &["create", "/b", alice]);
    assert_eq!(made, "secret");
    assert_eq!(place.kazoo(Some("bob"), &["read", "/b"]), "no auth");
    assert_eq!(place.kazoo(None, &["read", "/b"]), "refused");
}
