//! Facts about the data, from the system keyspace.

use super::unreadable;
use crate::cluster::Cluster;
use crate::{distribution, exclusion, movement};
use plinth_core::codec::Codec;
use plinth_core::config::DatabaseConfig;
use plinth_core::distribution::Distribution;
use plinth_core::system_keys::{CONFIG, DATABASE_LOCK};
use plinth_core::{Error, KeyRange, Uid};
use plinth_runtime::unix_time_ms;
use std::collections::BTreeSet;

pub struct Replicas {
    pub wanted: usize,
    pub shards: usize,
    /// Shards on their way to another team.
    pub moving: usize,
    /// The teams that hold shards.
    teams: BTreeSet<Vec<Uid>>,
    /// Servers that processes have which are here.
    pub hosted: BTreeSet<Uid>,
    /// Copies of the shard that has the fewest, as far as they [count](crate::replica::could_serve).
    pub least: usize,
    /// Keys that no copy can read.
    pub unreadable: Vec<KeyRange>,
    /// Who has locked the database.
    pub lock: Option<Uid>,
    pub excluded: Vec<exclusion::Target>,
    pub distribution: Distribution,
}

impl Replicas {
    pub fn is_full(&self) -> bool {
        self.least >= self.wanted
    }

    /// Counts the copies, when it is known which servers' count.
    pub fn count(&mut self, counts: impl Fn(&Uid) -> bool) {
        self.least = self.fewest(counts);
    }

    /// The least number of members of a team.
    fn fewest(&self, counts: impl Fn(&Uid) -> bool) -> usize {
        let copies = self.teams.iter().map(|team| {
            let members = team.iter();
            members.filter(|id| counts(id)).count()
        });
        copies.min().unwrap_or(0)
    }

    /// Copies of the shard that has the fewest, on processes that are here. Not all of them need to count.
    fn least_here(&self) -> usize {
        self.fewest(|id| self.hosted.contains(id))
    }

    /// False: operators have said that nothing is copied, or that the servers of a zone are waited for.
    fn heals(&self) -> bool {
        let said = &self.distribution;
        let waits = said.no_healing || said.maintained(unix_time_ms()).is_some();
        !said.is_off() && !waits
    }

    /// FoundationDB's name of the state, and what it means.
    pub fn state(&self) -> (&'static str, &'static str) {
        let here = self.least_here();
        match self {
            _ if here == 0 => ("missing_data", "no running process has a copy of some data"),
            Replicas { least: 0, .. } => (
                "healing",
                "no copy of some data can serve all of it now: all are damaged, or far behind the log",
            ),
            replicas if !replicas.is_full() && here >= replicas.wanted => (
                "healing",
                "copies of some data are damaged or far behind, and do not count until they are made anew or catch up",
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
    let (hosted, unreadable) = cluster.context.workers.with(|workers| {
        let storage = workers.values().flat_map(|worker| &worker.storage);
        let hosted: BTreeSet<Uid> = storage.map(|(id, _)| *id).collect();
        let unreadable = unreadable::find(&shards, workers, &hosted);
        (hosted, unreadable)
    });
    let teams = shards.iter().map(|(_, record)| &record.team);
    let teams: BTreeSet<&Vec<Uid>> = teams.collect();
    Ok(Replicas {
        wanted: config.replication as usize,
        shards: shards.len(),
        moving: shards
            .iter()
            .filter(|(_, record)| !record.destination.is_empty())
            .count(),
        teams: teams.into_iter().cloned().collect(),
        hosted,
        least: 0,
        unreadable,
        lock: lock.map(|id| Uid::from_bytes(&id).unwrap_or(Uid(0))),
        excluded,
        distribution,
    })
}
