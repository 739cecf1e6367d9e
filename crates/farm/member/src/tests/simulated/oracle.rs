//! What stands outside the processes: the register, who lives, and the judge.

use super::disks::Disks;
use super::{MACHINES, Shown, some_ms};
use crate::{LocalRegister, Record, Register, View, is_lost};
use plinth_core::Error;
use plinth_farm_time::{Interval, MemberId};
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, random, sleep};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Default)]
pub struct World {
    register: LocalRegister,
    /// Swaps that are under way, and what became of those that were.
    under_way: RefCell<Vec<Record>>,
    outcomes: RefCell<Vec<(Record, bool)>>,
    /// All that the register has had, by revision.
    history: RefCell<BTreeMap<u64, Record>>,
    /// The lives of machines.
    lives: RefCell<BTreeMap<u16, MemberId>>,
    /// Those that may take the time over.
    knowing: RefCell<BTreeSet<MemberId>>,
    /// What lives have reported as whole.
    reported: RefCell<BTreeSet<(MemberId, u16)>>,
    /// Configurations in which somebody could not go on.
    asked: RefCell<BTreeSet<u64>>,
    pub anews: Cell<u64>,
    /// The last configuration before which each machine has closed the former one.
    closed: RefCell<BTreeMap<u16, u64>>,
    /// The newest view of each machine.
    views: RefCell<BTreeMap<u16, View>>,
    /// Of each era, a true time and what the master's time was then.
    times: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// Intervals that were narrower than any message could make them.
    pub narrow: Cell<u64>,
    pub calm: Cell<bool>,
    highest: Cell<u64>,
    timestamps: Cell<u64>,
    pub wholes: Cell<u64>,
    pub is_over: Cell<bool>,
    violation: RefCell<Option<String>>,
    pub disks: Disks,
    pub replication: Cell<u8>,
}

/// Lets swaps reach the register, also those of processes that have died meanwhile.
pub async fn land(world: Rc<World>) {
    loop {
        sleep(some_ms(2)).await;
        if world.under_way.borrow().is_empty() {
            continue;
        }
        let at = random::below(world.under_way.borrow().len() as u64) as usize;
        let next = world.under_way.borrow_mut().remove(at);
        let is_taken = world.take(&next);
        world.outcomes.borrow_mut().push((next, is_taken));
    }
}

impl World {
    // ---- the register ----

    fn take(&self, next: &Record) -> bool {
        let before = self.held();
        if before.as_ref() == Some(next) {
            return true;
        }
        let fits = before.as_ref().map_or(0, |held| held.revision) + 1 == next.revision;
        if fits {
            self.judge_record(before.as_ref(), next);
            self.register.put(next.clone());
            self.history
                .borrow_mut()
                .insert(next.revision, next.clone());
        }
        fits
    }

    pub fn held(&self) -> Option<Record> {
        self.register.held()
    }

    pub fn master(&self) -> Option<u16> {
        let record = self.held()?;
        let master = record.configuration.as_ref()?.master;
        record.seat_of(master).map(|seat| seat.machine)
    }

    fn is_alive(&self, id: MemberId) -> bool {
        self.lives.borrow().values().any(|living| *living == id)
    }

    fn judge_record(&self, before: Option<&Record>, next: &Record) {
        if !next.is_sane() {
            self.blame(format!("an insane record: {next:?}"));
        }
        let Some(before) = before else { return };
        self.judge_anew(before, next);
        if self.disks.is_durable.get() {
            self.judge_disks(before, next);
        }
        for (region, (old, new)) in before.regions.iter().zip(&next.regions).enumerate() {
            let life = |record: &Record, machine| record.seat(machine).map(|seat| seat.id);
            for replica in new.iter().filter(|r| r.is_whole) {
                let was = old.iter().any(|r| {
                    r.is_whole
                        && r.machine == replica.machine
                        && (life(before, r.machine) == life(next, r.machine)
                            || self.is_from_disk(before, next, r))
                });
                let id = life(next, replica.machine).expect("a member");
                if !was && !self.reported.borrow().contains(&(id, region as u16)) {
                    self.blame(format!(
                        "region {region}: {replica:?} has become whole by itself"
                    ));
                }
                self.wholes.set(self.wholes.get() + u64::from(!was));
            }
            if is_lost(new) && !is_lost(old) && !self.disks.is_durable.get() {
                let mut whole = old.iter().filter(|r| r.is_whole);
                let lives = |machine| life(before, machine).is_some_and(|id| self.is_alive(id));
                match whole.find(|r| lives(r.machine)) {
                    Some(one) => self.blame(format!("region {region} is lost, and {one:?} has it")),
                    None => self.is_over.set(true),
                }
            }
        }
    }

