//! The in-memory engine in real processes: three machines of this host, one of which is killed, and what is asked
//! wrongly.

use crate::common::farm::Machines;
use crate::common::{self, BINARY, error_line, text};
use std::process::Command;

#[test]
fn three_machines_keep_what_was_committed_when_one_is_killed_and_comes_back() {
    let mut machines = Machines::new("farm-server", 3);
    (0..3).for_each(|i| machines.start(i));
    let missing = machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(
        missing["missing"]
            .to_string()
            .contains("no cluster was made"),
        "{missing:#}"
    );
    assert!(machines.create().status.success());
    assert!(error_line(&machines.create()).contains("there is a cluster already"));
    let status = machines.whole();
    for machine in status["machines"].as_array().expect("machines") {
        assert_eq!(
            (&machine["primaries"], &machine["backups"]),
            (&1.into(), &2.into())
        );
        assert!(machine["clock_uncertainty_us"].is_number(), "{machine}");
    }
    assert!(
        machines.said(0).contains("it is a member: machine"),
        "{}",
        machines.said(0)
    );
    let said = machines.cli("set a 1; begin; set b 2; get b; commit; getrange a c");
    assert!(
        said.contains("`a' is `1'") && said.contains("`b' is `2'"),
        "{said}"
    );

    // Not the coordinator, which is alone.
    machines.kill(2);
    assert!(machines.cli("get a; set c 3").contains("`a' is `1'"));
    machines.until(|status| {
        status["missing"]
            .to_string()
            .contains("fewer than 3 replicas")
    });
    machines.start(2);
    machines.whole();
    let said = machines.cli("get a; get b; get c; status");
    for pair in [
        "`a' is `1'",
        "`b' is `2'",
        "`c' is `3'",
        "nothing is missing",
    ] {
        assert!(said.contains(pair), "{pair}: {said}");
    }
}

#[test]
fn machines_that_are_told_to_end_leave_no_memory_and_nothing_of_a_cluster_whose_others_live_is_lost()
 {
    let mut machines = Machines::new("farm-told-to-end", 3);
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.create().status.success());
    machines.whole();
    machines.cli("set a 1; set b 2");
    assert_eq!(machines.memories(), 3);
    // Not the coordinator, which is alone.
    for round in 0..2 {
        for i in [2, 1] {
            machines.end(i);
            assert_eq!(machines.memories(), 2, "round {round}, machine {i}");
            let said = machines.cli(&format!("get a; get b; set c{round}{i} 3"));
            assert!(
                said.contains("`a' is `1'") && said.contains("`b' is `2'"),
                "{said}"
            );
            machines.start(i);
            machines.whole();
            assert_eq!(machines.memories(), 3, "round {round}, machine {i}");
        }
    }
    let said = machines.cli("get a; get b; getrange c d");
    let rows = ["c01", "c02", "c11", "c12"];
    let has = |row: &&str| said.contains(&format!("`{row}' is `3'"));
    assert!(rows.iter().all(has), "{said}");
    assert!(
        said.contains("`a' is `1'") && said.contains("`b' is `2'"),
        "{said}"
    );
    (0..3).for_each(|i| machines.end(i));
    assert_eq!(machines.memories(), 0);
}

#[test]
fn a_durable_cluster_whose_processes_were_all_told_to_end_comes_back_from_its_disks() {
    let mut machines = Machines::new("farm-durable-told", 3);
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.create_durable().status.success());
    machines.whole();
    for round in 0..2 {
        machines.cli(&format!("set k{round} {round}"));
        (0..3).for_each(|i| machines.end(i));
        assert_eq!(machines.memories(), 0);
        (0..3).for_each(|i| machines.start(i));
        machines.whole();
        let said = machines.cli("getrange k k~");
        let all = (0..=round).all(|i| said.contains(&format!("`k{i}' is `{i}'")));
        assert!(all, "{said}");
    }
}

#[test]
fn what_is_chosen_when_a_cluster_is_made_is_not_ignored_later() {
    let mut machines = Machines::new("farm-chosen", 1);
    let mut alone = machines.command(0, &["--durable"]);
    let output = alone.output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--durable: it is for a new cluster; add --new"));
    assert!(!machines.directory.file("d0").exists());
    let one = [
        "--new",
        "--machines",
        "1",
        "--replication",
        "1",
        "--regions",
        "1",
        "--region-mib",
        "8",
    ];
    let command = machines.command(0, &one);
    machines.start_as(0, command);
    machines.until(|status| status["serves"] == true);
    let set = format!("set {} 1", "k".repeat(300));
    let refused = machines.shell(&["--exec", &set]).output().expect("it runs");
    let line = error_line(&refused);
    assert!(line.contains("a key has at most 256 bytes"), "{line}");
    machines.end(0);
    let command = machines.command(0, &[&one[..], &["--durable"]].concat());
    machines.start_as(0, command);
    let line = machines.end_of(0);
    assert!(
        line.contains("--durable: there is a cluster, which was made without it"),
        "{line}"
    );
    let command = machines.command(0, &one);
    machines.start_as(0, command);
    machines.until(|status| status["coordinators"][0]["answers"] == true);
}

