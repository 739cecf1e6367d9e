//! Locks with an owner, a time to live, and tokens that only grow.
//!
//! ```text
//!   acquire {name, owner, ttl_ms}   {token, until_ms}; refused with `held` while somebody else has it
//!   renew   {name, token}           {until_ms}: as long again as it was acquired for
//!   release {name, token}
//!   holder  {name}                  {owner, token, until_ms}, or null
//!   list    {after?, limit?}        [{name, owner, token, until_ms}]
//! ```
//! An owner that acquires its own lock again gets the same token and a new time. A token is larger than all before it:
//! whoever writes on behalf of a lock shows it, and a store that refuses smaller ones cannot be hurt by an owner that
//! slept past its time.

use crate::{Outcome, Refused, Rows, Service, name, next_number, unknown, whole_number};
use bytes::Bytes;
use plinth_core::Error;
use plinth_delos::stack::Failure;
use plinth_delos::store::{RoTx, RwTx};
use plinth_runtime::nobody_has_lied;
use serde_json::{Value, json};

const TOKENS: &[u8] = b"tokens";
const LOCKS: &[u8] = b"lock/";
const LOCKS_END: &[u8] = b"lock0";
const TTL_MS_MAX: u64 = 24 * 3600 * 1000;
const OPERATIONS: [&str; 5] = ["acquire", "renew", "release", "holder", "list"];

/// See the module.
#[derive(Default)]
pub struct Locks;

/// A row: JSON `[owner, token, until_ms, ttl_ms]`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    owner: String,
    token: u64,
    until_ms: u64,
    ttl_ms: u64,
}

impl Held {
    fn parse(row: &[u8]) -> Result<Held, Error> {
        let row: Value = serde_json::from_slice(row).map_err(|_| Error::file_corrupt)?;
        let number = |at: usize| row[at].as_u64().ok_or(Error::file_corrupt);
        Ok(Held {
            owner: row[0].as_str().ok_or(Error::file_corrupt)?.into(),
            token: number(1)?,
            until_ms: number(2)?,
            ttl_ms: number(3)?,
        })
    }

    fn row(&self) -> Bytes {
        let row = json!([self.owner, self.token, self.until_ms, self.ttl_ms]);
        row.to_string().into()
    }

    fn shown(&self) -> Value {
        json!({ "owner": self.owner, "token": self.token, "until_ms": self.until_ms })
    }
}

fn key(name: &str) -> Vec<u8> {
    [LOCKS, name.as_bytes()].concat()
}

/// The lock, unless its time is over.
fn held(rows: &impl Rows, name: &str) -> Result<Option<Held>, Error> {
    let row = rows.row(&key(name))?;
    let held = row.as_deref().map(Held::parse).transpose()?;
    let now_ms = rows.now_ms()?;
    Ok(held.filter(|held| held.until_ms > now_ms))
}

/// The lock that the token of a request is for.
fn own(tx: &RwTx, request: &Value) -> Result<(String, Held), Failure<Refused>> {
    let name = name(request, "name")?;
    let token = whole_number(request, "token", 1..=u64::MAX)?;
    match held(tx, name)? {
        Some(held) if held.token == token => Ok((name.into(), held)),
        _ => refuse!("lost", "token {token} does not hold {name:?}"),
    }
}

impl Service for Locks {
    const NAME: &'static str = "lock";

    fn reads(operation: &str) -> bool {
        matches!(operation, "holder" | "list")
    }

    fn change(&self, tx: &mut RwTx, operation: &str, request: &Value) -> Outcome {
        match operation {
            "acquire" => {
                let (name, owner) = (name(request, "name")?, name(request, "owner")?);
                let ttl_ms = whole_number(request, "ttl_ms", 1..=TTL_MS_MAX)?;
                let token = match held(tx, name)? {
                    Some(held) if held.owner != owner => {
                        return refuse!("held", "{:?} has {name:?}", held.owner);
                    }
                    Some(held) => held.token,
                    None => next_number(tx, TOKENS)?,
                };
                let held = Held {
                    owner: owner.into(),
                    token,
                    until_ms: tx.now_ms()? + ttl_ms,
                    ttl_ms,
                };
                let former = tx.get(&key(name))?;
                let former = former.as_deref().map(Held::parse).transpose()?;
                let is_same = |former: &Held| former.token == token && former.owner == owner;
                // Not where all replicas would end alike. Who is late must be known by a lower token.
                assert!(
                    !nobody_has_lied()
                        || former.is_none_or(|former| former.token < token || is_same(&former)),
                    "lock {name:?} gets token {token} for {owner:?}, which is not a later one"
                );
                tx.set(&key(name), held.row());
                Ok(held.shown())
            }
            "renew" => {
                let (name, held) = own(tx, request)?;
                let until_ms = tx.now_ms()? + held.ttl_ms;
                let held = Held { until_ms, ..held };
                tx.set(&key(&name), held.row());
                Ok(held.shown())
            }
            "release" => {
                let (name, _) = own(tx, request)?;
                tx.clear(&key(&name));
                Ok(Value::Null)
            }
            _ => unknown(operation, &OPERATIONS),
        }
    }

