//! What the distributor sees: the map and the server list in the system keyspace, the workers that live, and sizes.

use super::Distributor;
use super::plan::{ServerView, ShardView, World};
use super::teams::Place;
use crate::configured::Configured;
use crate::placement::{self, RoleKind};
use crate::{exclusion, movement, singletons};
use plinth_core::key::KeyRange;
use plinth_core::system_keys::{ServerList, ShardRecord};
use plinth_core::{DatabaseConfig, EngineKind, Error, Key, Result, Uid};
use plinth_protocol::control::{GetWorkers, RegisterWorker};
use plinth_protocol::storage::{GetRangeMetrics, RangeMetric};
use plinth_rpc::Interface;
use plinth_runtime::knobs::knobs;
use plinth_runtime::{Duration, Instant, probe, trace};
use std::collections::{BTreeMap, BTreeSet};

const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// In one request: a key may have 10,000 bytes.
const RANGES_ASKED_MAX: usize = 1000;

/// A shard that could not be split is not tried again for so long.
const SPLIT_AGAIN: Duration = Duration::from_secs(60);

/// A worker that could not make a storage server is not asked again for so long.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// A shard that has been empty for so long is joined to a neighbour: not one that is emptied to be filled anew.
const STAYS_EMPTY: Duration = Duration::from_secs(20);

/// What outlives a look.
#[derive(Default)]
pub(super) struct Known {
    pub interfaces: BTreeMap<Uid, Interface>,
    /// Servers that answer.
    pub present: BTreeSet<Uid>,
    /// Servers that may have data.
    pub wanted: BTreeSet<Uid>,
    places: BTreeMap<Uid, Place>,
    sizes: BTreeMap<Key, (Key, RangeMetric)>,
    /// Shards that are empty, by their begin, and since when.
    empty: BTreeMap<Key, Instant>,
}

pub(super) struct Recruitment {
    pub worker: Interface,
    pub engine: EngineKind,
    pub tag: u32,
}

pub(super) struct Observed {
    pub world: World,
    pub recruit: Option<Recruitment>,
    /// Servers without data that the database parts with.
    pub remove: Vec<Uid>,
}

/// What the system keyspace says.
struct Written {
    config: DatabaseConfig,
    list: ServerList,
    shards: Vec<(KeyRange, ShardRecord)>,
    excluded: Vec<exclusion::Target>,
}

impl Distributor {
    pub(super) async fn observe(&self) -> Result<Observed> {
        let asked = self
            .transport
            .call(&self.controller.endpoint::<GetWorkers>(), GetWorkers {});
        let workers = plinth_runtime::timeout(ANSWER_LIMIT, asked).await;
        let workers = workers.unwrap_or(Err(Error::timed_out))?.workers;
        let written = self
            .run(async |tr| {
                let Configured {
                    config, excluded, ..
                } = Configured::read(tr).await?;
                Ok(Written {
                    config,
                    excluded,
                    list: singletons::read_servers(tr).await?,
                    shards: movement::read_shards(tr).await?,
                })
            })
            .await?;
        let servers = self.see_servers(&workers, &written);
        self.measure(&written.shards, &servers).await;
        let world = World {
            replication: written.config.replication as usize,
            shards: self.see_shards(&written.shards),
            servers,
        };
        Ok(Observed {
            recruit: self.wanted_recruit(&workers, &written),
            remove: to_remove(&world),
            world,
        })
    }

