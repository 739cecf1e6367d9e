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

/// Somebody with a copy of the cluster file and some tokens.
struct User {
    directory: PathBuf,
    copy: PathBuf,
    /// The token in `app.token`, which no line may have.
    secret: String,
}

impl User {
    /// Of a cluster in which clients need tokens, and which has `app/a`, `b`, and the tenants `shop` and `other`.
    fn of(own: &Path, copy: PathBuf) -> User {
        let directory = own.with_file_name("");
        let key = directory.join("web.sign").display().to_string();
        let made = token(&["new", "--name", "web", "--out", &key]);
        done("writemode on; createtenant shop; createtenant other", own);
        done(
            "usetenant shop; writemode on; set a 1; defaulttenant; set app/a 1; set b 1",
            own,
        );
        done(made.lines().last().expect("a statement"), own);
        done("configure clients=tokens", own);
        assert!(done("gettenant shop", own).contains('1'));
        let signed = |name: &str, grants: &[&str]| {
            let text = token(&[&["sign", "--key", &key][..], grants].concat());
            std::fs::write(directory.join(name), &text).expect("written");
            text.trim().to_owned()
        };
        let app = ["--read", "app/", "--write", "app/", "--for"];
        let secret = signed("app.token", &[&app[..], &["1h"]].concat());
        signed("short.token", &[&app[..], &["1s"]].concat());
        signed("shop.token", &["--tenant", "1", "--for", "1h"]);
        std::thread::sleep(KNOWN);
        User {
            directory,
            copy,
            secret,
        }
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--timeout", "5", "-C"]);
        let command = command.arg(&self.copy).current_dir(&self.directory);
        command.output().expect("it runs")
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        text(&output.stdout)
    }

    fn fails(&self, arguments: &[&str], words: &str) {
        let line = error_line(&self.run(arguments));
        assert!(line.contains(words), "{arguments:?}: {line}");
        let mut parts = self.secret.split('.');
        assert!(parts.all(|part| !line.contains(part)), "{line}");
    }
}

const GET: [&str; 3] = ["cli", "--exec", "get app/a"];

#[test]
fn a_user_with_a_token_uses_the_shell_with_it_and_is_told_what_it_does_not_grant_and_when_it_is_over()
 {
    let (_cluster, own, copy) = cluster("token-user");
    let user = User::of(&own, copy);
    user.fails(&GET, "no token is shown: name the file of one with --token");
    let shown = [&GET[..], &["--token", "app.token"]].concat();
    assert!(user.says(&shown).contains("`app/a' is `1'"));
    let with = |file, statements| ["cli", "--token", file, "--exec", statements];
    user.says(&with("app.token", "writemode on; set app/b 2"));
    user.fails(&with("app.token", "get b"), "`plinth token show app.token'");
    user.fails(
        &with("app.token", "writemode on; set b 2"),
        "does not grant that",
    );
    let read = user.says(&with("shop.token", "usetenant shop; get a"));
    assert!(read.contains("`a' is `1'"), "{read}");
    user.fails(
        &with("shop.token", "usetenant other; get a"),
        "does not grant that",
    );
    let option = "option on authorization_token app.token; get app/a; option";
    let said = user.says(&["cli", "--exec", option]);
    assert!(said.contains("`app/a' is `1'"), "{said}");
    assert!(said.contains("authorization_token app.token"), "{said}");
    let typed = format!("option on authorization_token {}", user.secret);
    user.fails(&["cli", "--exec", &typed], "that is a token itself");
    let late = [&GET[..], &["--token", "short.token"]].concat();
    user.fails(&late, "the token of short.token is over since");
    user.fails(&late, "6000");
}

#[test]
fn a_user_with_a_token_dumps_loads_and_copies_what_it_grants() {
    let (_cluster, own, copy) = cluster("token-commands");
    let user = User::of(&own, copy);
    let range = ["--begin", "app/", "--end", "app0"];
    let shown = ["--token", "app.token"];
    user.says(&[&["dump", "app.tsv"][..], &shown, &range].concat());
    let pairs = std::fs::read_to_string(user.file("app.tsv"));
    assert_eq!(pairs.expect("written"), "app/a\t1\n");
    user.says(&[&["load", "app.tsv"][..], &shown].concat());
    user.fails(
        &["dump", "all.tsv", "--token", "app.token"],
        "does not grant that",
    );
    let mut by_variable = Command::new(BINARY);
    by_variable.args(GET).arg("-C").arg(&user.copy);
    by_variable.env("PLINTH_TOKEN_FILE", user.file("app.token"));
    assert!(by_variable.output().expect("it runs").status.success());

    let target = Cluster::start("token-target", 1, &["--engine", "memory"]);
    let mut copying = Command::new(BINARY);
    copying
        .args(["copy", "--from-token", "app.token"])
        .args(range);
    copying.arg("--from").arg(&user.copy);
    copying.arg("--to").arg(target.cluster_file());
    let output = copying.current_dir(&user.directory).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(target.cli("get app/a").contains("`app/a' is `1'"));
}
