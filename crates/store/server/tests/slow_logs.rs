//! Recoveries that want a log from a server whose disk takes nothing any more.

use crate::common::{Cluster, address, commits, some_seconds};
use plinth_client::Database;
use plinth_coordination::election;
use plinth_protocol::control::{ClusterInfo, GetClusterInfo, GetWorkers, KillRole, WORKER};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{Hang, Locality, Sickness, SimConfig, Simulation, control};
use plinth_runtime::{Duration, now, sleep, timeout};
use plinth_server::knobs::DISK_STALL_MS;

/// The disk takes nothing more.
const HANG: Sickness = Sickness {
    read_errors_ppm: 0,
    write_errors_ppm: 0,
    sync_errors_ppm: 0,
    read_only: false,
    hangs: Hang::Syncs,
    lies: &[],
    for_good: false,
};
/// From the failure to the next commit, with a spare beside.
const WITH_A_SPARE: Duration = Duration::from_millis(1500);

async fn info(cluster: &Cluster) -> ClusterInfo {
    let (transport, coordinators) = (Transport::client(), cluster.coordinators());
    let asking = election::ask_controller(&transport, &coordinators, GetClusterInfo { known: 0 });
    let info = timeout(Duration::from_secs(2), asking).await;
    info.flatten().expect("it answers")
}

/// The servers with logs of the epoch.
fn with_logs(info: &ClusterInfo) -> Vec<u8> {
    let logs = &info.log_system.current().expect("a generation").logs;
    let server = |log: &Interface| (1..=9).find(|server| address(*server) == log.address);
    logs.iter().filter_map(server).collect()
}

/// Ends the epoch, and no process.
async fn end_epoch(info: &ClusterInfo) {
    let role = info.client.commit_proxies[0];
    let worker = Interface::new(role.address, WORKER);
    let transport = Transport::client();
    let call = transport.call(&worker.endpoint::<KillRole>(), KillRole { id: role.id });
    let ended = timeout(Duration::from_secs(2), call).await;
    ended.expect("it answers").expect("it ends");
}

/// A disk takes nothing any more, which nobody has seen yet, and the epoch ends. Returns the server.
async fn hang_and_end(cluster: &Cluster, database: &Database) -> u8 {
    assert!(commits(database, "before").await);
    let before = info(cluster).await;
    // The first has the coordinator.
    let sick = with_logs(&before).into_iter().find(|server| *server != 1);
    let sick = sick.expect("two have logs");
    control().set_disk_sickness(cluster.machine(sick as usize), HANG);
    end_epoch(&before).await;
    sick
}

#[test]
fn a_log_that_a_disk_does_not_take_is_made_elsewhere_at_once() {
    for seed in 1..6 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 4);
        simulation.run(async move {
            some_seconds(5).await;
            let database = cluster.create_now("double").await;
            let sick = hang_and_end(&cluster, &database).await;
            let begun = now();
            assert!(commits(&database, "after").await);
            let took = begun.elapsed();
            assert!(
                took <= WITH_A_SPARE,
                "{} ms of seed {seed}",
                took.as_millis()
            );
            let logs = with_logs(&info(&cluster).await);
            assert!(
                logs.len() == 2 && !logs.contains(&sick),
                "{logs:?} without {sick}"
            );
        });
    }
}

/// The log servers on the disk of a server that its worker knows of.
async fn logs_of(cluster: &Cluster, server: u8) -> usize {
    let (transport, coordinators) = (Transport::client(), cluster.coordinators());
    let asking = election::ask_controller(&transport, &coordinators, GetWorkers {});
    let workers = timeout(Duration::from_secs(2), asking).await.flatten();
    let workers = workers.expect("it answers").workers;
    let its = workers
        .iter()
        .find(|worker| worker.worker.address == address(server));
    its.expect("it is there").logs.len()
}

#[test]
fn what_a_disk_takes_of_a_log_after_a_spare_has_it_is_removed() {
    for seed in 1..6 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 4);
        simulation.run(async move {
            some_seconds(5).await;
            let database = cluster.create_now("double").await;
            let sick = hang_and_end(&cluster, &database).await;
            assert!(commits(&database, "after").await);
            some_seconds(5).await;
            let machine = cluster.machine(sick as usize);
            control().set_disk_sickness(machine, Sickness::default());
            some_seconds(20).await;
            assert_eq!(logs_of(&cluster, sick).await, 0, "seed {seed}");
            let files = control().copy_of_files(machine, |path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("log-"))
            });
            let left: Vec<_> = files.paths().collect();
            assert!(left.is_empty(), "{left:?} of seed {seed}");
        });
    }
}

#[test]
fn a_recovery_without_a_spare_says_which_disk_it_waits_for_and_takes_the_next_server_that_comes() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start(&simulation, 1, 2);
    simulation.run(async move {
        some_seconds(5).await;
        let database = cluster.create_now("double").await;
        let sick = hang_and_end(&cluster, &database).await;
        let words = format!("a new log server at {}", address(sick));
        let begun = now();
        let said = cluster.status_with(&words).await;
        assert!(said.contains(&words), "{said}");
        assert!(
            begun.elapsed() <= WITH_A_SPARE,
            "{} ms",
            begun.elapsed().as_millis()
        );
        let machine = control().add_machine(Locality::default());
        cluster.serve(&control(), machine, 3);
        let begun = now();
        assert!(commits(&database, "after").await);
        assert!(
            begun.elapsed() <= WITH_A_SPARE,
            "{} ms",
            begun.elapsed().as_millis()
        );
    });
}

#[test]
fn a_disk_that_stops_at_any_moment_of_a_recovery_does_not_keep_it_from_its_end() {
    for seed in 1..31 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 4);
        simulation.run(async move {
            some_seconds(5).await;
            let database = cluster.create_now("double").await;
            assert!(commits(&database, "before").await);
            let before = info(&cluster).await;
            let sick = with_logs(&before).into_iter().find(|server| *server != 1);
            end_epoch(&before).await;
            let begun = now();
            sleep(Duration::from_millis(2 * seed)).await;
            control().set_disk_sickness(cluster.machine(sick.expect("two") as usize), HANG);
            assert!(commits(&database, "after").await);
            // Where the recovery was over, nobody knew of the disk before this.
            let known = Duration::from_millis(DISK_STALL_MS.get());
            let took = begun.elapsed();
            let is_soon = took <= WITH_A_SPARE || (known..known + WITH_A_SPARE).contains(&took);
            assert!(is_soon, "{} ms of seed {seed}", took.as_millis());
        });
    }
}

#[test]
fn a_recovery_that_waits_for_the_disks_of_coordinators_names_them() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start(&simulation, 3, 4);
    simulation.run(async move {
        some_seconds(5).await;
        let database = cluster.create_now("double").await;
        assert!(commits(&database, "before").await);
        let before = info(&cluster).await;
        for server in [2, 3] {
            control().set_disk_sickness(cluster.machine(server), HANG);
        }
        end_epoch(&before).await;
        let said = cluster.status_with("do not take part").await;
        let wanted = "coordinators that do not take part: 10.0.0.2:4500, 10.0.0.3:4500 (no answer); 2 of 3 are needed";
        assert!(said.contains(wanted), "{said}");
        for server in [2, 3] {
            control().end_disk_sickness(cluster.machine(server));
        }
        assert!(commits(&database, "after").await);
    });
}
