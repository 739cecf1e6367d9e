//! `plinth keeper bench`: servers that speak ZooKeeper's protocol, side by side.

use plinth_keeper_bench::claim::claim;
use plinth_keeper_bench::mix::Workload;
use plinth_keeper_bench::run::{Disturbance, Part, Plan, Server, clean, reach, run as run_all};
use plinth_keeper_bench::tree::ROOT;
use plinth_keeper_bench::{markdown, report};
use plinth_measure::runs::parse_runs;
use plinth_measure::{Calibration, server_cpu};
use plinth_runtime::{Duration, random};
use plinth_terminal::choices::{among, none_such};
use plinth_terminal::commands::{Commands, wrong_usage};
use plinth_terminal::numbers::{bytes_within, within};
use plinth_terminal::outputs::why_not_read;
use plinth_terminal::outputs::{check_writable, write_page};
use plinth_terminal::process::{raise_file_limit, unless_interrupted};
use plinth_terminal::seconds::{parse_positive, parse_seconds};
use plinth_terminal::wording::counted;
use plinth_terminal::{Outcome, connect, ports};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Run workloads on servers in turn, and print how they compare with one of them
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keeper bench run --workload list", "What there is to measure"),
        (
            "plinth keeper bench run --server plinth=127.0.0.1:2181 --server zk=127.0.0.1:2182",
            "All of it, at two servers by turns",
        ),
        (
            "plinth keeper bench run --server a=127.0.0.1:2181 --workload ycsb-b --json-file results.jsonl",
            "One workload, for `report`",
        ),
    ]))]
    Run(Box<Run>),
    /// Make an HTML page with plots, and tables in Markdown, from the output of `keeper bench run --json-file`
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keeper bench report results.jsonl", "Make report.html"),
        (
            "plinth keeper bench report results.jsonl -o keeper.html --markdown keeper.md",
            "And tables in Markdown",
        ),
    ]))]
    Report(Report),
}

/// Words for `--workload`.
fn offered() -> impl Iterator<Item = &'static str> {
    Workload::names().chain(["list"])
}

#[derive(clap::Args, Debug)]
pub struct Report {
    /// Files with the output of `keeper bench run --json-file`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// File for tables in Markdown, with goals
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub struct Run {
    /// A server, by a name for the report; addresses behind it share the sessions. May be repeated: each workload runs
    /// on all of them in turn. Everything below /plinth-bench is removed
    #[arg(long = "server", value_name = "NAME=HOST:PORT[,HOST:PORT…]", value_parser = parse_server)]
    servers: Vec<(String, Vec<SocketAddr>)>,
    /// The server that the others are compared with; default: the last one
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Workloads; `list` explains them. Default: all but `failures`
    #[arg(
        long = "workload",
        value_name = "NAME",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    #[arg(value_parser = among(offered(), parse_workload))]
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
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_seconds)]
    warmup: f64,
    /// Seconds for which every server works before the first round
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = parse_seconds)]
    first_warmup: f64,
    /// Seconds to wait after each round, at most, until the server has done what it has put off
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = parse_seconds)]
    settle: f64,
    /// Times that each workload runs on each server
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Nodes that are read; also the nodes of 128 bytes that the bulk load creates
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within::<u64>(1..=1 << 32))]
    nodes: u64,
    /// Bytes of the nodes that are read and set, 8 to 16384
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = bytes_within::<u32>(8..=16384))]
    node_bytes: u32,
    /// Processes of a server, for its CPU time and memory, those of each part apart; default: those that listen at its
    /// addresses
    #[arg(long = "pids", value_name = "NAME[:PART]=PID,PID…", value_parser = parse_pids)]
    pids: Vec<(String, Part)>,
    /// Directory of a server's data, to see what it takes on the disk
    #[arg(long = "data", value_name = "NAME=DIR", value_parser = parse_data)]
    data: Vec<(String, PathBuf)>,
    /// Cores that the servers have for themselves; default: they share all of the machine with this command
    #[arg(long, value_name = "N", value_parser = within::<u32>(1..=10_000))]
    server_cores: Option<u32>,
    /// Decides which requests are made; default: a random one
    #[arg(long, value_name = "N", value_parser = within::<u64>(..))]
    seed: Option<u64>,
    /// Command for the shell that `failures` runs once for each server and round, whose name is in $SERVER
    #[arg(long, value_name = "COMMAND")]
    disturb: Option<String>,
    /// When it runs, in seconds after the measuring begins; default: after a third of the time
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "disturb")]
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
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Print these objects, one a line, instead of a table
    #[arg(long)]
    json: bool,
    /// File for an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn named(text: &str) -> Result<(String, &str), String> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() => Ok((name.into(), rest)),
        _ => Err("expected a name, `=', and what belongs to it".into()),
    }
}

