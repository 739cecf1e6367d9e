//! Zones under maintenance, and data distribution that is switched off.

use crate::common::{Cluster, commits, reads, some_seconds};
use plinth_client::Database;
use plinth_control::distribution::{self, Part};
use plinth_control::movement;
use plinth_coordination::election;
use plinth_core::Uid;
use plinth_core::key::KeyRange;
use plinth_protocol::control::{GetWorkers, RegisterWorker};
use plinth_rpc::Transport;
use plinth_runtime::fault;
use plinth_runtime::sim::{SimConfig, Simulation};
use std::collections::BTreeSet;

async fn workers(cluster: &Cluster) -> Vec<RegisterWorker> {
    let (transport, coordinators) = (Transport::client(), cluster.coordinators());
    let leader = election::current_leader(&transport, &coordinators).await;
    let endpoint = leader
        .expect("a controller")
        .controller
        .endpoint::<GetWorkers>();
    let listed = transport.call(&endpoint, GetWorkers {}).await;
    listed.expect("it answers").workers
}

/// The servers that the map names, as holders or as destinations; and whether a shard moves.
async fn holders(database: &Database) -> (BTreeSet<Uid>, bool) {
    let shards = movement::run(database, async |tr| movement::read_shards(tr).await);
    let shards = shards.await.expect("reads");
    let named = shards
        .iter()
        .flat_map(|(_, record)| record.team.iter().chain(&record.destination));
    let moves = shards
        .iter()
        .any(|(_, record)| !record.destination.is_empty());
    (named.copied().collect(), moves)
}

/// A database on four servers, the zone of the third, which is no coordinator, and its storage server.
async fn started(cluster: &Cluster) -> (Database, String, Uid) {
    let database = cluster.create_now("double").await;
    assert!(commits(&database, "first").await);
    some_seconds(30).await; // every server has joined, and has its share
    let all = workers(cluster).await;
    let third = all
        .iter()
        .find(|w| w.worker.address == crate::common::address(3))
        .expect("it is there");
    let (server, _) = *third.storage.first().expect("it has a storage server");
    (database, third.locality.zone.clone(), server)
}

/// The shard of the tests' key, and where it would be if `server` were among its holders.
async fn shard_with(database: &Database, server: Uid) -> (KeyRange, Vec<Uid>, Vec<Uid>) {
    let found = movement::run(database, async |tr| movement::shard_at(tr, b"key").await);
    let (range, record) = found.await.expect("reads");
    let mut to: Vec<Uid> = record
        .team
        .iter()
        .copied()
        .filter(|id| *id != server)
        .take(1)
        .collect();
    to.push(server);
    (range, record.team, to)
}

/// Lets a server be a holder of the tests' key. The distributor carries the move.
async fn give(database: &Database, server: Uid) {
    let (range, team, to) = shard_with(database, server).await;
    if !team.contains(&server) {
        let begun = movement::run(database, async |tr| {
            movement::start(tr, &range, &team, &to).await
        });
        begun.await.expect("it begins");
    }
    some_seconds(30).await;
    let (now, moves) = holders(database).await;
    assert!(now.contains(&server) && !moves, "it has arrived");
}

fn simulated(seed: u64, story: impl AsyncFnOnce(Cluster) + 'static) {
    let simulation = Simulation::new(seed, SimConfig::default());
    let cluster = Cluster::start(&simulation, 1, 4);
    simulation.run(story(cluster));
}

#[test]
fn a_zone_under_maintenance_is_not_healed_and_after_its_end_it_is() {
    for seed in 1..4 {
        simulated(seed, async |cluster| {
            let (database, zone, server) = started(&cluster).await;
            give(&database, server).await;
            let (before, _) = holders(&database).await;
            let all = workers(&cluster).await;
            let maintained = distribution::maintain(&database, &all, &zone, 200.0).await;
            assert_eq!(maintained, Ok(()));
            let nowhere = distribution::maintain(&database, &all, "nowhere", 10.0).await;
            assert!(nowhere.is_err_and(|line| line.contains("nowhere")));
            cluster.kill(3);
            some_seconds(60).await;
            // The distributor after this one has never seen the server.
            cluster.kill(2);
            cluster.restart(2);
            some_seconds(60).await;
            assert!(commits(&database, "second").await);
            assert_eq!(
                holders(&database).await,
                (before, false),
                "nothing has moved"
            );
            let said = cluster.status_with("maintenance_zone").await;
            assert!(
                said.contains(&format!("\"maintenance_zone\":\"{zone}\"")),
                "{said}"
            );

            some_seconds(140).await;
            let (after, _) = holders(&database).await;
            assert!(
                !after.contains(&server),
                "it is healed when the time is over"
            );
            let said = cluster.status_with("\"full_replication\":true").await;
            assert!(said.contains("\"full_replication\":true"), "{said}");
            assert!(!said.contains("maintenance_zone"), "{said}");
            assert_eq!(reads(&database).await.as_deref(), Some("second"));
        });
    }
}

