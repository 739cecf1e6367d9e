//! `plinth bench`: measuring a cluster, and what is done with the results.

#![allow(clippy::disallowed_types)] // the user's files

use crate::status;
use plinth_bench::lodging::clearing;
use plinth_bench::report::page;
use plinth_bench::{Measured, Plan, Workload, scale};
use plinth_coordination::ClusterFile;
use plinth_foreign::Library;
use plinth_measure::runs::{parse_runs, sets};
use plinth_measure::{Calibration, grouped, server_cpu};
use plinth_runtime::{Duration, random};
use plinth_terminal::choices::{among, none_such};
use plinth_terminal::commands::Commands;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::numbers::within;
use plinth_terminal::outputs::{why_not_read, write_page};
use plinth_terminal::seconds::{parse_positive, parse_seconds};
use plinth_terminal::wording::{counted, pasted};
use plinth_terminal::{Outcome, interrupts};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// API version requested of a library; all libraries of recent years support it.
const LIBRARY_API_VERSION: i32 = 710;

const CALIBRATES: &str =
    "measuring the speed of this machine first, for seconds; --calibration FILE leaves that out";
/// Limit of transactions under way at once when they begin at a rate.
const RATE_CLIENTS: usize = 10_000;

#[derive(clap::Subcommand, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth bench run --workload random-90-10", "Mostly reads, from 100 clients, of a table that is cleared then"),
    ("plinth bench run --workload bulk-load --keep", "Make a table for several runs"),
]))]
enum Command {
    /// Run a workload against a cluster and print the results
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth bench run --workload list", "What there is to measure"),
        (
            "plinth bench run --workload point-reads --clients 32 --duration 30",
            "So many clients, so many seconds",
        ),
        (
            "plinth bench run --workload commit-latency --json >> results.jsonl",
            "A line for `plinth bench report`",
        ),
    ]))]
    Run(Box<Run>),
    /// Make an HTML page with plots from the output of `bench run --json`. Files or directories with the same
    /// workloads are shown side by side
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth bench report results.jsonl", "Make report.html"),
        (
            "plinth bench report before.jsonl after.jsonl -o compared.html",
            "Two sets of results side by side",
        ),
    ]))]
    Report(Report),
    /// Measure the speed of this machine, in a few seconds and without a cluster
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth bench calibrate", "Processor, memory, and the disk of this directory"),
        (
            "plinth bench calibrate --directory /var/lib/plinth --json > machine.json",
            "For `plinth bench run --calibration machine.json`",
        ),
    ]))]
    Calibrate(Calibrate),
    /// Print the output of `bench run --json` as Markdown tables, scaled to the machine where FoundationDB was
    /// measured
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth bench scale results.jsonl > results.md", "Tables for a page"),
    ]))]
    Scale(Scale),
}

plinth_terminal::command!(
    "bench",
    "Measure how fast a cluster is",
    Commands<Command> => run
);

fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::Run(run) => run_workload(*run),
        Command::Report(report) => make_page(&report),
        Command::Calibrate(arguments) => calibrate(&arguments),
        Command::Scale(scale) => print_scaled(&scale),
    }
}

/// Words for `--workload`.
fn offered() -> impl Iterator<Item = &'static str> {
    let workloads = Workload::all().iter().map(|workload| workload.name);
    workloads.chain(["list"])
}

#[derive(clap::Args, Debug)]
struct Run {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Workload; `list` explains them. It reads and writes a table of 16-byte keys that begin with `bench/`; one that
    /// is not there is loaded before and cleared afterwards
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    #[arg(value_parser = among(offered(), parse_workload))]
    workload: String,
    /// Transactions under way at once; default: 100, or 1 for the latency workloads
    #[arg(long, value_name = "N", value_parser = within::<u64>(1..=100_000))]
    clients: Option<u64>,
    /// Begin this many transactions per second, whether or not earlier ones have ended. --clients is then the limit
    /// of transactions under way (default 10,000); transactions above the limit are dropped and counted
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_positive)]
    duration: f64,
    /// Seconds to run before measuring
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_seconds)]
    warmup: f64,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = within::<u64>(1..=1 << 40))]
    rows: u64,
    /// Leave the table in the database, for further runs
    #[arg(long)]
    keep: bool,
    /// Measure in a database that has other data
    #[arg(long)]
    force: bool,
    /// Threads of the load generator
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u64>(1..=1024))]
    threads: u64,
    /// Server processes whose CPU time to measure; default: those of the cluster that run on this machine
    #[arg(long, value_name = "PID", num_args = 1.., value_parser = within::<u32>(1..))]
    server_pid: Vec<u32>,
    /// Measure through this libfdb_c.so instead of the Rust client
    #[arg(long, value_name = "LIBRARY")]
    library: Option<PathBuf>,
    /// Network threads of the library
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u32>(1..=64))]
    library_threads: u32,
    /// File with the output of `bench calibrate --json`; without it the machine is calibrated before the run
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Directory whose disk is calibrated: use the servers' disk
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Calibrate {
    /// Directory whose disk is measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Scale {
    /// Files with the output of `bench run --json`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Report {
    /// Files with the output of `bench run --json`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected a number of transactions a second".into()),
    }
}

