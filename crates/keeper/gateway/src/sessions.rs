//! Sessions of clients (FDBKeeper §4).
//!
//! A session is a row with its owner, the gateway that the client last connected to. That gateway alone acts for the
//! session, and ends it when it has not heard of the client for the time-out, by its own monotonic clock. When another
//! gateway takes the session, the owner's transactions for it no longer commit.
//!
//! No gateway compares clocks with another. A gateway shows that it lives by changing a row of its own. Others time
//! how long that row stays the same; [`crate::leases`] ends the sessions of a gateway that has gone.

use bytes::{Buf, BufMut, Bytes};
use plinth_runtime::{Duration, Instant, planted};
use std::collections::{BTreeMap, BTreeSet};

/// How much longer than the time-out a session lives: its client may be heard at another gateway, which has to ask the
/// store for it.
pub const GRACE: Duration = Duration::from_millis(250);
/// When a session that could not be ended is looked at again.
const NEXT_LOOK: Duration = Duration::from_millis(25);

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

/// Takes as long wherever two of them differ: nobody finds out a password piece by piece.
pub fn is_same_password(one: &[u8], other: &[u8]) -> bool {
    let pairs = one.iter().zip(other);
    let differ = pairs.fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differ) == 0
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
    password: Bytes,
    /// When the client was last heard of.
    heard: Instant,
    /// The connection that the session has.
    pub client: Option<u64>,
    /// It is being ended, because its client was last heard of then.
    closing: Option<Instant>,
    deadline: Instant,
}

impl Owned {
    /// `heard`: when its client was last heard of.
    pub fn new(timeout: Duration, password: Bytes, client: Option<u64>, heard: Instant) -> Owned {
        Owned {
            timeout,
            password,
            heard,
            client,
            closing: None,
            deadline: heard + timeout + GRACE,
        }
    }
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
    pub fn insert(&mut self, session: i64, owned: Owned) {
        self.remove(session);
        self.deadlines.insert((owned.deadline, session));
        self.owned.insert(session, owned);
        self.all_have_deadlines();
    }

    fn all_have_deadlines(&self) {
        let (owned, deadlines) = (self.owned.len(), self.deadlines.len());
        assert_eq!(owned, deadlines, "a deadline for each session");
    }

    /// Adds the session, if it is not there.
    pub fn own(&mut self, session: i64, owned: Owned) {
        if !self.owned.contains_key(&session) {
            self.insert(session, owned);
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

    /// The client has come with a new connection. Nobody else knows the password.
    pub fn greeted(&mut self, session: i64, password: &[u8], now: Instant) {
        let is_forgotten = planted!(
            "keeper_greeting_not_counted",
            "a client that connects again is not heard before the store has confirmed it"
        );
        if let Some(owned) = self.owned.get_mut(&session)
            && is_same_password(&owned.password, password)
            && !is_forgotten
        {
            owned.heard = now;
        }
    }

    /// So much time does not count: clients may not have been able to say anything.
    pub fn give_back(&mut self, time: Duration, now: Instant) {
        let owned = self.owned.values_mut();
        owned.for_each(|owned| owned.heard = owned.heard.max((owned.heard + time).min(now)));
    }

    /// The session is being ended: what is heard of its client now waits until it is known whether it lives.
    pub fn is_closing(&self, session: i64) -> bool {
        self.owned
            .get(&session)
            .is_some_and(|owned| owned.closing.is_some())
    }

    /// Its client has not been heard of since it was decided to end the session.
    pub fn is_silent(&self, session: i64) -> bool {
        self.owned
            .get(&session)
            .is_none_or(|owned| owned.closing == Some(owned.heard))
    }

    /// The session goes on.
    pub fn call_off(&mut self, session: i64) {
        if let Some(owned) = self.owned.get_mut(&session) {
            owned.closing = None;
        }
    }

    /// Sessions whose clients have not been heard of for their time-outs, if this gateway has shown since then that it
    /// lives: that was at `proved`. They are closing from now on.
    pub fn expired(&mut self, now: Instant, proved: Instant) -> Vec<i64> {
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
            let over = owned.heard + owned.timeout;
            owned.deadline = over + GRACE;
            if owned.deadline <= now {
                // Looked at again if it cannot be ended.
                owned.deadline = now + NEXT_LOOK;
                if proved >= over && owned.closing.is_none() {
                    owned.closing = Some(owned.heard);
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
    fn only_a_whole_password_is_one() {
        for (other, is_same) in [
            (&b"secret"[..], true),
            (b"secres", false),
            (b"Secret", false),
            (b"secre", false),
            (b"secrets", false),
            (b"", false),
        ] {
            assert_eq!(is_same_password(b"secret", other), is_same, "{other:?}");
        }
    }

    fn owned(ms: u64, heard: Instant) -> Owned {
        let password = Bytes::from_static(b"secret");
        Owned::new(Duration::from_millis(ms), password, None, heard)
    }

    #[test]
    fn a_session_ends_when_its_client_was_not_heard_of_for_the_timeout_and_not_before() {
        real::block_on(async {
            let start = now();
            let at = |ms| start + Duration::from_millis(ms);
            let late = |ms| at(ms) + GRACE;
            let mut sessions = Sessions::default();
            let expired = |sessions: &mut Sessions, ms| sessions.expired(late(ms), late(ms));
            sessions.insert(1, owned(100, at(0)));
            sessions.insert(2, owned(100, at(0)));
            assert!(expired(&mut sessions, 99).is_empty());
            sessions.touch(1, at(90));
            let unproved = sessions.expired(late(110), at(99));
            assert!(unproved.is_empty(), "the gateway may have been cut off");
            assert_eq!(expired(&mut sessions, 140), [2]);
            assert!(expired(&mut sessions, 140).is_empty(), "it is told once");
            assert!(expired(&mut sessions, 189).is_empty());
            sessions.give_back(Duration::from_millis(1000), at(150));
            assert!(expired(&mut sessions, 249).is_empty());
            assert_eq!(expired(&mut sessions, 250), [1]);
            sessions.insert(3, owned(0, at(250)));
            assert_eq!(expired(&mut sessions, 250), [3], "it comes to an end");
            (1..=3).for_each(|session| drop(sessions.remove(session)));
            assert!(expired(&mut sessions, 10_000).is_empty());
            assert_eq!(sessions.len(), 0);
        });
    }

    #[test]
    fn the_end_of_a_session_is_called_off_when_its_client_is_heard() {
        real::block_on(async {
            let start = now();
            let at = |ms| start + Duration::from_millis(ms);
            let mut sessions = Sessions::default();
            let is_silent = |sessions: &Sessions| sessions.is_silent(1);
            sessions.insert(1, owned(100, at(0)));
            assert_eq!(sessions.expired(at(1000), at(1000)), [1]);
            assert!(is_silent(&sessions) && sessions.is_closing(1));
            sessions.greeted(1, b"guess", at(1001));
            assert!(
                is_silent(&sessions),
                "anybody can come with a wrong password"
            );
            sessions.greeted(1, b"secret", at(1001));
            assert!(!is_silent(&sessions) && sessions.is_closing(1));
            sessions.call_off(1);
            assert!(!sessions.is_closing(1));
            assert!(sessions.expired(at(1350), at(1350)).is_empty());
            assert_eq!(sessions.expired(at(1400), at(1400)), [1]);
        });
    }
}
