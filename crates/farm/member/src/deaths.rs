//! Which members of this host are dead. The kernel tells when the process of one ends. Then the locks are looked at.

use crate::core::Core;
use crate::record::{Record, Seat};
use crate::register::Register;
use plinth_farm_fabric::Fabric;
use plinth_farm_time::MemberId;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Task, join_all, race, sleep, spawn, trace};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Between two looks if nobody is heard to end: a machine may end before its process does.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Deaths<F, R> {
    core: Rc<Core<F, R>>,
    /// Between two looks at one that the kernel cannot watch.
    step: Duration,
    /// Those whose processes are watched.
    watched: BTreeMap<MemberId, Task<()>>,
    /// One of these processes may have ended.
    ended: Notify,
}

impl<F: Fabric + 'static, R: Register + 'static> Deaths<F, R> {
    pub fn new(core: &Rc<Core<F, R>>, step: Duration) -> Deaths<F, R> {
        Deaths {
            core: core.clone(),
            step,
            watched: BTreeMap::new(),
            ended: Notify::new(),
        }
    }

    /// Runs until the member leaves.
    pub async fn run(mut self) {
        while !self.core.has_left() {
            let (ended, news) = (self.ended.notified(), self.core.news.notified());
            let record = self.core.record();
            let living = self.look(&record).await;
            self.watch(living);
            race(race(ended, news), sleep(LOOK)).await;
        }
    }

    /// The master asks for all members of its host, the others for the master, and for all when it is gone. Returns
    /// those that live.
    async fn look<'a>(&self, record: &'a Record) -> Vec<&'a Seat> {
        let core = &self.core;
        let (is_master, master) = core.update(|server, _| {
            let master = server.configuration().map(|c| c.master);
            (server.is_master(), master)
        });
        let near = record.machines.iter();
        let near = near.filter(|seat| core.life.is_near(seat) && seat.id != core.id());
        let (masters, others): (Vec<&Seat>, Vec<&Seat>) =
            near.partition(|seat| Some(seat.id) == master);
        let (mut living, mut dead) = self.judge(masters).await;
        // Who cannot go on in a durable cluster must know whether to wait for somebody.
        let is_stuck = record.cluster.is_durable
            && core.update(|server, now| !server.suspects(now).is_empty());
        if is_master || is_stuck || !dead.is_empty() {
            let (more_living, more_dead) = self.judge(others).await;
            living.extend(more_living);
            dead.extend(more_dead);
        }
        let news: Vec<MemberId> = core.update(|server, now| {
            let news = dead.into_iter().map(|seat| seat.id);
            let news: Vec<MemberId> = news.filter(|id| !server.is_dead(*id)).collect();
            news.iter().for_each(|id| server.died(*id, now));
            news
        });
        if !news.is_empty() {
            trace!("FarmMembersDead", "count" => news.len(), "number" => record.number());
            core.kick.notify_all();
        }
        living
    }

    /// The living, and the dead.
    async fn judge<'a>(&self, seats: Vec<&'a Seat>) -> (Vec<&'a Seat>, Vec<&'a Seat>) {
        let are_over = seats.iter().map(|seat| self.core.life.is_over(seat));
        let are_over = join_all(are_over.collect::<Vec<_>>()).await;
        let judged: Vec<(&Seat, bool)> = seats.into_iter().zip(are_over).collect();
        let of = |wanted: bool| {
            let those = judged.iter().filter(move |(_, is_over)| *is_over == wanted);
            those.map(|(seat, _)| *seat).collect()
        };
        (of(false), of(true))
    }

    /// Watches the processes of these, and of no others.
    fn watch(&mut self, seats: Vec<&Seat>) {
        let is_wanted = |id: &MemberId| seats.iter().any(|seat| seat.id == *id);
        self.watched.retain(|id, _| is_wanted(id));
        for seat in seats {
            let (core, ended, step) = (self.core.clone(), self.ended.clone(), self.step);
            let machine = seat.machine;
            self.watched.entry(seat.id).or_insert_with(|| {
                spawn("member watch", async move {
                    loop {
                        // If it cannot be watched, it is looked at again and again.
                        let _ = core.life.ends(machine).await;
                        ended.notify_all();
                        sleep(step).await;
                    }
                })
            });
        }
    }
}
