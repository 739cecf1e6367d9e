//! `plinth tools sim`: simulated clusters with faults. A seed determines a run, which is the same every time.

use plinth_runtime::Duration;
use plinth_sim::{
    HAS_PLANTED_FAULTS, HuntOptions, Limits, RunOptions, hunt, scenario, scenarios, workloads,
};
use plinth_terminal::choices::{among, missing, unknown};
use plinth_terminal::commands::{Commands, wrong_usage};
use plinth_terminal::numbers::{seconds_within, within};
use plinth_terminal::seconds::parse_seconds;
use plinth_terminal::wording::counted;
use plinth_terminal::{Outcome, interrupts, progress};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The scenario with every kind of fault and workload.
const STANDARD: &str = "standard";

#[derive(clap::Subcommand, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth tools sim run --seed 1", "One run; its trace, and the verdict in the last line"),
    ("plinth tools sim hunt --seeds 1..1000", "Many of them, until one fails"),
]))]
pub enum Command {
    /// Run one seed; exits with 1 if a promise was broken, 3 after a crash, 4 if the cluster did not serve again, 5
    /// if two runs differ
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth tools sim run --seed 1 --scenario disks", "A run in which disks fail"),
        (
            "plinth tools sim run --seed 1 --twice --quiet",
            "Is the second run the same as the first?",
        ),
    ]))]
    Run(Run),
    /// Run many seeds until one fails; exits with 1 then
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth tools sim hunt --seeds 1..100000 --budget 10m", "So many seeds, or ten minutes"),
        (
            "plinth tools sim hunt --seeds 1..100 --scenario network --verbose",
            "One scenario, with a line for each run",
        ),
    ]))]
    Hunt(Hunt),
    /// Reduce a failing run: fewer faults, workloads and machines, less time, the same failure
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth tools sim shrink --seed 1 --scenario standard",
            "Ends with the command that repeats the smaller run",
        ),
    ]))]
    Shrink(Shrink),
    /// List the scenarios
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth tools sim list", "A line each"),
    ]))]
    List,
    /// List the rare code paths that runs count
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth tools sim probes", "A name a line; `hunt` says which of them no run has taken"),
    ]))]
    Probes,
}

fn scenario_names() -> impl Iterator<Item = &'static str> {
    scenarios().into_iter().map(|scenario| scenario.name)
}

/// Options that select a run.
#[derive(clap::Args, Debug)]
struct Which {
    /// Seed; it determines everything random
    #[arg(long, value_name = "N", value_parser = within::<u64>(..))]
    seed: u64,
    /// Scenario; `plinth tools sim list` lists them
    #[arg(long, value_name = "NAME", default_value = STANDARD, hide_possible_values = true)]
    #[arg(value_parser = among(scenario_names(), |name| Ok(name.to_owned())))]
    scenario: String,
    #[command(flatten)]
    less: Less,
    /// Enable a deliberate bug, in a test build
    #[arg(long, value_name = "NAME")]
    planted_fault: Option<String>,
}

impl Which {
    fn options(self) -> Outcome<RunOptions> {
        check_names(&self.scenario, self.planted_fault.as_deref())?;
        Ok(RunOptions {
            planted_fault: self.planted_fault,
            limits: self.less.limits(&self.scenario)?,
            ..RunOptions::new(self.seed, &self.scenario)
        })
    }
}

#[derive(clap::Args, Debug)]
pub struct Run {
    #[command(flatten)]
    which: Which,
    /// Run it twice and compare the fingerprints
    #[arg(long)]
    twice: bool,
    /// Let the run take as long as it likes in wall time, under a debugger for instance
    #[arg(long)]
    no_wall_limit: bool,
    /// Print only the last line
    #[arg(long, short)]
    quiet: bool,
}

#[derive(clap::Args, Debug)]
pub struct Hunt {
    /// Range of seeds, both ends included
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: RangeInclusive<u64>,
    /// Scenario; `plinth tools sim list` lists them
    #[arg(long, value_name = "NAME", default_value = STANDARD, hide_possible_values = true)]
    #[arg(value_parser = among(scenario_names(), |name| Ok(name.to_owned())))]
    scenario: String,
    #[command(flatten)]
    less: Less,
    /// Runs at the same time; default: one per core
    #[arg(long, value_name = "N", value_parser = within::<u32>(1..))]
    jobs: Option<u32>,
    /// Start no new run after this time: seconds, or a time such as 10m
    #[arg(long, value_name = "SECONDS", value_parser = parse_budget)]
    budget: Option<Duration>,
    /// Let a run take as long as it likes in wall time, where others have the processor first
    #[arg(long)]
    no_wall_limit: bool,
    /// Print the line of every run
    #[arg(long, short)]
    verbose: bool,
    /// Enable a deliberate bug, in a test build
    #[arg(long, value_name = "NAME")]
    planted_fault: Option<String>,
}

