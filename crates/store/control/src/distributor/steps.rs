//! Carries out steps. Each is a task of its own, and changes only the system keyspace, apart from the recruitment of
//! servers.

use super::Distributor;
use super::observe::Recruitment;
use super::plan::Step;
use super::teams::Team;
use crate::{movement, recruit, singletons};
use plinth_core::codec::Codec;
use plinth_core::distribution::{DISTRIBUTION, MAINTENANCE, Maintenance, zone_key};
use plinth_core::key::KeyRange;
use plinth_core::system_keys::{NEXT_TAG, StorageServerRecord, server_list_key};
use plinth_core::{Error, Result, Tag, Uid};
use plinth_protocol::control::ServersChanged;
use plinth_protocol::storage::{GetSplitPoints, RecruitStorage};
use plinth_rpc::Interface;
use plinth_runtime::{Duration, probe, trace};
use std::future::Future;
use std::rc::Rc;

/// Interval at which a move checks whether its destination is still wanted.
const LOOK: Duration = Duration::from_secs(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const RECRUIT_LIMIT: Duration = Duration::from_secs(10);
/// Limit of boundaries that one step makes.
const SPLITS_MAX: usize = 20;

impl Distributor {
    /// Starts work on a range, unless there is work on it already.
    fn work_on<F: Future<Output = Result<()>> + 'static>(
        self: &Rc<Self>,
        range: &KeyRange,
        work: impl FnOnce(Rc<Self>) -> F,
    ) {
        if !self.busy.borrow_mut().insert(range.begin.clone()) {
            return;
        }
        let (distributor, begin) = (self.clone(), range.begin.clone());
        let work = work(self.clone());
        self.spawn("distribution step", async move {
            if let Err(error) = work.await {
                trace!("StepFailed", "begin" => plinth_core::key::printable(&begin), "error" => error);
                plinth_runtime::sleep(LOOK).await;
            }
            distributor.busy.borrow_mut().remove(&begin);
            distributor.done.notify_one();
        });
    }

    /// `bytes` is the size of what the step moves.
    pub(super) fn take_step(self: &Rc<Self>, step: Step, bytes: u64) {
        trace!("DistributionStep", "step" => format!("{step:?}"));
        match step {
            Step::Move {
                range, team, to, ..
            } => {
                self.work_on(&range.clone(), |d| async move {
                    d.run(async |tr| movement::start(tr, &range, &team, &to).await)
                        .await?;
                    trace!("MoveStarted", "range" => format!("{range:?}"));
                    d.moves.borrow_mut().begin(range.begin.clone(), bytes);
                    d.carry(&range, &team, &to).await
                });
            }
            Step::Split {
                range,
                holders,
                bytes,
                write_bytes_a_second,
            } => {
                let request = GetSplitPoints {
                    range: range.clone(),
                    bytes,
                    write_bytes_a_second,
                };
                self.work_on(&range, |d| async move { d.split(&holders, request).await });
            }
            Step::Merge { left, right } => {
                self.work_on(&left.clone(), |d| async move {
                    probe!("distributor_merges_shards");
                    d.run(async |tr| movement::merge(tr, &left, &right).await)
                        .await
                });
            }
        }
    }

    pub(super) fn continue_move(self: &Rc<Self>, range: KeyRange, team: Team, to: Team) {
        self.work_on(&range.clone(), |d| async move {
            probe!("distributor_continues_move");
            d.carry(&range, &team, &to).await
        });
    }

    /// Finishes a move that has been started. Cancels it if a destination server is no longer wanted.
    async fn carry(&self, range: &KeyRange, team: &[Uid], to: &[Uid]) -> Result<()> {
        loop {
            let fit = {
                let known = self.known.borrow();
                to.iter().all(|id| known.wanted.contains(id))
            };
            if !fit {
                probe!("distributor_gives_up_move");
                self.moves.borrow_mut().end(&range.begin, false);
                return self
                    .run(async |tr| movement::cancel(tr, range, team, to).await)
                    .await;
            }
            let interfaces: Vec<Interface> = {
                let known = self.known.borrow();
                to.iter()
                    .filter_map(|id| known.interfaces.get(id).copied())
                    .collect()
            };
            // Who is not asked could become the holder of what it does not have.
            assert_eq!(interfaces.len(), to.len(), "all of {to:?} are asked");
            let ready =
                movement::wait_until_ready(&self.database, &self.transport, range, &interfaces);
            match plinth_runtime::timeout(LOOK, ready).await {
                Some(ready) => ready?,
                None => {
                    // The move may have been ended elsewhere.
                    let (shard, record) = self
                        .run(async |tr| movement::shard_at(tr, &range.begin).await)
                        .await?;
                    if shard != *range || record.destination != to {
                        return Err(Error::operation_obsolete);
                    }
                    continue;
                }
            }
            probe!("distributor_moves_shard");
            trace!("MoveReady", "range" => format!("{range:?}"));
            self.run(async |tr| movement::finish(tr, range, team, to).await)
                .await?;
            self.moves.borrow_mut().end(&range.begin, true);
            return Ok(());
        }
    }

    async fn split(&self, holders: &[Uid], request: GetSplitPoints) -> Result<()> {
        let holder = {
            let known = self.known.borrow();
            let mut present = holders.iter().filter(|id| known.present.contains(id));
            present.find_map(|id| known.interfaces.get(id).copied())
        };
        let holder = holder.ok_or(Error::all_alternatives_failed)?;
        let begin = request.range.begin.clone();
        let call = self
            .transport
            .call(&holder.endpoint::<GetSplitPoints>(), request);
        let points = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
        let mut keys = points.unwrap_or(Err(Error::timed_out))?.keys;
        keys.truncate(SPLITS_MAX);
        if keys.is_empty() {
            // The shard has one row, or one that is written all the time.
            let now = plinth_runtime::now();
            self.unsplittable.borrow_mut().insert(begin, now);
            return Ok(());
        }
        probe!("distributor_splits_shard");
        self.run(async |tr| {
            for key in &keys {
                movement::split(tr, key).await?;
            }
            Ok(())
        })
        .await
    }

    /// Makes a storage server and adds it to the database.
    pub(super) fn recruit(self: &Rc<Self>, recruitment: Recruitment) {
        if self.recruiting.replace(true) {
            return;
        }
        let (distributor, address) = (self.clone(), recruitment.worker.address);
        self.spawn("recruit storage", async move {
            if let Err(error) = distributor.add_server(recruitment).await {
                trace!("StorageRecruitmentFailed", "address" => address, "error" => error);
                let now = plinth_runtime::now();
                distributor.refused.borrow_mut().insert(address, now);
                plinth_runtime::sleep(LOOK).await;
            }
            distributor.recruiting.set(false);
            distributor.done.notify_one();
        });
    }

    async fn add_server(&self, recruitment: Recruitment) -> Result<()> {
        let Recruitment {
            worker,
            engine,
            tag,
        } = recruitment;
        let id = recruit::new_id();
        // A later transaction gives it its tag, so its stream has nothing older than this version.
        let after = self.run(async |tr| tr.get_read_version().await).await?;
        let request = RecruitStorage {
            id,
            tag: Tag(tag),
            engine,
            after,
            cluster: self.cluster.clone(),
        };
        let call = recruit::ask(&self.transport, &worker, request);
        let made = plinth_runtime::timeout(RECRUIT_LIMIT, call).await;
        made.unwrap_or(Err(Error::recruitment_failed))?;
        let record = StorageServerRecord {
            address: worker.address,
            tag: Tag(tag),
            engine,
        };
        self.run(async |tr| {
            let list = singletons::read_servers(tr).await?;
            if list.servers.iter().any(|(listed, _)| *listed == id) {
                return Ok(()); // an earlier attempt did it
            }
            if list.next_tag != tag {
                return Err(Error::operation_obsolete);
            }
            tr.set(NEXT_TAG, (tag + 1).to_bytes());
            tr.set(server_list_key(id), record.to_bytes());
            Ok(())
        })
        .await?;
        probe!("distributor_adds_server");
        trace!("StorageAdded", "id" => id, "tag" => tag, "address" => worker.address);
        self.tell_controller();
        Ok(())
    }

    fn tell_controller(&self) {
        let endpoint = self.controller.endpoint::<ServersChanged>();
        drop(self.transport.call(&endpoint, ServersChanged {})); // it also checks by itself
    }

    /// Writes down in which zones servers are.
    pub(super) fn note_zones(self: &Rc<Self>, zones: Vec<(Uid, String)>) {
        let range = KeyRange::single(DISTRIBUTION);
        if zones.is_empty() {
            return;
        }
        self.work_on(&range, |d| async move {
            d.run(async |tr| {
                let list = singletons::read_servers(tr).await?;
                let is_listed = |id: &Uid| list.servers.iter().any(|(listed, _)| listed == id);
                for (id, zone) in zones.iter().filter(|(id, _)| is_listed(id)) {
                    tr.set(zone_key(*id), zone);
                }
                Ok(())
            })
            .await
        });
    }

    /// Removes the row of a maintenance that is over, unless it was changed meanwhile.
    pub(super) fn end_maintenance(self: &Rc<Self>, over: Maintenance) {
        self.work_on(&KeyRange::single(MAINTENANCE), |d| async move {
            d.run(async |tr| {
                let row = tr.get(MAINTENANCE, false).await?;
                if row.is_some_and(|row| row == over.to_bytes()) {
                    tr.clear(MAINTENANCE);
                }
                Ok(())
            })
            .await?;
            probe!("distributor_ends_maintenance");
            trace!("MaintenanceEnded", "zone" => over.zone);
            Ok(())
        });
    }

    /// Removes a server that holds no data from the database.
    pub(super) fn remove(self: &Rc<Self>, id: Uid) {
        let key = server_list_key(id);
        let range = KeyRange::single(&key);
        self.work_on(&range, |d| async move {
            d.run(async |tr| {
                let shards = movement::read_shards(tr).await?;
                let part = |record: &plinth_core::system_keys::ShardRecord| {
                    record.team.contains(&id) || record.destination.contains(&id)
                };
                if shards.iter().any(|(_, record)| part(record)) {
                    return Err(Error::operation_obsolete);
                }
                tr.clear(&key);
                tr.clear(zone_key(id));
                Ok(())
            })
            .await?;
            probe!("distributor_removes_server");
            trace!("StorageRemoved", "id" => id);
            d.tell_controller();
            Ok(())
        });
    }
}
