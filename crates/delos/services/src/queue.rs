//! Queues whose messages are handed out to one consumer at a time, until one says that it is done.
//!
//! ```text
//!   push  {queue, body}             {id}
//!   take  {queue, for_ms}           {id, body, receipt, times}, or null if there is nothing
//!   done  {queue, id, receipt}      the message is gone
//!   back  {queue, id, receipt}      it is the next to be taken
//!   peek  {queue, limit?}           [{id, body}] that can be taken
//!   size  {queue}                   {ready, taken}
//! ```
//! A message that was taken and is not done in time can be taken again, with another receipt. So a message is handled
//! at least once, and `done` tells whether it still was one's own. Messages are taken in the order of their ids.
//!
//! Rows, for each queue: `ready/<id>` → JSON `[times, body]`; `taken/<id>` → JSON `[times, body, receipt, until]`;
//! `end/<until><id>`, in the order in which times are over; and how many there are.

use crate::{
    Outcome, Refused, Rows, Service, name, next_number, number, set_number, text, unknown,
    whole_number,
};
use plinth_core::Error;
use plinth_delos::stack::Failure;
use plinth_delos::store::{RoTx, RwTx};
use plinth_runtime::nobody_has_lied;
use serde_json::{Value, json};

const FOR_MS_MAX: u64 = 24 * 3600 * 1000;
const BODY_BYTES_MAX: usize = 256 << 10;
const RECEIPTS: &[u8] = b"receipts";
/// Messages whose time is over that go back with one operation.
const BACK_AT_ONCE: usize = 100;
const OPERATIONS: [&str; 6] = ["push", "take", "done", "back", "peek", "size"];

/// See the module.
#[derive(Default)]
pub struct Queues;

/// Rows of one queue. No name has a NUL.
struct Queue(Vec<u8>);

impl Queue {
    fn of(request: &Value) -> Result<Queue, Failure<Refused>> {
        let name = name(request, "queue")?;
        Ok(Queue([b"queue/", name.as_bytes(), b"\0"].concat()))
    }

    fn key(&self, kind: &str, parts: &[u64]) -> Vec<u8> {
        let mut key = [&self.0, kind.as_bytes()].concat();
        parts
            .iter()
            .for_each(|part| key.extend_from_slice(&part.to_be_bytes()));
        key
    }

    fn ready(&self, id: u64) -> Vec<u8> {
        self.key("ready/", &[id])
    }

    fn taken(&self, id: u64) -> Vec<u8> {
        self.key("taken/", &[id])
    }

    fn end(&self, until_ms: u64, id: u64) -> Vec<u8> {
        self.key("end/", &[until_ms, id])
    }

    fn add(&self, tx: &mut RwTx, kind: &str, more: i64) -> Result<(), Error> {
        let key = self.key(kind, &[]);
        let size = tx.get(&key)?.map_or(0, |row| number(&row));
        // Not where all replicas would end alike.
        assert!(
            !nobody_has_lied() || size.checked_add_signed(more).is_some(),
            "{kind} are {size}, and {more} come"
        );
        set_number(tx, &key, size.saturating_add_signed(more));
        Ok(())
    }

    fn size(&self, rows: &RoTx, kind: &str) -> Result<u64, Error> {
        Ok(rows
            .get(&self.key(kind, &[]))?
            .map_or(0, |row| number(&row)))
    }
}

fn last_id(key: &[u8]) -> Result<u64, Error> {
    let id = key.last_chunk::<8>().ok_or(Error::file_corrupt)?;
    Ok(u64::from_be_bytes(*id))
}

fn parse(row: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(row).map_err(|_| Error::file_corrupt)
}

/// Whose time is over can be taken again.
fn bring_back(tx: &mut RwTx, queue: &Queue) -> Result<(), Error> {
    let now_ms = tx.now_ms()?;
    let begin = queue.key("end/", &[]);
    let over = tx.range(&begin, &queue.end(now_ms + 1, 0), BACK_AT_ONCE)?;
    for (key, _) in over {
        let id = last_id(&key)?;
        tx.clear(&key);
        make_ready(tx, queue, id)?;
    }
    Ok(())
}

