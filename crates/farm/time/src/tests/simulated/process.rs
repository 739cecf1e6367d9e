//! A process: a server, what moves its messages, who decides on configurations, and clients.

use super::oracle::World;
use super::post::{self, Post};
use super::some_ms;
use crate::{Bounds, Clock, Configuration, MemberId, Notice, Restored, Server, Settings};
use plinth_core::id::Uid;
use plinth_runtime::sim::{KillKind, control, current_process};
use plinth_runtime::{Duration, TaskGroup, net, random, sleep};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

const CLIENTS: u64 = 3;

const READING_NS: u64 = 400;

fn settings(drift_ppm: u32) -> Settings {
    Settings {
        bounds: Bounds {
            drift_ppm,
            reading_ns: READING_NS,
        },
        lease_ns: 20_000_000,
        sync_ns: 2_000_000,
        resend_ns: 3_000_000,
        origin: 1000,
    }
}

struct Process {
    world: Rc<World>,
    id: MemberId,
    clock: Clock,
    post: Post,
    is_outdated: Cell<bool>,
}

/// One life of a process.
pub async fn serve(world: Rc<World>, address: SocketAddr) {
    let id = Uid(random::uid());
    world.begin_life(id, address);
    let group = TaskGroup::new();
    let settings = settings(world.drift_ppm.get());
    let process = Rc::new(Process {
        clock: Clock::new(match world.restores.get() {
            true => Server::new(id, settings).restorable(),
            false => Server::new(id, settings),
        }),
        post: Post::new(world.clone(), id, group.clone()),
        world,
        id,
        is_outdated: Cell::new(true),
    });
    for _ in 0..CLIENTS {
        group.spawn("client", use_clock(process.clone()));
    }
    group.spawn("configure", configure(process.clone()));
    group.spawn("tick", tick(process.clone()));
    if random::chance(0.7) {
        group.spawn("mourn", mourn(process.clone()));
    }
    let mut listener = net::listen(address).await.expect("a free address");
    while let Ok((reader, _writer, _)) = listener.accept().await {
        let process = process.clone();
        group.spawn("receive", async move {
            let take = |from, message: crate::Message| {
                process.update(|server, now| server.receive(from, &message, now));
            };
            post::receive(reader, process.id, take).await;
        });
    }
}

impl Process {
    fn update<T>(&self, change: impl FnOnce(&mut Server, u64) -> T) -> T {
        let (changed, messages, notices) = self.clock.update(|server, now| {
            let changed = change(server, now);
            // Before anybody can hear of the master's time.
            self.note_time(server, now);
            (changed, server.take_messages(), server.take_notices())
        });
        for (to, message) in messages {
            self.post.send(to, &message);
        }
        for notice in notices {
            match notice {
                Notice::Outdated { .. } => self.is_outdated.set(true),
                Notice::Broken if self.world.may_break.get() => self.leave(),
                Notice::Broken => self.world.blame("an honest clock is called broken".into()),
                Notice::Drifting { .. } => (), // these clocks are far apart, and may be
            }
        }
        changed
    }

    /// As a process does whose clock is broken.
    fn leave(&self) {
        let after = some_ms(20);
        let kind = KillKind::RebootProcess { after };
        control().kill_process(current_process(), kind);
    }

    /// These wait no longer.
    fn welcome(&self, ids: &[MemberId]) {
        let mut waiting = self.world.waiting.borrow_mut();
        waiting.retain(|id| !ids.contains(id));
    }

    /// Proposes a configuration of these members to the register.
    async fn propose(&self, ids: &[MemberId]) {
        let Ok(proposed) = self.update(|server, now| server.propose(ids, now)) else {
            return;
        };
        self.put(&proposed, None).await;
    }

    async fn put(&self, proposed: &Configuration, restored: Option<Restored>) {
        sleep(some_ms(4)).await;
        let is_taken = self.world.compare_and_swap(proposed);
        if let Some(restored) = restored.filter(|_| is_taken) {
            self.world.note_restored(restored);
        }
        sleep(some_ms(4)).await;
        match is_taken {
            true => self.update(|server, now| server.taken(now)),
            false => {
                let current = self.world.read().expect("somebody was first");
                self.update(|server, now| server.lost(current, now));
            }
        }
    }

    /// Proposes to go on from the disks of those who have returned, if this one has.
    async fn restore(&self, present: &Configuration) {
        let (ids, newest) = self.world.returned(present);
        if !ids.contains(&self.id) || random::chance(0.9) {
            return;
        }
        let proposed = self.update(|server, now| server.propose_restored(&ids, newest, now));
        let Ok((proposed, restored)) = proposed else {
            return;
        };
        self.welcome(&ids);
        self.put(&proposed, Some(restored)).await;
    }

    /// Shows the judge what time it is here.
    fn show(&self, server: &mut Server, now: u64) {
        if let Ok(interval) = server.time(now) {
            let era = server.configuration().map_or(0, |c| c.era);
            self.world.check(era, interval);
        }
        self.note_time(server, now);
    }

