//! Histories as text, so that processes can write them to files that are judged together.
//!
//! ```text
//! plinth farm history 1
//! 17 2 100 250 st-- 120 c140 r10=i r20=- r30=5 w10 a20 f30
//! │  │ │   │   │    │   │    │     │     │     └── what it wrote: w a new value, a allocated, f freed
//! │  │ │   │   │    │   │    └─────┴─────┴── what it read: i initial, - not allocated, or by whom; objects in hex
//! │  │ │   │   │    │   └── c committed at, r read-only, a aborted, u unknown, u140 at 140 if it took effect
//! │  │ │   │   │    └── read timestamp, or -
//! │  │ │   │   └── s serializable or i snapshot isolation; t strict; r read-only; o an old snapshot
//! │  │ │   └── end, or -
//! │  │ └── begin
//! │  └── machine
//! └── number of the transaction
//! ```
//!
//! A process that may be killed writes a line before it commits, of unknown outcome, and another one when it knows
//! more. The later line counts. A last line without its end is what a killed process left; it does not count.

use crate::history::{
    Change, History, Id, Isolation, NEVER, Options, Outcome, Read, Seen, Transaction, Write,
};
use std::fmt;

/// The first line of a file.
pub const HEADER: &str = "plinth farm history 1";
/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;
/// So much of a wrong line is shown.
const SHOWN_MAX: usize = 40;

/// Why a text is no history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAHistory {
    /// From 1.
    pub line: usize,
    pub why: String,
}

impl fmt::Display for NotAHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for NotAHistory {}

/// Writes the line of a transaction, without its end.
impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.id, self.machine, self.begin)?;
        match self.end {
            NEVER => f.write_str("- ")?,
            end => write!(f, "{end} ")?,
        }
        let Options {
            isolation,
            strict,
            read_only,
            stale,
        } = self.options;
        let is_serializable = isolation == Isolation::Serializable;
        f.write_str(if is_serializable { "s" } else { "i" })?;
        for (is_set, letter) in [(strict, "t"), (read_only, "r"), (stale, "o")] {
            f.write_str(if is_set { letter } else { "-" })?;
        }
        match self.read_timestamp {
            None => f.write_str(" - ")?,
            Some(at) => write!(f, " {at} ")?,
        }
        match self.outcome {
            Outcome::Committed(at) => write!(f, "c{at}")?,
            Outcome::ReadOnly => f.write_str("r")?,
            Outcome::Aborted => f.write_str("a")?,
            Outcome::Unknown(None) => f.write_str("u")?,
            Outcome::Unknown(Some(at)) => write!(f, "u{at}")?,
        }
        for read in &self.reads {
            write!(f, " r{:x}=", read.object)?;
            match read.seen {
                Seen::Initial => f.write_str("i")?,
                Seen::Absent => f.write_str("-")?,
                Seen::Of(id) => write!(f, "{id}")?,
            }
        }
        for write in &self.writes {
            let letter = match write.change {
                Change::Set => 'w',
                Change::Allocate => 'a',
                Change::Free => 'f',
            };
            write!(f, " {letter}{:x}", write.object)?;
        }
        Ok(())
    }
}

impl History {
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for transaction in &self.transactions {
            text += &format!("{transaction}\n");
        }
        text
    }

    /// Reads what one process has written. What it makes is not larger than some times `text`.
    pub fn parse(text: &[u8]) -> Result<History, NotAHistory> {
        let mut lines = text.split_inclusive(|&byte| byte == b'\n').zip(1..);
        let header = lines.next().map_or(&[][..], |(line, _)| line);
        if header.trim_ascii_end() != HEADER.as_bytes() {
            let why = format!("it does not say `{HEADER}'");
            return Err(NotAHistory { line: 1, why });
        }
        let mut all: Vec<(Transaction, usize)> = Vec::new();
        for (bytes, line) in lines {
            let Some(bytes) = bytes.strip_suffix(b"\n") else {
                break;
            };
            if bytes.len() > LINE_BYTES_MAX {
                let why = format!("it has {} bytes; {LINE_BYTES_MAX} can be read", bytes.len());
                return Err(NotAHistory { line, why });
            }
            let transaction = std::str::from_utf8(bytes)
                .map_err(|_| "it is not text".to_string())
                .and_then(transaction)
                .map_err(|why| NotAHistory { line, why })?;
            all.push((transaction, line));
        }
        Ok(History {
            transactions: latest(all)?,
        })
    }
}

