//! `plinth keeper bench`: servers that speak ZooKeeper's protocol, side by side.

use plinth_keeper_bench::mix::Workload;
use plinth_keeper_bench::report;
use plinth_keeper_bench::run::{Disturbance, Plan, Server, reach, run as run_all};
use plinth_measure::runs::parse_runs;
use plinth_measure::{Calibration, server_cpu};
use plinth_runtime::{Duration, random};
use plinth_terminal::choices::unknown;
use plinth_terminal::commands::Commands;
use plinth_terminal::numbers::within;
use plinth_terminal::process::raise_file_limit;
use plinth_terminal::seconds::{parse_positive, parse_seconds};
use plinth_terminal::{Outcome, connect};
use serde_json::Value;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Run workloads on servers in turn, and print how the first compares with the others
    Run(Box<Run>),
    /// Make an HTML page with plots from the output of `keeper bench run --json-file`
    Report(Report),
}

#[derive(clap::Args, Debug)]
pub struct Report {
    /// Files with the output of `keeper bench run --json-file`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

#[derive(clap::Args, Debug)]
pub struct Run {
    /// A server, by a name for the report; addresses behind it share the sessions. May be repeated: each workload runs
    /// on all of them in turn, and the first is compared with the others. Everything below /plinth-bench is removed
    #[arg(long = "server", value_name = "NAME=HOST:PORT[,HOST:PORT…]", value_parser = parse_server)]
    servers: Vec<(String, Vec<SocketAddr>)>,
    /// Workloads; `list` explains them. Default: all but `failures`
    #[arg(long = "workload", value_name = "NAME", value_delimiter = ',')]
    workloads: Vec<String>,
    /// Numbers of sessions, each with a connection. The bulk load and `failures` use the largest only
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,100,800",
        value_parser = within::<u32>(1..=100_000)
    )]
    clients: Vec<u32>,
    /// Requests of each session under way
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u32>(1..=10_000))]
    outstanding: u32,
    /// Seconds to measure each server in each round
    #[arg(long, alias = "seconds", value_name = "SECONDS", default_value_t = 5.0, value_parser = parse_positive)]
    duration: f64,
    /// Seconds to run before measuring
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_seconds)]
    warmup: f64,
    /// Times that each workload runs on each server
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Nodes that are read; also the nodes of 128 bytes that the bulk load creates
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within::<u64>(1..=1 << 32))]
    nodes: u64,
    /// Bytes of the nodes that are read and set, 8 to 16384
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = within::<u32>(8..=16384))]
    node_bytes: u32,
    /// Processes of a server, for its CPU time and memory; default: those that listen at its addresses
    #[arg(long = "pids", value_name = "NAME=PID,PID…", value_parser = parse_pids)]
    pids: Vec<(String, Vec<u32>)>,
    /// Decides which requests are made; default: a random one
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Command for the shell that `failures` runs once for each server and round, whose name is in $SERVER
    #[arg(long, value_name = "COMMAND")]
    disturb: Option<String>,
    /// When it runs, in seconds after the measuring begins; default: after a third of the time
    #[arg(long, value_name = "S", value_parser = parse_seconds, requires = "disturb")]
    disturb_at: Option<f64>,
    /// Time-out of the sessions of `failures`
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = within::<i32>(1000..=600_000))]
    session_timeout_ms: i32,
    /// Leave the nodes on the servers
    #[arg(long)]
    keep: bool,
    /// File with the output of `bench calibrate --json`; without it the machine is calibrated before the run
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Directory whose disk is calibrated: use the servers' disk
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// File for one JSON object a line, for each workload, number of clients and server
    #[arg(long = "json-file", alias = "json", value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn named(text: &str) -> Result<(String, &str), String> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() => Ok((name.into(), rest)),
        _ => Err("expected a name, `=`, and what belongs to it".into()),
    }
}

fn parse_server(text: &str) -> Result<(String, Vec<SocketAddr>), String> {
    let (name, places) = named(text)?;
    let resolve = |place: &str| {
        let mut found = place
            .to_socket_addrs()
            .map_err(|error| format!("{place}: {error}"))?;
        found.next().ok_or(format!("{place}: it has no address"))
    };
    let addresses: Result<Vec<_>, String> = places.split(',').map(resolve).collect();
    Ok((name, addresses?))
}

fn parse_pids(text: &str) -> Result<(String, Vec<u32>), String> {
    let (name, pids) = named(text)?;
    let parse = |pid: &str| pid.parse().map_err(|_| format!("`{pid}` is no process id"));
    let pids: Result<Vec<u32>, String> = pids.split(',').map(parse).collect();
    Ok((name, pids?))
}

pub fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::Run(arguments) => measure(&arguments),
        Command::Report(arguments) => make_page(&arguments),
    }
}

