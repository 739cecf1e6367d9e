//! What stands outside the machines: the configuration, and the judge, who looks into every memory.

use super::{MACHINES, Shown};
use crate::{Host, Machine, Message};
use plinth_runtime::probe;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Somebody tries something at a memory.
pub struct Attempt {
    own: u16,
    target: u16,
    /// Which of the target's memories: after a power cut it has another one.
    memory: u64,
    configuration: u64,
    sequence: u64,
}

impl Attempt {
    /// Later attempts of one machine have greater sequences.
    pub fn value(&self) -> u64 {
        self.configuration << 32 | self.sequence
    }
}

fn sequence_of(value: u64) -> u64 {
    value & u64::from(u32::MAX)
}

/// What is known of the messages of one machine in one memory, by their sequences.
#[derive(Default)]
struct Flow {
    /// Acknowledged, and not seen in this life of the receiver.
    awaited: BTreeSet<u64>,
    seen: BTreeSet<u64>,
    /// Seen in this life, not released.
    held: BTreeSet<u64>,
    /// Seen in this life.
    last: u64,
    released: u64,
}

#[derive(Default)]
struct Closing {
    number: u64,
    words: Vec<u64>,
    /// Where each ring ended.
    ends: Vec<u64>,
}

struct Memory {
    number: u64,
    host: Rc<Host>,
    /// The greatest acknowledged sequence of each machine.
    acknowledged: Vec<u64>,
    flows: Vec<Flow>,
    closing: Closing,
    counts: u64,
    counted: BTreeSet<u64>,
}

pub struct World {
    configuration: Cell<u64>,
    members: RefCell<BTreeSet<Machine>>,
    memories: RefCell<BTreeMap<u16, Memory>>,
    next_memory: Cell<u64>,
    next_sequence: Cell<u64>,
    /// Pairs between which something was acknowledged at the end.
    works: RefCell<Option<BTreeSet<(u16, u16)>>>,
    has_stopped: Cell<bool>,
    violation: RefCell<Option<String>>,
    shown: [Cell<u64>; 4],
}

impl World {
    pub fn new() -> World {
        World {
            configuration: Cell::new(1),
            members: RefCell::new((0..MACHINES as u16).map(Machine).collect()),
            memories: RefCell::default(),
            next_memory: Cell::new(1),
            next_sequence: Cell::new(1),
            works: RefCell::default(),
            has_stopped: Cell::new(false),
            violation: RefCell::default(),
            shown: Default::default(),
        }
    }

    pub fn configuration(&self) -> (u64, Vec<Machine>) {
        let members = self.members.borrow().iter().copied().collect();
        (self.configuration.get(), members)
    }

    pub fn reconfigure(&self) {
        self.configuration.set(self.configuration.get() + 1);
    }

    pub fn remove(&self, machine: Machine) {
        self.members.borrow_mut().remove(&machine);
        self.reconfigure();
    }

    pub fn add(&self, machine: Machine) {
        self.members.borrow_mut().insert(machine);
        self.reconfigure();
    }

    pub fn stop(&self) {
        self.has_stopped.set(true);
    }

    pub fn has_stopped(&self) -> bool {
        self.has_stopped.get()
    }

    pub fn blame(&self, violation: String) {
        self.violation.borrow_mut().get_or_insert(violation);
    }

    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    fn add_one(&self, which: usize) {
        self.shown[which].set(self.shown[which].get() + 1);
    }

    pub fn refused(&self) {
        self.add_one(2);
    }

    pub fn shown(&self, fingerprint: u64) -> Shown {
        Shown {
            writes: self.shown[0].get(),
            messages: self.shown[1].get(),
            refused: self.shown[2].get(),
            again: self.shown[3].get(),
            fingerprint,
        }
    }

    // ---- what happens to memories ----