/// Of the lines about one transaction the last one, if the others did not know its outcome.
fn latest(mut all: Vec<(Transaction, usize)>) -> Result<Vec<Transaction>, NotAHistory> {
    all.sort_by_key(|(transaction, line)| (transaction.id, *line));
    let mut latest: Vec<Transaction> = Vec::with_capacity(all.len());
    for (transaction, line) in all {
        let Some(former) = latest
            .last_mut()
            .filter(|former| former.id == transaction.id)
        else {
            latest.push(transaction);
            continue;
        };
        let is_open = matches!(former.outcome, Outcome::Unknown(_)) && former.end == NEVER;
        if !is_open || (former.machine, former.begin) != (transaction.machine, transaction.begin) {
            let why = format!(
                "transaction {} was told before, and is another one",
                transaction.id
            );
            return Err(NotAHistory { line, why });
        }
        *former = transaction;
    }
    Ok(latest)
}

fn transaction(line: &str) -> Result<Transaction, String> {
    let mut fields = line.split(' ');
    let mut field = |what: &str| {
        fields
            .next()
            .ok_or_else(|| format!("it ends before the {what}"))
    };
    let id = number(field("number")?)?;
    let machine = number(field("machine")?)?;
    let machine = u32::try_from(machine).map_err(|_| format!("{machine} is no machine"))?;
    let begin = number(field("begin")?)?;
    let end = match field("end")? {
        "-" => NEVER,
        end => number(end)?,
    };
    let options = options(field("options")?)?;
    let read_timestamp = match field("read timestamp")? {
        "-" => None,
        at => Some(number(at)?),
    };
    let outcome = outcome(field("outcome")?)?;
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for operation in fields {
        match operation.split_once('=') {
            Some((object, seen)) => reads.push(read(object, seen)?),
            None => writes.push(write(operation)?),
        }
    }
    Ok(Transaction {
        id,
        machine,
        begin,
        end,
        options,
        read_timestamp,
        reads,
        writes,
        outcome,
    })
}

fn wrong(what: &str, text: &str) -> String {
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    format!("`{shown}' is no {what}")
}

/// Only digits: no sign, and no zeros that are not needed, so that each history has one text.
fn number(text: &str) -> Result<u64, String> {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let parsed = if is_plain { text.parse().ok() } else { None };
    parsed.ok_or_else(|| wrong("number", text))
}

fn object(text: &str) -> Result<u64, String> {
    let is_plain = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_plain = is_plain && (text == "0" || !text.starts_with('0'));
    let parsed = if is_plain {
        u64::from_str_radix(text, 16).ok()
    } else {
        None
    };
    parsed.ok_or_else(|| wrong("object", text))
}

fn options(text: &str) -> Result<Options, String> {
    let &[isolation, strict, read_only, stale] = text.as_bytes() else {
        return Err(wrong("set of options", text));
    };
    let isolation = match isolation {
        b's' => Isolation::Serializable,
        b'i' => Isolation::Snapshot,
        _ => return Err(wrong("set of options", text)),
    };
    let is_set = |byte: u8, letter: u8| match byte {
        b'-' => Ok(false),
        byte if byte == letter => Ok(true),
        _ => Err(wrong("set of options", text)),
    };
    Ok(Options {
        isolation,
        strict: is_set(strict, b't')?,
        read_only: is_set(read_only, b'r')?,
        stale: is_set(stale, b'o')?,
    })
}

fn outcome(text: &str) -> Result<Outcome, String> {
    match (text, text.strip_prefix('c'), text.strip_prefix('u')) {
        ("r", ..) => Ok(Outcome::ReadOnly),
        ("a", ..) => Ok(Outcome::Aborted),
        ("u", ..) => Ok(Outcome::Unknown(None)),
        (_, Some(at), _) => Ok(Outcome::Committed(number(at)?)),
        (_, _, Some(at)) => Ok(Outcome::Unknown(Some(number(at)?))),
        _ => Err(wrong("outcome", text)),
    }
}

fn read(of: &str, seen: &str) -> Result<Read, String> {
    let of = of.strip_prefix('r').ok_or_else(|| wrong("read", of))?;
    let seen = match seen {
        "i" => Seen::Initial,
        "-" => Seen::Absent,
        id => Seen::Of(number(id)? as Id),
    };
    Ok(Read {
        object: object(of)?,
        seen,
    })
}

fn write(text: &str) -> Result<Write, String> {
    let changes = [
        ('w', Change::Set),
        ('a', Change::Allocate),
        ('f', Change::Free),
    ];
    let change = changes
        .iter()
        .find_map(|&(letter, change)| Some((text.strip_prefix(letter)?, change)));
    let (of, change) = change.ok_or_else(|| wrong("operation", text))?;
    Ok(Write {
        object: object(of)?,
        change,
    })
}
