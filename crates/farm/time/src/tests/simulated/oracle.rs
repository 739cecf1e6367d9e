//! What stands outside the machines: the coordinators' register, who lives where, and the judge of timestamps.

use crate::{Configuration, Interval, MemberId, Restored};
use plinth_runtime::sim::control;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

#[derive(Default)]
pub struct World {
    register: RefCell<Option<Configuration>>,
    /// The lives that processes have begun.
    lives: RefCell<BTreeMap<MemberId, SocketAddr>>,
    /// Those that want to be members.
    pub waiting: RefCell<BTreeSet<MemberId>>,
    /// Those that may take the time over.
    pub knowing: RefCell<BTreeSet<MemberId>>,
    /// A server whose clock is called broken is no violation: a planted fault may be noticed so.
    pub may_break: Cell<bool>,
    /// How far a clock is from true time at most, and how far from another.
    pub rate_max_ppm: Cell<i64>,
    pub drift_ppm: Cell<u32>,
    /// Probability that a message is lost.
    pub loss: Cell<f64>,
    /// The highest timestamp of a call that has ended.
    highest: Cell<u64>,
    /// Of each era, a true time and what the master's time was then.
    times: RefCell<BTreeMap<u64, (u64, u64)>>,
    timestamps: Cell<u64>,
    /// Processes find the disks of their former lives, and restore the cluster from them.
    pub restores: Cell<bool>,
    /// Where each life was.
    homes: RefCell<BTreeMap<MemberId, SocketAddr>>,
    /// Of each address, what the master's time was when a life there ended.
    disks: RefCell<BTreeMap<SocketAddr, u64>>,
    restored: RefCell<Vec<Restored>>,
    masters: Cell<u64>,
    violation: RefCell<Option<String>>,
}

impl World {
    pub fn begin_life(&self, id: MemberId, address: SocketAddr) {
        let mut lives = self.lives.borrow_mut();
        lives.retain(|_, at| *at != address);
        lives.insert(id, address);
        self.homes.borrow_mut().insert(id, address);
        self.waiting
            .borrow_mut()
            .retain(|id| lives.contains_key(id));
    }

    pub fn address(&self, id: MemberId) -> Option<SocketAddr> {
        self.lives.borrow().get(&id).copied()
    }

    /// The process at the address has been killed.
    pub fn end_life(&self, address: SocketAddr) {
        self.lives.borrow_mut().retain(|_, at| *at != address);
        let now = control().elapsed().as_nanos() as u64;
        let times = self.times.borrow();
        if let Some((at, time)) = times.values().last() {
            let passed = now - at;
            let error = passed * self.rate_max_ppm.get() as u64 / 1_000_000 + 3;
            let mut disks = self.disks.borrow_mut();
            let newest = disks.entry(address).or_default();
            *newest = (*newest).max(time + passed + error);
        }
    }

    // ---- restores ----

    /// Those who wait where dead members of the configuration have been, and the newest time on their disks.
    pub fn returned(&self, former: &Configuration) -> (Vec<MemberId>, u64) {
        let (homes, lives, disks) = (
            self.homes.borrow(),
            self.lives.borrow(),
            self.disks.borrow(),
        );
        let home = |id: MemberId| homes.get(&id).filter(|_| !lives.contains_key(&id));
        let of_members: BTreeSet<_> = former.members.iter().filter_map(|m| home(m.id)).collect();
        let waiting = self.waiting.borrow();
        let returned = lives
            .iter()
            .filter(|(id, at)| waiting.contains(id) && of_members.contains(at));
        let (ids, at): (Vec<MemberId>, Vec<SocketAddr>) =
            returned.map(|(id, at)| (*id, *at)).unzip();
        let newest = at.iter().filter_map(|at| disks.get(at).copied()).max();
        (ids, newest.unwrap_or(0))
    }

    pub fn restored(&self) -> Option<Restored> {
        self.restored.borrow().last().copied()
    }

    pub fn restores(&self) -> usize {
        self.restored.borrow().len()
    }

    /// The register has taken a restored configuration.
    pub fn note_restored(&self, restored: Restored) {
        let before = self.restored().map_or(0, |before| before.origin);
        if restored.origin < before {
            self.blame(format!("{restored:?} goes back behind {before}"));
        }
        self.restored.borrow_mut().push(restored);
    }

    /// The life has ended. It may be known later than it happened.
    pub fn is_dead(&self, id: MemberId) -> bool {
        !self.lives.borrow().contains_key(&id)
    }

    pub fn everybody(&self) -> Vec<MemberId> {
        self.lives.borrow().keys().copied().collect()
    }

    pub fn read(&self) -> Option<Configuration> {
        self.register.borrow().clone()
    }

    /// Takes the configuration if it follows what the register holds.
    pub fn compare_and_swap(&self, proposed: &Configuration) -> bool {
        let register = &mut *self.register.borrow_mut();
        let number = register.as_ref().map_or(0, |held| held.number);
        let fits = proposed.number == number + 1;
        if fits {
            if register
                .as_ref()
                .is_none_or(|held| held.era != proposed.era)
            {
                self.masters.set(self.masters.get() + 1);
            }
            *register = Some(proposed.clone());
        }
        fits
    }

    /// Where the master lives.
    pub fn master(&self) -> Option<SocketAddr> {
        let register = self.register.borrow();
        register.as_ref().and_then(|held| self.address(held.master))
    }

    /// Somebody who is not at this address may take the time over.
    pub fn is_known_beside(&self, address: SocketAddr) -> bool {
        let (register, lives) = (self.register.borrow(), self.lives.borrow());
        let lives_elsewhere = |id| lives.get(id).is_some_and(|at| *at != address);
        let is_member = |id| register.as_ref().is_some_and(|held| held.contains(id));
        let knowing = self.knowing.borrow();
        let mut others = knowing.iter().filter(|id| lives_elsewhere(id));
        others.any(|id| is_member(*id))
    }

    // ---- the judge ----

    /// A call begins. Its timestamp must be above those of all calls that have ended.
    pub fn begin(&self) -> u64 {
        self.highest.get()
    }

    pub fn end(&self, above: u64, timestamp: u64) {
        if timestamp <= above {
            self.blame(format!(
                "{timestamp} comes after {above}, whose call had ended before"
            ));
        }
        self.highest.set(self.highest.get().max(timestamp));
        self.timestamps.set(self.timestamps.get() + 1);
    }

    /// The master's time of an era is `time` now.
    pub fn note_master(&self, era: u64, time: u64) {
        let at = control().elapsed().as_nanos() as u64;
        self.times.borrow_mut().insert(era, (at, time));
    }

    /// An interval of this era was read now. It must contain what the master's time can be.
    pub fn check(&self, era: u64, interval: Interval) {
        let now = control().elapsed().as_nanos() as u64;
        let times = self.times.borrow();
        let Some((at, time)) = times.get(&era) else {
            return;
        };
        let passed = now - at;
        // What the clock is wrong by since then, and two roundings.
        let error = passed * self.rate_max_ppm.get() as u64 / 1_000_000 + 3;
        let time = time + passed;
        if interval.lower > time + error || interval.upper + error < time {
            self.blame(format!("{interval:?} is not around {time} ± {error}"));
        }
    }

    pub fn blame(&self, violation: String) {
        self.violation.borrow_mut().get_or_insert(violation);
    }

    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    pub fn timestamps(&self) -> u64 {
        self.timestamps.get()
    }

    pub fn masters(&self) -> u64 {
        self.masters.get()
    }
}
