//! A cluster whose connections are protected by certificates: whoever has one gets in as far as it stands for, and
//! everybody else hears in one line what to do.

use crate::common::certificates::{Files, IDENTITIES};
use crate::common::client_programs::{command, installed, source};
use crate::common::{BINARY, Directory, Server, error_line, free_ports, text};
use plinth_tls::testing::{Authority, Wanted, self_signed};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Processes look at their files once a second.
const LOOK: Duration = Duration::from_millis(2500);
const SERVES_LIMIT: Duration = Duration::from_secs(60);

/// Whether the servers of a place speak TLS among themselves, and with whom else.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// They have no certificates.
    Bare,
    /// They take connections with and without.
    Both,
    /// They open by TLS, and take both.
    Opening,
    /// Nobody gets in without.
    Closed,
}

/// Servers with certificates, and files of others beside them.
struct Place {
    directory: Directory,
    files: Files,
    first_port: u16,
    servers: Vec<Server>,
    identities: &'static str,
}

impl Deref for Place {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Place {
    /// Nothing runs yet.
    fn new(name: &str, servers: u16, identities: &'static str) -> Place {
        let directory = Directory::new(name);
        Place {
            files: Files::new(&directory.0),
            directory,
            first_port: free_ports(servers),
            servers: Vec::new(),
            identities,
        }
    }

    /// Servers that nobody enters without a certificate, and a database.
    fn closed(name: &str, identities: &'static str) -> Place {
        let mut place = Place::new(name, 1, identities);
        place.servers.push(place.start(0, 1, Stage::Closed));
        place.create();
        place
    }

    fn create(&self) {
        let made = self.cli("node", "ca", "configure new single memory");
        assert!(made.status.success(), "{}", text(&made.stderr));
    }

    fn address(&self, i: u16) -> SocketAddr {
        ([127, 0, 0, 1], self.first_port + i).into()
    }

    /// A cluster file with `ending` behind the addresses of the coordinators.
    fn cluster_file(&self, name: &str, coordinators: u16, ending: &str) -> PathBuf {
        let addresses = (0..coordinators).map(|i| format!("{}{ending}", self.address(i)));
        let list = addresses.collect::<Vec<_>>().join(",");
        let path = self.file(name, "cluster");
        std::fs::write(&path, format!("test:test@{list}\n")).expect("written");
        path
    }

    fn certify(&self, command: &mut Command, who: &str, ca: &str) {
        command.envs(self.variables(who, ca));
    }

    fn server(&self, i: u16, coordinators: u16, stage: Stage) -> Command {
        let opens = matches!(stage, Stage::Opening | Stage::Closed);
        let ending = if opens { ":tls" } else { "" };
        let file = self.cluster_file(&format!("server-{i}"), coordinators, ending);
        let ending = if stage == Stage::Closed { ":tls" } else { "" };
        let mut server = Command::new(BINARY);
        server
            .args([
                "server",
                "--listen",
                &format!("{}{ending}", self.address(i)),
            ])
            .arg("--data-dir")
            .arg(self.directory.file(&i.to_string()))
            .arg("--trace")
            .arg(self.file(&format!("trace-{i}"), "jsonl"))
            .args(["--machine", &format!("m{i}"), "--cache-mib", "32"])
            .arg("-C")
            .arg(file);
        if stage != Stage::Bare {
            self.certify(&mut server, "node", "ca");
            server.env("PLINTH_TLS_IDENTITY", self.identities);
        }
        server
    }

    fn start(&self, i: u16, coordinators: u16, stage: Stage) -> Server {
        let mut server = self.server(i, coordinators, stage);
        Server(server.spawn().expect("the binary was built"))
    }

    /// Statements of a user with the certificate `who`, over TLS.
    fn cli(&self, who: &str, ca: &str, statements: &str) -> Output {
        let file = self.cluster_file("user", 1, ":tls");
        let mut cli = shell(&file, statements);
        self.certify(&mut cli, who, ca);
        cli.env("PLINTH_TLS_IDENTITY", self.identities);
        cli.output().expect("it runs")
    }

