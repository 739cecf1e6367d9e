//! `plinth delos bench`: the figures of the paper about log-structured protocols, measured on this machine.

use plinth_delos_bench::figure::{Figure, page};
use plinth_delos_bench::parts::{Part, measure};
use plinth_delos_bench::plan::Plan;
use plinth_runtime::Duration;
use plinth_terminal::choices::among;
use plinth_terminal::numbers::within;
use plinth_terminal::outputs::check_writable;
use plinth_terminal::process::{raise_file_limit, unless_interrupted};
use plinth_terminal::seconds::parse_positive;
use plinth_terminal::{Outcome, connect};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct Arguments {
    /// What to measure: parts, or `all` of them, for some minutes; `list` explains them [default, with flags: all]
    #[arg(
        value_name = "PART",
        hide_possible_values = true,
        value_parser = among(offered(), parse_part)
    )]
    parts: Vec<Asked>,
    /// Seconds of each measured interval
    #[arg(long, alias = "seconds", value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_positive)]
    duration: f64,
    /// How often things that are compared are measured, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Milliseconds to a replica far away and back, in figure-10
    #[arg(long, value_name = "MS", default_value_t = 48, value_parser = within::<u64>(1..=10_000))]
    round_trip_ms: u64,
    /// Directory on whose disk it is measured; what is made there is removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Print JSON, an object for each part
    #[arg(long)]
    json: bool,
    /// File for an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    List,
    All,
    One(Part),
}

/// Words for [`parse_part`].
fn offered() -> impl Iterator<Item = &'static str> {
    Part::ALL.into_iter().map(Part::name).chain(["all", "list"])
}

fn parse_part(name: &str) -> Result<Asked, String> {
    match name {
        "list" => return Ok(Asked::List),
        "all" => return Ok(Asked::All),
        _ => {}
    }
    Part::from_name(name).map(Asked::One).ok_or_else(|| {
        let names = Part::ALL.map(Part::name);
        format!("there are {}, all and list", names.join(", "))
    })
}

pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.parts.contains(&Asked::List) {
        let all = Part::ALL.iter();
        if arguments.json {
            let all = all.map(|of| serde_json::json!({"name": of.name(), "about": of.about()}));
            let all: Vec<_> = all.collect();
            println!("{}", serde_json::json!({ "parts": all }));
            return Ok(());
        }
        for part in all {
            println!("{:<14} {}", part.name(), part.about());
        }
        return Ok(());
    }
    let asked = arguments.parts.iter().flat_map(|asked| match asked {
        Asked::List => Vec::new(),
        Asked::All => Part::ALL.to_vec(),
        Asked::One(part) => vec![*part],
    });
    let mut parts: Vec<Part> = asked.collect();
    if parts.is_empty() {
        parts = Part::ALL.to_vec();
    }
    let plan = Plan {
        directory: arguments.directory.clone(),
        duration: Duration::from_secs_f64(arguments.duration),
        rounds: arguments.rounds as usize,
        round_trip: Duration::from_millis(arguments.round_trip_ms),
    };
    if let Some(path) = &arguments.html {
        check_writable(path, "--html")?;
    }
    raise_file_limit();
    connect::block_on(async {
        let measuring = measure_all(arguments, &parts, &plan);
        let measured = unless_interrupted(measuring).await?;
        measured.unwrap_or(Err("delos bench: it was interrupted".into()))
    })
}

async fn measure_all(arguments: &Arguments, parts: &[Part], plan: &Plan) -> Outcome {
    let tell = |line: &str| plinth_terminal::say!("plinth: {line}");
    let mut figures: Vec<Figure> = Vec::new();
    for part in parts {
        let measured = measure(*part, plan, &tell).await;
        let figure = measured.map_err(|line| format!("delos bench {}: {line}", part.name()))?;
        match arguments.json {
            true => println!("{}", figure.to_json()),
            false => print!("{}", figure.text()),
        }
        figures.push(figure);
    }
    if let Some(path) = &arguments.html {
        let written = std::fs::write(path, page(&figures));
        written.map_err(|error| format!("--html {}: {error}", path.display()))?;
    }
    Ok(())
}
