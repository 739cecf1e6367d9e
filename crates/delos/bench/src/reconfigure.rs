//! Appends at all nodes while the log goes on in one loglet after the other.

use crate::append::quantile;
use crate::figure::{Figure, Goal, Table, short};
use crate::nodes::{Nodes, Site, append_failed};
use crate::plan::Plan;
use bytes::Bytes;
use plinth_delos::log::SharedLog;
use plinth_delos::quorum::messages::Config;
use plinth_runtime::{Duration, Either, Instant, join_all, now, race, sleep};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

const APPENDERS: usize = 16;
const BETWEEN: Duration = Duration::from_millis(400);
/// There are so many at least, however short the run.
const RECONFIGURATIONS_MIN: u32 = 3;
const PAUSE_MS: f64 = 100.0;
/// What is not over by then is stuck.
const LIMIT: Duration = Duration::from_secs(30);

/// What the appends of a node have met.
#[derive(Default)]
struct Met {
    appended: u64,
    failed: Vec<String>,
    /// Times without any answer of an append.
    gaps: Vec<Duration>,
    took: Vec<Duration>,
}

async fn append(site: Rc<Site>, first: Config, duration: Duration) -> Result<Met, String> {
    let log = site.log(&first).await?;
    let entry = || Bytes::from_static(&[7; 100]);
    log.append(entry()).await.map_err(append_failed)?;
    let since = now();
    let (last, met) = (Cell::new(since), RefCell::new(Met::default()));
    let work = async || {
        while since.elapsed() < duration {
            let began = now();
            let appended = log.append(entry()).await;
            let mut met = met.borrow_mut();
            match appended {
                Ok(_) => {
                    let ended: Instant = now();
                    met.appended += 1;
                    met.gaps.push(ended - last.replace(ended));
                    met.took.push(ended - began);
                }
                Err(error) => met.failed.push(append_failed(error)),
            }
        }
    };
    let stuck = async {
        sleep(duration + LIMIT).await;
    };
    let worked = join_all((0..APPENDERS).map(|_| work()));
    match race(worked, stuck).await {
        Either::Left(_) => Ok(met.into_inner()),
        Either::Right(()) => {
            let limit = LIMIT.as_secs();
            Err(format!("an append has no answer after {limit} s"))
        }
    }
}

/// Reconfigures the log to one after the other; the time that each took.
async fn exchange(
    site: Rc<Site>,
    first: Config,
    next: Vec<Config>,
    between: Duration,
) -> Result<Vec<Duration>, String> {
    let log = site.log(&first).await?;
    let mut took = Vec::new();
    for config in next {
        sleep(between).await;
        let since = now();
        let exchanged = log.reconfigure(config.to_description()).await;
        exchanged.map_err(|error| format!("a reconfiguration failed: {error}"))?;
        took.push(since.elapsed());
    }
    Ok(took)
}

pub async fn measure(plan: &Plan, at: &Path, tell: &dyn Fn(&str)) -> Result<Figure, String> {
    tell("reconfigure");
    let nodes = Nodes::start(at).await?;
    let duration = plan.duration * plan.rounds as u32;
    let first = nodes.config(0);
    let between = BETWEEN.min(duration / (RECONFIGURATIONS_MIN + 1));
    let count = (duration.as_secs_f64() / between.as_secs_f64()).round() as usize;
    let next: Vec<Config> = (1..count).map(|i| nodes.config(i % 3)).collect();
    let appending = nodes.all.iter().map(|node| {
        let first = first.clone();
        node.run(move |site| append(site, first, duration))
    });
    let exchanging = {
        let first = first.clone();
        nodes.all[0].run(move |site| exchange(site, first, next, between))
    };
    let (met, exchanged) = both(join_all(appending), exchanging).await;
    let met: Vec<Met> = met.into_iter().collect::<Result<_, _>>()?;
    Ok(figure(&met, exchanged?, duration))
}

fn figure(met: &[Met], mut exchanged: Vec<Duration>, duration: Duration) -> Figure {
    let failed: Vec<&String> = met.iter().flat_map(|met| &met.failed).collect();
    let mut gaps: Vec<Duration> = met
        .iter()
        .flat_map(|met| met.gaps.iter().copied())
        .collect();
    let mut took: Vec<Duration> = met
        .iter()
        .flat_map(|met| met.took.iter().copied())
        .collect();
    let appended: u64 = met.iter().map(|met| met.appended).sum();
    let rate = appended as f64 / duration.as_secs_f64();
    let pause = quantile(&mut gaps, 1.0);
    let row = |name: &str, times: &mut Vec<Duration>| {
        let at = [0.5, 0.99, 1.0].map(|share| short(quantile(times, share)));
        [name.to_owned()].into_iter().chain(at).collect()
    };
    let rows = vec![
        row("an append", &mut took),
        row("a reconfiguration", &mut exchanged),
        row(
            "a time without an answer to any append of a node",
            &mut gaps,
        ),
    ];
    Figure {
        name: "reconfigure",
        title: format!(
            "{} reconfigurations under {} appends at a time, {} appends/s",
            exchanged.len(),
            3 * APPENDERS,
            short(rate)
        ),
        tables: vec![Table {
            title: "ms".into(),
            columns: vec!["", "p50", "p99", "longest"],
            rows,
        }],
        goals: vec![
            Goal::new(
                match failed.first() {
                    None => format!("no append fails: none of {}", short(appended as f64)),
                    Some(first) => format!("no append fails: {} do; {first}", failed.len()),
                },
                failed.is_empty(),
            ),
            Goal::new(
                format!(
                    "a pause below {PAUSE_MS:.0} ms: the longest is {} ms",
                    short(pause)
                ),
                pause < PAUSE_MS,
            ),
        ],
        remarks: Vec::new(),
        data: json!({
            "reconfigurations": exchanged.len(),
            "appended": appended,
            "failed": failed.len(),
            "appends_per_second": rate,
            "longest_pause_ms": pause,
            "slowest_append_ms": quantile(&mut took, 1.0),
            "slowest_reconfiguration_ms": quantile(&mut exchanged, 1.0),
        }),
    }
}

/// Waits for both.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(move |context| {
        if left.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            left = Some(output);
        }
        if right.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            right = Some(output);
        }
        match (left.take(), right.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (left, right) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
