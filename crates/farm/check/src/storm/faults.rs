//! What fails in a storm. A run leaves out about half of the kinds, so that the others show their own effect.

use super::{Storm, some_ms};
use crate::Limits;
use plinth_runtime::sim::{Hang, KillKind, MachineId, ProcessId, Sickness, control};
use plinth_runtime::{Duration, now, random, sleep, trace};
use std::rc::Rc;

const DISTURBANCES: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Kill,
    /// Two at once, or one in the recovery from the other.
    KillTwo,
    Pause,
    /// A long turn of its event loop.
    Busy,
    CutOff,
    CutConnections,
    /// A clock runs at another rate, within its bounds.
    Drift,
    /// A clock shows another time: all processes of its host have to leave.
    Jump,
    /// The power of some hosts fails, or of all.
    PowerCut,
    /// A disk has no room for a while.
    FullDisk,
    /// A disk does not answer for a while. Its processes may end.
    HungDisk,
}

/// Each with its name, and how often it strikes relative to the others.
const KINDS: [(&str, u64, Kind); 11] = [
    ("kill_process", 4, Kind::Kill),
    ("kill_two", 1, Kind::KillTwo),
    ("pause_process", 1, Kind::Pause),
    ("busy_process", 1, Kind::Busy),
    ("partition", 1, Kind::CutOff),
    ("cut_connections", 1, Kind::CutConnections),
    ("clock_drift", 1, Kind::Drift),
    ("clock_jump", 2, Kind::Jump),
    (OF_DISKS[0], 6, Kind::PowerCut),
    (OF_DISKS[1], 2, Kind::FullDisk),
    (OF_DISKS[2], 1, Kind::HungDisk),
];
/// Only of durable clusters, and of all of them.
const OF_DISKS: [&str; 3] = ["power_cut", "disk_full", "disk_hangs"];

/// Names of the kinds that strike in the storm of a seed.
pub fn kinds(seed: u64, is_durable: bool, limits: &Limits) -> Vec<&'static str> {
    let draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let is_in = |at: usize, name: &str| match OF_DISKS.contains(&name) {
        true => is_durable,
        false => at == 0 || draw >> at & 1 == 0,
    };
    let all = KINDS.iter().map(|kind| kind.0).enumerate();
    let drawn = all.filter(|(at, name)| is_in(*at, name));
    let drawn = drawn.map(|(_, name)| name);
    let may_be = |name: &&str| {
        let only = limits.faults.as_ref();
        only.is_none_or(|only| only.iter().any(|one| one == name))
    };
    drawn.filter(may_be).collect()
}

/// Names of all kinds.
pub fn all_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.0)
}

fn draw(kinds: &[&str]) -> Option<Kind> {
    let of = || KINDS.iter().filter(|kind| kinds.contains(&kind.0));
    let mut pick = random::below(of().map(|kind| kind.1).sum::<u64>().max(1));
    for (_, weight, kind) in of() {
        match pick.checked_sub(*weight) {
            None => return Some(*kind),
            Some(less) => pick = less,
        }
    }
    None
}

pub struct Fleet {
    pub storm: Rc<Storm>,
    pub hosts: Vec<MachineId>,
    pub processes: Vec<ProcessId>,
}

impl Fleet {
    fn host(&self, machine: u16) -> usize {
        self.storm.hosts[usize::from(machine)]
    }

    /// The master, more often than any other.
    fn victim(&self) -> u16 {
        match self.storm.master() {
            Some(machine) if random::chance(0.3) => machine,
            _ => random::below(self.processes.len() as u64) as u16,
        }
    }

    fn kill(&self, machine: u16) {
        if !self.storm.may_kill(&[machine]) {
            return;
        }
        self.storm.world.count("kills");
        self.storm.end_life(machine);
        let after = match random::below(3) {
            0 => some_ms(3),
            _ => some_ms(150),
        };
        let kind = KillKind::RebootProcess { after };
        control().kill_process(self.processes[usize::from(machine)], kind);
    }

    /// From microseconds, which no answer of the master would show in time, to seconds; forward or back.
    fn jump(&self, host: usize) {
        let here = self.storm.on_host(host);
        if !self.storm.may_kill(&here) {
            return;
        }
        self.storm.world.count("jumps");
        *self.storm.jumps.borrow_mut().entry(host).or_default() += 1;
        for machine in here {
            if self.storm.node(machine).is_some() {
                self.storm.end_life(machine);
            }
        }
        let by: u64 = 5_000 << random::below(19);
        let by = (by + random::below(by)) as i64;
        let by = if random::chance(0.7) { by } else { -by };
        trace!("FaultClockJump", "host" => host, "ns" => by);
        control().jump_clock(self.hosts[host], by);
    }

