//! Brings a history into a form that can be judged fast, and refuses what contradicts itself without any order.

use crate::history::{
    Change, History, Id, Isolation, Moment, NEVER, Object, Outcome, Seen, Timestamp, Transaction,
};
use crate::violation::{Kind, Saw as Shown, Violation, violation};

/// What a read returned. The number is a transaction's place in the history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Saw {
    Initial,
    Absent,
    By(u32),
}

/// A read, without its transaction. Objects are numbered anew, from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOf {
    pub object: u32,
    pub saw: Saw,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOf {
    pub object: u32,
    pub change: Change,
}

/// A version that exists: its writer took effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub object: u32,
    pub at: Timestamp,
    pub writer: u32,
    pub change: Change,
}

/// A history whose reads all name versions that can exist.
pub(crate) struct Prepared<'a> {
    pub all: &'a [Transaction],
    pub objects: Vec<Object>,
    pub reads: Groups<ReadOf>,
    pub writes: Groups<WriteOf>,
    /// Of each object, by timestamp.
    pub versions: Groups<Version>,
    /// Of each transaction: the timestamp of its versions, if it has any.
    pub wrote_at: Vec<Option<Timestamp>>,
}

/// A list for each of many, in one.
pub(crate) struct Groups<T> {
    items: Vec<T>,
    ends: Vec<u32>,
}

impl<T> Groups<T> {
    pub fn of(&self, group: u32) -> &[T] {
        &self.items[self.range(group)]
    }

    /// Where the items of a group lie among all.
    pub fn range(&self, group: u32) -> std::ops::Range<usize> {
        let group = group as usize;
        let begin = group
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        begin..self.ends[group] as usize
    }

    pub fn all(&self) -> &[T] {
        &self.items
    }

    /// From items that lie in the order of their groups.
    pub fn from_sorted(items: Vec<T>, groups: usize, group: impl Fn(&T) -> u32) -> Groups<T> {
        let mut ends = vec![0u32; groups];
        for item in &items {
            ends[group(item) as usize] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum;
        }
        Groups { items, ends }
    }
}

/// Operations of one history, at most. Numbers within it then fit into 32 bits.
const OPERATIONS_MAX: usize = 1 << 30;

impl<'a> Prepared<'a> {
    /// Nothing has taken effect in it yet: `resolve` tells what has.
    pub fn new(history: &'a History) -> Result<Prepared<'a>, Box<Violation>> {
        let all = &history.transactions[..];
        let operations: usize = all.iter().map(|t| 1 + t.reads.len() + t.writes.len()).sum();
        if operations > OPERATIONS_MAX {
            let why =
                format!("{operations} operations in one history; {OPERATIONS_MAX} can be judged");
            return Err(violation(Kind::Malformed, &[], None, why));
        }
        let ids = numbered(all)?;
        for transaction in all {
            check_record(transaction)?;
        }
        let objects = objects_of(all);
        let writes = writes_of(all, &objects)?;
        let reads = reads_of(all, &objects, &ids, &writes)?;
        let groups = objects.len();
        Ok(Prepared {
            all,
            objects,
            reads,
            writes,
            versions: Groups::from_sorted(Vec::new(), groups, |_| 0),
            wrote_at: vec![None; all.len()],
        })
    }

    pub fn transaction(&self, number: u32) -> &'a Transaction {
        &self.all[number as usize]
    }

