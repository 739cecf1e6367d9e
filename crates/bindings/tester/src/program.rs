//! A program for the stack machines, with its expected results.

use bytes::Bytes;
use plinth_core::tuple::{self, Element};
use std::collections::BTreeMap;

/// Prefix of the first machine's instructions.
pub const MAIN: &[u8] = b"program";
/// Prefix of the keys to which programs log their stacks and directories.
pub const LOG: &[u8] = b"log/";
/// Prefix of the keys that programs read and write.
pub const WORK: &[u8] = b"work/";
/// Prefix of the keys with versionstamps.
pub const STAMPED: &[u8] = b"worl/";

pub fn bytes(of: impl AsRef<[u8]>) -> Element {
    Element::Bytes(Bytes::copy_from_slice(of.as_ref()))
}

/// Packs elements. An incomplete versionstamp, of which there is at most one, is packed as in the tuple layer.
pub fn pack(elements: &[Element]) -> Bytes {
    match tuple::pack(elements) {
        Ok(packed) => packed,
        Err(_) => {
            let packed = tuple::pack_with_versionstamp(&[], elements).expect("one is incomplete");
            packed.slice(..packed.len() - size_of::<u32>())
        }
    }
}

/// The form of an error on the stack.
pub fn error(code: u16) -> Element {
    bytes(pack(&[bytes("ERROR"), bytes(code.to_string())]))
}

/// Keys and values in turn.
pub fn pack_rows(rows: Vec<(Bytes, Bytes)>) -> Element {
    let elements: Vec<Element> = rows
        .into_iter()
        .flat_map(|(key, value)| [Element::Bytes(key), Element::Bytes(value)])
        .collect();
    bytes(pack(&elements))
}

pub type Rows = BTreeMap<Bytes, Bytes>;

/// Instructions of one machine, in order, with the expected stack after them.
pub struct Script {
    prefix: Vec<u8>,
    instructions: Vec<Vec<Element>>,
    /// Items, each with the number of the instruction that pushed it.
    stack: Vec<(Element, i64)>,
    logged: Vec<(Bytes, Element)>,
    logs: u32,
}

