//! A cluster of simulated machines loses a process or a whole machine again and again, and no increment is lost.

use plinth_client::Database;
use plinth_coordination::ClusterFile;
use plinth_core::{DatabaseConfig, EngineKind, Error};
use plinth_protocol::control::ProcessClass;
use plinth_runtime::Duration;
use plinth_runtime::sim::{KillKind, Locality, SimConfig, Simulation, control};
use plinth_server::{WorkerConfig, create_database, run_worker};
use std::net::SocketAddr;

fn cluster(machines: usize) -> ClusterFile {
    let address = |i: usize| SocketAddr::from(([10, 0, 0, i as u8 + 1], 4500));
    let coordinators = (0..machines.min(3)).map(address).collect();
    ClusterFile {
        description: "test".into(),
        id: "test".into(),
        coordinators,
    }
}

fn start(sim: &Simulation, machines: usize) {
    for i in 0..machines {
        let machine = sim.add_machine(Locality::default());
        let listen = SocketAddr::from(([10, 0, 0, i as u8 + 1], 4500));
        sim.start_process(machine, listen, move || {
            let config = WorkerConfig {
                listen,
                data_directory: "/data".into(),
                cluster: cluster(machines),
                class: ProcessClass::Unset,
                machine: format!("m{i}"),
                zone: format!("z{i}"),
                data_center: String::new(),
                cache_bytes: 4 << 20,
            };
            Box::pin(async move {
                let Err(error) = run_worker(config).await;
                plinth_runtime::trace!("WorkerEnded", "error" => error);
            })
        });
    }
}

/// Adds one to a counter under a marker of its own; returns how often it is known to have succeeded.
async fn increment(database: &Database, i: u32) {
    let marker = format!("marker{i:05}").into_bytes();
    let result = database
        .run(async |tr| {
            if tr.get(marker.clone(), false).await?.is_some() {
                return Ok(());
            }
            let old = tr.get(&b"counter"[..], false).await?;
            let old = old.map_or(0, |v| {
                String::from_utf8_lossy(&v)
                    .parse::<u64>()
                    .expect("a number")
            });
            tr.set(b"counter", (old + 1).to_string());
            tr.set(&marker, b"");
            Ok(())
        })
        .await;
    result.expect("the retry loop only ends with success");
}

fn run(seed: u64, machines: usize, config: SimConfig, kills: u32) -> u64 {
    let sim = Simulation::new(seed, config);
    start(&sim, machines);
    let outcome = sim.run_until(
        async move {
            let file = cluster(machines);
            let database = plinth_client::connect(file.clone());
            let transport = plinth_rpc::Transport::client();
            let replication = machines.min(3) as u32;
            let engine = if seed % 2 == 0 {
                EngineKind::Ssd
            } else {
                EngineKind::Memory
            };
            let shape = DatabaseConfig {
                replication,
                engine,
                logs: replication,
                commit_proxies: 2,
                grv_proxies: 1,
                resolvers: 2,
            };
            match create_database(&transport, &file, shape).await {
                Ok(()) | Err(Error::invalid_option) => {}
                Err(error) => panic!("{error}"),
            }
            let attrition = plinth_runtime::spawn("attrition", async move {
                for _ in 0..kills {
                    plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::range(
                        500..6000,
                    )))
                    .await;
                    let control = control();
                    let processes = control.processes();
                    let victims: Vec<_> = processes.iter().filter(|p| p.machine.0 != 0).collect();
                    let victim =
                        victims[plinth_runtime::random::below(victims.len() as u64) as usize];
                    let after = Duration::from_millis(plinth_runtime::random::range(100..3000));
                    if plinth_runtime::random::chance(0.5) {
                        control.kill_process(victim.id, KillKind::RebootProcess { after });
                    } else {
                        control.reboot_machine(victim.machine, after);
                    }
                }
            });
            for i in 0..200 {
                increment(&database, i).await;
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(200)))
                    .await;
            }
            attrition.await;
            let counter = database
                .run(async |tr| tr.get(&b"counter"[..], false).await)
                .await
                .expect("reads");
            assert_eq!(counter.as_deref(), Some(&b"200"[..]));
        },
        Duration::from_secs(3600),
    );
    if outcome.is_none() {
        sim.trace_tail()
            .iter()
            .rev()
            .take(60)
            .rev()
            .for_each(|line| eprintln!("{line}"));
        panic!("seed {seed}: not done after an hour");
    }
    sim.fingerprint()
}

#[test]
fn a_quiet_cluster_counts() {
    run(1, 3, SimConfig::default(), 0);
    run(2, 1, SimConfig::default(), 0);
}

#[test]
fn no_increment_is_lost_when_processes_and_machines_die() {
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(3);
    let first = std::env::var("FIRST")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    for seed in first..first + seeds {
        eprintln!("seed {seed}");
        let config = if seed % 2 == 0 {
            SimConfig::default()
        } else {
            SimConfig::hostile()
        };
        run(seed, 3 + (seed % 3) as usize, config, 10);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(
        run(7, 3, SimConfig::hostile(), 3),
        run(7, 3, SimConfig::hostile(), 3)
    );
}
