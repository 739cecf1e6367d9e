//! Scans of all rows beside updates (§5.3, Figure 15). An update moves an amount from one row to another, so the sum
//! of all rows is the same at every snapshot: each scan is a check.

use crate::cluster::{Cluster, Machines, Place};
use crate::kv::{Access, failed, load_tree};
use crate::measure::{Aborts, Spent, Timed, Watch, ratio};
use crate::mode::Mode;
use crate::report::Report;
use crate::values::key;
use bytes::Bytes;
use plinth_farm_engine::{Options, Policy};
use plinth_farm_memory::Abort;
use plinth_farm_structures::btree::{BTree, Settings};
use plinth_farm_structures::kv::Engine;
use plinth_farm_structures::{Error, Result as StructureResult};
use plinth_runtime::random::Generator;
use plinth_runtime::{Boxed, Duration, Instant, join_all, now, sleep, yield_now};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ops::Range;

/// Rows of a scan between two turns of the updates.
const ROWS_A_TURN: usize = 50;
/// In each row at first.
const AMOUNT: u64 = 1_000_000;
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// What is run: on each side, by turns, rounds without scans and rounds with them.
#[derive(Clone, Debug)]
pub struct Plan {
    pub place: Place,
    pub rows: u64,
    /// Of a value, at least 8.
    pub value_bytes: usize,
    pub updaters: u32,
    pub scanners: u32,
    /// Of a round.
    pub duration: Duration,
    pub rounds: u32,
    pub modes: Vec<Mode>,
    pub region_mib: u64,
    pub old_mib: u64,
    pub seed: u64,
}

impl Plan {
    pub(crate) fn settings(&self) -> Value {
        json!({
            "rows": self.rows,
            "value_bytes": self.value_bytes,
            "updaters": self.updaters,
            "scanners": self.scanners,
            "seconds": self.duration.as_secs_f64(),
            "rounds": self.rounds,
            "region_mib": self.region_mib,
            "old_mib": self.old_mib,
            "seed": self.seed,
        })
    }

    fn value(&self, amount: u64) -> Bytes {
        let mut value = vec![7; self.value_bytes.max(8)];
        value[..8].copy_from_slice(&amount.to_le_bytes());
        value.into()
    }

    fn tree(&self) -> Settings {
        Settings {
            leaf_bytes: self.value_bytes + 150,
            key_bytes_max: 16,
            inline_bytes_max: self.value_bytes.max(8),
            leaf_entries_max: 1,
            ..Settings::default()
        }
    }
}

fn amount_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*value.first_chunk()?))
}

/// What a round has done.
#[derive(Default)]
pub(crate) struct Done {
    updates: u64,
    update_aborts: Aborts,
    pub scans: u64,
    pub scan_aborts: Aborts,
    pub broken: Vec<String>,
    spent: Spent,
    /// Of the processor time, that of the scans.
    scans_cpu_s: f64,
}

impl Done {
    /// Updates a second of the processor time that scans have left to them.
    fn updates_a_core(&self) -> f64 {
        let left = self.spent.cpu_s - self.scans_cpu_s;
        self.updates as f64 / left.max(1e-9)
    }

    pub fn merge(&mut self, other: Done) {
        self.updates += other.updates;
        self.update_aborts.merge(other.update_aborts);
        self.scans += other.scans;
        self.scan_aborts.merge(other.scan_aborts);
        self.broken.extend(other.broken);
        self.spent.add(other.spent);
        self.scans_cpu_s += other.scans_cpu_s;
    }
}

pub(crate) struct Side {
    pub cluster: Cluster,
    pub access: Access,
    pub tree: BTree,
    rounds: u32,
}

