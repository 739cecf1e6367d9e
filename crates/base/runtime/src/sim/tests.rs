mod clocks;
mod lies;

use super::*;
use crate::disk::{self, OpenOptions};
use crate::sync::queue;
use crate::{
    Either, Task, TaskGroup, join_all, net, now, offload, race, sleep, spawn, timeout, yield_now,
};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

const CREATE: OpenOptions = OpenOptions {
    create: true,
    truncate: false,
    create_new: false,
    read_only: false,
    exclusive: false,
    private: false,
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn address(machine: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, machine], 4500))
}

fn simulation(seed: u64) -> Simulation {
    Simulation::new(seed, SimConfig::default())
}

/// Starts a server that echoes its input.
fn start_echo(sim: &Simulation, machine: MachineId, at: SocketAddr) -> ProcessId {
    sim.start_process(machine, at, move || {
        Box::pin(async move {
            let mut listener = net::listen(at).await.unwrap();
            let group = TaskGroup::new();
            while let Ok((mut reader, mut writer, _)) = listener.accept().await {
                group.spawn("echo", async move {
                    let mut buffer = BytesMut::new();
                    while matches!(reader.read(&mut buffer).await, Ok(n) if n > 0) {
                        if writer.write_all(buffer.split().freeze()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        })
    })
}

async fn read_exactly(reader: &mut net::Reader, len: usize) -> io::Result<BytesMut> {
    let mut buffer = BytesMut::new();
    while buffer.len() < len {
        if reader.read(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(buffer)
}

/// Calls an echo server repeatedly until `until`; counts answers and errors.
async fn chatter(server: SocketAddr, until: crate::Instant) -> (u64, u64) {
    let (mut answers, mut errors) = (0, 0);
    while now() < until {
        let Ok((mut reader, mut writer)) = net::connect(server).await else {
            errors += 1;
            continue;
        };
        while now() < until {
            let mut message = vec![0; 1 + crate::random::below(3000) as usize];
            crate::random::fill(&mut message);
            let sent = Bytes::from(message);
            let exchange = async {
                writer.write_all(sent.clone()).await?;
                read_exactly(&mut reader, sent.len()).await
            };
            match timeout(ms(500), exchange).await {
                Some(Ok(back)) if back == sent => answers += 1,
                _ => {
                    errors += 1;
                    break;
                }
            }
        }
    }
    (answers, errors)
}

/// A mixed workload with faults, which the determinism tests run twice.
fn busy_run(seed: u64) -> Outcome<(u64, u64)> {
    let sim = Simulation::new(
        seed,
        SimConfig {
            connection_cut_probability: 0.001,
            ..SimConfig::hostile()
        },
    );
    let (a, b) = (
        sim.add_machine(Locality::default()),
        sim.add_machine(Locality::default()),
    );
    let echo = start_echo(&sim, a, address(1));
    sim.start_process(b, address(2), || {
        Box::pin(async {
            let path = Path::new("/log");
            let file = disk::open(path, CREATE).await.unwrap();
            for i in 0..1000 {
                file.write_and_sync(i * 8, vec![Bytes::from(vec![i as u8; 8])])
                    .await
                    .unwrap();
                crate::trace!("Written", "i" => i);
            }
        })
    });
    sim.run(async move {
        let end = now() + Duration::from_secs(10);
        let clients: Vec<Task<(u64, u64)>> = (0..3)
            .map(|_| spawn("client", chatter(address(1), end)))
            .collect();
        let control = control();
        sleep(ms(2000)).await;
        control.kill_process(echo, KillKind::RebootProcess { after: ms(300) });
        control.partition(MachineId::TESTER, a, false);
        sleep(ms(1000)).await;
        control.heal_all();
        control.reboot_machine(b, ms(100));
        let counts = join_all(clients).await;
        counts
            .into_iter()
            .fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    })
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let fingerprints: BTreeSet<u64> = (0..4)
        .map(|seed| {
            let (first, second) = (busy_run(seed), busy_run(seed));
            assert_eq!(first, second, "seed {seed}");
            assert!(first.result.0 > 100 && first.result.1 > 0, "{first:?}");
            first.fingerprint
        })
        .collect();
    assert_eq!(fingerprints.len(), 4);
}

#[test]
fn virtual_time_jumps_and_costs_nothing() {
    let outcome = simulation(1).run(async {
        let start = now();
        sleep(Duration::from_secs(86_400)).await;
        assert_eq!(timeout(ms(10), std::future::pending::<()>()).await, None);
        start.elapsed()
    });
    assert!(outcome.result >= Duration::from_secs(86_400) + ms(10));
    assert!(outcome.events < 100);
    assert!(!crate::is_simulated());
}

#[test]
fn a_run_that_takes_too_long_ends_at_its_limit() {
    let sim = simulation(1);
    assert_eq!(
        sim.run_until(async { sleep(Duration::from_secs(10)).await }, ms(100)),
        None
    );
    assert_eq!(sim.elapsed(), ms(100));
    assert_eq!(sim.run_until(async { 5 }, ms(100)), Some(5));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_run_that_waits_for_nothing_is_a_deadlock() {
    simulation(1).run(std::future::pending::<()>());
}

#[test]
#[should_panic(expected = "livelock")]
fn a_run_in_which_no_time_passes_is_a_livelock() {
    let config = SimConfig {
        polls_per_instant_max: 1000,
        ..SimConfig::default()
    };
    Simulation::new(1, config).run(async {
        while crate::is_simulated() {
            yield_now().await;
        }
    });
}

#[test]
#[should_panic(expected = "the invariant of a task")]
fn a_panic_in_a_task_comes_out_of_the_run() {
    simulation(1).run(async {
        spawn("broken", async { panic!("the invariant of a task") }).detach();
        sleep(ms(1)).await;
    });
}

#[test]
fn tasks_are_cancelled_by_drop_joined_by_await_and_raced() {
    simulation(3).run(async {
        let (sender, mut receiver) = queue();
        let kept = sender.clone();
        let task = spawn("sleeper", async move {
            let _sender = sender;
            std::future::pending::<()>().await;
        });
        yield_now().await;
        drop(task);
        drop(kept);
        assert_eq!(receiver.recv().await, None::<()>);
        assert_eq!(spawn("answer", async { 42 }).await, 42);
        assert_eq!(offload(|| 7).await, 7);
        assert_eq!(race(sleep(ms(5)), async { 1 }).await, Either::Right(1));
        let group = TaskGroup::new();
        for i in 0..100 {
            group.spawn("short", sleep(ms(i)));
            sleep(ms(1)).await;
        }
        assert!(group.len() < 100);
        group.cancel_all();
        assert!(group.is_empty());
    });
}

#[test]
fn a_task_may_cancel_the_group_that_it_is_in() {
    simulation(3).run(async {
        let group = std::rc::Rc::new(TaskGroup::new());
        let own = std::rc::Rc::downgrade(&group);
        group.spawn("suicidal", async move {
            own.upgrade().unwrap().cancel_all();
            std::future::pending::<()>().await;
        });
        sleep(ms(1)).await;
        assert!(group.is_empty());
    });
}

#[test]
fn a_connection_carries_bytes_in_order_through_latency_and_backpressure() {
    let sim = Simulation::new(
        7,
        SimConfig {
            connection_bytes_max: 10_000,
            ..SimConfig::default()
        },
    );
    let a = sim.add_machine(Locality::default());
    start_echo(&sim, a, address(1));
    sim.run(async {
        sleep(ms(10)).await;
        let (mut reader, mut writer) = net::connect(address(1)).await.unwrap();
        let data = Bytes::from(
            (0..1_000_000u32)
                .map(|i| ((i * 31) >> 3) as u8)
                .collect::<Vec<u8>>(),
        );
        let sent = data.clone();
        let writing = spawn("write", async move {
            writer.write_all(sent).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let back = read_exactly(&mut reader, data.len()).await.unwrap();
        writing.await;
        assert!(back == data);
        let refused = net::connect(
            address(1)
                .to_string()
                .replace("4500", "4501")
                .parse()
                .unwrap(),
        )
        .await;
        assert_eq!(
            refused.err().unwrap().kind(),
            io::ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn a_partition_holds_everything_back_until_it_heals() {
    let sim = simulation(8);
    let a = sim.add_machine(Locality::default());
    start_echo(&sim, a, address(1));
    sim.run(async move {
        sleep(ms(10)).await;
        let (mut reader, mut writer) = net::connect(address(1)).await.unwrap();
        control().partition(a, MachineId::TESTER, false);
        writer.write_all(Bytes::from("hello")).await.unwrap();
        let mut buffer = BytesMut::new();
        assert_eq!(
            timeout(ms(2000), reader.read(&mut buffer))
                .await
                .map(|r| r.unwrap()),
            None
        );
        let start = now();
        assert_eq!(
            net::connect(address(1)).await.err().unwrap().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(start.elapsed() >= ms(5000));
        control().heal(a, MachineId::TESTER);
        assert_eq!(read_exactly(&mut reader, 5).await.unwrap(), "hello");
        control().clog(MachineId::TESTER, a, ms(700));
        let start = now();
        writer.write_all(Bytes::from("again")).await.unwrap();
        assert_eq!(read_exactly(&mut reader, 5).await.unwrap(), "again");
        assert!(start.elapsed() >= ms(700));
    });
}

#[test]
fn a_cut_connection_delivers_a_prefix_and_then_an_error() {
    let mut lengths = BTreeSet::new();
    for seed in 0..20 {
        let sim = simulation(seed);
        let a = sim.add_machine(Locality::default());
        start_echo(&sim, a, address(1));
        let outcome = sim.run(async move {
            sleep(ms(10)).await;
            let (mut reader, mut writer) = net::connect(address(1)).await.unwrap();
            let data = Bytes::from((0..200_000u32).map(|i| (i >> 3) as u8).collect::<Vec<u8>>());
            writer.write_all(data.clone()).await.unwrap();
            sleep(Duration::from_micros(crate::random::below(3000))).await;
            assert_eq!(control().cut_connections(a, MachineId::TESTER), 1);
            let mut got = BytesMut::new();
            let error = loop {
                match reader.read(&mut got).await {
                    Ok(n) => assert!(n > 0, "a cut is not an end"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            assert!(data.starts_with(&got));
            assert!(writer.write_all(data).await.is_err());
            got.len()
        });
        lengths.insert(outcome.result);
    }
    assert!(lengths.len() > 3, "{lengths:?}");
}

#[test]
fn a_flipped_bit_is_one_bit() {
    let sim = Simulation::new(
        9,
        SimConfig {
            bit_flip_probability: 1.0,
            chunk_split_probability: 0.0,
            ..SimConfig::default()
        },
    );
    let a = sim.add_machine(Locality::default());
    start_echo(&sim, a, address(1));
    sim.run(async {
        sleep(ms(10)).await;
        let (mut reader, mut writer) = net::connect(address(1)).await.unwrap();
        control().configure(|c| c.short_read_probability = 0.0);
        writer.write_all(Bytes::from(vec![0; 1000])).await.unwrap();
        let back = read_exactly(&mut reader, 1000).await.unwrap();
        let flipped: u32 = back.iter().map(|b| b.count_ones()).sum();
        assert!(
            flipped == 2 || flipped == 0,
            "one on each way, maybe the same: {flipped}"
        );
    });
}

#[test]
fn a_killed_process_closes_its_connections_and_comes_back() {
    for seed in 0..10 {
        let sim = simulation(seed);
        let a = sim.add_machine(Locality::default());
        let echo = start_echo(&sim, a, address(1));
        sim.run(async move {
            sleep(ms(10)).await;
            let (mut reader, _writer) = net::connect(address(1)).await.unwrap();
            control().kill_process(echo, KillKind::RebootProcess { after: ms(200) });
            assert!(!control().is_alive(echo));
            let end = timeout(ms(1000), reader.read(&mut BytesMut::new()))
                .await
                .expect("the peer hears of it");
            assert!(matches!(end, Ok(0) | Err(_)));
            sleep(ms(400)).await;
            let (mut reader, mut writer) = net::connect(address(1)).await.unwrap();
            writer.write_all(Bytes::from("hi")).await.unwrap();
            assert_eq!(read_exactly(&mut reader, 2).await.unwrap(), "hi");
            assert_eq!(control().processes()[0].starts, 2);
        });
    }
}

#[test]
fn after_a_power_cut_a_peer_learns_of_it_at_the_latest_when_the_machine_is_back() {
    for seed in 0..10 {
        let sim = simulation(seed);
        let a = sim.add_machine(Locality::default());
        start_echo(&sim, a, address(1));
        sim.run(async move {
            sleep(ms(10)).await;
            let (mut reader, mut writer) = net::connect(address(1)).await.unwrap();
            control().reboot_machine(a, ms(1000));
            let _ = writer.write_all(Bytes::from("is anybody there")).await;
            let end = timeout(ms(3000), reader.read(&mut BytesMut::new()))
                .await
                .expect("it is reset");
            assert!(end.is_err());
        });
    }
}

#[test]
fn a_paused_process_goes_on_where_it_was() {
    let sim = simulation(10);
    let a = sim.add_machine(Locality::default());
    let echo = start_echo(&sim, a, address(1));
    sim.run(async move {
        sleep(ms(10)).await;
        let (mut reader, mut writer) = net::connect(address(1)).await.unwrap();
        control().pause_process(echo, ms(3000));
        let start = now();
        writer.write_all(Bytes::from("hi")).await.unwrap();
        assert_eq!(read_exactly(&mut reader, 2).await.unwrap(), "hi");
        assert!(start.elapsed() >= ms(2900));
    });
}

#[test]
fn a_pulse_tells_a_process_that_is_busy_from_one_that_is_stopped_or_gone() {
    let sim = simulation(11);
    let a = sim.add_machine(Locality::default());
    let echo = start_echo(&sim, a, address(1));
    let asked = async || {
        let mut answer = None;
        for _ in 0..5 {
            // Some datagrams are lost.
            answer = answer.or(timeout(ms(200), net::pulse(address(1))).await);
        }
        answer
    };
    sim.run(async move {
        sleep(ms(10)).await;
        assert_eq!(asked().await, Some(Some(ms(0))));
        control().busy_process(echo, ms(2000));
        sleep(ms(500)).await;
        assert!(asked().await.flatten() >= Some(ms(500)));
        sleep(ms(2000)).await;
        assert_eq!(asked().await, Some(Some(ms(0))));
        control().partition(MachineId::TESTER, a, false);
        assert_eq!(asked().await, None);
        control().heal(MachineId::TESTER, a);
        control().partition(a, MachineId::TESTER, false);
        assert_eq!(asked().await, None);
        control().heal(MachineId::TESTER, a);
        control().pause_process(echo, ms(2000));
        assert_eq!(asked().await, None);
        control().kill_process(echo, KillKind::Kill);
        assert_eq!(asked().await, Some(None));
        control().power_cut(a);
        assert_eq!(asked().await, None);
    });
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_may_keep_lose_or_tear_the_rest() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..100 {
        let sim = simulation(seed);
        let machine = sim.add_machine(Locality::default());
        let path = Path::new("/data");
        sim.run_on(machine, async move {
            let file = disk::open(path, CREATE).await.unwrap();
            file.write_and_sync(0, vec![Bytes::from(vec![1; 10_000])])
                .await
                .unwrap();
            disk::sync_dir(Path::new("/")).await.unwrap();
            file.write_at(10_000, Bytes::from(vec![2; 10_000]))
                .await
                .unwrap();
        })
        .unwrap();
        sim.power_cut(machine);
        sim.boot(machine);
        let content = sim.run_on(machine, disk::read_file(path)).unwrap().unwrap();
        assert!(content.len() >= 10_000 && content[..10_000].iter().all(|b| *b == 1));
        match &content[10_000..] {
            rest if rest.iter().all(|b| *b == 0) => lost += 1,
            rest if rest.len() == 10_000 && rest.iter().all(|b| *b == 2) => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(
        kept > 10 && lost > 10 && torn > 3,
        "{kept} kept, {lost} lost, {torn} torn"
    );
}

#[test]
fn a_name_is_durable_after_a_sync_of_its_directory_and_maybe_before() {
    let mut lost = 0;
    for seed in 0..50 {
        let sim = simulation(seed);
        let machine = sim.add_machine(Locality::default());
        let (safe, unsafe_, dir) = (
            Path::new("/d/safe"),
            Path::new("/d/unsafe"),
            Path::new("/d"),
        );
        sim.run_on(machine, async move {
            disk::create_dir_all(dir).await.unwrap();
            disk::write_file_durably(safe, Bytes::from("old"))
                .await
                .unwrap();
            disk::write_file_durably(safe, Bytes::from("new"))
                .await
                .unwrap();
            let file = disk::open(unsafe_, CREATE).await.unwrap();
            file.write_and_sync(0, vec![Bytes::from("x")])
                .await
                .unwrap();
        })
        .unwrap();
        sim.power_cut(machine);
        sim.boot(machine);
        let (content, exists) = sim
            .run_on(machine, async move {
                (
                    disk::read_file(safe).await.unwrap(),
                    disk::exists(unsafe_).await.unwrap(),
                )
            })
            .unwrap();
        assert_eq!(content, "new");
        lost += u32::from(!exists);
    }
    assert!(lost > 5 && lost < 45, "{lost} of 50 lost");
}

#[test]
fn unsynced_writes_survive_the_death_of_their_process() {
    let sim = simulation(11);
    let machine = sim.add_machine(Locality::default());
    let path = Path::new("/data");
    sim.run_on(machine, async move {
        let file = disk::open(path, CREATE).await.unwrap();
        file.write_at(0, Bytes::from("cached")).await.unwrap();
    })
    .unwrap();
    assert_eq!(
        sim.run_on(machine, disk::read_file(path)).unwrap().unwrap(),
        "cached"
    );
}

/// Holds a blocking file and writes to it when dropped, as an engine does at an orderly close.
struct WritesOnDrop(disk::BlockingFile);

impl Drop for WritesOnDrop {
    fn drop(&mut self) {
        let _ = self.0.write_all_at(0, b"closed in order");
    }
}

#[test]
fn destructors_of_a_killed_process_write_nothing() {
    let sim = simulation(12);
    let machine = sim.add_machine(Locality::default());
    let path = Path::new("/data");
    let process = sim.start_process(machine, address(1), move || {
        Box::pin(async move {
            let lock = disk::lock_dir(Path::new("/")).await.unwrap();
            let file = disk::open(path, CREATE).await.unwrap();
            let guard = WritesOnDrop(file.blocking());
            guard.0.write_all_at(0, b"crashed").unwrap();
            std::future::pending::<()>().await;
            drop((guard, lock));
        })
    });
    sim.run(async { sleep(ms(100)).await });
    let locked = sim.run_on(machine, disk::lock_dir(Path::new("/"))).unwrap();
    assert_eq!(locked.err().unwrap().kind(), io::ErrorKind::WouldBlock);
    sim.kill_process(process, KillKind::Kill);
    assert_eq!(
        sim.run_on(machine, disk::read_file(path)).unwrap().unwrap(),
        "crashed"
    );
    assert!(
        sim.run_on(machine, disk::lock_dir(Path::new("/")))
            .unwrap()
            .is_ok()
    );
}

#[test]
fn a_full_disk_refuses_new_space_and_allows_overwriting() {
    let sim = simulation(13);
    let machine = sim.add_machine(Locality::default());
    sim.run_on(machine, async move {
        let file = disk::open(Path::new("/data"), CREATE).await.unwrap();
        file.allocate(100_000).await.unwrap();
        control().set_disk_full(machine, true);
        file.write_at(50_000, Bytes::from("fits")).await.unwrap();
        let error = file
            .write_at(100_000, Bytes::from("does not"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        control().set_disk_full(machine, false);
        file.write_at(100_000, Bytes::from("does now"))
            .await
            .unwrap();
        control().set_disk_sickness(machine, Sickness::errors(1.0));
        assert!(file.sync().await.is_err());
        control().set_disk_sickness(machine, Sickness::errors(0.0));
        assert!(control().flip_bit_in_file(machine, Path::new("/data"), 50_000..50_001));
        let flipped = file.read_at(50_000, 4).await.unwrap();
        assert!(flipped != "fits" && &flipped[1..] == b"its");
    })
    .unwrap();
}

#[test]
fn a_sick_disk_fails_hangs_and_refuses_writes_until_it_is_healed() {
    let sim = simulation(14);
    let machine = sim.add_machine(Locality::default());
    sim.run_on(machine, async move {
        let directory = Path::new("/data");
        disk::create_dir_all(directory).await.unwrap();
        let file = disk::open(&directory.join("file"), CREATE).await.unwrap();
        let health = disk::health(directory);
        let limit = Duration::from_secs(2);
        let be = |sickness| control().set_disk_sickness(machine, sickness);

        be(Sickness {
            read_only: true,
            ..Sickness::default()
        });
        let refused = file.write_at(0, Bytes::from("x")).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
        let refused = disk::open(&directory.join("file"), CREATE).await;
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ReadOnlyFilesystem
        );
        assert!(file.read_at(0, 1).await.is_ok());
        assert_eq!(health.failures(), 2);

        be(Sickness {
            hangs: Hang::Syncs,
            ..Sickness::default()
        });
        file.write_at(0, Bytes::from("x")).await.unwrap();
        let hanging = file.clone();
        let syncing = spawn("sync", async move { hanging.sync().await });
        sleep(limit).await;
        assert!(!syncing.is_finished());
        assert!(matches!(
            health.trouble(limit - Duration::from_millis(100), 2),
            Some(disk::Trouble::Hangs("sync"))
        ));

        be(Sickness {
            hangs: Hang::Everything,
            ..Sickness::default()
        });
        assert!(timeout(limit, file.read_at(0, 1)).await.is_none());
        assert!(timeout(limit, file.offload(false, || ())).await.is_none());
        control().heal_all();
        assert!(syncing.await.is_ok());
        assert_eq!(health.trouble(limit, 2), None);

        be(Sickness {
            for_good: true,
            ..Sickness::errors(1.0)
        });
        control().heal_all();
        assert!(disk::remove(&directory.join("file")).await.is_err());
        for name in ["file", "never made"] {
            let looked = disk::exists(&directory.join(name)).await;
            assert!(looked.is_err(), "it does not know whether there is {name}");
        }
    })
    .unwrap();
}

#[test]
fn buggify_sites_differ_between_runs_and_knobs_turn_extreme() {
    let mut fired = 0;
    let mut changed = 0;
    let mut usual = Knobs::default();
    EXPENSIVE_CHECKS.put(&mut usual, 1);
    for seed in 0..40 {
        let config = SimConfig {
            knob_randomise_probability: 1.0,
            ..SimConfig::hostile()
        };
        let sim = Simulation::new(seed, config);
        let (fires, knobs) = sim
            .run(async { ((0..100).any(|_| crate::buggify!()), knobs::knobs()) })
            .result;
        fired += u32::from(fires);
        changed += u32::from(*knobs != usual);
    }
    assert!(fired > 2 && fired < 25, "{fired} of 40");
    assert!(changed > 20, "{changed} of 40");
    assert_eq!(*knobs::knobs(), Knobs::default(), "outside it is as before");
    assert!(!crate::buggify!(1.0));
}

#[test]
fn probes_are_listed_before_they_are_hit_and_counted_after() {
    crate::probe::reset();
    assert!(crate::probe::all().contains(&"rare_path_of_this_test"));
    assert!(crate::probe::hits().is_empty());
    for _ in 0..3 {
        crate::probe!("rare_path_of_this_test");
    }
    assert_eq!(crate::probe::hits()["rare_path_of_this_test"], 3);
}

#[test]
fn trace_events_are_kept_in_order_and_bounded() {
    let sim = Simulation::new(
        1,
        SimConfig {
            trace_lines_max: 2,
            ..SimConfig::default()
        },
    );
    sim.run(async {
        for i in 0..5 {
            crate::trace!("Step", "i" => i);
        }
    });
    let tail = sim.trace_tail();
    assert_eq!(tail.len(), 2);
    assert!(tail[1].ends_with("\"type\":\"Step\",\"i\":4}"), "{tail:?}");
}
