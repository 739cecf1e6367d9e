//! The model: machines that commit, die and recover, at random, with an oracle that sees what outsiders see.

use super::chance::Chance;
use super::machine::{Commit, Machine, OBJECTS, Object, Said, write};
use super::oracle::{Oracle, Tx};
use crate::recovery::{Author, Effect, Fate, Id, Letter, Members, Number, Replica, Write};
use plinth_core::codec::Codec;
use plinth_farm_fabric::Machine as Name;
use std::collections::{BTreeMap, BTreeSet};

type Checked = Result<(), String>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Locking,
    Unlocking,
    Logging,
    Installing,
    Truncating,
}

/// A commit, as its coordinator has it.
struct Running {
    key: u64,
    id: Id,
    phase: Phase,
    /// Acknowledged by nobody yet.
    todo: Vec<(Name, Commit)>,
    /// Primaries that have not answered.
    waits: usize,
    granted: Vec<Name>,
    is_refused: bool,
    regions: Vec<u16>,
    primaries: BTreeMap<Name, Vec<Write>>,
    backups: BTreeMap<Name, Vec<Write>>,
}

/// What came up in a run.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    pub transactions: usize,
    pub configurations: usize,
    /// Configurations that came before the former had ended everywhere.
    pub interrupted: usize,
    pub opened: usize,
    pub outcomes_committed: usize,
    pub outcomes_without_effect: usize,
    pub installs: usize,
    pub releases: usize,
    pub made_whole: usize,
    pub lost: usize,
}

pub struct World {
    pub chance: Chance,
    pub oracle: Oracle,
    pub machines: BTreeMap<Name, Machine>,
    /// What the register has: the next configuration begins from it.
    members: Members,
    /// By configuration, as it began.
    history: BTreeMap<u64, Members>,
    letters: Vec<(Name, Name, Letter)>,
    /// What waits for a disk: `None` is what a machine knows, `Some` what it has redone.
    settling: Vec<(Name, u64, Option<u16>)>,
    running: Vec<Running>,
    /// Own transactions that may have traces somewhere, with their configuration and the machines that may.
    traces: BTreeMap<Id, (u64, BTreeSet<Name>)>,
    asked: BTreeSet<Id>,
    checked: BTreeSet<(u64, u16)>,
    said_lost: BTreeSet<(Name, u64)>,
    /// All whole replicas of a region may die.
    may_lose: bool,
    pool: u16,
    clock: u64,
    pub counts: Counts,
}

impl World {
    pub fn new(seed: u64, may_lose: bool) -> World {
        let mut chance = Chance::new(seed);
        let pool = 2 + chance.below(4) as u16;
        let regions = 1 + chance.below(4);
        let mut world = World {
            chance,
            oracle: Oracle::default(),
            machines: BTreeMap::new(),
            members: Members::default(),
            history: BTreeMap::new(),
            letters: Vec::new(),
            settling: Vec::new(),
            running: Vec::new(),
            traces: BTreeMap::new(),
            asked: BTreeSet::new(),
            checked: BTreeSet::new(),
            said_lost: BTreeSet::new(),
            may_lose,
            pool,
            clock: 0,
            counts: Counts::default(),
        };
        for machine in (0..pool).map(Name) {
            let author = Author { machine, since: 1 };
            world.machines.insert(machine, Machine::new(author));
        }
        world.members.regions = vec![Vec::new(); regions];
        for region in 0..regions {
            for is_whole in [true, true, false] {
                world.place(region, is_whole);
            }
        }
        world.configure();
        world
    }

    pub fn is_lost(&self) -> bool {
        !self.members.lost().is_empty()
    }

    // ---- configurations ----

    /// A further replica, sometimes.
    fn place(&mut self, region: usize, is_whole: bool) {
        let replicas = &mut self.members.regions[region];
        let is_free = |name: &Name| replicas.iter().all(|r| r.machine != *name);
        let free: Vec<Name> = self.machines.keys().copied().filter(is_free).collect();
        let is_first = replicas.is_empty();
        if replicas.len() < 3
            && (is_first || self.chance.below(3) > 0)
            && let Some(machine) = self.chance.of(&free)
        {
            replicas.push(Replica { machine, is_whole });
        }
    }

