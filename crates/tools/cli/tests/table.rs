//! `plinth table` on real processes: a server of tables over a log in files, and the shell, who speak gRPC.

use crate::common::{Directory, free_ports};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_plinth");

struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(directory: &Directory, port: u16) -> Server {
        let address = format!("127.0.0.1:{port}");
        let process = Command::new(BINARY)
            .args(["table", "server", "--listen", &address, "--data-dir"])
            .arg(directory.file("tables"))
            .spawn();
        let server = Server {
            process: process.expect("the binary was built"),
            port,
        };
        let mut tries = (0..300).map(|_| {
            plinth_runtime::real::block_on(plinth_runtime::sleep(Duration::from_millis(50)));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(tries.any(|listens| listens), "it listens");
        server
    }

    fn shell(&self, more: &[&str]) -> Output {
        let address = format!("127.0.0.1:{}", self.port);
        let mut shell = Command::new(BINARY);
        shell
            .args(["table", "cli", "--connect", &address])
            .args(more);
        shell
            .stdin(Stdio::null())
            .output()
            .expect("the binary was built")
    }

    /// The answers to statements, one a line.
    fn ask(&self, statements: &str) -> Vec<Value> {
        let output = self.shell(&["--json", "--exec", statements]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements}: {error}");
        let text = String::from_utf8(output.stdout).expect("text");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect()
    }

    /// The line of an error.
    fn refused(&self, statements: &str) -> String {
        let output = self.shell(&["--exec", statements]);
        assert_eq!(output.status.code(), Some(1), "{statements}");
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(error.lines().count(), 1, "{error}");
        error.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn rows_outlive_a_killed_server_and_transactions_are_whole() {
    let directory = Directory::new("table");
    let port = free_ports(1);
    let server = Server::start(&directory, port);
    let made = "create table accounts (id int, owner text, balance int default 0, since timestamp null, \
                primary key (id), index by_owner (owner))";
    assert_eq!(server.ask(made), [json!({ "ok": true })]);
    let rows = "insert into accounts (id, owner, balance) values (1, 'ann', 100), (2, 'bob', 50); \
                insert into accounts (id, owner, since) values (3, 'ann', timestamp '2026-01-31 12:00:00')";
    assert_eq!(
        server.ask(rows),
        [
            json!({ "ok": true, "changed": 2 }),
            json!({ "ok": true, "changed": 1 })
        ]
    );
    let pay = |amount: u32| {
        format!(
            "begin; require accounts (id = 1) where balance >= {amount}; \
             update accounts set balance = balance - {amount} where id = 1; \
             update accounts set balance = balance + {amount} where id = 2; commit"
        )
    };
    let paid = json!({ "ok": true, "changed": 2 });
    assert_eq!(server.ask(&pay(70)).last(), Some(&paid));
    let refused = server.refused(&pay(70));
    let says = "plinth: statement 5: condition_failed: condition 1 does not hold: the row does not match in table \
                \"accounts\"";
    assert_eq!(refused, says);
    drop(server); // killed
    let server = Server::start(&directory, port);
    let found =
        server.ask("select id, balance, since from accounts where owner = 'ann' order by id desc");
    let rows = json!([
        { "id": 3, "balance": 0, "since": "2026-01-31 12:00:00" },
        { "id": 1, "balance": 30, "since": null },
    ]);
    assert_eq!(
        (&found[0]["rows"], &found[0]["index"]),
        (&rows, &json!("by_owner"))
    );
    let shown = server.shell(&["--exec", "select id, owner from accounts where id < 3"]);
    let text = "id  owner\n--  -----\n1   ann\n2   bob\n(2 rows by primary, 2 looked at)\n";
    assert_eq!(String::from_utf8_lossy(&shown.stdout), text);
    // An index of more rows than one step takes can be used when its statement returns.
    let rows = |begin: u32| {
        let rows: Vec<String> = (begin..begin + 1000)
            .map(|id| format!("({id}, 'x{id}')"))
            .collect();
        format!(
            "insert into accounts (id, owner) values {}",
            rows.join(", ")
        )
    };
    for begin in [1000, 2000, 3000] {
        server.ask(&rows(begin));
    }
    let found = server.ask(
        "create unique index by_balance on accounts (id, balance); \
         select id from accounts where id > 3995 using by_balance",
    );
    assert_eq!(found[1]["rows"].as_array().map(Vec::len), Some(4));
    let failed = server.refused("create unique index bad on accounts (balance)");
    assert!(failed.starts_with("plinth: duplicate: "), "{failed}");
}

/// What the shell prints of lines at its standard input, and of an error.
fn piped(server: &Server, lines: &str) -> (String, String) {
    let address = format!("127.0.0.1:{}", server.port);
    let shell = Command::new(BINARY)
        .args(["table", "cli", "--tsv", "--connect", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut shell = shell.expect("the binary was built");
    let mut input = shell.stdin.take().expect("piped");
    input.write_all(lines.as_bytes()).expect("it reads");
    drop(input);
    let output = shell.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_statement_of_several_lines_is_one_and_one_of_a_line_needs_no_end() {
    let directory = Directory::new("table-lines");
    let server = Server::start(&directory, free_ports(1));
    let rows = "# two accounts\ncreate table accounts (\n  id int,\n  owner text,\n  # what is there\n  balance int,\n\
                \x20 primary key (id)\n);\ninsert into accounts (id, owner, balance)\n  values (1, 'ann', 1),\n  \
                (2, 'ann', 2),\n  (3, 'bob;\n\nor not', 3);\nselect id from accounts\n";
    let (out, error) = piped(&server, rows);
    assert_eq!(
        (&out[..], &error[..]),
        ("1\n2\n3\n", "done\n3 rows changed\n")
    );
    let (out, _) = piped(
        &server,
        "select *\nfrom accounts\nwhere owner = 'bob;\n\nor not';\n",
    );
    assert!(out.starts_with("3\t"), "{out}");
    // The first line is whole, and would remove more than is meant.
    let (_, error) = piped(
        &server,
        "delete from accounts where owner = 'ann'\nand id = 1;\n",
    );
    assert_eq!(error, "1 row changed\n");
    let (_, error) = piped(&server, "delete from accounts\nwhere id = 3;\n");
    assert_eq!(error, "1 row changed\n");
    let (out, error) = piped(
        &server,
        "tables\nselect id\nfrom accounts\n\nselect owner from accounts",
    );
    assert!(out.ends_with("2\nann\n"), "{out}{error}");
    // What is not whole is an error at its first line.
    let (_, error) = piped(&server, "tables\n\nselect id\nfrom\n\ntables\n");
    let says = "plinth: line 3: the name of a table is expected at the end";
    assert!(error.contains(says), "{error}");
    let (_, error) = piped(&server, "select id from accounts\nwhre id = 1\n");
    assert!(error.starts_with("plinth: line 2: "), "{error}");
}

/// A program that writes a statement and waits for its answer need not end it with a `;`.
#[test]
fn a_line_that_is_whole_is_answered_before_the_next_one_comes() {
    let directory = Directory::new("table-coprocess");
    let server = Server::start(&directory, free_ports(1));
    server.ask("create table t (id int, primary key (id)); insert into t (id) values (1)");
    let address = format!("127.0.0.1:{}", server.port);
    let shell = Command::new(BINARY)
        .args(["table", "cli", "--tsv", "--connect", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut shell = shell.expect("the binary was built");
    let mut input = shell.stdin.take().expect("piped");
    let mut output = BufReader::new(shell.stdout.take().expect("piped"));
    for _ in 0..2 {
        input.write_all(b"select id from t\n").expect("it reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("it answers");
        assert_eq!(line, "1\n");
    }
    // It ends although nobody closes its input.
    input.write_all(b"exit\n").expect("it reads");
    assert!(shell.wait().expect("it ends").success());
    drop(input);
}

#[test]
fn rows_for_other_programs_are_lines_with_tabs() {
    let directory = Directory::new("table-tsv");
    let server = Server::start(&directory, free_ports(1));
    server.ask(
        "create table t (id int, name text null, primary key (id)); insert into t (id) values (1)",
    );
    server.ask("insert into t (id, name) values (2, 'a b')");
    let rows = server.shell(&[
        "--tsv",
        "--exec",
        "select id, name from t; delete from t all",
    ]);
    assert_eq!(String::from_utf8_lossy(&rows.stdout), "1\t\\N\n2\ta b\n");
    assert_eq!(String::from_utf8_lossy(&rows.stderr), "2 rows changed\n");
    let said = server.shell(&["--json", "--exec", "select * from nobody"]);
    let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert!(
        said["error"]
            .as_str()
            .is_some_and(|line| line.contains("no table")),
        "{said}"
    );
}

#[test]
fn bad_input_gets_one_line() {
    let directory = Directory::new("table-bad-input");
    let port = free_ports(2);
    let server = Server::start(&directory, port);
    for (statements, says) in [
        (
            "select * from nobody",
            "unknown: there is no table \"nobody\"",
        ),
        ("select from", "`from' is expected at the end"),
        ("commit", "there is no transaction: it starts with `begin'"),
        (
            "begin",
            "the transaction is not committed: nothing of it has happened",
        ),
        (
            "create table t (a int)",
            "bad_request: a primary key has 1 to 8 columns",
        ),
    ] {
        let error = server.refused(statements);
        assert!(error.starts_with(&format!("plinth: {says}")), "{error}");
    }
    let run = |directory: &Directory, port: u16| {
        let address = format!("127.0.0.1:{port}");
        let output = Command::new(BINARY)
            .args(["table", "server", "--listen", &address, "--data-dir"])
            .arg(directory.file("tables"))
            .output()
            .expect("the binary was built");
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let error = run(&directory, port + 1);
    assert!(error.contains("another process"), "{error}");
    let other = Directory::new("table-bad-input-2");
    let error = run(&other, port);
    assert!(
        error.contains("(--listen): another process listens there"),
        "{error}"
    );
    drop(server);
    let gone = Server {
        process: Command::new("true").spawn().expect("a program"),
        port,
    };
    let error = gone.refused("tables");
    assert!(error.contains("is a server of tables there"), "{error}");
    // Nor is one behind every port that somebody has.
    let other = std::net::TcpListener::bind(("127.0.0.1", port)).expect("it is free again");
    std::thread::spawn(move || other.incoming().for_each(drop));
    let error = gone.refused("tables");
    assert!(error.contains("is a server of tables there"), "{error}");
}
