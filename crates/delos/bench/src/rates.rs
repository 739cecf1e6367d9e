//! Figure 9: writes of 100 bytes to a table of three replicas at rising rates, with and without Batching.
//!
//! A write begins when it is due, whether or not those before it have ended, and its time counts from then on.

use crate::figure::{Figure, Goal, Table, short};
use crate::nodes::{Nodes, Site};
use crate::plan::Plan;
use crate::replicas::replicas;
use crate::rows::{self, propose, switch};
use hdrhistogram::Histogram;
use plinth_delos::engines::batching;
use plinth_measure::latency::{histogram, quantile_ms, record};
use plinth_runtime::{Duration, join_all, now, random, sleep, spawn};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

const FIRST_RATE: f64 = 1000.0;
/// The next rate, as a multiple of the one before.
const STEP: f64 = 1.4;
const P99_MS: f64 = 20.0;
/// With so many writes under way at a node, it does not keep up.
const UNDER_WAY_MAX: u64 = 20_000;
const TURN: Duration = Duration::from_millis(1);
const WARMUP: Duration = Duration::from_millis(500);
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
const TWICE: f64 = 2.0;

/// What a node's writes have met.
struct Met {
    latency: Histogram<u64>,
    turned_away: u64,
    failed: Option<String>,
}

struct Load {
    under_way: Cell<u64>,
    met: RefCell<Met>,
}

async fn write(site: Rc<Site>, rate: f64, duration: Duration) -> Result<Met, String> {
    let stack = site.replica();
    let load = Rc::new(Load {
        under_way: Cell::new(0),
        met: RefCell::new(Met {
            latency: histogram(),
            turned_away: 0,
            failed: None,
        }),
    });
    let (since, mut begun) = (now(), 0_u64);
    while since.elapsed() < duration {
        let due_now = (since.elapsed().as_secs_f64() * rate) as u64;
        while begun < due_now {
            let due = since + Duration::from_secs_f64(begun as f64 / rate);
            begun += 1;
            if load.under_way.get() >= UNDER_WAY_MAX {
                load.met.borrow_mut().turned_away += 1;
                continue;
            }
            let (stack, load) = (stack.clone(), load.clone());
            load.under_way.update(|count| count + 1);
            let payload = rows::write(random::below(rows::ROWS));
            spawn("write", async move {
                let done = propose(&stack, payload).await;
                load.under_way.update(|count| count - 1);
                let mut met = load.met.borrow_mut();
                match done {
                    Ok(()) => record(&mut met.latency, due.elapsed()),
                    Err(line) => met.failed = Some(line),
                }
            })
            .detach();
        }
        sleep(TURN).await;
    }
    let ended = now();
    while load.under_way.get() > 0 {
        if ended.elapsed() > DRAIN_LIMIT {
            return Err("writes have no answer".into());
        }
        sleep(TURN).await;
    }
    let met = load.met.replace(Met {
        latency: histogram(),
        turned_away: 0,
        failed: None,
    });
    Ok(met)
}

/// One rate, with what came of it.
#[derive(Clone)]
struct Point {
    rate: f64,
    done_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    is_within: bool,
}

async fn step(nodes: &Nodes, rate: f64, duration: Duration) -> Result<Point, String> {
    let of_node = rate / nodes.all.len() as f64;
    let writing = |duration| {
        let nodes = nodes.all.iter();
        join_all(nodes.map(move |node| node.run(move |site| write(site, of_node, duration))))
    };
    for warmed in writing(WARMUP).await {
        warmed?;
    }
    let since = now();
    let met: Vec<Met> = writing(duration)
        .await
        .into_iter()
        .collect::<Result<_, _>>()?;
    let took = since.elapsed().as_secs_f64();
    let mut all = histogram();
    for of_node in &met {
        all.add(&of_node.latency).expect("the same bounds");
    }
    if let Some(line) = met.iter().find_map(|met| met.failed.clone()) {
        return Err(line);
    }
    let ms = |quantile| quantile_ms(&all, quantile);
    let is_whole = met.iter().all(|met| met.turned_away == 0);
    Ok(Point {
        rate,
        done_per_second: all.len() as f64 / took,
        p50_ms: ms(0.5),
        p99_ms: ms(0.99),
        is_within: is_whole && ms(0.99) < P99_MS,
    })
}

