//! Machines are drained, restarted, added and lost.

use super::Waiting;
use super::page::Section;
use crate::common::machines::{Machines, may_fail};
use std::path::Path;

const DOUBLE: &str = "configure new double ssd";
const LEAVES: &str = "waiting for data to leave";

#[test]
fn a_server_is_drained_while_another_machine_dies_and_while_it_dies_itself() {
    let page = Section::runbook("Drain a server");
    let mut machines = Machines::with_database("drain", 4, DOUBLE);
    let exclude = machines.here(&page.command("exclude 10.0.0.3"));
    let include = machines.here(&page.command("include 10.0.0.3"));
    let mut value = 0;

    let mut drained = Waiting::begin(&machines, &exclude);
    drained.hear(LEAVES);
    machines.kill(1);
    let said = drained.answer();
    page.says("another one takes its place, and the statement says which");
    for words in ["they can be stopped", "Coordinators changed"] {
        assert!(said.contains(words), "{said}");
    }
    machines.stop(3);
    machines.goes_on(&mut value);
    machines.start(1);
    machines.wait_until_whole(3);
    machines.start(3);
    machines.cli(&include);
    machines.wait_until_whole(4);

    let mut drained = Waiting::begin(&machines, &exclude);
    drained.hear(LEAVES);
    machines.kill(3);
    let said = drained.answer();
    assert!(said.contains("they can be stopped"), "{said}");
    machines.goes_on(&mut value);
    machines.start(3);
    machines.cli(&include);
    machines.wait_until_whole(4);
    machines.goes_on(&mut value);
}

/// On the three machines of the deployment that the pages recommend nobody can take the place of a coordinator.
#[test]
fn a_disk_of_three_machines_is_replaced_and_what_is_missing_meanwhile_is_said() {
    Section::runbook("A sick disk").says("Replace the disk. First [drain the server]");
    let page = Section::runbook("Drain a server");
    let mut machines = Machines::with_database("drain-of-three", 3, DOUBLE);
    let exclude = machines.here(&page.command("exclude 10.0.0.3"));
    let include = machines.here(&page.command("include 10.0.0.3"));
    let mut value = 0;

    let mut drained = Waiting::begin(&machines, &exclude);
    drained.hear(LEAVES);
    machines.kill(1);
    let lack = drained.hear("no data leaves");
    assert!(
        lack.contains("there would be processes for them in 1"),
        "{lack}"
    );
    assert!(lack.contains("`include' calls it off"), "{lack}");
    machines.start(1);
    let said = drained.answer();
    page.says("and says how many are left, and how many of these may fail");
    for words in [
        "no other process can take its place",
        "2 of 3 are left, and no other one may fail",
    ] {
        assert!(said.contains(words), "{said}");
    }
    machines.wait_until_whole(3);
    let auto = page.command("coordinators auto");
    let refused = machines.cli_fails(&auto);
    assert!(refused.contains("Start more processes"), "{refused}");
    assert!(!refused.contains("makes it 1"), "{refused}");

    machines.stop(3);
    machines.goes_on(&mut value);
    std::fs::remove_dir_all(machines.data(3)).expect("it is there");
    machines.start(3);
    machines.cli(&include);
    machines.wait_until_whole(3);
    machines.kill(1);
    machines.goes_on(&mut value);
}

/// The runbook of `docs/operating.md` and the section of `docs/deploying.md` are one.
#[test]
fn servers_are_restarted_one_by_one_and_another_one_dies_meanwhile() {
    let page = Section::runbook("Restart or upgrade");
    page.says("Check that `plinth status` shows full replication.");
    Section::of("docs/deploying.md", "Upgrade").says("shows the server and full replication again");
    let mut machines = Machines::with_database("restart", 3, DOUBLE);
    let mut value = 0;
    for i in 1..=3 {
        let other = i % 3 + 1;
        machines.stop(i);
        machines.goes_on(&mut value);
        machines.kill(other);
        let line = machines.cli_fails("get row");
        let away = machines.address(other);
        assert!(
            line.contains(&away) && line.contains("cannot be reached"),
            "{line}"
        );
        machines.start(i);
        machines.goes_on(&mut value);
        machines.start(other);
        machines.wait_until_whole(3);
    }
}

#[test]
fn a_zone_is_under_maintenance_while_a_machine_of_another_one_dies() {
    let page = Section::runbook("Maintenance");
    let mut machines = Machines::with_database("maintenance", 4, DOUBLE);
    let mut value = 0;
    let shown = |machines: &Machines| machines.cli("maintenance");
    machines.cli(&page.command("maintenance on rack1"));
    assert!(shown(&machines).contains("rack1"), "{}", shown(&machines));
    machines.kill(1);
    machines.goes_on(&mut value);
    machines.start(1);
    machines.wait_until_whole(4);
    assert!(shown(&machines).contains("rack1"), "{}", shown(&machines));
    machines.stop(1);
    page.says("as soon as a storage server of another zone fails");
    machines.kill(4);
    machines.start(1); // some of the data was on these two only
    machines.goes_on(&mut value);
    machines.wait_until("the maintenance does not end", |_| {
        shown(&machines).contains("No ongoing maintenance")
    });
    machines.cli(&page.command("maintenance off"));
    machines.wait_until_whole(3);
    machines.kill(2);
    machines.goes_on(&mut value);
}