#[test]
fn a_durable_cluster_keeps_what_was_committed_when_all_processes_and_all_memory_are_gone() {
    let mut machines = Machines::new("farm-durable", 3);
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.create_durable().status.success());
    machines.whole();
    let sets: Vec<String> = (0..50).map(|i| format!("set k{i} {i}")).collect();
    machines.cli(&sets.join("; "));
    for round in 0..2 {
        machines.cli(&format!("set last {round}; clear k{round}"));
        (0..3).for_each(|i| machines.kill(i));
        // As after the loss of power: nothing but the data directories is left.
        std::fs::remove_dir_all(machines.directory.file("memory")).expect("removed");
        (0..3).for_each(|i| machines.start(i));
        machines.whole();
        let said = machines.cli("get last; get k0; get k1; get k49; getrange k k~ 100");
        assert!(said.contains(&format!("`last' is `{round}'")), "{said}");
        assert!(said.contains("`k49' is `49'"), "{said}");
        assert_eq!(said.contains("`k1' is `1'"), round == 0, "{said}");
        assert!(!said.contains("`k0' is"), "{said}");
        let rows = (2..50).filter(|i| said.contains(&format!("`k{i}' is `{i}'")));
        assert_eq!(rows.count(), 48, "{said}");
    }

    // A directory is one machine's, and one that is damaged is refused.
    machines.kill(2);
    let identity = machines.directory.file("d2/machine/identity");
    let bytes = std::fs::read(&identity).expect("it is there");
    std::fs::write(&identity, &bytes[1..]).expect("written");
    machines.start(2);
    let refused = machines.end_of(2);
    assert!(refused.contains("identity: it is damaged"), "{refused}");
    std::fs::write(&identity, bytes).expect("written");
    let journal = machines
        .directory
        .file("d2/machine/journal.0000000000000000");
    let mut bytes = std::fs::read(&journal).expect("it is there");
    bytes[100] ^= 1;
    std::fs::write(&journal, bytes).expect("written");
    machines.start(2);
    let refused = machines.end_of(2);
    assert!(
        refused.contains("is damaged at byte") && refused.contains("d2/machine and start again"),
        "{refused}"
    );
    std::fs::remove_dir_all(machines.directory.file("d2/machine")).expect("removed");
    machines.start(2);
    machines.whole();
    assert!(machines.cli("get k49").contains("`k49' is `49'"));
}

#[test]
fn machines_of_several_hosts_that_start_together_are_one_cluster_and_go_on_when_hosts_die() {
    let mut machines = Machines::new("farm-hosts", 3);
    machines.are_hosts = true;
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    // All wait for that, and then take the lowest number that nobody has.
    assert!(machines.create_durable().status.success());
    machines.whole();
    machines.cli("set a 1; set b 2");
    // Not the coordinator, which is alone.
    machines.kill(1);
    assert!(machines.cli("get a; set c 3").contains("`a' is `1'"));
    machines.start(1);
    machines.whole();
    (0..3).for_each(|i| machines.kill(i));
    for i in 0..3 {
        std::fs::remove_dir_all(machines.memory(i)).expect("removed");
        machines.start(i);
    }
    machines.whole();
    let said = machines.cli("get a; get b; get c");
    for pair in ["`a' is `1'", "`b' is `2'", "`c' is `3'"] {
        assert!(said.contains(pair), "{pair}: {said}");
    }
}

#[test]
fn machines_that_listen_at_all_addresses_are_known_by_their_public_ones() {
    let mut machines = Machines::new("farm-public", 3);
    (machines.are_hosts, machines.are_everywhere) = (true, true);
    let mut alone = Command::new(BINARY);
    alone
        .args(["farm", "server", "--listen", "0.0.0.0:4800", "--data-dir"])
        .arg(machines.directory.file("none"))
        .args(["-C", &machines.file()]);
    let line = error_line(&alone.output().expect("it runs"));
    assert!(line.contains("add --public-address"), "{line}");

    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.create().status.success());
    let status = machines.whole();
    for i in 0..3 {
        assert!(
            status.to_string().contains(&machines.address(i)),
            "{status:#}"
        );
    }
    assert!(
        machines.said(0).contains("known as 127.0.0.1"),
        "{}",
        machines.said(0)
    );
    let said = machines.cli("set a 1; get a");
    assert!(said.contains("`a' is `1'"), "{said}");
}

