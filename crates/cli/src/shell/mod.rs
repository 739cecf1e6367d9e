//! `plinth cli`: statements typed by a person, or given by `--exec`.
//!
//! - [`statement`]: from text to statements. Pure.
//! - [`session`]: what they do; a transaction that is open between them.
//! - [`manage`]: what they do with the database rather than its data.
//! - [`answer`]: what they print, as text in the form that FoundationDB's shell has, or as JSON.

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
    /// Statements to run instead of asking for them, separated by ';'
    #[arg(long, value_name = "STATEMENTS")]
    exec: Option<String>,
    /// Print one JSON object for each statement
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

/// Runs statements up to the first that fails; false if the user leaves.
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

/// Statements from a pipe or a file, line by line.
async fn execute_input(session: &mut Session, json: bool) -> Outcome {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input: {error}"))?;
        if !execute_all(session, &line, json).await? {
            break;
        }
    }
    Ok(())
}

/// Asks for statements until the user leaves. An error is printed and the next statement asked for.
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
    // Whoever read the output may have had enough of it.
    let _ = writeln!(out, "{text}");
}
