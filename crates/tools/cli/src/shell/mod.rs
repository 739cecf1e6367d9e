//! `plinth cli`: statements typed by a person or given by `--exec`.
//!
//! - [`statement`]: parses text into statements. Pure.
//! - [`session`]: executes them; holds a transaction that is open between statements.
//! - [`manage`]: statements about the database instead of its data.
//! - [`runner`]: reads lines and prints answers, for this shell and others.
//! - [`answer`]: formats the answers as text, in the form of FoundationDB's shell, or as JSON.

pub mod answer;
mod editor;
mod manage;
mod operate;
pub mod runner;
mod session;
mod settings;
pub mod statement;
mod throttle;

use crate::Outcome;
use crate::connect::{self, ClusterArguments};
use answer::Answer;
use session::Session;
use statement::Statement;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Statements to run, separated by ';', instead of an interactive shell
    #[arg(long, value_name = "STATEMENTS")]
    exec: Option<String>,
    /// Print one JSON object per statement, an error too
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Outcome {
    let json = arguments.json;
    let outcome = connect::block_on(async {
        let connection = arguments.cluster.open().await?;
        connection.limit_transactions();
        let mut session = Session::new(connection);
        let (exec, json) = (arguments.exec.as_deref(), arguments.json);
        let outcome = runner::run(&mut session, exec, json).await;
        session.connection.update_cluster_file().await;
        session.end(outcome)
    });
    runner::told(outcome, json)
}

impl runner::Session for Session {
    type Statement = Statement;

    fn names() -> Vec<String> {
        statement::names().map(String::from).collect()
    }

    fn parse(text: &str) -> Outcome<Vec<Statement>> {
        statement::parse_all(text)
    }

    fn is_exit(statement: &Statement) -> bool {
        *statement == Statement::Exit
    }

    fn prompt(&self) -> &'static str {
        match self.is_open() {
            true => "plinth (transaction)",
            false => "plinth",
        }
    }

    async fn execute(&mut self, statement: Statement) -> Outcome<Answer> {
        Session::execute(self, statement).await
    }
}
