//! Flags that several benchmarks have.

use crate::fleet::FirstPort;
use plinth_farm_bench::Place;
use plinth_runtime::Duration;
use plinth_runtime::net::Chosen;
use plinth_terminal::numbers::within;
use plinth_terminal::seconds::in_bounds;
use std::path::PathBuf;

/// Of the first process.
pub const PORT: u16 = 4950;

pub fn first(port: u16) -> FirstPort {
    let by = Chosen::flag("--port", port == PORT);
    FirstPort { port, by }
}

#[derive(clap::Args, Debug)]
pub struct Common {
    /// Seconds of each measured interval
    #[arg(long, alias = "seconds", value_name = "SECONDS", default_value = "3", value_parser = parse_interval)]
    pub duration: Duration,
    /// Decides which transactions are run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u64>(..))]
    pub seed: u64,
    /// Directory for the machines' memory, which needs a name for a moment; default: /dev/shm, if there is one
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Common {
    pub fn place(&self) -> Place {
        Place::new(self.directory.clone())
    }
}

fn parse_limited(text: &str, least: f64) -> Result<Duration, String> {
    in_bounds(text, least, 86_400.0).map(Duration::from_secs_f64)
}

pub fn parse_interval(text: &str) -> Result<Duration, String> {
    parse_limited(text, 0.01)
}

pub fn parse_warmup(text: &str) -> Result<Duration, String> {
    parse_limited(text, 0.0)
}

pub fn parse_theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if (0.0..0.9999).contains(&theta) => Ok(theta),
        _ => Err("expected a number from 0 to below 1".into()),
    }
}
