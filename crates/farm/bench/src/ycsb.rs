//! YCSB (§5.1, Figure 14): keys and values in one tree whose leaves have one entry, so that a read or an update of a
//! key is one of an object; rows by Zipf's distribution.

use crate::cluster::{Cluster, Machines, Place};
use crate::kv::{Access, breathe, failed, load_tree};
use crate::measure::{Latencies, Spent, Watch};
use crate::mode::Mode;
use crate::report::Report;
use crate::values::{key, row_of, serial_of, value};
use crate::zipf::Zipf;
use bytes::Bytes;
use plinth_core::words;
use plinth_core::{Error, KeySelector};
use plinth_farm_structures::Result as StructureResult;
use plinth_farm_structures::btree::Settings;
use plinth_farm_structures::kv::{Database, RangeOptions, Transaction};
use plinth_runtime::random::Generator;
use plinth_runtime::{Boxed, Duration, join_all, now, yield_now};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Most rows of a scan of mix E.
const SCAN_ROWS: u64 = 100;
const TREE_BYTES: usize = 4000;

words! {
    /// What transactions do.
    pub enum Mix {
        /// Half of them read a row, half of them update one.
        A = "a",
        /// 95 in 100 read a row, 5 update one.
        B = "b",
        /// They read a row.
        C = "c",
        /// 95 in 100 scan up to 100 rows, 5 insert one.
        E = "e",
    }
}

impl Mix {
    /// The error says which there are.
    pub fn parse(name: &str) -> Result<Mix, String> {
        Mix::from_name(&name.to_ascii_lowercase()).ok_or("there are a, b, c and e".into())
    }

    /// False if it scans.
    pub fn is_of_points(self) -> bool {
        self != Mix::E
    }

    /// What the next transaction does.
    pub fn step(self, random: &mut Generator) -> Step {
        let percent = random.below(100);
        match self {
            Mix::A if percent < 50 => Step::Read,
            Mix::B if percent < 95 => Step::Read,
            Mix::C => Step::Read,
            Mix::A | Mix::B => Step::Update,
            Mix::E if percent < 95 => Step::Scan,
            Mix::E => Step::Insert,
        }
    }
}

/// What a transaction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Read,
    Update,
    Scan,
    Insert,
}

/// What is run: each mix with each theta, on one database.
#[derive(Clone, Debug)]
pub struct Plan {
    pub place: Place,
    pub rows: u64,
    /// Of a value, at least 24.
    pub value_bytes: usize,
    pub clients: u32,
    pub mixes: Vec<Mix>,
    /// Each from 0, which is uniform, to below 1.
    pub thetas: Vec<f64>,
    /// Of each figure.
    pub duration: Duration,
    pub mode: Mode,
    pub region_mib: u64,
    pub old_mib: u64,
    pub seed: u64,
}

impl Plan {
    /// MiB of a region that has room for the rows, and for inserts.
    pub fn region_mib(rows: u64, value_bytes: usize) -> u64 {
        64 + rows.saturating_mul(2 * value_bytes as u64 + 400) / (1 << 20)
    }

    fn settings(&self) -> Value {
        json!({
            "mode": self.mode.name(),
            "rows": self.rows,
            "value_bytes": self.value_bytes,
            "clients": self.clients,
            "seconds": self.duration.as_secs_f64(),
            "region_mib": self.region_mib,
            "old_mib": self.old_mib,
            "seed": self.seed,
        })
    }

    fn tree(&self) -> Settings {
        Settings {
            leaf_bytes: self.value_bytes + 150,
            inner_bytes: TREE_BYTES,
            key_bytes_max: 16,
            inline_bytes_max: self.value_bytes,
            leaf_entries_max: 1,
            ..Settings::default()
        }
    }
}

