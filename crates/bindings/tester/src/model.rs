//! The model: a database as a list of its past states, and transactions that read one of them. It is slow and
//! simple, and shares with Plinth only the meaning of the API, no code.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;

pub type Map = BTreeMap<Bytes, Bytes>;

/// The key range `[begin, end)`.
#[derive(Clone, Debug)]
pub struct Span {
    pub begin: Bytes,
    pub end: Bytes,
}

impl Span {
    pub fn new(begin: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Span {
            begin: begin.into(),
            end: end.into(),
        }
    }
    pub fn key(key: &[u8]) -> Self {
        Span::new(key.to_vec(), [key, &[0]].concat())
    }
    fn everything() -> Self {
        Span::new(Bytes::new(), vec![0xff; 9])
    }
    fn holds(&self, key: &[u8]) -> bool {
        self.begin[..] <= *key && *key < self.end[..]
    }
    fn meets(&self, other: &Span) -> bool {
        self.begin < other.end && other.begin < self.end
    }
}

#[derive(Clone, Debug)]
pub enum Write {
    Set(Bytes, Bytes),
    Clear(Span),
    Atomic(&'static str, Bytes, Bytes),
}

impl Write {
    fn span(&self) -> Span {
        match self {
            Write::Set(key, _) | Write::Atomic(_, key, _) => Span::key(key),
            Write::Clear(span) => span.clone(),
        }
    }

    fn apply(&self, map: &mut Map) {
        match self {
            Write::Set(key, value) => drop(map.insert(key.clone(), value.clone())),
            Write::Clear(span) => map.retain(|key, _| !span.holds(key)),
            Write::Atomic(operation, key, operand) => {
                let after = atomic(operation, map.get(key).map(|v| &v[..]), operand);
                match after {
                    Some(value) => map.insert(key.clone(), value.into()),
                    None => map.remove(key),
                };
            }
        }
    }
}

/// Names of the atomic operations, which cause no read conflict.
pub const ATOMIC_OPERATIONS: [&str; 10] = [
    "ADD",
    "BIT_AND",
    "BIT_OR",
    "BIT_XOR",
    "MAX",
    "MIN",
    "BYTE_MAX",
    "BYTE_MIN",
    "APPEND_IF_FITS",
    "COMPARE_AND_CLEAR",
];

/// Applies an atomic operation as FoundationDB's documentation describes it.
fn atomic(operation: &str, old: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
    let length = operand.len();
    let fitted = |old: &[u8]| -> Vec<u8> {
        let padded = old.iter().copied().chain(std::iter::repeat(0));
        padded.take(length).collect()
    };
    let both = |combine: fn(u8, u8) -> u8| -> Vec<u8> {
        let old = fitted(old.unwrap_or_default());
        old.iter()
            .zip(operand)
            .map(|(a, b)| combine(*a, *b))
            .collect()
    };
    let is_larger = |a: &[u8], b: &[u8]| a.iter().rev().gt(b.iter().rev());
    Some(match (operation, old) {
        ("APPEND_IF_FITS", _) => [old.unwrap_or_default(), operand].concat(),
        ("COMPARE_AND_CLEAR", None) => return None,
        ("COMPARE_AND_CLEAR", Some(old)) if old == operand => return None,
        ("COMPARE_AND_CLEAR", Some(old)) => old.to_vec(),
        ("ADD", _) => {
            let mut carry = 0u16;
            let old = fitted(old.unwrap_or_default());
            let add = |(a, b): (&u8, &u8)| {
                carry = (carry >> 8) + u16::from(*a) + u16::from(*b);
                carry as u8
            };
            old.iter().zip(operand).map(add).collect()
        }
        ("BIT_OR", _) => both(|a, b| a | b),
        ("BIT_XOR", _) => both(|a, b| a ^ b),
        (_, None) => operand.to_vec(),
        ("BIT_AND", Some(_)) => both(|a, b| a & b),
        ("MAX", Some(old)) if is_larger(&fitted(old), operand) => fitted(old),
        ("MIN", Some(old)) if is_larger(operand, &fitted(old)) => fitted(old),
        ("BYTE_MAX", Some(old)) => old.max(operand).to_vec(),
        ("BYTE_MIN", Some(old)) => old.min(operand).to_vec(),
        _ => operand.to_vec(),
    })
}

/// A key selector; `or_equal` and `offset` as in FoundationDB.
#[derive(Clone, Debug)]
pub struct Selector {
    pub key: Bytes,
    pub or_equal: bool,
    pub offset: i64,
}

impl Selector {
    /// Index of the selected key among the sorted keys; below 0 or beyond the last if the selector runs off the end.
    fn place(&self, map: &Map) -> i64 {
        let before = map
            .keys()
            .filter(|key| **key < self.key || self.or_equal && **key == self.key);
        before.count() as i64 + self.offset - 1
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Commits,
    Conflicts,
    /// The result depends on more than the model knows.
    Unclear,
}

#[derive(Default)]
pub struct Database {
    /// The state after each commit; the first state is empty.
    states: Vec<Rc<Map>>,
    /// Write conflict ranges of each commit, from the second state on.
    commits: Vec<Vec<Span>>,
}

/// Index of a state.
pub type Version = usize;

#[derive(Clone, Default)]
pub struct Transaction {
    pub read_version: Option<Version>,
    writes: Vec<Write>,
    write_conflicts: Vec<Span>,
    /// Ranges that are certainly read conflicts.
    sure: Vec<Span>,
    /// Ranges that may be read conflicts.
    perhaps: Vec<Span>,
    next_write_is_silent: bool,
}

impl Database {
    pub fn new() -> Self {
        Database {
            states: vec![Rc::default()],
            commits: Vec::new(),
        }
    }