    fn configure(&mut self) {
        self.members.configuration += 1 + self.chance.below(2) as u64;
        self.members.authors = self.machines.values().map(|m| m.author).collect();
        let machines: Vec<Name> = self.machines.keys().copied().collect();
        self.members.master = self.chance.of(&machines);
        self.counts.configurations += 1;
        let number = self.members.configuration;
        self.history.insert(number, self.members.clone());
    }

    /// Some machines die, others come, and the next configuration is made.
    pub fn fail(&mut self) {
        let has_ended =
            |m: &Machine| m.configuration == self.members.configuration && m.recovery.has_ended();
        if !self.machines.values().all(has_ended) {
            self.counts.interrupted += 1;
        }
        let names: Vec<Name> = self.machines.keys().copied().collect();
        for name in names {
            let keeps =
                |replicas: &Vec<Replica>| replicas.iter().any(|r| r.is_whole && r.machine != name);
            let mut here = self
                .members
                .regions
                .iter()
                .filter(|r| r.iter().any(|r| r.machine == name && r.is_whole));
            let may_die = self.may_lose || here.all(keeps);
            if self.machines.len() > 1 && may_die && self.chance.once_in(3) {
                self.kill(name);
            }
        }
        let number = self.members.configuration;
        for machine in (0..self.pool).map(Name) {
            if !self.machines.contains_key(&machine) && self.chance.once_in(3) {
                // No configuration before the next one has this life.
                let since = number + 1;
                let author = Author { machine, since };
                self.machines.insert(machine, Machine::new(author));
            }
        }
        for region in 0..self.members.regions.len() {
            if self.members.regions[region].iter().any(|r| r.is_whole) {
                self.place(region, false);
            }
        }
        self.configure();
    }

    fn kill(&mut self, name: Name) {
        self.machines.remove(&name);
        self.running
            .retain(|running| running.id.author.machine != name);
        self.asked.retain(|id| id.author.machine != name);
        self.traces.retain(|id, _| id.author.machine != name);
        let chance = &mut self.chance;
        self.letters
            .retain(|(from, to, _)| *to != name && (*from != name || chance.once_in(2)));
        for replicas in &mut self.members.regions {
            let leads = |replicas: &[Replica]| {
                replicas
                    .iter()
                    .find(|r| r.is_whole)
                    .is_some_and(|r| r.machine == name)
            };
            let led = leads(replicas);
            replicas.retain(|r| r.machine != name);
            let whole = (0..replicas.len()).filter(|at| replicas[*at].is_whole);
            let whole: Vec<usize> = whole.collect();
            if led && let Some(at) = chance.of(&whole) {
                replicas[..=at].rotate_right(1);
            }
        }
    }

    /// A machine takes the newest configuration.
    pub fn take_configuration(&mut self, name: Name) -> Checked {
        let members = self.history[&self.members.configuration].clone();
        if self.machines[&name].configuration == members.configuration {
            return Ok(());
        }
        let mine = |running: &&Running| running.id.author.machine == name;
        let mut committing = Vec::new();
        for running in self.running.iter().filter(mine) {
            match running.phase {
                Phase::Truncating => (),
                // Nobody can commit it.
                Phase::Locking | Phase::Unlocking if self.chance.once_in(2) => {
                    self.oracle
                        .see(running.key, Fate::WithoutEffect, "its coordinator")?;
                }
                _ => {
                    self.asked.insert(running.id);
                    committing.push(running.id.number);
                }
            }
        }
        self.running
            .retain(|running| running.id.author.machine != name);
        let machine = self.machines.get_mut(&name).expect("it lives");
        let held = machine.close(committing);
        machine.configuration = members.configuration;
        let is_here = |region: &u16| members.replica(*region, name).is_some();
        machine.replicas.retain(|region, _| is_here(region));
        for region in members.numbers().filter(is_here) {
            let replica = machine.replicas.entry(region);
            replica.or_insert_with(|| vec![Object::default(); OBJECTS]);
        }
        let effects = machine.recovery.begin(members, held);
        self.perform(name, effects)
    }

