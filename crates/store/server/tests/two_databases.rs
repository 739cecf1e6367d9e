//! Servers over files of two databases of one cluster: disks were not mounted, a database was made anew over empty
//! directories, and then the former disks came back.

use crate::common::{Cluster, address, commits, move_to, reads, some_seconds};
use plinth_client::Database;
use plinth_runtime::Duration;
use plinth_runtime::sim::{SimConfig, Simulation, control};
use plinth_server::NotCreated;
use std::path::PathBuf;

const SEEDS: std::ops::Range<u64> = 1..4;

/// Files of log servers and of storage servers.
fn data(cluster: &Cluster, server: usize) -> Vec<PathBuf> {
    let mut files = control().files(cluster.machine(server));
    files.retain(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| name.starts_with("log-") || name.starts_with("storage-"))
    });
    files
}

/// Starts it over an empty directory.
fn start_empty(cluster: &Cluster, server: usize) {
    let machine = cluster.machine(server);
    for file in control().files(machine) {
        assert!(control().lose_file(machine, &file), "{}", file.display());
    }
    cluster.restart(server);
}

/// Creates a database although the first coordinator, which may hold one, does not answer.
async fn create_without_the_first(cluster: &Cluster) -> Database {
    let said = cluster.status_with("10.0.0.1:4500 cannot be reached").await;
    assert!(said.contains("waiting_for_coordinators"), "{said}");
    let Some(Err(NotCreated::Because(line))) = cluster.create("double").await else {
        panic!("a new database takes the place of one that is perhaps there");
    };
    assert!(
        line.starts_with("10.0.0.1:4500 cannot be reached"),
        "{line}"
    );
    assert_eq!(cluster.create_as("double", true).await, Some(Ok(())));
    plinth_client::connect(cluster.coordinators())
}

/// Leaves a former database on the first server and a new one on the others. None of them runs.
async fn two_databases(cluster: &Cluster) -> Database {
    let database = cluster.create_now("triple").await;
    assert!(commits(&database, "former").await);
    some_seconds(10).await;
    (1..=3).for_each(|server| cluster.kill(server));
    (2..=3).for_each(|server| start_empty(cluster, server));
    let database = create_without_the_first(cluster).await;
    assert!(commits(&database, "new").await);
    some_seconds(10).await;
    (2..=3).for_each(|server| cluster.kill(server));
    database
}

/// The former database ends in one of the first epochs, or, with `kills`, in a later one.
fn a_former_disk_comes_back(kills: usize) {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 3);
        simulation.run(async move {
            let database = cluster.create_now("triple").await;
            assert!(commits(&database, "former").await);
            for server in (1..=3).cycle().take(kills) {
                cluster.kill(server);
                cluster.restart(server);
                some_seconds(8).await;
                assert!(commits(&database, "former").await);
            }
            some_seconds(10).await;
            (1..=3).for_each(|server| cluster.kill(server));
            let kept = data(&cluster, 1);
            assert!(kept.len() >= 2, "{kept:?}");
            (2..=3).for_each(|server| start_empty(&cluster, server));

            let database = create_without_the_first(&cluster).await;
            assert!(commits(&database, "new").await);
            cluster.restart(1);
            some_seconds(20).await;
            assert!(commits(&database, "newest").await, "seed {seed}");
            // A recovery reads all coordinators again.
            cluster.kill(2);
            cluster.restart(2);
            some_seconds(20).await;
            assert_eq!(
                reads(&database).await.as_deref(),
                Some("newest"),
                "seed {seed}"
            );
            let left = data(&cluster, 1);
            for file in &kept {
                assert!(
                    left.contains(file),
                    "seed {seed}: {} is gone",
                    file.display()
                );
            }
            let lines = cluster.lines.borrow();
            let said = |line: &String| {
                line.contains("data directory /data belongs to database")
                    && line.contains("this cluster file leads to database")
            };
            assert!(lines.iter().any(said), "{lines:?}");
        });
    }
}

#[test]
fn a_server_with_files_of_an_older_database_keeps_them() {
    a_former_disk_comes_back(0);
}

#[test]
fn a_register_of_an_older_database_with_a_higher_generation_does_not_bring_it_back() {
    a_former_disk_comes_back(4);
}

