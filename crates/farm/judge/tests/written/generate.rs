//! Valid histories by a store of versions, and random changes to them.

use super::*;
use std::collections::BTreeMap;

/// A small generator of random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// What a history is made of.
#[derive(Clone, Copy)]
pub struct Shape {
    pub transactions: usize,
    pub objects: u64,
    /// Reads of a transaction, at most; the writes are some of those.
    pub operations: usize,
    /// Transactions that run at a time.
    pub at_a_time: usize,
    /// Percent of the transactions that ask for something else than the default.
    pub options: usize,
    /// Percent of the writes that free the object; then it is allocated again.
    pub frees: usize,
    /// Percent of the writes without a read before.
    pub blind: usize,
    /// Percent of the commits whose outcome nobody learns.
    pub unknown: usize,
    /// Percent of the steps in which a client dies, in the middle of its transaction.
    pub dies: usize,
    /// Percent of the blind writes that allocate what is free now, whatever the snapshot has there.
    pub late: usize,
    /// A transaction at the end reads everything.
    pub reads_all: bool,
}

pub const SMALL: Shape = Shape {
    transactions: 6,
    objects: 3,
    operations: 3,
    at_a_time: 3,
    options: 50,
    frees: 20,
    blind: 0,
    unknown: 0,
    dies: 0,
    late: 0,
    reads_all: false,
};

/// The store. Timestamps are ten times the moments.
struct Store {
    random: Random,
    shape: Shape,
    now: Moment,
    versions: BTreeMap<Object, Vec<(Timestamp, Id, Change)>>,
    /// A machine's timestamps of transactions that are not strict do not go back.
    low: [Timestamp; MACHINES],
}

const MACHINES: usize = 3;

struct Running {
    transaction: Transaction,
    reads_left: Vec<Object>,
}

/// A history in which nothing is wrong.
pub fn generate(seed: u64, shape: Shape) -> History {
    let mut store = Store {
        random: Random(seed),
        shape,
        now: 0,
        versions: BTreeMap::new(),
        low: [0; MACHINES],
    };
    let mut done: Vec<Transaction> = Vec::new();
    let mut running: Vec<Running> = Vec::new();
    let mut begun = 0;
    while done.len() < shape.transactions {
        store.now += 1;
        let may_begin = begun < shape.transactions && running.len() < shape.at_a_time;
        if may_begin && (running.is_empty() || store.random.chance(30)) {
            begun += 1;
            let started = store.begin(begun as Id);
            running.push(started);
            continue;
        }
        let at = store.random.below(running.len());
        if shape.dies > 0 && store.random.chance(shape.dies) {
            // It has not come to its commit, and never will.
            done.push(running.swap_remove(at).transaction);
            continue;
        }
        match running[at].reads_left.pop() {
            Some(object) => store.read(&mut running[at].transaction, object),
            None => done.push(store.end(running.swap_remove(at).transaction)),
        }
    }
    if shape.reads_all {
        done.push(store.read_all(begun as Id + 1));
    }
    History { transactions: done }
}

impl Store {
    fn begin(&mut self, id: Id) -> Running {
        let mut options = Options::DEFAULT;
        if self.random.chance(self.shape.options) {
            for change in [
                Options::snapshot_isolation,
                Options::not_strict,
                Options::read_only,
                Options::stale,
            ] {
                if self.random.chance(30) {
                    options = change(options);
                }
            }
        }
        let machine = self.random.below(MACHINES);
        let begin = self.now;
        self.now += 1;
        let mut read_at = self.now * 10;
        if options.stale {
            read_at = self.random.next() % (read_at + 1);
        } else if !options.strict {
            // The lower bound of an interval that may be wide.
            read_at = self.low[machine].max(read_at.saturating_sub(self.random.next() % 200));
        }
        let reads = self.random.below(self.shape.operations + 1);
        let reads_left = (0..reads)
            .map(|_| 1 + self.random.next() % self.shape.objects)
            .collect();
        let transaction = tx(id, begin, NEVER)
            .on(machine as u32)
            .with(options)
            .reads_at(read_at);
        Running {
            transaction,
            reads_left,
        }
    }

    fn version(&self, object: Object, at: Timestamp) -> Option<(Timestamp, Id, Change)> {
        let versions = self.versions.get(&object)?;
        let after = versions.partition_point(|version| version.0 <= at);
        after.checked_sub(1).map(|last| versions[last])
    }

    /// Objects with even numbers are there from the beginning.
    fn seen(&self, object: Object, at: Timestamp) -> Seen {
        match self.version(object, at) {
            Some((_, _, Change::Free)) => Seen::Absent,
            Some((_, writer, _)) => Seen::Of(writer),
            None if object.is_multiple_of(2) => Seen::Initial,
            None => Seen::Absent,
        }
    }

