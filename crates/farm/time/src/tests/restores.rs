//! The time is taken over by servers that know none, step by step.

use super::failover::{LEASE_WAIT, Net, SETTINGS};
use crate::{Refusal, Restored, Server};
use plinth_core::id::Uid;

fn restorable(id: u128) -> Server {
    Server::new(Uid(id), SETTINGS).restorable()
}

/// All of them in one configuration, synchronised, with 1 as the master. Nobody waits for those that join.
fn running(servers: u128) -> Net {
    let mut net = Net::new(0);
    for id in 1..=servers {
        net.servers.insert(Uid(id), restorable(id));
    }
    let all: Vec<u128> = (1..=servers).collect();
    net.configure(1, &all).expect("the first");
    net.pass(5_000_000);
    assert_eq!(net.enabled(), all);
    net
}

/// New lives that have read the register.
fn returned(net: &mut Net, ids: &[u128]) {
    let (now, current) = (net.now, net.register.clone().expect("a configuration"));
    for id in ids {
        net.servers.insert(Uid(*id), restorable(*id));
        net.at(*id).learn(current.clone(), now);
    }
}

fn restore(net: &mut Net, id: u128, ids: &[u128], newest: u64) -> Result<Restored, Refusal> {
    let ids: Vec<_> = ids.iter().copied().map(Uid).collect();
    let now = net.now;
    let (proposed, restored) = net.at(id).propose_restored(&ids, newest, now)?;
    assert_eq!(proposed.era, proposed.number);
    net.register = Some(proposed);
    net.at(id).taken(now);
    net.collect(Uid(id));
    Ok(restored)
}

#[test]
fn a_restored_cluster_continues_above_what_a_master_gives_out_that_lives_on() {
    let mut net = running(3);
    for dead in [2, 3] {
        net.kill(dead, &[]);
    }
    let newest = net.upper(1);
    // The old master cannot be reached, and lives.
    net.cut.push(Uid(1));
    returned(&mut net, &[4, 5]);
    assert_eq!(
        restore(&mut net, 4, &[4, 5], newest),
        Err(Refusal::MasterLives)
    );
    let mut given = newest;
    for _ in 0..2 * LEASE_WAIT / 100_000 {
        let now = net.now;
        given = net.at(1).time(now).map_or(given, |time| time.upper);
        net.pass(100_000);
    }
    assert_eq!(net.enabled(), [] as [u128; 0], "no lease lasts so long");
    let restored = restore(&mut net, 4, &[4, 5], newest).expect("its master has stopped");
    let since = net.now;
    while net.enabled().is_empty() {
        net.pass(100_000);
    }
    assert!(
        net.now - since >= LEASE_WAIT,
        "others may have leases of it"
    );
    net.pass(3_000_000);
    assert_eq!(net.enabled(), [4, 5]);
    let now = net.now;
    let lower = net.at(5).time(now).expect("a time").lower;
    assert!(
        lower > given && lower > restored.origin,
        "{lower} comes after {given}"
    );
    assert_eq!(restored.number, 2);
}

/// The next life of 3 may be the master, so 1 stops within a lease, and 2, which has one of 1, within another.
fn assert_stops(net: &mut Net) {
    net.pass(LEASE_WAIT);
    assert!(!net.enabled().contains(&1));
    net.pass(LEASE_WAIT);
    assert_eq!(net.enabled(), [] as [u128; 0]);
}

#[test]
fn a_master_goes_by_the_leases_of_the_dead_if_they_may_return() {
    let mut net = running(3);
    net.kill(3, &[1]);
    assert_eq!(net.suspects(1), [Uid(3)]);
    assert_stops(&mut net);
    net.configure(1, &[1, 2]).expect("it is dead");
    net.pass(3_000_000);
    assert_eq!(net.enabled(), [1, 2], "the register says that it is not");
}

#[test]
fn a_master_goes_by_those_that_have_joined_if_they_may_return() {
    let mut net = running(2);
    net.servers.insert(Uid(3), restorable(3));
    net.configure(1, &[1, 2, 3]).expect("nobody leaves");
    net.cut.push(Uid(3));
    net.pass(LEASE_WAIT / 2);
    assert_eq!(net.enabled(), [1, 2]);
    assert_stops(&mut net);
    net.configure(1, &[1, 2]).expect("it holds no lease");
    net.pass(3_000_000);
    assert_eq!(net.enabled(), [1, 2]);
}

#[test]
fn members_that_join_and_are_there_disable_no_clock() {
    let mut net = running(3);
    net.servers.insert(Uid(4), restorable(4));
    net.configure(1, &[1, 2, 3, 4]).expect("nobody leaves");
    for _ in 0..200 {
        assert!(net.enabled().starts_with(&[1, 2, 3]));
        net.pass(100_000);
    }
    assert_eq!(net.enabled(), [1, 2, 3, 4]);
}

#[test]
fn a_restore_in_the_middle_of_which_the_master_dies_is_gone_on_with() {
    let mut net = running(2);
    let newest = net.upper(1);
    net.kill(1, &[]);
    net.kill(2, &[]);
    returned(&mut net, &[3, 4, 5]);
    net.pass(LEASE_WAIT);
    let restored = restore(&mut net, 3, &[3, 4, 5], newest).expect("nobody is left");
    net.pass(LEASE_WAIT / 2);
    net.kill(3, &[4, 5]);
    assert_eq!(net.configure(4, &[4, 5]), Err(Refusal::KnowsNoTime));
    net.at(4).learn_restored(restored);
    net.configure(4, &[4, 5])
        .expect("it knows where time continues");
    net.pass(LEASE_WAIT + 3_000_000);
    assert_eq!(net.enabled(), [4, 5]);
    assert!(net.upper(4) > restored.origin);

    // Another one does not fall behind, whatever is on its disks.
    net.kill(4, &[]);
    net.kill(5, &[]);
    returned(&mut net, &[6]);
    net.at(6).learn_restored(restored);
    net.pass(LEASE_WAIT);
    let again = restore(&mut net, 6, &[6], 0).expect("nobody is left");
    assert_eq!((again.number, again.origin), (4, restored.origin));
}

#[test]
fn only_new_lives_restore_what_there_was() {
    let mut net = running(2);
    returned(&mut net, &[3]);
    net.servers.insert(Uid(4), restorable(4));
    net.pass(LEASE_WAIT);
    assert_eq!(
        restore(&mut net, 3, &[2, 3], 1),
        Err(Refusal::IsMember(Uid(2)))
    );
    assert_eq!(
        restore(&mut net, 1, &[1], 1),
        Err(Refusal::IsMember(Uid(1)))
    );
    assert_eq!(restore(&mut net, 3, &[4], 1), Err(Refusal::NotAMember));
    assert_eq!(restore(&mut net, 4, &[4], 1), Err(Refusal::NothingBefore));
}