#[test]
fn a_maintenance_ends_when_a_server_of_another_zone_fails() {
    simulated(1, async |cluster| {
        let (database, zone, server) = started(&cluster).await;
        give(&database, server).await;
        let all = workers(&cluster).await;
        let maintained = distribution::maintain(&database, &all, &zone, 3600.0).await;
        assert_eq!(maintained, Ok(()));
        some_seconds(5).await;
        cluster.kill(4);
        some_seconds(60).await;
        let said = distribution::read(&database).await.expect("reads");
        assert_eq!(said.maintenance, None);
        cluster.restart(4);
        some_seconds(30).await;
        cluster.kill(3);
        some_seconds(60).await;
        let (after, _) = holders(&database).await;
        assert!(
            !after.contains(&server),
            "its zone is healed like any other"
        );
    });
}

#[test]
fn while_data_distribution_is_off_moves_under_way_end_and_none_begins() {
    for seed in 1..4 {
        simulated(seed, async |cluster| {
            let (database, _, server) = started(&cluster).await;
            // An operator's move, under way when distribution is switched off.
            let (range, team, to) = shard_with(&database, server).await;
            let begun = movement::run(&database, async |tr| {
                tr.set(
                    plinth_core::distribution::MODE,
                    plinth_core::distribution::MODE_OFF,
                );
                match team.contains(&server) {
                    true => Ok(()),
                    false => movement::start(tr, &range, &team, &to).await,
                }
            });
            begun.await.expect("it begins");
            cluster.kill(2); // and another distributor may find it
            cluster.restart(2);
            some_seconds(60).await;
            let (before, moves) = holders(&database).await;
            assert!(!moves, "it has arrived");
            let arrived = movement::run(&database, async |tr| {
                movement::shard_at(tr, &range.begin).await
            });
            assert!(arrived.await.expect("reads").1.team.contains(&server));
            let said = cluster.status_with("data_distribution_off").await;
            assert!(said.contains("data distribution is OFF"), "{said}");

            cluster.kill(3);
            some_seconds(60).await;
            assert_eq!(holders(&database).await, (before, false), "nothing heals");
            assert_eq!(distribution::switch(&database, true).await, Ok(()));
            some_seconds(60).await;
            assert!(!holders(&database).await.0.contains(&server), "it heals");
            assert_eq!(reads(&database).await.as_deref(), Some("first"));
        });
    }
}

#[test]
fn while_failures_are_ignored_what_a_server_had_stays_with_it() {
    simulated(1, async |cluster| {
        let (database, zone, server) = started(&cluster).await;
        give(&database, server).await;
        assert_eq!(
            distribution::switch_part(&database, Part::Healing, false).await,
            Ok(())
        );
        let all = workers(&cluster).await;
        let refused = distribution::maintain(&database, &all, &zone, 10.0).await;
        assert!(refused.is_err_and(|line| line.contains("enable ssfailure")));
        cluster.kill(3);
        some_seconds(60).await;
        let listed = movement::run(&database, async |tr| {
            plinth_control::singletons::read_servers(tr).await
        });
        let listed = listed.await.expect("reads").servers;
        assert!(
            listed.iter().any(|(id, _)| *id == server),
            "it is waited for"
        );
        assert_eq!(
            distribution::switch_part(&database, Part::Healing, true).await,
            Ok(())
        );
        some_seconds(60).await;
        assert!(!holders(&database).await.0.contains(&server));
    });
}

/// A server is down while a shard that it holds moves elsewhere and comes back to it.
fn away_and_back_while_it_is_down(seed: u64) {
    simulated(seed, async |cluster| {
        let (database, _, server) = started(&cluster).await;
        give(&database, server).await;
        assert_eq!(distribution::switch(&database, false).await, Ok(()));
        let (range, team, _) = shard_with(&database, server).await;
        let other = *team.iter().find(|id| **id != server).expect("two hold it");
        let (named, _) = holders(&database).await;
        let third = named.into_iter().find(|id| !team.contains(id));
        let elsewhere = vec![other, third.expect("four servers")];

        cluster.kill(3);
        let away = movement::run(&database, async |tr| {
            movement::start(tr, &range, &team, &elsewhere).await
        });
        away.await.expect("it begins");
        some_seconds(30).await;
        assert!(!holders(&database).await.1, "it has arrived");
        let back = movement::run(&database, async |tr| {
            movement::start(tr, &range, &elsewhere, &[other, server]).await
        });
        back.await.expect("it begins");
        // It has the shard on its disk, and has not heard that it went away.
        cluster.restart(3);
        some_seconds(30).await;
        assert!(!holders(&database).await.1, "it has arrived");
        assert_eq!(reads(&database).await.as_deref(), Some("first"));
    });
}

#[test]
fn a_shard_that_went_away_and_came_back_while_its_server_was_down_is_copied_again() {
    away_and_back_while_it_is_down(1);
}

#[test]
fn a_destination_that_is_ready_before_it_has_heard_is_found() {
    fault::makes_panic("ready_without_hearing", "StorageHasLostShard", || {
        (1..8).for_each(away_and_back_while_it_is_down);
    });
}
