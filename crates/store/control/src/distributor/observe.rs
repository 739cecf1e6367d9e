//! The distributor's view: the map and the server list in the system keyspace, the live workers, and sizes.

use super::Distributor;
use super::lags::Log;
use super::plan::{self, ServerView, ShardView, World};
use super::sizes::Sizes;
use super::teams::Place;
use crate::configured::Configured;
use crate::knobs::STORAGE_FAILURE_MS;
use crate::movement::{self, SHARDS_A_LOOK};
use crate::placement::{self, RoleKind};
use crate::replica::Lag;
use crate::{distribution, exclusion, singletons};
use plinth_core::distribution::{Distribution, Maintenance};
use plinth_core::key::KeyRange;
use plinth_core::system_keys::{ServerList, ShardRecord};
use plinth_core::{DatabaseConfig, EngineKind, Error, Result, Uid, Version};
use plinth_protocol::control::{ClusterInfo, GetWorkers, RegisterWorker};
use plinth_protocol::storage::GetRangeMetrics;
use plinth_rpc::Interface;
use plinth_runtime::{Duration, Instant, Pace, probe, trace};
use std::collections::{BTreeMap, BTreeSet};

const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Ranges in one request. A key may have 10,000 bytes.
const RANGES_ASKED_MAX: usize = 1000;

/// A shard that could not be split is not tried again for this long.
const SPLIT_AGAIN: Duration = Duration::from_secs(60);

/// A worker that failed to make a storage server is not asked again for this long.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Knowledge that is kept from one look to the next.
#[derive(Default)]
pub(super) struct Known {
    pub interfaces: BTreeMap<Uid, Interface>,
    /// Servers that answer.
    pub present: BTreeSet<Uid>,
    /// Servers that may have data.
    pub wanted: BTreeSet<Uid>,
    places: BTreeMap<Uid, Place>,
    /// The maintenance of the last look, and since when it has been known.
    maintenance: Option<(Maintenance, Instant)>,
}

pub(super) struct Recruitment {
    pub worker: Interface,
    pub engine: EngineKind,
    pub tag: u32,
}

pub(super) struct Observed {
    pub world: World,
    pub recruit: Option<Recruitment>,
    /// Operators have switched data distribution off.
    pub is_off: bool,
    /// Zones in which servers are, where the system keyspace says something else.
    pub zones: Vec<(Uid, String)>,
    /// A maintenance that is over.
    pub over: Option<Maintenance>,
}

/// Rows read from the system keyspace.
struct Written {
    config: DatabaseConfig,
    list: ServerList,
    shards: Vec<(KeyRange, ShardRecord)>,
    excluded: Vec<exclusion::Target>,
    distribution: Distribution,
    /// It was committed before the rows were read.
    version: Version,
}