/// Rising rates, until two in a row are too many.
async fn sweep(
    nodes: &Nodes,
    duration: Duration,
    name: &str,
    tell: &dyn Fn(&str),
) -> Result<Vec<Point>, String> {
    let (mut points, mut rate, mut over) = (Vec::new(), FIRST_RATE, 0);
    while over < 2 {
        let point = step(nodes, rate, duration).await?;
        over = if point.is_within { 0 } else { over + 1 };
        tell(&format!(
            "{name}, {}/s: {}/s, p50 {} p99 {} ms",
            short(rate),
            short(point.done_per_second),
            short(point.p50_ms),
            short(point.p99_ms)
        ));
        points.push(point);
        rate *= STEP;
    }
    Ok(points)
}

fn most(points: &[Point]) -> f64 {
    let within = points.iter().filter(|point| point.is_within);
    within
        .map(|point| point.done_per_second)
        .fold(0.0, f64::max)
}

pub async fn measure(plan: &Plan, at: &Path, tell: &dyn Fn(&str)) -> Result<Figure, String> {
    let nodes = replicas(at).await?;
    let mut sweeps: [Vec<Vec<Point>>; 2] = Default::default();
    for _ in 0..plan.rounds {
        for (on, name) in [(false, "without Batching"), (true, "with Batching")] {
            let switched = move |site: Rc<Site>| async move {
                switch(&site.replica(), batching::GUARD, on).await
            };
            nodes.all[0].run(switched).await?;
            let points = sweep(&nodes, plan.duration, name, tell).await?;
            sweeps[usize::from(on)].push(points);
        }
    }
    Ok(figure(&sweeps))
}

fn figure(sweeps: &[Vec<Vec<Point>>; 2]) -> Figure {
    let best = |all: &[Vec<Point>]| {
        let mut each: Vec<f64> = all.iter().map(|points| most(points)).collect();
        each.sort_by(f64::total_cmp);
        each[each.len() / 2]
    };
    let [without, with] = [best(&sweeps[0]), best(&sweeps[1])];
    let ratio = with / without.max(1.0);
    let names = ["without Batching", "with Batching"];
    let tables = names.iter().zip(sweeps).map(|(name, all)| Table {
        title: format!("{name} (the last of {} sweeps)", all.len()),
        columns: vec!["writes/s", "done/s", "p50 ms", "p99 ms"],
        rows: all.last().map_or(Vec::new(), |points| {
            let row = |point: &Point| {
                let figures = [
                    point.rate,
                    point.done_per_second,
                    point.p50_ms,
                    point.p99_ms,
                ];
                figures.map(short).to_vec()
            };
            points.iter().map(row).collect()
        }),
    });
    let line = format!(
        "with Batching at least twice the writes/s below a p99 of {P99_MS:.0} ms (better five times): {} / {} = {}",
        short(with),
        short(without),
        short(ratio)
    );
    Figure {
        name: "figure-9",
        title: "writes of 100 bytes to a table of three replicas, over a log on three log servers"
            .into(),
        tables: tables.collect(),
        goals: vec![Goal::new(line, ratio >= TWICE)],
        remarks: vec!["Replicas, log servers and the load share this machine and its disk.".into()],
        data: json!({
            "without_per_second": without,
            "with_per_second": with,
            "ratio": ratio,
            "points": names.iter().zip(sweeps).map(|(name, all)| json!({
                "what": name,
                "sweeps": all.iter().map(|points| of_points(points)).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        }),
    }
}

fn of_points(points: &[Point]) -> Vec<Value> {
    let point = |point: &Point| {
        json!({
            "rate": point.rate,
            "done_per_second": point.done_per_second,
            "p50_ms": point.p50_ms,
            "p99_ms": point.p99_ms,
            "is_within": point.is_within,
        })
    };
    points.iter().map(point).collect()
}
