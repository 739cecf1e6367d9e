//! Programs that use all operations of a transaction on keys and values, on several transactions in turn.

use crate::model::{ATOMIC_OPERATIONS, Database, Selector, Span, Transaction, Verdict, Write};
use crate::program::{MAIN, Program, STAMPED, Script, WORK, bytes, error, pack_rows, placeholder};
use crate::rng::Rng;
use bytes::Bytes;
use plinth_core::tuple::Element;
use std::collections::BTreeMap;

const STEPS: usize = 120;
/// The stack is logged when it is deeper than this.
const DEPTH_MAX: usize = 25;
const ABSENT: &[u8] = b"RESULT_NOT_PRESENT";

pub fn generate(seed: u64) -> Program {
    program(seed, Api::step)
}

/// A program of operations that may be repeated after an unknown result, so that no fault in the cluster changes its
/// outcome.
pub fn generate_retried(seed: u64) -> Program {
    program(seed, Api::idempotent_step)
}

fn program(seed: u64, step: fn(&mut Api)) -> Program {
    let mut api = Api::new(MAIN, WORK, seed);
    api.new_transaction();
    for _ in 0..STEPS {
        step(&mut api);
    }
    api.finish()
}

/// The program so far, and the model that follows it.
pub(super) struct Api {
    pub script: Script,
    pub rng: Rng,
    work: Vec<u8>,
    database: Database,
    transactions: BTreeMap<Vec<u8>, Transaction>,
    current: Vec<u8>,
    last_version: Option<usize>,
    stamps: usize,
    stamped: Vec<(Bytes, Element)>,
}

impl Api {
    pub fn new(machine: &[u8], work: &[u8], seed: u64) -> Self {
        Api {
            script: Script::new(machine),
            rng: Rng::new(seed),
            work: work.to_vec(),
            database: Database::new(),
            transactions: BTreeMap::new(),
            current: machine.to_vec(),
            last_version: None,
            stamps: 0,
            stamped: Vec::new(),
        }
    }

    pub fn finish(mut self) -> Program {
        self.script.log();
        let rows = self.rows();
        Program::of(self.script, rows)
    }

    pub fn rows(&self) -> Vec<(Bytes, Element)> {
        let rows = self.database.newest().iter();
        let rows = rows.map(|(key, value)| (key.clone(), Element::Bytes(value.clone())));
        rows.chain(self.stamped.iter().cloned()).collect()
    }

    fn current(&mut self) -> &mut Transaction {
        self.transactions.entry(self.current.clone()).or_default()
    }

    pub fn new_transaction(&mut self) {
        self.script.op("NEW_TRANSACTION");
        *self.current() = Transaction::default();
    }

    // ---- random arguments ----

    fn key(&mut self) -> Bytes {
        let mut key = self.work.clone();
        key.extend(self.rng.bytes(2));
        key.into()
    }

    fn value(&mut self) -> Bytes {
        self.rng.bytes(12).into()
    }

    fn span(&mut self) -> Span {
        let (one, other) = (self.key(), self.key());
        Span::new(one.clone().min(other.clone()), one.max(other))
    }

    fn selector(&mut self) -> Selector {
        Selector {
            key: self.key(),
            or_equal: self.rng.chance(50),
            offset: self.rng.between(-3, 4),
        }
    }

    fn range_arguments(&mut self) -> (usize, bool, Vec<Element>) {
        let limit = self.rng.below(6);
        let reverse = self.rng.chance(50);
        // Mode 0 (exact) needs a limit.
        let mode = *self.rng.choose(if limit > 0 {
            &[-2, -1, 0, 1, 2, 3, 4]
        } else {
            &[-2, -1, 1, 2, 3, 4, 4]
        });
        let arguments = vec![
            Element::Int(limit as i64),
            Element::Int(i64::from(reverse)),
            Element::Int(mode),
        ];
        (limit, reverse, arguments)
    }

    // ---- instructions ----

    fn step(&mut self) {
        if self.script.depth() > DEPTH_MAX {
            self.log();
        }
        match self.rng.below(100) {
            0..12 => self.data(),
            12..40 => self.read(),
            40..60 => self.write(),
            60..66 => self.conflict_range(),
            66..74 => self.commit(),
            74..79 => self.switch(),
            79..82 => self.read_version(),
            82..84 => self.error(),
            84..87 => self.sizes(),
            87..91 => self.stamp(),
            91..94 => self.cancel(),
            94..98 => {
                self.new_transaction();
                self.forget();
            }
            _ => self.reset(),
        }
    }