    fn read(&mut self, t: &mut Transaction, object: Object) {
        let seen = self.seen(object, t.read_timestamp.expect("it has one"));
        if t.writes.iter().all(|write| write.object != object) {
            t.reads.push(Read { object, seen });
        }
        if !t.options.read_only && self.random.chance(60) {
            self.write(t, object, seen);
        }
        if !t.options.read_only && self.random.chance(self.shape.blind) {
            let object = 1 + self.random.next() % self.shape.objects;
            let mut seen = self.seen(object, t.read_timestamp.expect("it has one"));
            if self.shape.late > 0 && self.random.chance(self.shape.late) {
                seen = match self.seen(object, self.now * 10) {
                    Seen::Absent => Seen::Absent,
                    _ => seen,
                };
            }
            self.write(t, object, seen);
        }
    }

    fn write(&mut self, t: &mut Transaction, object: Object, seen: Seen) {
        let change = match seen {
            Seen::Absent => Change::Allocate,
            _ if self.random.chance(self.shape.frees) => Change::Free,
            _ => Change::Set,
        };
        if t.writes.iter().all(|write| write.object != object) {
            t.writes.push(Write { object, change });
        }
    }

    fn end(&mut self, mut t: Transaction) -> Transaction {
        let wrote_at = self.now * 10;
        self.now += 1;
        t.end = self.now;
        let machine = t.machine as usize;
        let commits = self.is_current(&t, wrote_at) && !self.random.chance(10);
        t.outcome = match (t.writes.is_empty(), commits) {
            (true, _) if self.random.chance(50) => Outcome::ReadOnly,
            (false, true) => Outcome::Committed(wrote_at),
            _ => Outcome::Aborted,
        };
        if matches!(t.outcome, Outcome::Committed(_)) {
            self.low[machine] = wrote_at;
            self.commit(&mut t, wrote_at);
        }
        if !t.options.stale {
            self.low[machine] = self.low[machine].max(t.read_timestamp.unwrap_or(0));
        }
        t
    }

    fn commit(&mut self, t: &mut Transaction, wrote_at: Timestamp) {
        if self.random.chance(self.shape.unknown) {
            t.end = NEVER;
            t.outcome = Outcome::Unknown(self.random.chance(50).then_some(wrote_at));
            if self.random.chance(50) {
                return;
            }
        }
        for write in &t.writes {
            self.versions
                .entry(write.object)
                .or_default()
                .push((wrote_at, t.id, write.change));
        }
    }

    /// Lemma 3.
    fn is_current(&self, t: &Transaction, wrote_at: Timestamp) -> bool {
        let read_at = t.read_timestamp.unwrap_or(0);
        let is_unchanged =
            |object: Object| self.version(object, wrote_at) == self.version(object, read_at);
        let is_serializable = t.options.isolation == Isolation::Serializable;
        let has_read = |object: Object| t.reads.iter().any(|read| read.object == object);
        let can_be_written = |write: &Write| match write.change {
            Change::Allocate if !has_read(write.object) => {
                self.seen(write.object, wrote_at) == Seen::Absent
            }
            _ => is_unchanged(write.object),
        };
        wrote_at > read_at
            && (!is_serializable || t.reads.iter().all(|read| is_unchanged(read.object)))
            && t.writes.iter().all(can_be_written)
    }

    fn read_all(&mut self, id: Id) -> Transaction {
        self.now += 2;
        let read_at = self.now * 10;
        let mut t = tx(id, self.now - 1, self.now + 1)
            .on(0)
            .reads_at(read_at)
            .commits();
        for object in 1..=self.shape.objects {
            t = t.sees(object, self.seen(object, read_at));
        }
        t
    }
}

/// Changes one thing. It may break the history, or not.
pub fn mutate(history: &mut History, random: &mut Random) {
    let all = &mut history.transactions;
    let at = random.below(all.len());
    let latest = all
        .iter()
        .filter(|t| t.end != NEVER)
        .map(|t| t.end)
        .max()
        .unwrap_or(1);
    let t = &all[at];
    match random.below(6) {
        0..3 if !t.reads.is_empty() => {
            let read = random.below(t.reads.len());
            let object = t.reads[read].object;
            let mut choices = vec![Seen::Initial, Seen::Absent];
            let wrote_it = |t: &&Transaction| t.writes.iter().any(|write| write.object == object);
            choices.extend(all.iter().filter(wrote_it).map(|t| Seen::Of(t.id)));
            all[at].reads[read].seen = *random.of(&choices);
        }
        3 if t.end != NEVER => {
            let begin = 1 + random.next() % latest;
            let end = begin + random.next() % (latest - begin + 1);
            (all[at].begin, all[at].end) = (begin, end);
        }
        4 => {
            let options = &mut all[at].options;
            match random.below(3) {
                0 => options.isolation = Isolation::Serializable,
                1 => options.strict = true,
                _ => options.stale = false,
            }
        }
        5 => {
            let now = t.read_timestamp.unwrap_or(0) + 1 + random.next() % 50;
            all[at].outcome = match t.outcome {
                Outcome::Aborted if t.writes.is_empty() => Outcome::ReadOnly,
                Outcome::Aborted => Outcome::Committed(now),
                Outcome::Committed(_) => Outcome::Aborted,
                outcome => outcome,
            };
        }
        _ => {}
    }
}