fn make_ready(tx: &mut RwTx, queue: &Queue, id: u64) -> Result<(), Error> {
    let row = tx.get(&queue.taken(id))?.ok_or(Error::file_corrupt)?;
    let row = parse(&row)?;
    tx.clear(&queue.taken(id));
    tx.set(&queue.ready(id), json!([row[0], row[1]]).to_string());
    queue.add(tx, "takens", -1)?;
    queue.add(tx, "readys", 1)
}

fn push(tx: &mut RwTx, queue: &Queue, request: &Value) -> Outcome {
    let body = text(request, "body")?;
    if body.len() > BODY_BYTES_MAX {
        return refuse!("too_long", "`body' may have {BODY_BYTES_MAX} bytes");
    }
    let id = next_number(tx, &queue.key("ids", &[]))?;
    tx.set(&queue.ready(id), json!([0, body]).to_string());
    queue.add(tx, "readys", 1)?;
    Ok(json!({ "id": id }))
}

fn take(tx: &mut RwTx, queue: &Queue, request: &Value) -> Outcome {
    let for_ms = whole_number(request, "for_ms", 1..=FOR_MS_MAX)?;
    bring_back(tx, queue)?;
    let first = tx.range(&queue.ready(0), &queue.ready(u64::MAX), 1)?;
    let Some((key, row)) = first.into_iter().next() else {
        return Ok(Value::Null);
    };
    let (id, row) = (last_id(&key)?, parse(&row)?);
    let times = row[0].as_u64().ok_or(Error::file_corrupt)? + 1;
    assert!(
        !nobody_has_lied() || tx.get(&queue.taken(id))?.is_none(),
        "message {id} is ready, and somebody has it"
    );
    let receipt = next_number(tx, RECEIPTS)?;
    let until_ms = tx.now_ms()? + for_ms;
    tx.clear(&key);
    let taken = json!([times, row[1], receipt, until_ms]).to_string();
    tx.set(&queue.taken(id), taken);
    tx.set(&queue.end(until_ms, id), "");
    queue.add(tx, "readys", -1)?;
    queue.add(tx, "takens", 1)?;
    Ok(json!({ "id": id, "body": row[1], "receipt": receipt, "times": times }))
}

/// Ends the time of a message that is still one's own; its id.
fn settle(tx: &mut RwTx, queue: &Queue, request: &Value) -> Result<u64, Failure<Refused>> {
    let id = whole_number(request, "id", 1..=u64::MAX)?;
    let receipt = whole_number(request, "receipt", 1..=u64::MAX)?;
    bring_back(tx, queue)?;
    let row = tx.get(&queue.taken(id))?;
    let row = row
        .as_deref()
        .map(parse)
        .transpose()?
        .unwrap_or(Value::Null);
    if row[2] != receipt {
        return refuse!("lost", "receipt {receipt} is not for message {id} any more");
    }
    let until_ms = row[3].as_u64().ok_or(Error::file_corrupt)?;
    tx.clear(&queue.end(until_ms, id));
    Ok(id)
}

impl Service for Queues {
    const NAME: &'static str = "queue";

    fn reads(operation: &str) -> bool {
        matches!(operation, "peek" | "size")
    }

    fn change(&self, tx: &mut RwTx, operation: &str, request: &Value) -> Outcome {
        let queue = Queue::of(request);
        match operation {
            "push" => push(tx, &queue?, request),
            "take" => take(tx, &queue?, request),
            "done" => {
                let queue = queue?;
                let id = settle(tx, &queue, request)?;
                tx.clear(&queue.taken(id));
                queue.add(tx, "takens", -1)?;
                Ok(Value::Null)
            }
            "back" => {
                let queue = queue?;
                let id = settle(tx, &queue, request)?;
                make_ready(tx, &queue, id)?;
                Ok(Value::Null)
            }
            _ => unknown(operation, &OPERATIONS),
        }
    }