    pub fn idempotent_step(&mut self) {
        if self.script.depth() > DEPTH_MAX {
            self.log();
        }
        match self.rng.below(4) {
            0 => self.data(),
            1 => self.read_on("_DATABASE"),
            _ => {
                let write = self.plain_write();
                self.write_on_database(write);
            }
        }
    }

    fn log(&mut self) {
        self.script.log();
        self.database.commit_elsewhere();
    }

    fn forget(&mut self) {
        *self.current() = Transaction::default();
    }

    fn reset(&mut self) {
        self.script.op("RESET");
        self.forget();
    }

    fn data(&mut self) {
        match self.rng.below(6) {
            0 => {
                let item = bytes(self.rng.bytes(30));
                self.script.push(item);
                self.script.duplicate();
            }
            1 => {
                let (below, above) = (self.rng.next() as i64, Element::Text("text".into()));
                self.script.push(Element::Int(below));
                self.script.push(above);
                let depth = self.rng.below(2);
                self.script.swap(depth);
            }
            2 => {
                let (a, b) = (self.rng.between(-9, 1 << 40), self.rng.between(-9, 1 << 40));
                self.script
                    .call("SUB", vec![Element::Int(a), Element::Int(b)]);
                self.script.returns(Element::Int(a - b));
            }
            3 => {
                let (a, b) = (self.value(), self.value());
                self.script.call("CONCAT", vec![bytes(&a), bytes(&b)]);
                self.script.returns(bytes([a, b].concat()));
            }
            4 => {
                let (a, b) = ("left \u{e9}", "right");
                let text = |text: &str| Element::Text(text.into());
                self.script.call("CONCAT", vec![text(a), text(b)]);
                self.script.returns(text(&format!("{a}{b}")));
            }
            _ => {
                self.script.push(Element::Null);
                self.script.pop();
            }
        }
    }

    /// Reads with a snapshot, on the database itself, or in the current transaction.
    fn read(&mut self) {
        let on = *self.rng.choose(&["", "", "", "_SNAPSHOT", "_DATABASE"]);
        self.read_on(on);
    }

    fn read_on(&mut self, on: &str) {
        let mut fresh = Transaction::default();
        let mut current = self.current().clone();
        let before = self.script.len();
        let (tr, snapshot) = match on {
            "_DATABASE" => (&mut fresh, false),
            "_SNAPSHOT" => (&mut current, true),
            _ => (&mut current, false),
        };
        match self.rng.below(5) {
            0 => {
                let key = self.key();
                let found = tr.get(&self.database, &key, snapshot);
                self.script.call(&format!("GET{on}"), vec![bytes(&key)]);
                self.script
                    .answers(found.map_or(bytes(ABSENT), Element::Bytes));
            }
            1 => self.get_key(tr, on, snapshot),
            2 => {
                let span = self.span();
                let (limit, reverse, options) = self.range_arguments();
                let rows = tr.get_range(&self.database, &span, limit, reverse, snapshot);
                let arguments = [vec![bytes(&span.begin), bytes(&span.end)], options].concat();
                self.script.call(&format!("GET_RANGE{on}"), arguments);
                self.script.returns(pack_rows(rows));
            }
            3 => {
                let prefix = self.key();
                let (limit, reverse, options) = self.range_arguments();
                let span = Span::new(prefix.clone(), end_of(&prefix));
                let rows = tr.get_range(&self.database, &span, limit, reverse, snapshot);
                let arguments = [vec![bytes(&prefix)], options].concat();
                self.script
                    .call(&format!("GET_RANGE_STARTS_WITH{on}"), arguments);
                self.script.returns(pack_rows(rows));
            }
            _ => self.get_range_selector(tr, on, snapshot),
        }
        if self.script.len() > before {
            *self.current() = current;
        }
    }

    fn selector_arguments(selector: &Selector) -> Vec<Element> {
        vec![
            bytes(&selector.key),
            Element::Int(i64::from(selector.or_equal)),
            Element::Int(selector.offset),
        ]
    }

    fn get_key(&mut self, tr: &mut Transaction, on: &str, snapshot: bool) {
        let selector = self.selector();
        let found = match tr.get_key(&self.database, &selector, snapshot) {
            Ok(key) => key,
            Err(place) if place < 0 => self.work.clone().into(),
            Err(_) => end_of(&self.work),
        };
        let mut arguments = Self::selector_arguments(&selector);
        arguments.push(bytes(&self.work));
        self.script.call(&format!("GET_KEY{on}"), arguments);
        self.script.answers(Element::Bytes(found));
    }