impl Side {
    pub fn load(plan: &Plan, mode: Mode) -> Boxed<'_, Result<Side, String>> {
        Box::pin(async move {
            let cluster = Cluster::start(
                &plan.place,
                &Machines::one(plan.region_mib, plan.old_mib),
                mode,
            )
            .await?;
            Side::load_on(cluster, plan).await
        })
    }

    /// The rows lie on the first machine of this process.
    pub async fn load_on(cluster: Cluster, plan: &Plan) -> Result<Side, String> {
        let access = cluster.machine(0);
        let tree = load_tree(&access, plan.tree(), plan.rows, |_| plan.value(AMOUNT)).await;
        let tree = tree.map_err(|error| failed("loading", error))?;
        Ok(Side::new(cluster, tree))
    }

    pub fn new(cluster: Cluster, tree: BTree) -> Side {
        let mut access = cluster.machine(0);
        access.options = cluster.mode.writing();
        Side {
            cluster,
            access,
            tree,
            rounds: 0,
        }
    }

    pub(crate) async fn round(&mut self, plan: &Plan, with_scans: bool) -> Result<Done, String> {
        self.rounds += 1;
        let (watch, until) = (Watch::start(), now() + plan.duration);
        let scanners = if with_scans { plan.scanners } else { 0 };
        let updaters = (0..plan.updaters).map(|number| {
            let seed = plan.seed ^ (u64::from(self.rounds) << 32) ^ u64::from(number);
            self.update(plan, Generator::new(seed), until)
        });
        let scans_cpu_s = Cell::new(0.0);
        let scanners = (0..scanners).map(|_| Timed::new(self.scan(plan, until), &scans_cpu_s));
        let (updates, scans) = (join_all(updaters), join_all(scanners));
        let both: [Boxed<'_, Vec<Result<Done, String>>>; 2] = [Box::pin(updates), Box::pin(scans)];
        let mut done = Done::default();
        for outcome in join_all(both).await.into_iter().flatten() {
            done.merge(outcome?);
        }
        done.spent = watch.stop();
        done.scans_cpu_s = scans_cpu_s.get();
        Ok(done)
    }

    async fn update(
        &self,
        plan: &Plan,
        mut random: Generator,
        until: Instant,
    ) -> Result<Done, String> {
        let mut done = Done::default();
        while now() < until {
            let (from, to) = (random.below(plan.rows), random.below(plan.rows));
            if from != to {
                let aborts = &mut done.update_aborts;
                let is_done = self.transfer_until(plan, from, to, until, aborts).await?;
                done.updates += u64::from(is_done);
            }
            yield_now().await;
        }
        Ok(done)
    }

    /// Tries it as long as there is time. Returns whether it was done.
    pub async fn transfer_until(
        &self,
        plan: &Plan,
        from: u64,
        to: u64,
        until: Instant,
        aborts: &mut Aborts,
    ) -> Result<bool, String> {
        while now() < until {
            match self.transfer(plan, from, to).await {
                Ok(()) => return Ok(true),
                Err(Error::Abort(abort)) if abort.is_retryable() => {
                    aborts.add(format!("{abort:?}"));
                    if abort == Abort::Full {
                        sleep(FULL_PAUSE).await;
                    }
                }
                Err(error) => return Err(failed("an update", error)),
            }
            yield_now().await;
        }
        Ok(false)
    }

    async fn transfer(&self, plan: &Plan, from: u64, to: u64) -> StructureResult<()> {
        let tx = self.access.begin().await?;
        let mut rows = Vec::new();
        for (row, change) in [(from, -1), (to, 1)] {
            let found = self.tree.get(&tx, &key(row)).await?;
            let amount = found.and_then(|found| amount_of(&found));
            let amount = amount.ok_or(Error::Invalid("a row is missing"))?;
            rows.push((key(row), plan.value(amount.wrapping_add_signed(change))));
        }
        self.tree.set_many(&tx, &rows).await?;
        Ok(self.access.commit(tx).await?)
    }

    pub async fn scan(&self, plan: &Plan, until: Instant) -> Result<Done, String> {
        let mut done = Done::default();
        while now() < until {
            match self.scan_once(0..plan.rows, Some(until)).await {
                Ok(None) => break,
                Ok(Some(broken)) => {
                    done.scans += 1;
                    done.broken.extend(broken);
                }
                Err(Error::Abort(abort)) if abort.is_retryable() => {
                    done.scan_aborts.add(format!("{abort:?}"));
                }
                Err(error) => return Err(failed("a scan", error)),
            }
            yield_now().await;
        }
        Ok(done)
    }

    /// Reads rows in one transaction, and returns what is wrong with them if updates leave their sum as it is; `None`
    /// if the time is over before. With an end of the time, the others have turns in between.
    pub async fn scan_once(
        &self,
        rows: Range<u64>,
        until: Option<Instant>,
    ) -> StructureResult<Option<Vec<String>>> {
        let options = match until {
            Some(_) => self.cluster.mode.reading(),
            None => Options::read_only(),
        };
        let tx = self.access.engine.begin(options).await?;
        let (mut count, mut sum) = (0, 0u64);
        let (mut begin, end) = (Bytes::copy_from_slice(&key(rows.start)), key(rows.end));
        loop {
            let found = self
                .tree
                .range(&tx, &begin, Some(&end), ROWS_A_TURN, false)
                .await?;
            for (_, value) in &found.rows {
                count += 1;
                sum = sum.wrapping_add(amount_of(value).unwrap_or_default());
            }
            match found.rows.last() {
                Some((last, _)) if found.more => begin = plinth_core::key::key_after(last),
                _ => break,
            }
            if until.is_some_and(|until| now() >= until) {
                return Ok(None);
            }
            yield_now().await;
        }
        let rows = rows.end - rows.start;
        let expected = (rows, AMOUNT.wrapping_mul(rows));
        let broken = ((count, sum) != expected).then(|| {
            format!(
                "(rows, sum) at a snapshot are {:?}, not {expected:?}",
                (count, sum)
            )
        });
        Ok(Some(broken.into_iter().collect()))
    }

    pub async fn verify(&self, plan: &Plan) -> Vec<String> {
        let cannot = |error: Error| vec![format!("the check cannot be carried out: {error}")];
        let mut broken = match self.scan_once(0..plan.rows, None).await {
            Ok(broken) => broken.unwrap_or_default(),
            Err(error) => return cannot(error),
        };
        let tx = match self.cluster.reader().await {
            Ok(tx) => tx,
            Err(abort) => return cannot(abort.into()),
        };
        if let Err(error) = self.tree.check(&tx).await {
            broken.push(error.to_string());
        }
        broken
    }
}

