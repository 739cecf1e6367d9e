//! The in-memory engine with keys or with certificates, in real processes that are hosts of their own: whoever has the
//! key file, or a server's certificate, notices nothing, and nobody else has an effect at any of their ports.

use crate::common::certificates::Files;
use crate::common::farm::Machines;
use crate::common::{BINARY, Directory, error_line, text};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Processes look at their key files once a second.
const LOOK: Duration = Duration::from_millis(2500);

fn keys(arguments: &[&str], file: &str) {
    let mut command = Command::new(BINARY);
    let made = command.arg("keys").args(arguments).args(["-C", file]);
    let made = made.output().expect("it runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
}

/// Three hosts with keys, which are a cluster.
fn keyed(name: &str) -> Machines {
    let mut machines = Machines::new(name, 3);
    machines.are_hosts = true;
    keys(&["new"], &machines.file());
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    let created = machines.create();
    assert!(created.status.success(), "{}", text(&created.stderr));
    machines.whole();
    machines
}

/// The cluster file in a directory of its own, with this key file or none.
fn elsewhere(machines: &Machines, name: &str, keys: Option<&Path>) -> PathBuf {
    let directory = machines.directory.file(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("plinth.cluster");
    std::fs::copy(machines.file(), &file).expect("a copy");
    if let Some(keys) = keys {
        // The mode is copied, too.
        std::fs::copy(keys, directory.join("plinth.keys")).expect("a copy");
    }
    file
}

fn farm(command: &str, file: &Path, more: &[&str]) -> Output {
    let mut asked = Command::new(BINARY);
    asked.args(["farm", command, "-C"]).arg(file).args(more);
    asked.output().expect("it runs")
}

fn audit_of(machines: &Machines, i: u16) -> String {
    let file = machines.directory.file(&format!("d{i}/audit.jsonl"));
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Waits until all of this is in one line of the record of a machine.
fn on_record(machines: &Machines, i: u16, what: &[&str]) {
    let begun = Instant::now();
    loop {
        let audit = audit_of(machines, i);
        if audit
            .lines()
            .any(|line| what.iter().all(|w| line.contains(w)))
        {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{what:?}: {audit}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A frame of the fabric.
fn frame(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    let sums = [crc32c::crc32c(&length), crc32c::crc32c(body)];
    let sums = sums.map(u32::to_le_bytes).concat();
    [&length[..], &sums, body].concat()
}

fn greeting(from: u16, to: u16) -> Vec<u8> {
    let numbers = [from, to].map(u16::to_le_bytes).concat();
    frame(&[&b"farmfab1"[..], &numbers].concat())
}

/// Writes of zeros all over the first regions, in a configuration that no fence keeps out.
fn writes() -> Vec<u8> {
    let zeros = [0; 1 << 12];
    let write = |region: u16, offset: u64| {
        let head = [
            &u64::MAX.to_le_bytes()[..],
            &[1],
            &region.to_le_bytes(),
            &offset.to_le_bytes(),
            &(zeros.len() as u32).to_le_bytes(),
        ];
        frame(&[&head.concat()[..], &zeros].concat())
    };
    let places = (0..3).flat_map(|region| (0..16).map(move |at| (region, at << 12)));
    places.flat_map(|(region, at)| write(region, at)).collect()
}

/// A connection to a machine, which may have to be started again.
fn connect(machines: &Machines, host: &str, port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect((host, port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{port}: {error}"),
        }
        machines.supervise();
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Says this, and hears the other side to its end.
fn say(machines: &Machines, address: &str, port: u16, bytes: &[u8]) -> Vec<u8> {
    let host = address.split(':').next().expect("an address");
    let mut stream = connect(machines, host, port);
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a limit");
    let _ = stream.write_all(bytes); // it may have hung up
    let _ = stream.shutdown(Shutdown::Write);
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Ok(_) => heard,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => heard,
        Err(error) => panic!("it is not sent away: {error}"),
    }
}

fn port(address: &str) -> u16 {
    let port = address.rsplit(':').next().expect("a port");
    port.parse().expect("a number")
}

/// What somebody says who reaches the ports, and has no key.
fn knock(machines: &Machines) {
    for i in 0..3 {
        let address = machines.address(i);
        let memory = port(&address) + 1;
        // As any of the machines, to any of them: numbers need not be those of the processes.
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let bytes = [greeting(from, to), writes()].concat();
            assert_eq!(say(machines, &address, memory, &bytes), b"", "{from} {to}");
        }
        let hello = [&b"farmhel1"[..], &[1, 1], &[7; 8], &[4], &[0; 18], &[9; 32]].concat();
        let bytes = [frame(&hello), frame(&[0; 32]), greeting(0, 1), writes()].concat();
        // That it has keys, and that this is none of them.
        assert_eq!(say(machines, &address, memory, &bytes).len(), 14);
        say(machines, &address, memory, &[0xff; 5000]);
        say(machines, &address, port(&address), &[0xff; 5000]);
        on_record(
            machines,
            i,
            &["RequestRefused", "\"fabric\"", "nobody", "server"],
        );
        on_record(machines, i, &["ConnectionRefused", "0707070707070707"]);
    }
}

fn set_and_read(machines: &Machines, value: u32) {
    let said = machines.cli(&format!("set a {value}; get a; get k"));
    assert!(said.contains(&format!("`a' is `{value}'")), "{said}");
    assert!(said.contains("`k' is `kept'"), "{said}");
}

/// What commands say to whoever has no key, too low a one, or that of another cluster.
fn ask_without_the_key(machines: &Machines, nobody: &Path) {
    let out = machines.directory.file("operator.keys");
    let to = out.to_str().expect("text");
    keys(
        &["derive", "--for", "operator", "--out", to],
        &machines.file(),
    );
    let operator = elsewhere(machines, "operator", Some(&out));
    let other = elsewhere(machines, "other", None);
    keys(&["new"], other.to_str().expect("text"));
    for (file, word) in [
        (nobody, "needs a server's key"),
        (&operator, "needs a server's key"),
        (&other, "does not know our key"),
    ] {
        let begun = Instant::now();
        let line = error_line(&farm("cli", file, &["--exec", "get a", "--timeout", "60"]));
        assert!(line.contains(word), "{line}");
        let line = error_line(&farm("create", file, &["--timeout", "60"]));
        assert!(line.contains(word), "{line}");
        assert!(
            begun.elapsed() < Duration::from_secs(40),
            "it says so at once"
        );
        let status = farm("status", file, &["--json"]);
        assert!(!status.status.success());
        let said = text(&status.stdout);
        assert!(said.contains(word), "{said}");
    }
}

/// A process without the key is not let in, and one that had it does not go on without.
fn start_without_the_key(machines: &mut Machines, nobody: &Path) {
    machines.kill(2);
    let mut without = Command::new(BINARY);
    without.args(["farm", "server", "--listen", &machines.address(2)]);
    for (option, name) in [("--data-dir", "d9"), ("--memory-dir", "m9")] {
        without.arg(option).arg(machines.directory.file(name));
    }
    without.arg("-C").arg(nobody).args(["--old-mib", "8"]);
    machines.start_as(2, without);
    let begun = Instant::now();
    while !machines.said(2).contains("needs a server's key") {
        let is_late = begun.elapsed() > Duration::from_secs(20);
        assert!(!is_late, "{}", machines.said(2));
        std::thread::sleep(Duration::from_millis(100));
    }
    machines.kill(2);

    let file = machines.directory.file("plinth.keys");
    let away = machines.directory.file("away");
    std::fs::rename(&file, &away).expect("renamed");
    machines.start(2);
    let line = machines.end_of(2);
    assert!(line.contains("this server has had keys"), "{line}");
    std::fs::rename(&away, &file).expect("renamed");
    machines.start(2);
    machines.whole();
}

/// Keys are exchanged while the machines run.
fn exchange_keys(machines: &mut Machines) {
    let mut command = Command::new(BINARY);
    let listed = command.args(["keys", "list", "-C", &machines.file()]);
    let listed = text(&listed.output().expect("it runs").stdout);
    let former = listed.split_whitespace().next().expect("an id");
    for (i, change) in [(1, &["add"][..]), (2, &["drop", former][..])] {
        keys(change, &machines.file());
        std::thread::sleep(LOOK);
        machines.kill(i);
        machines.start(i);
        machines.whole();
    }
}

#[test]
fn only_who_has_a_servers_key_has_an_effect_at_any_port_of_a_machine() {
    let mut machines = keyed("farm-keys");
    machines.cli("set k kept");
    set_and_read(&machines, 1);
    knock(&machines);
    let nobody = elsewhere(&machines, "nobody", None);
    ask_without_the_key(&machines, &nobody);
    start_without_the_key(&mut machines, &nobody);
    set_and_read(&machines, 2);
    exchange_keys(&mut machines);
    set_and_read(&machines, 3);
    knock(&machines);
}

#[test]
fn the_same_greeting_is_answered_where_there_are_no_keys() {
    let mut machines = Machines::new("farm-no-keys", 1);
    machines.start(0);
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    let one = [
        "--machines",
        "1",
        "--replication",
        "1",
        "--regions",
        "1",
        "--region-mib",
        "8",
    ];
    assert!(machines.run("create", &one).status.success());
    machines.until(|status| status["serves"] == true);
    let address = machines.address(0);
    let heard = say(&machines, &address, port(&address) + 1, &greeting(1, 0));
    assert_eq!(heard, frame(&[0]));
}

#[test]
fn dev_writes_over_no_cluster_file_that_asks_for_tls() {
    let directory = Directory::new("farm-dev-tls");
    let file = directory.file("plinth.cluster");
    let asking = "farm:a1@127.0.0.1:4500:tls\n";
    std::fs::write(&file, asking).expect("written");
    let mut dev = Command::new(BINARY);
    dev.args(["dev", "--farm", "1", "--data-dir"])
        .arg(&directory.0);
    let line = error_line(&dev.output().expect("it runs"));
    assert!(line.contains("asks for TLS"), "{line}");
    assert!(line.contains("choose another with --data-dir"), "{line}");
    assert_eq!(std::fs::read_to_string(&file).expect("kept"), asking);
}

/// Makes the cluster file, which names one process, ask for TLS.
fn ask_for_tls(machines: &Machines) {
    let file = std::fs::read_to_string(machines.file()).expect("written");
    let asking = format!("{}:tls\n", file.trim_end());
    std::fs::write(machines.file(), asking).expect("written");
}

/// Three hosts that speak TLS and have no keys, which are a cluster.
fn certified(name: &str) -> (Machines, Files) {
    let mut machines = Machines::new(name, 3);
    let files = Files::new(&machines.directory.0);
    (machines.are_hosts, machines.ending) = (true, ":tls");
    machines.variables = files.variables_of("node");
    ask_for_tls(&machines);
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    let created = machines.create();
    assert!(created.status.success(), "{}", text(&created.stderr));
    machines.whole();
    (machines, files)
}

/// What commands say to whoever has this certificate, or none, with this cluster file.
fn is_refused(machines: &Machines, file: &Path, files: Option<(&Files, &str)>, word: &str) {
    for (command, more) in [("cli", &["--exec", "get a"][..]), ("create", &[])] {
        let mut asked = Command::new(BINARY);
        asked.args(["farm", command, "-C"]).arg(file).args(more);
        asked.args(["--timeout", "60"]);
        if let Some((files, who)) = files {
            asked.envs(files.variables_of(who));
        }
        let begun = Instant::now();
        let line = error_line(&asked.output().expect("it runs"));
        assert!(line.contains(word), "{line}");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(40), "it says so at once");
    }
    assert_eq!(machines.whole()["serves"], true);
}

#[test]
fn only_who_has_a_servers_certificate_has_an_effect_at_any_port_of_a_machine() {
    let (mut machines, files) = certified("farm-certificates");
    machines.cli("set k kept");
    set_and_read(&machines, 1);
    for i in 0..3 {
        let address = machines.address(i);
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let bytes = [greeting(from, to), writes()].concat();
            let heard = say(&machines, &address, port(&address) + 1, &bytes);
            assert_eq!(heard, b"", "{from} {to}");
        }
        let what = ["RequestRefused", "\"fabric\"", "nobody", "server"];
        on_record(&machines, i, &what);
    }
    files.user("alice");
    files.user("stolen");
    let file = PathBuf::from(machines.file());
    let alice = Some((&files, "alice"));
    is_refused(&machines, &file, alice, "does not stand for a server");
    let stolen = Some((&files, "stolen"));
    is_refused(
        &machines,
        &file,
        stolen,
        "the rules of the other side refuse",
    );
    is_refused(&machines, &file, None, "asks for TLS");
    let asking = std::fs::read_to_string(&file).expect("a file");
    let bare = elsewhere(&machines, "bare", None);
    std::fs::write(&bare, asking.replace(":tls", "")).expect("written");
    is_refused(&machines, &bare, None, "needs a server's key");
    set_and_read(&machines, 2);

    // A machine without a certificate does not start; with one it is a member again.
    machines.kill(2);
    let variables = std::mem::take(&mut machines.variables);
    machines.ending = "";
    machines.start(2);
    let line = machines.end_of(2);
    assert!(line.contains("asks for TLS"), "{line}");
    (machines.variables, machines.ending) = (variables, ":tls");
    machines.start(2);
    machines.whole();
    set_and_read(&machines, 3);
}

#[test]
fn a_cluster_of_machines_moves_to_tls_while_it_is_used() {
    let mut machines = Machines::new("farm-move", 3);
    let files = Files::new(&machines.directory.0);
    machines.are_hosts = true;
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.create().status.success());
    machines.whole();
    machines.cli("set k kept");
    machines.variables = files.variables_of("node");
    let former = elsewhere(&machines, "former", None);
    let mut value = 0;
    for stage in ["with certificates", "they open by TLS", "closed"] {
        if stage == "they open by TLS" {
            ask_for_tls(&machines);
        }
        if stage == "closed" {
            machines.ending = ":tls";
        }
        for i in 0..3 {
            machines.kill(i);
            machines.start(i);
            // A shell that was not let in is still named.
            let members = |status: &Value| {
                let all = status["machines"].as_array().expect("a list").iter();
                all.filter(|machine| machine["is_member"] == true).count()
            };
            let is_whole = |status: &Value| status["missing"] == json!([]) && members(status) == 3;
            machines.until(|status| status["serves"] == true && is_whole(status));
            value += 1;
            match stage {
                "they open by TLS" => {
                    // Machines with the former file would come to a shell with the new one without TLS.
                    let asked = shell_with(&machines, &former, &format!("set a {value}; get a"));
                    let said = text(&asked.stdout);
                    let line = text(&asked.stderr);
                    assert!(said.contains(&format!("`a' is `{value}'")), "{i}: {line}");
                    if i < 2 {
                        new_shell_is_right(&machines, i, value);
                    }
                }
                _ => set_and_read(&machines, value),
            }
        }
        value += 1;
        set_and_read(&machines, value);
    }
}

/// Asks with a file that asks for TLS, when machines `0..=i` have it. The master lets a shell in, and reaches none
/// that asks for TLS if its own file does not. (A machine that has the new file becomes master if others were slow.)
fn new_shell_is_right(machines: &Machines, i: u16, value: u32) {
    let master = || {
        let status = machines.until(|status| status["serves"] == true);
        let all = status["machines"].as_array().expect("a list").clone();
        let master = all.iter().find(|machine| machine["is_master"] == true);
        master.and_then(|master| master["machine"].as_u64())
    };
    let is_former = |master: Option<u64>| master.is_some_and(|master| master > u64::from(i));
    let before = master();
    let asked = shell_with(machines, &PathBuf::from(machines.file()), "get a");
    if asked.status.success() && !(is_former(before) && is_former(master())) {
        let said = text(&asked.stdout);
        assert!(said.contains(&format!("`a' is `{value}'")), "{i}: {said}");
    } else {
        let line = error_line(&asked);
        assert!(line.contains("whose file has no :tls yet"), "{i}: {line}");
    }
}

/// A shell with the certificate of the machines and this cluster file.
fn shell_with(machines: &Machines, file: &Path, statements: &str) -> Output {
    let mut asked = Command::new(BINARY);
    asked.args(["farm", "cli", "-C"]).arg(file);
    asked
        .arg("--memory-dir")
        .arg(machines.directory.file("memory"));
    asked.args(["--timeout", "10", "--exec", statements]);
    asked.envs(machines.variables.iter().cloned());
    asked.output().expect("it runs")
}
