//! Facts about the data, from the system keyspace.

use crate::cluster::Cluster;
use crate::{exclusion, movement};
use plinth_core::codec::Codec;
use plinth_core::config::DatabaseConfig;
use plinth_core::system_keys::{CONFIG, DATABASE_LOCK};
use plinth_core::{Error, Uid};
use std::collections::BTreeSet;

pub struct Replicas {
    pub wanted: usize,
    pub shards: usize,
    /// Shards on their way to another team.
    pub moving: usize,
    /// Copies of the shard that has the fewest.
    pub least: usize,
    /// Who has locked the database.
    pub lock: Option<Uid>,
    pub excluded: Vec<exclusion::Target>,
}

impl Replicas {
    pub fn is_full(&self) -> bool {
        self.least >= self.wanted
    }

    /// FoundationDB's name of the state, and what it means.
    pub fn state(&self) -> (&'static str, &'static str) {
        match self {
            Replicas { least: 0, .. } => (
                "missing_data",
                "of some data no process that is there has a copy",
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

pub async fn count_replicas(cluster: &Cluster) -> plinth_core::Result<Replicas> {
    let (config, shards, lock, excluded) = movement::run(&cluster.database, async |tr| {
        let config = tr.get(CONFIG, false).await?.ok_or(Error::file_corrupt)?;
        let config = DatabaseConfig::from_bytes(config).ok_or(Error::file_corrupt)?;
        let lock = tr.get(DATABASE_LOCK, false).await?;
        Ok((
            config,
            movement::read_shards(tr).await?,
            lock,
            exclusion::read(tr).await?,
        ))
    })
    .await?;
    let hosted: BTreeSet<Uid> = cluster.context.workers.with(|workers| {
        let storage = workers.values().flat_map(|worker| &worker.storage);
        storage.map(|(id, _)| *id).collect()
    });
    let left = shards
        .iter()
        .map(|(_, record)| record.team.iter().filter(|id| hosted.contains(id)).count());
    Ok(Replicas {
        wanted: config.replication as usize,
        shards: shards.len(),
        moving: shards
            .iter()
            .filter(|(_, record)| !record.destination.is_empty())
            .count(),
        least: left.min().unwrap_or(0),
        lock: lock.map(|id| Uid::from_bytes(&id).unwrap_or(Uid(0))),
        excluded,
    })
}
