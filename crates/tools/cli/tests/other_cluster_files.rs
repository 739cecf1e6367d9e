//! A command that is given the cluster file of another system says whose it is, and which command takes it.

use crate::common::{BINARY, Directory, error_line};
use std::process::Command;

const ID: &str = "00ff00ff00ff00ff";

#[test]
fn a_command_with_the_file_of_another_system_names_it_and_a_command_that_takes_it() {
    let directory = Directory::new("other-cluster-files");
    let written = |name: &str, key: &str| {
        let path = directory.file(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(&path, format!("{key}@127.0.0.1:1\n")).expect("written");
        path.display().to_string()
    };
    let service = written("locks.delos", "locks:ab");
    let store = written("store/plinth.cluster", &format!("dev:{ID}"));
    let foundation = written("fdb.cluster", "a:b");
    let farm = written("farm/plinth.cluster", &format!("farm:{ID}"));
    let data = directory.file("data").display().to_string();
    let out = directory.file("out").display().to_string();
    let of_store = [
        "status",
        "top --once",
        "cli --exec status",
        "dump OUT",
        "bench run",
        "keeper server --listen 127.0.0.1:0",
        "keeper export --to-files OUT",
        "server --listen 127.0.0.1:4500 --data-dir DATA",
    ];
    let of_delos = [
        "delos status",
        "delos top --once",
        "delos check",
        "table server",
    ];
    let of_farm = [
        "farm status",
        "farm cli --exec status",
        "farm server --listen 127.0.0.1:4500 --data-dir DATA",
        "farm create --machines 1",
    ];
    for (commands, own, others) in [
        (
            &of_store[..],
            "the store",
            [(&service, "delos "), (&farm, "farm ")],
        ),
        (
            &of_delos,
            "a service on log stacks",
            [(&store, ""), (&farm, "farm ")],
        ),
        (
            &of_delos,
            "a service on log stacks",
            [(&foundation, ""), (&farm, "farm ")],
        ),
        (
            &of_farm,
            "the in-memory engine",
            [(&store, ""), (&service, "delos ")],
        ),
    ] {
        for (command, (file, system)) in commands
            .iter()
            .flat_map(|command| others.map(|other| (command, other)))
        {
            let words = command.split(' ').map(|word| match word {
                "DATA" => &data,
                "OUT" => &out,
                word => word,
            });
            let ended = Command::new(BINARY).args(words).args(["-C", file]).output();
            let said = error_line(&ended.expect("the binary was built"));
            let line = format!("{file} is a cluster file of ");
            assert!(said.contains(&line), "{command}: {said}");
            assert!(
                said.contains(&format!(", not of {own}; ")),
                "{command}: {said}"
            );
            let use_ =
                format!("use plinth {system}status -C {file}, or another command of plinth help");
            assert!(said.contains(&use_), "{command}: {said}");
        }
    }
}
