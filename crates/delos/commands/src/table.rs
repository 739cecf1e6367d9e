//! `plinth table`: a shell for tables on a replicated log; and a server of them, for one process or for a service.
//!
//! - [`session`]: executes statements, whose language is [`plinth_table::language`].
//! - [`help`]: explains statements.
//! - [`answer`]: formats the answers as text or as JSON.
//! - [`door`]: gRPC on a thread of its own, in front of whatever replicates the tables.
//! - [`secure`]: TLS below gRPC.
//! - [`alone`]: a replica without others, over a log in files.
//! - [`gateway`]: the tables of a service of `plinth delos`.
//! - [`readiness`]: whether either of them could answer.

mod alone;
mod answer;
mod door;
mod gateway;
mod help;
mod readiness;
mod secure;
mod session;

use crate::delos;
use crate::delos::names::parse_service;
use crate::delos::service::load;
use door::DEFAULT_LISTEN;
use plinth_coordination::{ClusterFile, Family};
use plinth_identity::Identity;
use plinth_identity::files::FileKind;
use plinth_runtime::knobs::set_knobs;
use plinth_runtime::metric::page::{Page, Samples};
use plinth_runtime::net::Chosen;
use plinth_runtime::readiness::Readiness;
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, Either, now, race, sleep};
use plinth_terminal::choices::among;
use plinth_terminal::commands::{Commands, wrong_usage};
use plinth_terminal::configuration::ConfigArgument;
use plinth_terminal::given::other_kind;
use plinth_terminal::knobs::{parse_knob, parse_knobs};
use plinth_terminal::numbers::seconds_within;
use plinth_terminal::pages::view;
use plinth_terminal::shell::answer::FormArguments;
use plinth_terminal::shell::runner;
use plinth_terminal::tls::{Listen, TlsArguments};
use plinth_terminal::{Outcome, pages, ports, trace_file};
use plinth_tls::ClientAuth;
use secure::Protection;
use session::Session;
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Between two looks at the numbers of the page.
const PAGE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(clap::Subcommand, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth table server --data-dir tables", "Tables of this process alone"),
    ("plinth table cli --exec 'select * from accounts'", "Ask it from another terminal"),
]))]
enum Command {
    /// Use tables: an interactive shell, or statements from the command line
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth table cli", "A shell at 127.0.0.1:4680; `help` lists the statements"),
        (
            r#"plinth table cli -C 10.0.0.1:4680 --exec "select * from accounts where owner = 'ann'" --json"#,
            "One statement, at another address; an object for programs",
        ),
    ]))]
    Cli(Shell),
    /// Serve gRPC: the tables of a service of `plinth delos`, or of this process alone, without replicas
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth table server --data-dir tables",
            "Tables of this process alone, at 127.0.0.1:4680",
        ),
        ("plinth table server -C data/tables.delos", "Those of a service of kind table"),
    ]))]
    Server(Serve),
}

plinth_terminal::command!(
    "table",
    "Tables on a replicated log: use them, serve them",
    Commands<Command> => run
);

/// The names of the statements of `plinth table cli`.
pub fn statements() -> impl Iterator<Item = &'static str> {
    help::HELP.names()
}

/// The file of a service is what `-C` is in other commands.
fn parse_server(text: &str) -> Result<Listen, String> {
    const WANTED: &str =
        "say the address of a server of tables; `plinth table server -C FILE' is one of a service";
    let path = Path::new(text);
    let is_file = text.contains('/') || text.ends_with(".delos") || text.ends_with(".cluster");
    if !is_file {
        let parsed = text.parse();
        if parsed.is_ok() || !path.exists() {
            return parsed;
        }
    }
    if path.is_dir() {
        return Err(format!("it is a directory: {WANTED}"));
    }
    if !path.exists() {
        return Err(format!(
            "it is no address, and no file is there either: {WANTED}"
        ));
    }
    if let Some(other) = other_kind(FileKind::Cluster, path) {
        return Err(format!("{other}: {WANTED}"));
    }
    let file = std::fs::read_to_string(path).ok();
    let file = file.and_then(|file| ClusterFile::parse(&file).ok());
    let of_another = file.and_then(|file| Family::Delos.check(path, &file).err());
    Err(match of_another {
        Some(whose) => format!("{whose}; or {WANTED}"),
        None => format!("it is a file: {WANTED}"),
    })
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
    #[command(flatten)]
    form: FormArguments,
    /// Seconds to wait for an answer before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
    #[command(flatten)]
    tls: TlsArguments,
}