fn measure(arguments: &Run) -> Outcome {
    if arguments.workloads.iter().any(|name| name == "list") {
        for workload in Workload::all() {
            println!("{:<12} {}", workload.name, workload.about);
        }
        println!("{:<12} the same with any other share of reads", "reads-N");
        return Ok(());
    }
    let plan = plan(arguments)?;
    raise_file_limit();
    connect::block_on(async {
        reach(&plan).await?;
        let calibration =
            Calibration::of(arguments.calibration.as_deref(), &arguments.directory).await?;
        eprintln!("plinth: seed {}", plan.seed);
        let mut objects: Vec<Value> = Vec::new();
        let outcome = run_all(
            &plan,
            |line| eprintln!("plinth: {line}"),
            |compared| {
                let mut measured = report::objects(&plan, &compared);
                print!("{}", report::lines(&measured));
                for object in &mut measured {
                    object["calibration"] = calibration.to_json();
                }
                objects.append(&mut measured);
            },
        )
        .await;
        // What was measured before an error is still worth something.
        write(arguments, &objects)?;
        outcome
    })
}

fn make_page(arguments: &Report) -> Outcome {
    let mut runs = Vec::new();
    for file in &arguments.files {
        let at = |what: String| format!("{}: {what}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| at(error.to_string()))?;
        let of_file = parse_runs(&text).map_err(at)?;
        if !of_file.iter().all(|run| run["kinds"].is_object()) {
            return Err(at(
                "it has runs of something else than `plinth keeper bench run`".into(),
            ));
        }
        runs.extend(of_file);
    }
    let output = &arguments.output;
    std::fs::write(output, report::page(&runs))
        .map_err(|error| format!("{}: {error}; choose another with -o", output.display()))?;
    println!("{} runs in {}", runs.len(), output.display());
    Ok(())
}

fn write(arguments: &Run, objects: &[Value]) -> Outcome {
    let json: String = objects.iter().map(|object| format!("{object}\n")).collect();
    let html = arguments
        .html
        .as_ref()
        .map(|path| ("--html", path, report::page(objects)));
    let json = arguments.json.as_ref().map(|path| ("--json", path, json));
    for (flag, path, text) in json.into_iter().chain(html) {
        std::fs::write(path, text)
            .map_err(|error| format!("{flag} {}: {error}", path.display()))?;
    }
    Ok(())
}

fn plan(arguments: &Run) -> Outcome<Plan> {
    let workloads = workloads(arguments)?;
    let disturbance = arguments.disturb.as_ref().map(|command| Disturbance {
        command: command.clone(),
        at: Duration::from_secs_f64(arguments.disturb_at.unwrap_or(arguments.duration / 3.0)),
    });
    if disturbance.is_none() && workloads.iter().any(|workload| workload.is_disturbed) {
        return Err("--workload failures: say what fails with --disturb".into());
    }
    if arguments
        .disturb_at
        .is_some_and(|at| at >= arguments.duration)
    {
        return Err("--disturb-at: it must be before the end, which --duration sets".into());
    }
    Ok(Plan {
        servers: servers(arguments)?,
        workloads,
        clients: arguments
            .clients
            .iter()
            .map(|clients| *clients as usize)
            .collect(),
        outstanding: arguments.outstanding as usize,
        warmup: Duration::from_secs_f64(arguments.warmup),
        duration: Duration::from_secs_f64(arguments.duration),
        rounds: arguments.rounds as usize,
        nodes: arguments.nodes,
        node_bytes: arguments.node_bytes as usize,
        seed: arguments.seed.unwrap_or_else(|| random::below(1 << 32)),
        disturbance,
        timeout_ms: arguments.session_timeout_ms,
        keep: arguments.keep,
    })
}

fn workloads(arguments: &Run) -> Outcome<Vec<Workload>> {
    if arguments.workloads.is_empty() {
        let mut all = Workload::all();
        all.retain(|workload| !workload.is_disturbed);
        return Ok(all);
    }
    let parse = |name: &String| {
        let known = || Workload::all().into_iter().map(|workload| workload.name);
        Workload::parse(name).ok_or_else(|| unknown("--workload", name, known()))
    };
    arguments.workloads.iter().map(parse).collect()
}

fn servers(arguments: &Run) -> Outcome<Vec<Server>> {
    if arguments.servers.is_empty() {
        return Err("which server? name it: --server NAME=HOST:PORT".into());
    }
    let names = || arguments.servers.iter().map(|(name, _)| name);
    for (number, name) in names().enumerate() {
        if names().take(number).any(|other| other == name) {
            return Err(format!("--server: there are two with the name {name}"));
        }
    }
    if let Some((name, _)) = arguments
        .pids
        .iter()
        .find(|(of, _)| !names().any(|name| name == of))
    {
        return Err(format!("--pids: there is no --server {name}"));
    }
    let mut servers = Vec::new();
    for (name, addresses) in &arguments.servers {
        let given = arguments.pids.iter().filter(|(of, _)| of == name);
        let given: Vec<u32> = given.flat_map(|(_, pids)| pids.iter().copied()).collect();
        if !given.is_empty() && server_cpu::usage(&given).is_none() {
            return Err(format!(
                "--pids {name}: there is no such process, or it may not be looked at"
            ));
        }
        let listening = || server_cpu::processes_listening_at(addresses);
        servers.push(Server {
            name: name.clone(),
            addresses: addresses.clone(),
            pids: if given.is_empty() { listening() } else { given },
        });
    }
    Ok(servers)
}