fn calibrate(arguments: &Calibrate) -> Outcome {
    let calibration = Calibration::measure(&arguments.directory)?;
    if arguments.json {
        println!("{}", calibration.to_json());
    } else {
        print_calibration(&calibration);
    }
    Ok(())
}

fn print_calibration(calibration: &Calibration) {
    for (_, value, what) in calibration.figures() {
        let shown = match value >= 1000.0 {
            true => grouped(value),
            false => format!("{value:.3}"),
        };
        println!("  {shown:>14} {what}");
    }
}

fn parse_workload(name: &str) -> Result<String, String> {
    let known = || Workload::all().iter().map(|workload| workload.name);
    match name == "list" || Workload::parse(name).is_some() {
        true => Ok(name.into()),
        false => Err(none_such(name, known())),
    }
}

fn run_workload(arguments: Run) -> Outcome {
    if arguments.workload == "list" {
        let all = Workload::all().iter();
        if arguments.json {
            let all = all.map(|of| serde_json::json!({"name": of.name, "about": of.about}));
            let all: Vec<Value> = all.collect();
            println!("{}", serde_json::json!({ "workloads": all }));
            return Ok(());
        }
        for workload in all {
            println!("{:<18} {}", workload.name, workload.about);
        }
        return Ok(());
    }
    measure(arguments).map_err(connect::with_hint)
}

fn measure(arguments: Run) -> Outcome {
    let workload = Workload::parse(&arguments.workload).expect("the flag was checked");
    connect::block_on(async {
        let connection = arguments.cluster.connect().await?;
        let server_pids = match &arguments.server_pid[..] {
            [] => find_servers(&connection).await,
            given => given.to_vec(),
        };
        if !arguments.server_pid.is_empty() && server_cpu::usage(&server_pids).is_none() {
            return Err(
                "--server-pid: there is no such process, or it may not be looked at".into(),
            );
        }
        // What may be refused is, before anything takes time.
        let calibration = match arguments.calibration.as_deref() {
            None => None,
            file => Some(Calibration::of(file, &arguments.directory).await?),
        };
        let plan = plan(&arguments, workload, server_pids);
        let table = Table::find(&arguments, &connection).await?;
        let measured = measure_in(&table, plan, &arguments, &connection, calibration).await;
        let cleared = table.leave(&arguments).await;
        measured?;
        cleared
    })
}

/// Says what a run does now, which takes time. Who asks for JSON reads errors alone.
fn now_does(arguments: &Run, what: &str) {
    if !arguments.json {
        plinth_terminal::say!("plinth: {what}");
    }
}

/// The table of a run.
struct Table {
    file: ClusterFile,
    /// The id of this run, as the table is marked with.
    run: String,
    rows: u64,
    /// It was there before.
    is_found: bool,
    /// What is said of one that stays.
    stays: String,
}

impl Table {
    async fn find(arguments: &Run, connection: &Connection) -> Outcome<Table> {
        let (file, rows) = (connection.coordinators.file(), arguments.rows);
        let run = format!("{:016x}", random::u64());
        let found = plinth_bench::lodge(rows, arguments.force, run.clone(), file.clone());
        let is_found = found.await?;
        if !is_found {
            plinth_bench::live(run.clone(), file.clone());
        }
        let stays = format!(
            "its table stays in the database; `plinth cli -C {} --exec '{}'' clears it",
            pasted(&connection.path),
            clearing()
        );
        let table = Table {
            file,
            run,
            rows,
            is_found,
            stays,
        };
        let interrupted = format!("bench: it was interrupted; {}", table.stays);
        interrupts::end_with(move || interrupted);
        Ok(table)
    }

