//! Disks come back with older or damaged files, or with another database.

use super::page::Section;
use crate::common::machines::{Machines, may_fail};
use crate::common::{copy_directory, text};
use std::fs;

const DOUBLE: &str = "configure new double ssd";

/// While a disk is full, its machine is neither a coordinator nor a place for a log server, and status does not count
/// it as one.
#[test]
fn a_disk_fills_up_and_another_machine_dies() {
    let page = Section::runbook("A full disk");
    let mut machines = Machines::new("full", 2, 3);
    machines.give_small_disk(3, 64);
    machines.start(3);
    machines.cli(&format!("{DOUBLE}; set row 0"));
    machines.wait_until_whole(3);
    let mut value = 0;
    machines.small_disk().fill();
    page.says("`plinth status` says `disk full`");
    machines.wait_until("status does not name the disk", |status| {
        status.to_string().contains("\"disk_full\":true") && may_fail(status) == 0
    });
    let output = machines.status_output(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("0 zones of"),
        "{}",
        text(&output.stdout)
    );
    machines.kill(1);
    page.says("a client command that times out says *waits: the disk is full at …*");
    let line = machines.cli_fails("set row 1");
    let words = format!("waits: the disk is full at {}", machines.address(3));
    assert!(line.contains(&words), "{line}");
    page.says("Make room. Everything resumes by itself");
    machines.small_disk().remount("size=400m");
    let said = machines.cli("get row; set row 1");
    assert!(said.contains("is `0'") || said.contains("is `1'"), "{said}"); // the commit above may have come through
    value += 1;
    machines.start(1);
    machines.wait_until_whole(3);
    machines.kill(2);
    machines.goes_on(&mut value);
}

#[test]
fn a_full_disk_of_a_mere_coordinator_is_named_before_and_while_the_database_stands_still() {
    let mut machines = Machines::new("full-coordinator", 2, 3);
    machines.give_small_disk(3, 64);
    machines.start_with(3, &["--class", "stateless"]);
    machines.start(4);
    machines.cli(&format!("{DOUBLE}; set row 0"));
    machines.wait_until_whole(4);
    machines.small_disk().fill();
    machines.wait_until("status counts it", |status| may_fail(status) == 0);
    let output = machines.status_output(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    let words = format!("available, and with a full disk at {}", machines.address(3));
    assert!(said.contains(&words), "{said}");
    machines.kill(1);
    let line = machines.cli_fails("set row 1");
    let words = format!("waits: the disk is full at {}", machines.address(3));
    assert!(line.contains(&words), "{line}");
    machines.small_disk().remount("size=400m");
    let said = machines.cli("get row");
    assert!(said.contains("is `0'") || said.contains("is `1'"), "{said}");
}

#[test]
fn an_older_copy_is_put_back_while_another_machine_dies() {
    let page = Section::runbook("An older copy");
    page.says("the others give its data to a new storage server");
    let mut machines = Machines::with_database("older", 3, DOUBLE);
    let mut value = 0;
    machines.stop(3);
    let copy = machines.directory.file("copy");
    copy_directory(&machines.data(3), &copy);
    machines.goes_on(&mut value);
    machines.wait_until("nothing is copied", |status| {
        status["full_replication"] == true
    });
    copy_directory(&copy, &machines.data(3));
    machines.start(3);
    machines.kill(2);
    machines.goes_on(&mut value);
    machines.start(2);
    machines.wait_until_whole(3);
    machines.kill(1);
    machines.goes_on(&mut value);
}

#[test]
fn a_damaged_storage_server_is_made_anew_though_its_machine_dies_meanwhile() {
    let page = Section::runbook("Damaged files");
    page.says("it does not count as a replica, and its files stay in their place until the others have made a new");
    let mut machines = Machines::with_database("damaged", 3, DOUBLE);
    let mut value = 0;
    machines.stop(3);
    machines.goes_on(&mut value);
    let files = fs::read_dir(machines.data(3)).expect("it is there");
    let names = files.map(|entry| entry.expect("an entry").path());
    let data: Vec<_> = names
        .filter(|name| name.extension().is_some_and(|end| end == "redb"))
        .collect();
    assert!(!data.is_empty());
    for name in &data {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(name)
            .expect("it is there");
        let half = file.metadata().expect("it is there").len() / 2;
        file.set_len(half).expect("it can be cut");
    }
    machines.start(3);
    machines.goes_on(&mut value);
    machines.kill(3);
    machines.goes_on(&mut value);
    machines.start(3);
    machines.wait_until_whole(3);
    machines.kill(1);
    machines.goes_on(&mut value);
}

#[test]
fn one_of_two_databases_is_chosen_though_a_machine_is_away() {
    let page = Section::runbook("Two databases of one cluster");
    let mut machines = Machines::with_database("two", 3, DOUBLE);
    let former = |machines: &Machines, i: usize| machines.directory.file(&format!("former-{i}"));
    let set_aside =
        |machines: &Machines, i| fs::rename(machines.data(i), former(machines, i)).expect("moves");
    let mut first = 0;
    machines.goes_on(&mut first);
    (1..=3).for_each(|i| machines.stop(i));
    for i in [1, 2] {
        set_aside(&machines, i); // their disks are not mounted at this boot
        machines.start(i);
    }
    let force = page.command("configure new double ssd force");
    let refused = machines.cli_fails(force.trim_end_matches(" force"));
    page.says("cannot be reached, and may hold data of this cluster");
    assert!(
        refused.contains("may hold data of this cluster"),
        "{refused}"
    );
    let made = machines.cli(&format!("{force}; set row 100"));
    assert!(made.contains("Database created"), "{made}");
    let mut second = 100;
    machines.start(3);
    page.says("ends with exit code 1 and this line");
    assert_eq!(machines.end_of(3), Some(1));

    page.says("Start the servers of the former one over empty directories, at the same addresses.");
    set_aside(&machines, 3);
    machines.start(3);
    machines.wait_until_whole(3);
    machines.kill(1);
    machines.goes_on(&mut second);

    page.says("Move the data directories of the new database away, and mount the former disks");
    machines.stop(2);
    machines.stop(3);
    for i in 1..=3 {
        let new = machines.directory.file(&format!("new-{i}"));
        fs::rename(machines.data(i), new).expect("moves");
        fs::rename(former(&machines, i), machines.data(i)).expect("moves");
    }
    machines.start(2);
    machines.start(3);
    machines.goes_on(&mut first);
    machines.start(1);
    machines.wait_until_whole(3);
}