#[test]
fn a_server_is_added_while_another_machine_dies_and_dies_itself() {
    let page = Section::runbook("Add servers");
    let mut machines = Machines::with_database("add", 3, DOUBLE);
    let mut value = 0;
    page.says("with the cluster file, the key file beside it");
    machines.start(4);
    machines.kill(2);
    let said = machines.cli(&page.command("configure logs=4"));
    assert!(said.contains("instead of 4"), "{said}");
    machines.goes_on(&mut value);
    machines.start(2);
    machines.wait_until_whole(4);
    machines.kill(4);
    machines.goes_on(&mut value);
    machines.start(4);
    machines.wait_until_whole(4);
    machines.kill(1);
    machines.goes_on(&mut value);
}

/// The machine never comes back, another one takes its place as a coordinator, and then others die.
#[test]
fn a_server_that_is_gone_is_replaced_and_the_next_one_may_die() {
    let page = Section::runbook("A server is gone");
    let auto = page.command("coordinators auto");
    let mut machines = Machines::with_database("gone", 4, DOUBLE);
    let mut value = 0;
    machines.kill(1);
    machines.wait_until("nothing is copied", |status| {
        status["full_replication"] == true
    });
    page.says("Until then it counts as a missing coordinator");
    assert_eq!(may_fail(&machines.status()), 0, "{:#}", machines.status());
    let said = machines.cli(&auto);
    assert!(said.contains(&machines.address(4)), "{said}");
    machines.wait_until_whole(3);
    machines.kill(2);
    machines.goes_on(&mut value);
    page.says("it refuses to make the coordinators fewer, and says how to do that");
    let refused = machines.cli_fails(&auto);
    assert!(refused.contains("nothing has changed"), "{refused}");
    assert!(refused.contains("makes them fewer"), "{refused}");
    page.says("it drops what others hold by now and starts as an empty server");
    machines.start(1);
    machines.goes_on(&mut value);
    machines.start(2);
    machines.wait_until_whole(4);
    machines.kill(3);
    machines.goes_on(&mut value);
}

#[test]
fn after_a_power_failure_one_machine_stays_away() {
    let page = Section::runbook("After a power failure");
    page.says("If a machine is lost for good, start the others");
    let mut machines = Machines::with_database("power", 3, DOUBLE);
    let mut value = 0;
    machines.goes_on(&mut value);
    for lost in 1..=3 {
        (1..=3).for_each(|i| machines.kill(i));
        (1..=3)
            .filter(|i| *i != lost)
            .for_each(|i| machines.start(i));
        machines.goes_on(&mut value);
        machines.start(lost);
        machines.wait_until_whole(3);
    }
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("it is there");
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// `docs/deploying.md`: a dump, a copy and a load of what was dumped, each while a machine dies.
#[test]
fn a_backup_is_taken_and_loaded_while_a_machine_dies() {
    let page = Section::of("docs/deploying.md", "Backup");
    let mut machines = Machines::with_database("backup", 3, DOUBLE);
    let mut others = Machines::with_database("restored", 3, DOUBLE);
    others.cli("clear row");
    let rows: String = (0..2000)
        .map(|i| format!("row/{i:05}\tvalue {i}\n"))
        .collect();
    let file = machines.directory.file("rows");
    std::fs::write(&file, rows).expect("can be written");
    let run = |machines: &mut Machines, line: String, lost: usize| {
        let mut command = std::process::Command::new(crate::common::BINARY);
        command
            .args(line.split(' ').skip(1))
            .current_dir(&machines.directory.0);
        let mut child = command.spawn().expect("the binary was built");
        machines.kill(lost);
        let status = child.wait().expect("it is ours");
        assert!(status.success(), "{line}");
        machines.start(lost);
        machines.wait_until_whole(3);
    };
    let dump = format!(
        "{} -C plinth.cluster",
        page.command("plinth dump all.jsonl")
    );
    run(
        &mut machines,
        "plinth load rows -C plinth.cluster".into(),
        1,
    );
    run(&mut machines, dump.clone(), 2);
    let dumped = lines(&machines.directory.file("all.jsonl"));
    assert_eq!(dumped.len(), 2001);

    let load = format!(
        "{} -C plinth.cluster",
        page.command("plinth load all.jsonl")
    );
    std::fs::copy(
        machines.directory.file("all.jsonl"),
        others.directory.file("all.jsonl"),
    )
    .expect("copies");
    run(&mut others, load, 3);
    run(&mut others, dump.replace("all.jsonl", "again.jsonl"), 1);
    assert_eq!(lines(&others.directory.file("again.jsonl")), dumped);

    others.cli("clearrange row row0");
    let other = others.cluster_file();
    let copy = page
        .command("plinth copy")
        .replace("other.cluster", other.to_str().expect("a name"));
    run(&mut machines, copy, 1);
    run(&mut others, dump.replace("all.jsonl", "copied.jsonl"), 2);
    assert_eq!(lines(&others.directory.file("copied.jsonl")), dumped);
}