    // ---- recovery ----

    pub fn deliver(&mut self) -> Checked {
        let settles = !self.settling.is_empty();
        if settles && (self.letters.is_empty() || self.chance.once_in(3)) {
            let at = self.chance.below(self.settling.len());
            let (name, configuration, region) = self.settling.swap_remove(at);
            let effects = match self.machines.get_mut(&name) {
                Some(machine) => match region {
                    Some(region) => machine.recovery.redone(configuration, region),
                    None => machine.recovery.speak(configuration),
                },
                None => Vec::new(),
            };
            return self.perform(name, effects);
        }
        if self.letters.is_empty() {
            return Ok(());
        }
        let at = self.chance.below(self.letters.len());
        let (from, to, letter) = match self.chance.once_in(30) {
            true => self.letters[at].clone(),
            false => self.letters.swap_remove(at),
        };
        if Letter::from_bytes(letter.to_bytes()).as_ref() != Some(&letter) {
            return Err(format!("{letter:?} does not come back from its bytes"));
        }
        let effects = match self.machines.get_mut(&to) {
            Some(machine) => machine.recovery.receive(from, letter),
            None => Vec::new(),
        };
        self.perform(to, effects)
    }

    fn perform(&mut self, name: Name, effects: Vec<Effect>) -> Checked {
        for effect in effects {
            let machine = self.machines.get_mut(&name).expect("it lives");
            match effect {
                Effect::Send { to, letter } => self.letters.push((name, to, letter)),
                Effect::Release { region, id } => {
                    self.counts.releases += 1;
                    if machine.release(id, Some(region)) == 0 {
                        return Err(format!("{id:?} has no locks in {region} to release"));
                    }
                }
                Effect::Install {
                    written_at, writes, ..
                } => {
                    self.counts.installs += 1;
                    machine.install(&writes, written_at);
                }
                Effect::Settle { .. } => (),
                Effect::Speak => {
                    let of = machine.recovery.configuration();
                    self.settling.push((name, of, None));
                }
                Effect::Redone { region } => {
                    let of = machine.recovery.configuration();
                    self.settling.push((name, of, Some(region)));
                }
                Effect::Opened { region } => self.opened(name, region)?,
                Effect::Outcome { number, fate } => self.told(name, number, fate)?,
                Effect::Ended => {
                    let (author, now) = (machine.author, machine.configuration);
                    self.traces
                        .retain(|id, (began, _)| id.author != author || *began >= now);
                }
                Effect::Lost { regions } => {
                    let now = machine.configuration;
                    if regions != self.history[&now].lost() || regions.is_empty() {
                        return Err(format!("{name:?} says that {regions:?} are lost"));
                    }
                    self.counts.lost += 1;
                    self.said_lost.insert((name, now));
                }
            }
        }
        Ok(())
    }

    fn told(&mut self, name: Name, number: Number, fate: Fate) -> Checked {
        let author = self.machines[&name].author;
        let id = Id { author, number };
        if !self.asked.remove(&id) {
            return Err(format!("{name:?} hears of {number}, and has not asked"));
        }
        if self.machines[&name].recovery.outcome(number) != Some(fate) {
            return Err(format!("{name:?} has another outcome of {number}"));
        }
        match fate {
            Fate::Committed { .. } => self.counts.outcomes_committed += 1,
            Fate::WithoutEffect => self.counts.outcomes_without_effect += 1,
        }
        let key = self.oracle.key_of(id).ok_or("a transaction of nobody")?;
        self.oracle.see(key, fate, "its coordinator")
    }