impl Written {
    /// The zone in which a server is, or was when it was seen last.
    fn zone_of<'a>(&'a self, id: &Uid, host: Option<&'a RegisterWorker>) -> Option<&'a String> {
        let now = host.map(|worker| &worker.locality.zone);
        now.or_else(|| self.distribution.zones.get(id))
    }
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
                    distribution: distribution::read_in(tr).await?,
                    list: singletons::read_servers(tr).await?,
                    shards: movement::read_shards(tr).await?,
                    version: tr.get_read_version().await?,
                })
            })
            .await?;
        let now_ms = plinth_runtime::unix_time_ms();
        let over = self.maintenance_over(&written, now_ms);
        let maintained = written.distribution.maintained(now_ms);
        let maintained = maintained.filter(|_| over.is_none());
        let zone = maintained.map(|maintenance| &maintenance.zone);
        let versions = self.hear_versions(&workers).await;
        let servers = self.see_servers(&workers, &written, zone, &versions);
        let zones = Self::new_zones(&workers, &written);
        let recruit = self.wanted_recruit(&workers, &written);
        let mut pace = Pace::new();
        let sizes = self.measure(&written.shards, &servers, &mut pace).await;
        let shards = self.see_shards(written.shards, &sizes, &mut pace).await;
        self.sizes.replace(sizes);
        let mut world = World {
            replication: written.config.replication as usize,
            shards,
            servers,
            may_balance: !written.distribution.no_balance,
        };
        self.replace_the_late(&mut world);
        Ok(Observed {
            world,
            recruit,
            is_off: written.distribution.is_off(),
            zones,
            over,
        })
    }

    /// Takes away the places of servers that are far behind, as far as there is a choice. They hold what they have
    /// until others have it. Where there is no choice, one trouble may hold all of them back: when that ends, they
    /// have time to catch up, each at its own pace.
    fn replace_the_late(&self, world: &mut World) {
        let (mut known, mut lags) = (self.known.borrow_mut(), self.lags.borrow_mut());
        let replaced = plan::to_replace(world);
        for id in plan::held_back(world) {
            lags.forgive(&id, plinth_runtime::now());
        }
        for id in replaced {
            probe!("distributor_replaces_a_lagging_server");
            known.wanted.remove(&id);
            if let Some(server) = world.servers.get_mut(&id) {
                server.place = None;
            }
        }
    }

    /// Zones that the system keyspace does not have, of servers that are there. A distributor that has never seen a
    /// server must know its zone.
    fn new_zones(workers: &[RegisterWorker], written: &Written) -> Vec<(Uid, String)> {
        let servers = written.list.servers.iter().filter_map(|(id, _)| {
            let zone = &host_of(workers, id)?.locality.zone;
            let known = written.distribution.zones.get(id);
            (known != Some(zone)).then(|| (*id, zone.clone()))
        });
        servers.collect()
    }

    /// The maintenance that is over: its time has passed, or a server outside of its zone has failed since.
    fn maintenance_over(&self, written: &Written, now_ms: u64) -> Option<Maintenance> {
        let mut known = self.known.borrow_mut();
        let Some(maintenance) = written.distribution.maintenance.clone() else {
            known.maintenance = None;
            return None;
        };
        let since = match &known.maintenance {
            Some((same, since)) if *same == maintenance => *since,
            _ => plinth_runtime::now(),
        };
        known.maintenance = Some((maintenance.clone(), since));
        let (now, patience) = (plinth_runtime::now(), storage_patience());
        let missing = self.missing.borrow();
        let failed_elsewhere = missing.iter().any(|(id, gone)| {
            let zone = written.zone_of(id, None);
            zone != Some(&maintenance.zone)
                && *gone >= since
                && now.saturating_since(*gone) >= patience
        });
        let known_ms = now.saturating_since(since).as_millis() as u64;
        let is_over = maintenance.is_over(now_ms, known_ms) || failed_elsewhere;
        is_over.then_some(maintenance)
    }

    fn see_servers(
        &self,
        workers: &[RegisterWorker],
        written: &Written,
        maintained: Option<&String>,
        versions: &BTreeMap<Uid, Version>,
    ) -> BTreeMap<Uid, ServerView> {
        let now = plinth_runtime::now();
        let log = self.log_at(written.version);
        let patience = storage_patience();
        let (mut known, mut missing) = (self.known.borrow_mut(), self.missing.borrow_mut());
        let mut views = BTreeMap::new();
        known.interfaces.clear();
        known.present.clear();
        known.wanted.clear();
        for (id, record) in &written.list.servers {
            let host = host_of(workers, id);
            let is_waited_for = written.distribution.no_healing
                || maintained.is_some() && written.zone_of(id, host) == maintained;
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
                // The last known place, or, if the server was never seen, a place of its own.
                let own = Place {
                    machine: id.to_string(),
                    zone: id.to_string(),
                };
                known.places.entry(*id).or_insert(own);
                let since = *missing.entry(*id).or_insert(now);
                is_waited_for || now.saturating_since(since) < patience
            };
            known
                .interfaces
                .insert(*id, Interface::new(record.address, *id));
            let unfit = host.is_some_and(|worker| self.is_unfit(id, worker, written));
            let wanted = alive && !unfit && record.engine == written.config.engine;
            let place = known.places.get(id).filter(|_| wanted).cloned();
            if place.is_some() {
                known.wanted.insert(*id);
            }
            let lag = self.lag_of(*id, versions.get(id).copied(), &log, is_waited_for);
            let view = ServerView {
                alive,
                present: host.is_some(),
                place,
                lag,
                is_damaged: host.is_some_and(|worker| worker.is_damaged(id)),
                advances: self.lags.borrow().advances(id),
            };
            views.insert(*id, view);
        }
        missing.retain(|id, _| views.contains_key(id));
        let mut broken = self.on_broken_disks.borrow_mut();
        broken.retain(|id, _| views.contains_key(id));
        known.places.retain(|id, _| views.contains_key(id));
        let mut lags = self.lags.borrow_mut();
        lags.retain(|id| views.contains_key(id));
        views
    }

    fn is_unfit(&self, id: &Uid, worker: &RegisterWorker, written: &Written) -> bool {
        // It gets no more data, and gives away what it can; files of the past give nothing.
        let is_older = worker.older.iter().any(|copy| copy.id == *id);
        is_older
            || worker.is_damaged(id)
            || self.disk_stays_broken(*id, worker)
            || placement::fitness(worker.class(), RoleKind::Storage).is_none()
            || exclusion::is_excluded(worker, &written.excluded)
    }

    /// The log as this process knows it. Before it does, nobody is behind.
    fn log_at(&self, newest: Version) -> Option<Log> {
        let system = |info: &Option<ClusterInfo>| info.as_ref().map(|info| info.log_system.clone());
        let system = self.info.with(system)?;
        Some(Log { system, newest })
    }

    /// One that is waited for is not replaced.
    fn lag_of(
        &self,
        id: Uid,
        heard: Option<Version>,
        log: &Option<Log>,
        is_waited_for: bool,
    ) -> Lag {
        let Some(log) = log else {
            return Lag::KeepsUp;
        };
        let now = plinth_runtime::now();
        match self.lags.borrow_mut().see(id, heard, log, now) {
            Lag::Late if is_waited_for => Lag::Suspect,
            lag => lag,
        }
    }

    /// True if the disk has been broken for a while. A disk that fails for a moment is waited for, like a server that
    /// is away.
    fn disk_stays_broken(&self, id: Uid, worker: &RegisterWorker) -> bool {
        let now = plinth_runtime::now();
        let mut broken = self.on_broken_disks.borrow_mut();
        if !worker.has_broken_disk() {
            broken.remove(&id);
            return false;
        }
        let since = *broken.entry(id).or_insert(now);
        let patience = Duration::from_millis(STORAGE_FAILURE_MS.get());
        let stays = now.saturating_since(since) >= patience;
        if stays {
            probe!("distributor_drains_sick_disk");
        }
        stays
    }

    /// Asks one holder of each shard for its size.
    async fn measure(
        &self,
        shards: &[(KeyRange, ShardRecord)],
        servers: &BTreeMap<Uid, ServerView>,
        pace: &mut Pace,
    ) -> Sizes {
        let mut sizes = self.sizes.take();
        sizes.follow(shards, pace).await;
        let mut questions: BTreeMap<Uid, Vec<usize>> = BTreeMap::new();
        for (number, (_, record)) in shards.iter().enumerate() {
            if number.is_multiple_of(SHARDS_A_LOOK) {
                pace.rest_if_over().await;
            }
            if let Some(id) = who_answers(&record.team, servers) {
                questions.entry(*id).or_default().push(number);
            }
        }
        let mut asked = Vec::new();
        for (id, numbers) in &questions {
            for part in numbers.chunks(RANGES_ASKED_MAX) {
                pace.rest_if_over().await;
                let known = self.known.borrow().interfaces.get(id).copied();
                let Some(interface) = known else { continue };
                let ranges = part.iter().map(|number| shards[*number].0.clone());
                let request = GetRangeMetrics {
                    ranges: ranges.collect(),
                };
                let endpoint = interface.endpoint::<GetRangeMetrics>();
                let call = self.transport.call(&endpoint, request);
                let answer = plinth_runtime::timeout(ANSWER_LIMIT, call);
                asked.push(async move { (part, answer.await) });
            }
        }
        for (part, answer) in plinth_runtime::join_all(asked).await {
            let Some(Ok(reply)) = answer else {
                trace!("ShardSizesUnknown", "shards" => part.len());
                continue;
            };
            for (number, metric) in part.iter().zip(reply.metrics) {
                sizes.learn(*number, metric);
            }
        }
        sizes.note_empty(plinth_runtime::now());
        sizes
    }

    async fn see_shards(
        &self,
        shards: Vec<(KeyRange, ShardRecord)>,
        sizes: &Sizes,
        pace: &mut Pace,
    ) -> Vec<ShardView> {
        let now = plinth_runtime::now();
        let is_recent = |seen: &Instant| now.saturating_since(*seen) < SPLIT_AGAIN;
        (self.unsplittable.borrow_mut()).retain(|_, seen| is_recent(seen));
        let mut views = Vec::with_capacity(shards.len());
        for (number, (range, record)) in shards.into_iter().enumerate() {
            if number.is_multiple_of(SHARDS_A_LOOK) {
                pace.rest_if_over().await;
            }
            let metric = sizes.metric(number);
            views.push(ShardView {
                can_split: !self.unsplittable.borrow().contains_key(&range.begin),
                range,
                team: record.team,
                destination: record.destination,
                bytes: metric.map_or(0, |metric| metric.bytes),
                write_bytes_a_second: metric.map_or(0, |metric| metric.write_bytes_a_second),
                stays_empty: sizes.stays_empty(number, now),
            });
        }
        views
    }

    /// The next storage server to recruit. Every suitable process should have one with the configured engine.
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
            let mut whole = worker.storage.iter();
            whole.any(|(id, _)| right(id) && !worker.is_damaged(id))
        };
        // If a listed server at this address is only late, the worker does not get another one in its place. One that
        // is damaged is not late: what it can still give is given to its successor.
        let late = |worker: &RegisterWorker| {
            let hosts = |id: &Uid| {
                let mut stored = worker.storage.iter();
                worker.is_damaged(id) || stored.any(|(stored, _)| stored == id)
            };
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

/// A server that is away for longer has failed.
fn storage_patience() -> Duration {
    Duration::from_millis(STORAGE_FAILURE_MS.get())
}

/// The process that has a storage server.
fn host_of<'a>(workers: &'a [RegisterWorker], id: &Uid) -> Option<&'a RegisterWorker> {
    let hosts = |worker: &&RegisterWorker| worker.storage.iter().any(|(stored, _)| stored == id);
    workers.iter().find(hosts)
}

/// The first server of the team that answers. One that is only waited for does not.
fn who_answers<'a>(team: &'a [Uid], servers: &BTreeMap<Uid, ServerView>) -> Option<&'a Uid> {
    let answers = |id: &&Uid| servers.get(id).is_some_and(|server| server.present);
    team.iter().find(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_waited_for_is_not_asked_for_sizes() {
        let away = ServerView {
            alive: true,
            ..ServerView::default()
        };
        let there = ServerView {
            present: true,
            ..away.clone()
        };
        let servers = BTreeMap::from([(Uid(1), away), (Uid(2), there)]);
        assert_eq!(who_answers(&[Uid(1), Uid(2)], &servers), Some(&Uid(2)));
        assert_eq!(who_answers(&[Uid(3), Uid(1)], &servers), None);
    }
}
