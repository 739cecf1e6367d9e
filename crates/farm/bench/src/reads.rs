//! Point reads of objects: one a transaction and many a transaction, in the own memory and in another machine's.

use crate::cluster::{Cluster, Machines, Place};
use crate::kv::failed;
use crate::measure::{Spent, Watch};
use crate::mode::Mode;
use crate::report::Report;
use crate::values::{VALUE_BYTES_MIN, serial_of, value};
use plinth_farm_engine::{Engine, Options, Policy};
use plinth_farm_fabric::Shared;
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_farm_structures::Result as StructureResult;
use plinth_farm_tpcc::load;
use plinth_runtime::random::Generator;
use plinth_runtime::{Duration, join_all, now, yield_now};
use serde_json::json;

/// Objects that a transaction of the loader makes.
const MADE_AT_ONCE: usize = 100;

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
    fn machines(&self) -> Machines {
        let bytes = (self.objects * (self.bytes + 64)) as u64;
        Machines {
            machines: 2,
            replicas: 1,
            region_mib: 16 + 2 * bytes / (1 << 20),
            old_mib: 16,
        }
    }
}

pub(crate) struct Loaded {
    pub cluster: Cluster,
    pub objects: Vec<Pointer>,
}

impl Loaded {
    /// All objects lie on machine 0.
    pub async fn make(plan: &Plan) -> Result<Loaded, String> {
        let mode = Mode::opaque(Policy::MvTruncate);
        let cluster = Cluster::start(&plan.place, &plan.machines(), mode).await?;
        let made = Loaded::fill(&cluster, plan).await;
        Ok(Loaded {
            objects: made.map_err(|error| failed("loading", error))?,
            cluster,
        })
    }

    async fn fill(cluster: &Cluster, plan: &Plan) -> StructureResult<Vec<Pointer>> {
        let near = cluster.anchors().await?[0];
        let first = cluster.machine(0);
        let mut objects = Vec::new();
        while objects.len() < plan.objects {
            let begin = objects.len();
            let end = plan.objects.min(begin + MADE_AT_ONCE);
            let made = load::run(&first, async |tx| {
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

    /// Reads at random for a while. Returns how many were read, and what was wrong.
    async fn measure(&self, plan: &Plan, how: &How) -> Result<(u64, Spent), String> {
        let watch = Watch::start();
        let clients = (0..how.clients).map(|number| {
            let random = Generator::new(plan.seed ^ u64::from(number));
            self.client(plan, how, random)
        });
        let mut count = 0;
        for outcome in join_all(clients).await {
            count += outcome?;
        }
        Ok((count, watch.stop()))
    }

    async fn client(&self, plan: &Plan, how: &How, mut random: Generator) -> Result<u64, String> {
        let (engine, until) = (&self.cluster.engines[how.machine], now() + plan.duration);
        let mut count = 0;
        while now() < until {
            let read = self.transaction(engine, plan, how, &mut random).await;
            count += read?;
            yield_now().await;
        }
        Ok(count)
    }

    async fn transaction(
        &self,
        engine: &Engine<Shared>,
        plan: &Plan,
        how: &How,
        random: &mut Generator,
    ) -> Result<u64, String> {
        let line = |abort: Abort| format!("{}: {abort}", how.name);
        let reader = engine.begin(how.options).await.map_err(line)?;
        for _ in 0..how.reads {
            let row = random.below(self.objects.len() as u64);
            let found = reader
                .read(self.objects[row as usize])
                .await
                .map_err(line)?;
            // A look at the row is enough here: the check at the end looks at every byte.
            if found.get(..8) != Some(&row.to_le_bytes()[..]) {
                return Err(format!(
                    "BROKEN {}: object {row} is not what was written",
                    how.name
                ));
            }
        }
        debug_assert!(plan.bytes >= VALUE_BYTES_MIN);
        Ok(how.reads as u64)
    }

    /// A line for each object that is not as it was made, as each machine sees it.
    pub async fn verify(&self, plan: &Plan) -> Vec<String> {
        let mut broken = Vec::new();
        for (machine, engine) in self.cluster.engines.iter().enumerate() {
            let reader = match engine.begin(Options::read_only()).await {
                Ok(reader) => reader,
                Err(abort) => return vec![format!("the check cannot be carried out: {abort}")],
            };
            for (row, at) in self.objects.iter().enumerate() {
                let found = reader.read(*at).await;
                let serial = found.as_ref().ok().and_then(|found| {
                    let whole = found.get(..plan.bytes)?;
                    serial_of(whole, row as u64)
                });
                if serial != Some(0) {
                    broken.push(format!(
                        "machine {machine} does not see object {row} as it was made"
                    ));
                }
            }
        }
        broken
    }
}

struct How {
    name: &'static str,
    machine: usize,
    clients: u32,
    reads: usize,
    options: Options,
}

/// The figures of one machine: of the one that has the objects, or of the other.
fn hows(plan: &Plan, machine: usize, names: [&'static str; 3]) -> [How; 3] {
    let strict = Options::read_only();
    let [one, loose, many] = names;
    let how = |name, clients, reads, options| How {
        name,
        machine,
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

/// Makes the objects, reads them in each way, and checks them. Errors are a line for the user.
pub async fn run(plan: &Plan, tell: &dyn Fn(&str)) -> Result<Report, String> {
    let settings = json!({
        "objects": plan.objects,
        "bytes": plan.bytes,
        "clients": plan.clients,
        "reads_a_transaction": plan.reads,
        "seconds": plan.duration.as_secs_f64(),
        "seed": plan.seed,
    });
    plan.machines().check_at(&plan.place).await?;
    let mut report = Report::new("reads", settings);
    tell(&format!("making {} objects", plan.objects));
    let loaded = Loaded::make(plan).await?;
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
    for how in hows(plan, 0, own).into_iter().chain(hows(plan, 1, other)) {
        tell(how.name);
        let (count, spent) = match loaded.measure(plan, &how).await {
            Ok(measured) => measured,
            Err(line) => match line.strip_prefix("BROKEN ") {
                Some(line) => {
                    report.add_broken("reads", vec![line.to_owned()]);
                    break;
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
    report.add_broken("reads", loaded.verify(plan).await);
    Ok(report)
}