    fn get_range_selector(&mut self, tr: &mut Transaction, on: &str, snapshot: bool) {
        let (begin, end) = (self.selector(), self.selector());
        let (limit, reverse, options) = self.range_arguments();
        let Some(span) = tr.span_between(&self.database, &begin, &end, snapshot) else {
            return; // the range would contain rows that the model does not have
        };
        let rows = match span.begin <= span.end {
            true => tr.get_range(&self.database, &span, limit, reverse, snapshot),
            false => Vec::new(),
        };
        let arguments = [
            Self::selector_arguments(&begin),
            Self::selector_arguments(&end),
            options,
            vec![bytes(&self.work)],
        ];
        self.script
            .call(&format!("GET_RANGE_SELECTOR{on}"), arguments.concat());
        self.script.returns(pack_rows(rows));
    }

    fn plain_write(&mut self) -> Write {
        match self.rng.below(10) {
            0..6 => Write::Set(self.key(), self.value()),
            6..8 => {
                let key = self.key();
                Write::Clear(Span::key(&key))
            }
            8 => Write::Clear(self.span()),
            _ => {
                let prefix = self.key();
                Write::Clear(Span::new(prefix.clone(), end_of(&prefix)))
            }
        }
    }

    fn write(&mut self) {
        let write = if self.rng.chance(40) {
            let operation = *self.rng.choose(&ATOMIC_OPERATIONS);
            Write::Atomic(operation, self.key(), self.value())
        } else {
            self.plain_write()
        };
        if self.rng.chance(25) {
            return self.write_on_database(write);
        }
        if self.rng.chance(10) {
            self.script.op("DISABLE_WRITE_CONFLICT");
            self.current().silence_next_write();
        }
        self.call_write(&write, "");
        self.current().write(write);
    }

    fn write_on_database(&mut self, write: Write) {
        self.call_write(&write, "_DATABASE");
        self.script.answers(bytes(ABSENT));
        let mut alone = Transaction::default();
        alone.write(write);
        alone.commit(&mut self.database);
    }

    fn call_write(&mut self, write: &Write, on: &str) {
        let (name, arguments) = match write {
            Write::Set(key, value) => ("SET", vec![bytes(key), bytes(value)]),
            Write::Atomic(operation, key, operand) => {
                let operation = Element::Text((*operation).into());
                ("ATOMIC_OP", vec![operation, bytes(key), bytes(operand)])
            }
            Write::Clear(span) if span.end[..] == [&span.begin[..], &[0]].concat() => {
                ("CLEAR", vec![bytes(&span.begin)])
            }
            Write::Clear(span) if span.end == end_of(&span.begin) => {
                ("CLEAR_RANGE_STARTS_WITH", vec![bytes(&span.begin)])
            }
            Write::Clear(span) => ("CLEAR_RANGE", vec![bytes(&span.begin), bytes(&span.end)]),
        };
        self.script.call(&format!("{name}{on}"), arguments);
    }

    fn conflict_range(&mut self) {
        let is_read = self.rng.chance(50);
        let kind = if is_read { "READ" } else { "WRITE" };
        let span = if self.rng.chance(50) {
            let span = self.span();
            let arguments = vec![bytes(&span.begin), bytes(&span.end)];
            self.script
                .call(&format!("{kind}_CONFLICT_RANGE"), arguments);
            self.script.returns(bytes("SET_CONFLICT_RANGE"));
            span
        } else {
            let key = self.key();
            self.script
                .call(&format!("{kind}_CONFLICT_KEY"), vec![bytes(&key)]);
            self.script.returns(bytes("SET_CONFLICT_KEY"));
            Span::key(&key)
        };
        if is_read {
            self.current().add_read_conflict(span);
        } else {
            self.current().add_write_conflict(span);
        }
    }

    fn commit(&mut self) {
        let transaction = self.current().clone();
        match transaction.verdict(&self.database) {
            Verdict::Unclear => self.reset(),
            Verdict::Commits => {
                self.script.op("COMMIT");
                self.script.answers(bytes(ABSENT));
                transaction.commit(&mut self.database);
                if !transaction.is_read_only() && self.rng.chance(50) {
                    self.script.op("GET_COMMITTED_VERSION");
                    self.script.returns(bytes("GOT_COMMITTED_VERSION"));
                    self.last_version = Some(self.database.version());
                }
                self.reset();
            }
            Verdict::Conflicts => {
                self.script.op("COMMIT");
                self.script.answers(error(1020));
                if self.rng.chance(50) {
                    self.script.call("ON_ERROR", vec![Element::Int(1020)]);
                    self.script.answers(bytes(ABSENT));
                    self.forget();
                } else {
                    self.reset();
                }
            }
        }
    }