    // ---- lives ----

    pub fn begin_life(&self, machine: u16, id: MemberId) {
        self.lives.borrow_mut().insert(machine, id);
    }

    pub fn end_life(&self, machine: u16) {
        let now = control().elapsed().as_nanos() as u64;
        if let Some((at, time)) = self.times.borrow().values().last() {
            let passed = now - at;
            let mut newest = self.disks.newest.borrow_mut();
            let newest = newest.entry(machine).or_default();
            *newest = (*newest).max(time + passed + passed * 499 / 1_000_000 + 3);
        }
        self.lives.borrow_mut().remove(&machine);
        self.views.borrow_mut().remove(&machine);
        self.closed.borrow_mut().remove(&machine);
    }

    pub fn knows(&self, id: MemberId, knows: bool) {
        let mut knowing = self.knowing.borrow_mut();
        match knows {
            true => knowing.insert(id),
            false => knowing.remove(&id),
        };
    }

    /// The others have a whole replica of everything, and know the time.
    pub fn may_kill(&self, machine: u16) -> bool {
        let Some(record) = self.held() else {
            return true;
        };
        if record.configuration.is_none() {
            return true;
        }
        let others = record
            .machines
            .iter()
            .filter(|seat| seat.machine != machine);
        let living: Vec<_> = others.filter(|seat| self.is_alive(seat.id)).collect();
        let knowing = self.knowing.borrow();
        let has = |machine: u16| living.iter().any(|seat| seat.machine == machine);
        living.iter().any(|seat| knowing.contains(&seat.id))
            && record
                .regions
                .iter()
                .all(|region| region.iter().any(|r| r.is_whole && has(r.machine)))
    }

    /// This life has the fabric in just this configuration.
    pub fn has_closed_for(&self, machine: u16, life: MemberId, number: u64) -> bool {
        self.lives.borrow().get(&machine) == Some(&life)
            && self.closed.borrow().get(&machine) == Some(&number)
    }

    /// In a record that is not older than what this machine shows, some region was in the memory of nobody who lives.
    pub fn is_restore_due(&self, machine: u16) -> bool {
        let views = self.views.borrow();
        let since = views.get(&machine).map_or(0, |view| view.record.revision);
        let is_due = |record: &Record| {
            let life = |machine| record.seat(machine).map(|seat| seat.id);
            let lives = |machine| life(machine).is_some_and(|id| self.is_alive(id));
            let has = |r: &crate::Replica| r.is_whole && lives(r.machine);
            record.regions.iter().any(|region| !region.iter().any(has))
        };
        self.history
            .borrow()
            .range(since..)
            .any(|(_, record)| is_due(record))
    }

    pub fn shown(&self, fingerprint: u64) -> Shown {
        Shown {
            timestamps: self.timestamps(),
            configurations: self.held().map_or(0, |record| record.number()),
            wholes: self.wholes.get(),
            anews: self.anews.get(),
            narrow: self.narrow.get(),
            restores: self.disks.restores.get(),
            commits: self.disks.commits(),
            is_lost: self.is_over.get(),
            fingerprint,
        }
    }

    // ---- the judge ----

    pub fn ask_anew(&self, number: u64) {
        self.asked.borrow_mut().insert(number);
    }

    /// A configuration of the same members follows only if somebody asked for it.
    fn judge_anew(&self, before: &Record, next: &Record) {
        let ids = |record: &Record| record.machines.iter().map(|s| s.id).collect::<Vec<_>>();
        if before.number() == next.number() || ids(before) != ids(next) {
            return;
        }
        self.anews.set(self.anews.get() + 1);
        if !self.asked.borrow().contains(&before.number()) {
            self.blame(format!("nobody asked for what follows {}", before.number()));
        }
    }

    /// The machine closes what is before a configuration. Its fabric `has` that still.
    pub fn close(&self, machine: u16, number: u64, has: u64) {
        if has >= number && !self.closed.borrow().contains_key(&machine) {
            return; // its fabric was taken there by a former life
        }
        if has >= number {
            self.blame(format!("{machine} closes for {number} when it has {has}"));
        }
        self.closed.borrow_mut().insert(machine, number);
    }

    pub fn report(&self, id: MemberId, region: u16) {
        self.reported.borrow_mut().insert((id, region));
    }

