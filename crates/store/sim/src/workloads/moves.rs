//! Moves: shards are split, moved between teams, cancelled in the middle of a move, and merged, while the other
//! workloads run. The other workloads and the replica check detect a row that is lost, doubled or visible too early.

use super::{Boxed, Complaints, Day, Shape, Space, Verdict, Workload};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_control::movement;
use plinth_core::codec::Codec;
use plinth_core::system_keys::{
    SERVER_LIST, SERVER_LIST_END, ShardRecord, StorageServerRecord, parse_server_list_key,
};
use plinth_core::{Error, Key, KeyRange, Result, Uid};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::random::{below, chance, range, shuffle};
use plinth_runtime::{Duration, probe};
use std::collections::BTreeMap;

/// Limit of the wait for a destination. One that is not ready by then may never be.
const PATIENCE: Duration = Duration::from_secs(40);
/// Limit of shards; a run needs no more boundaries.
const SHARDS_MAX: usize = 60;
/// End of the boundaries made by this workload; only these are removed again.
const SUFFIX: &[u8] = b"/moved";

type Servers = BTreeMap<Uid, Interface>;
type Shard = (KeyRange, ShardRecord);

pub struct Moves {
    transport: Transport,
    complaints: Complaints,
}

impl Moves {
    pub fn new(shape: &Shape) -> Self {
        Moves {
            transport: shape.transport(),
            complaints: Complaints::default(),
        }
    }

    /// Makes one random change of the map. [`Error::operation_obsolete`]: another client has changed the same shard.
    async fn change(&self, database: &Database) -> Result<()> {
        let (shards, servers) = read_map(database).await?;
        let at = below(shards.len() as u64) as usize;
        let (shard, record) = &shards[at];
        if !record.destination.is_empty() {
            return Ok(()); // another client is moving it
        }
        if shards.len() < SHARDS_MAX && chance(0.2) {
            let key = self.boundary();
            return movement::run(database, async |tr| movement::split(tr, &key).await).await;
        }
        let ours = |shard: &KeyRange| shard.begin.ends_with(SUFFIX);
        let next = shards
            .get(at + 1)
            .filter(|(range, next)| next == record && ours(range));
        if let (Some((next, _)), true) = (next, chance(0.3)) {
            let merge = async |tr: &Transaction| movement::merge(tr, shard, next).await;
            return movement::run(database, merge).await;
        }
        let mut candidates: Vec<Uid> = servers.keys().copied().collect();
        shuffle(&mut candidates);
        candidates.truncate(record.team.len());
        if record.team.iter().all(|id| candidates.contains(id)) {
            return Ok(());
        }
        let shard = self.part_of(shard);
        self.give(database, &shard, &record.team, &candidates, &servers)
            .await
    }

    /// A random boundary, different from those of other workloads.
    fn boundary(&self) -> Key {
        [&Space::whole().key(below(1000), 1000), SUFFIX]
            .concat()
            .into()
    }

    /// The shard, or a part of it.
    fn part_of(&self, shard: &KeyRange) -> KeyRange {
        let key = self.boundary();
        if !shard.contains(&key) || chance(0.5) {
            shard.clone()
        } else if chance(0.5) {
            KeyRange::new(key, shard.end.clone())
        } else {
            KeyRange::new(shard.begin.clone(), key)
        }
    }

    async fn give(
        &self,
        database: &Database,
        shard: &KeyRange,
        team: &[Uid],
        to: &[Uid],
        servers: &Servers,
    ) -> Result<()> {
        if shard.is_empty() {
            return Ok(());
        }
        let start = async |tr: &Transaction| movement::start(tr, shard, team, to).await;
        movement::run(database, start).await?;
        let interfaces: Vec<Interface> = to.iter().map(|id| servers[id]).collect();
        let ready = movement::wait_until_ready(database, &self.transport, shard, &interfaces);
        let patience = if chance(0.2) {
            Duration::from_millis(range(1..5000))
        } else {
            PATIENCE
        };
        let ready = plinth_runtime::timeout(patience, ready).await;
        if ready.transpose()?.is_some() {
            probe!("workload_moves_shard");
            let finish = async |tr: &Transaction| movement::finish(tr, shard, team, to).await;
            movement::run(database, finish).await
        } else {
            probe!("workload_gives_up_move");
            let cancel = async |tr: &Transaction| movement::cancel(tr, shard, team, to).await;
            movement::run(database, cancel).await
        }
    }
}

async fn read_map(database: &Database) -> Result<(Vec<Shard>, Servers)> {
    movement::run(database, async |tr| {
        let all = KeyRange::new(SERVER_LIST, SERVER_LIST_END);
        let rows = tr.get_rows(all, RangeOptions::default(), false).await?;
        let mut servers = Servers::new();
        for (key, value) in rows {
            let id = parse_server_list_key(&key).ok_or(Error::file_corrupt)?;
            let record = StorageServerRecord::from_bytes(value).ok_or(Error::file_corrupt)?;
            servers.insert(id, Interface::new(record.address, id));
        }
        Ok((movement::read_shards(tr).await?, servers))
    })
    .await
}

impl Workload for Moves {
    super::kind!("moves", |_, shape| Moves::new(shape));
    fn is_operators(&self) -> bool {
        true
    }

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || match self.change(&database).await {
            Ok(()) | Err(Error::operation_obsolete) => {}
            Err(error) => self.complaints.add(format!("a move failed: {error}")),
        }))
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move { self.complaints.verdict() })
    }
}