impl Script {
    pub fn new(prefix: &[u8]) -> Self {
        Script {
            prefix: prefix.to_vec(),
            instructions: Vec::new(),
            stack: Vec::new(),
            logged: Vec::new(),
            logs: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    fn emit(&mut self, instruction: Vec<Element>) {
        self.instructions.push(instruction);
    }

    /// An instruction without arguments.
    pub fn op(&mut self, name: &str) {
        self.emit(vec![Element::Text(name.to_owned())]);
    }

    pub fn push(&mut self, item: Element) {
        self.emit(vec![Element::Text("PUSH".into()), item.clone()]);
        self.returns(item);
    }

    /// Adds an instruction that takes `arguments` from the stack; the first one is on top.
    pub fn call(&mut self, name: &str, arguments: Vec<Element>) {
        for argument in arguments.into_iter().rev() {
            self.emit(vec![Element::Text("PUSH".into()), argument]);
        }
        self.op(name);
    }

    /// The last instruction pushes this item.
    pub fn returns(&mut self, item: Element) {
        let at = self.instructions.len() as i64 - 1;
        self.stack.push((item, at));
    }

    pub fn wait(&mut self) {
        self.op("WAIT_FUTURE");
    }

    /// The last instruction gives this item as a future, which is waited for.
    pub fn answers(&mut self, item: Element) {
        self.returns(item);
        self.wait();
    }

    pub fn duplicate(&mut self) {
        self.op("DUP");
        let top = self.stack.last().expect("there is something").clone();
        self.stack.push(top);
    }

    pub fn pop(&mut self) {
        self.op("POP");
        self.stack.pop();
    }

    pub fn swap(&mut self, depth: usize) {
        self.call("SWAP", vec![Element::Int(depth as i64)]);
        let top = self.stack.len() - 1;
        self.stack.swap(top, top - depth);
    }

    pub fn empty(&mut self) {
        self.op("EMPTY_STACK");
        self.stack.clear();
    }

    /// Logs the stack. The logged rows are checked at the end.
    pub fn log(&mut self) {
        let name = [
            LOG,
            &self.prefix,
            b"/",
            self.logs.to_string().as_bytes(),
            b"/",
        ]
        .concat();
        self.logs += 1;
        self.call("LOG_STACK", vec![bytes(&name)]);
        for (index, (item, at)) in self.stack.drain(..).enumerate() {
            let place = pack(&[Element::Int(index as i64), Element::Int(at)]);
            self.logged
                .push((Bytes::from([&name[..], &place].concat()), item));
        }
    }
}

/// A whole program: instructions of all machines, the rows that it must leave, and further checks.
#[derive(Default)]
pub struct Program {
    instructions: Rows,
    /// Rows of the log. The packed item is cut at 40,000 bytes.
    logged: Vec<(Bytes, Element)>,
    /// All other rows whose keys begin with [`LOG`], [`WORK`] or [`STAMPED`].
    pub rows: Vec<(Bytes, Element)>,
    /// Values below this prefix must differ, and none may be a prefix of another.
    pub apart: Option<Bytes>,
}

/// The rows after a program: all keys of the database.
pub type Outcome = Rows;

const LOGGED_BYTES_MAX: usize = 40_000;
const PLACEHOLDER: &[u8] = b"stamp-";
const STAMP_BYTES: usize = 10;

/// Placeholder for the stamp of a transaction, ten bytes long.
pub fn placeholder(number: usize) -> Vec<u8> {
    let text = [PLACEHOLDER, format!("{number:04}").as_bytes()].concat();
    assert_eq!(
        text.len(),
        STAMP_BYTES,
        "a placeholder is as long as a stamp"
    );
    text
}

impl Program {
    /// The program of one machine.
    pub fn of(script: Script, rows: Vec<(Bytes, Element)>) -> Self {
        let mut program = Program::default();
        program.add(script);
        program.rows = rows;
        program
    }

    pub fn add(&mut self, script: Script) {
        for (number, instruction) in script.instructions.into_iter().enumerate() {
            let place = [bytes(&script.prefix), Element::Int(number as i64)];
            self.instructions.insert(pack(&place), pack(&instruction));
        }
        self.logged.extend(script.logged);
    }

    /// Rows that must be in the database before the machines start.
    pub fn instructions(&self) -> &Rows {
        &self.instructions
    }

    /// Checks the outcome; the error describes the first difference.
    pub fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let stamps = self.stamps(outcome)?;
        let mut expected = Rows::new();
        for (key, item) in &self.logged {
            let mut packed = pack(&[with_stamps(item, &stamps)]);
            packed.truncate(LOGGED_BYTES_MAX);
            expected.insert(key.clone(), packed);
        }
        for (key, value) in &self.rows {
            let Element::Bytes(value) = with_stamps(value, &stamps) else {
                unreachable!("values of rows are bytes")
            };
            expected.insert(replace(key, &stamps), value);
        }
        let concerns = |key: &Bytes| {
            let apart = self
                .apart
                .as_ref()
                .is_some_and(|apart| key.starts_with(apart));
            [LOG, WORK, STAMPED]
                .iter()
                .any(|part| key.starts_with(part))
                && !apart
        };
        let found: Rows = outcome
            .iter()
            .filter(|(key, _)| concerns(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        self.compare(&expected, &found)?;
        self.check_apart(outcome)
    }

    fn compare(&self, expected: &Rows, found: &Rows) -> Result<(), String> {
        let mut keys: Vec<&Bytes> = expected.keys().chain(found.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let (wanted, got) = (expected.get(key), found.get(key));
            if wanted != got {
                return Err(format!(
                    "{key:?}\n  must be {wanted:?}\n  but is  {got:?}{}",
                    self.instruction_of(key)
                ));
            }
        }
        Ok(())
    }

    /// The instructions up to the one that logged the row, for the error message.
    fn instruction_of(&self, key: &Bytes) -> String {
        let number = || {
            let place = key.strip_prefix(LOG)?;
            let machine: Vec<u8> = place.iter().copied().take_while(|b| *b != b'/').collect();
            let rest = &place[machine.len() + 1..];
            let cut = rest.iter().position(|b| *b == b'/')?;
            let place = tuple::unpack(&Bytes::copy_from_slice(&rest[cut + 1..])).ok()?;
            let number = place.get(1)?.as_i64()?;
            let instruction = |number| {
                let row = self
                    .instructions
                    .get(&pack(&[bytes(&machine), Element::Int(number)]))?;
                tuple::unpack(row).ok()
            };
            let before: Vec<_> = (number - 6..=number).filter_map(instruction).collect();
            Some(format!("\n  after {before:?}"))
        };
        number().unwrap_or_default()
    }

    /// The stamps in the log, by the placeholders that the model has there.
    fn stamps(&self, outcome: &Outcome) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
        let mut stamps = BTreeMap::new();
        for (key, item) in &self.logged {
            let Element::Bytes(item) = item else { continue };
            if item.len() != STAMP_BYTES || !item.starts_with(PLACEHOLDER) {
                continue;
            }
            let row = outcome.get(key).ok_or(format!("{key:?}: no stamp"))?;
            match tuple::unpack(row).as_deref() {
                Ok([Element::Bytes(stamp)]) if stamp.len() == STAMP_BYTES => {
                    stamps.insert(item.to_vec(), stamp.to_vec());
                }
                _ => return Err(format!("{key:?}: {row:?} is no stamp")),
            }
        }
        let in_order: Vec<&Vec<u8>> = stamps.values().collect();
        match in_order.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => Err(format!("stamps do not grow: {pair:?}")),
            None => Ok(stamps),
        }
    }

    fn check_apart(&self, outcome: &Outcome) -> Result<(), String> {
        let Some(prefix) = &self.apart else {
            return Ok(());
        };
        let below = outcome.iter().filter(|(key, _)| key.starts_with(prefix));
        let mut values: Vec<&Bytes> = below.map(|(_, value)| value).collect();
        values.sort();
        if values.is_empty() {
            return Err(format!("nothing below {prefix:?}"));
        }
        match values.windows(2).find(|pair| pair[1].starts_with(pair[0])) {
            Some(pair) => Err(format!("{pair:?} are not apart")),
            None => Ok(()),
        }
    }
}

fn replace(text: &Bytes, stamps: &BTreeMap<Vec<u8>, Vec<u8>>) -> Bytes {
    let at = text
        .windows(STAMP_BYTES)
        .position(|part| stamps.contains_key(part));
    match at {
        None => text.clone(),
        Some(at) => {
            let (before, rest) = text.split_at(at);
            let (stamp, after) = rest.split_at(STAMP_BYTES);
            Bytes::from([before, &stamps[stamp], after].concat())
        }
    }
}

fn with_stamps(item: &Element, stamps: &BTreeMap<Vec<u8>, Vec<u8>>) -> Element {
    match item {
        Element::Bytes(text) => Element::Bytes(replace(text, stamps)),
        other => other.clone(),
    }
}
