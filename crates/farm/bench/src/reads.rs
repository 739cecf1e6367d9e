//! Point reads of objects: one a transaction and many a transaction, in the own memory and in another machine's.

use crate::cluster::{Cluster, Machines, Place};
use crate::kv::failed;
use crate::measure::{Spent, Watch};
use crate::mode::Mode;
use crate::report::Report;
use crate::values::{VALUE_BYTES_MIN, serial_of, value};
use plinth_farm_engine::{Engine, Options, Policy};
use plinth_farm_fabric::Fabric;
use plinth_farm_memory::{Abort, Objects as _, Pointer};
use plinth_farm_structures::{Result as StructureResult, kv};
use plinth_farm_tpcc::load;
use plinth_runtime::random::Generator;
use plinth_runtime::{Boxed, Duration, join_all, now, yield_now};
use serde_json::json;
use std::ops::Range;

/// Objects that a transaction of the loader makes.
const MADE_AT_ONCE: usize = 100;
/// Begins a line about an object that is wrong.
const BROKEN: &str = "BROKEN ";

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub place: Place,
    pub objects: usize,
    /// Of an object, at least 24.
    pub bytes: usize,
    /// Transactions side by side where each has one read.
    pub clients: u32,
    /// Reads of a transaction that has many.
    pub reads: usize,
    /// Of each figure.
    pub duration: Duration,
    pub seed: u64,
}

impl Plan {
    /// MiB of a region that has room for the objects.
    pub fn region_mib(&self) -> u64 {
        let bytes = (self.objects * (self.bytes + 64)) as u64;
        16 + 2 * bytes / (1 << 20)
    }

    fn machines(&self) -> Machines {
        Machines {
            machines: 2,
            replicas: 1,
            region_mib: self.region_mib(),
            old_mib: 16,
        }
    }
}

pub(crate) struct Loaded {
    pub cluster: Cluster,
    pub objects: Objects,
}

impl Loaded {
    /// All objects lie on machine 0.
    pub async fn make(plan: &Plan) -> Result<Loaded, String> {
        let mode = Mode::opaque(Policy::MvTruncate);
        let cluster = Cluster::start(&plan.place, &plan.machines(), mode).await?;
        let near = cluster.anchors().await;
        let near = near.map_err(|error| failed("loading", error))?[0];
        let objects = Objects::make(&cluster.machine(0), near, plan, 1).await?;
        Ok(Loaded { cluster, objects })
    }

    /// A line for each object that is not as it was made, as each machine sees it.
    pub async fn verify(&self, plan: &Plan) -> Vec<String> {
        let mut broken = Vec::new();
        for (machine, engine) in self.cluster.engines.iter().enumerate() {
            let lines = self.objects.verify(engine, plan).await;
            broken.extend(
                lines
                    .into_iter()
                    .map(|line| format!("machine {machine}: {line}")),
            );
        }
        broken
    }
}

/// The objects that are read.
pub struct Objects(pub Vec<Pointer>);

impl Objects {
    /// Makes them, by so many transactions side by side. Errors are a line for the user.
    pub async fn make<E: kv::Engine>(
        access: &E,
        near: Pointer,
        plan: &Plan,
        makers: usize,
    ) -> Result<Objects, String> {
        let share = plan.objects.div_ceil(makers.max(1));
        let begins = (0..plan.objects).step_by(share.max(1));
        let shares = begins.map(|begin| begin..plan.objects.min(begin + share));
        let made = shares.map(|rows| Objects::make_share(access, near, plan, rows));
        let mut objects = Vec::new();
        for made in join_all(made).await {
            objects.extend(made.map_err(|error| failed("loading", error))?);
        }
        Ok(Objects(objects))
    }

    async fn make_share<E: kv::Engine>(
        access: &E,
        near: Pointer,
        plan: &Plan,
        rows: Range<usize>,
    ) -> StructureResult<Vec<Pointer>> {
        let mut objects = Vec::new();
        for begin in rows.clone().step_by(MADE_AT_ONCE) {
            let end = rows.end.min(begin + MADE_AT_ONCE);
            let made = load::run(access, async |tx| {
                let mut made = Vec::new();
                for row in begin..end {
                    let at = tx.allocate(plan.bytes, near).await?;
                    tx.write(at, value(row as u64, 0, plan.bytes)).await?;
                    made.push(at);
                }
                Ok(made)
            });
            objects.extend(made.await?);
        }
        Ok(objects)
    }

    /// Reads at random for a while. Returns how many were read.
    async fn measure<F: Fabric>(
        &self,
        engine: &Engine<F>,
        plan: &Plan,
        how: &How,
    ) -> Result<(u64, Spent), String> {
        let watch = Watch::start();
        let clients = (0..how.clients).map(|number| {
            let random = Generator::new(plan.seed ^ u64::from(number));
            self.client(engine, plan, how, random)
        });
        let mut count = 0;
        for outcome in join_all(clients).await {
            count += outcome?;
        }
        Ok((count, watch.stop()))
    }

    async fn client<F: Fabric>(
        &self,
        engine: &Engine<F>,
        plan: &Plan,
        how: &How,
        mut random: Generator,
    ) -> Result<u64, String> {
        let until = now() + plan.duration;
        let mut count = 0;
        while now() < until {
            count += self.transaction(engine, plan, how, &mut random).await?;
            yield_now().await;
        }
        Ok(count)
    }