    /// From now on anybody may look at the region.
    fn opened(&mut self, name: Name, region: u16) -> Checked {
        let now = self.machines[&name].configuration;
        let members = &self.history[&now];
        if !members.lost().is_empty() {
            return Err(format!("{region} opens in a cluster that is lost"));
        }
        if !self.checked.insert((now, region)) {
            return Ok(());
        }
        self.counts.opened += 1;
        // A machine may have died since, and its next life has nothing.
        let lives = |m: Name| {
            let machine = self.machines.get(&m)?;
            (members.author(m) == Some(machine.author)).then_some(machine)
        };
        let whole = members.whole(region).filter_map(lives);
        let whole: Vec<&Vec<Object>> = whole.filter_map(|m| m.replicas.get(&region)).collect();
        let first = whole[0];
        for objects in &whole {
            for (object, other) in objects.iter().zip(first) {
                if object.lock.is_some() {
                    return Err(format!("a lock is left in {region}: {object:?}"));
                }
                let what = |o: &Object| (o.written_at, o.value, o.applied.clone());
                if what(object) != what(other) {
                    return Err(format!(
                        "replicas of {region} differ: {object:?}, {other:?}"
                    ));
                }
            }
        }
        let mut seen = Vec::new();
        for (key, tx) in &self.oracle.txs {
            for (_, object) in tx.writes.iter().filter(|(of, _)| *of == region) {
                if tx.began >= now {
                    continue;
                }
                let fate = match (first[*object].applied.contains(key), tx.written_at) {
                    (true, Some(written_at)) => Fate::Committed { written_at },
                    (true, None) => return Err(format!("{:?} is applied without a time", tx.id)),
                    (false, _) => Fate::WithoutEffect,
                };
                seen.push((*key, fate));
            }
        }
        for (key, fate) in seen {
            self.oracle.see(key, fate, "whoever reads")?;
        }
        Ok(())
    }

    /// A replica that is not whole copies an object, and is whole when it has all.
    pub fn copy(&mut self, name: Name) {
        let machine = &self.machines[&name];
        let Some(members) = self.history.get(&machine.configuration) else {
            return;
        };
        let lacks = |region: &u16| {
            let replica = members.replica(*region, name);
            let done = machine.copied.get(region).copied().unwrap_or(0);
            let lacks = replica.is_some_and(|r| !r.is_whole) && done < OBJECTS;
            lacks && machine.recovery.is_open(*region)
        };
        let lacking: Vec<u16> = members.numbers().filter(lacks).collect();
        let Some(region) = self.chance.of(&lacking) else {
            return;
        };
        let at = machine.copied.get(&region).copied().unwrap_or(0);
        let primary = members.primary(region).and_then(|m| self.machines.get(&m));
        let primary = primary.filter(|p| p.configuration == machine.configuration);
        let Some(object) = primary.map(|p| p.replicas[&region][at].clone()) else {
            return;
        };
        if object.lock.is_some() {
            return;
        }
        let machine = self.machines.get_mut(&name).expect("it lives");
        machine.copied.insert(region, at + 1);
        let own = &mut machine.replicas.get_mut(&region).expect("a replica")[at];
        own.apply(object.written_at, object.value);
        own.applied.extend(object.applied);
        if at + 1 == OBJECTS && machine.configuration == self.members.configuration {
            let replicas = &mut self.members.regions[usize::from(region)];
            let own = replicas.iter_mut().find(|r| r.machine == name);
            own.expect("a replica").is_whole = true;
            self.counts.made_whole += 1;
        }
    }

    // ---- commits ----

