//! Loglets in a simulated network, on machines that lose their power: log servers, sequencers, clients.

mod faults;
mod judge;

use crate::log::{LogError, SharedLog, Tail};
use crate::quorum::client::{QuorumLog, QuorumLoglets};
use crate::quorum::messages::{AskTail, Ballot, Config, Fill, Held, Promise, Vote};
use crate::quorum::sequencer::SequencerHost;
use crate::quorum::server::LogServer;
use crate::virtual_log::{Register, VirtualLog};
use bytes::Bytes;
use judge::Judge;
use plinth_core::{Error, Uid};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, Sickness, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, disk, join_all, now, random, sleep, timeout};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

const DIRECTORY: &str = "/data/quorum";

/// A machine with a log server and a host of sequencers.
#[derive(Clone, Copy)]
struct Node {
    machine: MachineId,
    process: ProcessId,
    address: SocketAddr,
}

#[derive(Clone)]
struct Cluster {
    nodes: Rc<Vec<Node>>,
    servers: Rc<RefCell<Vec<Option<Interface>>>>,
}

async fn serve(address: SocketAddr, tell: impl Fn(Interface)) {
    let directory = Path::new(DIRECTORY);
    disk::create_dir_all(directory).await.expect("a directory");
    for above in directory.ancestors().skip(1) {
        disk::sync_dir(above).await.expect("its name");
    }
    let transport = Transport::listen(address).await.expect("it listens");
    let _host = SequencerHost::new(&transport);
    loop {
        match LogServer::open(&transport, directory).await {
            Ok(server) => {
                tell(server.interface());
                server.failed().await;
            }
            Err(error) => {
                let is_of_the_disk = matches!(error, Error::io_error | Error::lock_file_failure);
                assert!(
                    is_of_the_disk,
                    "only its disk keeps it from starting: {error}"
                );
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

impl Cluster {
    fn new(sim: &Simulation, count: u8) -> Cluster {
        let servers = Rc::new(RefCell::new(vec![None; usize::from(count)]));
        let node = |n: u8| {
            let machine = sim.add_machine(Locality::default());
            let address: SocketAddr = ([10, 0, 1, n], 4500).into();
            let servers = servers.clone();
            let process = sim.start_process(machine, address, move || {
                let servers = servers.clone();
                Box::pin(serve(address, move |interface| {
                    let before = servers.borrow_mut()[usize::from(n)].replace(interface);
                    assert!(before.is_none_or(|before| before == interface));
                }))
            });
            Node {
                machine,
                process,
                address,
            }
        };
        let nodes = Rc::new((0..count).map(node).collect());
        Cluster { nodes, servers }
    }

    /// A configuration of a loglet on all log servers, with its sequencer at this node.
    async fn config(&self, loglet: u128, sequencer: usize) -> Config {
        while self.servers.borrow().iter().any(Option::is_none) {
            sleep(Duration::from_millis(10)).await;
        }
        let servers = self.servers.borrow();
        Config {
            loglet: Uid(loglet),
            sequencer: self.nodes[sequencer].address,
            servers: servers.iter().flatten().copied().collect(),
        }
    }

    fn kill(&self, node: usize) {
        control().kill_process(self.nodes[node].process, KillKind::Kill);
    }

    fn restart(&self, node: usize) {
        control().restart_process(self.nodes[node].process);
    }
}

fn run<T: 'static, W: Future<Output = T> + 'static>(
    seed: u64,
    servers: u8,
    work: impl FnOnce(Cluster) -> W + 'static,
) -> T {
    let sim = Simulation::new(seed, SimConfig::default());
    let cluster = Cluster::new(&sim, servers);
    sim.run(async move { work(cluster).await }).result
}

fn log(config: &Config) -> Rc<QuorumLog> {
    let log = QuorumLog::new(&Transport::client(), config.clone());
    Rc::new(log.expect("a sound configuration"))
}

fn entry(number: u64) -> Bytes {
    Bytes::from(format!("entry {number}"))
}

async fn append_some(log: &QuorumLog, numbers: std::ops::Range<u64>) -> Vec<u64> {
    let positions = join_all(numbers.map(|number| log.append(entry(number)))).await;
    let positions = positions.into_iter();
    positions.map(|pos| pos.expect("it is appended")).collect()
}

/// Waits until this log server has the first `count` entries: a majority is enough for an append.
async fn until_it_has(config: &Config, server: usize, count: u64) {
    let loglet = config.loglet;
    loop {
        let tail = log_peers(config).call(server, AskTail { loglet }).await;
        if tail.is_ok_and(|held| held.next.0 > count) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn read_all(log: &QuorumLog, from: u64) -> Vec<Bytes> {
    let (mut next, mut all) = (from, Vec::new());
    loop {
        let read = log.read_next(next, 100).await.expect("it is read");
        if read.is_empty() {
            return all;
        }
        for (pos, entry) in read {
            assert_eq!(pos, next);
            all.push(entry);
            next += 1;
        }
    }
}

fn tail(next: u64, is_sealed: bool) -> Result<Tail, LogError> {
    Ok(Tail { next, is_sealed })
}

#[test]
fn entries_get_positions_in_order_and_every_client_reads_them() {
    run(1, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let (one, two) = (log(&config), log(&config));
        assert_eq!(two.check_tail().await, tail(1, false));
        assert_eq!(append_some(&one, 0..10).await, (1..11).collect::<Vec<_>>());
        assert_eq!(two.check_tail().await, tail(11, false));
        assert_eq!(
            append_some(&two, 10..20).await,
            (11..21).collect::<Vec<_>>()
        );
        let all: Vec<_> = (0..20).map(entry).collect();
        assert_eq!(read_all(&one, 1).await, all);
        assert_eq!(read_all(&two, 6).await, all[5..]);
        assert_eq!(one.read_next(21, 100).await, Ok(Vec::new()));
    });
}

#[test]
fn appends_go_on_without_a_minority_which_catches_up_later() {
    run(2, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        append_some(&log, 0..5).await;
        cluster.kill(2);
        append_some(&log, 5..50).await;
        assert_eq!(log.check_tail().await, tail(51, false));
        cluster.restart(2);
        let behind = Peer(log_peers(&config), 2);
        while behind.tail().await.is_none_or(|held| held.next.0 < 51) {
            sleep(Duration::from_millis(10)).await;
        }
        cluster.kill(1);
        append_some(&log, 50..60).await;
        assert_eq!(
            read_all(&log, 1).await,
            (0..60).map(entry).collect::<Vec<_>>()
        );
    });
}

/// One log server, asked directly.
struct Peer(crate::quorum::peers::Peers, usize);

fn log_peers(config: &Config) -> crate::quorum::peers::Peers {
    crate::quorum::peers::Peers::new(&Transport::client(), Rc::new(config.clone()))
}

impl Peer {
    async fn tail(&self) -> Option<Held> {
        let loglet = self.0.config.loglet;
        self.0.call(self.1, AskTail { loglet }).await.ok()
    }
}

#[test]
fn a_server_that_is_far_behind_gets_the_entries_from_another_one() {
    run(3, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        append_some(&log, 0..3).await;
        cluster.kill(2);
        let long = Bytes::from(vec![7; 1 << 20]);
        for _ in 0..40 {
            log.append(long.clone()).await.expect("it is appended");
        }
        log.prefix_trim(3).await.expect("it is trimmed");
        cluster.restart(2);
        let behind = Peer(log_peers(&config), 2);
        let caught_up = async {
            while behind.tail().await.is_none_or(|held| held.next.0 < 44) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let within = timeout(Duration::from_secs(20), caught_up).await;
        assert!(within.is_some(), "it has {:?}", behind.tail().await);
        cluster.kill(0);
        cluster.kill(1);
        let read = behind.0.read(2, 40, 44).await.expect("it answers");
        assert_eq!(read.entries.0, vec![long; read.entries.0.len()]);
    });
}

#[test]
fn a_sealed_loglet_takes_nothing_and_its_end_does_not_move() {
    run(4, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let (one, two) = (log(&config), log(&config));
        append_some(&one, 0..5).await;
        assert_eq!(two.seal().await, tail(6, true));
        assert_eq!(one.append(entry(9)).await, Err(LogError::Sealed));
        assert_eq!(one.seal().await, tail(6, true));
        for node in 0..3 {
            cluster.kill(node);
            assert_eq!(log(&config).check_tail().await, tail(6, true));
            cluster.restart(node);
        }
        assert_eq!(read_all(&log(&config), 1).await.len(), 5);
    });
}

#[test]
fn a_loglet_that_was_never_used_can_be_sealed() {
    run(5, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        assert_eq!(log.seal().await, tail(1, true));
        assert_eq!(
            self::log(&config).append(entry(1)).await,
            Err(LogError::Sealed)
        );
        assert_eq!(read_all(&log, 1).await, Vec::<Bytes>::new());
    });
}

#[test]
fn a_sequencer_that_comes_back_without_its_memory_appends_nothing() {
    run(6, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        append_some(&log, 0..5).await;
        cluster.kill(0);
        cluster.restart(0);
        assert_eq!(log.append(entry(9)).await, Err(LogError::Unknown));
        assert_eq!(log.check_tail().await, tail(6, false));
        assert_eq!(log.seal().await, tail(6, true));
        assert_eq!(log.append(entry(9)).await, Err(LogError::Sealed));
    });
}

#[test]
fn a_seal_that_was_begun_and_left_is_finished_by_the_next_who_asks() {
    run(7, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        append_some(&log, 0..5).await;
        let promise = Promise {
            loglet: config.loglet,
            ballot: Ballot {
                number: 1,
                proposer: Uid(1),
            },
        };
        let promised = log_peers(&config).call(1, promise).await;
        assert!(promised.expect("it answers").held.is_sealed);
        // The sequencer finds out with its next entry, and ends the loglet. The entry is in it, or not.
        let added = match log.append(entry(5)).await {
            Ok(6) => 1,
            Err(LogError::Sealed) => 0,
            other => panic!("{other:?}"),
        };
        assert_eq!(log.check_tail().await, tail(6 + added, true));
        assert_eq!(read_all(&log, 1).await.len() as u64, 5 + added);
    });
}