    /// Shows the judge what time it is, if this is the master.
    fn note_time(&self, server: &mut Server, now: u64) {
        if !server.is_master() {
            return;
        }
        let era = server.configuration().map_or(0, |c| c.era);
        if let Ok(interval) = server.time(now) {
            // The master's clock is the time, and its readings are right but for the last nanosecond.
            self.world.note_master(era, interval.upper - READING_NS);
        }
    }

    fn configuration(&self) -> Option<Configuration> {
        self.update(|server, _| server.configuration().cloned())
    }

    /// Whom this server would have in the next configuration, if it would have one.
    fn wanted(&self) -> Option<Vec<MemberId>> {
        let Some(present) = self.configuration() else {
            return Some(self.world.everybody());
        };
        if random::chance(0.02) {
            // For no reason. The server must refuse it if it could do harm.
            let stays = |id: &MemberId| *id == self.id || random::chance(0.7);
            let ids = present.members.iter().map(|m| m.id);
            return Some(ids.filter(stays).collect());
        }
        let suspects = self.update(|server, now| {
            let mut suspects = server.suspects(now);
            let members = present.members.iter().map(|m| m.id);
            // The dead are left out of what is proposed for another reason, and sometimes forgotten.
            if !suspects.is_empty() && random::chance(0.8) {
                suspects.extend(members.filter(|id| server.is_dead(*id)));
            }
            suspects
        });
        let is_master = present.master == self.id;
        let joins = |id: &MemberId| is_master && !present.contains(*id);
        let waiting = self.world.waiting.borrow();
        let mut joining = waiting.iter().copied().filter(joins).peekable();
        if suspects.is_empty() && joining.peek().is_none() {
            return None;
        }
        let stay = present.members.iter().map(|m| m.id);
        let mut ids: Vec<MemberId> = stay.filter(|id| !suspects.contains(id)).collect();
        ids.extend(joining);
        if !is_master && ids.len() > 3 && random::chance(0.3) {
            // It may believe that somebody is gone who lives, and has a lease of the old master.
            let at = random::below(ids.len() as u64) as usize;
            if ids[at] != self.id {
                ids.remove(at);
            }
        }
        Some(ids)
    }
}

async fn tick(process: Rc<Process>) {
    loop {
        sleep(Duration::from_micros(500)).await;
        let knows = process.update(|server, now| {
            server.tick(now);
            process.show(server, now);
            server.knows_time()
        });
        let mut knowing = process.world.knowing.borrow_mut();
        match knows {
            true => knowing.insert(process.id),
            false => knowing.remove(&process.id),
        };
    }
}

/// Reports deaths as the host of a process would: truly, sooner or later, and not all of them.
async fn mourn(process: Rc<Process>) {
    loop {
        sleep(some_ms(8)).await;
        let Some(configuration) = process.configuration() else {
            continue;
        };
        for member in configuration.others() {
            if process.world.is_dead(member.id) && random::chance(0.4) {
                process.update(|server, now| server.died(member.id, now));
            }
        }
        let master = configuration.master;
        if process.world.is_dead(master) && random::chance(0.4) {
            process.update(|server, now| server.died(master, now));
        }
    }
}

/// Decides on configurations, and follows the register.
async fn configure(process: Rc<Process>) {
    loop {
        sleep(some_ms(5)).await;
        let is_member = process.update(|server, _| server.is_member());
        if process.is_outdated.take() || (!is_member && random::chance(0.2)) {
            sleep(some_ms(3)).await;
            if let Some(current) = process.world.read() {
                process.update(|server, now| server.learn(current, now));
            }
        }
        if let Some(restored) = process.world.restored() {
            process.update(|server, _| server.learn_restored(restored));
        }
        let configuration = process.configuration();
        let is_member = configuration
            .as_ref()
            .is_some_and(|c| c.contains(process.id));
        {
            let mut waiting = process.world.waiting.borrow_mut();
            match is_member || configuration.is_none() {
                true => waiting.remove(&process.id),
                false => waiting.insert(process.id),
            };
        }
        if !(is_member || configuration.is_none()) {
            if let Some(present) = configuration.filter(|_| process.world.restores.get()) {
                process.restore(&present).await;
            }
            continue;
        }
        if let Some(ids) = process.wanted() {
            process.welcome(&ids);
            process.propose(&ids).await;
        }
    }
}

/// Takes timestamps.
async fn use_clock(process: Rc<Process>) {
    let mut floor = 0;
    loop {
        sleep(some_ms(3)).await;
        let above = process.world.begin();
        let Ok(timestamp) = process.clock.timestamp().await else {
            return;
        };
        process.world.end(above, timestamp);
        if random::chance(0.1) {
            let Ok(lower) = process.clock.non_strict().await else {
                return;
            };
            if lower < floor {
                let blame = format!("the lower bound {lower} comes after {floor}");
                process.world.blame(blame);
            }
            floor = lower;
        }
    }
}
