//! Real processes of one host, with a coordinator, and leases of half a second. Processes are killed, and others take
//! their part at once. A process is this program again, which runs only the test `other_process`.

use plinth_coordination::{ClusterFile, Family, coordinator};
use plinth_core::Uid;
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, Shared, attach};
use plinth_farm_member::{
    Cluster, CoordinatedRegister, Member, Options, Record, Register, TAG, create,
};
use plinth_rpc::Transport;
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, TaskGroup, disk, host_clock_origin, now, sleep, spawn};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

const DIRECTORY: &str = "PLINTH_MEMBER_TEST_DIRECTORY";
const WORK: &str = "PLINTH_MEMBER_TEST_WORK";
const MACHINES: u16 = 3;

/// Words of a region in which a process notes how it is.
const NUMBER: usize = 0;
const IS_COMMITTED: usize = 1;
const IS_MASTER: usize = 2;
const TIMESTAMPS: usize = 3;
/// The longest time between two timestamps, in nanoseconds. Another process sets it to zero.
const GAP: usize = 4;
const UNCERTAINTY: usize = 5;

fn layout() -> Layout {
    Layout {
        machines: usize::from(MACHINES),
        ring_words: 4000,
        region_words: vec![64],
    }
}

struct Scratch(PathBuf);

impl Scratch {
    async fn make(name: &str) -> Scratch {
        let memory = Path::new("/dev/shm");
        let base = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let path = base.join(format!("plinth-members-{}-{name}", std::process::id()));
        disk::create_dir_all(&path).await.expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    #[allow(clippy::disallowed_methods)] // a test removes what it has made
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Another process, killed when it is dropped.
struct Other(Child);

impl Other {
    fn start(directory: &Path, machine: u16, coordinator: SocketAddr) -> Other {
        let program = std::env::current_exe().expect("its own path");
        let mut command = Command::new(program);
        command.args(["--exact", "other_process", "--nocapture"]);
        command
            .env(DIRECTORY, directory)
            .env(WORK, format!("{machine} {coordinator}"));
        Other(command.spawn().expect("a process"))
    }

    fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it has ended");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn file(coordinator: SocketAddr) -> ClusterFile {
    ClusterFile::new("farm", "a1", vec![coordinator.into()])
}

// ---- what the other process does ----

#[test]
fn other_process() {
    let (Ok(directory), Ok(work)) = (std::env::var(DIRECTORY), std::env::var(WORK)) else {
        return; // an ordinary run of the tests
    };
    let (machine, coordinator) = work.split_once(' ').expect("two words");
    let machine = machine.parse().expect("a number");
    let coordinator = coordinator.parse().expect("an address");
    block_on(live(Path::new(&directory), machine, coordinator));
}

type One = Rc<Member<Shared, CoordinatedRegister>>;

async fn live(directory: &Path, machine: u16, coordinator: SocketAddr) {
    let register = CoordinatedRegister::new(&Transport::client(), &file(coordinator).into());
    let cluster = Cluster {
        first_machines: MACHINES,
        ..Cluster::new(Uid(7), MACHINES, 6, 2)
    };
    let record = create(&register, cluster).await.expect("a cluster");
    let local = Local::start(directory, Machine(machine), &layout()).await;
    let fabric = Rc::new(Shared::new(local.expect("a memory")));
    let options = Options {
        slots: 10,
        disk: None,
        socket: None,
        zone: machine.to_string(),
        meet: Box::new(|_| ()),
        closing: None,
        may_renumber: false,
    };
    let member = Member::start(fabric.clone(), register, record, options).await;
    let member = Rc::new(member.expect("a member"));
    let group = TaskGroup::new();
    group.spawn("receive", receive(fabric.clone(), member.clone()));
    group.spawn("note", note(fabric.clone(), member.clone()));
    group.spawn("client", use_clock(fabric, member.clone()));
    member.left().wait_until(Option::is_some).await;
    panic!("{machine}: {}", member.left().get().expect("why"));
}

async fn receive(fabric: Rc<Shared>, member: One) {
    loop {
        while let Some(message) = fabric.receive() {
            assert_eq!(message.body.first(), Some(&TAG));
            member.receive(message.from, message.body.clone());
            fabric.release(&message);
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Notes what it sees. All its replicas are whole at once.
async fn note(fabric: Rc<Shared>, member: One) {
    let words = fabric.local().host().region(0).expect("a region").words();
    let own = fabric.local().machine().0;
    loop {
        let view = member.view().get();
        if let Some(view) = view {
            words[NUMBER].store(view.number(), Release);
            words[IS_COMMITTED].store(view.is_committed.into(), Release);
            words[IS_MASTER].store(member.is_master().into(), Release);
            let regions = view.record.regions.iter().zip(0u16..);
            let mine = regions.filter(|(r, _)| r.iter().any(|r| r.machine == own));
            let mine: Vec<u16> = mine.map(|(_, region)| region).collect();
            member.report_whole(view.number(), &mine);
        }
        sleep(Duration::from_millis(1)).await;
    }
}

async fn use_clock(fabric: Rc<Shared>, member: One) {
    let words = fabric.local().host().region(0).expect("a region").words();
    let mut last = now();
    let mut highest = 0;
    loop {
        let timestamp = member.clock().timestamp().await.expect("a clock");
        assert!(timestamp > highest, "{timestamp} comes after {highest}");
        highest = timestamp;
        let gap = last.elapsed().as_nanos() as u64;
        last = now();
        words[GAP].fetch_max(gap, Release);
        words[TIMESTAMPS].fetch_add(1, Release);
        let interval = member.clock().update(|server, now| server.time(now));
        if let Ok(interval) = interval {
            words[UNCERTAINTY].store(interval.uncertainty(), Release);
        }
        sleep(Duration::from_millis(1)).await;
    }
}

// ---- what this process judges ----

struct Notes(Vec<plinth_farm_fabric::Host>);

impl Notes {
    async fn attach(directory: &Path) -> Notes {
        let mut hosts = Vec::new();
        for machine in 0..MACHINES {
            hosts.push(loop {
                match attach(directory, Machine(machine)).await {
                    Ok(host) => break host,
                    Err(_) => sleep(Duration::from_millis(1)).await,
                }
            });
        }
        Notes(hosts)
    }

    fn word(&self, machine: u16, which: usize) -> &AtomicU64 {
        let region = self.0[usize::from(machine)].region(0);
        &region.expect("a region").words()[which]
    }

    fn get(&self, machine: u16, which: usize) -> u64 {
        self.word(machine, which).load(Acquire)
    }

    /// These have committed a configuration above `number`, and give out timestamps.
    async fn wait(&self, machines: &[u16], number: u64) {
        let counts: Vec<u64> = machines.iter().map(|m| self.get(*m, TIMESTAMPS)).collect();
        for (machine, count) in machines.iter().zip(counts) {
            let is_there = || {
                self.get(*machine, NUMBER) > number
                    && self.get(*machine, IS_COMMITTED) == 1
                    && self.get(*machine, TIMESTAMPS) > count + 3
            };
            while !is_there() {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn reset(&self) {
        (0..MACHINES).for_each(|machine| self.word(machine, GAP).store(0, Release));
    }

    fn gap(&self, machines: &[u16]) -> Duration {
        let gaps = machines.iter().map(|m| self.get(*m, GAP));
        Duration::from_nanos(gaps.max().unwrap_or(0))
    }
}

async fn record(coordinator: SocketAddr) -> Record {
    let register = CoordinatedRegister::new(&Transport::client(), &file(coordinator).into());
    register.read().await.expect("read").expect("a record")
}

async fn all_whole(coordinator: SocketAddr) {
    loop {
        let record = record(coordinator).await;
        let is_whole = |r: &Vec<plinth_farm_member::Replica>| {
            r.len() == 2 && r.iter().all(|replica| replica.is_whole)
        };
        if record.regions.iter().all(is_whole) && record.machines.len() >= 2 {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Kills the master or another, and starts it again. How long it took until a configuration without it was committed,
/// and the longest pause between timestamps.
async fn kill_one(
    others: &mut [Other],
    notes: &Notes,
    start: impl Fn(u16) -> Other,
    is_master: bool,
) -> (Duration, Duration) {
    let is_victim = |machine: &u16| (notes.get(*machine, IS_MASTER) == 1) == is_master;
    let victim = (0..MACHINES).find(is_victim).expect("one of them");
    let rest: Vec<u16> = (0..MACHINES).filter(|m| *m != victim).collect();
    let number = rest
        .iter()
        .map(|m| notes.get(*m, NUMBER))
        .max()
        .expect("two");
    notes.reset();
    let killed = now();
    others[usize::from(victim)].kill();
    notes.wait(&rest, number).await;
    let times = (killed.elapsed(), notes.gap(&rest));
    let number = rest
        .iter()
        .map(|m| notes.get(*m, NUMBER))
        .max()
        .expect("two");
    others[usize::from(victim)] = start(victim);
    let all: Vec<u16> = (0..MACHINES).collect();
    notes.wait(&all, number).await;
    times
}

#[test]
fn the_place_of_a_killed_process_is_taken_long_before_its_lease_ends() {
    block_on(async {
        let scratch = Scratch::make("killed").await;
        let transport = Transport::listen(([127, 0, 0, 1], 0).into()).await;
        let transport = transport.expect("it listens");
        let address = transport.address().expect("an address");
        let data = scratch.0.join("coordinator");
        disk::create_dir_all(&data).await.expect("a directory");
        let key = file(address).key();
        let cluster = (Family::Farm, &key[..]);
        let coordinator = coordinator::start(&transport, &data, cluster, false).await;
        let _life = spawn("coordinator", coordinator.expect("it starts").life);

        let start = |machine| Other::start(&scratch.0, machine, address);
        let mut others: Vec<Other> = (0..MACHINES).map(start).collect();
        let notes = Notes::attach(&scratch.0).await;
        let all: Vec<u16> = (0..MACHINES).collect();
        notes.wait(&all, 0).await;
        for is_master in [true, false, true, false] {
            all_whole(address).await;
            sleep(Duration::from_millis(100)).await;
            let uncertainty = all.iter().map(|m| notes.get(*m, UNCERTAINTY)).max();
            let (committed, gap) = kill_one(&mut others, &notes, start, is_master).await;
            println!(
                "master killed: {is_master}; committed and used after {committed:?}; \
                 longest pause {gap:?}; uncertainty before {uncertainty:?} ns"
            );
            // A lease is half a second.
            assert!(committed < Duration::from_millis(400), "{committed:?}");
            if host_clock_origin().is_some() {
                assert!(uncertainty.is_some_and(|ns| ns < 20_000), "{uncertainty:?}");
            }
        }
    });
}