#[derive(clap::Args, Debug)]
struct Less {
    /// Service, in a scenario whose seeds draw one
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Maximum number of machines
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..))]
    machines: Option<u16>,
    /// Maximum number of processes per machine
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..))]
    processes: Option<u16>,
    /// Maximum simulated seconds of faults
    #[arg(long, alias = "seconds", value_name = "SECONDS", value_parser = seconds_within(..))]
    duration: Option<u64>,
    /// Allow only these kinds of fault; an empty list allows none
    #[arg(long, value_name = "KIND,…")]
    faults: Option<String>,
    /// Allow only these of the workloads that the seed draws
    #[arg(long, value_name = "NAME,…")]
    workloads: Option<String>,
}

impl Less {
    fn limits(self, scenario: &str) -> Outcome<Limits> {
        if let Some(service) = &self.service {
            check_service(service, scenario)?;
        }
        let workloads: Vec<String> = workloads::names().into_iter().map(String::from).collect();
        Ok(Limits {
            service: self.service,
            machines: self.machines.map(usize::from),
            processes: self.processes.map(usize::from),
            seconds: self.duration,
            faults: names("--faults", self.faults, &scenario::fault_kinds())?,
            workloads: names("--workloads", self.workloads, &workloads)?,
        })
    }
}

fn check_service(service: &str, scenario: &str) -> Outcome {
    if !scenario::find(scenario).is_some_and(|scenario| scenario.draws_service()) {
        return Err(format!("--service: `{scenario}' has no choice of services"));
    }
    let known: Vec<&str> = scenario::services().iter().map(|one| one.name()).collect();
    match known.contains(&service) {
        true => Ok(()),
        false => Err(unknown("--service", service, known)),
    }
}

/// Parses a list of names; each must be in `known`.
fn names(option: &str, list: Option<String>, known: &[String]) -> Outcome<Option<Vec<String>>> {
    let Some(list) = list else {
        return Ok(None);
    };
    let words = list.split(',').map(str::trim);
    let words: Vec<String> = words.filter(|w| !w.is_empty()).map(String::from).collect();
    match words.iter().find(|word| !known.contains(word)) {
        Some(word) => Err(unknown(option, word, known)),
        None => Ok(Some(words)),
    }
}

#[derive(clap::Args, Debug)]
pub struct Shrink {
    #[command(flatten)]
    which: Which,
    /// Number of seeds to try for each smaller run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = within::<u64>(1..))]
    tries: u64,
}

fn parse_seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || "expected two numbers, A..B, the first not above the last".to_string();
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let last = last.strip_prefix('=').unwrap_or(last);
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(wrong()),
    }
}

fn parse_budget(text: &str) -> Result<Duration, String> {
    parse_seconds(text).map(Duration::from_secs_f64)
}

pub fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::Run(run) => run_one(run),
        Command::Hunt(hunt) => run_many(hunt),
        Command::Shrink(shrink) => make_smaller(shrink),
        Command::List => {
            for scenario in scenarios() {
                println!("{:<16} {}", scenario.name, scenario.about);
            }
            Ok(())
        }
        Command::Probes => {
            for name in plinth_runtime::probe::all() {
                println!("{name}");
            }
            Ok(())
        }
    }
}

fn check_names(scenario: &str, planted_fault: Option<&str>) -> Outcome {
    let all = scenarios();
    if !all.iter().any(|known| known.name == scenario) {
        let names = all.iter().map(|known| known.name);
        let otherwise = "`plinth tools sim list' names them";
        return Err(format!(
            "--scenario: {}",
            missing("scenario", scenario, names, otherwise)
        ));
    }
    let Some(fault) = planted_fault else {
        return Ok(());
    };
    if !HAS_PLANTED_FAULTS {
        return Err(
            "--planted-fault: this build has none; build with `--features planted-faults'".into(),
        );
    }
    let faults = plinth_runtime::fault::all();
    if !faults.iter().any(|known| known.name == fault) {
        let names = faults.iter().map(|known| known.name);
        return Err(unknown("--planted-fault", fault, names));
    }
    Ok(())
}

