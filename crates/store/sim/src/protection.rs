//! Decides which machines may be lost for good without losing data, from the state that the cluster reports.
//!
//! A machine may be lost if, without it and the machines lost before,
//! - every set of coordinators, present or former, has a majority left: a process may know only a former set,
//! - there are enough fault domains for every replica, so that the cluster can heal; a process that an operator has
//!   made `stateless`, or has asked to be, holds none,
//! - no shard is moving, and every shard has a holder left,
//! - every log set of every generation that is still needed has a member left.

use crate::cluster::{self, Shape};
use crate::missing::{Lost, Missing, machine_at};
use plinth_client::Database;
use plinth_control::movement;
use plinth_core::{Result, Uid};
use plinth_protocol::control::ClusterInfo;
use plinth_rpc::Transport;
use plinth_runtime::Duration;
use plinth_runtime::sim::MachineId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Limit of the look at the cluster. A cluster that does not answer in time may not lose anything.
const LIMIT: Duration = Duration::from_secs(2);

impl Missing {
    fn leaves_enough(&self, shape: &Shape) -> bool {
        let holds = |machine: usize, process: usize| {
            let address = Shape::address(machine, process);
            !self.machines.contains(&machine_at(&address)) && !self.stateless.contains(&address)
        };
        let left = (0..shape.machines)
            .filter(|machine| (0..shape.processes_a_machine).any(|p| holds(*machine, p)));
        let domains: BTreeSet<usize> = left.map(|machine| shape.domain(machine)).collect();
        domains.len() >= shape.config.replication as usize
    }
}

impl Lost {
    /// Records that a process is to lose its coordinator registers. Returns false, and records nothing, if a set of
    /// coordinators could not do without it.
    pub fn may_forget(&self, shape: &Shape, process: SocketAddr) -> bool {
        let mut missing = self.0.borrow().clone();
        missing.forgetful.insert(process);
        let is_gone = |address: &SocketAddr| missing.is_no_coordinator(address);
        let may = shape.sets.can_do_without(is_gone);
        if may {
            self.0.replace(missing);
        }
        may
    }

    /// Records that a process is to be `stateless`. Returns false, and records nothing, if the cluster could not do
    /// without its disk.
    pub fn may_be_stateless(&self, shape: &Shape, process: SocketAddr) -> bool {
        let mut missing = self.0.borrow().clone();
        missing.stateless.insert(process);
        let may = missing.leaves_enough(shape);
        if may {
            self.0.replace(missing);
        }
        may
    }
}

pub async fn may_lose(
    shape: &Shape,
    transport: &Transport,
    database: &Database,
    machine: MachineId,
) -> bool {
    let asked = plinth_runtime::timeout(LIMIT, look(shape, transport, database)).await;
    let Some(Some((info, shards))) = asked else {
        return false;
    };
    // No await from here on, so that requests of an operator during the look are counted.
    let gone = shape.lost.with(machine);
    let on_gone = |address: &SocketAddr| gone.machines.contains(&machine_at(address));
    let no_coordinator = |address: &SocketAddr| gone.is_no_coordinator(address);
    if !shape.sets.can_do_without(no_coordinator) || !gone.leaves_enough(shape) {
        return false;
    }
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

/// Per shard, the processes of its team, and whether it stands still.
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
    // Read after the shards: of two log systems the later one is the stricter.
    Some((cluster::info(shape, transport).await?, shards))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn a_machine_stays_if_operators_do_without_the_disks_of_too_many_others() {
        let scenario = scenario::find("standard").expect("there is one");
        let mut shape = Shape::draw(&scenario, 1, None);
        (shape.machines, shape.racks, shape.halls) = (3, 3, 1);
        shape.processes_a_machine = 2;
        shape.config.domain = plinth_core::config::FaultDomain::Zone;
        shape.config.replication = 2;
        let may_go = |machine| shape.lost.with(MachineId(machine)).leaves_enough(&shape);
        assert!(may_go(1));
        let first = Shape::address(1, 0);
        assert!(shape.lost.may_be_stateless(&shape, first));
        assert!(may_go(1), "the second process of that machine has a disk");
        assert!(shape.lost.may_be_stateless(&shape, Shape::address(1, 1)));
        assert!(!may_go(1), "only two machines hold anything");
        let third = Shape::address(2, 0);
        assert!(shape.lost.may_be_stateless(&shape, third));
        assert!(!shape.lost.may_be_stateless(&shape, Shape::address(2, 1)));
        shape.lost.holds_data_again(first);
        assert!(may_go(1));
    }
}