pub(crate) struct Loaded {
    pub database: Database<Access>,
    cluster: Cluster,
    rows: Cell<u64>,
    /// Newest serial number that surely is in a row, or was replaced by a later one.
    serials: RefCell<BTreeMap<u64, u64>>,
    last_serial: Cell<u64>,
}

#[derive(Default)]
struct Done {
    latencies: Latencies,
    conflicts: u64,
    broken: Vec<String>,
}

impl Loaded {
    pub fn make(plan: &Plan) -> Boxed<'_, Result<Loaded, String>> {
        Box::pin(async move {
            let cluster = Cluster::start(
                &plan.place,
                &Machines::one(plan.region_mib, plan.old_mib),
                plan.mode,
            )
            .await?;
            let mut access = cluster.machine(0);
            let tree = load_tree(&access, plan.tree(), plan.rows, |row| {
                value(row, 0, plan.value_bytes)
            })
            .await;
            let tree = tree.map_err(|error| failed("loading", error))?;
            access.options = plan.mode.writing();
            // Only reads may be of an older version.
            access.options.will_write = false;
            Ok(Loaded {
                database: Database::new(access, tree),
                cluster,
                rows: Cell::new(plan.rows),
                serials: RefCell::default(),
                last_serial: Cell::new(0),
            })
        })
    }

    async fn measure(&self, plan: &Plan, mix: Mix, zipf: Zipf) -> Result<(Done, Spent), String> {
        let watch = Watch::start();
        let clients = (0..plan.clients).map(|number| {
            let random = Generator::new(plan.seed ^ (u64::from(number + 1) << 32));
            self.client(plan, mix, zipf, random)
        });
        let mut done = Done::default();
        for outcome in join_all(clients).await {
            let outcome = outcome?;
            done.latencies.merge(&outcome.latencies);
            done.conflicts += outcome.conflicts;
            done.broken.extend(outcome.broken);
        }
        Ok((done, watch.stop()))
    }

    async fn client(
        &self,
        plan: &Plan,
        mix: Mix,
        zipf: Zipf,
        mut random: Generator,
    ) -> Result<Done, String> {
        let until = now() + plan.duration;
        let mut done = Done::default();
        while now() < until {
            let (step, begun) = (mix.step(&mut random), now());
            let row = match step {
                Step::Insert => self.rows.replace(self.rows.get() + 1),
                _ => zipf.row(&mut random),
            };
            let scanned = 1 + random.below(SCAN_ROWS);
            let serial = self.last_serial.replace(self.last_serial.get() + 1) + 1;
            let tx = self.database.create_transaction();
            loop {
                let outcome = match self.step(plan, &tx, step, (row, serial, scanned)).await {
                    Ok(broken) => tx.commit().await.map(|()| broken),
                    Err(error) => Err(error),
                };
                match outcome {
                    Ok(broken) => {
                        done.broken.extend(broken);
                        break;
                    }
                    Err(error) => {
                        done.conflicts += 1;
                        let again = tx.on_error(error).await;
                        again.map_err(|error| format!("mix {}: {error}", mix.name()))?;
                    }
                }
            }
            if matches!(step, Step::Update | Step::Insert) {
                self.serials.borrow_mut().insert(row, serial);
            }
            done.latencies.add(begun.elapsed());
            yield_now().await;
        }
        Ok(done)
    }

    /// One try. Returns what was wrong with what it has read.
    async fn step(
        &self,
        plan: &Plan,
        tx: &Transaction<Access>,
        step: Step,
        (row, serial, scanned): (u64, u64, u64),
    ) -> Result<Option<String>, Error> {
        match step {
            Step::Read => {
                let found = tx.get(key(row)).await?;
                let is_whole = found.is_some_and(|found| serial_of(&found, row).is_some());
                Ok((!is_whole).then(|| format!("row {row} is not as it was written")))
            }
            Step::Update | Step::Insert => {
                tx.set(key(row), value(row, serial, plan.value_bytes));
                Ok(None)
            }
            Step::Scan => {
                let begin = KeySelector::first_greater_or_equal(key(row).to_vec());
                let end = KeySelector::first_greater_or_equal(key(row + scanned).to_vec());
                let found = tx.get_range(begin, end, RangeOptions::default()).await?;
                // An insert that is under way leaves its place empty; loaded rows are all there.
                let loaded = scanned.min(plan.rows - row) as usize;
                let is_whole = |(key, value): &(Bytes, Bytes)| {
                    row_of(key).is_some_and(|row| serial_of(value, row).is_some())
                };
                let is_right = found.rows.len() >= loaded && found.rows.iter().all(is_whole);
                Ok((!is_right)
                    .then(|| format!("a scan from row {row} lacks rows, or finds damaged ones")))
            }
        }
    }

    /// Every row is there and whole, as the last update of some client has left it, and the tree is sound.
    pub async fn verify(&self) -> Vec<String> {
        let checked = self.try_verify().await;
        checked.unwrap_or_else(|error| vec![format!("the check cannot be carried out: {error}")])
    }

    async fn try_verify(&self) -> StructureResult<Vec<String>> {
        let tx = self.cluster.reader().await?;
        let tree = self.database.tree();
        let mut broken = Vec::new();
        let census = tree.check(&tx).await?;
        if census.entries as u64 != self.rows.get() {
            broken.push(format!("{} rows, not {}", census.entries, self.rows.get()));
        }
        for row in 0..self.rows.get() {
            let found = tree.get(&tx, &key(row)).await?;
            let serial = found.and_then(|found| serial_of(&found, row));
            match serial {
                None => broken.push(format!("row {row} is missing or damaged")),
                // Updates of a row may be acknowledged in another order than that in which they happened, so any
                // serial number that was given out will do; a row that was updated must not be as it was loaded.
                Some(0) if self.serials.borrow().contains_key(&row) => {
                    broken.push(format!("row {row} has lost its updates"));
                }
                Some(serial) if serial > self.last_serial.get() => {
                    broken.push(format!("row {row} has a value that nobody has written"));
                }
                Some(_) => {}
            }
            breathe(row as usize).await;
        }
        Ok(broken)
    }
}

