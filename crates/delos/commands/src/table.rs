//! `plinth table`: a shell for tables on a replicated log; and a server of them, for one process or for a service.
//!
//! - [`session`]: executes statements, whose language is [`plinth_table::language`].
//! - [`help`]: explains statements.
//! - [`answer`]: formats the answers as text or as JSON.
//! - [`door`]: gRPC on a thread of its own, in front of whatever replicates the tables.
//! - [`secure`]: TLS below gRPC.
//! - [`alone`]: a replica without others, over a log in files.
//! - [`gateway`]: the tables of a service of `plinth delos`.

mod alone;
mod answer;
mod door;
mod gateway;
mod help;
mod secure;
mod session;

use crate::delos::names::parse_service;
use door::DEFAULT_LISTEN;
use plinth_runtime::real::block_on;
use plinth_table::language::{Statement, parse};
use plinth_terminal::commands::Commands;
use plinth_terminal::tls::{Listen, TlsArguments};
use plinth_terminal::{Outcome, trace_file};
use plinth_tls::ClientAuth;
use secure::Protection;
use session::Session;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Use tables: an interactive shell, or statements from the command line
    Cli(Shell),
    /// Serve gRPC: the tables of a service of `plinth delos`, or of this process alone, without replicas
    Server(Serve),
}

plinth_terminal::command!(
    "table",
    "Tables on a replicated log: use them, serve them",
    Commands<Command> => run
);

/// The file of a service is what `-C` is in other commands.
fn parse_server(text: &str) -> Result<Listen, String> {
    const WANTED: &str = "it is a file: say the address of a server of tables; `plinth table server -C FILE` is one \
                          of a service";
    let is_file = text.contains('/') || text.ends_with(".delos") || text.ends_with(".cluster");
    match is_file {
        true => Err(WANTED.into()),
        false => text.parse(),
    }
}

#[derive(clap::Args, Debug)]
struct Shell {
    /// Address of a server of tables; with `:tls` behind it, by TLS
    #[arg(short = 'C', long, value_name = "IP:PORT[:tls]", default_value = DEFAULT_LISTEN)]
    #[arg(value_parser = parse_server)]
    connect: Listen,
    /// Statements to run, separated by ';', instead of an interactive shell
    #[arg(long, value_name = "STATEMENTS")]
    exec: Option<String>,
    /// Print one JSON object per statement
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsArguments,
}

#[derive(clap::Args, Debug)]
struct Serve {
    /// Be alone, over a log in files: directory for the log and the tables; made if it is not there
    #[arg(long, value_name = "DIR", required_unless_present = "service")]
    data_dir: Option<PathBuf>,
    /// Be a gateway of this service, which keeps nothing: file of the service; NAME means NAME.delos
    #[arg(
        short = 'C',
        long = "cluster-file",
        alias = "service",
        value_name = "SERVICE",
        value_parser = parse_service,
        conflicts_with = "data_dir"
    )]
    service: Option<PathBuf>,
    /// Address for clients, who speak gRPC: proto/table.proto; with `:tls` behind it, by TLS
    #[arg(long, value_name = "IP:PORT", default_value = DEFAULT_LISTEN)]
    listen: Listen,
    /// Whether clients by TLS show a certificate: need, want, none
    #[arg(long, value_name = "WHETHER", default_value = "need")]
    client_auth: ClientAuth,
    /// Listen beyond this machine although whoever reaches the address may read and change all tables
    #[arg(long)]
    open: bool,
    /// File for trace events, one JSON object per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArguments,
}

fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::Cli(arguments) => block_on(shell(arguments)),
        Command::Server(serve) => {
            trace_file::start(serve.trace.as_deref())?;
            let outcome = block_on(serve_tables(&serve));
            trace_file::flush();
            outcome
        }
    }
}

/// Clients that prove nothing reach tables from other machines only if somebody says so.
fn check_open(serve: &Serve) -> Outcome {
    let listen = serve.listen;
    let is_proved = listen.is_tls() && serve.client_auth == ClientAuth::Need;
    if listen.address.ip().is_loopback() || is_proved || serve.open {
        return Ok(());
    }
    Err(format!(
        "--listen {listen}: whoever reaches it may read and change all tables; write {}:tls and have clients show \
         certificates, listen at a loopback address, or say --open in a network of your own",
        listen.address
    ))
}

async fn protection(serve: &Serve) -> Outcome<Option<Protection>> {
    if serve.listen.is_tls() {
        // A gateway shows its service the certificate of the variables.
        let settings = match serve.service {
            Some(_) => serve.tls.said(),
            None => serve.tls.settings(),
        };
        let protection = Protection::new(&serve.listen, serve.client_auth, settings);
        return protection.await.map(Some);
    }
    match serve.tls.is_given() || serve.client_auth != ClientAuth::default() {
        true => Err(format!(
            "--listen {0}: options for TLS are given; write {0}:tls, or leave them out",
            serve.listen
        )),
        false => Ok(None),
    }
}

async fn serve_tables(serve: &Serve) -> Outcome {
    check_open(serve)?;
    let protection = protection(serve).await?;
    let listen = serve.listen.address;
    match (&serve.service, &serve.data_dir) {
        (Some(file), _) => gateway::serve(file, listen, protection).await,
        (None, Some(directory)) => alone::serve(directory.clone(), listen, protection).await,
        (None, None) => unreachable!("one of them is required"),
    }
}

async fn shell(arguments: Shell) -> Outcome {
    let mut session = Session::connect(arguments.connect, &arguments.tls).await?;
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

    #[derive(clap::Parser)]
    struct Whole {
        #[command(flatten)]
        serve: Serve,
    }

    fn serve(words: &str) -> Serve {
        let words = format!("x --data-dir d --listen {words}");
        <Whole as clap::Parser>::parse_from(words.split(' ')).serve
    }

    #[test]
    fn a_shell_that_is_given_the_file_of_a_service_says_what_it_wants() {
        for file in ["data/tables.delos", "tables.delos", "plinth.cluster"] {
            let line = parse_server(file).expect_err("it is no address");
            assert!(line.contains("the address of a server of tables"), "{line}");
        }
        assert!(parse_server("127.0.0.1:4680:tls").is_ok_and(|at| at.is_tls()));
    }

    #[test]
    fn tables_are_served_to_other_machines_only_if_clients_prove_something_or_somebody_says_so() {
        assert_eq!(check_open(&serve("127.0.0.1:4680")), Ok(()));
        assert_eq!(check_open(&serve("10.0.0.1:4680:tls")), Ok(()));
        for address in ["0.0.0.0:4680", "10.0.0.1:4680", "[::]:4680"] {
            for rest in ["", ":tls --client-auth want", ":tls --client-auth none"] {
                let line = check_open(&serve(&format!("{address}{rest}"))).expect_err(address);
                assert!(line.contains("--open"), "{line}");
                let said = format!("{address}{rest} --open");
                assert_eq!(check_open(&serve(&said)), Ok(()));
            }
        }
    }
}