    pub fn see(&self, machine: u16, view: &View) {
        let record = &*view.record;
        if self.history.borrow().get(&record.revision) != Some(record) {
            self.blame(format!(
                "{machine} shows what the register never had: {record:?}"
            ));
        }
        let closed = self.closed.borrow().get(&machine).copied();
        if closed.is_none_or(|closed| closed < record.number()) {
            self.blame(format!(
                "{machine} shows {} and closed for {closed:?}",
                record.number()
            ));
        }
        let former = self.views.borrow_mut().insert(machine, view.clone());
        if let Some(former) = former
            && former.record.revision > record.revision
        {
            self.blame(format!(
                "{machine} goes back to revision {}",
                record.revision
            ));
        }
    }

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
    pub fn note_time(&self, era: u64, time: u64) {
        let at = control().elapsed().as_nanos() as u64;
        self.times.borrow_mut().insert(era, (at, time));
    }

    /// An interval of this era was read now. It must contain what the master's time can be.
    pub fn check_time(&self, era: u64, interval: Interval) {
        let now = control().elapsed().as_nanos() as u64;
        let times = self.times.borrow();
        let Some((at, time)) = times.get(&era) else {
            return;
        };
        let passed = now - at;
        // What the clock is wrong by since then, and two roundings.
        let error = passed * 499 / 1_000_000 + 3;
        let time = time + passed;
        if interval.lower > time + error || interval.upper + error < time {
            self.blame(format!("{interval:?} is not around {time} ± {error}"));
        }
        let is_narrow = interval.uncertainty() < 2000;
        self.narrow.set(self.narrow.get() + u64::from(is_narrow));
    }

    /// All machines are members, all of them show the same, and every region has all its replicas.
    pub fn is_healed(&self) -> Result<(), String> {
        let record = self.held().ok_or("no record")?;
        if self.asked.borrow().contains(&record.number()) {
            return Err(format!("nothing follows {}", record.number()));
        }
        let gone = self.disks.gone.borrow();
        if record.machines.len() != usize::from(MACHINES) - gone.len() {
            let (count, lives) = (record.machines.len(), self.lives.borrow());
            let knowing = self.knowing.borrow();
            return Err(format!("{count} members of {lives:?}, knowing {knowing:?}"));
        }
        let whole = |region: &Vec<_>| {
            let count = region.iter().filter(|r: &&crate::Replica| r.is_whole);
            count.count() == usize::from(record.cluster.replication)
        };
        if !record.regions.iter().all(whole) {
            let views = self.views.borrow();
            let short = |(machine, view): (&u16, &View)| {
                (
                    *machine,
                    view.number(),
                    view.record.revision,
                    view.is_committed,
                )
            };
            let views: Vec<_> = views.iter().map(short).collect();
            let lives = self.lives.borrow();
            return Err(format!(
                "not whole: machines show (number, revision, committed) {views:?} of {lives:?}"
            ));
        }
        for machine in (0..MACHINES).filter(|machine| !gone.contains(machine)) {
            let views = self.views.borrow();
            let view = views
                .get(&machine)
                .ok_or(format!("{machine} shows nothing"))?;
            if !view.is_committed || view.record.revision != record.revision {
                return Err(format!("{machine} shows {view:?}"));
            }
        }
        Ok(())
    }

    pub fn blame(&self, violation: String) {
        self.violation.borrow_mut().get_or_insert(violation);
    }

    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// Something was found, or data is lost that nobody has any more.
    pub fn has_ended(&self) -> bool {
        self.is_over.get() || self.violation.borrow().is_some()
    }

    pub fn timestamps(&self) -> u64 {
        self.timestamps.get()
    }
}

/// The register as processes reach it.
pub struct Reach(pub Rc<World>);

impl Register for Reach {
    async fn read(&self) -> Result<Option<Record>, Error> {
        sleep(some_ms(3)).await;
        let held = self.0.held();
        sleep(some_ms(1)).await;
        match random::chance(0.05) {
            true => Err(Error::timed_out),
            false => Ok(held),
        }
    }

    async fn swap(&self, next: &Record) -> Result<bool, Error> {
        sleep(some_ms(2)).await;
        if random::chance(0.03) {
            return Err(Error::timed_out);
        }
        self.0.under_way.borrow_mut().push(next.clone());
        loop {
            sleep(Duration::from_micros(500)).await;
            if random::chance(0.01) {
                return Err(Error::timed_out); // and it may come true later
            }
            let mut outcomes = self.0.outcomes.borrow_mut();
            if let Some(at) = outcomes.iter().position(|(of, _)| of == next) {
                return Ok(outcomes.remove(at).1);
            }
        }
    }
}