    fn read(&self, rows: &RoTx, operation: &str, request: &Value) -> Outcome {
        match operation {
            "holder" => {
                let held = held(rows, name(request, "name")?)?;
                Ok(held.map_or(Value::Null, |held| held.shown()))
            }
            "list" => list(rows, request),
            _ => unknown(operation, &OPERATIONS),
        }
    }
}

fn list(rows: &RoTx, request: &Value) -> Outcome {
    let limit = match request["limit"] {
        Value::Null => 1000,
        _ => whole_number(request, "limit", 1..=10_000)? as usize,
    };
    let begin = match &request["after"] {
        Value::Null => LOCKS.to_vec(),
        _ => [key(name(request, "after")?), vec![0]].concat(),
    };
    let now_ms = rows.now_ms()?;
    let mut all = Vec::new();
    for (key, row) in rows.rows(&begin, LOCKS_END, limit)? {
        let held = Held::parse(&row)?;
        if held.until_ms > now_ms {
            let mut shown = held.shown();
            shown["name"] = String::from_utf8_lossy(&key[LOCKS.len()..]).into();
            all.push(shown);
        }
    }
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Alone;

    fn acquire(owner: &str, ttl_ms: u64) -> Value {
        json!({ "name": "a", "owner": owner, "ttl_ms": ttl_ms })
    }

    #[test]
    fn a_lock_has_one_owner_until_it_is_released_or_its_time_is_over() {
        Alone::run(Locks, |locks| {
            let first = locks.change("acquire", acquire("one", 1000)).expect("free");
            assert_eq!(
                first,
                json!({ "owner": "one", "token": 1, "until_ms": 1000 })
            );
            let refused = locks.change("acquire", acquire("two", 1000));
            assert_eq!(refused.expect_err("held").code, "held");
            locks.pass(500);
            let again = locks.change("renew", json!({ "name": "a", "token": 1 }));
            assert_eq!(again.expect("its own")["until_ms"], 1500);
            locks.pass(1000);
            assert_eq!(
                locks.read("holder", json!({ "name": "a" })),
                Ok(Value::Null)
            );
            let second = locks.change("acquire", acquire("two", 1000)).expect("free");
            assert_eq!(second["token"], 2);
            for operation in ["renew", "release"] {
                let late = locks.change(operation, json!({ "name": "a", "token": 1 }));
                assert_eq!(late.expect_err("too late").code, "lost");
            }
            let released = locks.change("release", json!({ "name": "a", "token": 2 }));
            assert_eq!(released, Ok(Value::Null));
            let third = locks.change("acquire", acquire("one", 10)).expect("free");
            assert_eq!(third["token"], 3);
        });
    }

    #[test]
    fn locks_are_listed_in_pages() {
        Alone::run(Locks, |locks| {
            for name in ["b", "a", "c"] {
                let request = json!({ "name": name, "owner": "x", "ttl_ms": 1000 });
                locks.change("acquire", request).expect("free");
            }
            let names = |listed: Value| -> Vec<String> {
                let listed = listed.as_array().cloned().expect("a list");
                listed
                    .iter()
                    .map(|l| l["name"].as_str().expect("a name").into())
                    .collect()
            };
            let page = locks.read("list", json!({ "limit": 2 })).expect("listed");
            assert_eq!(names(page), ["a", "b"]);
            let page = locks.read("list", json!({ "after": "b" })).expect("listed");
            assert_eq!(names(page), ["c"]);
        });
    }

    #[test]
    fn bad_requests_are_refused_with_a_line_that_helps() {
        Alone::run(Locks, |locks| {
            for (operation, request, says) in [
                ("acquire", json!({}), "`name' must be a text"),
                (
                    "acquire",
                    json!({ "nam": "a" }),
                    "`name' must be a text, and is not there; `nam' is",
                ),
                (
                    "acquire",
                    json!({ "name": "", "owner": "x" }),
                    "`name' must have 1 to 500",
                ),
                (
                    "acquire",
                    json!({ "name": "a", "owner": "x", "ttl_ms": 0 }),
                    "`ttl_ms' must",
                ),
                ("acquire", json!([1, 2]), "`name' must be a text"),
                (
                    "release",
                    json!({ "name": "a", "token": -1 }),
                    "`token' must be a whole",
                ),
                (
                    "steal",
                    json!({}),
                    "there is no operation \"steal\"; there are acquire, renew",
                ),
                (
                    "aquire",
                    json!({}),
                    "there is no operation \"aquire\"; did you mean `acquire'? there are",
                ),
            ] {
                let refused = locks.change(operation, request).expect_err(says);
                assert!(refused.why.starts_with(says), "{refused:?}");
            }
        });
    }
}
