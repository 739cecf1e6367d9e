//! What transactions did, and whether a map with timestamps explains it.
//!
//! Committed transactions change the map in the order of their write timestamps. Each transaction, also one that
//! aborts, must have seen the map at its read timestamp with its own changes; one that committed must find the same
//! just before its write timestamp. `plinth-farm-judge` is told the same at the level of keys: it heeds real time.

use crate::notes::Told;
use bytes::Bytes;
use plinth_farm_judge::{
    Change, History, Moment, NEVER, Options, Outcome, Read, Seen, Summary, Transaction, Write,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Which structure, and which of its keys.
pub type Name = (u8, Bytes);
pub type Map = BTreeMap<Name, Bytes>;

/// Values under such keys are numbers that are added to; they do not tell who wrote them.
pub const COUNTER: u8 = b'+';

/// A call of a transaction, with its answer where there is one.
#[derive(Clone, Debug)]
pub enum Step {
    Get(Name, Option<Bytes>),
    Scan(Scan),
    /// Whether the key was new, if anybody was told.
    Set(Name, Bytes, Option<bool>),
    /// Whether the key was there, if anybody was told.
    Remove(Name, Option<bool>),
    /// Up to the end, which is no part of it.
    Clear(Name, Bytes),
    Add(Name, u64),
}

#[derive(Clone, Debug)]
pub struct Scan {
    pub part: u8,
    pub begin: Bytes,
    pub end: Bytes,
    pub limit: usize,
    pub reverse: bool,
    pub rows: Vec<(Bytes, Bytes)>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// The first eight bytes of its values.
    pub id: u64,
    pub machine: u32,
    pub begin: Moment,
    pub end: Moment,
    pub options: Options,
    pub read_at: Option<u64>,
    pub steps: Vec<Step>,
    pub outcome: Outcome,
}

#[derive(Default)]
pub struct Log {
    entries: RefCell<Vec<Entry>>,
    moment: RefCell<Moment>,
    last_id: RefCell<u64>,
}

impl Log {
    fn moment(&self) -> Moment {
        *self.moment.borrow_mut() += 1;
        *self.moment.borrow()
    }

    /// Call it before the engine is asked to begin.
    pub fn begin(&self, machine: u32, options: Options) -> Entry {
        *self.last_id.borrow_mut() += 1;
        Entry {
            id: *self.last_id.borrow(),
            machine,
            begin: self.moment(),
            end: 0,
            options,
            read_at: None,
            steps: Vec::new(),
            outcome: Outcome::Aborted,
        }
    }

    /// Call it after the engine has answered.
    pub fn end(&self, mut entry: Entry, outcome: Outcome) {
        entry.end = self.moment();
        entry.outcome = outcome;
        self.entries.borrow_mut().push(entry);
    }

    /// Call it before the engine is asked to commit, if the client may not hear the answer.
    pub fn commits(&self, entry: &Entry) {
        let mut entry = entry.clone();
        entry.end = NEVER;
        entry.outcome = Outcome::Unknown(None);
        self.entries.borrow_mut().push(entry);
    }

    /// The engine has answered after all. The snapshot may be known only now.
    pub fn settle(&self, id: u64, read_at: Option<u64>, outcome: Outcome) {
        let end = self.moment();
        let mut entries = self.entries.borrow_mut();
        let entry = entries.iter_mut().rev().find(|entry| entry.id == id);
        if let Some(entry) = entry {
            (entry.end, entry.read_at, entry.outcome) = (end, read_at, outcome);
        }
    }

    /// Tells of each transaction whose outcome nobody has heard whether it was committed, and when: `find` is asked
    /// with its number.
    pub fn resolve(&self, find: impl Fn(u64) -> Option<Told>) -> usize {
        let mut entries = self.entries.borrow_mut();
        let unknown = entries.iter_mut();
        let unknown = unknown.filter(|entry| matches!(entry.outcome, Outcome::Unknown(_)));
        unknown
            .map(|entry| {
                let told = find(entry.id);
                entry.read_at = told.as_ref().map(|told| told.read_at).or(entry.read_at);
                let outcome = told.map(|told| Outcome::Committed(told.written_at));
                entry.outcome = outcome.unwrap_or(Outcome::Aborted);
            })
            .count()
    }

    pub fn judge(&self) -> Result<(Summary, Map), String> {
        judge(&self.entries.borrow())
    }
}

fn number(value: Option<&Bytes>) -> u64 {
    let word = value.and_then(|value| value.get(..8)?.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

fn scanned(map: &Map, scan: &Scan) -> Vec<(Bytes, Bytes)> {
    if scan.begin >= scan.end {
        return Vec::new();
    }
    let rows = map.range((scan.part, scan.begin.clone())..(scan.part, scan.end.clone()));
    let rows = rows.map(|((_, key), value)| (key.clone(), value.clone()));
    match scan.reverse {
        true => rows.rev().take(scan.limit).collect(),
        false => rows.take(scan.limit).collect(),
    }
}

/// Carries out a step. False if its answer is another.
fn replay(map: &mut Map, step: &Step) -> bool {
    match step {
        Step::Get(name, saw) => map.get(name) == saw.as_ref(),
        Step::Scan(scan) => scanned(map, scan) == scan.rows,
        Step::Set(name, value, was_new) => {
            let is_new = map.insert(name.clone(), value.clone()).is_none();
            was_new.is_none_or(|was| was == is_new)
        }
        Step::Remove(name, was_there) => {
            let is_there = map.remove(name).is_some();
            was_there.is_none_or(|was| was == is_there)
        }
        Step::Clear((part, begin), end) => {
            map.retain(|(of, key), _| of != part || key < begin || key >= end);
            true
        }
        Step::Add(name, more) => {
            let sum = number(map.get(name)).wrapping_add(*more);
            map.insert(name.clone(), Bytes::copy_from_slice(&sum.to_le_bytes()));
            true
        }
    }
}

/// The map after the entry's steps. Error: the step that the map does not explain.
fn replayed(before: &Map, entry: &Entry, at: u64) -> Result<Map, String> {
    let mut map = before.clone();
    for step in &entry.steps {
        let earlier = map.clone();
        if !replay(&mut map, step) {
            let there = match step {
                Step::Scan(scan) => format!("{:?}", scanned(&earlier, scan)),
                Step::Get(name, _) | Step::Set(name, ..) | Step::Remove(name, _) => {
                    format!("{:?}", earlier.get(name))
                }
                Step::Clear(..) | Step::Add(..) => String::new(),
            };
            let Entry { id, outcome, .. } = entry;
            return Err(format!(
                "transaction {id} ({outcome:?}), which read at {:?}: {step:?} at {at}, where the model has {there}",
                entry.read_at
            ));
        }
    }
    Ok(map)
}

/// The map after each commit, by write timestamp.
struct Versions(BTreeMap<u64, Map>);

impl Versions {
    fn new(entries: &[Entry]) -> Result<Versions, String> {
        let written_at = |entry: &Entry| match entry.outcome {
            Outcome::Committed(at) => Some(at),
            _ => None,
        };
        let mut committed: Vec<(u64, &Entry)> = entries
            .iter()
            .filter_map(|entry| Some((written_at(entry)?, entry)))
            .collect();
        committed.sort_by_key(|(at, entry)| (*at, entry.id));
        let mut versions = Versions(BTreeMap::from([(0, Map::new())]));
        for (at, entry) in committed {
            let before = versions.below(at);
            let after = replayed(before, entry, at)?;
            // Others may have committed with the same timestamp: what they wrote is not this one's.
            let changes = changes(before, &after);
            let mut newest = versions.up_to(at).clone();
            for (name, value) in changes {
                match value {
                    Some(value) => newest.insert(name, value),
                    None => newest.remove(&name),
                };
            }
            versions.0.insert(at, newest);
        }
        Ok(versions)
    }

    fn below(&self, at: u64) -> &Map {
        let before = self.0.range(..at.max(1)).next_back();
        before.expect("one at 0").1
    }

    fn up_to(&self, at: u64) -> &Map {
        let before = self.0.range(..=at).next_back();
        before.expect("one at 0").1
    }
}

fn changes(before: &Map, after: &Map) -> Vec<(Name, Option<Bytes>)> {
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let mut changes: Vec<_> = gone.map(|name| (name.clone(), None)).collect();
    for (name, value) in after {
        if before.get(name) != Some(value) {
            changes.push((name.clone(), Some(value.clone())));
        }
    }
    changes
}

/// Numbers of keys, for the judge.
struct Names(BTreeMap<Name, u64>);

impl Names {
    fn new(entries: &[Entry]) -> Names {
        let mut names = BTreeSet::new();
        for step in entries.iter().flat_map(|entry| &entry.steps) {
            if let Step::Get(name, _) | Step::Set(name, ..) | Step::Remove(name, _) = step {
                names.insert(name.clone());
            }
        }
        Names(names.into_iter().zip(1..).collect())
    }

    fn seen(value: Option<&Bytes>) -> Seen {
        value.map_or(Seen::Absent, |value| Seen::Of(number(Some(value))))
    }

    fn reads(&self, entry: &Entry) -> Vec<Read> {
        let (mut reads, mut own) = (Vec::new(), BTreeSet::new());
        for step in &entry.steps {
            match step {
                Step::Get(name, saw) if !own.contains(name) => {
                    reads.extend(self.read(name, saw.as_ref()));
                }
                Step::Scan(scan) => self.scan(scan, &own, &mut reads),
                Step::Set(name, ..) | Step::Remove(name, _) => {
                    own.insert(name.clone());
                }
                Step::Clear((part, begin), end) if begin < end => {
                    let range = (*part, begin.clone())..(*part, end.clone());
                    own.extend(self.0.range(range).map(|(name, _)| name.clone()));
                }
                Step::Get(..) | Step::Clear(..) | Step::Add(..) => {}
            }
        }
        reads
    }

    fn read(&self, name: &Name, saw: Option<&Bytes>) -> Option<Read> {
        let object = *self.0.get(name)?;
        let seen = Names::seen(saw);
        (name.1.first() != Some(&COUNTER)).then_some(Read { object, seen })
    }

    /// All keys that the scan has passed.
    fn scan(&self, scan: &Scan, own: &BTreeSet<Name>, reads: &mut Vec<Read>) {
        if scan.begin >= scan.end {
            return;
        }
        let last = match scan.rows.len() == scan.limit {
            true => scan.rows.last().map(|(key, _)| key),
            false => None,
        };
        let is_passed = |key: &Bytes| match last {
            Some(last) if scan.reverse => key >= last,
            Some(last) => key <= last,
            None => scan.limit > 0,
        };
        let rows: BTreeMap<&Bytes, &Bytes> = scan.rows.iter().map(|(k, v)| (k, v)).collect();
        let range = (scan.part, scan.begin.clone())..(scan.part, scan.end.clone());
        for (name, _) in self.0.range(range) {
            if is_passed(&name.1) && !own.contains(name) {
                reads.extend(self.read(name, rows.get(&name.1).copied()));
            }
        }
    }

    /// What the entry has done to keys, or would have.
    fn writes(&self, entry: &Entry, versions: &Versions) -> Result<Vec<Write>, String> {
        let at = match entry.outcome {
            Outcome::Committed(at) => at,
            _ => entry.read_at.map_or(1, |at| at + 1),
        };
        let before = versions.below(at);
        let after = replayed(before, entry, at)?;
        let mut writes = Vec::new();
        for (name, value) in changes(before, &after) {
            let Some(object) = self
                .0
                .get(&name)
                .filter(|_| name.1.first() != Some(&COUNTER))
            else {
                continue;
            };
            let change = match (before.contains_key(&name), value.is_some()) {
                (true, true) => Change::Set,
                (false, _) => Change::Allocate,
                (true, false) => Change::Free,
            };
            writes.push(Write {
                object: *object,
                change,
            });
        }
        Ok(writes)
    }
}

fn judge(entries: &[Entry]) -> Result<(Summary, Map), String> {
    let versions = Versions::new(entries)?;
    for entry in entries {
        if let Some(read_at) = entry.read_at {
            replayed(versions.up_to(read_at), entry, read_at)?;
        }
    }
    let names = Names::new(entries);
    let mut history = History::default();
    for entry in entries {
        let writes = names.writes(entry, &versions)?;
        let outcome = match entry.outcome {
            // Nobody has told its client.
            Outcome::Committed(at) if entry.end == NEVER => Outcome::Unknown(Some(at)),
            _ if entry.end == NEVER => Outcome::Unknown(None),
            Outcome::Committed(_) if writes.is_empty() => Outcome::ReadOnly,
            outcome => outcome,
        };
        history.transactions.push(Transaction {
            id: entry.id,
            machine: entry.machine,
            begin: entry.begin,
            end: entry.end,
            options: entry.options,
            read_timestamp: entry.read_at,
            reads: names.reads(entry),
            writes,
            outcome,
        });
    }
    let summary = plinth_farm_judge::judge(&history).map_err(|violation| violation.to_string())?;
    Ok((summary, versions.up_to(u64::MAX).clone()))
}