#[test]
fn entries_of_a_minority_are_copied_or_cut_off_and_the_decision_stays() {
    for seed in 0..20 {
        run(seed, 3, |cluster| async move {
            let config = cluster.config(7, 0).await;
            let log = log(&config);
            append_some(&log, 0..5).await;
            until_it_has(&config, 1, 5).await;
            cluster.kill(0);
            // As if the sequencer had died after it had reached one log server.
            let fill = Fill {
                loglet: config.loglet,
                first: crate::quorum::messages::Pos(6),
                entries: crate::quorum::messages::Entries(vec![entry(5), entry(6)]),
            };
            let filled = log_peers(&config).call(1, fill).await;
            assert_eq!(filled.expect("it answers").next.0, 8);
            let all: Vec<_> = (0..7).map(entry).collect();
            if random::chance(0.5) {
                // Both that are left answer, so the entries are copied.
                assert_eq!(log.check_tail().await, tail(8, false));
                assert_eq!(log.seal().await, tail(8, true));
                assert_eq!(read_all(&log, 1).await, all);
            } else {
                cluster.kill(1);
                cluster.restart(0);
                assert_eq!(log.seal().await, tail(6, true));
                cluster.kill(0);
                cluster.restart(1);
                let other = self::log(&config);
                assert_eq!(other.check_tail().await, tail(6, true));
                assert_eq!(read_all(&other, 1).await, all[..5]);
            }
        });
    }
}

