//! Machines of the engine in one process, as tasks of its one thread.

use crate::clocks::{Told, hear_time, keep_time, new_clock};
use crate::kv::Access;
use crate::mode::Mode;
use plinth_farm_engine::{Engine, Options, Settings, View};
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, Shared};
use plinth_farm_memory::{Abort, Objects, Pointer, Sizes};
use plinth_farm_structures::Result as StructureResult;
use plinth_runtime::{Boxed, Duration, TaskGroup, disk, now, sleep};
use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Of a ring between two machines.
const RING_WORDS: u64 = 1 << 16;
const MIB_WORDS: u64 = (1 << 20) / 8;
/// A machine of another process may be about to start.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
const OPEN_PAUSE: Duration = Duration::from_millis(1);

/// How many machines there are, and how much memory they have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machines {
    pub machines: u16,
    /// Of each region, one of them the primary. At most as many as machines.
    pub replicas: u16,
    /// MiB of a region. A machine has a replica of as many regions as a region has replicas.
    pub region_mib: u64,
    /// MiB of old versions of a machine.
    pub old_mib: u64,
}

/// A directory of memory: not a disk, if there is such a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place(PathBuf);

impl Place {
    pub fn new(directory: Option<PathBuf>) -> Place {
        let memory = Path::new("/dev/shm");
        Place(directory.unwrap_or_else(|| match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        }))
    }
}

impl Place {
    fn failed(&self, error: &std::io::Error) -> String {
        no_memory(&self.0, error)
    }
}

fn no_memory(directory: &Path, error: &std::io::Error) -> String {
    let directory = directory.display();
    format!("{directory}: no memory can be made there: {error}")
}

/// Removes the files when it is dropped. The memory stays as long as it is mapped.
pub(crate) struct Files(pub PathBuf);

impl Files {
    pub async fn new(place: &Place) -> Result<Files, String> {
        let number = STARTED.replace(STARTED.get() + 1);
        let name = format!("plinth-farm-bench-{}-{number}", unique());
        let files = Files(place.0.join(name));
        let made = disk::create_dir_all(&files.0).await;
        made.map_err(|error| place.failed(&error))?;
        Ok(files)
    }
}

impl Drop for Files {
    #[allow(clippy::disallowed_methods)] // it removes what it has made
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Cluster {
    pub engines: Vec<Rc<Engine<Shared>>>,
    pub mode: Mode,
    _time: TaskGroup,
}

thread_local! {
    /// Clusters that this thread has started: their directories differ.
    static STARTED: Cell<u64> = const { Cell::new(0) };
}

impl Machines {
    /// One machine.
    pub fn one(region_mib: u64, old_mib: u64) -> Machines {
        Machines {
            machines: 1,
            replicas: 1,
            region_mib,
            old_mib,
        }
    }

    fn view(&self) -> View {
        View::first(self.machines, self.machines, self.replicas, |_, n| n)
    }

    fn sizes(&self) -> Sizes {
        let words = |mib: u64| mib.saturating_mul(MIB_WORDS);
        Sizes::new(self.replicas, words(self.region_mib), words(self.old_mib))
    }

    /// Whether there are such machines, and whether `place` takes names of memory. Errors are a line for the user.
    pub(crate) async fn check_at(&self, place: &Place) -> Result<(), String> {
        self.check()?;
        Files::new(place).await.map(|_| ())
    }

    fn check(&self) -> Result<(), String> {
        if self.machines == 0 || self.replicas == 0 || self.replicas > self.machines {
            return Err("there is at least one machine, and at most as many replicas".into());
        }
        let sizes = self.sizes().check();
        sizes.map_err(|error| format!("memory of a machine: {error}"))
    }
}

impl Cluster {
    /// Starts the machines, with memory in `place`, without data. Errors are a line for the user.
    pub fn start<'a>(
        place: &'a Place,
        machines: &'a Machines,
        mode: Mode,
    ) -> Boxed<'a, Result<Cluster, String>> {
        Box::pin(async move {
            let files = Files::new(place).await?;
            let all = 0..machines.machines;
            let cluster = Cluster::start_part(&files.0, machines, mode, all).await;
            // Mapped memory needs no name, and whatever ends this process leaves nothing behind.
            drop(files);
            cluster
        })
    }

    /// Starts some of the machines, whose memory lies in the directory. The others are started by other processes
    /// meanwhile.
    pub(crate) async fn start_part(
        directory: &Path,
        machines: &Machines,
        mode: Mode,
        own: Range<u16>,
    ) -> Result<Cluster, String> {
        machines.check()?;
        let (view, sizes) = (machines.view(), machines.sizes());
        let layout = Layout {
            machines: usize::from(machines.machines),
            ring_words: RING_WORDS,
            region_words: sizes.region_words(),
        };
        let mut fabrics = Vec::new();
        for machine in own.map(Machine) {
            let local = Local::start(directory, machine, &layout).await;
            let local = local.map_err(|error| no_memory(directory, &error))?;
            let fabric = Rc::new(Shared::new(local));
            let configured = fabric.configure(1, &view.machines).await;
            configured.map_err(|error| format!("the fabric does not start: {error}"))?;
            fabrics.push(fabric);
        }
        let (time, told) = (TaskGroup::new(), Told::default());
        let mut engines = Vec::new();
        for fabric in fabrics {
            for other in view
                .machines
                .iter()
                .filter(|other| **other != fabric.local().machine())
            {
                let begun = now();
                while let Err(error) = fabric.open(*other).await {
                    if begun.elapsed() > OPEN_LIMIT {
                        return Err(format!("no way to machine {}: {error}", other.0));
                    }
                    sleep(OPEN_PAUSE).await;
                }
            }
            let clock = new_clock(fabric.local().machine());
            let (policy, settings) = (mode.policy(), Settings::default());
            let (its_fabric, its_clock) = (fabric.clone(), clock.clone());
            let engine =
                Engine::start(its_fabric, its_clock, view.clone(), sizes, policy, settings);
            let engine = engine.map_err(|error| format!("the engine does not start: {error}"))?;
            hear_time(&engine, &clock);
            time.spawn("time", keep_time(view.clone(), clock, fabric, told.clone()));
            engines.push(Rc::new(engine));
        }
        Ok(Cluster {
            engines,
            mode,
            _time: time,
        })
    }

    pub fn machine(&self, number: usize) -> Access {
        let engine = self.engines[number % self.engines.len()].clone();
        Access {
            engine,
            options: Options::default(),
        }
    }

    /// An object on each machine: what is to lie near it, lies there.
    pub async fn anchors(&self) -> StructureResult<Vec<Pointer>> {
        let mut anchors = Vec::new();
        for number in 0..self.engines.len() {
            let machine = self.machine(number);
            let anchor = plinth_farm_tpcc::load::run(&machine, async |tx| {
                Ok(tx.allocate(8, Pointer::NULL).await?)
            });
            anchors.push(anchor.await?);
        }
        Ok(anchors)
    }

    pub async fn reader(&self) -> Result<plinth_farm_engine::Transaction<Shared>, Abort> {
        self.engines[0].begin(Options::read_only()).await
    }
}

fn unique() -> String {
    format!("{:016x}", plinth_runtime::random::u64())
}