/// While no majority of the coordinators holds one of both databases, neither is served.
#[test]
fn coordinators_that_hold_two_databases_decide_nothing_without_a_majority_of_one() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 3);
        simulation.run(async move {
            let database = two_databases(&cluster).await;
            let kept = [data(&cluster, 1), data(&cluster, 2)];
            // One of each.
            (1..=2).for_each(|server| cluster.restart(server));
            let said = cluster.status_with("two databases of this cluster").await;
            assert!(said.contains("10.0.0.1:4500 holds database"), "{said}");
            assert!(said.contains("10.0.0.2:4500 holds database"), "{said}");
            assert!(said.contains("10.0.0.3:4500 does not answer"), "{said}");
            assert!(!commits(&database, "neither").await);
            assert_eq!(kept, [data(&cluster, 1), data(&cluster, 2)]);
            // With the third there is a majority.
            cluster.restart(3);
            some_seconds(20).await;
            assert_eq!(reads(&database).await.as_deref(), Some("new"));
            assert_eq!(kept[0], data(&cluster, 1), "seed {seed}");
        });
    }
}

/// Who wants the former database back, and not the new one.
#[test]
fn the_former_database_serves_again_when_the_servers_of_the_new_one_are_over_empty_directories() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 3);
        simulation.run(async move {
            let database = two_databases(&cluster).await;
            cluster.restart(1);
            (2..=3).for_each(|server| start_empty(&cluster, server));
            some_seconds(10).await;
            assert_eq!(
                reads(&database).await.as_deref(),
                Some("former"),
                "seed {seed}"
            );
            assert!(commits(&database, "later").await);
        });
    }
}

/// Its directory was empty when the process started.
#[test]
fn a_server_that_stood_still_while_another_database_was_made_keeps_what_it_has_got_since_its_start()
{
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 4);
        simulation.run(async move {
            let database = cluster.create_now("triple").await;
            assert!(commits(&database, "former").await);
            some_seconds(10).await;
            let kept = data(&cluster, 4);
            assert!(!kept.is_empty(), "the fourth has nothing");
            cluster.pause(4, Duration::from_secs(60));
            (1..=3).for_each(|server| cluster.kill(server));
            (1..=3).for_each(|server| start_empty(&cluster, server));
            let database = cluster.create_now("triple").await;
            assert!(commits(&database, "new").await);
            some_seconds(80).await;
            assert!(commits(&database, "newest").await, "seed {seed}");
            let left = data(&cluster, 4);
            let is_there = |file: &PathBuf| left.contains(file);
            assert!(kept.iter().all(is_there), "{kept:?} {left:?}");
            let lines = cluster.lines.borrow();
            let said = |line: &String| line.contains("data directory /data belongs to database");
            assert!(lines.iter().any(said), "{lines:?}");
        });
    }
}

#[test]
fn a_coordinator_that_a_former_database_has_moved_away_from_leads_nobody_away_from_the_new_one() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 4);
        simulation.run(async move {
            let database = cluster.create_now("triple").await;
            assert!(commits(&database, "former").await);
            assert_eq!(
                move_to(&cluster.coordinators(), vec![address(4).into()]).await,
                ""
            );
            some_seconds(10).await;
            (1..=4).for_each(|server| cluster.kill(server));
            (1..=2).for_each(|server| start_empty(&cluster, server));
            some_seconds(10).await;
            assert_eq!(cluster.create_as("double", true).await, Some(Ok(())));
            let database = plinth_client::connect(cluster.coordinators());
            assert!(commits(&database, "new").await);
            let kept = data(&cluster, 3);
            cluster.restart(3);
            some_seconds(30).await;
            assert!(commits(&database, "newest").await, "seed {seed}");
            // All look for their controller anew, a client with the former file among them.
            (1..=2).for_each(|server| cluster.kill(server));
            (1..=2).for_each(|server| cluster.restart(server));
            let database = plinth_client::connect(cluster.coordinators());
            assert_eq!(
                reads(&database).await.as_deref(),
                Some("newest"),
                "seed {seed}"
            );
            assert!(commits(&database, "last").await);
            assert_eq!(kept, data(&cluster, 3), "seed {seed}");
        });
    }
}
