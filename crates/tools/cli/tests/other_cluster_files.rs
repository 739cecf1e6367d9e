//! A command that is given the cluster file of another system says whose it is, and which command takes it.

use crate::common::farm::Machines;
use crate::common::{self, BINARY, Cluster, Directory, Server, error_line, free_ports};
use std::collections::BTreeSet;
use std::process::Command;

const ID: &str = "00ff00ff00ff00ff";
const OF_STORE: [&str; 8] = [
    "status",
    "top --once",
    "cli --exec status",
    "dump OUT",
    "bench run --workload point-reads",
    "keeper server --listen 127.0.0.1:0",
    "keeper export --to-files OUT",
    "server --listen 127.0.0.1:4500 --data-dir DATA",
];
const OF_DELOS: [&str; 4] = [
    "delos status",
    "delos top --once",
    "delos check",
    "table server",
];
const OF_FARM: [&str; 4] = [
    "farm status",
    "farm cli --exec status",
    "farm server --listen 127.0.0.1:4500 --data-dir DATA",
    "farm create --machines 3",
];

fn written(directory: &Directory, name: &str, key: &str) -> String {
    let path = directory.file(name);
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    std::fs::write(&path, format!("{key}@127.0.0.1:1\n")).expect("written");
    path.display().to_string()
}

/// The command refuses the file, which is for commands behind the word `system`.
fn refuses(directory: &Directory, command: &str, own: &str, (file, system): (&str, &str)) {
    let path = |name: &str| directory.file(name).display().to_string();
    let words = command.split(' ').map(|word| match word {
        "DATA" => path("data"),
        "OUT" => path("out"),
        word => word.to_owned(),
    });
    let ended = Command::new(BINARY).args(words).args(["-C", file]).output();
    let said = error_line(&ended.expect("the binary was built"));
    for part in [
        format!("{file} is a cluster file of "),
        format!(", not of {own}; "),
        format!("use plinth {system}status -C {file}, or another command of plinth help"),
    ] {
        assert!(said.contains(&part), "{command}: {said}");
    }
}

#[test]
fn a_command_with_the_file_of_another_system_names_it_and_a_command_that_takes_it() {
    let directory = Directory::new("other-cluster-files");
    let service = written(&directory, "locks.delos", "locks:ab");
    let store = written(&directory, "store/plinth.cluster", &format!("dev:{ID}"));
    let foreign = written(&directory, "fdb.cluster", "a:b");
    let farm = written(&directory, "farm/plinth.cluster", &format!("farm:{ID}"));
    let (service, store, farm) = (
        (&service[..], "delos "),
        (&store[..], ""),
        (&farm[..], "farm "),
    );
    let log_stacks = "a service on log stacks";
    for (commands, own, others) in [
        (&OF_STORE[..], "the store", &[service, farm][..]),
        (&OF_DELOS, log_stacks, &[store, farm, (&foreign, "")]),
        (&OF_FARM, "the in-memory engine", &[store, service]),
    ] {
        for command in commands {
            for other in others {
                refuses(&directory, command, own, *other);
            }
        }
    }
}

/// The command fails with a line that tells whose the coordinators are, and which command takes the file.
fn is_told(file: &str, command: &str, of: &str, system: &str) {
    let mut told = Command::new(BINARY);
    told.args(command.split(' ')).args(["-C", file]);
    let told = told.output().expect("the binary was built");
    let said = common::text(&[told.stdout, told.stderr].concat());
    let whose = format!("its coordinators are those of {of}, not of ");
    assert!(said.contains(&whose), "{command}: {said}");
    let tip = format!("use plinth{system} status with this file");
    assert!(said.contains(&tip), "{command}: {said}");
}

#[test]
fn a_file_that_was_written_by_hand_is_of_the_system_whose_processes_are_its_coordinators() {
    let farm = "the in-memory engine";
    let mut machines = Machines::new("written-for-the-farm", 3);
    let keys = Command::new(BINARY)
        .args(["keys", "new", "-C", &machines.file()])
        .output();
    assert!(keys.expect("the binary was built").status.success());
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    let data = machines.directory.file("data").display().to_string();
    let listen = format!("127.0.0.1:{}", free_ports(2));
    let server = format!("server --listen {listen} --data-dir {data}");
    for command in [
        "status --timeout 2",
        "cli --timeout 2 --exec status",
        &server,
    ] {
        is_told(&machines.file(), command, farm, " farm");
    }
    assert!(machines.create().status.success());
    machines.whole();
    is_told(&machines.file(), "status --timeout 2", farm, " farm");
    is_told(&machines.file(), &server, farm, " farm");
    machines.whole();

    let cluster = Cluster::stopped("written-for-the-store", 1, &[]);
    cluster.write_cluster_file(1);
    let _server = Server(cluster.start_server(0));
    let file = cluster.cluster_file().display().to_string();
    let server = format!("farm server --listen {listen} --data-dir {data}-of-farm");
    for command in [
        "farm status",
        "farm create --machines 3",
        "farm cli --exec status",
        &server,
    ] {
        is_told(&file, command, "the store", "");
    }
    cluster.cli("configure new single memory; set a 1");
    is_told(&file, "farm create --machines 3", "the store", "");
    is_told(&file, "farm status", "the store", "");
    cluster.cli("set a 2");
}