    pub fn start(&mut self, name: Name) {
        let machine = &self.machines[&name];
        let Some(members) = self.history.get(&machine.configuration).cloned() else {
            return;
        };
        let open = members.numbers().filter(|r| machine.recovery.is_open(*r));
        let open: Vec<u16> = open.collect();
        let mut writes = BTreeSet::new();
        for _ in 0..=self.chance.below(3) {
            let Some(region) = self.chance.of(&open) else {
                return;
            };
            writes.insert((region, self.chance.below(OBJECTS)));
        }
        let machine = self.machines.get_mut(&name).expect("it lives");
        machine.numbers += 1;
        let id = Id {
            author: machine.author,
            number: machine.numbers,
        };
        let key = 1 + self.oracle.txs.len() as u64;
        let mut primaries: BTreeMap<Name, Vec<Write>> = BTreeMap::new();
        let mut backups: BTreeMap<Name, Vec<Write>> = BTreeMap::new();
        for &(region, object) in &writes {
            let primary = members.primary(region).expect("it is open");
            for replica in members.replicas(region) {
                let role = match replica.machine == primary {
                    true => &mut primaries,
                    false => &mut backups,
                };
                let part = role.entry(replica.machine).or_default();
                part.push(write(region, object, key));
            }
        }
        let regions: BTreeSet<u16> = writes.iter().map(|(region, _)| *region).collect();
        let regions: Vec<u16> = regions.into_iter().collect();
        let locks = primaries.iter().map(|(name, writes)| {
            let (regions, writes) = (regions.clone(), writes.clone());
            (*name, Commit::Lock { regions, writes })
        });
        let todo: Vec<(Name, Commit)> = locks.collect();
        let began = members.configuration;
        let machines = primaries.keys().chain(backups.keys()).copied().collect();
        self.traces.insert(id, (began, machines));
        self.running.push(Running {
            key,
            id,
            phase: Phase::Locking,
            waits: todo.len(),
            todo,
            granted: Vec::new(),
            is_refused: false,
            regions,
            primaries,
            backups,
        });
        let writes = writes.into_iter().collect();
        let tx = Tx {
            id,
            began,
            writes,
            written_at: None,
            seen: None,
        };
        self.oracle.txs.insert(key, tx);
        self.counts.transactions += 1;
    }

    /// A step of a commit: one message is acknowledged, or the next phase begins.
    pub fn advance(&mut self) -> Checked {
        let at = self.chance.below(self.running.len());
        let Some(running) = self.running.get_mut(at) else {
            return Ok(());
        };
        if !running.todo.is_empty() {
            let next = self.chance.below(running.todo.len());
            let (to, commit) = running.todo[next].clone();
            let id = running.id;
            if self.send(id, to, commit) {
                self.running[at].todo.swap_remove(next);
            }
            return Ok(());
        }
        if running.phase != Phase::Locking || running.waits == 0 {
            return self.next_phase(at);
        }
        Ok(())
    }

    fn next_phase(&mut self, at: usize) -> Checked {
        let running = &mut self.running[at];
        let tx = self.oracle.txs.get_mut(&running.key).expect("it began");
        let written_at = tx.written_at.unwrap_or_default();
        let to_primaries = |commit: Commit| {
            let primaries = running.primaries.keys();
            primaries.map(|name| (*name, commit.clone())).collect()
        };
        (running.phase, running.todo) = match running.phase {
            Phase::Locking if running.is_refused || self.chance.once_in(8) => {
                let granted = running.granted.iter();
                (
                    Phase::Unlocking,
                    granted.map(|name| (*name, Commit::Unlock)).collect(),
                )
            }
            Phase::Locking => {
                self.clock += 1;
                tx.written_at = Some(self.clock);
                let log = |(name, writes): (&Name, &Vec<Write>)| {
                    let (regions, writes) = (running.regions.clone(), writes.clone());
                    let written_at = self.clock;
                    (
                        *name,
                        Commit::Backup {
                            written_at,
                            regions,
                            writes,
                        },
                    )
                };
                (Phase::Logging, running.backups.iter().map(log).collect())
            }
            Phase::Logging => (
                Phase::Installing,
                to_primaries(Commit::Primary { written_at }),
            ),
            Phase::Installing => {
                let fate = Fate::Committed { written_at };
                self.oracle.see(running.key, fate, "its coordinator")?;
                let all = running.primaries.keys().chain(running.backups.keys());
                let all: BTreeSet<Name> = all.copied().collect();
                let truncate = all.into_iter().map(|name| (name, Commit::Truncate));
                (Phase::Truncating, truncate.collect())
            }
            Phase::Unlocking => {
                self.oracle
                    .see(running.key, Fate::WithoutEffect, "its coordinator")?;
                self.traces.remove(&running.id);
                self.running.swap_remove(at);
                return Ok(());
            }
            Phase::Truncating => {
                self.running.swap_remove(at);
                return Ok(());
            }
        };
        Ok(())
    }

