//! A golden trace: how a log of a service goes on in another loglet when the process of its sequencer dies.
//!
//! ```sh
//! PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-delos --test golden
//! ```

#[path = "../../../store/sim/tests/golden/story.rs"]
mod story;

use bytes::Bytes;
use plinth_core::{Error, Uid};
use plinth_delos::log::{LogPos, SharedLog};
use plinth_delos::quorum::client::QuorumLoglets;
use plinth_delos::quorum::messages::Config;
use plinth_delos::quorum::sequencer::SequencerHost;
use plinth_delos::quorum::server::LogServer;
use plinth_delos::virtual_log::{Register, VirtualLog};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{KillKind, Locality, MachineId, SimConfig, Simulation, control};
use plinth_runtime::{Boxed, Duration, disk, sleep, trace};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use story::{Event, Place, Places, check, tell};

const COMMAND: &str = "PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-delos --test golden";
const SEEDS: [u64; 3] = [1, 2, 3];
const LIMIT: Duration = Duration::from_secs(300);
const TRACE_LINES: usize = 100_000;
const LOOK: Duration = Duration::from_millis(20);
const A: Uid = Uid(0xa);
const B: Uid = Uid(0xb);

const PLACES: Places = &[
    ("OperatorCutsOff", Place::Step),
    ("OperatorKills", Place::Step),
    ("ReplicaAppends", Place::Step),
    ("ReplicaAppended", Place::Step),
    ("ReplicaRead", Place::Step),
    ("DelosLogletReplaced", Place::Step),
    ("QuorumSeals", Place::Step),
    ("QuorumServerSealed", Place::Here),
    ("QuorumEndProposed", Place::Step),
    ("QuorumEntriesFilled", Place::Here),
    ("QuorumEndAccepted", Place::Here),
    ("QuorumSealed", Place::Step),
    ("QuorumEndKnown", Place::With("QuorumSealed")),
    ("DelosLogletAdded", Place::Step),
    ("DelosMapRead", Place::Here),
    ("QuorumVoteGiven", Place::With("ReplicaAppends four")),
    ("QuorumSequencerElected", Place::With("ReplicaAppends four")),
];

/// What all processes of the story share: the map, which a majority of coordinators would keep, and what happens next.
#[derive(Clone, Default)]
struct Stage {
    map: Rc<RefCell<(u64, Bytes)>>,
    servers: Rc<RefCell<Vec<Interface>>>,
    /// So much of the story is over.
    act: Rc<Cell<u32>>,
}

impl Register for Stage {
    async fn read(&self) -> Result<(u64, Bytes), Error> {
        Ok(self.map.borrow().clone())
    }

    async fn swap(&self, version: u64, value: Bytes) -> Result<bool, Error> {
        let mut map = self.map.borrow_mut();
        let is_it = map.0 == version;
        if is_it {
            *map = (version + 1, value);
        }
        Ok(is_it)
    }
}

fn address(machine: u8) -> SocketAddr {
    ([10, 0, 0, machine], 4500).into()
}

/// Starts a process on the next machine: the simulator's numbers of processes are those of the machines.
fn start(machine: u8, main: impl Fn() -> Boxed<'static, ()> + 'static) -> MachineId {
    let id = control().add_machine(Locality::default());
    control().start_process(id, address(machine), main);
    id
}

impl Stage {
    async fn until(&self, act: u32) {
        while self.act.get() < act {
            sleep(LOOK).await;
        }
    }

    fn ends(&self, act: u32) {
        assert_eq!(self.act.replace(act), act - 1, "one act after the other");
    }

    /// A loglet on all log servers, with its sequencer on this machine.
    fn loglet(&self, loglet: Uid, sequencer: u8) -> Bytes {
        let servers = self.servers.borrow().clone();
        let sequencer = address(sequencer);
        Config {
            loglet,
            sequencer,
            servers,
        }
        .to_description()
    }

    async fn open(&self) -> VirtualLog<Stage, QuorumLoglets> {
        let transport = Transport::client();
        let loglets = QuorumLoglets { transport };
        let log = VirtualLog::open(self.clone(), loglets, self.loglet(A, 1)).await;
        log.expect("the map can be read")
    }

    /// A log server, and a host of sequencers.
    async fn keep(self, machine: u8) {
        let directory = Path::new("/data/quorum");
        disk::create_dir_all(directory).await.expect("a directory");
        disk::sync_dir(Path::new("/data")).await.expect("its name");
        let transport = Transport::listen(address(machine)).await;
        let transport = transport.expect("it listens");
        let _host = SequencerHost::new(&transport);
        let server = LogServer::open(&transport, directory)
            .await
            .expect("it opens");
        while self.servers.borrow().len() + 1 < machine.into() {
            sleep(LOOK).await;
        }
        self.servers.borrow_mut().push(server.interface());
        server.failed().await;
    }