    fn read(&self, rows: &RoTx, operation: &str, request: &Value) -> Outcome {
        let queue = Queue::of(request);
        match operation {
            "peek" => {
                let queue = queue?;
                let limit = match request["limit"] {
                    Value::Null => 10,
                    _ => whole_number(request, "limit", 1..=100)? as usize,
                };
                let found = rows.range(&queue.ready(0), &queue.ready(u64::MAX), limit)?;
                let shown = |(key, row): &(bytes::Bytes, bytes::Bytes)| {
                    Ok(json!({ "id": last_id(key)?, "body": parse(row)?[1] }))
                };
                let all: Result<Vec<Value>, Error> = found.iter().map(shown).collect();
                Ok(all?.into())
            }
            "size" => {
                let queue = queue?;
                let (ready, taken) = (queue.size(rows, "readys")?, queue.size(rows, "takens")?);
                Ok(json!({ "ready": ready, "taken": taken }))
            }
            _ => unknown(operation, &OPERATIONS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Alone;

    fn push(queues: &Alone<Queues>, body: &str) {
        let pushed = queues.change("push", json!({ "queue": "q", "body": body }));
        pushed.expect("pushed");
    }

    fn take(queues: &Alone<Queues>, for_ms: u64) -> Value {
        let taken = queues.change("take", json!({ "queue": "q", "for_ms": for_ms }));
        taken.expect("asked rightly")
    }

    fn size(queues: &Alone<Queues>) -> (u64, u64) {
        let size = queues.read("size", json!({ "queue": "q" })).expect("read");
        (
            size["ready"].as_u64().expect("a number"),
            size["taken"].as_u64().expect("a number"),
        )
    }

    fn settle(queues: &Alone<Queues>, operation: &str, taken: &Value) -> Result<Value, Refused> {
        let request = json!({ "queue": "q", "id": taken["id"], "receipt": taken["receipt"] });
        queues.change(operation, request)
    }

    #[test]
    fn messages_are_taken_in_order_and_by_one_consumer() {
        Alone::run(Queues, |queues| {
            assert_eq!(take(queues, 1000), Value::Null);
            for body in ["a", "b", "c"] {
                push(queues, body);
            }
            let (a, b) = (take(queues, 1000), take(queues, 1000));
            assert_eq!((&a["body"], &b["body"]), (&json!("a"), &json!("b")));
            assert_eq!(size(queues), (1, 2));
            assert_eq!(settle(queues, "done", &a), Ok(Value::Null));
            assert_eq!(settle(queues, "done", &a).expect_err("gone").code, "lost");
            assert_eq!(settle(queues, "back", &b), Ok(Value::Null));
            assert_eq!(size(queues), (2, 0));
            let again = take(queues, 1000);
            assert_eq!((&again["body"], &again["times"]), (&json!("b"), &json!(2)));
        });
    }

    #[test]
    fn a_message_that_is_not_done_in_time_is_taken_again() {
        Alone::run(Queues, |queues| {
            push(queues, "a");
            let first = take(queues, 1000);
            queues.pass(500);
            assert_eq!(take(queues, 1000), Value::Null);
            queues.pass(500);
            let second = take(queues, 1000);
            assert_eq!(
                (&second["body"], &second["times"]),
                (&json!("a"), &json!(2))
            );
            assert_eq!(
                settle(queues, "done", &first).expect_err("late").code,
                "lost"
            );
            assert_eq!(settle(queues, "done", &second), Ok(Value::Null));
            assert_eq!((take(queues, 1000), size(queues)), (Value::Null, (0, 0)));
        });
    }

    #[test]
    fn queues_do_not_see_each_other() {
        Alone::run(Queues, |queues| {
            push(queues, "a");
            let other = json!({ "queue": "q2", "for_ms": 10 });
            assert_eq!(queues.change("take", other), Ok(Value::Null));
            let peeked = queues.read("peek", json!({ "queue": "q" })).expect("read");
            assert_eq!(peeked, json!([{ "id": 1, "body": "a" }]));
        });
    }
}
