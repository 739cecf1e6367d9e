//! Some machines in one simulated process, for tests of one thing.

use crate::testing::clocks::{hear_time, keep_time, new_clock};
use crate::testing::fabrics::Any;
use crate::{Engine, Options, Place, Policy, Replicas, Settings, Transaction, View};
use bytes::Bytes;
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, serve};
use plinth_farm_memory::{Abort, Objects, Pointer, Sizes};
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, Task, TaskGroup, net, sleep, spawn};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

pub const MS: Duration = Duration::from_millis(1);

/// Region `n` has its primary on machine `n`.
pub struct Shape {
    pub machines: u16,
    pub backups: u16,
    pub policy: Policy,
    pub sizes: Sizes,
    pub settings: Settings,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            machines: 3,
            backups: 2,
            policy: Policy::MvTruncate,
            sizes: Sizes {
                slots: 3,
                region_words: 600,
                slab_words: 64,
                old_words: 4 * 64,
                block_words: 64,
            },
            settings: Settings {
                pause: Duration::from_micros(20),
                idle: Duration::from_micros(100),
                round: MS,
                patience: 10 * MS,
                block: 50 * MS,
            },
        }
    }
}

impl Shape {
    fn view(&self) -> View {
        let place = |region: u16, at: u16| Place {
            machine: Machine((region + at) % self.machines),
            slot: region,
        };
        let replicas = |region| Replicas {
            primary: place(region, 0),
            backups: (1..=self.backups).map(|at| place(region, at)).collect(),
        };
        View {
            number: 1,
            machines: (0..self.machines).map(Machine).collect(),
            master: Machine(0),
            regions: (0..self.machines).map(replicas).collect(),
        }
    }
}

pub struct Cluster {
    pub engines: Vec<Rc<Engine<Any>>>,
    /// Who serves the memory of each machine to others.
    servers: RefCell<Vec<Option<Task<()>>>>,
    _group: TaskGroup,
}

impl Cluster {
    pub async fn start(shape: &Shape, is_one_host: bool) -> Cluster {
        let (group, view) = (TaskGroup::new(), shape.view());
        let layout = Layout {
            machines: usize::from(shape.machines),
            ring_words: 1000,
            region_words: shape.sizes.region_words(),
        };
        let (mut addresses, mut locals, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for machine in &view.machines {
            let local = Local::start(Path::new("/farm"), *machine, &layout).await;
            let local = local.expect("a memory");
            let listener = net::listen("10.255.0.0:0".parse().expect("one")).await;
            let listener = listener.expect("a port");
            addresses.push(listener.local_addr().expect("an address"));
            let server = serve(listener, *machine, local.host().clone());
            servers.push(Some(spawn("serve", server)));
            locals.push(local);
        }
        let fabric = |local| match is_one_host {
            true => Rc::new(Any::shared(local)),
            false => Rc::new(Any::streamed(local, addresses.clone())),
        };
        let fabrics: Vec<Rc<Any>> = locals.into_iter().map(fabric).collect();
        for fabric in &fabrics {
            fabric
                .configure(1, &view.machines)
                .await
                .expect("the first");
        }
        let mut engines = Vec::new();
        for fabric in &fabrics {
            for other in &view.machines {
                fabric.open(*other).await.expect("it serves");
            }
            let clock = new_clock(fabric.local().machine());
            let engine = Engine::start(
                fabric.clone(),
                clock.clone(),
                view.clone(),
                shape.sizes,
                shape.policy,
                shape.settings,
            );
            let engine = Rc::new(engine.expect("memory that fits"));
            hear_time(&engine, &clock);
            group.spawn("time", keep_time(view.clone(), clock, fabric.clone()));
            engines.push(engine);
        }
        // The collector hears all machines, twice.
        sleep(20 * MS).await;
        Cluster {
            engines,
            servers: RefCell::new(servers),
            _group: group,
        }
    }

    /// Nobody reaches the machine over the network any more.
    pub fn cut_off(&self, machine: usize) {
        let server = self.servers.borrow_mut()[machine].take();
        drop(server);
    }

    pub async fn begin(&self, machine: usize, options: Options) -> Transaction<Any> {
        let begun = self.engines[machine].begin(options).await;
        begun.expect("a snapshot")
    }

    /// An object with this value in the region of a machine.
    pub async fn object(&self, on: usize, value: &'static [u8]) -> Pointer {
        let maker = self.begin(on, Options::default()).await;
        let at = maker
            .allocate(value.len(), Pointer::NULL)
            .await
            .expect("room");
        assert_eq!(usize::from(at.region()), on);
        maker
            .write(at, Bytes::from_static(value))
            .await
            .expect("written");
        maker.commit().await.expect("committed");
        at
    }

    /// Replaces the object's value, from some machine.
    pub async fn update(
        &self,
        from: usize,
        at: Pointer,
        value: &'static [u8],
    ) -> Result<u64, Abort> {
        let writer = self.begin(from, Options::default()).await;
        writer.write(at, Bytes::from_static(value)).await?;
        let committed = writer.commit().await?;
        Ok(committed.written_at.expect("it has written"))
    }

    pub async fn value(&self, from: usize, at: Pointer) -> Result<Bytes, Abort> {
        self.begin(from, Options::read_only()).await.read(at).await
    }

    /// Waits until nothing is active any more.
    pub async fn quiet(&self) {
        for _ in 0..1000 {
            if self.engines.iter().all(|engine| engine.active() == 0) {
                return;
            }
            sleep(MS).await;
        }
        panic!("transactions are still active");
    }
}

fn run(shape: &Rc<Shape>, seed: u64, is_one_host: bool, test: impl AsyncFn(&Cluster) + 'static) {
    let shape = shape.clone();
    Simulation::new(seed, SimConfig::default()).run(async move {
        let cluster = Cluster::start(&shape, is_one_host).await;
        test(&cluster).await;
    });
}

/// Runs a test on a few seeds, with machines of one host and of several.
pub fn on(shape: Shape, test: impl AsyncFn(&Cluster) + Copy + 'static) {
    let shape = Rc::new(shape);
    for seed in 0..6 {
        run(&shape, seed, seed % 2 == 1, test);
    }
}

/// The same, with machines of several hosts only.
pub fn on_hosts(shape: Shape, test: impl AsyncFn(&Cluster) + Copy + 'static) {
    let shape = Rc::new(shape);
    for seed in 0..6 {
        run(&shape, seed, false, test);
    }
}