    pub fn begin_life(&self, machine: u16, host: &Rc<Host>) {
        let mut memories = self.memories.borrow_mut();
        let memory = memories.entry(machine).or_insert_with(|| {
            self.next_memory.set(self.next_memory.get() + 1);
            Memory {
                number: self.next_memory.get(),
                host: host.clone(),
                acknowledged: vec![0; MACHINES],
                flows: (0..MACHINES).map(|_| Flow::default()).collect(),
                closing: Closing::default(),
                counts: 0,
                counted: BTreeSet::new(),
            }
        });
        for flow in &mut memory.flows {
            flow.last = 0;
            // They were not done with, and must come again.
            let held = std::mem::take(&mut flow.held);
            flow.awaited.extend(held);
        }
    }

    pub fn lose_memory(&self, machine: u16) {
        self.memories.borrow_mut().remove(&machine);
    }

    /// Everything before this configuration is closed at the machine.
    pub fn closed(&self, machine: u16, number: u64) {
        let mut memories = self.memories.borrow_mut();
        let Some(memory) = memories.get_mut(&machine) else {
            return;
        };
        let machines = (0..MACHINES as u16).map(Machine);
        let ends = machines.map(|sender| {
            let tail = memory.host.join(sender);
            tail.map_or(0, |tail| tail.position())
        });
        memory.closing = Closing {
            number,
            words: memory.words(),
            ends: ends.collect(),
        };
    }

    // ---- what machines try ----

    pub fn attempt(&self, own: u16, target: u16, configuration: u64) -> Option<Attempt> {
        let memory = self.memories.borrow().get(&target)?.number;
        self.next_sequence.set(self.next_sequence.get() + 1);
        Some(Attempt {
            own,
            target,
            memory,
            configuration,
            sequence: self.next_sequence.get(),
        })
    }

    /// The memory that was tried, if the machine still has it.
    fn with(&self, attempt: &Attempt, work: impl FnOnce(&mut Memory) -> Option<String>) {
        if let Some(works) = &mut *self.works.borrow_mut() {
            works.insert((attempt.own, attempt.target));
        }
        let mut memories = self.memories.borrow_mut();
        let memory = memories.get_mut(&attempt.target);
        let memory = memory.filter(|memory| memory.number == attempt.memory);
        if let Some(violation) = memory.and_then(work) {
            self.blame(format!(
                "{} at {}: {violation}",
                attempt.own, attempt.target
            ));
        }
    }

    /// A write was acknowledged.
    pub fn wrote(&self, attempt: &Attempt) {
        self.add_one(0);
        self.with(attempt, |memory| {
            let acknowledged = &mut memory.acknowledged[usize::from(attempt.own)];
            *acknowledged = (*acknowledged).max(attempt.sequence);
            memory.check()
        });
    }

    pub fn sent(&self, attempt: &Attempt) {
        self.add_one(1);
        self.with(attempt, |memory| {
            let flow = &mut memory.flows[usize::from(attempt.own)];
            let sequence = attempt.sequence;
            if flow.seen.contains(&sequence) {
                return None;
            }
            let newer = flow.seen.range(sequence..).next();
            if let Some(newer) = newer {
                return Some(format!("{sequence} is acknowledged after {newer} came"));
            }
            flow.awaited.insert(sequence);
            None
        });
    }

    pub fn counts(&self, attempt: &Attempt) {
        self.with(attempt, |memory| {
            memory.counts += 1;
            None
        });
    }

    pub fn counted(&self, attempt: &Attempt, from: u64) {
        self.with(attempt, |memory| {
            let is_first = memory.counted.insert(from);
            (!is_first).then(|| format!("two have counted from {from}"))
        });
    }

    pub fn received(&self, machine: u16, message: &Message) {
        let violation = self.judge_message(machine, message);
        if let Some(violation) = violation {
            self.blame(format!("{:?} to {machine}: {violation}", message.from));
        }
    }

