//! Coordinators move, and are lost.

use super::Waiting;
use super::page::Section;
use crate::common::copy_directory;
use crate::common::machines::{Machines, may_fail};

const DOUBLE: &str = "configure new double ssd";

/// The command of a page for these machines.
fn with_all(machines: &Machines, command: &str, all: [usize; 3]) -> String {
    let addresses = all.map(|i| machines.address(i));
    command.replace("IP:PORT…", &addresses.join(" "))
}

#[test]
fn coordinators_move_while_machines_are_away_and_die() {
    let page = Section::runbook("Move the coordinators");
    let name = page.command("coordinators IP:PORT…");
    let mut machines = Machines::with_database("move", 4, DOUBLE);
    let mut value = 0;

    machines.kill(1);
    let said = machines.cli(&with_all(&machines, &name, [2, 3, 4]));
    assert!(said.contains("Coordinators changed"), "{said}");
    machines.start(1);
    machines.wait_until_whole(4);
    page.says("Processes that are down during the change start with the old file.");
    let file = std::fs::read_to_string(machines.own_file(1)).expect("it is there");
    assert!(file.contains(&machines.address(4)), "{file}");
    machines.kill(2);
    machines.goes_on(&mut value);
    machines.start(2);
    machines.wait_until_whole(4);

    let moving = with_all(&machines, &name, [1, 2, 3]);
    let moving = Waiting::begin(&machines, &moving);
    machines.kill(4);
    let said = moving.answer();
    assert!(said.contains("Coordinators changed"), "{said}");
    machines.goes_on(&mut value);
    page.says("a single one, or two where there were more, is refused");
    let one = name.replace("IP:PORT…", &machines.address(2));
    let refused = machines.cli_fails(&one);
    assert!(refused.contains("Nothing has changed"), "{refused}");
    machines.cli(&page.command("coordinators auto"));
    machines.start(4);
    machines.wait_until_whole(4);
    machines.kill(3);
    machines.goes_on(&mut value);
}

fn lose_file(machines: &Machines, i: usize) {
    let file = machines.data(i).join("coordination");
    std::fs::remove_file(file).expect("it is there");
}

#[test]
fn a_coordinator_that_has_lost_its_file_is_named_anew_before_the_next_one_dies() {
    let page = Section::runbook("Lost coordinators");
    let mut machines = Machines::with_database("lost-one", 3, DOUBLE);
    let mut value = 0;
    machines.kill(2);
    lose_file(&machines, 2);
    machines.start(2);
    machines.wait_until("status does not name it", |status| {
        let said = status["messages"].to_string();
        said.contains(&machines.address(2)) && said.contains("has lost what it promised")
    });
    page.says("until then they count as missing");
    assert_eq!(may_fail(&machines.status()), 0, "{:#}", machines.status());
    let name = page.command("coordinators IP:PORT…");
    page.says("(the same ones, if you like)");
    let said = machines.cli(&with_all(&machines, &name, [1, 2, 3]));
    assert!(said.contains("Coordinators changed"), "{said}");
    machines.wait_until_whole(3);
    machines.kill(3);
    machines.goes_on(&mut value);
    page.says("Start those servers at their old addresses over their data directories");
    machines.kill(2);
    let line = machines.cli_fails("get row");
    assert!(line.contains("cannot be reached"), "{line}");
    machines.start(3);
    machines.goes_on(&mut value);
    machines.start(2);
    machines.wait_until_whole(3);
}

#[test]
fn a_majority_of_the_files_is_lost_and_a_machine_dies_when_the_others_have_begun_anew() {
    let page = Section::runbook("Lost coordinators");
    let flag = page.command("--accept-lost-coordination");
    let mut machines = Machines::with_database("lost-most", 3, DOUBLE);
    let mut value = 0;
    machines.goes_on(&mut value);
    (1..=3).for_each(|i| machines.stop(i));
    page.says("Stop all servers and copy every data directory to another place.");
    for i in 1..=3 {
        let copy = machines.directory.file(&format!("copy-{i}"));
        copy_directory(&machines.data(i), &copy);
    }
    for i in [2, 3] {
        lose_file(&machines, i);
        machines.start_with(i, &[&flag]);
    }
    machines.start(1);
    machines.goes_on(&mut value);
    machines.kill(1);
    machines.goes_on(&mut value);
    machines.start(1);
    machines.wait_until_whole(3);
    machines.kill(2);
    machines.goes_on(&mut value);

    page.says("`configure new` is refused while a server holds data.");
    (1..=3).filter(|i| *i != 2).for_each(|i| machines.kill(i));
    (1..=3).for_each(|i| lose_file(&machines, i));
    machines.start(1);
    machines.start(2);
    let refused = machines.cli_fails(&page.command("configure new"));
    assert!(refused.contains("has lost its file"), "{refused}");
}