    async fn transaction<F: Fabric>(
        &self,
        engine: &Engine<F>,
        plan: &Plan,
        how: &How,
        random: &mut Generator,
    ) -> Result<u64, String> {
        let line = |abort: Abort| format!("{}: {abort}", how.name);
        let reader = engine.begin(how.options).await.map_err(line)?;
        for _ in 0..how.reads {
            let row = random.below(self.0.len() as u64);
            let found = reader.read(self.0[row as usize]).await.map_err(line)?;
            // A look at the row is enough here: the check at the end looks at every byte.
            if found.get(..8) != Some(&row.to_le_bytes()[..]) {
                return Err(format!(
                    "{BROKEN}{}: object {row} is not what was written",
                    how.name
                ));
            }
        }
        debug_assert!(plan.bytes >= VALUE_BYTES_MIN);
        Ok(how.reads as u64)
    }

    /// Measures each way of `hows`. False if an object was wrong, which the report says then.
    async fn measure_all<F: Fabric>(
        &self,
        engine: &Engine<F>,
        plan: &Plan,
        hows: [How; 3],
        report: &mut Report,
        tell: &dyn Fn(&str),
    ) -> Result<bool, String> {
        for how in hows {
            tell(how.name);
            let (count, spent) = match self.measure(engine, plan, &how).await {
                Ok(measured) => measured,
                Err(line) => match line.strip_prefix(BROKEN) {
                    Some(line) => {
                        report.add_broken("reads", vec![line.to_owned()]);
                        return Ok(false);
                    }
                    None => return Err(line),
                },
            };
            let (second, core) = (spent.a_second(count), spent.a_core(count));
            let line = format!(
                "{:<46} {second:>12.0} reads/s {core:>12.0} a core",
                how.name
            );
            let figure = json!({
                "reads": how.name,
                "reads_a_second": second,
                "reads_a_second_and_core": core,
            });
            report.add(figure, line);
        }
        Ok(true)
    }

    /// A line for each object that is not as it was made.
    pub async fn verify<F: Fabric>(&self, engine: &Engine<F>, plan: &Plan) -> Vec<String> {
        let mut broken = Vec::new();
        let reader = match engine.begin(Options::read_only()).await {
            Ok(reader) => reader,
            Err(abort) => return vec![format!("the check cannot be carried out: {abort}")],
        };
        for (row, at) in self.0.iter().enumerate() {
            let found = reader.read(*at).await;
            let serial = found.as_ref().ok().and_then(|found| {
                let whole = found.get(..plan.bytes)?;
                serial_of(whole, row as u64)
            });
            if serial != Some(0) {
                broken.push(format!("object {row} is not seen as it was made"));
            }
        }
        broken
    }
}

struct How {
    name: &'static str,
    clients: u32,
    reads: usize,
    options: Options,
}

/// Ways to read, in the order of their names.
fn hows(plan: &Plan, names: [&'static str; 3]) -> [How; 3] {
    let strict = Options::read_only();
    let [one, loose, many] = names;
    let how = |name, clients, reads, options| How {
        name,
        clients,
        reads,
        options,
    };
    [
        how(one, plan.clients, 1, strict),
        how(loose, 1, 1, strict.not_strict()),
        how(many, 1, plan.reads, strict),
    ]
}

fn new_report(workload: &'static str, plan: &Plan) -> Report {
    let settings = json!({
        "objects": plan.objects,
        "bytes": plan.bytes,
        "clients": plan.clients,
        "reads_a_transaction": plan.reads,
        "seconds": plan.duration.as_secs_f64(),
        "seed": plan.seed,
    });
    Report::new(workload, settings)
}

/// Makes the objects, reads them in each way, and checks them. Errors are a line for the user.
pub fn run<'a>(plan: &'a Plan, tell: &'a dyn Fn(&str)) -> Boxed<'a, Result<Report, String>> {
    Box::pin(async move {
        plan.machines().check_at(&plan.place).await?;
        let mut report = new_report("reads", plan);
        tell(&format!("making {} objects", plan.objects));
        let loaded = Loaded::make(plan).await?;
        let Loaded { cluster, objects } = &loaded;
        let own = [
            "own memory, one a transaction",
            "own memory, one a transaction, not strict",
            "own memory, many a transaction",
        ];
        let other = [
            "shared memory, one a transaction",
            "shared memory, one a transaction, not strict",
            "shared memory, many a transaction",
        ];
        for (engine, names) in cluster.engines.iter().zip([own, other]) {
            let hows = hows(plan, names);
            let measured = objects.measure_all(engine, plan, hows, &mut report, tell);
            if !measured.await? {
                break;
            }
        }
        report.add_broken("reads", loaded.verify(plan).await);
        Ok(report)
    })
}

/// The same from the machine of `engine`, in whose process there are no regions: the objects lie in another one's
/// memory. Errors are a line for the user.
pub async fn run_beside<E: kv::Engine, F: Fabric>(
    plan: &Plan,
    access: &E,
    engine: &Engine<F>,
    tell: &dyn Fn(&str),
) -> Result<Report, String> {
    let mut report = new_report("processes", plan);
    tell(&format!("making {} objects", plan.objects));
    let objects = Objects::make(access, Pointer::NULL, plan, 1).await?;
    let names = [
        "another process, one a transaction",
        "another process, one a transaction, not strict",
        "another process, many a transaction",
    ];
    let hows = hows(plan, names);
    let measured = objects.measure_all(engine, plan, hows, &mut report, tell);
    if measured.await? {
        report.add_broken("processes", objects.verify(engine, plan).await);
    }
    Ok(report)
}