    /// Loads it for a workload that does not, if it is not there.
    async fn load(&self, plan: &Plan, arguments: &Run) -> Outcome {
        if self.is_found {
            return Ok(());
        }
        if plan.workload.is_bulk_load() {
            return Ok(());
        }
        let rows = counted(grouped(self.rows as f64), "row", "rows");
        now_does(arguments, &format!("loading a table of {rows}"));
        let workload = Workload::parse("bulk-load").expect("it is one");
        let load = Plan {
            workload,
            clients: workload.default_clients,
            server_pids: Vec::new(),
            ..plan.clone()
        };
        let loaded = plinth_bench::run(load, self.file.clone()).await?;
        whole(&loaded)?;
        self.is_loaded(arguments).await
    }

    async fn is_loaded(&self, arguments: &Run) -> Outcome {
        plinth_bench::loaded(self.run.clone(), arguments.keep, self.file.clone()).await
    }

    /// Clears what this run has made.
    async fn leave(&self, arguments: &Run) -> Outcome {
        if self.is_found || arguments.keep {
            now_does(arguments, &self.stays);
            return Ok(());
        }
        let cleared = plinth_bench::clear(self.run.clone(), self.file.clone()).await;
        cleared.map_err(|error| format!("{error}; {}", self.stays))
    }
}

/// Refuses a load of which rows are missing.
fn whole(load: &Measured) -> Outcome {
    match load.counted.first_error {
        None => Ok(()),
        Some(error) => Err(format!(
            "{} transactions of the load were given up, and their rows are missing; the first error: {error}",
            load.counted.errors
        )),
    }
}

async fn measure_in(
    table: &Table,
    plan: Plan,
    arguments: &Run,
    connection: &Connection,
    calibration: Option<Calibration>,
) -> Outcome {
    let workload = plan.workload;
    table.load(&plan, arguments).await?;
    let busy = || {
        plinth_terminal::say!(
            "plinth: waiting, up to a minute, for the servers to finish earlier work"
        )
    };
    server_cpu::until_idle(&plan.server_pids, busy).await;
    let calibration = match calibration {
        Some(calibration) => calibration,
        None => {
            now_does(arguments, CALIBRATES);
            Calibration::of(None, &arguments.directory).await?
        }
    };
    let seconds = plan.warmup.as_secs_f64() + plan.duration.as_secs_f64();
    let measures = match workload.is_bulk_load() {
        true => "measuring until the table is loaded".into(),
        false => format!("measuring for {seconds} s, with the warm-up"),
    };
    now_does(arguments, &measures);
    let measured = run_plan(plan, arguments, connection).await?;
    if measured.server.is_none() && !measured.plan.server_pids.is_empty() {
        plinth_terminal::say!(
            "plinth: a server process ended while it was measured; its CPU time is not known"
        );
    }
    print_measured(&measured, &calibration, arguments.json);
    if workload.is_bulk_load() {
        whole(&measured)?;
        return table.is_loaded(arguments).await;
    }
    match measured.counted.first_error {
        Some(error) if measured.counted.transactions == 0 => Err(format!(
            "no transaction succeeded; the first error: {error}"
        )),
        _ => Ok(()),
    }
}

fn plan(arguments: &Run, workload: Workload, server_pids: Vec<u32>) -> Plan {
    Plan {
        workload,
        clients: match (arguments.clients, arguments.rate) {
            (Some(clients), _) => clients as usize,
            (None, Some(_)) => RATE_CLIENTS,
            (None, None) => workload.default_clients,
        },
        rate: arguments.rate.filter(|_| !workload.is_bulk_load()),
        threads: arguments.threads as usize,
        warmup: Duration::from_secs_f64(arguments.warmup),
        duration: Duration::from_secs_f64(arguments.duration),
        rows: arguments.rows,
        server_pids,
    }
}

/// Runs the plan with Plinth's own client, or with the library that the user named.
async fn run_plan(plan: Plan, arguments: &Run, connection: &Connection) -> Outcome<Measured> {
    let Some(path) = &arguments.library else {
        return plinth_bench::run(plan, connection.coordinators.file()).await;
    };
    let library = Library::load(path, LIBRARY_API_VERSION, arguments.library_threads);
    let library = library
        .map_err(|error| format!("--library {}: it cannot be used: {error}", path.display()))?;
    let file = connection.path.clone();
    let opened = library.open(&file);
    opened.map_err(|error| format!("{}: {error}", file.display()))?;
    plinth_bench::run_foreign(plan, library, file).await
}

