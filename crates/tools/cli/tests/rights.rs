//! What applications may do that have only a copy of the cluster file: without a token, and with one.

use crate::common::client_programs::{command, installed, run, source};
use crate::common::{BINARY, Cluster, error_line, plinth, text};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// All servers know a change by then.
const KNOWN: Duration = Duration::from_secs(4);

fn cli(statement: &str, cluster_file: &Path) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["cli", "--timeout", "5", "--exec", statement, "-C"]);
    command.arg(cluster_file).output().expect("it runs")
}

fn done(statement: &str, cluster_file: &Path) -> String {
    let output = cli(statement, cluster_file);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn denied(statement: &str, cluster_file: &Path) {
    let line = error_line(&cli(statement, cluster_file));
    assert!(line.contains("6000"), "{statement}: {line}");
}

fn token(arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    let output = command.arg("token").args(arguments).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A cluster, and a copy of its cluster file without the key file: whoever has it is a client.
fn cluster(name: &str) -> (Cluster, PathBuf, PathBuf) {
    let cluster = Cluster::start(name, 1, &["--engine", "memory"]);
    let own = cluster.cluster_file();
    let directory = own.with_file_name("elsewhere");
    std::fs::create_dir_all(&directory).expect("a directory");
    let copy = directory.join("plinth.cluster");
    std::fs::copy(&own, &copy).expect("a copy");
    (cluster, own, copy)
}

#[test]
fn tenants_locks_and_system_keys_are_for_operators() {
    let (_cluster, own, copy) = cluster("rights");
    done("writemode on; set a 1", &copy);
    for statement in [
        "writemode on; createtenant t",
        "writemode on; option on lock_aware; set a 9",
        "writemode on; option on access_system_keys; set \\xff/conf x",
    ] {
        denied(statement, &copy);
    }
    done("writemode on; createtenant t", &own);
    done("writemode on; option on lock_aware; set a 2", &own);
    // What an operator has made, a client uses.
    done("usetenant t; writemode on; set b 1", &copy);
    assert!(done("get a", &copy).contains('2'));
}

#[test]
fn a_token_is_made_trusted_used_and_revoked_with_the_tools_of_a_user() {
    let (_cluster, own, copy) = cluster("tokens");
    let key = own.with_file_name("web.sign");
    let key = key.to_str().expect("text");
    let made = token(&["new", "--name", "web", "--out", key]);
    let mode = std::fs::metadata(key).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let trust = made.lines().last().expect("a statement");
    done("writemode on; set app/a 1; set other 1", &own);
    done(trust, &own);
    done("configure clients=tokens", &own);
    let listed = done("listtrusted", &own);
    let public = trust.split(' ').next_back().expect("a key");
    assert!(
        listed.contains("clients=tokens") && listed.contains(public),
        "{listed}"
    );
    std::thread::sleep(KNOWN);
    denied("get app/a", &copy);
    denied("writemode on; set app/a 2", &copy);
    let refused = error_line(&plinth(&copy, &["stream", "list"]));
    assert!(refused.contains("configure clients="), "{refused}");
    assert!(done("get app/a", &own).contains('1'), "operators need none");

    let sign = |time: &str| {
        let grants = ["--read", "app/", "--write", "app/", "--for", time];
        let signed = token(&[&["sign", "--key", key][..], &grants].concat());
        signed.trim().to_owned()
    };
    let python = |token: &str, expected: &str| {
        let mut python = command(installed("python/bin/python"));
        let python = python.arg(source("tokens.py")).arg(&copy);
        assert_eq!(run(python.arg(token).arg(expected)), "done\n");
    };
    let good = sign("1h");
    python(&good, "granted");
    python("", "denied");
    let short = sign("1s");
    std::thread::sleep(Duration::from_secs(1));
    python(&short, "denied");
    assert!(done("get app/a", &own).contains("from python"));

    done("revoke web", &own);
    std::thread::sleep(KNOWN);
    python(&good, "denied");
    done("configure clients=all", &own);
    std::thread::sleep(KNOWN);
    done("writemode on; set other 2", &copy);
}

#[test]
fn a_user_with_a_token_tries_it_with_every_command_for_data_and_is_told_where_it_ends() {
    let (cluster, own, copy) = cluster("token-user");
    let path = |name: &str| own.with_file_name(name).display().to_string();
    let key = path("web.sign");
    let made = token(&["new", "--name", "web", "--out", &key]);
    done("writemode on; createtenant shop; createtenant other", &own);
    done(
        "usetenant shop; writemode on; set a 1; defaulttenant; set app/a 1; set b 1",
        &own,
    );
    done(made.lines().last().expect("a statement"), &own);
    done("configure clients=tokens", &own);
    let number = done("gettenant shop", &own);
    assert!(number.contains('1'), "{number}");
    let signed = |name: &str, grants: &[&str]| {
        let file = path(name);
        let text = token(&[&["sign", "--key", &key][..], grants].concat());
        std::fs::write(&file, &text).expect("written");
        (file, text.trim().to_owned())
    };
    let of_app = ["--read", "app/", "--write", "app/", "--for"];
    let (app, text_of_app) = signed("app.token", &[&of_app[..], &["1h"]].concat());
    let (shop, _) = signed("shop.token", &["--tenant", "1", "--for", "1h"]);
    let (short, _) = signed("short.token", &[&of_app[..], &["1s"]].concat());
    std::thread::sleep(KNOWN);

    let run = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .args(["--timeout", "5", "-C"])
            .arg(&copy);
        command.output().expect("it runs")
    };
    let says = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    let fails = |arguments: &[&str]| {
        let line = error_line(&run(arguments));
        let parts: Vec<&str> = text_of_app.split('.').collect();
        assert!(parts.iter().all(|part| !line.contains(part)), "{line}");
        line
    };
    let get = ["cli", "--exec", "get app/a"];
    let line = fails(&get);
    assert!(
        line.contains("no token is shown: name the file of one with --token"),
        "{line}"
    );
    let shown = [&get[..], &["--token", &app]].concat();
    assert!(says(&shown).contains("`app/a' is `1'"));
    let written = [
        "cli",
        "--token",
        &app,
        "--exec",
        "writemode on; set app/b 2",
    ];
    says(&written);
    // Outside of what it grants.
    let line = fails(&["cli", "--token", &app, "--exec", "get b"]);
    assert!(
        line.contains("does not grant that") && line.contains("plinth token show"),
        "{line}"
    );
    assert!(
        says(&["cli", "--token", &shop, "--exec", "usetenant shop; get a"]).contains("`a' is `1'")
    );
    let line = fails(&["cli", "--token", &shop, "--exec", "usetenant other; get a"]);
    assert!(line.contains("does not grant that"), "{line}");
    // In the shell, and for one statement.
    let option = format!("option on authorization_token {app}; get app/a; option");
    let said = says(&["cli", "--exec", &option]);
    assert!(
        said.contains("`app/a' is `1'") && said.contains("authorization_token"),
        "{said}"
    );
    let typed = format!("option on authorization_token {text_of_app}");
    let line = fails(&["cli", "--exec", &typed]);
    assert!(line.contains("that is a token itself"), "{line}");
    // The other commands, and the variable.
    let (pairs, begin, end) = (path("app.tsv"), ["--begin", "app/"], ["--end", "app0"]);
    says(&[&["dump", &pairs, "--token", &app][..], &begin, &end].concat());
    assert_eq!(
        std::fs::read_to_string(&pairs).expect("written"),
        "app/a\t1\napp/b\t2\n"
    );
    says(&["load", &pairs, "--token", &app]);
    let mut by_variable = Command::new(BINARY);
    by_variable
        .args(get)
        .arg("-C")
        .arg(&copy)
        .env("PLINTH_TOKEN_FILE", &app);
    assert!(by_variable.output().expect("it runs").status.success());
    let target = Cluster::start("token-target", 1, &["--engine", "memory"]);
    let to = target.cluster_file().display().to_string();
    let from = copy.display().to_string();
    let copying = [
        "copy",
        "--from",
        &from,
        "--to",
        &to,
        "--from-token",
        &app,
        "--begin",
        "app/",
    ];
    let progress = path("copy.progress");
    let copying = [&copying[..], &["--end", "app0", "--progress", &progress]].concat();
    let output = Command::new(BINARY)
        .args(copying)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(target.cli("get app/b").contains("`app/b' is `2'"));
    // After its end.
    let line = fails(&[&get[..], &["--token", &short]].concat());
    assert!(
        line.contains("short.token is over since") && line.contains("6000"),
        "{line}"
    );
    drop(cluster);
}
