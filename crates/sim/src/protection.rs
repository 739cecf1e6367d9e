//! Which machines may be lost for good without losing data: computed from what the cluster says of itself, not guessed.
//!
//! A machine may go if, without it and those that went before,
//! - a majority of the coordinators is left, and of those that were coordinators before: somebody may know only them,
//! - there are fault domains enough for every replica, so that the cluster can heal,
//! - every shard stands still and has a holder left,
//! - every log set of every generation that is still needed has a member left.

use crate::cluster::{self, Shape};
use plinth_client::Database;
use plinth_control::movement;
use plinth_core::{Result, Uid};
use plinth_protocol::control::ClusterInfo;
use plinth_rpc::Transport;
use plinth_runtime::Duration;
use plinth_runtime::sim::MachineId;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// A cluster that cannot tell by then is in no state to lose anything.
const LIMIT: Duration = Duration::from_secs(2);

/// The machines that were lost for good.
#[derive(Clone, Default)]
pub struct Lost(Rc<RefCell<BTreeSet<MachineId>>>);

impl Lost {
    pub fn add(&self, machine: MachineId) {
        self.0.borrow_mut().insert(machine);
    }
    pub fn has(&self, machine: MachineId) -> bool {
        self.0.borrow().contains(&machine)
    }
    fn with(&self, machine: MachineId) -> BTreeSet<MachineId> {
        let mut gone = self.0.borrow().clone();
        gone.insert(machine);
        gone
    }
}

pub async fn may_lose(
    shape: &Shape,
    transport: &Transport,
    database: &Database,
    lost: &Lost,
    machine: MachineId,
) -> bool {
    let gone = lost.with(machine);
    let on_gone = |address: &SocketAddr| gone.contains(&machine_at(address));
    let domains_left: BTreeSet<usize> = (0..shape.machines)
        .filter(|index| !gone.iter().any(|lost| cluster::index_of(*lost) == *index))
        .map(|index| shape.domain(index))
        .collect();
    if !shape.sets.can_do_without(on_gone) || domains_left.len() < shape.config.replication as usize
    {
        return false;
    }
    let asked = plinth_runtime::timeout(LIMIT, look(shape, transport, database)).await;
    let Some(Some((info, shards))) = asked else {
        return false;
    };
    let generations = &info.log_system.generations;
    let logs_left = generations.iter().all(|generation| {
        let left: Vec<bool> = generation
            .logs
            .iter()
            .map(|log| !on_gone(&log.address))
            .collect();
        generation.covers_every_set(&left)
    });
    let holders_left = shards
        .iter()
        .all(|(holders, stands)| *stands && holders.iter().any(|address| !on_gone(address)));
    info.accepting && logs_left && holders_left
}

/// Of each shard the processes of its team, and whether it stands still.
pub type Holders = Vec<(Vec<SocketAddr>, bool)>;

pub async fn look(
    shape: &Shape,
    transport: &Transport,
    database: &Database,
) -> Option<(ClusterInfo, Holders)> {
    let shards = movement::run(database, async |tr| {
        let list = plinth_control::singletons::read_servers(tr).await?;
        let addresses: BTreeMap<Uid, SocketAddr> = list
            .servers
            .iter()
            .map(|(id, record)| (*id, record.address))
            .collect();
        let shards = movement::read_shards(tr).await?;
        let holders = |(_, record): &(_, plinth_core::system_keys::ShardRecord)| {
            let team = record
                .team
                .iter()
                .filter_map(|id| addresses.get(id).copied());
            (team.collect(), record.destination.is_empty())
        };
        let shards: Result<Holders> = Ok(shards.iter().map(holders).collect());
        shards
    });
    let shards = shards.await.ok()?;
    // After the shards: of two generations the later one is the stricter.
    Some((cluster::info(shape, transport).await?, shards))
}

/// The tester's machine has number 0.
pub fn machine_at(address: &SocketAddr) -> MachineId {
    match address.ip() {
        IpAddr::V4(ip) => MachineId(u32::from(ip.octets()[3])),
        IpAddr::V6(_) => MachineId::TESTER,
    }
}
