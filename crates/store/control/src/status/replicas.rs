//! Facts about the data, from the system keyspace.

use crate::cluster::Cluster;
use crate::{distribution, exclusion, movement};
use plinth_core::codec::Codec;
use plinth_core::config::DatabaseConfig;
use plinth_core::distribution::Distribution;
use plinth_core::system_keys::{CONFIG, DATABASE_LOCK, ShardRecord};
use plinth_core::{Error, Tag, Uid};
use plinth_protocol::control::RegisterWorker;
use plinth_runtime::{planted, unix_time_ms};
use std::collections::BTreeMap;

pub struct Replicas {
    pub wanted: usize,
    pub shards: usize,
    /// Shards on their way to another team.
    pub moving: usize,
    /// Copies that [count](counts_as_replica) of the shard that has the fewest.
    pub least: usize,
    /// The same with all copies that are there, whatever they can serve.
    pub least_there: usize,
    /// Who has locked the database.
    pub lock: Option<Uid>,
    pub excluded: Vec<exclusion::Target>,
    pub distribution: Distribution,
}

impl Replicas {
    pub fn is_full(&self) -> bool {
        self.least >= self.wanted
    }

    /// False: operators have said that nothing is copied, or that the servers of a zone are waited for.
    fn heals(&self) -> bool {
        let said = &self.distribution;
        let waits = said.no_healing || said.maintained(unix_time_ms()).is_some();
        !said.is_off() && !waits
    }

    /// FoundationDB's name of the state, and what it means.
    pub fn state(&self) -> (&'static str, &'static str) {
        match self {
            Replicas { least_there: 0, .. } => {
                ("missing_data", "no running process has a copy of some data")
            }
            Replicas { least: 0, .. } if self.heals() => (
                "healing",
                "no copy of some data can serve all of it; copies are being made of what all have together",
            ),
            replicas if !replicas.is_full() && !replicas.heals() => (
                "healing",
                "copies of some data are missing, and none are made: data distribution is off or waits for servers",
            ),
            replicas if !replicas.is_full() => ("healing", "copies of some data are being made"),
            Replicas { moving: 0, .. } => ("healthy", ""),
            _ => (
                "healthy_repartitioning",
                "some data is moving to other processes",
            ),
        }
    }
}

/// True if a storage server that is there counts as a replica of all that it holds: it could serve it alone.
pub fn counts_as_replica(host: &RegisterWorker, id: &Uid) -> bool {
    !host.is_damaged(id)
        || planted!(
            "damaged_copy_counts",
            "status counts a copy whose files are damaged as one that could serve"
        )
}

pub async fn count_replicas(cluster: &Cluster) -> plinth_core::Result<Replicas> {
    let read = movement::run(&cluster.database, async |tr| {
        let config = tr.get(CONFIG, false).await?.ok_or(Error::file_corrupt)?;
        let config = DatabaseConfig::from_bytes(config).ok_or(Error::file_corrupt)?;
        let lock = tr.get(DATABASE_LOCK, false).await?;
        Ok((
            config,
            movement::read_shards(tr).await?,
            lock,
            exclusion::read(tr).await?,
            distribution::read_in(tr).await?,
        ))
    });
    let (config, shards, lock, excluded, distribution) = read.await?;
    // Each with whether it counts.
    let hosted: BTreeMap<Uid, bool> = cluster.context.workers.with(|workers| {
        let storage = |worker: &RegisterWorker| {
            let counts = |(id, _): &(Uid, Tag)| (*id, counts_as_replica(worker, id));
            worker.storage.iter().map(counts).collect::<Vec<_>>()
        };
        workers.values().flat_map(storage).collect()
    });
    let least = |is_copy: fn(&bool) -> bool| {
        let copies = |record: &ShardRecord| {
            let copies = record.team.iter().filter_map(|id| hosted.get(id));
            copies.filter(|counts| is_copy(counts)).count()
        };
        let least = shards.iter().map(|(_, record)| copies(record)).min();
        least.unwrap_or(0)
    };
    Ok(Replicas {
        wanted: config.replication as usize,
        shards: shards.len(),
        moving: shards
            .iter()
            .filter(|(_, record)| !record.destination.is_empty())
            .count(),
        least: least(|counts| *counts),
        least_there: least(|_| true),
        lock: lock.map(|id| Uid::from_bytes(&id).unwrap_or(Uid(0))),
        excluded,
        distribution,
    })
}
