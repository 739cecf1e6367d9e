//! Each deployment that a page shows goes on after the loss of any one of its machines. A machine is an address of its
//! own here.

use crate::common::machines::Machines;
use std::path::PathBuf;

const MACHINES: usize = 3;
/// Pages and files that make a database on three machines, and what they say before the statement that does.
const PAGES: [(&str, &str); 3] = [
    ("docs/deploying.md", "plinth cli --exec '"),
    ("docs/operating.md", "plinth.cluster --exec '"),
    (
        "packaging/kubernetes/plinth.yaml",
        "plinth status || plinth cli --exec '",
    ),
];

/// The statement by which a page makes the database.
fn statement(page: &str, before: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let text = std::fs::read_to_string(path.join(page)).expect("the page is there");
    let begin = format!("{before}configure new ");
    let mut found = text.lines().filter_map(|line| line.split_once(&begin));
    let (_, rest) = found
        .next()
        .unwrap_or_else(|| panic!("{page} makes no database"));
    let words = rest.split('\'').next().expect("it ends");
    format!("configure new {words}")
}

#[test]
fn every_deployment_of_a_page_goes_on_without_any_one_of_its_machines() {
    for (page, before) in PAGES {
        let make = statement(page, before);
        let mut machines = Machines::new("deployment", MACHINES, MACHINES);
        let made = machines.cli(&make);
        assert!(made.contains("Database created"), "{page}: {made}");
        assert!(!made.contains("stands still"), "{page}: {made}");
        machines.cli("set row 0");
        let mut value = 0;
        for lost in 1..=MACHINES {
            machines.wait_until_whole(MACHINES);
            machines.kill(lost);
            machines.goes_on(&mut value);
            machines.start(lost);
        }
        machines.goes_on(&mut value);
    }
}