    fn judge_message(&self, machine: u16, message: &Message) -> Option<String> {
        let mut memories = self.memories.borrow_mut();
        let memory = memories.get_mut(&machine)?;
        let from = usize::from(message.from.0);
        let head: Option<[u8; 8]> = message.body.get(..8).and_then(|head| head.try_into().ok());
        let value = u64::from_le_bytes(head?);
        let (sequence, flow) = (sequence_of(value), &mut memory.flows[from]);
        if message.body[8..]
            .iter()
            .any(|byte| usize::from(*byte) != from)
        {
            return Some(format!("{sequence} is not what was sent"));
        }
        if sequence <= flow.last || sequence <= flow.released {
            return Some(format!("{sequence} comes again or after {}", flow.last));
        }
        flow.awaited.remove(&sequence);
        if let Some(lost) = flow.awaited.range(..sequence).next() {
            return Some(format!("{lost} was acknowledged, and {sequence} comes"));
        }
        let closing = &memory.closing;
        if message.configuration != value >> 32 {
            return Some(format!("{sequence} has another configuration"));
        }
        if message.configuration < closing.number && message.end > closing.ends[from] {
            return Some(format!(
                "{sequence} comes after {} was closed",
                closing.number
            ));
        }
        flow.last = sequence;
        flow.held.insert(sequence);
        if !flow.seen.insert(sequence) {
            probe!("farm_message_received_again");
            self.add_one(3);
        }
        None
    }

    pub fn released(&self, machine: u16, message: &Message) {
        let mut memories = self.memories.borrow_mut();
        let Some(memory) = memories.get_mut(&machine) else {
            return;
        };
        let flow = &mut memory.flows[usize::from(message.from.0)];
        let head = message.body[..8].try_into().expect("eight bytes");
        flow.released = sequence_of(u64::from_le_bytes(head));
        flow.held = flow.held.split_off(&(flow.released + 1));
    }

    // ---- what must be true all the time ----

    pub fn check_all(&self) {
        let memories = self.memories.borrow();
        for (machine, memory) in &*memories {
            if let Some(violation) = memory.check() {
                self.blame(format!("at {machine}: {violation}"));
            }
        }
    }

    /// From now on, everybody must reach everybody.
    pub fn begin_end(&self) {
        *self.works.borrow_mut() = Some(BTreeSet::new());
    }

    pub fn check_end(&self) {
        let works = self.works.borrow();
        let works = works.as_ref().map_or(0, BTreeSet::len);
        if works != MACHINES * MACHINES {
            self.blame(format!("only {works} of the ways work at the end"));
        }
        for (machine, memory) in &*self.memories.borrow() {
            for (from, flow) in memory.flows.iter().enumerate() {
                if let Some(lost) = flow.awaited.first() {
                    self.blame(format!(
                        "{from} to {machine}: {lost} was acknowledged and lost"
                    ));
                }
            }
        }
    }
}

impl Memory {
    fn words(&self) -> Vec<u64> {
        let words = self.host.region(0).expect("a region").words();
        let words = words.iter().map(|word| word.load(Ordering::Acquire));
        words.take(MACHINES + 1).collect()
    }

    fn check(&self) -> Option<String> {
        let words = self.words();
        for (from, value) in words.iter().take(MACHINES).enumerate() {
            let acknowledged = self.acknowledged[from];
            if sequence_of(*value) < acknowledged {
                return Some(format!(
                    "of {from}, {acknowledged} is acknowledged and not there"
                ));
            }
            let is_old = value >> 32 < self.closing.number;
            if is_old && self.closing.words[from] != *value {
                return Some(format!(
                    "of {from}, {value:x} was written after {} was closed",
                    self.closing.number
                ));
            }
        }
        let (count, most) = (words[MACHINES], self.counts);
        let least = self.counted.len() as u64;
        let is_possible = (least..=most).contains(&count);
        (!is_possible).then(|| format!("{count} were counted, not {least} to {most}"))
    }
}
