//! The application whose replicas are tested: registers, and the whole history of their writes.
//!
//! ```text
//!   count               how many writes there were
//!   history/<place>     register, value, and the position in the log
//!   register/<number>   place and value of its last write
//! ```
//! Places begin at 1. The rows at any moment are told by `count` alone, so an oracle can judge every read.

use super::messages::{Burst, BurstDone, History, OfEngine, Outcome, Past, Register, Rows, Write};
use crate::engines::roster;
use crate::entry::Entry;
use crate::log::{LogPos, SharedLog};
use crate::replica::Settings;
use crate::replica::messages::Called;
use crate::replica::serves::{Serves, ServiceStack, lost};
use crate::stack::{Answer, Application, Engine, Failure, Lost};
use crate::stacks::Standard;
use crate::store::{RoTx, RwTx};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::{Error, Result};
use plinth_engine::LocalBoxFuture;
use plinth_runtime::join_all;

pub const REGISTERS: u64 = 3;
/// Writes of one answer to a question for the history.
pub const HISTORY_LEN: usize = 2000;
const COUNT: &[u8] = b"count";
const HISTORY: &[u8] = b"history/";
const HISTORY_END: &[u8] = b"history0";

fn key_of(register: u64) -> String {
    format!("register/{register}")
}

fn place_key(place: u64) -> Vec<u8> {
    [HISTORY, &place.to_be_bytes()].concat()
}

fn parse<T: Codec>(row: Option<Bytes>) -> Result<Option<T>> {
    let parsed = row.map(|row| T::from_bytes(row).ok_or(Error::file_corrupt));
    parsed.transpose()
}

/// See the module.
pub struct Registers;

/// The write asks to be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoWrite;

impl Application for Registers {
    /// The place of the write.
    type Return = u64;
    type Refusal = NoWrite;

    fn execute(
        &self,
        tx: &mut RwTx,
        request: &Bytes,
        pos: LogPos,
    ) -> std::result::Result<u64, Failure<NoWrite>> {
        let write = Write::from_bytes(request.clone()).ok_or(Error::file_corrupt)?;
        let place = parse(tx.get(COUNT)?)?.unwrap_or(0u64) + 1;
        let (register, value) = (write.register, write.value);
        tx.set(COUNT, place.to_bytes());
        let past = Past {
            register,
            value,
            pos,
        };
        tx.set(&place_key(place), past.to_bytes());
        tx.set(key_of(register).as_bytes(), (place, value).to_bytes());
        match write.is_refused {
            true => Err(Failure::Refused(NoWrite)),
            false => Ok(place),
        }
    }
}

/// What a reader sees.
fn read(rows: &RoTx) -> Result<Rows> {
    let registers = (0..REGISTERS).map(|number| {
        let row = parse::<(u64, u64)>(rows.get(key_of(number).as_bytes())?)?;
        let (place, value) = row.unwrap_or_default();
        Ok(Register { place, value })
    });
    Ok(Rows {
        count: parse(rows.get(COUNT)?)?.unwrap_or(0),
        registers: registers.collect::<Result<_>>()?,
    })
}

fn outcome(proposed: std::result::Result<Answer<u64, NoWrite>, Lost>) -> Outcome {
    match proposed {
        Ok(Answer::Done(place)) => Outcome::done(place),
        Ok(Answer::Refused(NoWrite)) => Outcome::REFUSED,
        // The engine that keeps the order was switched off meanwhile.
        Ok(Answer::Own(_) | Answer::Filtered) => Outcome::UNKNOWN,
        Err(why) => match lost(why, |_| None) {
            Called::Lost {
                may_be_done: false, ..
            } => Outcome::NOT_DONE,
            _ => Outcome::UNKNOWN,
        },
    }
}

/// Where a replica is, as far as this one has applied the log.
type Stack<L> = Standard<L, Registers>;

/// Proposes all writes one after the other, before any of them is answered, and maybe reads behind them.
async fn burst<L: SharedLog + 'static>(stack: &Stack<L>, asked: Burst) -> Called {
    let Burst { writes, reads } = asked;
    let entries = writes.iter().map(|write| Entry::new(write.to_bytes()));
    let (mut proposed, mut rows) = (Vec::new(), None);
    let proposing = async {
        proposed = join_all(entries.map(|entry| stack.propose(entry))).await;
    };
    let reading = async {
        if reads {
            rows = stack.sync().await.ok();
        }
    };
    let both: [LocalBoxFuture<'_, ()>; 2] = [Box::pin(proposing), Box::pin(reading)];
    join_all(both).await;
    let elsewhere = proposed.iter().find_map(|said| match said {
        Err(Lost::Elsewhere(holder)) => Some(*holder),
        _ => None,
    });
    let outcomes: Vec<_> = proposed.into_iter().map(outcome).collect();
    if let Some(holder) = elsewhere
        && outcomes.iter().all(|outcome| *outcome == Outcome::NOT_DONE)
        && let Some(address) = roster::address(&stack.store().snapshot(), holder)
    {
        return Called::Elsewhere(address);
    }
    match rows.map(|rows| read(&rows)).transpose() {
        Ok(read) => Called::Done(BurstDone { outcomes, read }.to_bytes()),
        Err(error) => failed(error),
    }
}

/// Nobody knows what became of it.
fn failed(error: Error) -> Called {
    Called::Lost {
        may_be_done: true,
        why: error.to_string(),
    }
}

fn history(rows: &RoTx, from: u64) -> Result<Bytes> {
    let found = rows.range(&place_key(from), HISTORY_END, HISTORY_LEN)?;
    let past = found.into_iter().map(|(_, row)| parse(Some(row)));
    let past: Option<Vec<Past>> = past.collect::<Result<_>>()?;
    Ok(History {
        past: past.ok_or(Error::file_corrupt)?,
    }
    .to_bytes())
}

/// How many rows an engine has beside its switch.
fn rows_of_engine(rows: &RoTx, engine: &str) -> Result<Bytes> {
    let (begin, end) = (format!("{engine}/of/"), format!("{engine}/of0"));
    let found = rows.range(begin.as_bytes(), end.as_bytes(), usize::MAX)?;
    Ok((found.len() as u64).to_bytes())
}

/// Answers a client. Operations: `burst`, `read`, `history`, `of_engine`.
pub async fn call<L: SharedLog + 'static>(
    stack: &Stack<L>,
    operation: &str,
    request: &Bytes,
) -> Called {
    let request = request.clone();
    if operation == "burst" {
        return match Burst::from_bytes(request) {
            Some(asked) => burst(stack, asked).await,
            None => failed(Error::client_invalid_operation),
        };
    }
    let rows = match stack.sync().await {
        Ok(rows) => rows,
        Err(error) => return lost(error, |_| None),
    };
    let answer = match operation {
        "read" => read(&rows).map(|read| read.to_bytes()),
        "history" => match u64::from_bytes(request) {
            Some(from) => history(&rows, from),
            None => Err(Error::client_invalid_operation),
        },
        _ => match OfEngine::from_bytes(request) {
            Some(of) => rows_of_engine(&rows, &of.engine),
            None => Err(Error::client_invalid_operation),
        },
    };
    answer.map_or_else(failed, Called::Done)
}

impl Serves for Registers {
    const KIND: &'static str = "registers";

    fn create(_: &Settings) -> Self {
        Registers
    }

    async fn call(stack: &ServiceStack<Self>, operation: &str, request: &Bytes) -> Called {
        call(stack, operation, request).await
    }
}
