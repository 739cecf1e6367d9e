//! Scans of all rows by another process, on a core of its own, beside updates of this one (§5.3).
//!
//! ```text
//!   this process: machine 0, rows, updates        the other: machine 1, which reads the rows with one-sided reads
//!        open ROOT     ──────────────────────────▶
//!        scan SECONDS  ──────────────────────────▶
//!                      ◀──────────────────────────  an answer, as JSON, when that is done
//! ```

use crate::cluster::{Cluster, Files, Machines};
use crate::kv::failed;
use crate::measure::Aborts;
use crate::mode::Mode;
use crate::report::Report;
use crate::scans::{Done, Plan, Rounds, Side};
use plinth_farm_memory::Pointer;
use plinth_farm_structures::btree::{BTree, Cache};
use plinth_farm_tpcc::load;
use plinth_runtime::{Boxed, Duration, join_all, now};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Of inner nodes.
const CACHE_BYTES: usize = 256 << 20;

/// The other process. Errors are a line for the user.
pub trait Other {
    /// Starts it: it is to call [`Scanner::start`] with the directory, and then [`Scanner::obey`].
    fn start(&mut self, directory: &Path, mode: Mode) -> Result<(), String>;

    /// Says a line to it.
    fn say(&mut self, line: &str) -> Result<(), String>;

    /// What it answers to the line.
    fn hear(&mut self) -> impl Future<Output = Result<String, String>>;

    fn end(&mut self);
}

fn machines(plan: &Plan) -> Machines {
    Machines {
        machines: 2,
        ..Machines::one(plan.region_mib, plan.old_mib)
    }
}

/// What scans, in the other process.
pub struct Scanner {
    plan: Plan,
    /// Until it is told where the rows are.
    cluster: Option<Cluster>,
    side: Option<Side>,
}

impl Scanner {
    /// Errors are a line for the user.
    pub fn start<'a>(
        directory: &'a Path,
        plan: &'a Plan,
        mode: Mode,
    ) -> Boxed<'a, Result<Scanner, String>> {
        Box::pin(async move {
            let cluster = Cluster::start_part(directory, &machines(plan), mode, 1..2).await?;
            Ok(Scanner {
                plan: plan.clone(),
                cluster: Some(cluster),
                side: None,
            })
        })
    }

    /// Does what the line says, and answers. Errors are a line for the user.
    pub async fn obey(&mut self, line: &str) -> Result<String, String> {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["open", root] => {
                let root = root.parse().ok().and_then(Pointer::from_bits);
                let root = root.ok_or_else(|| format!("no place of rows: {line}"))?;
                self.open(root).await
            }
            ["scan", seconds] => {
                let seconds: f64 = seconds.parse().map_err(|_| format!("no time: {line}"))?;
                self.scan(Duration::from_secs_f64(seconds)).await
            }
            _ => Err(format!("there is no such order: {line}")),
        }
    }

    async fn open(&mut self, root: Pointer) -> Result<String, String> {
        let cluster = self.cluster.take().ok_or("the rows are open already")?;
        let (access, cache) = (cluster.machine(0), Cache::new(CACHE_BYTES));
        let tree = load::run(&access, async |tx| BTree::open(tx, root, &cache).await).await;
        let tree = tree.map_err(|error| failed("opening the rows", error))?;
        self.side = Some(Side::new(cluster, tree));
        Ok("{}".to_owned())
    }

    async fn scan(&self, duration: Duration) -> Result<String, String> {
        let side = self.side.as_ref().ok_or("no rows are open")?;
        let until = now() + duration;
        let scanners = (0..self.plan.scanners).map(|_| side.scan(&self.plan, until));
        let mut done = Done::default();
        for outcome in join_all(scanners).await {
            done.merge(outcome?);
        }
        let answer = json!({
            "scans": done.scans,
            "aborts": done.scan_aborts.to_json(),
            "broken": done.broken,
        });
        Ok(answer.to_string())
    }
}

/// What the other process has answered to `scan`.
fn done_of(answer: &str) -> Option<Done> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let mut scan_aborts = Aborts::default();
    let aborts: BTreeMap<String, u64> = serde_json::from_value(answer["aborts"].clone()).ok()?;
    for (reason, count) in aborts {
        (0..count).for_each(|_| scan_aborts.add(reason.clone()));
    }
    let mut done = Done::default();
    done.scans = answer["scans"].as_u64()?;
    done.scan_aborts = scan_aborts;
    done.broken = serde_json::from_value(answer["broken"].clone()).ok()?;
    Some(done)
}

/// The same as [`scans::run`](crate::scans::run), one mode after the other, with scans of another process. Errors are
/// a line for the user.
pub fn run<'a>(
    plan: &'a Plan,
    other: &'a mut impl Other,
    tell: &'a dyn Fn(&str),
) -> Boxed<'a, Result<Report, String>> {
    Box::pin(async move {
        machines(plan).check_at(&plan.place).await?;
        let mut settings = plan.settings();
        settings["apart"] = json!(true);
        let mut report = Report::new("scans", settings);
        for mode in &plan.modes {
            let files = Files::new(&plan.place).await?;
            other.start(&files.0, *mode)?;
            let cluster = Cluster::start_part(&files.0, &machines(plan), *mode, 0..1).await?;
            tell(&format!("loading {} rows: {}", plan.rows, mode.name()));
            let mut side = Side::load_on(cluster, plan).await?;
            other.say(&format!("open {}", side.tree.root().bits()))?;
            other.hear().await?;
            // Both have the other's memory: it needs no name.
            drop(files);
            let mut rounds = Rounds::default();
            for round in 1..=plan.rounds {
                tell(&format!("round {round} of {}", plan.rounds));
                let alone = side.round(plan, false).await?;
                other.say(&format!("scan {}", plan.duration.as_secs_f64()))?;
                let mut beside = side.round(plan, false).await?;
                let answer = other.hear().await?;
                let scans = done_of(&answer).ok_or_else(|| format!("no answer: {answer}"))?;
                beside.merge(scans);
                rounds.add(alone, beside);
            }
            other.end();
            tell("checking the rows");
            rounds.report(plan, &side, &mut report).await;
        }
        Ok(report)
    })
}