    /// Whether the fabric acknowledges it: both are in the same configuration.
    fn send(&mut self, id: Id, to: Name, commit: Commit) -> bool {
        let from = id.author.machine;
        let configuration = self.machines[&from].configuration;
        let mut mine = self.traces.keys().filter(|other| other.author == id.author);
        let below = mine.next().map_or(id.number + 1, |first| first.number);
        let Some(machine) = self.machines.get_mut(&to) else {
            return false;
        };
        if machine.configuration != configuration {
            return false;
        }
        let said = Said { id, commit, below };
        machine.rings.entry(from).or_default().push_back(said);
        if to == from {
            self.take_in(to, from);
        }
        true
    }

    /// Takes in what `from` has sent first.
    fn take_in(&mut self, name: Name, from: Name) {
        let machine = self.machines.get_mut(&name).expect("it lives");
        let ring = machine.rings.get_mut(&from);
        let Some(said) = ring.and_then(|ring| ring.pop_front()) else {
            return;
        };
        let id = said.id;
        let is_truncate = matches!(said.commit, Commit::Truncate);
        let answer = machine.take_in(said);
        if is_truncate && let Some((_, left)) = self.traces.get_mut(&id) {
            left.remove(&name);
            if left.is_empty() {
                self.traces.remove(&id);
            }
        }
        let running = self.running.iter_mut().find(|running| running.id == id);
        if let (Some(is_granted), Some(running)) = (answer, running) {
            running.waits -= 1;
            match is_granted {
                true => running.granted.push(name),
                false => running.is_refused = true,
            }
        }
    }

    pub fn take_in_any(&mut self, name: Name) {
        let rings = &self.machines[&name].rings;
        let full = rings.iter().filter(|(_, ring)| !ring.is_empty());
        let senders: Vec<Name> = full.map(|(from, _)| *from).collect();
        if let Some(from) = self.chance.of(&senders) {
            self.take_in(name, from);
        }
    }

    // ---- the end ----

    pub fn any(&mut self) -> Name {
        let names: Vec<Name> = self.machines.keys().copied().collect();
        self.chance.of(&names).expect("somebody lives")
    }

    /// Everybody takes the newest configuration, and everything that is said arrives.
    pub fn settle(&mut self) -> Checked {
        let names: Vec<Name> = self.machines.keys().copied().collect();
        for name in names {
            self.take_configuration(name)?;
        }
        while !(self.letters.is_empty() && self.settling.is_empty()) {
            self.deliver()?;
        }
        let now = self.members.configuration;
        for (name, machine) in &self.machines {
            match self.is_lost() {
                true if !self.said_lost.contains(&(*name, now)) => {
                    return Err(format!("{name:?} does not say what is lost"));
                }
                true if machine.recovery.has_ended() => {
                    return Err(format!("{name:?} goes on without what is lost"));
                }
                false if !machine.recovery.has_ended() => {
                    return Err(format!("the recovery of {name:?} does not end"));
                }
                _ => (),
            }
        }
        match self.is_lost() || self.asked.is_empty() {
            true => Ok(()),
            false => Err(format!("nobody says what became of {:?}", self.asked)),
        }
    }

    /// A last configuration, in which nobody has died: everything is what has been seen.
    pub fn end(&mut self) -> Checked {
        self.configure();
        self.settle()?;
        if self.is_lost() {
            return Ok(());
        }
        for tx in self.oracle.txs.values() {
            if tx.seen.is_none() {
                return Err(format!("{:?} has not ended", tx.id));
            }
        }
        let members = &self.history[&self.members.configuration];
        for region in members.numbers() {
            for machine in members.whole(region) {
                let objects = &self.machines[&machine].replicas[&region];
                for (at, object) in objects.iter().enumerate() {
                    let expected = self.oracle.newest(region, at);
                    if (object.written_at, object.value) != expected {
                        return Err(format!("{region}:{at} is {object:?}, not {expected:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}