#[derive(Default)]
pub(crate) struct Rounds {
    alone: Done,
    beside: Done,
    alone_a_second: Vec<f64>,
    beside_a_second: Vec<f64>,
    alone_a_core: Vec<f64>,
    beside_a_core: Vec<f64>,
}

impl Rounds {
    pub fn add(&mut self, alone: Done, beside: Done) {
        self.alone_a_core.push(alone.updates_a_core());
        self.beside_a_core.push(beside.updates_a_core());
        let a_second = |done: &Done| done.spent.a_second(done.updates);
        self.alone_a_second.push(a_second(&alone));
        self.beside_a_second.push(a_second(&beside));
        self.alone.merge(alone);
        self.beside.merge(beside);
    }

    /// Adds what was measured to the report, and what is wrong.
    pub async fn report(mut self, plan: &Plan, side: &Side, report: &mut Report) {
        let mode = side.cluster.mode;
        report.add_broken(mode.name(), self.broken(mode));
        report.add_broken(mode.name(), side.verify(plan).await);
        let figure = self.figure(plan, mode);
        let line = line(&figure);
        report.add(figure, line);
    }

    fn figure(&self, plan: &Plan, mode: Mode) -> Value {
        let (alone, beside) = (&self.alone, &self.beside);
        json!({
            "mode": mode.name(),
            "updates_a_second_alone": alone.spent.a_second(alone.updates),
            "updates_a_second_beside_scans": beside.spent.a_second(beside.updates),
            "updates_beside_scans_to_alone": ratio(&self.beside_a_second, &self.alone_a_second),
            "updates_a_core_alone": alone.updates_a_core(),
            "updates_a_core_that_scans_leave": beside.updates_a_core(),
            "updates_a_core_that_scans_leave_to_alone": ratio(&self.beside_a_core, &self.alone_a_core),
            "rows_scanned_a_second": beside.spent.a_second(beside.scans * plan.rows),
            "scans": beside.scans,
            "scan_aborts": beside.scan_aborts.to_json(),
            "update_aborts_alone": alone.update_aborts.to_json(),
            "update_aborts_beside_scans": beside.update_aborts.to_json(),
        })
    }

    /// Policies that keep what a snapshot needs let no scan abort (§5.3).
    fn broken(&mut self, mode: Mode) -> Vec<String> {
        let mut broken = std::mem::take(&mut self.beside.broken);
        let keeps = matches!(mode.policy(), Policy::MvBlock | Policy::MvAbort);
        let aborts = self.beside.scan_aborts.count();
        if keeps && aborts > 0 {
            broken.push(format!("{aborts} scans have aborted, which only read"));
        }
        broken
    }
}

fn line(figure: &Value) -> String {
    let number = |field: &str| figure[field].as_f64().unwrap_or_default();
    format!(
        "{:<12} updates/s alone {:>9.0}, beside scans {:>9.0} ({:.3}; {:.3} for the processor time that is left)  \
         {:>10.0} rows scanned/s  {} scans, aborted {}",
        figure["mode"].as_str().unwrap_or_default(),
        number("updates_a_second_alone"),
        number("updates_a_second_beside_scans"),
        number("updates_beside_scans_to_alone"),
        number("updates_a_core_that_scans_leave_to_alone"),
        number("rows_scanned_a_second"),
        figure["scans"],
        figure["scan_aborts"],
    )
}

/// Loads the rows for each mode, runs updates alone and beside scans by turns, and checks each scan and the rows in
/// the end. Errors are a line for the user.
pub fn run<'a>(plan: &'a Plan, tell: &'a dyn Fn(&str)) -> Boxed<'a, Result<Report, String>> {
    Box::pin(async move {
        Machines::one(plan.region_mib, plan.old_mib)
            .check_at(&plan.place)
            .await?;
        let mut report = Report::new("scans", plan.settings());
        let mut sides = Vec::new();
        for mode in &plan.modes {
            tell(&format!("loading {} rows: {}", plan.rows, mode.name()));
            sides.push((Side::load(plan, *mode).await?, Rounds::default()));
        }
        for round in 1..=plan.rounds {
            tell(&format!("round {round} of {}", plan.rounds));
            for (side, rounds) in &mut sides {
                let alone = side.round(plan, false).await?;
                let beside = side.round(plan, true).await?;
                rounds.add(alone, beside);
            }
        }
        tell("checking the rows");
        for (side, rounds) in sides {
            rounds.report(plan, &side, &mut report).await;
        }
        Ok(report)
    })
}
