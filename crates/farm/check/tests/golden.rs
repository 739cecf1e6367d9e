//! A golden trace: the machine dies that is the clock master, and the primary of a region.
//!
//! ```sh
//! PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-farm-check --test all golden::
//! ```

#[path = "../../../store/sim/tests/golden/story.rs"]
mod story;

use plinth_core::Uid;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::testing::machines::{address, settings};
use plinth_farm_engine::{Keeps, Options, Policy, Settings};
use plinth_farm_fabric::{Layout, Local, Machine, Mixed, serve};
use plinth_farm_member::{self as member, Cluster, LocalRegister, Record, Register, Seat, create};
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_farm_node::{self as node, Node, sizes};
use plinth_runtime::sim::{KillKind, Locality, SimConfig, Simulation, control};
use plinth_runtime::{Boxed, Duration, net, sleep, spawn, trace};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use story::{Event, Place, Places, check, tell};

const COMMAND: &str = "PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-farm-check --test all golden::";
const SEEDS: [u64; 3] = [1, 2, 3];
const LIMIT: Duration = Duration::from_secs(60);
const TRACE_LINES: usize = 400_000;
const LOOK: Duration = Duration::from_millis(5);
const MACHINES: u16 = 3;
const LATENCY: Duration = Duration::from_micros(200);
/// Until an operation of the fabric is given up.
const OPERATION: Duration = Duration::from_millis(30);
const OLD_BYTES: u64 = 1 << 20;
const RING_WORDS: u64 = 1 << 13;

const PLACES: Places = &[
    ("OperatorKills", Place::Step),
    ("FarmMembersReached", Place::Step),
    ("FarmProposes", Place::Step),
    ("FarmConfigurationTaken", Place::Step),
    ("FarmFabricConfigured", Place::Here),
    ("FarmConfigurationAcknowledged", Place::Step),
    (
        "FarmRecoveryBegins",
        Place::With("FarmConfigurationAcknowledged"),
    ),
    (
        "FarmRegionVotes",
        Place::With("FarmConfigurationAcknowledged"),
    ),
    (
        "FarmRecoveryDecides",
        Place::With("FarmConfigurationAcknowledged"),
    ),
    (
        "FarmRegionRedoes",
        Place::With("FarmConfigurationAcknowledged"),
    ),
    (
        "FarmRegionOpens",
        Place::With("FarmConfigurationAcknowledged"),
    ),
    (
        "FarmRecoveryEnds",
        Place::With("FarmConfigurationAcknowledged"),
    ),
    ("FarmTimeAdvanced", Place::Step),
    ("FarmTimeGoesOn", Place::Step),
    ("TransactionRead", Place::Step),
    ("TransactionWrote", Place::Step),
];

type One = Node<Any, LocalRegister>;

/// What a machine is to do next: write a value, into a new object if there is none yet, or read the object.
struct Job {
    machine: u16,
    write: Option<&'static str>,
}

#[derive(Clone, Default)]
struct Stage {
    register: LocalRegister,
    nodes: Rc<RefCell<Vec<Rc<One>>>>,
    job: Rc<RefCell<Option<Job>>>,
    is_done: Rc<Cell<bool>>,
    object: Rc<Cell<Option<Pointer>>>,
}

/// Two regions with three replicas each, on machines that are hosts of their own.
fn cluster() -> Cluster {
    Cluster {
        first_machines: 2,
        region_bytes: 1 << 16,
        slab_bytes: 1 << 12,
        ..Cluster::new(Uid(7), MACHINES, 2, 3)
    }
}

async fn live(stage: Stage, machine: u16) {
    let record = create(&stage.register, cluster()).await.expect("a record");
    let sizes = sizes(&record.cluster, 2, OLD_BYTES);
    let layout = Layout {
        machines: MACHINES.into(),
        ring_words: RING_WORDS,
        region_words: sizes.region_words(),
    };
    let local = Local::start(Path::new("/farm"), Machine(machine), &layout).await;
    let local = local.expect("a memory");
    let listener = net::listen(address(machine)).await.expect("its port");
    let serving = serve(listener, Machine(machine), local.host().clone());
    let _serving = spawn("serve", serving);
    let fabric = Rc::new(Any::Mixed(Mixed::new(local, OPERATION)));
    let of = fabric.clone();
    let meet = move |seat: &Seat| {
        let place = match seat.machine == machine {
            true => plinth_farm_fabric::Place::Here,
            false => plinth_farm_fabric::Place::At(address(seat.machine)),
        };
        if let Any::Mixed(fabric) = &*of {
            fabric.set_place(Machine(seat.machine), place);
        }
    };
    let options = node::Options {
        member: member::Options {
            slots: 2,
            disk: None,
            socket: Some(address(machine)),
            zone: String::new(),
            meet: Box::new(meet),
            closing: None,
            may_renumber: false,
        },
        sizes,
        policy: Policy::MvAbort,
        // Nobody asks for a configuration while another one begins.
        settings: Settings {
            patience: Duration::from_secs(1),
            ..settings(LATENCY)
        },
        keeps: Keeps::Nothing,
    };
    let started = Node::start(fabric, stage.register.clone(), record, options).await;
    let node = Rc::new(started.expect("a node"));
    stage.nodes.borrow_mut().push(node.clone());
    let is_own = |job: &mut Job| job.machine == machine;
    loop {
        let job = stage.job.borrow_mut().take_if(is_own);
        if let Some(Job { write, .. }) = job {
            while stage.transact(&node, write).await.is_err() {
                sleep(LOOK).await;
            }
            stage.is_done.set(true);
        }
        sleep(LOOK).await;
    }
}