fn parse_server(text: &str) -> Result<(String, Vec<SocketAddr>), String> {
    let (name, places) = named(text)?;
    let resolve =
        |place: &str| ports::parse_address(place).map_err(|line| format!("`{place}': {line}"));
    let addresses: Result<Vec<_>, String> = places.split(',').map(resolve).collect();
    Ok((name, addresses?))
}

fn parse_workload(name: &str) -> Result<String, String> {
    let all = Workload::all();
    match name == "list" || Workload::parse(name).is_some() {
        true => Ok(name.into()),
        false => Err(none_such(name, all.iter().map(|one| &one.name))),
    }
}

fn parse_pids(text: &str) -> Result<(String, Part), String> {
    let (name, pids) = named(text)?;
    let (name, part) = name.split_once(':').unwrap_or((&name, ""));
    let parse = |pid: &str| pid.parse().map_err(|_| format!("`{pid}' is no process id"));
    let pids: Result<Vec<u32>, String> = pids.split(',').map(parse).collect();
    let part = Part {
        name: part.into(),
        pids: pids?,
    };
    Ok((name.into(), part))
}

fn parse_data(text: &str) -> Result<(String, PathBuf), String> {
    let (name, directory) = named(text)?;
    Ok((name, directory.into()))
}

pub fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::Run(arguments) => measure(&arguments),
        Command::Report(arguments) => make_page(&arguments),
    }
}

fn list(json: bool) {
    let all = Workload::all().into_iter().map(|of| (of.name, of.about));
    let any = ("reads-N", "the same with any other share of reads");
    let all = all.chain([(any.0.to_owned(), any.1.to_owned())]);
    match json {
        true => {
            let all = all.map(|(name, about)| serde_json::json!({"name": name, "about": about}));
            let all: Vec<Value> = all.collect();
            println!("{}", serde_json::json!({ "workloads": all }));
        }
        false => all.for_each(|(name, about)| println!("{name:<12} {about}")),
    }
}

fn measure(arguments: &Run) -> Outcome {
    if arguments.workloads.iter().any(|name| name == "list") {
        list(arguments.json);
        return Ok(());
    }
    if arguments.servers.is_empty() {
        wrong_usage("which server? name it: --server NAME=HOST:PORT");
    }
    let plan = plan(arguments)?;
    raise_file_limit();
    connect::block_on(async {
        reach(&plan).await?;
        let claims = claim(&plan).await?;
        let measured = unless_interrupted(measure_on(arguments, &plan)).await?;
        let outcome = match measured {
            Some(outcome) => outcome,
            None => Err(leave(&plan).await),
        };
        claims.end().await;
        outcome
    })
}

/// What is said of nodes that a run has not removed.
fn stays() -> String {
    format!(
        "what is left of it below {ROOT} is removed by the next run, or by `deleteall {ROOT}' in a shell"
    )
}

/// Removes what a run has made that was interrupted, unless it is to stay. The line about it.
async fn leave(plan: &Plan) -> String {
    let line = "keeper bench: it was interrupted";
    if plan.keep {
        return format!("{line}; {}", stays());
    }
    plinth_terminal::say!(
        "plinth: interrupted; removing what is below {ROOT}; once more: it stays"
    );
    let removed = unless_interrupted(clean(plan)).await;
    match removed.and_then(|removed| removed.unwrap_or(Err("it was not waited for".into()))) {
        Ok(()) => format!("{line}; what it had made is removed"),
        Err(why) => format!("{line}, and not all is removed: {why}; {}", stays()),
    }
}

async fn measure_on(arguments: &Run, plan: &Plan) -> Outcome {
    let calibration =
        Calibration::of(arguments.calibration.as_deref(), &arguments.directory).await?;
    plinth_terminal::say!("plinth: seed {}", plan.seed);
    let mut objects: Vec<Value> = Vec::new();
    let mut written = Ok(());
    let outcome = run_all(
        plan,
        |line| plinth_terminal::say!("plinth: {line}"),
        |compared| {
            let mut measured = report::objects(plan, &compared);
            if !arguments.json {
                print!("{}", report::lines(&measured));
            }
            for object in &mut measured {
                object["calibration"] = calibration.to_json();
            }
            if arguments.json {
                measured.iter().for_each(|object| println!("{object}"));
            }
            objects.append(&mut measured);
            // What was measured before the run ends, however it does, is still worth something.
            written = write(arguments, &objects);
        },
    )
    .await;
    written.and(outcome.map_err(|line| format!("{line}; {}", stays())))
}