/// Loads the rows, runs each mix with each theta, and checks the rows. Errors are a line for the user.
pub fn run<'a>(plan: &'a Plan, tell: &'a dyn Fn(&str)) -> Boxed<'a, Result<Report, String>> {
    Box::pin(async move {
        Machines::one(plan.region_mib, plan.old_mib)
            .check_at(&plan.place)
            .await?;
        let mut report = Report::new("ycsb", plan.settings());
        tell(&format!("loading {} rows", plan.rows));
        let loaded = Loaded::make(plan).await?;
        for mix in &plan.mixes {
            for theta in &plan.thetas {
                tell(&format!("mix {}, theta {theta}", mix.name()));
                let zipf = Zipf::new(plan.rows, *theta);
                let (done, spent) = loaded.measure(plan, *mix, zipf).await?;
                let count = done.latencies.count();
                let (second, core) = (spent.a_second(count), spent.a_core(count));
                let line = format!(
                    "mix {}  theta {theta:<5} {second:>10.0} /s {core:>10.0} a core  p50 {:>7.0} us  p99 {:>7.0} us  \
                 {} conflicts",
                    mix.name(),
                    done.latencies.quantile_us(0.5),
                    done.latencies.quantile_us(0.99),
                    done.conflicts,
                );
                let figure = json!({
                    "mix": mix.name(),
                    "theta": theta,
                    "transactions_a_second": second,
                    "transactions_a_second_and_core": core,
                    "latency": done.latencies.to_json(),
                    "conflicts": done.conflicts,
                });
                report.add(figure, line);
                report.add_broken(mix.name(), done.broken);
            }
        }
        tell("checking the rows");
        report.add_broken("ycsb", loaded.verify().await);
        Ok(report)
    })
}