#[derive(clap::Args, Debug)]
struct Serve {
    /// Be alone, over a log in files: directory for the log and the tables; made if it is not there. Or say -C
    #[arg(long, value_name = "DIR")]
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
    #[arg(
        long,
        value_name = "WHETHER",
        default_value = "need",
        hide_possible_values = true
    )]
    #[arg(value_parser = among(["need", "want", "none"], str::parse::<ClientAuth>))]
    client_auth: ClientAuth,
    /// Listen beyond this machine although whoever reaches the address may read and change all tables
    #[arg(long)]
    open: bool,
    /// Address of a page for browsers (/), and of a metrics page (/metrics) for Prometheus
    #[arg(long, value_name = "IP:PORT", value_parser = ports::parse_address)]
    pages: Option<SocketAddr>,
    /// Set a limit or an interval; `--knob list` shows all knobs
    #[arg(long = "knob", value_name = "NAME=VALUE", value_parser = parse_knob)]
    knobs: Vec<String>,
    /// File for trace events, one JSON object per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    _config: ConfigArgument,
    #[command(flatten)]
    tls: TlsArguments,
}

fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::Cli(arguments) => block_on(shell(arguments)),
        Command::Server(serve) => {
            if serve.data_dir.is_none() && serve.service.is_none() {
                wrong_usage(
                    "name --data-dir DIR, for tables of this process alone, or -C SERVICE, for those of a service",
                );
            }
            set_knobs(parse_knobs(&serve.knobs)?);
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
    ports::check_pages(listen, serve.pages)?; // before the pages are there
    if let Some(directory) = &serve.data_dir {
        let chosen = Chosen::flag("--listen", listen.to_string() == DEFAULT_LISTEN);
        ports::check_new(directory, alone::LOG_DIRECTORY, [(listen, chosen)])?;
    }
    let page = page(serve)?;
    let readiness = RefCell::new(Readiness::new(now()));
    let serving = async {
        match (&serve.service, &serve.data_dir) {
            (Some(file), _) => gateway::serve(file, listen, protection, &readiness).await,
            (None, Some(directory)) => {
                alone::serve(directory.clone(), listen, protection, &readiness).await
            }
            (None, None) => unreachable!("one of them is required"),
        }
    };
    match race(serving, keep_page(serve, page.as_ref(), &readiness)).await {
        Either::Left(outcome) => outcome,
        Either::Right(never) => match never {},
    }
}

/// Serves the pages that are asked for.
fn page(serve: &Serve) -> Outcome<Option<Page>> {
    let Some(address) = serve.pages else {
        return Ok(None);
    };
    let page = Page::default();
    let own = serve.service.clone().or(serve.data_dir.clone());
    let keys = pages::Keys {
        cluster_file: &own.unwrap_or_default(),
        are_needed: serve.listen.is_tls(),
    };
    let own = std::slice::from_ref(&page);
    pages::serve_all(address, own, delos::page::show, keys)?;
    Ok(Some(page))
}

/// Keeps the page up to date, for ever, if there is one.
async fn keep_page(
    serve: &Serve,
    page: Option<&Page>,
    readiness: &RefCell<Readiness>,
) -> Infallible {
    let Some(page) = page else {
        return std::future::pending().await;
    };
    let numbers = async {
        loop {
            let mut out = Samples::of_process(serve.listen.address);
            let verdict = readiness.borrow().verdict(now());
            readiness.borrow().add_to(&mut out, &verdict);
            out.add_counted();
            page.set(out.into_list());
            page.set_ready(verdict);
            sleep(PAGE_INTERVAL).await;
        }
    };
    match race(numbers, keep_status(serve, page)).await {
        Either::Left(never) | Either::Right(never) => never,
    }
}

/// Keeps on the page what the service says, or what a process says that serves alone.
async fn keep_status(serve: &Serve, page: &Page) -> Infallible {
    let Some(path) = &serve.service else {
        return page.keep_status(async || Some(of_one(page))).await;
    };
    // As a gateway reads it, which does not serve if it cannot.
    let Ok(file) = load(path, &TlsArguments::default()).await else {
        return std::future::pending().await;
    };
    page.name_cluster(&file.key());
    let credentials = file.credentials(Identity::Server);
    delos::page::keep_status(page, path, credentials).await
}

fn of_one(page: &Page) -> String {
    let verdict = page.ready();
    let numbers = view::numbers(page);
    let ready = pages::words_of(&verdict);
    let is_ready = verdict.is_ready;
    serde_json::json!({"numbers": numbers, "ready": ready.trim_end(), "is_ready": is_ready})
        .to_string()
}

async fn shell(arguments: Shell) -> Outcome {
    let form = arguments.form.chosen();
    let using = async {
        let connecting = Session::connect(arguments.connect, &arguments.tls, arguments.timeout);
        let mut session = connecting.await?;
        let ran = runner::run(&mut session, arguments.exec.as_deref(), form).await;
        session.end(ran)
    };
    runner::told(using.await, form)
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
