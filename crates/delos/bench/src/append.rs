//! A log on three log servers: one append at a time beside an `fdatasync` of the same disk, and many in batches.

use crate::disk::syncs;
use crate::figure::{Figure, Goal, Table, short};
use crate::nodes::{Nodes, Site, append_failed};
use crate::plan::Plan;
use bytes::Bytes;
use plinth_delos::log::SharedLog;
use plinth_delos::quorum::client::QuorumLog;
use plinth_delos::quorum::messages::Config;
use plinth_measure::samples;
use plinth_runtime::{Duration, join_all, now};
use serde_json::json;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

const ENTRY_BYTES: usize = 100;
const ALONE: usize = 300;
const SYNCS: usize = 100;
/// Appends under way at a time, when the question is how many there can be in a second.
const TOGETHER: usize = 4000;
const OVER_FDATASYNC_MS: f64 = 0.2;
const ENTRIES_PER_SECOND: f64 = 100_000.0;

fn entry() -> Bytes {
    Bytes::from(vec![7; ENTRY_BYTES])
}

fn open(site: &Site, config: Config) -> Result<QuorumLog, String> {
    QuorumLog::new(&site.transport, config).map_err(|error| format!("the log: {error}"))
}

/// The times of appends one after the other.
async fn alone(site: Rc<Site>, config: Config) -> Result<Vec<Duration>, String> {
    let log = open(&site, config)?;
    log.append(entry()).await.map_err(append_failed)?; // begins the log
    let mut took = Vec::with_capacity(ALONE);
    for _ in 0..ALONE {
        let since = now();
        log.append(entry()).await.map_err(append_failed)?;
        took.push(since.elapsed());
    }
    Ok(took)
}

/// Appends a second, of many at the same time.
async fn together(site: Rc<Site>, config: Config, duration: Duration) -> Result<f64, String> {
    let log = open(&site, config)?;
    log.append(entry()).await.map_err(append_failed)?; // as above
    let (since, appended) = (now(), Cell::new(0_u64));
    let append = async || {
        while since.elapsed() < duration {
            log.append(entry()).await.map_err(append_failed)?;
            appended.update(|count| count + 1);
        }
        Ok::<_, String>(())
    };
    let all = join_all((0..TOGETHER).map(|_| append())).await;
    let took = since.elapsed().as_secs_f64();
    all.into_iter().collect::<Result<(), String>>()?;
    Ok(appended.get() as f64 / took)
}

/// In milliseconds.
pub fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    samples::quantile(times, share).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

pub async fn measure(plan: &Plan, at: &Path, tell: &dyn Fn(&str)) -> Result<Figure, String> {
    tell("quorum-append");
    let nodes = Nodes::start(at).await?;
    let (mut one, mut three, mut appends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        one.extend(syncs(at, 1, SYNCS).await?);
        three.extend(syncs(at, 3, SYNCS).await?);
        let config = nodes.config(0);
        let took = nodes.all[0].run(move |site| alone(site, config)).await?;
        appends.extend(took);
    }
    let mut rates = Vec::with_capacity(plan.rounds);
    for _ in 0..plan.rounds {
        let (config, duration) = (nodes.config(0), plan.duration);
        let work = move |site| together(site, config, duration);
        rates.push(nodes.all[0].run(work).await?);
    }
    Ok(figure([one, three, appends], rates))
}

/// `fdatasync`s, three at a time, and appends; then appends a second of each round.
fn figure([mut one, mut three, mut appends]: [Vec<Duration>; 3], mut rates: Vec<f64>) -> Figure {
    let times = [
        ("fdatasync", &mut one),
        ("fdatasync, three at a time", &mut three),
        ("append", &mut appends),
    ];
    let times = times.map(|(name, times)| {
        let at = [0.5, 0.9, 0.99].map(|share| quantile(times, share));
        (name, at)
    });
    let rows = times.iter().map(|(name, at)| {
        let cells = at.iter().map(|ms| short(*ms));
        [(*name).to_owned()].into_iter().chain(cells).collect()
    });
    let (sync, append) = (times[0].1[0], times[2].1[0]);
    let rate = median(&mut rates);
    let beyond = append - sync;
    Figure {
        name: "quorum-append",
        title: "a log on three log servers, entries of 100 bytes".into(),
        tables: vec![Table {
            title: "one at a time, ms".into(),
            columns: vec!["", "p50", "p90", "p99"],
            rows: rows.collect(),
        }],
        remarks: vec![format!(
            "{TOGETHER} at a time: {} entries/s (median of {} rounds: {} to {}). The log servers share a disk.",
            short(rate),
            rates.len(),
            short(rates[0]),
            short(rates[rates.len() - 1]),
        )],
        goals: vec![
            Goal::new(
                format!(
                    "append p50 within fdatasync + {OVER_FDATASYNC_MS} ms: {} = {} + {}",
                    short(append),
                    short(sync),
                    short(beyond)
                ),
                beyond <= OVER_FDATASYNC_MS,
            ),
            Goal::new(
                format!("at least 100,000 entries/s in batches: {}", short(rate)),
                rate >= ENTRIES_PER_SECOND,
            ),
        ],
        data: json!({
            "ms": times.iter().map(|(name, [p50, p90, p99])| json!({
                "what": name, "p50": p50, "p90": p90, "p99": p99,
            })).collect::<Vec<_>>(),
            "entries_per_second": rates,
        }),
    }
}
