//! `plinth table`: a shell for tables on a replicated log; and a server of them, for one process or for a service.
//!
//! - [`session`]: executes statements, whose language is [`plinth_table::language`].
//! - [`answer`]: formats the answers as text or as JSON.
//! - [`door`]: gRPC on a thread of its own, in front of whatever replicates the tables.
//! - [`alone`]: a replica without others, over a log in files.
//! - [`gateway`]: the tables of a service of `plinth delos`.

mod alone;
mod answer;
mod door;
mod gateway;
mod session;

use crate::delos::names::parse_service;
use crate::{Outcome, trace_file};
use plinth_runtime::real::block_on;
use plinth_table::language::{Statement, parse};
use session::Session;
use std::io::{BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address of a server of tables
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:4680")]
    connect: SocketAddr,
    /// Statements to run, separated by ';', instead of an interactive shell
    #[arg(long, value_name = "STATEMENTS")]
    exec: Option<String>,
    /// Print one JSON object per statement
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Serve gRPC: the tables of a service of `plinth delos`, or of this process alone, without replicas
    Serve(Serve),
}

#[derive(clap::Args, Debug)]
struct Serve {
    /// Be alone, over a log in files: directory for the log and the tables; made if it is not there
    #[arg(long, value_name = "DIR", required_unless_present = "service")]
    data_dir: Option<PathBuf>,
    /// Be a gateway of this service, which keeps nothing: file of the service; NAME means NAME.delos
    #[arg(long, value_name = "SERVICE", value_parser = parse_service, conflicts_with = "data_dir")]
    service: Option<PathBuf>,
    /// Address for clients, who speak gRPC: proto/table.proto
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:4680")]
    listen: SocketAddr,
    /// Listen beyond this machine although whoever reaches the address may read and change all tables
    #[arg(long)]
    open: bool,
    /// File for trace events, one JSON object per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Outcome {
    match arguments.command {
        Some(Command::Serve(serve)) => {
            trace_file::start(serve.trace.as_deref())?;
            let outcome = block_on(serve_tables(&serve));
            trace_file::flush();
            outcome
        }
        None => block_on(shell(arguments)),
    }
}

/// Clients of tables prove nothing, so other machines reach them only if somebody says so.
fn check_open(listen: SocketAddr, is_open: bool) -> Outcome {
    if listen.ip().is_loopback() || is_open {
        return Ok(());
    }
    Err(format!(
        "--listen {listen}: whoever reaches it may read and change all tables; listen at a loopback address behind \
         a proxy that knows its clients, or say --open in a network of your own"
    ))
}

async fn serve_tables(serve: &Serve) -> Outcome {
    check_open(serve.listen, serve.open)?;
    match (&serve.service, &serve.data_dir) {
        (Some(file), _) => gateway::serve(file, serve.listen).await,
        (None, Some(directory)) => alone::serve(directory.clone(), serve.listen).await,
        (None, None) => unreachable!("one of them is required"),
    }
}

async fn shell(arguments: Arguments) -> Outcome {
    let mut session = Session::connect(arguments.connect)?;
    let input = std::io::stdin();
    let is_terminal = input.is_terminal() && arguments.exec.is_none();
    if let Some(text) = &arguments.exec {
        execute(&mut session, text, arguments.json).await?;
        return session.end();
    }
    if is_terminal {
        println!(
            "plinth {}: `help' lists the statements, `exit' leaves.",
            env!("CARGO_PKG_VERSION")
        );
    }
    loop {
        if is_terminal {
            print!("{}", session.prompt());
            let _ = std::io::stdout().flush();
        }
        let mut line = String::new();
        let read = input.lock().read_line(&mut line);
        if read.map_err(|error| format!("standard input: {error}"))? == 0 {
            return session.end();
        }
        match execute(&mut session, &line, arguments.json).await {
            Ok(true) => {}
            Ok(false) => return session.end(),
            // A person goes on.
            Err(error) if is_terminal => eprintln!("ERROR: {error}"),
            Err(error) => return Err(error),
        }
    }
}

/// Runs statements up to the first that fails; false if the user leaves.
async fn execute(session: &mut Session, text: &str, json: bool) -> Outcome<bool> {
    for statement in parse(text)? {
        if statement == Statement::Exit {
            return Ok(false);
        }
        let answer = session.execute(statement).await?;
        let text = answer.render(json);
        if !text.is_empty() {
            println!("{text}");
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_served_to_other_machines_only_if_somebody_says_so() {
        let local: SocketAddr = "127.0.0.1:4680".parse().expect("an address");
        assert_eq!(check_open(local, false), Ok(()));
        for address in ["0.0.0.0:4680", "10.0.0.1:4680", "[::]:4680"] {
            let address: SocketAddr = address.parse().expect("an address");
            let line = check_open(address, false).expect_err(&address.to_string());
            assert!(line.contains("--open"), "{line}");
            assert_eq!(check_open(address, true), Ok(()));
        }
    }
}
