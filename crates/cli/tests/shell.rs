//! The shell on a real cluster: statements by FoundationDB's names, answers in its form.

#![allow(clippy::disallowed_types)] // processes outside of the runtime

mod common;

use common::Cluster;

#[test]
fn the_shell_answers_in_the_form_that_scripts_read() {
    let cluster = Cluster::start("shell", 1, &["--engine", "memory"]);
    for (statements, answer) in [
        ("status minimal", "The database is available.\n"),
        ("createtenant t", "The tenant `t' has been created\n"),
        ("listtenants", "  1. t\n"),
        (
            "gettenant t",
            "  id: 1\n  prefix: \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\n",
        ),
        (
            "usetenant t; begin; set a b; get a; rollback; get a",
            "Using tenant `t'\nTransaction started\n`a' is `b'\nTransaction rolled back\n`a': not found\n",
        ),
        (
            "tenant delete t; tenant list",
            "The tenant `t' has been deleted\nThe cluster has no tenants\n",
        ),
        ("option", "No options are on\n"),
        (
            "option on timeout 5000; option on read_system_keys; option off timeout; option",
            "Option changed; transactions from now on have it so\nOption changed; transactions from now on have it so\nOption changed; transactions from now on have it so\n  read_system_keys\n",
        ),
        ("waitconnected; waitopen; sleep 0.01", ""),
    ] {
        assert_eq!(cluster.cli(statements), answer, "{statements}");
    }
    let address = cluster.addresses()[0].to_string();
    assert_eq!(cluster.cli("getlocation a"), format!("  {address}\n"));
    assert!(
        cluster
            .cli("coordinators")
            .contains(&format!("Cluster coordinators (1): {address}"))
    );
    let keys = cluster.cli("option on read_system_keys; getrangekeys \\xff/ \\xff/z");
    assert!(keys.contains("\\xff/conf"), "{keys}");
}
