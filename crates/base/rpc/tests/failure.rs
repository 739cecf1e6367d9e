//! How soon the failure of a process is detected, in the simulator: stopped, cut off, or only slow.

use bytes::Bytes;
use plinth_core::{Uid, record};
use plinth_rpc::knobs::{BUSY_PEER_MS, FAILURE_DETECTION_MS};
use plinth_rpc::{FailureBeacon, Interface, Transport, wait_failure};
use plinth_runtime::sim::{KillKind, Locality, MachineId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, now, sleep};
use std::net::SocketAddr;

const ROLE: Uid = Uid(7);

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

/// A world with one process that has a role.
fn world(seed: u64) -> (Simulation, MachineId, plinth_runtime::sim::ProcessId) {
    let simulation = Simulation::new(seed, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let process = simulation.start_process(machine, address(), || {
        Box::pin(async {
            let transport = Transport::listen(address()).await.expect("listens");
            let _beacon = FailureBeacon::new(&transport, ROLE);
            std::future::pending::<()>().await;
        })
    });
    (simulation, machine, process)
}

/// Time from `breaks` until the role counts as gone; `None` if it does not within ten seconds.
async fn missed_after(transport: &Transport, breaks: impl FnOnce()) -> Option<Duration> {
    let role = Interface::new(address(), ROLE);
    let watched = transport.clone();
    let watching = plinth_runtime::spawn("watch", async move {
        wait_failure(&watched, role).await;
    });
    sleep(Duration::from_secs(2)).await;
    breaks();
    let broken = now();
    plinth_runtime::timeout(Duration::from_secs(10), watching).await?;
    Some(broken.elapsed())
}

fn run<T: 'static>(simulation: &Simulation, work: impl Future<Output = T> + 'static) -> T {
    let ended = simulation.run_until(work, Duration::from_secs(60));
    ended.expect("it comes to its end")
}

/// Limit of silence, plus the ping that detects it and the latency of the network.
fn soon() -> Duration {
    Duration::from_millis(FAILURE_DETECTION_MS.get()) * 3 / 2
}

#[test]
fn a_process_that_is_stopped_is_missed_soon_although_its_connections_stay() {
    for seed in 1..20 {
        let (simulation, _, process) = world(seed);
        run(&simulation, async move {
            let transport = Transport::client();
            let stop = move || control().pause_process(process, Duration::from_secs(30));
            let took = missed_after(&transport, stop).await.expect("it is missed");
            assert!(took <= soon(), "seed {seed}: {took:?}");
            assert_eq!(transport.unreachable(), [address()]);
        });
    }
}

#[test]
fn a_process_that_is_cut_off_one_way_is_missed_soon_and_told_of() {
    for seed in 1..20 {
        let (simulation, machine, _) = world(seed);
        run(&simulation, async move {
            let transport = Transport::client();
            let cut = move || control().partition(machine, MachineId::TESTER, false);
            let took = missed_after(&transport, cut).await.expect("it is missed");
            assert!(took <= soon(), "seed {seed}: {took:?}");
            assert_eq!(transport.unreachable(), [address()]);
        });
    }
}

#[test]
fn a_process_that_hesitates_is_not_missed() {
    for seed in 1..20 {
        let (simulation, _, process) = world(seed);
        run(&simulation, async move {
            let transport = Transport::client();
            let short = Duration::from_millis(FAILURE_DETECTION_MS.get() / 2);
            let hesitate = move || control().pause_process(process, short);
            assert_eq!(
                missed_after(&transport, hesitate).await,
                None,
                "seed {seed}"
            );
            assert!(transport.unreachable().is_empty());
        });
    }
}

/// Longer than the limit of silence, shorter than the limit for a busy process.
fn long_turn() -> Duration {
    Duration::from_millis((FAILURE_DETECTION_MS.get() * 3).max(BUSY_PEER_MS.get() / 2))
}

#[test]
fn a_process_in_a_long_turn_is_not_missed_and_its_connection_stays() {
    for seed in 1..20 {
        let (simulation, _, process) = world(seed);
        run(&simulation, async move {
            let transport = Transport::client();
            let hold_up = move || control().busy_process(process, long_turn());
            let missed = missed_after(&transport, hold_up).await;
            assert_eq!(missed, None, "seed {seed}");
            assert!(transport.unreachable().is_empty());
        });
    }
}

