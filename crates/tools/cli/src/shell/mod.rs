//! `plinth cli`: statements typed by a person or given by `--exec`.
//!
//! - [`statement`]: parses text into statements. Pure.
//! - [`session`]: executes them; holds a transaction that is open between statements.
//! - [`manage`]: statements about the database instead of its data.
//! - [`answer`]: formats the answers as text, in the form of FoundationDB's shell, or as JSON.

mod answer;
mod editor;
mod manage;
mod operate;
mod session;
mod settings;
mod statement;
mod throttle;

use crate::Outcome;
use crate::connect::{self, ClusterArguments};
use session::Session;
use statement::Statement;
use std::io::{BufRead, IsTerminal, Write};

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Statements to run, separated by ';', instead of an interactive shell
    #[arg(long, value_name = "STATEMENTS")]
    exec: Option<String>,
    /// Print one JSON object per statement
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Outcome {
    connect::block_on(async {
        let connection = arguments.cluster.open().await?;
        connection.limit_transactions();
        let mut session = Session::new(connection);
        let outcome = match &arguments.exec {
            Some(text) => execute_all(&mut session, text, arguments.json)
                .await
                .map(drop),
            None if std::io::stdin().is_terminal() => interact(&mut session, arguments.json).await,
            None => execute_input(&mut session, arguments.json).await,
        };
        session.connection.update_cluster_file().await;
        session.end(outcome)
    })
}

/// Runs statements up to the first that fails; returns false if the user leaves.
async fn execute_all(session: &mut Session, text: &str, json: bool) -> Outcome<bool> {
    for statement in statement::parse_all(text)? {
        if statement == Statement::Exit {
            return Ok(false);
        }
        let answer = session.execute(statement).await?;
        print(&answer.render(json));
        answer.into_outcome()?;
    }
    Ok(true)
}

/// Runs statements from standard input, line by line.
async fn execute_input(session: &mut Session, json: bool) -> Outcome {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input: {error}"))?;
        if !execute_all(session, &line, json).await? {
            break;
        }
    }
    Ok(())
}

/// Prompts for statements until the user leaves. Prints an error and continues with the next prompt.
async fn interact(session: &mut Session, json: bool) -> Outcome {
    println!(
        "plinth {}: `help' lists the statements, `exit' leaves.",
        env!("CARGO_PKG_VERSION")
    );
    let mut editor = editor::Editor::new();
    loop {
        let (line, returned) = editor::read_line(editor, session.is_open()).await?;
        editor = returned;
        let Some(line) = line else { return Ok(()) };
        let statements = match statement::parse_all(&line) {
            Ok(statements) => statements,
            Err(error) => {
                eprintln!("ERROR: {error}");
                continue;
            }
        };
        for statement in statements {
            if statement == Statement::Exit {
                return Ok(());
            }
            match session.execute(statement).await {
                Ok(answer) => print(&answer.render(json)),
                Err(error) => {
                    eprintln!("ERROR: {error}");
                    break;
                }
            }
        }
    }
}

fn print(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut out = std::io::stdout().lock();
    // The reader of the output may have closed the pipe.
    let _ = writeln!(out, "{text}");
}
