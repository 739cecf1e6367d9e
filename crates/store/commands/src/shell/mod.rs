//! `plinth cli`: statements typed by a person or given by `--exec`.
//!
//! - [`statement`]: parses text into statements. Pure. [`help`] explains them.
//! - [`session`]: executes them; holds a transaction that is open between statements.
//! - [`manage`]: statements about the database instead of its data.
//! - [`complete`]: what Tab completes, of which the cluster tells some to [`known`].
//!
//! What this shell has in common with others is [`plinth_terminal::shell`].

mod complete;
mod distribution;
mod fileconfigure;
mod help;
mod kill;
mod known;
mod manage;
mod operate;
mod options;
mod session;
mod settings;
mod statement;
mod throttle;

/// The names of the statements of `plinth cli`.
pub use help::names as statements;

use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments};
use plinth_terminal::shell::answer::{Answer, FormArguments};
use plinth_terminal::shell::complete::{Completer, complete as completed};
use plinth_terminal::shell::runner;
use plinth_terminal::token::TokenArgument;
use session::Session;
use statement::Statement;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth cli -C data/plinth.cluster", "A shell; `help` lists its statements"),
    (
        "plinth cli --exec 'set hello world; get hello'",
        "Two statements, on the cluster of this directory",
    ),
    (
        "plinth cli --tsv --exec 'getrange user/ user0 100' > users.tsv",
        "Keys and values for other programs",
    ),
]))]
struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    token: TokenArgument,
    /// Statements to run, separated by ';', instead of an interactive shell
    #[arg(long, value_name = "STATEMENTS")]
    exec: Option<String>,
    #[command(flatten)]
    form: FormArguments,
}

plinth_terminal::command!(
    "cli",
    "Use a cluster: an interactive shell, or statements from the command line",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    let form = arguments.form.chosen();
    let outcome = connect::block_on(async {
        let connection = arguments.token.shown_by(arguments.cluster.open().await?)?;
        connection.limit_transactions();
        let mut session = Session::new(connection);
        let exec = arguments.exec.as_deref();
        let outcome = runner::run(&mut session, exec, form).await;
        session.connection.update_cluster_file().await;
        session.end(outcome)
    });
    runner::told(outcome, form)
}

impl runner::Session for Session {
    type Statement = Statement;

    fn completer(&self) -> Completer {
        let known = self.looker.known();
        Box::new(move |line| {
            // A copy: the look goes on meanwhile.
            let known = known.lock().map(|known| known.clone()).unwrap_or_default();
            completed(line, |words| complete::next(words, &known))
        })
    }

    fn look(&self) {
        self.looker.look(&self.connection);
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
        match statement.waits_unseen() {
            true => {
                let connection = self.connection.clone();
                let passes = !statement.needs_no_lock() || self.passes_the_lock();
                let executing = Session::execute(self, statement);
                let executing = session::unless_locked(&connection, passes, executing);
                connection.telling_of(passes, executing).await
            }
            false => Session::execute(self, statement).await,
        }
    }
}