    /// All transactions by their numbers.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..self.all.len() as u32
    }

    /// The read timestamp of a transaction that has read, or taken effect.
    pub fn read_at(&self, number: u32) -> Timestamp {
        self.transaction(number).read_timestamp.unwrap_or(0)
    }

    /// Where it stands in the order of timestamps, if it has a timestamp.
    pub fn point(&self, number: u32) -> Option<Timestamp> {
        self.wrote_at[number as usize].or(self.transaction(number).read_timestamp)
    }

    pub fn object(&self, number: u32) -> Object {
        self.objects[number as usize]
    }

    /// The moment after which all that begins, and is strict, must come after `number`. There is none if nobody was
    /// told of the outcome, nor if it did not wait for its write timestamp: it may end before that. Only snapshot
    /// isolation may leave out that wait (§4.2).
    pub fn ended(&self, number: u32) -> Option<Moment> {
        let transaction = self.transaction(number);
        let waited = !self.is_split(number) || transaction.options.strict;
        let was_told =
            !matches!(transaction.outcome, Outcome::Unknown(_)) && transaction.end != NEVER;
        (waited && was_told).then_some(transaction.end)
    }

    /// True if `number` must come after all that ended before it began.
    pub fn is_strict(&self, number: u32) -> bool {
        let options = self.transaction(number).options;
        options.strict && !options.stale
    }

    /// True if it reads at one moment of the order and writes at another: it took effect under snapshot isolation.
    pub fn is_split(&self, number: u32) -> bool {
        let isolation = self.transaction(number).options.isolation;
        isolation == Isolation::Snapshot && self.wrote_at[number as usize].is_some()
    }

    /// True if a write relies on the version that it replaces. Who allocates an object that it has not read does not
    /// care how long it was free.
    pub fn relies_on(&self, writer: u32, object: u32, change: Change) -> bool {
        change != Change::Allocate || self.saw(writer, object).is_some()
    }

    /// Where among all writes the one of `writer` to `object` is.
    pub fn write_index(&self, writer: u32, object: u32) -> Option<usize> {
        let own = self.writes.of(writer);
        let at = own
            .binary_search_by_key(&object, |write| write.object)
            .ok()?;
        Some(self.writes.range(writer).start + at)
    }

    /// What `reader` saw of `object`, if it read it.
    pub fn saw(&self, reader: u32, object: u32) -> Option<Saw> {
        let own = self.reads.of(reader);
        let at = own.binary_search_by_key(&object, |read| read.object).ok()?;
        Some(own[at].saw)
    }

    pub fn shown(&self, saw: Saw) -> Shown {
        Shown(match saw {
            Saw::Initial => Seen::Initial,
            Saw::Absent => Seen::Absent,
            Saw::By(writer) => Seen::Of(self.transaction(writer).id),
        })
    }

    pub fn violation(
        &self,
        kind: Kind,
        involved: &[u32],
        object: Option<u32>,
        why: String,
    ) -> Box<Violation> {
        let involved: Vec<&Transaction> = involved
            .iter()
            .map(|&number| self.transaction(number))
            .collect();
        violation(
            kind,
            &involved,
            object.map(|number| self.object(number)),
            why,
        )
    }
}

/// The versions of all transactions to which `at` gives a timestamp.
pub(crate) fn versions_of(
    prepared: &Prepared<'_>,
    at: impl Fn(u32) -> Option<Timestamp>,
) -> Groups<Version> {
    let mut versions = Vec::with_capacity(prepared.writes.all().len());
    for writer in prepared.numbers() {
        let Some(at) = at(writer) else {
            continue;
        };
        versions.extend(prepared.writes.of(writer).iter().map(|write| Version {
            object: write.object,
            at,
            writer,
            change: write.change,
        }));
    }
    versions.sort_unstable_by_key(|version| (version.object, version.at, version.writer));
    Groups::from_sorted(versions, prepared.objects.len(), |version| version.object)
}

fn malformed(involved: &[&Transaction], why: String) -> Box<Violation> {
    violation(Kind::Malformed, involved, None, why)
}

/// The ids in their order, with the places of their transactions.
fn numbered(all: &[Transaction]) -> Result<Vec<(Id, u32)>, Box<Violation>> {
    let mut ids: Vec<(Id, u32)> = all
        .iter()
        .zip(0..)
        .map(|(t, number)| (t.id, number))
        .collect();
    ids.sort_unstable();
    for pair in ids.windows(2) {
        if pair[0].0 == pair[1].0 {
            let both = [&all[pair[0].1 as usize], &all[pair[1].1 as usize]];
            return Err(malformed(
                &both,
                format!("there are two transactions T{}", pair[0].0),
            ));
        }
    }
    Ok(ids)
}

fn check_record(t: &Transaction) -> Result<(), Box<Violation>> {
    let why = match t.outcome {
        _ if t.begin > t.end => "ended before it began",
        Outcome::Committed(_) if t.writes.is_empty() => "has a write timestamp but wrote nothing",
        Outcome::ReadOnly if !t.writes.is_empty() => "is read-only but wrote",
        _ if t.options.read_only && !t.writes.is_empty() => "was declared read-only but wrote",
        Outcome::Committed(_) | Outcome::ReadOnly if t.end == NEVER => {
            "was reported as committed but has no end"
        }
        Outcome::Committed(_) if t.read_timestamp.is_none() => "committed without a read timestamp",
        _ if t.read_timestamp.is_none() && !t.reads.is_empty() => "read without a read timestamp",
        _ => return Ok(()),
    };
    Err(malformed(&[t], format!("T{} {why}", t.id)))
}

fn objects_of(all: &[Transaction]) -> Vec<Object> {
    let mut objects = Vec::new();
    for transaction in all {
        objects.extend(transaction.reads.iter().map(|read| read.object));
        objects.extend(transaction.writes.iter().map(|write| write.object));
    }
    objects.sort_unstable();
    objects.dedup();
    objects
}

