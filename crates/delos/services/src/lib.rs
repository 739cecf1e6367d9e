//! Replicated services on log-structured protocols (`plinth-delos`), each a short file: what a service is, and nothing
//! about replication.
//!
//! ```text
//!   service    a request and the rows → an answer and new rows     (lock.rs, queue.rs)
//!   hosted     requests as JSON, and the service's clock           (here)
//!   ─────────────────────────────────────────────────────────
//!   the stack of engines, the shared log                           (plinth-delos)
//! ```
//! The process of a replica hosts any of [`KINDS`] (serving.rs).
//!
//! The clock is a row. It goes on when the log says so, so it is the same on all replicas, and stands still while the
//! service cannot be reached: nobody's time runs out because nobody could ask.

/// [`refuse`] with a line of several parts.
macro_rules! refuse {
    ($code:literal, $($why:tt)+) => {
        $crate::refuse($code, std::fmt::format(format_args!($($why)+)))
    };
}

pub mod lock;
pub mod queue;
mod serving;
#[cfg(test)]
mod testing;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::Error;
use plinth_core::similar::{most_similar, question};
use plinth_delos::log::LogPos;
use plinth_delos::replica::kind::Kind;
use plinth_delos::stack::{Application, Failure};
use plinth_delos::store::{Reads, RoTx, RwTx};
use serde_json::Value;

/// The kinds of services that there are.
pub static KINDS: [&Kind; 2] = [&LOCKS, &QUEUES];
pub static LOCKS: Kind = Kind::of::<Hosted<lock::Locks>>();
pub static QUEUES: Kind = Kind::of::<Hosted<queue::Queues>>();

/// By how much the clock goes on at a time.
pub const TICK_MS: u64 = 500;
const CLOCK: &[u8] = b"clock";
/// Longest request.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The first byte of an entry's payload.
const REQUEST: u8 = 0;
const TICK: u8 = 1;

/// Why a request is refused. All replicas refuse it alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// A word that programs look at.
    pub code: &'static str,
    /// A line for people.
    pub why: String,
}

impl Refused {
    pub fn new(code: &'static str, why: impl Into<String>) -> Self {
        Refused {
            code,
            why: why.into(),
        }
    }
}

pub type Outcome = Result<Value, Failure<Refused>>;

/// Refuses the current request.
///
/// # Errors
/// Always.
pub fn refuse<T>(code: &'static str, why: impl Into<String>) -> Result<T, Failure<Refused>> {
    Err(Failure::Refused(Refused::new(code, why)))
}