fn tools_say_that_options_for_tls_are_of_no_use(machines: &Machines) {
    let files = common::certificates::Files::new(&machines.directory.0);
    let [own, key, root] = [("node", "crt"), ("node", "key"), ("ca", "crt")]
        .map(|(name, ending)| files.file(name, ending).display().to_string());
    let given = [
        "--tls-certificate-file",
        &own,
        "--tls-key-file",
        &key,
        "--tls-ca-file",
        &root,
    ];
    let said = text(&machines.run("status", &given).stderr);
    assert!(said.contains("options for TLS are given"), "{said}");
}

fn shells_are_answered(machines: &Machines) {
    let inverted = machines.run("cli", &["--json", "--exec", "getrange b a"]);
    assert_eq!(inverted.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_slice(&inverted.stdout).expect("JSON");
    let line = said["error"].as_str().unwrap_or_default();
    assert!(line.ends_with("(2005); exchange begin and end"), "{line}");
    let apart = machines.directory.file("apart").display().to_string();
    let asked = ["--memory-dir", &apart, "--exec", "get a"];
    let said = text(&machines.run("cli", &asked).stderr);
    assert!(
        said.contains(&format!("--memory-dir {apart} is made")),
        "{said}"
    );
    let said = text(&machines.run("cli", &asked).stderr);
    assert!(!said.contains("is made"), "it is there: {said}");
}

#[test]
fn what_is_asked_wrongly_is_answered_with_one_line() {
    let mut machines = Machines::new("farm-wrong", 2);
    let ends = |mut command: Command| {
        let output = command.output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        said.lines().last().unwrap_or_default().to_owned()
    };
    let none = Command::new(BINARY)
        .args(["farm", "status", "-C", "/nowhere/x.cluster"])
        .output();
    assert!(error_line(&none.expect("it runs")).contains("cluster file /nowhere/x.cluster"));
    let wrong = machines.run("create", &["--machines", "2"]);
    assert!(error_line(&wrong).contains("need as many machines"));
    let silent = machines.run("create", &["--timeout", "1"]);
    assert!(error_line(&silent).contains("no majority of the coordinators answers"));

    machines.start(0);
    let of_one = "--machines 1 --replication 1 --regions 1 --region-mib";
    let of_one: Vec<&str> = of_one.split(' ').collect();
    let too_large = machines.run("create", &[&of_one[..], &["1000000"]].concat());
    let too_large = error_line(&too_large);
    assert!(
        too_large.contains("no room for the memories of such a cluster")
            && too_large.trim_end().ends_with("nothing is made"),
        "{too_large}"
    );
    let one = [&of_one[..], &["8"]].concat();
    assert!(machines.run("create", &one).status.success());
    machines.until(|status| status["serves"] == true);
    shells_are_answered(&machines);
    tools_say_that_options_for_tls_are_of_no_use(&machines);
    let taken = machines.command(0, &[]);
    assert!(ends(taken).contains("another process has it"));
    let port = std::net::TcpListener::bind(machines.address(1)).expect("it is free");
    assert!(ends(machines.command(1, &[])).contains("cannot listen at"));
    drop(port);
    let number = machines.command(1, &["--machine", "0"]);
    let line = format!(
        "--number 0: the process at {} is that machine",
        machines.address(0)
    );
    assert!(ends(number).contains(&line));
    let number = machines.command(1, &["--machine", "32"]);
    assert!(ends(number).contains("numbers are below 32"));
    let large = machines.command(1, &["--old-mib", "1000000"]);
    let large = ends(large);
    assert!(large.contains("no room for a memory of"), "{large}");
    assert!(
        large.contains("smaller ones need another cluster"),
        "{large}"
    );
    let memory = machines.directory.file("memory/machine-1.memory");
    std::fs::write(&memory, [7; 4096]).expect("written");
    let damaged = ends(machines.command(1, &[]));
    assert!(
        damaged.contains("machine-1.memory") && damaged.contains("remove it"),
        "{damaged}"
    );
    std::fs::remove_file(&memory).expect("removed");
    let text = format!("test:another@{}\n", machines.address(0));
    std::fs::write(machines.file(), text).expect("written");
    let wrong = ends(machines.command(1, &[]));
    assert!(
        wrong.contains("belongs to cluster") || wrong.contains("another cluster"),
        "{wrong}"
    );
}