    async fn cut_off(&self, host: usize) {
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            let (one, two) = (self.hosts[host], self.hosts[other]);
            match random::below(3) {
                0 => control().partition(one, two, true),
                1 => control().partition(one, two, false),
                _ => control().partition(two, one, false),
            }
        }
        sleep(some_ms(120)).await;
        control().heal_all();
    }

    /// What was not on disk is gone.
    fn power_cut(&self, host: usize) {
        self.storm.world.count("power cuts");
        let there = self.storm.on_host(host);
        there
            .into_iter()
            .for_each(|machine| self.storm.end_life(machine));
        control().power_cut(self.hosts[host]);
    }

    fn boot(&self, host: usize) {
        control().boot(self.hosts[host]);
        for machine in self.storm.on_host(host) {
            control().restart_process(self.processes[usize::from(machine)]);
        }
    }

    async fn cut_power(&self) {
        let hosts = self.hosts.len();
        let one = random::below(hosts as u64) as usize;
        let all: Vec<usize> = match random::chance(0.5) {
            true => (0..hosts).collect(),
            false => vec![one, (one + 1) % hosts],
        };
        for host in &all {
            self.power_cut(*host);
            if random::chance(0.3) {
                sleep(some_ms(100)).await;
            }
        }
        for host in all {
            sleep(some_ms(100)).await;
            self.boot(host);
        }
        sleep(some_ms(400)).await;
    }

    async fn disturb_once(&self, kind: Kind) {
        let machine = self.victim();
        let process = self.processes[usize::from(machine)];
        match kind {
            Kind::Kill => self.kill(machine),
            Kind::KillTwo => {
                self.kill(machine);
                sleep(some_ms(30)).await;
                self.kill(self.victim());
            }
            Kind::Pause => control().pause_process(process, some_ms(150)),
            Kind::Busy => control().busy_process(process, some_ms(100)),
            Kind::CutOff => self.cut_off(self.host(machine)).await,
            Kind::CutConnections => {
                let hosts = self.hosts.len() as u64;
                let (one, two) = (random::below(hosts), random::below(hosts));
                control().cut_connections(self.hosts[one as usize], self.hosts[two as usize]);
            }
            Kind::Drift => {
                let drift = random::below(999) as i64 - 499;
                control().set_clock_drift(self.hosts[self.host(machine)], drift);
            }
            Kind::Jump => self.jump(self.host(machine)),
            Kind::PowerCut => self.cut_power().await,
            Kind::FullDisk => {
                let host = self.hosts[self.host(machine)];
                control().set_disk_full(host, true);
                sleep(some_ms(100)).await;
                control().set_disk_full(host, false);
            }
            Kind::HungDisk => {
                let host = self.hosts[self.host(machine)];
                let hangs = match random::chance(0.5) {
                    true => Hang::Syncs,
                    false => Hang::Everything,
                };
                let sickness = Sickness {
                    hangs,
                    ..Sickness::default()
                };
                self.storm.world.count("hung disks");
                self.storm.hung.set(true);
                control().set_disk_sickness(host, sickness);
                sleep(some_ms(1500)).await;
                control().end_disk_sickness(host);
            }
        }
        sleep(some_ms(200)).await;
    }

    pub async fn blow(self, limits: &Limits) {
        let storm = &self.storm;
        let healed = || storm.is_healed().map(|_| ());
        let prepared = || match storm.is_prepared.get() {
            true => Ok(()),
            false => Err(healed().err().unwrap_or("it is healed".to_owned())),
        };
        if !storm.wait("it is not prepared", prepared).await {
            return;
        }
        let kinds = kinds(storm.world.seed, storm.world.is_durable, limits);
        let end = now() + Duration::from_secs(limits.seconds.unwrap_or(u64::MAX));
        for _ in 0..DISTURBANCES {
            if now() >= end {
                break;
            }
            if let Some(kind) = draw(&kinds) {
                self.disturb_once(kind).await;
            }
            if storm.is_lost() {
                return;
            }
        }
        control().heal_all();
        if !storm.wait("it does not heal", healed).await {
            return;
        }
        storm.world.is_calm.set(true);
        let is_over = || match storm.is_over.get() {
            true => Ok(()),
            false => Err(format!("{:?} are done", storm.done.borrow())),
        };
        if storm.wait("the work does not end", is_over).await
            && storm.wait("it does not stay healed", healed).await
        {
            storm.check_end().await;
        }
    }
}