fn run_one(arguments: Run) -> Outcome {
    let options = arguments.which.options();
    let outcome = plinth_sim::run(RunOptions {
        verbose: !arguments.quiet,
        check_determinism: arguments.twice,
        may_take_long: arguments.no_wall_limit,
        ..options.unwrap_or_else(|line| wrong_usage(&line))
    });
    if !arguments.quiet {
        for line in &outcome.trace_tail {
            println!("{line}");
        }
    }
    let Err(failure) = &outcome.result else {
        println!("{outcome}");
        return Ok(());
    };
    if !arguments.quiet {
        plinth_terminal::say!("plinth: knobs drawn: {}", outcome.drawn.knobs.join(" "));
    }
    plinth_terminal::say!(
        "plinth: seed {}: {}: {}",
        outcome.seed,
        failure.kind,
        failure.message
    );
    println!("{outcome}");
    std::process::exit(i32::from(failure.kind.exit_code()));
}

fn make_smaller(arguments: Shrink) -> Outcome {
    let options = arguments.which.options();
    let options = options.unwrap_or_else(|line| wrong_usage(&line));
    let bar = progress::bar(0, "shrinking");
    let smallest = plinth_sim::shrink(&options, arguments.tries, |outcome, kept| {
        bar.inc(1);
        if kept {
            bar.suspend(|| println!("{}", outcome.command()));
        }
    });
    bar.finish_and_clear();
    let Some(smallest) = smallest else {
        return Err(format!("seed {} does not fail", options.seed));
    };
    if let Err(failure) = &smallest.result {
        println!("{}: {}", failure.kind, failure.message);
    }
    println!("reproduce with: {}", smallest.command());
    Ok(())
}

fn run_many(arguments: Hunt) -> Outcome {
    let checked = check_names(&arguments.scenario, arguments.planted_fault.as_deref());
    checked.unwrap_or_else(|line| wrong_usage(&line));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = HuntOptions::new(arguments.seeds.clone(), &arguments.scenario);
    options.jobs = arguments.jobs.map_or(cores, |jobs| jobs as usize);
    options.budget = arguments.budget;
    options.may_take_long = arguments.no_wall_limit;
    options.planted_fault = arguments.planted_fault;
    let limits = arguments.less.limits(&arguments.scenario);
    options.limits = limits.unwrap_or_else(|line| wrong_usage(&line));
    let seeds = (arguments.seeds.end() - arguments.seeds.start()).saturating_add(1);
    let bar = progress::bar(seeds, "hunting");
    let done = Arc::new(AtomicU64::new(0));
    let told = done.clone();
    interrupts::end_with(move || hunted(told.load(Ordering::Relaxed)));
    let report = hunt(&options, |outcome| {
        done.fetch_add(1, Ordering::Relaxed);
        if arguments.verbose {
            bar.suspend(|| println!("{outcome}"));
        }
        bar.inc(1);
    });
    bar.finish_and_clear();
    println!("{report}");
    match report.failure {
        None => Ok(()),
        // The report names the failure and the command that reproduces it.
        Some(_) => Err(String::new()),
    }
}

/// What is said of a hunt that the user ends after so many runs. It ends with one that fails, so none has.
fn hunted(runs: u64) -> String {
    let runs = counted(runs, "seed", "seeds");
    format!("hunt: it was interrupted after {runs}; none has failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_unknown_names_is_refused_with_those_that_there_are() {
        let known = ["clog".to_string(), "swizzle".to_string()];
        let read = |text: &str| names("--faults", Some(text.into()), &known);
        let both = vec!["swizzle".to_string(), "clog".to_string()];
        assert_eq!(read("swizzle, clog"), Ok(Some(both)));
        assert_eq!(read(""), Ok(Some(vec![])));
        let refused = read("clog,fire").expect_err("there is no such fault");
        assert_eq!(
            refused,
            "--faults: there is no `fire'; there are clog, swizzle"
        );
    }

    #[test]
    fn who_ends_a_hunt_is_told_what_has_run() {
        assert!(hunted(1).ends_with("after 1 seed; none has failed"));
    }

    #[test]
    fn seeds_and_budgets_are_read_as_people_write_them() {
        assert_eq!(parse_seeds("1..1000"), Ok(1..=1000));
        assert_eq!(parse_seeds("7..=7"), Ok(7..=7));
        assert!(parse_seeds("9..1").is_err() && parse_seeds("5").is_err());
        assert_eq!(parse_budget("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_budget("1.5m"), Ok(Duration::from_secs(90)));
        assert!(parse_budget("soon").is_err() && parse_budget("").is_err());
    }
}