fn number_of(objects: &[Object], object: Object) -> u32 {
    objects
        .binary_search(&object)
        .expect("all objects were gathered") as u32
}

fn writes_of(all: &[Transaction], objects: &[Object]) -> Result<Groups<WriteOf>, Box<Violation>> {
    let mut items = Vec::new();
    let mut owners = Vec::new();
    for (t, number) in all.iter().zip(0u32..) {
        let from = items.len();
        items.extend(t.writes.iter().map(|write| WriteOf {
            object: number_of(objects, write.object),
            change: write.change,
        }));
        items[from..].sort_unstable_by_key(|write| write.object);
        if let Some(pair) = items[from..]
            .windows(2)
            .find(|pair| pair[0].object == pair[1].object)
        {
            let object = objects[pair[0].object as usize];
            return Err(malformed(
                &[t],
                format!("T{} has two writes of {object:#x}", t.id),
            ));
        }
        owners.resize(items.len(), number);
    }
    Ok(grouped(items, &owners, all.len()))
}

/// `owners` is the group of each item, in order.
fn grouped<T>(items: Vec<T>, owners: &[u32], groups: usize) -> Groups<T> {
    let mut ends = vec![0; groups];
    let mut end = 0;
    for (group, slot) in (0u32..).zip(&mut ends) {
        while owners.get(end) == Some(&group) {
            end += 1;
        }
        *slot = end as u32;
    }
    Groups { items, ends }
}

fn reads_of(
    all: &[Transaction],
    objects: &[Object],
    ids: &[(Id, u32)],
    writes: &Groups<WriteOf>,
) -> Result<Groups<ReadOf>, Box<Violation>> {
    let mut items = Vec::new();
    let mut owners = Vec::new();
    for (t, number) in all.iter().zip(0u32..) {
        let mut own = Vec::with_capacity(t.reads.len());
        for read in &t.reads {
            let object = number_of(objects, read.object);
            let saw = match read.seen {
                Seen::Initial => Saw::Initial,
                Seen::Absent => Saw::Absent,
                Seen::Of(id) => Saw::By(writer_of(all, ids, writes, t, object, read.object, id)?),
            };
            own.push(ReadOf { object, saw });
        }
        own.sort_unstable_by_key(|read| (read.object, read.saw));
        own.dedup_by_key(|read| (read.object, read.saw));
        if let Some(pair) = own.windows(2).find(|pair| pair[0].object == pair[1].object) {
            return Err(not_repeatable(t, objects[pair[0].object as usize]));
        }
        items.append(&mut own);
        owners.resize(items.len(), number);
    }
    Ok(grouped(items, &owners, all.len()))
}

fn not_repeatable(t: &Transaction, object: Object) -> Box<Violation> {
    let mut seen: Vec<String> = Vec::new();
    for read in t.reads.iter().filter(|read| read.object == object) {
        let shown = Shown(read.seen).to_string();
        if !seen.contains(&shown) {
            seen.push(shown);
        }
    }
    let why = format!(
        "T{} read {object:#x} several times, and saw {}",
        t.id,
        seen.join(", then ")
    );
    violation(Kind::NotRepeatable, &[t], Some(object), why)
}

/// The place of the transaction that wrote what `t` read.
fn writer_of(
    all: &[Transaction],
    ids: &[(Id, u32)],
    writes: &Groups<WriteOf>,
    t: &Transaction,
    number: u32,
    object: Object,
    id: Id,
) -> Result<u32, Box<Violation>> {
    let reader = t.id;
    let Ok(at) = ids.binary_search_by_key(&id, |entry| entry.0) else {
        let why = format!(
            "T{reader} read from {object:#x} a value of T{id}, and there is no such transaction"
        );
        return Err(violation(Kind::NobodyWrote, &[t], Some(object), why));
    };
    let place = ids[at].1;
    let writer = &all[place as usize];
    let own = writes.of(place);
    let change = own
        .binary_search_by_key(&number, |write| write.object)
        .map(|at| own[at].change);
    let (kind, why) = match change {
        _ if id == reader => (Kind::NobodyWrote, "its own value, before it had written it"),
        Err(_) => (
            Kind::NobodyWrote,
            "a value of it, but it did not write there",
        ),
        Ok(Change::Free) => (Kind::NobodyWrote, "a value of it, but it freed that object"),
        Ok(_) if writer.outcome == Outcome::Aborted => {
            (Kind::ReadOfAborted, "its value, but it aborted")
        }
        Ok(_) => return Ok(place),
    };
    let why = format!("T{reader} read {object:#x}, which T{id} wrote: {why}");
    Err(violation(kind, &[t, writer], Some(object), why))
}