#[test]
fn two_sequencers_never_both_have_a_majority_of_the_votes() {
    for seed in 0..20 {
        run(seed, 3, |cluster| async move {
            let config = cluster.config(7, 0).await;
            // Another one has got a vote.
            let vote = Vote {
                loglet: config.loglet,
                sequencer: Uid(99),
            };
            let first = random::below(3) as usize;
            let count = 1 + random::below(2) as usize;
            for server in (0..3).cycle().skip(first).take(count) {
                let voted = log_peers(&config).call(server, vote.clone()).await;
                assert_eq!(voted.expect("it votes").sequencer, Uid(99));
            }
            let appended = log(&config).append(entry(1)).await;
            let expected = match count {
                1 => Ok(1),
                _ => Err(LogError::Unknown),
            };
            assert_eq!(appended, expected);
        });
    }
}

#[test]
fn a_full_disk_at_one_server_holds_nobody_up() {
    run(8, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        let full = cluster.nodes[2].machine;
        control().set_disk_full(full, true);
        let long = Bytes::from(vec![7; 100_000]);
        for _ in 0..20 {
            log.append(long.clone()).await.expect("it is appended");
        }
        assert_eq!(log.check_tail().await, tail(21, false));
        control().set_disk_full(full, false);
        let behind = Peer(log_peers(&config), 2);
        while behind.tail().await.is_none_or(|held| held.next.0 < 21) {
            sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_server_whose_disk_failed_comes_back_with_what_it_had() {
    run(8, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        append_some(&log, 0..10).await;
        let sick = cluster.nodes[2].machine;
        let read_only = Sickness {
            read_only: true,
            ..Sickness::default()
        };
        control().set_disk_sickness(sick, read_only);
        append_some(&log, 10..20).await;
        sleep(Duration::from_secs(1)).await;
        let behind = Peer(log_peers(&config), 2);
        assert!(behind.tail().await.is_none(), "its disk has failed");
        control().end_disk_sickness(sick);
        while behind.tail().await.is_none_or(|held| held.next.0 < 21) {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(log.check_tail().await, tail(21, false));
    });
}

#[test]
fn trimmed_entries_are_gone_for_good_and_their_space_is_given_back() {
    run(9, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        let long = Bytes::from(vec![7; 100_000]);
        let files = || control().files(cluster.nodes[1].machine).len();
        for _ in 0..100 {
            log.append(long.clone()).await.expect("it is appended");
        }
        let before = files();
        log.prefix_trim(90).await.expect("it is trimmed");
        assert_eq!(log.read_next(89, 1).await, Err(LogError::Trimmed(90)));
        sleep(Duration::from_secs(1)).await;
        assert!(files() < before, "{} files of {before}", files());
        for node in 0..3 {
            cluster.kill(node);
            cluster.restart(node);
        }
        let again = self::log(&config);
        assert_eq!(again.check_tail().await, tail(101, false));
        assert_eq!(again.read_next(1, 1).await, Err(LogError::Trimmed(90)));
        assert_eq!(read_all(&again, 90).await, vec![long; 11]);
    });
}

#[test]
fn a_quiet_loglet_sends_nothing() {
    run(10, 3, |cluster| async move {
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        append_some(&log, 0..5).await;
        sleep(Duration::from_secs(5)).await;
        let events = control().events();
        sleep(Duration::from_secs(600)).await;
        let per_second = (control().events() - events) / 600;
        assert!(per_second < 20, "{per_second} events a second");
    });
}

#[test]
fn an_append_takes_one_sync_and_the_network_when_nobody_else_is_there() {
    run(11, 3, |cluster| async move {
        control().configure(|config| {
            config.network_latency_us = 50..51;
            config.disk_sync_us = 1000..1001;
            config.network_tail_probability = 0.0;
            config.disk_tail_probability = 0.0;
        });
        let config = cluster.config(7, 0).await;
        let log = log(&config);
        append_some(&log, 0..10).await;
        let mut took = Vec::new();
        for number in 0..101 {
            let begun = now();
            log.append(entry(number)).await.expect("it is appended");
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        assert!(took[50] < Duration::from_micros(1500), "{:?}", took[50]);
    });
}