/// Directories of commands that start several servers, and of single servers.
fn directories() -> Directory {
    let directory = Directory::new("other-directories");
    written(&directory, "store/plinth.cluster", &format!("dev:{ID}"));
    written(&directory, "farm/plinth.cluster", &format!("farm:{ID}"));
    written(&directory, "service/locks.delos", "locks:ab");
    for name in ["log.00000000", "tables.redb", "plinth.lock"] {
        written(&directory, &format!("tables/{name}"), "of tables");
    }
    // Of single servers.
    for (place, own) in [
        ("server", "process"),
        ("machine", "farm"),
        ("replica", "replica"),
    ] {
        for name in [own, "coordination", "plinth.lock"] {
            let path = directory.file(place).join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, name).expect("written");
        }
    }
    directory
}

/// The command refuses the directory, and makes nothing in it.
fn refuses_directory(directory: &Directory, command: &str, place: &str, whose: &str) {
    let path = directory.file(place);
    let names = || {
        let read = std::fs::read_dir(&path).expect("it is there");
        read.map(|entry| entry.expect("a name").file_name())
            .collect::<BTreeSet<_>>()
    };
    let before = names();
    let mut refused = Command::new(BINARY);
    refused
        .args(command.split(' '))
        .arg("--data-dir")
        .arg(&path);
    let line = error_line(&refused.output().expect("the binary was built"));
    assert!(line.contains(whose), "{command} {place}: {line}");
    assert!(line.contains("choose another with --data-dir"), "{line}");
    assert_eq!(names(), before, "{command} {place}");
}

#[test]
fn a_directory_of_another_system_is_refused_before_anything_is_made_in_it() {
    let directory = directories();
    let file = |place: &str| {
        directory
            .file(place)
            .join("plinth.cluster")
            .display()
            .to_string()
    };
    let tables = "table server --listen 127.0.0.1:0";
    let port = free_ports(2);
    let server = format!("server --listen 127.0.0.1:{port} -C {}", file("store"));
    let machine = format!("farm server --listen 127.0.0.1:{port} -C {}", file("farm"));
    let replica = format!("delos server --listen 127.0.0.1:{port}");
    for (command, place, whose) in [
        (&server[..], "machine", "the in-memory engine"),
        (&server, "replica", "a service on log stacks"),
        (&machine, "server", "a cluster of the store"),
        (&machine, "replica", "a service on log stacks"),
        (&replica, "server", "a cluster of the store"),
        (&replica, "machine", "the in-memory engine"),
        (tables, "server", "a cluster of the store"),
        ("dev", "machine", "the in-memory engine"),
        ("farm dev", "server", "a cluster of the store"),
        ("farm dev", "store", "a cluster of the store"),
        ("farm dev", "service", "a service on log stacks"),
        (
            "delos dev locks --kind lock",
            "server",
            "a cluster of the store",
        ),
        (
            "delos dev locks --kind lock",
            "farm",
            "the in-memory engine",
        ),
        (
            "delos dev locks --kind lock",
            "machine",
            "the in-memory engine",
        ),
        ("dev", "farm", "the in-memory engine"),
        ("dev", "service", "a service on log stacks"),
        ("dev", "tables", "a server of tables"),
        ("farm dev", "tables", "a server of tables"),
        (
            "delos dev locks --kind lock",
            "tables",
            "a server of tables",
        ),
        (&server, "tables", "a server of tables"),
        (&machine, "tables", "a server of tables"),
        (&replica, "tables", "a server of tables"),
        (tables, "store", "a cluster of the store"),
        (tables, "farm", "the in-memory engine"),
        (tables, "service", "a service on log stacks"),
    ] {
        refuses_directory(&directory, command, place, whose);
    }
}

#[test]
fn a_directory_one_level_off_is_refused_before_anything_is_made_in_it() {
    let directory = directories();
    written(&directory, "above/plinth.cluster", &format!("dev:{ID}"));
    written(&directory, "above/4500/process", "a server");
    written(&directory, "farms/farm-ab/1/farm", "a machine");
    for place in ["above", "farms", "farms/farm-ab"] {
        written(&directory, &format!("{place}/plinth.lock"), "nobody"); // a server locks it before it looks
    }
    for (dev, place, whose) in [
        ("dev", "server", "a single server of the store"),
        (
            "farm dev",
            "machine",
            "a single server of the in-memory engine",
        ),
        (
            "delos dev locks --kind lock",
            "replica",
            "a single server of a service",
        ),
    ] {
        refuses_directory(&directory, dev, place, whose);
    }
    let file = |place: &str| directory.file(place).display().to_string();
    let (store, farm) = (file("store/plinth.cluster"), file("farm/plinth.cluster"));
    let server = format!("server --listen 127.0.0.1:4500 -C {store}");
    let machine = format!("farm server --listen 127.0.0.1:4500 -C {farm}");
    let replica = "delos server --listen 127.0.0.1:4500";
    let (of_store, of_farm) = ("like 4500 of the store", "like 1 of the in-memory engine");
    let two_levels = "like farm-ab/1 of the in-memory engine";
    for (command, place, whose) in [
        (&server[..], "above", of_store),
        (&machine, "above", of_store),
        (replica, "above", of_store),
        (&server, "farms/farm-ab", of_farm),
        (&machine, "farms/farm-ab", of_farm),
        (replica, "farms/farm-ab", of_farm),
        ("table server", "farms/farm-ab", of_farm),
        (&server, "farms", two_levels),
        (&machine, "farms", two_levels),
        (replica, "farms", two_levels),
        ("table server", "farms", two_levels),
    ] {
        refuses_directory(&directory, command, place, whose);
    }
}