fn print_measured(measured: &Measured, calibration: &Calibration, json: bool) {
    if json {
        let mut object = measured.to_json();
        object["calibration"] = calibration.to_json();
        println!("{object}");
    } else {
        print_table(measured);
        println!("calibration of this machine:");
        print_calibration(calibration);
    }
}

/// The server processes of the cluster on this machine; none if they cannot be determined.
async fn find_servers(connection: &Connection) -> Vec<u32> {
    let mut addresses = connection.coordinators.file().addresses();
    if let Ok(document) = status::fetch(connection).await {
        let processes = document["cluster"]["processes"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let parsed = processes
            .values()
            .filter_map(|p| p["address"].as_str()?.parse::<SocketAddr>().ok());
        addresses.extend(parsed);
    }
    addresses.retain(|address| address.ip().is_loopback() || is_own(*address));
    server_cpu::processes_listening_at(&addresses)
}

/// True if the address belongs to this machine: only then can a socket be bound to it.
fn is_own(address: SocketAddr) -> bool {
    std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}

fn print_table(measured: &Measured) {
    let plan = &measured.plan;
    println!(
        "{}: {}, {:.1} s, {}",
        plan.workload.name,
        counted(plan.clients, "client", "clients"),
        measured.duration_s,
        counted(grouped(plan.rows as f64), "row", "rows")
    );
    let row = |name: &str, value: String| println!("  {name:<28} {value}");
    row("operations/s", grouped(measured.operations_per_second()));
    row(
        "transactions/s",
        grouped(measured.transactions_per_second()),
    );
    let object = measured.to_json();
    for (name, field) in [
        ("latency, ms", "latency_ms"),
        ("  read version, ms", "read_version_ms"),
        ("  reads, ms", "reads_ms"),
        ("  commit, ms", "commit_ms"),
    ] {
        let quantiles = &object[field];
        if quantiles.is_object() {
            row(
                name,
                format!(
                    "p50 {}  p90 {}  p99 {}  p99.9 {}",
                    quantiles["p50"], quantiles["p90"], quantiles["p99"], quantiles["p99_9"]
                ),
            );
        }
    }
    row(
        "conflicts, retries, errors",
        format!(
            "{}, {}, {}",
            measured.counted.conflicts, measured.counted.retries, measured.counted.errors
        ),
    );
    if plan.rate.is_some() {
        row("turned away", grouped(measured.counted.turned_away as f64));
    }
    if let Some(error) = measured.counted.first_error {
        row("first error", error.to_string());
    }
    if let (Some(used), Some(rate)) = (&measured.server, measured.operations_per_server_cpu_s()) {
        row("server CPU, s", format!("{:.2}", used.cpu_s));
        row("operations/server CPU s", grouped(rate));
        row(
            "server memory, MiB",
            grouped(used.memory_bytes as f64 / f64::from(1 << 20)),
        );
    }
}

fn read_runs(files: &[PathBuf]) -> Outcome<Vec<Value>> {
    let mut runs = Vec::new();
    for file in files {
        let at = |what: String| format!("{}: {what}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| at(why_not_read(&error, "")))?;
        runs.extend(parse_runs(&text).map_err(at)?);
    }
    Ok(runs)
}

fn print_scaled(arguments: &Scale) -> Outcome {
    print!("{}", scale::tables(&read_runs(&arguments.files)?)?);
    Ok(())
}

fn make_page(arguments: &Report) -> Outcome {
    let read = |file: &PathBuf| Ok((file.clone(), read_runs(std::slice::from_ref(file))?));
    let files: Vec<_> = arguments.files.iter().map(read).collect::<Outcome<_>>()?;
    let runs: Vec<_> = files.iter().flat_map(|(_, runs)| runs.clone()).collect();
    if runs.iter().any(|run| run["kinds"].is_object()) {
        let line =
            "these runs are of `keeper bench run': `plinth keeper bench report' makes their page";
        return Err(line.into());
    }
    write_page(
        &arguments.output,
        "-o",
        &arguments.files,
        &page(&sets(files)),
    )?;
    let runs = counted(runs.len(), "run", "runs");
    println!("{runs} in {}", arguments.output.display());
    Ok(())
}