    async fn append(&self, log: &VirtualLog<Stage, QuorumLoglets>, entry: &'static str) {
        trace!("ReplicaAppends", "entry" => entry);
        let pos: LogPos = loop {
            // Nobody knows what became of it if a sequencer has just died. Here nothing did.
            match log.append(entry.into()).await {
                Ok(pos) => break pos,
                Err(_) => sleep(LOOK).await,
            }
        };
        trace!("ReplicaAppended", "entry" => entry, "position" => pos);
    }

    async fn write(self) {
        let log = self.open().await;
        for entry in ["one", "two"] {
            self.append(&log, entry).await;
        }
        self.ends(1);
        self.until(2).await;
        self.append(&log, "three").await;
        self.ends(3);
        self.until(5).await;
        self.append(&log, "four").await;
        self.ends(6);
        std::future::pending().await
    }

    async fn take_over(self) {
        let log = self.open().await;
        self.until(4).await;
        let replaced = log.replace(&self.loglet(A, 1), self.loglet(B, 2)).await;
        assert_eq!(replaced, Ok(true), "nobody else is there");
        self.ends(5);
        self.until(6).await;
        let mut next = 1;
        while next <= 4 {
            let read = log.read_next(next, 1).await.expect("it can be read");
            for (pos, entry) in read {
                let entry = String::from_utf8_lossy(&entry).into_owned();
                trace!("ReplicaRead", "entry" => entry, "position" => pos);
                next = pos + 1;
            }
        }
        self.ends(7);
        std::future::pending().await
    }
}

async fn story() {
    let stage = Stage::default();
    let mut machines = Vec::new();
    for machine in 1..=3 {
        let stage = stage.clone();
        machines.push(start(machine, move || {
            Box::pin(stage.clone().keep(machine))
        }));
    }
    while stage.servers.borrow().len() < 3 {
        sleep(LOOK).await;
    }
    let of = stage.clone();
    start(4, move || Box::pin(of.clone().write()));
    let of = stage.clone();
    start(5, move || Box::pin(of.clone().take_over()));
    stage.until(1).await;
    // Until all log servers have both.
    sleep(Duration::from_secs(2)).await;
    trace!("StoryBegins");
    trace!("OperatorCutsOff", "machine" => "m3", "from" => "m1");
    control().partition(machines[0], machines[2], true);
    stage.ends(2);
    stage.until(3).await;
    trace!("OperatorKills", "machine" => "m1");
    let processes = control().processes();
    let first = processes.iter().find(|p| p.address == address(1));
    control().kill_process(first.expect("it was started").id, KillKind::Kill);
    sleep(Duration::from_secs(1)).await;
    stage.ends(4);
    stage.until(7).await;
}

fn in_words(event: &Event) -> Option<String> {
    let text = |field: &str| event.text(field);
    let loglet = match text("loglet") {
        id if id == A.to_string() => "a",
        id if id == B.to_string() => "b",
        _ => "",
    };
    Some(match event.kind().as_str() {
        "OperatorCutsOff" => format!("{} from {}", text("machine"), text("from")),
        "OperatorKills" => text("machine"),
        "ReplicaAppends" => text("entry"),
        "ReplicaAppended" | "ReplicaRead" => {
            format!("{} at position {}", text("entry"), text("position"))
        }
        "DelosLogletReplaced" => format!("which begins at position {}", text("first")),
        "QuorumSeals" => format!("loglet {loglet} by ballot {}", text("ballot")),
        "QuorumServerSealed" => format!("loglet {loglet}, with all below {}", text("next")),
        "QuorumEndProposed" => format!("of loglet {loglet}: {}", text("end")),
        "QuorumEntriesFilled" => {
            let (from, next) = (text("from"), text("next"));
            format!("loglet {loglet}, from {from}: it has all below {next}")
        }
        "QuorumEndAccepted" | "QuorumEndKnown" => format!("of loglet {loglet}: {}", text("end")),
        "QuorumSealed" => format!("loglet {loglet} ends at {}", text("end")),
        "DelosLogletAdded" => format!("which begins at position {}", text("first")),
        "DelosMapRead" => format!("{} parts, the last from {}", text("parts"), text("first")),
        "QuorumVoteGiven" | "QuorumSequencerElected" => format!("of loglet {loglet}"),
        _ => return None,
    })
}

#[test]
fn a_log_goes_on_in_another_loglet_with_all_that_was_answered() {
    let told = |seed| {
        let config = SimConfig {
            trace_lines_max: TRACE_LINES,
            ..SimConfig::default()
        };
        let simulation = Simulation::new(seed, config);
        simulation
            .run_until(story(), LIMIT)
            .expect("the story ends");
        tell(&simulation.trace_tail(), PLACES, in_words)
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/loglets.txt");
    check(&path, COMMAND, &SEEDS, told);
}