    pub fn version(&self) -> Version {
        self.states.len() - 1
    }

    pub fn newest(&self) -> &Map {
        &self.states[self.version()]
    }

    pub fn commit_writes(&mut self, writes: &[Write], conflicts: Vec<Span>) {
        let mut map = self.newest().clone();
        writes.iter().for_each(|write| write.apply(&mut map));
        self.states.push(Rc::new(map));
        self.commits.push(conflicts);
    }

    /// A commit outside of the keys that the model tracks.
    pub fn commit_elsewhere(&mut self) {
        self.commit_writes(&[], vec![Span::new(vec![0xfe; 8], vec![0xfe; 9])]);
    }
}

impl Transaction {
    fn version(&mut self, database: &Database) -> Version {
        *self.read_version.get_or_insert(database.version())
    }

    pub fn ask_read_version(&mut self, database: &Database) -> Version {
        self.version(database)
    }

    /// The rows that the transaction sees: its read version with its own writes.
    fn view(&mut self, database: &Database) -> Map {
        let version = self.version(database);
        let mut map = (*database.states[version]).clone();
        self.writes.iter().for_each(|write| write.apply(&mut map));
        map
    }

    fn has_touched(&self, key: &[u8]) -> bool {
        self.writes.iter().any(|write| write.span().holds(key))
    }

    fn note(&mut self, key: &[u8]) {
        if !self.has_touched(key) {
            self.sure.push(Span::key(key));
        }
    }

    pub fn get(&mut self, database: &Database, key: &[u8], snapshot: bool) -> Option<Bytes> {
        let found = self.view(database).get(key).cloned();
        if !snapshot {
            self.note(key);
            self.perhaps.push(Span::key(key));
        }
        found
    }

    /// The selected key. The error is -1 if it lies before all keys, otherwise it lies at or after their end.
    pub fn get_key(
        &mut self,
        database: &Database,
        selector: &Selector,
        snapshot: bool,
    ) -> Result<Bytes, i64> {
        let map = self.view(database);
        let place = selector.place(&map);
        if !snapshot {
            self.perhaps.push(Span::everything());
        }
        let found = usize::try_from(place)
            .ok()
            .and_then(|place| map.keys().nth(place));
        found.cloned().ok_or(place.signum())
    }

    pub fn get_range(
        &mut self,
        database: &Database,
        span: &Span,
        limit: usize,
        reverse: bool,
        snapshot: bool,
    ) -> Vec<(Bytes, Bytes)> {
        let map = self.view(database);
        let inside = map.iter().filter(|(key, _)| span.holds(key));
        let mut rows: Vec<_> = inside.map(|(k, v)| (k.clone(), v.clone())).collect();
        if reverse {
            rows.reverse();
        }
        if limit > 0 {
            rows.truncate(limit);
        }
        if !snapshot {
            rows.iter().for_each(|(key, _)| self.note(key));
            self.perhaps.push(span.clone());
        }
        rows
    }

    /// The span between two selectors; `None` if one of them runs off the keys.
    pub fn span_between(
        &mut self,
        database: &Database,
        begin: &Selector,
        end: &Selector,
        snapshot: bool,
    ) -> Option<Span> {
        let map = self.view(database);
        let keys: Vec<&Bytes> = map.keys().collect();
        let at = |selector: &Selector| {
            let place = usize::try_from(selector.place(&map)).ok()?;
            keys.get(place).map(|key| (*key).clone())
        };
        let span = Span::new(at(begin)?, at(end)?);
        if !snapshot {
            self.perhaps.push(Span::everything());
        }
        Some(span)
    }

    pub fn write(&mut self, write: Write) {
        if !std::mem::take(&mut self.next_write_is_silent) {
            self.write_conflicts.push(write.span());
        }
        self.writes.push(write);
    }

    pub fn silence_next_write(&mut self) {
        self.next_write_is_silent = true;
    }

    pub fn add_read_conflict(&mut self, span: Span) {
        if self.writes.is_empty() {
            self.sure.push(span.clone());
        }
        self.perhaps.push(span);
    }

    pub fn add_write_conflict(&mut self, span: Span) {
        self.write_conflicts.push(span);
    }

    /// True if the transaction writes nothing; writes to empty ranges do not count.
    pub fn is_read_only(&self) -> bool {
        let mut spans = self
            .writes
            .iter()
            .map(Write::span)
            .chain(self.write_conflicts.iter().cloned());
        spans.all(|span| span.begin >= span.end)
    }

    pub fn verdict(&self, database: &Database) -> Verdict {
        let Some(version) = self.read_version.filter(|_| !self.is_read_only()) else {
            return Verdict::Commits;
        };
        let since = || database.commits[version..].iter().flatten();
        let hit = |reads: &[Span]| {
            reads
                .iter()
                .any(|read| since().any(|write| write.meets(read)))
        };
        if hit(&self.sure) {
            Verdict::Conflicts
        } else if hit(&self.perhaps) {
            Verdict::Unclear
        } else {
            Verdict::Commits
        }
    }

    pub fn commit(&self, database: &mut Database) {
        if !self.is_read_only() {
            database.commit_writes(&self.writes, self.write_conflicts.clone());
        }
    }
}