    fn see_servers(
        &self,
        workers: &[RegisterWorker],
        written: &Written,
    ) -> BTreeMap<Uid, ServerView> {
        let now = plinth_runtime::now();
        let patience = Duration::from_millis(knobs().storage_failure_ms);
        let (mut known, mut missing) = (self.known.borrow_mut(), self.missing.borrow_mut());
        let mut views = BTreeMap::new();
        known.interfaces.clear();
        known.present.clear();
        known.wanted.clear();
        for (id, record) in &written.list.servers {
            let hosts =
                |worker: &&RegisterWorker| worker.storage.iter().any(|(stored, _)| stored == id);
            let host = workers.iter().find(hosts);
            let alive = if let Some(worker) = host {
                missing.remove(id);
                known.present.insert(*id);
                let place = Place {
                    machine: worker.locality.machine.clone(),
                    zone: worker.locality.domain(written.config.domain).clone(),
                };
                known.places.insert(*id, place);
                true
            } else {
                // Where it was, or, if it was never seen, a place of its own.
                let own = Place {
                    machine: id.to_string(),
                    zone: id.to_string(),
                };
                known.places.entry(*id).or_insert(own);
                let since = *missing.entry(*id).or_insert(now);
                now.saturating_since(since) < patience
            };
            known
                .interfaces
                .insert(*id, Interface::new(record.address, *id));
            let unfit = host.is_some_and(|worker| {
                self.disk_stays_broken(*id, worker)
                    || placement::fitness(worker.class(), RoleKind::Storage).is_none()
                    || exclusion::is_excluded(worker, &written.excluded)
            });
            let wanted = alive && !unfit && record.engine == written.config.engine;
            let place = if wanted {
                known.places.get(id).cloned()
            } else {
                None
            };
            if place.is_some() {
                known.wanted.insert(*id);
            }
            let view = ServerView {
                alive,
                present: host.is_some(),
                place,
            };
            views.insert(*id, view);
        }
        missing.retain(|id, _| views.contains_key(id));
        let mut broken = self.on_broken_disks.borrow_mut();
        broken.retain(|id, _| views.contains_key(id));
        known.places.retain(|id, _| views.contains_key(id));
        views
    }

    /// A disk that does not work for a moment is waited for, as a server is that is away.
    fn disk_stays_broken(&self, id: Uid, worker: &RegisterWorker) -> bool {
        let now = plinth_runtime::now();
        let mut broken = self.on_broken_disks.borrow_mut();
        if !worker.has_broken_disk() {
            broken.remove(&id);
            return false;
        }
        let since = *broken.entry(id).or_insert(now);
        let patience = Duration::from_millis(knobs().storage_failure_ms);
        let stays = now.saturating_since(since) >= patience;
        if stays {
            probe!("distributor_drains_sick_disk");
        }
        stays
    }

    /// Asks somebody who holds it for the size of every shard.
    async fn measure(
        &self,
        shards: &[(KeyRange, ShardRecord)],
        servers: &BTreeMap<Uid, ServerView>,
    ) {
        let mut questions: BTreeMap<Uid, Vec<KeyRange>> = BTreeMap::new();
        for (range, record) in shards {
            let lives = |id: &&Uid| servers.get(id).is_some_and(|server| server.alive);
            if let Some(id) = record.team.iter().find(lives) {
                questions.entry(*id).or_default().push(range.clone());
            }
        }
        let parts = questions.iter().flat_map(|(id, ranges)| {
            let parts = ranges.chunks(RANGES_ASKED_MAX);
            parts.map(|part| (*id, part.to_vec()))
        });
        let asked: Vec<_> = parts
            .filter_map(|(id, ranges)| {
                let interface = *self.known.borrow().interfaces.get(&id)?;
                let request = GetRangeMetrics {
                    ranges: ranges.clone(),
                };
                let call = self
                    .transport
                    .call(&interface.endpoint::<GetRangeMetrics>(), request);
                Some(async move { (ranges, plinth_runtime::timeout(ANSWER_LIMIT, call).await) })
            })
            .collect();
        let answers = plinth_runtime::join_all(asked).await;
        let mut known = self.known.borrow_mut();
        let begins: BTreeSet<&Key> = shards.iter().map(|(range, _)| &range.begin).collect();
        known.sizes.retain(|begin, _| begins.contains(begin));
        for (ranges, answer) in answers {
            let Some(Ok(reply)) = answer else {
                trace!("ShardSizesUnknown", "shards" => ranges.len());
                continue;
            };
            for (range, metric) in ranges.into_iter().zip(reply.metrics) {
                known.sizes.insert(range.begin, (range.end, metric));
            }
        }
    }