fn make_page(arguments: &Report) -> Outcome {
    let mut runs = Vec::new();
    for file in &arguments.files {
        let at = |what: String| format!("{}: {what}", file.display());
        let cannot = |error: std::io::Error| at(why_not_read(&error, ""));
        let text = std::fs::read_to_string(file).map_err(cannot)?;
        let of_file = parse_runs(&text).map_err(at)?;
        if !of_file.iter().all(|run| run["kinds"].is_object()) {
            return Err(at(
                "it has runs of something else than `plinth keeper bench run'".into(),
            ));
        }
        runs.extend(of_file);
    }
    let output = &arguments.output;
    write_page(output, "-o", &arguments.files, &report::page(&runs))?;
    if let Some(file) = &arguments.markdown {
        write_page(
            file,
            "--markdown",
            &arguments.files,
            &markdown::tables(&runs),
        )?;
    }
    let runs = counted(runs.len(), "run", "runs");
    println!("{runs} in {}", output.display());
    Ok(())
}

fn write(arguments: &Run, objects: &[Value]) -> Outcome {
    let json: String = objects.iter().map(|object| format!("{object}\n")).collect();
    let html = arguments
        .html
        .as_ref()
        .map(|path| ("--html", path, report::page(objects)));
    let json_file = arguments.json_file.as_ref();
    let json = json_file.map(|path| ("--json-file", path, json));
    for (flag, path, text) in json.into_iter().chain(html) {
        std::fs::write(path, text)
            .map_err(|error| format!("{flag} {}: {error}", path.display()))?;
    }
    Ok(())
}

fn plan(arguments: &Run) -> Outcome<Plan> {
    let files = [
        ("--html", &arguments.html),
        ("--json-file", &arguments.json_file),
    ];
    for (flag, path) in files {
        path.iter()
            .try_for_each(|path| check_writable(path, flag))?;
    }
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
    let servers = servers(arguments)?;
    let all_cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let own_cores = arguments.server_cores.map(|cores| cores as usize);
    Ok(Plan {
        peer: peer(arguments, &servers)?,
        servers,
        workloads,
        clients: arguments
            .clients
            .iter()
            .map(|clients| *clients as usize)
            .collect(),
        outstanding: arguments.outstanding as usize,
        warmup: Duration::from_secs_f64(arguments.warmup),
        first_warmup: Duration::from_secs_f64(arguments.first_warmup),
        duration: Duration::from_secs_f64(arguments.duration),
        settle: Duration::from_secs_f64(arguments.settle),
        rounds: arguments.rounds as usize,
        nodes: arguments.nodes,
        node_bytes: arguments.node_bytes as usize,
        seed: arguments.seed.unwrap_or_else(|| random::below(1 << 32)),
        disturbance,
        timeout_ms: arguments.session_timeout_ms,
        keep: arguments.keep,
        cores: own_cores.unwrap_or_else(all_cores),
        has_own_cores: own_cores.is_some(),
    })
}

fn peer(arguments: &Run, servers: &[Server]) -> Outcome<usize> {
    let Some(name) = &arguments.peer else {
        return Ok(servers.len() - 1);
    };
    let found = servers.iter().position(|server| server.name == *name);
    found.ok_or_else(|| format!("--peer: there is no --server {name}"))
}

fn workloads(arguments: &Run) -> Outcome<Vec<Workload>> {
    if arguments.workloads.is_empty() {
        let mut all = Workload::all();
        all.retain(|workload| !workload.is_disturbed);
        return Ok(all);
    }
    let parse = |name: &String| Workload::parse(name).expect("the flag was checked");
    Ok(arguments.workloads.iter().map(parse).collect())
}

fn servers(arguments: &Run) -> Outcome<Vec<Server>> {
    let names = || arguments.servers.iter().map(|(name, _)| name);
    for (number, name) in names().enumerate() {
        if names().take(number).any(|other| other == name) {
            return Err(format!("--server: there are two with the name {name}"));
        }
    }
    let of_pids = arguments.pids.iter().map(|(name, _)| ("--pids", name));
    let of_data = arguments.data.iter().map(|(name, _)| ("--data", name));
    for (flag, of) in of_pids.chain(of_data) {
        if !names().any(|name| name == of) {
            return Err(format!("{flag}: there is no --server {of}"));
        }
    }
    let mut servers = Vec::new();
    for (name, addresses) in &arguments.servers {
        let given = arguments.pids.iter().filter(|(of, _)| of == name);
        let mut parts: Vec<Part> = given.map(|(_, part)| part.clone()).collect();
        for part in &parts {
            if server_cpu::usage(&part.pids).is_none() {
                return Err(format!(
                    "--pids {name}: there is no such process, or it may not be looked at"
                ));
            }
        }
        if parts.is_empty() {
            let pids = server_cpu::processes_listening_at(addresses);
            let name = String::new();
            parts.extend((!pids.is_empty()).then_some(Part { name, pids }));
        }
        let data = arguments.data.iter().find(|(of, _)| of == name);
        servers.push(Server {
            name: name.clone(),
            addresses: addresses.clone(),
            parts,
            directory: data.map(|(_, directory)| directory.clone()),
        });
    }
    Ok(servers)
}
