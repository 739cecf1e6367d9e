//! Figure 10: reads at a replica whose peers are far away, with and without Lease.
//!
//! Two of the three log servers are behind proxies that hold every byte back. The replica that reads is beside the
//! third one, and beside the sequencer.

use crate::append::quantile;
use crate::figure::{Figure, Goal, Table, short};
use crate::nodes::{Nodes, Site};
use crate::plan::Plan;
use crate::proxy::Proxy;
use crate::replicas;
use crate::rows::{self, propose, switch};
use plinth_delos::engines::lease;
use plinth_delos::stack::Engine;
use plinth_rpc::Interface;
use plinth_runtime::{Duration, now, sleep};
use plinth_table::language::{Statement, parse};
use plinth_table::query;
use serde_json::json;
use std::path::Path;
use std::rc::Rc;

const READS_MAX: usize = 2000;
const LEASE_LIMIT: Duration = Duration::from_secs(30);
const TIMES: f64 = 100.0;

/// Reads a row, again and again.
async fn read(site: Rc<Site>, duration: Duration) -> Result<Vec<Duration>, String> {
    let stack = site.replica();
    let statement = parse("select value from rows where id = 7")?.pop();
    let Some(Statement::Select { mut query, .. }) = statement else {
        return Err("the statement is no query".into());
    };
    query.limit = 1;
    let (since, mut took) = (now(), Vec::new());
    while since.elapsed() < duration && took.len() < READS_MAX {
        let began = now();
        let rows = stack.sync().await;
        let rows = rows.map_err(|lost| format!("a read was lost: {lost}"))?;
        let page = query::page(&rows, (*query).clone()).await;
        let page = page.map_err(|ended| format!("a read failed: {ended:?}"))?;
        took.push(began.elapsed());
        if page.rows.len() != 1 {
            return Err("a read has not found the row".into());
        }
    }
    Ok(took)
}

/// A lease outlives the engine's switch: reads are measured when it has begun, or is over.
async fn set(site: Rc<Site>, on: bool) -> Result<(), String> {
    let stack = site.replica();
    switch(&stack, lease::GUARD, on).await?;
    stack.lease.want(on);
    let since = now();
    while stack.lease.is_valid() != on {
        if since.elapsed() > LEASE_LIMIT {
            return Err("the replica does not get the lease, or keeps it".into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn prepare(site: Rc<Site>) -> Result<(), String> {
    replicas::prepare(site.clone()).await?;
    propose(&site.replica(), rows::write(7)).await
}

pub async fn measure(plan: &Plan, at: &Path, tell: &dyn Fn(&str)) -> Result<Figure, String> {
    tell("figure-10");
    let nodes = Nodes::start(at).await?;
    let mut first = nodes.config(0);
    let mut proxies = Vec::new();
    for server in &mut first.servers[1..] {
        let proxy = Proxy::start(server.address, plan.round_trip / 2).await?;
        *server = Interface::new(proxy.address, server.id);
        proxies.push(proxy);
    }
    let here = &nodes.all[0];
    here.run(move |site| replicas::start(site, 1, first))
        .await?;
    here.run(prepare).await?;
    let duration = plan.duration;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        without.extend(here.run(move |site| read(site, duration)).await?);
        here.run(|site| set(site, true)).await?;
        with.extend(here.run(move |site| read(site, duration)).await?);
        here.run(|site| set(site, false)).await?;
    }
    Ok(figure(plan, without, with))
}

fn figure(plan: &Plan, mut without: Vec<Duration>, mut with: Vec<Duration>) -> Figure {
    let shares = [0.5, 0.99, 1.0];
    let without_ms = shares.map(|share| quantile(&mut without, share));
    let with_ms = shares.map(|share| quantile(&mut with, share));
    let ratios = [0, 1].map(|i| without_ms[i] / with_ms[i].max(1e-6));
    let row = |name: &str, count: usize, ms: [f64; 3]| {
        let figures = ms.map(short);
        [name.to_owned(), count.to_string()]
            .into_iter()
            .chain(figures)
            .collect()
    };
    let far = plan.round_trip.as_millis();
    Figure {
        name: "figure-10",
        title: format!("reads at a replica whose peers are {far} ms away and back"),
        tables: vec![Table {
            title: format!("ms, in {} rounds, by turns", plan.rounds),
            columns: vec!["", "reads", "p50", "p99", "longest"],
            rows: vec![
                row("without Lease", without.len(), without_ms),
                row("with Lease", with.len(), with_ms),
            ],
        }],
        goals: vec![Goal::new(
            format!(
                "at least {TIMES:.0} times faster with Lease: {} times at p50, {} at p99",
                short(ratios[0]),
                short(ratios[1])
            ),
            ratios.iter().all(|ratio| *ratio >= TIMES),
        )],
        remarks: vec!["Engines are switched through the log, while the replica runs.".into()],
        data: json!({
            "round_trip_ms": far,
            "without_ms": { "p50": without_ms[0], "p99": without_ms[1], "max": without_ms[2] },
            "with_ms": { "p50": with_ms[0], "p99": with_ms[1], "max": with_ms[2] },
            "ratio": { "p50": ratios[0], "p99": ratios[1] },
        }),
    }
}