    fn see_shards(&self, shards: &[(KeyRange, ShardRecord)]) -> Vec<ShardView> {
        let known = &mut *self.known.borrow_mut();
        let now = plinth_runtime::now();
        known.note_empty(shards, now);
        let mut unsplittable = self.unsplittable.borrow_mut();
        unsplittable.retain(|_, seen| now.saturating_since(*seen) < SPLIT_AGAIN);
        let view = |(range, record): &(KeyRange, ShardRecord)| {
            let size = known
                .sizes
                .get(&range.begin)
                .filter(|(end, _)| *end == range.end);
            ShardView {
                range: range.clone(),
                team: record.team.clone(),
                destination: record.destination.clone(),
                bytes: size.map_or(0, |(_, metric)| metric.bytes),
                write_bytes_a_second: size.map_or(0, |(_, metric)| metric.write_bytes_a_second),
                can_split: !unsplittable.contains_key(&range.begin),
                stays_empty: (known.empty.get(&range.begin))
                    .is_some_and(|since| now.saturating_since(*since) >= STAYS_EMPTY),
            }
        };
        shards.iter().map(view).collect()
    }

    /// Every process that suits has a storage server of the engine that is configured.
    fn wanted_recruit(&self, workers: &[RegisterWorker], written: &Written) -> Option<Recruitment> {
        let now = plinth_runtime::now();
        let mut refused = self.refused.borrow_mut();
        refused.retain(|_, at| now.saturating_since(*at) < ASK_AGAIN);
        let mut able: Vec<&RegisterWorker> = workers.iter().collect();
        able.retain(|worker| !exclusion::is_excluded(worker, &written.excluded));
        able.retain(|worker| worker.disk.is_none());
        let able = placement::suited_for_storage(able, &written.config);
        let engine = written.config.engine;
        let serves = |worker: &RegisterWorker| {
            let right = |id: &Uid| {
                let servers = &written.list.servers;
                servers
                    .iter()
                    .any(|(listed, record)| listed == id && record.engine == engine)
            };
            worker.storage.iter().any(|(id, _)| right(id))
        };
        // One that is only late is not replaced in its own house.
        let late = |worker: &RegisterWorker| {
            let hosts = |id: &Uid| worker.storage.iter().any(|(stored, _)| stored == id);
            let mut servers = written.list.servers.iter();
            servers.any(|(id, record)| record.address == worker.worker.address && !hosts(id))
        };
        let worker = able.into_iter().find(|worker| {
            !serves(worker) && !late(worker) && !refused.contains_key(&worker.worker.address)
        })?;
        Some(Recruitment {
            worker: worker.worker,
            engine,
            tag: written.list.next_tag,
        })
    }
}

impl Known {
    /// Shards whose size is not known are what they were.
    fn note_empty(&mut self, shards: &[(KeyRange, ShardRecord)], now: Instant) {
        let mut before = std::mem::take(&mut self.empty);
        for (range, _) in shards {
            let since = before.remove(&range.begin);
            let size = self.sizes.get(&range.begin);
            let size = size.filter(|(end, _)| *end == range.end);
            let is_empty = match size {
                Some((_, metric)) => metric.bytes == 0 && metric.write_bytes_a_second == 0,
                None => since.is_some(),
            };
            if is_empty {
                self.empty.insert(range.begin.clone(), since.unwrap_or(now));
            }
        }
    }
}

/// Servers that are gone or must go, and hold nothing.
fn to_remove(world: &World) -> Vec<Uid> {
    let servers = world.servers.iter();
    let mut over: BTreeSet<Uid> = servers
        .filter(|(_, server)| server.place.is_none())
        .map(|(id, _)| *id)
        .collect();
    for shard in &world.shards {
        if over.is_empty() {
            break;
        }
        for holder in shard.team.iter().chain(&shard.destination) {
            over.remove(holder);
        }
    }
    over.into_iter().collect()
}
