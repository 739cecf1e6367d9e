//! The configuration changes, by the statements of its table.

use super::Waiting;
use super::page::Section;
use crate::common::machines::Machines;

#[test]
fn engine_copies_and_lock_change_while_a_machine_dies() {
    let page = Section::of("docs/operating.md", "Configuration");
    let mut machines = Machines::with_database("configuration", 4, "configure new double ssd");
    let mut value = 0;

    let engine = Waiting::begin(&machines, &page.command("configure memory"));
    machines.kill(4);
    engine.answer();
    machines.goes_on(&mut value);
    machines.start(4);
    machines.wait_until("the engine does not change", |status| {
        let servers = status["storage_servers"].as_array();
        let mut engines = servers
            .into_iter()
            .flatten()
            .map(|server| &server["engine"]);
        servers.is_some_and(|all| all.len() == 4) && engines.all(|engine| engine == "memory")
    });
    machines.wait_until_whole(4);

    let copies = page.command("configure double").replace("double", "triple");
    // With one machine less it would be refused.
    machines.cli(&copies);
    machines.kill(3);
    machines.goes_on(&mut value);
    machines.start(3);
    machines.wait_until_whole(4);

    let said = machines.cli(&page.command("lock"));
    let (_, id) = said.split_once("`unlock ").expect("it says how to unlock");
    let (id, _) = id.split_once('\'').expect("it ends");
    machines.kill(2);
    let refused = machines.cli_fails("get row");
    assert!(refused.contains("the database is locked"), "{refused}");
    machines.cli(&page.command("unlock ID").replace("ID", id));
    machines.goes_on(&mut value);
    machines.start(2);
    machines.wait_until_whole(4);
    let compared = machines.cli("consistencycheck");
    assert!(compared.contains("All replicas are the same"), "{compared}");
}