#[test]
fn a_turn_without_end_is_missed_when_the_time_for_long_turns_is_over() {
    for seed in 1..20 {
        let (simulation, _, process) = world(seed);
        run(&simulation, async move {
            let transport = Transport::client();
            let hang = move || control().busy_process(process, Duration::from_secs(30));
            let took = missed_after(&transport, hang).await.expect("it is missed");
            let borne = Duration::from_millis(BUSY_PEER_MS.get());
            assert!(
                took > borne / 2 && took <= borne + soon(),
                "seed {seed}: {took:?}"
            );
        });
    }
}

#[test]
fn a_busy_process_that_is_cut_off_or_killed_is_missed_as_soon_as_one_that_is_not() {
    for seed in 1..20 {
        let (simulation, machine, process) = world(seed);
        run(&simulation, async move {
            let transport = Transport::client();
            let break_it = move || {
                control().busy_process(process, long_turn());
                control().partition(MachineId::TESTER, machine, false);
            };
            let took = missed_after(&transport, break_it).await;
            let took = took.expect("it is missed");
            assert!(took <= soon(), "seed {seed}: {took:?}");
            control().heal(machine, MachineId::TESTER);
        });
        let (simulation, _, process) = world(seed);
        run(&simulation, async move {
            let transport = Transport::client();
            let hold_up = move || {
                control().busy_process(process, long_turn());
                let killing = async move {
                    sleep(long_turn() / 2).await;
                    control().kill_process(process, KillKind::Kill);
                };
                plinth_runtime::spawn("kill", killing).detach();
            };
            let took = missed_after(&transport, hold_up).await;
            let took = took.expect("it is missed");
            assert!(took <= long_turn() / 2 + soon(), "seed {seed}: {took:?}");
        });
    }
}

record! {
    /// Asks for a reply of this many bytes.
    pub struct Large {
        pub bytes: u32,
    }
}

plinth_rpc::requests! {
    Large = 9 for Anybody => Bytes;
}

#[test]
fn a_process_that_is_sending_something_large_over_a_slow_line_is_not_missed() {
    for seed in 1..6 {
        let config = SimConfig {
            network_bytes_per_us: 4,
            ..SimConfig::default()
        };
        let simulation = Simulation::new(seed, config);
        let machine = simulation.add_machine(Locality::default());
        simulation.start_process(machine, address(), || {
            Box::pin(async {
                let transport = Transport::listen(address()).await.expect("listens");
                let _beacon = FailureBeacon::new(&transport, ROLE);
                let _serving = transport.serve::<Large>(ROLE, |large, responder| {
                    responder.ok(Bytes::from(vec![7; large.bytes as usize]));
                });
                std::future::pending::<()>().await;
            })
        });
        run(&simulation, async move {
            let transport = Transport::client();
            let role = Interface::new(address(), ROLE);
            let watched = transport.clone();
            let watching = plinth_runtime::spawn("watch", async move {
                wait_failure(&watched, role).await;
            });
            let bytes = 16 << 20;
            let reply = transport.call(&role.endpoint::<Large>(), Large { bytes });
            let reply = plinth_runtime::timeout(Duration::from_secs(30), reply).await;
            let reply = reply.expect("it comes").expect("the connection holds");
            assert_eq!(reply.len(), bytes as usize);
            assert!(!watching.is_finished(), "seed {seed}: it was missed");
        });
    }
}

#[test]
fn a_process_is_not_missed_for_a_silence_in_which_nobody_asked_it() {
    for seed in 1..100 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        simulation.start_process(machine, address(), || {
            Box::pin(async {
                let transport = Transport::listen(address()).await.expect("listens");
                let _never_answers = transport.serve_queue::<Large>(ROLE);
                std::future::pending::<()>().await;
            })
        });
        run(&simulation, async move {
            let transport = Transport::client();
            let role = Interface::new(address(), ROLE);
            let call = transport.call(&role.endpoint::<Large>(), Large { bytes: 1 });
            let waiting = plinth_runtime::spawn("call", call);
            // The watch begins at any moment between two pings, which are far apart without it.
            let before = plinth_runtime::random::range(2000..4000);
            sleep(Duration::from_millis(before)).await;
            let _watching = transport.watch(address());
            sleep(Duration::from_secs(2)).await;
            assert_eq!(transport.unreachable(), [], "seed {seed}");
            assert!(!waiting.is_finished(), "seed {seed}");
        });
    }
}