    fn switch(&mut self) {
        let name = self.rng.choose(&[MAIN, b"second", b"third"]).to_vec();
        self.script.call("USE_TRANSACTION", vec![bytes(&name)]);
        self.current = name;
        self.current();
    }

    fn read_version(&mut self) {
        match self.last_version {
            Some(version) if self.rng.chance(50) => {
                self.reset();
                self.script.op("SET_READ_VERSION");
                self.current().read_version = Some(version);
            }
            _ => {
                let mut transaction = self.current().clone();
                let version = transaction.ask_read_version(&self.database);
                *self.current() = transaction;
                self.script.op("GET_READ_VERSION");
                self.script.returns(bytes("GOT_READ_VERSION"));
                self.last_version = Some(version);
            }
        }
    }

    fn error(&mut self) {
        let (code, retried) = *self.rng.choose(&[
            (1007, true),
            (1009, true),
            (1020, true),
            (1031, false),
            (2000, false),
            (4100, false),
        ]);
        self.script.call("ON_ERROR", vec![Element::Int(code)]);
        self.script.answers(match retried {
            true => bytes(ABSENT),
            false => error(code as u16),
        });
        self.reset();
    }

    fn sizes(&mut self) {
        match self.rng.below(3) {
            0 => {
                self.script.op("GET_APPROXIMATE_SIZE");
                self.script.returns(bytes("GOT_APPROXIMATE_SIZE"));
            }
            1 => {
                let span = self.span();
                let arguments = vec![bytes(&span.begin), bytes(&span.end)];
                self.script.call("GET_ESTIMATED_RANGE_SIZE", arguments);
                self.script.returns(bytes("GOT_ESTIMATED_RANGE_SIZE"));
            }
            _ => {
                let span = self.span();
                let arguments = vec![bytes(&span.begin), bytes(&span.end), Element::Int(100)];
                self.script.call("GET_RANGE_SPLIT_POINTS", arguments);
                self.script.returns(bytes("GOT_RANGE_SPLIT_POINTS"));
            }
        }
    }

    /// A transaction of its own that writes a versionstamped key and a versionstamped value.
    fn stamp(&mut self) {
        let (number, stamp) = (self.stamps, placeholder(self.stamps));
        self.stamps += 1;
        self.reset();
        let place =
            |what: &str| [STAMPED, what.as_bytes(), format!("{number:04}").as_bytes()].concat();
        let unset = [0xff; 10];
        let (key, value) = (place("key"), place("value"));
        let offset = (key.len() as u32).to_le_bytes();
        let stamped_key = bytes([&key[..], &unset, b"!", &offset].concat());
        let stamped_value = bytes([b"is ", &unset[..], &3u32.to_le_bytes()].concat());
        let write = |script: &mut Script| {
            for (name, first, second) in [
                ("SET_VERSIONSTAMPED_KEY", &stamped_key, bytes("row")),
                (
                    "SET_VERSIONSTAMPED_VALUE",
                    &bytes(&value),
                    stamped_value.clone(),
                ),
            ] {
                let operation = Element::Text(name.into());
                script.call("ATOMIC_OP", vec![operation, first.clone(), second]);
            }
        };
        write(&mut self.script);
        self.script.call("GET", vec![bytes(&value)]);
        self.script.answers(error(1036));
        self.reset();
        // The read has failed, and a commit would fail with the same error, so repeat the writes without the read.
        write(&mut self.script);
        self.script.op("GET_VERSIONSTAMP");
        self.script.returns(bytes(&stamp));
        self.script.op("COMMIT");
        self.script.answers(bytes(ABSENT));
        self.reset();
        self.database.commit_elsewhere();
        self.stamped
            .push(([&key[..], &stamp, b"!"].concat().into(), bytes("row")));
        self.stamped
            .push((value.into(), bytes([b"is ", &stamp[..]].concat())));
        // Log the stack now, while it is known which transaction the stamp belongs to.
        self.log();
    }

    fn cancel(&mut self) {
        self.script.op("CANCEL");
        let key = self.key();
        self.script.call("GET", vec![bytes(&key)]);
        self.script.answers(error(1025));
        self.reset();
    }
}

/// The first key after all keys with this prefix.
pub(super) fn end_of(prefix: &[u8]) -> Bytes {
    let kept = prefix
        .iter()
        .rposition(|b| *b != 0xff)
        .expect("prefixes begin with letters");
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    end.into()
}