impl Stage {
    fn start(&self, machine: u16) {
        let id = control().add_machine(Locality::default());
        let stage = self.clone();
        let main = move || -> Boxed<'static, ()> { Box::pin(live(stage.clone(), machine)) };
        control().start_process(id, address(machine), main);
    }

    /// Waits until transactions run in this configuration or a later one at all of these machines, and all replicas
    /// are whole.
    async fn until(&self, number: u64, nodes: std::ops::Range<usize>) {
        loop {
            let record = self.register.read().await.expect("it is here");
            let whole = record.filter(|record| {
                let mut replicas = record.regions.iter().flatten();
                record.number() >= number && replicas.all(|replica| replica.is_whole)
            });
            let is_open = |record: &Record| {
                let all = self.nodes.borrow();
                let mut these = all[nodes.clone()].iter();
                these.all(|node| node.engine().is_open() == Some(record.number()))
            };
            if whole.is_some_and(|record| is_open(&record)) {
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// Runs on the machine's own process, whose clock it reads.
    async fn transact(&self, node: &One, write: Option<&'static str>) -> Result<(), Abort> {
        let tx = node.engine().begin(Options::default()).await?;
        let known = self.object.get();
        let Some(value) = write else {
            let read = tx.read(known.expect("it was written")).await?;
            let value = String::from_utf8_lossy(&read);
            trace!("TransactionRead", "value" => value.trim_end_matches('\0'));
            return Ok(());
        };
        let at = match known {
            Some(at) => at,
            None => tx.allocate(8, Pointer::NULL).await?,
        };
        tx.write(at, value.into()).await?;
        tx.commit().await?;
        self.object.set(Some(at));
        trace!("TransactionWrote", "value" => value);
        Ok(())
    }

    async fn run(&self, machine: u16, write: Option<&'static str>) {
        self.is_done.set(false);
        self.job.replace(Some(Job { machine, write }));
        while !self.is_done.get() {
            sleep(LOOK).await;
        }
    }
}

async fn story() {
    let stage = Stage::default();
    for machine in 0..MACHINES {
        // The first two make the cluster, and the third one joins.
        stage.start(machine);
        while stage.nodes.borrow().len() <= machine.into() {
            sleep(LOOK).await;
        }
        if machine == 1 {
            stage.until(1, 0..2).await;
        }
    }
    stage.until(2, 0..3).await;
    // Where there is room: on the machine that asks for it.
    stage.run(0, Some("old")).await;
    let at = stage.object.get().expect("it was made");
    assert_eq!(at.region(), 0, "its primary is the machine that dies");
    sleep(Duration::from_secs(1)).await;
    trace!("StoryBegins");
    trace!("OperatorKills", "machine" => "m1");
    let processes = control().processes();
    let first = processes.iter().find(|p| p.address == address(0));
    control().kill_process(first.expect("it was started").id, KillKind::Kill);
    stage.run(1, None).await;
    stage.run(2, Some("new")).await;
    stage.run(1, None).await;
}

fn in_words(event: &Event) -> Option<String> {
    let text = |field: &str| event.text(field);
    Some(match event.kind().as_str() {
        "OperatorKills" => text("machine"),
        "FarmMembersReached" => format!("{} of {}", text("count"), text("of")),
        // How often the configuration changed while the cluster was made is drawn.
        "FarmProposes" | "FarmConfigurationTaken" => {
            format!("the next configuration, with {} members", text("members"))
        }
        "FarmFabricConfigured" => "to it, and closes what was before".into(),
        "FarmConfigurationAcknowledged" => "by all members".into(),
        "FarmRecoveryBegins" => "with what it knows of transactions".into(),
        "FarmRecoveryDecides" => "what becomes of transactions".into(),
        "FarmRecoveryEnds" => "here".into(),
        "FarmRegionVotes" => format!("on region {}", text("region")),
        "FarmRegionRedoes" => format!("what is committed in region {}", text("region")),
        "FarmRegionOpens" => format!("region {}", text("region")),
        "FarmTimeAdvanced" => "above all that was given out".into(),
        "FarmTimeGoesOn" => "in a new era".into(),
        "TransactionRead" | "TransactionWrote" => text("value"),
        _ => return None,
    })
}

#[test]
fn the_master_dies_and_another_one_goes_on_with_the_time_and_the_data() {
    let told = |seed| {
        let config = SimConfig {
            trace_lines_max: TRACE_LINES,
            network_latency_us: 20..200,
            clock_drift_ppm_max: 499,
            ..SimConfig::default()
        };
        let simulation = Simulation::new(seed, config);
        simulation
            .run_until(story(), LIMIT)
            .expect("the story ends");
        tell(&simulation.trace_tail(), PLACES, in_words)
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/failover.txt");
    check(&path, COMMAND, &SEEDS, told);
}
