//! A cluster with keys: whoever has the key file beside the cluster file notices nothing, and nobody else gets in.

use crate::common::{BINARY, Cluster, Directory, Server, error_line, free_ports, text};
use plinth_coordination::ClusterFile;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Servers look at their key files once a second.
const LOOK: Duration = Duration::from_millis(2500);

/// Half of the time that tools wait for a cluster that does not answer.
const AT_ONCE: Duration = Duration::from_secs(5);

fn plinth(arguments: &[&str], cluster_file: &Path) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).arg("-C").arg(cluster_file);
    command.output().expect("it runs")
}

fn cli(statement: &str, cluster_file: &Path) -> Output {
    plinth(
        &["cli", "--timeout", "5", "--exec", statement],
        cluster_file,
    )
}

/// A cluster file in a directory of its own, with the key file that `keys` says.
fn elsewhere(cluster: &Cluster, name: &str, keys: Option<&[u8]>) -> PathBuf {
    let directory = cluster.cluster_file().with_file_name(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("plinth.cluster");
    std::fs::copy(cluster.cluster_file(), &file).expect("a copy");
    if let Some(keys) = keys {
        let path = directory.join("plinth.keys");
        std::fs::write(&path, keys).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("a mode");
    }
    file
}

/// A cluster that lets nobody in without a key.
fn keyed(name: &str) -> Cluster {
    let cluster = Cluster::start(name, 3, &["--engine", "memory"]);
    let own = cluster.cluster_file();
    // A new cluster is open to clients. A copy of the cluster file is enough for them.
    let copy = elsewhere(&cluster, "stranger", None);
    let set = cli("writemode on; set a 0", &copy);
    assert!(set.status.success(), "{}", text(&set.stderr));
    let refused = cli("kill", &copy);
    assert!(!refused.status.success(), "{}", text(&refused.stdout));
    let closed = plinth(&["keys", "close"], &own);
    assert!(closed.status.success(), "{}", text(&closed.stderr));
    std::thread::sleep(LOOK);
    cluster
}

/// The record of all servers. Each writes its own on a thread of its own, so the newest lines may take a moment.
fn audit_of(cluster: &Cluster) -> String {
    std::thread::sleep(Duration::from_millis(300));
    let directory = |address: &std::net::SocketAddr| address.port().to_string();
    let file = |port: String| cluster.directory.file(&port).join("audit.jsonl");
    let read = |address| std::fs::read_to_string(file(directory(address))).unwrap_or_default();
    cluster.addresses().iter().map(read).collect()
}

/// What the database says to an application with this cluster file.
fn says(cluster_file: &Path) -> Result<(), plinth_core::Error> {
    plinth_runtime::real::block_on(async {
        let file = ClusterFile::load(cluster_file).await;
        let database = plinth_client::connect(file.expect("a cluster file"));
        let reading = async { database.create_transaction().get_read_version().await };
        let limit = plinth_runtime::Duration::from_secs(20);
        let answer = plinth_runtime::timeout(limit, reading).await;
        answer.expect("an answer in time").map(drop)
    })
}

#[test]
fn only_who_has_a_key_gets_in_and_only_as_far_as_it_leads() {
    let cluster = keyed("keys");
    let own = cluster.cluster_file();
    let keys = own.with_file_name("plinth.keys");
    let mode = std::fs::metadata(&keys).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let set = cli("writemode on; set a 1", &own);
    assert!(set.status.success(), "{}", text(&set.stderr));

    let without = elsewhere(&cluster, "nobody", None);
    let line = error_line(&cli("get a", &without));
    assert!(
        line.contains("needs a key") && line.contains("plinth.keys") || line.contains("NAME.keys"),
        "{line}"
    );

    assert_eq!(says(&without), Err(plinth_core::Error::permission_denied));
    assert_eq!(says(&own), Ok(()));

    let derive = |whom: &str| {
        let out = own.with_file_name(format!("{whom}.keys"));
        let out_text = out.to_str().expect("text");
        let derived = plinth(&["keys", "derive", "--for", whom, "--out", out_text], &own);
        assert!(derived.status.success(), "{}", text(&derived.stderr));
        std::fs::read(out).expect("made")
    };
    let client = elsewhere(&cluster, "client", Some(&derive("client")));
    let read = cli("get a", &client);
    assert!(
        text(&read.stdout).contains('1'),
        "{} {}",
        text(&read.stdout),
        text(&read.stderr)
    );
    let written = cli("writemode on; set a 2", &client);
    assert!(written.status.success(), "{}", text(&written.stderr));

    let reader = elsewhere(&cluster, "reader", Some(&derive("reader")));
    let read = cli("get a", &reader);
    assert!(
        text(&read.stdout).contains('2'),
        "{} {}",
        text(&read.stdout),
        text(&read.stderr)
    );
    let refused = cli("writemode on; set a 3", &reader);
    assert!(!refused.status.success());
    let read = cli("get a", &own);
    assert!(text(&read.stdout).contains('2'), "{}", text(&read.stdout));

    let configured = cli("configure commit_proxies=2", &own);
    assert!(configured.status.success(), "{}", text(&configured.stderr));
    check_audit(&cluster);
}

/// What the test above has done is on record.
fn check_audit(cluster: &Cluster) {
    let audit = audit_of(cluster);
    for (kind, what) in [
        ("ConnectionGreeted", "\"identity\":\"reader\""),
        ("RequestRefused", "\"identity\":\"nobody\""),
        ("RequestRefused", "\"request\":\"Commit\""),
        ("OperatorAsked", "xff/conf;"),
    ] {
        let is_there = |line: &&str| line.contains(kind) && line.contains(what);
        assert!(
            audit.lines().any(|line| is_there(&line)),
            "{kind} {what}: {audit}"
        );
    }
}

#[test]
fn keys_of_another_cluster_and_a_file_that_others_can_read_are_refused() {
    let cluster = keyed("foreign");
    let foreign = elsewhere(&cluster, "foreign", None);
    let made = plinth(&["keys", "new"], &foreign);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert_eq!(says(&foreign), Err(plinth_core::Error::permission_denied));
    let line = error_line(&cli("get a", &foreign));
    assert!(line.contains("does not know our key"), "{line}");
    let path = foreign.with_file_name("plinth.keys");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("a mode");
    let line = error_line(&cli("get a", &foreign));
    assert!(
        line.contains("others can read it") && line.contains("chmod 600"),
        "{line}"
    );
}

#[test]
fn keys_are_exchanged_while_the_cluster_runs() {
    let cluster = keyed("rotate");
    let own = cluster.cluster_file();
    let ids = || -> Vec<String> {
        let listed = plinth(&["keys", "list"], &own);
        let lines = text(&listed.stdout);
        lines
            .lines()
            .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
            .collect()
    };
    let old = ids();
    let again = error_line(&plinth(&["keys", "new"], &own));
    assert!(
        again.contains("it is there already; nothing has changed"),
        "{again}"
    );
    assert!(plinth(&["keys", "add"], &own).status.success());
    let both = ids();
    assert_eq!((both.len(), &both[1]), (2, &old[0]));
    std::thread::sleep(LOOK);
    let dropped = plinth(&["keys", "drop", &old[0]], &own);
    assert!(dropped.status.success(), "{}", text(&dropped.stderr));
    assert_eq!(ids(), both[..1]);
    let set = cli("writemode on; set b 1; get b", &own);
    assert!(
        text(&set.stdout).contains('1'),
        "{} {}",
        text(&set.stdout),
        text(&set.stderr)
    );
    let line = error_line(&plinth(&["keys", "drop", &both[0]], &own));
    assert!(!line.is_empty());
}

#[test]
fn a_server_that_has_had_keys_does_not_start_without_them() {
    let mut cluster = keyed("lost-keys");
    let own = cluster.cluster_file();
    cluster.stop();
    let keys = own.with_file_name("plinth.keys");
    let aside = own.with_file_name("aside");
    std::fs::rename(&keys, &aside).expect("moved");
    let first = cluster.addresses()[0];
    let data = own.with_file_name(first.port().to_string());
    let mut server = Command::new(BINARY);
    server.args(["server", "--listen", &first.to_string(), "--data-dir"]);
    let line = error_line(
        &server
            .arg(&data)
            .arg("-C")
            .arg(&own)
            .output()
            .expect("it runs"),
    );
    assert!(
        line.contains("has had keys") && line.contains("put it back"),
        "{line}"
    );
}

/// Three servers that have no keys, each with a cluster file of its own, as those of several hosts.
fn open_database(directory: &Directory) -> (Vec<PathBuf>, Vec<Server>) {
    let first = free_ports(3);
    let mut files = Vec::new();
    let mut servers = Vec::new();
    for port in first..first + 3 {
        let host = directory.file(&format!("host-{port}"));
        std::fs::create_dir_all(&host).expect("a directory");
        let file = host.join("plinth.cluster");
        std::fs::write(&file, format!("old:old@127.0.0.1:{first}\n")).expect("written");
        let mut server = Command::new(BINARY);
        server.args([
            "server",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--data-dir",
        ]);
        server.arg(host.join("data")).arg("-C").arg(&file);
        server.args(["--zone", &format!("z{port}"), "--cache-mib", "32"]);
        let said = std::fs::File::create(host.join("said")).expect("can be made");
        servers.push(Server(server.stderr(said).spawn().expect("it runs")));
        files.push(file);
    }
    plinth_runtime::real::block_on(async {
        let file = ClusterFile::load(&files[0]).await.expect("a cluster file");
        let config = plinth_core::DatabaseConfig {
            replication: 2,
            logs: 2,
            ..Default::default()
        };
        let transport = plinth_rpc::Transport::client();
        let coordinators = file.into();
        let made = plinth_server::create_database(&transport, &coordinators, config);
        let limit = plinth_runtime::Duration::from_secs(30);
        let made = plinth_runtime::timeout(limit, made).await.expect("in time");
        assert!(made.is_ok());
    });
    (files, servers)
}

#[test]
fn a_running_cluster_without_keys_is_closed_by_one_statement() {
    let directory = Directory::new("give-keys");
    let (files, servers) = open_database(&directory);
    let set = cli("writemode on; set a 1", &files[2]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    let given = plinth(&["keys", "give"], &files[1]);
    assert!(given.status.success(), "{}", text(&given.stderr));
    assert!(text(&given.stdout).contains("3 servers have the keys"));
    let keys = std::fs::read(files[1].with_file_name("plinth.keys")).expect("made");
    for file in &files {
        let path = file.with_file_name("plinth.keys");
        assert_eq!(std::fs::read(&path).expect("given"), keys);
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = cli("get a", file);
        assert!(text(&read.stdout).contains('1'), "{}", text(&read.stderr));
    }
    let stranger = directory.file("stranger.cluster");
    std::fs::copy(&files[0], &stranger).expect("a copy");
    assert_eq!(says(&stranger), Err(plinth_core::Error::permission_denied));
    // A server that comes without keys hears what it lacks.
    let late = directory.file("late");
    std::fs::create_dir_all(&late).expect("a directory");
    let file = late.join("plinth.cluster");
    std::fs::copy(&files[0], &file).expect("a copy");
    let mut server = Command::new(BINARY);
    let listen = format!("127.0.0.1:{}", free_ports(1));
    server
        .args(["server", "--listen", &listen, "--data-dir"])
        .arg(late.join("data"));
    let said = std::fs::File::create(late.join("said")).expect("can be made");
    let server = server.arg("-C").arg(&file).stderr(said).spawn();
    let server = Server(server.expect("it runs"));
    std::thread::sleep(LOOK);
    let said = std::fs::read_to_string(late.join("said")).expect("it is there");
    assert!(
        said.contains("has no server's key of it; copy the key file"),
        "{said}"
    );
    assert!(!said.contains("has joined the cluster"), "{said}");
    drop(server);

    // They are given once more without effect, and no others are taken.
    assert!(plinth(&["keys", "give"], &files[0]).status.success());
    let other = directory.file("other.cluster");
    std::fs::copy(&files[0], &other).expect("a copy");
    let line = error_line(&plinth(&["keys", "give", "--timeout", "3"], &other));
    assert!(line.contains("does not know our key"), "{line}");
    assert_eq!(says(&files[2]), Ok(()));
    drop(servers);
}

#[test]
fn who_lacks_a_needed_key_is_refused_at_once_whatever_he_asks() {
    let cluster = keyed("refused-at-once");
    let nobody = elsewhere(&cluster, "nobody", None);
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["top", "--once"],
        &["cli", "--exec", "get a"],
        &["cli", "--exec", "status"],
        &["stream", "list"],
        &["dump", "-"],
        &["keeper", "list"],
    ] {
        let begun = Instant::now();
        let output = plinth(command, &nobody);
        let (took, said) = (begun.elapsed(), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(
            said.contains("needs a key or a certificate"),
            "{command:?}: {said}"
        );
        assert!(!said.contains("waiting for"), "{command:?}: {said}");
        assert!(took < AT_ONCE, "{command:?}: {took:?}");
    }
}