    /// What the servers have told of refusals.
    fn refusals(&self) -> String {
        let trace = std::fs::read_to_string(self.directory.file("0").join("audit.jsonl"));
        let trace = trace.unwrap_or_default();
        let of_refusals = |line: &&str| line.contains("ConnectionRefused");
        trace
            .lines()
            .filter(of_refusals)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// A user with this certificate is refused: says what the error line and the audit line contain.
    fn refuses(&self, who: &str, ca: &str, said: &[&str], told: &[&str]) {
        let line = error_line(&self.cli(who, ca, "get a"));
        said.iter()
            .for_each(|part| assert!(line.contains(part), "{who}, {part}: {line}"));
        let wanted = |line: &str| told.iter().all(|part| line.contains(part));
        let began = Instant::now();
        while !self.refusals().lines().any(wanted) {
            assert!(
                began.elapsed() < SERVES_LIMIT,
                "{who}, {told:?}: {}",
                self.refusals()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn shell(file: &Path, statements: &str) -> Command {
    let mut cli = Command::new(BINARY);
    cli.args(["cli", "--timeout", "5", "--exec", statements, "-C"])
        .arg(file)
        .stdin(Stdio::null());
    cli
}

fn succeeds(output: &Output, shows: &str) {
    let (said, failed) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && said.contains(shows),
        "{shows}: {said} {failed}"
    );
}

#[test]
fn a_certificate_opens_what_it_stands_for_and_others_hear_what_to_do() {
    let place = Place::closed("certificates", IDENTITIES);
    ["alice", "app-1", "stolen"]
        .iter()
        .for_each(|name| place.user(name));
    succeeds(
        &place.cli("alice", "ca", "writemode on; set a 1; get a"),
        "1",
    );
    succeeds(
        &place.cli("app-1", "ca", "writemode on; set a 2; get a"),
        "2",
    );
    assert!(!place.cli("app-1", "ca", "lock").status.success());

    let foreign = Authority::new("Our root");
    place.put("foreign", &foreign.issue(&Wanted::named("alice")));
    let trusts = ["compare the CA files", "foreign.crt", "CN=alice"];
    place.refuses(
        "foreign",
        "ca",
        &trusts,
        &["not signed by a trusted root", "ca.crt"],
    );
    place.put_ca("foreign-ca", &[&foreign.pem]);
    let line = error_line(&place.cli("alice", "foreign-ca", "get a"));
    assert!(
        line.contains("foreign-ca.crt has signed it") && line.contains("CN=node"),
        "{line}"
    );

    let old = place.authority.issue(&Wanted {
        to: 2001,
        ..Wanted::named("app-old")
    });
    place.put("old", &old);
    place.refuses(
        "old",
        "ca",
        &["renew it", "old.crt"],
        &["not good at this time", "CN=app-old"],
    );
    place.put("alone", &self_signed("alone"));
    place.refuses(
        "alone",
        "ca",
        &["compare the CA files"],
        &["CN=alone", "has signed it"],
    );
    let by_rules = ["the rules of the other side refuse", "stolen.crt"];
    place.refuses(
        "stolen",
        "ca",
        &by_rules,
        &["no --tls-identity fits", "CN=stolen"],
    );
}

#[test]
fn who_has_no_certificate_hears_what_to_do() {
    let place = Place::closed("no-certificate", "");
    place.cluster_file("user", 1, ":tls");
    let line = error_line(
        &shell(&place.file("user", "cluster"), "get a")
            .output()
            .expect("it runs"),
    );
    assert!(
        line.contains("asks for TLS") && line.contains("--tls-certificate-file"),
        "{line}"
    );
    let bare = place.cluster_file("bare", 1, "");
    let line = error_line(&shell(&bare, "get a").output().expect("it runs"));
    assert!(line.contains("needs a key or a certificate"), "{line}");
}

#[test]
fn files_that_cannot_be_used_are_named_with_what_to_do() {
    let place = Place::new("wrong-files", 1, "");
    let run = |change: &dyn Fn(&mut Command)| {
        let mut server = place.server(0, 1, Stage::Closed);
        change(&mut server);
        error_line(&server.output().expect("it runs"))
    };
    let key = place.file("node", "key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).expect("a mode");
    let line = run(&|_| ());
    assert!(
        line.contains("node.key: others can read") && line.contains("chmod 600"),
        "{line}"
    );
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("a mode");
    let line = run(&|server| {
        server.env("FDB_TLS_CA_FILE", "/nowhere/ca.crt");
    });
    assert!(line.contains("/nowhere/ca.crt"), "{line}");
    let line = run(&|server| {
        server.env_remove("FDB_TLS_CA_FILE");
    });
    assert!(line.contains("--tls-ca-file is missing"), "{line}");
    let line = run(&|server| {
        server.args(["--tls_verify_peers", "S.XX=1"]);
    });
    assert!(
        line.contains("--tls-verify-peers") && line.contains("the fields are"),
        "{line}"
    );
    place.user("other");
    let other = place.file("other", "key");
    let line = run(&|server| {
        server.arg("--tls-key-file").arg(&other);
    });
    assert!(
        line.contains("other.key") && line.contains("one pair"),
        "{line}"
    );
    let line = run(&|server| {
        server.env_remove("FDB_TLS_CERTIFICATE_FILE");
        server
            .env_remove("FDB_TLS_KEY_FILE")
            .env_remove("FDB_TLS_CA_FILE");
    });
    assert!(line.contains("asks for TLS"), "{line}");
    // `openssl genpkey -aes256`, password sesame.
    let sealed = include_str!("../../../base/tls/src/tests/with_password.pem");
    for ending in ["crt", "key"] {
        std::fs::write(place.file("node", ending), sealed).expect("written");
    }
    let line = run(&|_| ());
    assert!(
        line.contains("has a password") && line.contains("--tls-password"),
        "{line}"
    );
    let line = run(&|server| {
        server.env("FDB_TLS_PASSWORD", "wrong");
    });
    assert!(
        line.contains("password of the private key is wrong"),
        "{line}"
    );
}

#[test]
fn files_are_exchanged_while_servers_run() {
    let place = Place::closed("exchange", "");
    place.user("before");
    succeeds(
        &place.cli("before", "ca", "writemode on; set a 1; get a"),
        "1",
    );
    let next = Authority::new("The next root");
    place.put("after", &next.issue(&Wanted::named("after")));
    place.put_ca("both", &[&place.authority.pem, &next.pem]);
    place.refuses("after", "both", &["compare the CA files"], &["CN=after"]);
    place.put_ca("ca", &[&place.authority.pem, &next.pem]);
    std::thread::sleep(LOOK);
    succeeds(&place.cli("after", "both", "get a"), "1");
    place.put("node", &next.issue(&Wanted::named("node")));
    place.put_ca("ca", &[&next.pem]);
    std::thread::sleep(LOOK);
    succeeds(&place.cli("after", "both", "get a"), "1");
    place.refuses("before", "both", &["compare the CA files"], &["CN=before"]);
}

#[test]
fn a_certificate_is_revoked_while_servers_run() {
    let place = Place::closed("revoked", "");
    let lost = place.authority.issue(&Wanted::named("lost"));
    place.put("lost", &lost);
    place.user("kept");
    place.put_ca("own", &[&place.authority.pem]);
    succeeds(
        &place.cli("lost", "own", "writemode on; set a 1; get a"),
        "1",
    );
    let list = place.authority.revoked(&[&lost], 2100);
    place.put_ca("ca", &[&place.authority.pem, &list]);
    std::thread::sleep(LOOK);
    place.refuses("lost", "own", &["was revoked"], &["CN=lost", "was revoked"]);
    succeeds(&place.cli("kept", "own", "get a"), "1");
}

#[test]
fn a_cluster_moves_from_keys_to_tls_while_it_is_used() {
    let mut place = Place::new("move", 3, "");
    for i in 0..3 {
        place.servers.push(place.start(i, 3, Stage::Bare));
    }
    let bare = place.cluster_file("bare", 3, "");
    let of_bare = |statements: &str| shell(&bare, statements).output().expect("it runs");
    let made = of_bare("configure new double memory");
    assert!(made.status.success(), "{}", text(&made.stderr));
    place.user("user");
    for stage in [Stage::Both, Stage::Opening, Stage::Closed] {
        for i in 0..3 {
            drop(place.servers.remove(usize::from(i)));
            let server = place.start(i, 3, stage);
            place.servers.insert(usize::from(i), server);
            let began = Instant::now();
            let is_reached = |output: &Output| output.status.success();
            let by_tls = stage == Stage::Closed || stage == Stage::Opening;
            loop {
                let told = match by_tls {
                    true => place.cli("user", "ca", "writemode on; set a 1; get a"),
                    false => of_bare("writemode on; set a 1; get a"),
                };
                if is_reached(&told) {
                    break;
                }
                assert!(began.elapsed() < SERVES_LIMIT, "{}", text(&told.stderr));
            }
        }
    }
    // A key is good as before, and without one nobody gets in.
    succeeds(&of_bare("get a"), "1");
    std::fs::remove_file(bare.with_extension("keys")).expect("new clusters have keys");
    assert!(!of_bare("get a").status.success());
    succeeds(&place.cli("user", "ca", "get a"), "1");
}

#[test]
fn somebody_in_between_and_slow_strangers_have_no_effect() {
    let place = Place::closed("between", "");
    place.user("user");
    succeeds(
        &place.cli("user", "ca", "writemode on; set a 1; get a"),
        "1",
    );
    // It carries bytes as they are, from another address.
    let between = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (port, server) = (
        between.local_addr().expect("its own").port(),
        place.address(0),
    );
    std::thread::spawn(move || {
        while let Ok((from, _)) = between.accept() {
            let to = TcpStream::connect(server).expect("it serves");
            let pairs = [
                (
                    from.try_clone().expect("a copy"),
                    to.try_clone().expect("a copy"),
                ),
                (to, from),
            ];
            for (mut from, mut to) in pairs {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    let file = place.file("between", "cluster");
    std::fs::write(&file, format!("test:test@127.0.0.1:{port}:tls\n")).expect("written");
    let mut led = shell(&file, "get a");
    place.certify(&mut led, "user", "ca");
    let line = error_line(&led.output().expect("it runs"));
    assert!(line.contains("was meant for"), "{line}");

    let mut slow = TcpStream::connect(server).expect("it serves");
    slow.write_all(&[0x16, 3, 1]).expect("writes");
    let began = Instant::now();
    succeeds(&place.cli("user", "ca", "get a"), "1");
    slow.set_read_timeout(Some(SERVES_LIMIT)).expect("a limit");
    let ended = slow.read(&mut [0; 100]);
    assert!(!ended.is_ok_and(|bytes| bytes > 0));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}

/// Opens by options, bytes in place of files, and without what it needs.
const BY_OPTIONS: &str = r#"
import sys, fdb
fdb.api_version(730)
cluster, cert, key, ca, how = sys.argv[1:]
read = lambda path: open(path, "rb").read()
if how == "bytes":
    fdb.options.set_tls_cert_bytes(read(cert))
    fdb.options.set_tls_key_bytes(read(key))
    fdb.options.set_tls_ca_bytes(read(ca))
elif how == "paths":
    fdb.options.set_tls_cert_path(cert)
    fdb.options.set_tls_key_path(key)
    fdb.options.set_tls_ca_path(ca)
    fdb.options.set_tls_verify_peers(b"S.CN=node")
try:
    db = fdb.open(cluster)
    db.options.set_transaction_timeout(20_000)
    db[b"how"] = how.encode()
    print(db[b"how"].decode())
except fdb.FDBError as error:
    print(error.code)
"#;

#[test]
fn the_python_binding_tours_the_api_over_tls() {
    let place = Place::closed("tour-tls", "");
    place.user("user");
    let file = place.cluster_file("user", 1, ":tls");
    let python = installed("python/bin/python");
    for (how, said) in [("bytes", "bytes"), ("paths", "paths"), ("nothing", "2107")] {
        let mut program = command(&python);
        program.args(["-c", BY_OPTIONS]).arg(&file);
        program
            .arg(place.file("user", "crt"))
            .arg(place.file("user", "key"));
        let output = program.arg(place.file("ca", "crt")).arg(how).output();
        succeeds(&output.expect("it runs"), said);
    }
    for stream in ["create tour --range stream/ stream0", "create log --append"] {
        let mut made = Command::new(BINARY);
        made.arg("stream")
            .args(stream.split(' '))
            .arg("-C")
            .arg(&file);
        place.certify(&mut made, "user", "ca");
        succeeds(&made.output().expect("it runs"), "");
    }
    let mut tour = command(&python);
    tour.arg(source("tour.py")).arg(&file).arg("730");
    place.certify(&mut tour, "user", "ca");
    tour.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut tour = tour.spawn().expect("it is installed");
    let mut stdin = tour.stdin.take().expect("it is piped");
    stdin.write_all(b"go on\n").expect("it listens");
    let output = tour.wait_with_output().expect("it ends");
    succeeds(&output, "ready\ndone\n");
}
