//! Sessions of clients (FDBKeeper §4).
//!
//! A session is a row with its owner, the gateway that the client last connected to. That gateway alone acts for the
//! session, and ends it when it has not heard of the client for the time-out, by its own monotonic clock. When another
//! gateway takes the session, the owner's transactions for it no longer commit.
//!
//! No gateway compares clocks with another. A gateway shows that it lives by changing a row of its own. Others time
//! how long that row stays the same; [`crate::leases`] ends the sessions of a gateway that has gone.

use bytes::{Buf, BufMut, Bytes};
use plinth_runtime::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// As a session's row has it: `owner: 8 | timeout: 4 | password`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRow {
    pub owner: u64,
    pub timeout_ms: u32,
    pub password: Bytes,
}

pub fn row(owner: u64, timeout_ms: u32, password: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(12 + password.len());
    row.put_u64(owner);
    row.put_u32(timeout_ms);
    row.put_slice(password);
    row
}

/// The row of a session that has ended and has ephemeral nodes left.
pub fn ending_row(owner: u64) -> Vec<u8> {
    row(owner, 0, b"")
}

impl SessionRow {
    /// Nobody can take the session any more.
    pub fn is_ending(&self) -> bool {
        self.timeout_ms == 0
    }

    pub fn parse(mut row: &[u8]) -> Option<SessionRow> {
        Some(SessionRow {
            owner: row.try_get_u64().ok()?,
            timeout_ms: row.try_get_u32().ok()?,
            password: Bytes::copy_from_slice(row),
        })
    }
}

/// A session of this gateway.
pub struct Owned {
    pub timeout: Duration,
    /// When the client was last heard of.
    heard: Instant,
    /// The connection that the session has.
    pub client: Option<u64>,
    /// It is being ended.
    pub is_closing: bool,
    deadline: Instant,
}

/// The sessions of this gateway, and when each ends unless its client is heard of.
#[derive(Default)]
pub struct Sessions {
    owned: BTreeMap<i64, Owned>,
    /// No session ends before its entry here. A client that is heard of does not change it: the entry is looked at
    /// again when its time has come.
    deadlines: BTreeSet<(Instant, i64)>,
}

impl Sessions {
    pub fn insert(&mut self, session: i64, timeout: Duration, client: Option<u64>, now: Instant) {
        self.remove(session);
        let deadline = now + timeout;
        self.deadlines.insert((deadline, session));
        let owned = Owned {
            timeout,
            heard: now,
            client,
            is_closing: false,
            deadline,
        };
        self.owned.insert(session, owned);
        self.all_have_deadlines();
    }

    fn all_have_deadlines(&self) {
        let (owned, deadlines) = (self.owned.len(), self.deadlines.len());
        assert_eq!(owned, deadlines, "a deadline for each session");
    }

    /// Adds the session, if it is not there, without a connection.
    pub fn own(&mut self, session: i64, timeout: Duration, now: Instant) {
        if !self.owned.contains_key(&session) {
            self.insert(session, timeout, None, now);
        }
    }

    pub fn remove(&mut self, session: i64) -> Option<Owned> {
        let owned = self.owned.remove(&session)?;
        let had = self.deadlines.remove(&(owned.deadline, session));
        assert!(had, "session {session:#x} had no deadline");
        Some(owned)
    }

    pub fn get(&self, session: i64) -> Option<&Owned> {
        self.owned.get(&session)
    }

    pub fn get_mut(&mut self, session: i64) -> Option<&mut Owned> {
        self.owned.get_mut(&session)
    }

    pub fn iter(&self) -> impl Iterator<Item = (i64, &Owned)> {
        self.owned.iter().map(|(id, owned)| (*id, owned))
    }

    pub fn len(&self) -> usize {
        self.owned.len()
    }

    pub fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    /// The client was heard of.
    #[inline]
    pub fn touch(&mut self, session: i64, now: Instant) {
        if let Some(owned) = self.owned.get_mut(&session) {
            owned.heard = now;
        }
    }

    /// Gives every client its whole time-out again: they could not be heard.
    pub fn touch_all(&mut self, now: Instant) {
        self.owned.values_mut().for_each(|owned| owned.heard = now);
    }

    /// Sessions whose clients have not been heard of for their time-outs. They are closing from now on.
    pub fn expired(&mut self, now: Instant) -> Vec<i64> {
        let mut due = Vec::new();
        while let Some((deadline, session)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            due.push(session);
        }
        let mut expired = Vec::new();
        // Each is looked at once, also one whose next time is now.
        for session in due {
            let owned = self
                .owned
                .get_mut(&session)
                .expect("removed with its deadline");
            owned.deadline = owned.heard + owned.timeout;
            if owned.deadline <= now {
                // Looked at again if it cannot be ended.
                owned.deadline = now + owned.timeout;
                if !owned.is_closing {
                    owned.is_closing = true;
                    expired.push(session);
                }
            }
            self.deadlines.insert((owned.deadline, session));
        }
        self.all_have_deadlines();
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::{now, real};

    #[test]
    fn a_row_gives_back_the_session() {
        let row = row(7, 4000, b"secret");
        let expected = SessionRow {
            owner: 7,
            timeout_ms: 4000,
            password: Bytes::from_static(b"secret"),
        };
        assert_eq!(SessionRow::parse(&row), Some(expected));
        assert_eq!(SessionRow::parse(&row[..11]), None);
        let ending = SessionRow::parse(&ending_row(7)).expect("a row");
        assert!(ending.is_ending() && ending.owner == 7);
    }

    #[test]
    fn a_session_ends_when_its_client_was_not_heard_of_for_the_timeout_and_not_before() {
        real::block_on(async {
            let start = now();
            let at = |ms| start + Duration::from_millis(ms);
            let mut sessions = Sessions::default();
            sessions.insert(1, Duration::from_millis(100), None, at(0));
            sessions.insert(2, Duration::from_millis(100), None, at(0));
            assert!(sessions.expired(at(99)).is_empty());
            sessions.touch(1, at(90));
            assert_eq!(sessions.expired(at(100)), [2]);
            assert!(sessions.expired(at(100)).is_empty(), "it is told once");
            assert!(sessions.expired(at(189)).is_empty());
            sessions.touch_all(at(150));
            assert!(sessions.expired(at(249)).is_empty());
            assert_eq!(sessions.expired(at(250)), [1]);
            sessions.insert(3, Duration::ZERO, None, at(250));
            assert_eq!(sessions.expired(at(250)), [3], "it comes to an end");
            sessions.remove(1);
            sessions.remove(2);
            sessions.remove(3);
            assert!(sessions.expired(at(10_000)).is_empty());
            assert_eq!(sessions.len(), 0);
        });
    }
}
