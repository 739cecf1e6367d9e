//! A machine of the model: its replicas, its ledger, and what it does with what it is told.

use crate::recovery::{Author, Below, Change, Held, Id, Number, Record, Recovery, State, Write};
use bytes::Bytes;
use plinth_farm_fabric::Machine as Name;
use plinth_farm_memory::{Class, Pointer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub const OBJECTS: usize = 3;

#[derive(Clone, Default, Debug)]
pub struct Object {
    pub written_at: u64,
    /// The transaction that wrote it.
    pub value: u64,
    pub lock: Option<Id>,
    /// All transactions that were applied, also those that were older than what was there.
    pub applied: BTreeSet<u64>,
}

impl Object {
    pub fn apply(&mut self, written_at: u64, value: u64) {
        // Before the first version there is nothing.
        if written_at == 0 {
            return;
        }
        self.applied.insert(value);
        if written_at > self.written_at {
            (self.written_at, self.value, self.lock) = (written_at, value, None);
        }
    }
}

/// What is said in the commit protocol of Figure 3.
#[derive(Clone, Debug)]
pub enum Commit {
    Lock {
        regions: Vec<u16>,
        writes: Vec<Write>,
    },
    Unlock,
    Backup {
        written_at: u64,
        regions: Vec<u16>,
        writes: Vec<Write>,
    },
    Primary {
        written_at: u64,
    },
    Truncate,
}

pub struct Said {
    pub id: Id,
    pub commit: Commit,
    pub below: Number,
}

pub struct Machine {
    pub author: Author,
    pub configuration: u64,
    pub recovery: Recovery,
    pub replicas: BTreeMap<u16, Vec<Object>>,
    pub ledger: BTreeMap<(u16, Id), Record>,
    pub truncated: BTreeSet<Id>,
    pub below: BTreeMap<Author, Number>,
    /// By sender: what was acknowledged and is not taken in.
    pub rings: BTreeMap<Name, VecDeque<Said>>,
    pub numbers: Number,
    /// How many objects of a region are copied in this configuration.
    pub copied: BTreeMap<u16, usize>,
}

pub fn write(region: u16, object: usize, key: u64) -> Write {
    let class = Class::of(8).expect("small");
    Write {
        at: Pointer::new(region, class, 1 + object as u64),
        change: Change::Update,
        payload: Bytes::copy_from_slice(&key.to_le_bytes()),
    }
}

/// Object and transaction.
pub fn read(write: &Write) -> (usize, u64) {
    let key = write.payload[..8].try_into().map(u64::from_le_bytes);
    (write.at.word() as usize - 1, key.expect("eight bytes"))
}

impl Machine {
    pub fn new(author: Author) -> Machine {
        Machine {
            author,
            configuration: 0,
            recovery: Recovery::new(author.machine),
            replicas: BTreeMap::new(),
            ledger: BTreeMap::new(),
            truncated: BTreeSet::new(),
            below: BTreeMap::new(),
            rings: BTreeMap::new(),
            numbers: 0,
            copied: BTreeMap::new(),
        }
    }

    pub fn object(&mut self, write: &Write) -> Option<&mut Object> {
        let objects = self.replicas.get_mut(&write.at.region())?;
        objects.get_mut(read(write).0)
    }

    fn has_ended(&self, id: Id) -> bool {
        let below = self.below.get(&id.author).copied();
        self.truncated.contains(&id) || id.number < below.unwrap_or(0)
    }

    fn records(&mut self, id: Id) -> impl Iterator<Item = &mut Record> {
        let mine = self.ledger.iter_mut().filter(move |((_, of), _)| *of == id);
        mine.map(|(_, record)| record)
    }

    /// Takes in a message. A lock is answered.
    pub fn take_in(&mut self, said: Said) -> Option<bool> {
        let Said { id, commit, below } = said;
        let answer = match commit {
            Commit::Lock { regions, writes } => Some(self.lock(id, regions, writes)),
            Commit::Unlock => {
                self.unlock(id);
                None
            }
            Commit::Backup {
                written_at,
                regions,
                writes,
            } => {
                self.keep(id, State::Logged { written_at }, regions, writes);
                None
            }
            Commit::Primary { written_at } => {
                self.commit(id, written_at);
                None
            }
            Commit::Truncate => {
                self.truncate(id);
                None
            }
        };
        let mark = self.below.entry(id.author).or_default();
        *mark = below.max(*mark);
        answer
    }

    fn keep(&mut self, id: Id, state: State, regions: Vec<u16>, writes: Vec<Write>) {
        assert!(
            !self.has_ended(id),
            "nobody says anything of what has ended"
        );
        for write in writes {
            let record = self.ledger.entry((write.at.region(), id));
            let record = record.or_insert_with(|| Record {
                id,
                regions: regions.clone(),
                state,
                writes: Vec::new(),
            });
            record.writes.push(write);
        }
    }

    fn lock(&mut self, id: Id, regions: Vec<u16>, writes: Vec<Write>) -> bool {
        let is_free = |write: &Write| {
            let object = self
                .replicas
                .get(&write.at.region())
                .map(|all| &all[read(write).0]);
            object.is_some_and(|object| object.lock.is_none())
        };
        if !writes.iter().all(is_free) {
            return false;
        }
        for write in &writes {
            self.object(write).expect("it is free").lock = Some(id);
        }
        self.keep(id, State::Locked, regions, writes);
        true
    }

    /// Ends the locks in `region`, or everywhere. Says how many.
    pub fn release(&mut self, id: Id, region: Option<u16>) -> usize {
        let replicas = self.replicas.iter_mut();
        let replicas = replicas.filter(|(of, _)| region.is_none_or(|region| region == **of));
        let objects = replicas.flat_map(|(_, objects)| objects);
        let locked = objects.filter(|object| object.lock == Some(id));
        locked.map(|object| object.lock = None).count()
    }

    fn unlock(&mut self, id: Id) {
        self.release(id, None);
        self.ledger.retain(|(_, of), _| *of != id);
    }

    fn apply(&mut self, writes: &[Write], written_at: u64) {
        for write in writes {
            let (_, key) = read(write);
            self.object(write)
                .expect("a replica")
                .apply(written_at, key);
        }
    }

    fn commit(&mut self, id: Id, written_at: u64) {
        let mut writes = Vec::new();
        for record in self.records(id).filter(|r| r.state == State::Locked) {
            record.state = State::Committed { written_at };
            writes.extend(record.writes.iter().cloned());
        }
        self.apply(&writes, written_at);
    }

    fn truncate(&mut self, id: Id) {
        let mut logged = Vec::new();
        for record in self.records(id) {
            if let State::Logged { written_at } = record.state {
                logged.push((record.writes.clone(), written_at));
            }
        }
        for (writes, written_at) in logged {
            self.apply(&writes, written_at);
        }
        self.ledger.retain(|(_, of), _| *of != id);
        self.truncated.insert(id);
    }

    pub fn install(&mut self, writes: &[Write], written_at: u64) {
        self.apply(writes, written_at);
    }

    /// Takes in all that is in the rings, and gives away what is known.
    pub fn close(&mut self, committing: Vec<Number>) -> Held {
        for (_, ring) in std::mem::take(&mut self.rings) {
            for said in ring {
                self.take_in(said);
            }
        }
        // What is truncated is known without its regions.
        let truncated = std::mem::take(&mut self.truncated);
        let ended = |id: Id| Record {
            id,
            regions: Vec::new(),
            state: State::Truncated,
            writes: Vec::new(),
        };
        let regions = self.replicas.keys();
        let ended = regions.flat_map(|r| truncated.iter().map(move |id| (*r, ended(*id))));
        let mut records: Vec<(u16, Record)> = ended.collect();
        let is_locked = |(_, record): &(_, &Record)| record.state == State::Locked;
        let locks = self.ledger.iter().filter(is_locked);
        let locks = locks.map(|(of, _)| *of).collect();
        let ledger = std::mem::take(&mut self.ledger).into_iter();
        records.extend(ledger.map(|((region, _), record)| (region, record)));
        let below = self.below.iter();
        let below = below.map(|(&author, &number)| Below { author, number });
        self.copied.clear();
        Held {
            committing,
            records,
            locks,
            below: below.collect(),
        }
    }
}