/// What is the same for all rows that a service reads: a transaction, or a snapshot.
pub trait Rows {
    /// # Errors
    /// The disk fails.
    fn row(&self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// # Errors
    /// The disk fails.
    fn rows(&self, begin: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, Error>;

    /// The service's time, in milliseconds since it was made.
    ///
    /// # Errors
    /// The disk fails.
    fn now_ms(&self) -> Result<u64, Error> {
        let clock = self.row(CLOCK)?;
        Ok(clock.map_or(0, |row| number(&row)))
    }
}

impl<R: Reads> Rows for R {
    fn row(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.get(key)
    }
    fn rows(&self, begin: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, Error> {
        self.range((begin, end), limit, false)
    }
}

/// A service: a state machine over rows.
pub trait Service: 'static {
    /// What operators call it.
    const NAME: &'static str;

    /// True if `operation` only reads.
    fn reads(operation: &str) -> bool;

    /// Executes an operation that changes rows. It follows from its arguments alone.
    ///
    /// # Errors
    /// Its changes are taken back.
    fn change(&self, tx: &mut RwTx, operation: &str, request: &Value) -> Outcome;

    /// Executes an operation that only reads.
    ///
    /// # Errors
    /// It is refused.
    fn read(&self, rows: &RoTx, operation: &str, request: &Value) -> Outcome;
}

/// A service as the application of a stack.
pub struct Hosted<S>(pub S);

/// The payload of an entry that asks for `operation`.
pub fn request(operation: &str, request: &Value) -> Bytes {
    let mut payload = vec![REQUEST];
    let called = serde_json::json!([operation, request]);
    payload.extend_from_slice(called.to_string().as_bytes());
    payload.into()
}

/// The payload of an entry by which the clock goes on from `now_ms`. Another one of the same time has no effect.
pub fn tick(now_ms: u64) -> Bytes {
    let mut payload = BytesMut::with_capacity(9);
    payload.put_u8(TICK);
    payload.put_u64_le(now_ms);
    payload.freeze()
}

impl<S: Service> Application for Hosted<S> {
    type Return = Value;
    type Refusal = Refused;

    fn execute(&self, tx: &mut RwTx, payload: &Bytes, _: LogPos) -> Outcome {
        let mut payload = payload.clone();
        match payload.try_get_u8() {
            Ok(REQUEST) => {}
            Ok(TICK) => {
                let now_ms = tx.now_ms()?;
                if payload.try_get_u64_le() == Ok(now_ms) {
                    set_number(tx, CLOCK, now_ms + TICK_MS);
                }
                return Ok(Value::Null);
            }
            // Of a later release: who cannot execute what others do must not go on.
            _ => return Err(Failure::Stop(Error::incompatible_software_version)),
        }
        match serde_json::from_slice(&payload) {
            Ok(Value::Array(called)) => match &called[..] {
                [Value::String(operation), request] => self.0.change(tx, operation, request),
                _ => refuse!("bad_request", "it is not an operation with its request"),
            },
            _ => refuse!("bad_request", "it is not JSON"),
        }
    }
}

/// A number in a row; 0 if the row is damaged.
fn number(row: &[u8]) -> u64 {
    row.try_into().map_or(0, u64::from_le_bytes)
}

fn set_number(tx: &mut RwTx, key: &[u8], number: u64) {
    tx.set(key, Bytes::copy_from_slice(&number.to_le_bytes()));
}

/// Adds one to the number in a row, and returns it.
///
/// # Errors
/// The disk fails.
fn next_number(tx: &mut RwTx, key: &[u8]) -> Result<u64, Error> {
    let next = tx.get(key)?.map_or(0, |row| number(&row)) + 1;
    set_number(tx, key, next);
    Ok(next)
}

// ---- arguments ----

/// Longest name of anything.
const NAME_BYTES_MAX: usize = 500;

/// A name: not empty, not too long, and without control characters.
///
/// # Errors
/// The request is refused.
pub fn name<'a>(request: &'a Value, field: &str) -> Result<&'a str, Failure<Refused>> {
    let text = text(request, field)?;
    match text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        true => refuse!(
            "bad_request",
            "`{field}' must have 1 to {NAME_BYTES_MAX} bytes and no control characters"
        ),
        false => Ok(text),
    }
}

/// # Errors
/// The request is refused if the field is no text.
pub fn text<'a>(request: &'a Value, field: &str) -> Result<&'a str, Failure<Refused>> {
    match &request[field] {
        Value::String(text) => Ok(text),
        Value::Null => refuse!(
            "bad_request",
            "`{field}' must be a text{}",
            missing(request, field)
        ),
        _ => refuse!("bad_request", "`{field}' must be a text"),
    }
}

/// What is said of a field that is not there: perhaps another one was meant to be it.
fn missing(request: &Value, field: &str) -> String {
    let given = request.as_object();
    let given = given.into_iter().flat_map(|fields| fields.keys());
    match most_similar(field, given.map(String::as_str)) {
        Some(given) => format!(", and is not there; `{given}' is"),
        None => ", and is not there".to_owned(),
    }
}

/// # Errors
/// The request is refused if the field is no number, or outside the bounds.
pub fn whole_number(
    request: &Value,
    field: &str,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<u64, Failure<Refused>> {
    let given = request[field].as_u64();
    match given.filter(|number| bounds.contains(number)) {
        Some(number) => Ok(number),
        None => refuse!(
            "bad_request",
            "`{field}' must be a whole number from {} to {}",
            bounds.start(),
            bounds.end()
        ),
    }
}

/// Refuses an operation that is none of `all`.
///
/// # Errors
/// Always.
pub fn unknown<T>(operation: &str, all: &[&str]) -> Result<T, Failure<Refused>> {
    refuse!(
        "unknown_operation",
        "there is no operation {operation:?}; {}there are {}",
        question(operation, all.iter().copied()),
        all.join(", ")
    )
}
