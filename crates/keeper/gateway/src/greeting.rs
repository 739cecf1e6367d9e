//! The first bytes of a connection: an administrator's word, or a client that wants a session.

use crate::contact::{Moment, hold};
use crate::life::{Gateway, Life};
use crate::replica::Replica;
use crate::sessions::{Owned, SessionRow};
use crate::tree::execute::{Executed, Operation, Shape};
use crate::watches::Client;
use crate::wire::{
    ConnectAnswer, ConnectRequest, Protocol, decode_connect_request, encode_connect_answer,
    take_greeting,
};
use crate::words::Word;
use crate::writes::Outcome;
use bytes::Bytes;
use plinth_core::output::Output;
use plinth_runtime::serve::{Inbox, Outbox};
use plinth_runtime::sync::oneshot;
use plinth_runtime::{Duration, Either, now, probe, race, random, secret, timeout, trace};
use std::rc::Rc;

/// A connection that has not greeted by then is closed.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Longest greeting. A password has 16 bytes.
const GREETING_BYTES_MAX: usize = 1024;
/// How long a client waits for the gateway to be there.
const LIFE_LIMIT: Duration = Duration::from_secs(5);
const PASSWORD_BYTES: usize = 16;

pub enum Begun {
    Word(Word),
    Connect(ConnectRequest),
}

/// `None` if the connection is to be closed.
pub async fn await_greeting(inbox: &mut Inbox) -> Option<Begun> {
    let greeting = async {
        loop {
            if let Some(word) = inbox.buffer.first_chunk::<4>().and_then(Word::parse) {
                return Some(Begun::Word(word));
            }
            if let Some(frame) = take_greeting(&mut inbox.buffer, GREETING_BYTES_MAX).ok()? {
                return decode_connect_request(frame).ok().map(Begun::Connect);
            }
            inbox.read().await?;
        }
    };
    timeout(GREETING_LIMIT, greeting).await.flatten()
}

/// A session that was opened or taken.
pub struct Accepted {
    pub life: Rc<Life>,
    pub session: i64,
    pub timeout_ms: u32,
    pub protocol: Protocol,
    pub is_read_only: bool,
}

/// What the client gets of what it asks for.
fn protocol_of(gateway: &Gateway, request: &ConnectRequest) -> Protocol {
    match request.protocol() {
        Some(protocol) if gateway.options.clickhouse => protocol,
        Some(_) => Protocol::default(),
        None => {
            // It is told that this is a ZooKeeper, and goes.
            trace!("KeeperProtocolUnknown", "version" => request.protocol_version);
            Protocol::default()
        }
    }
}

/// Answers the greeting; `None` if the connection is to be closed.
pub async fn accept(
    gateway: &Gateway,
    client: Client,
    request: &ConnectRequest,
    outbox: &Outbox,
) -> Option<Accepted> {
    let heard = Moment::now();
    let protocol = protocol_of(gateway, request);
    timeout(LIFE_LIMIT, gateway.life.wait_until(Option::is_some)).await?;
    let life = gateway.life.get()?;
    if request.session_id != 0 {
        let mut sessions = life.clients.sessions.borrow_mut();
        sessions.greeted(request.session_id, &request.password, now());
    }
    if life.is_isolated() {
        return accept_reader(gateway, life, (request, protocol), outbox);
    }
    let finding = async {
        let found = find(gateway, &life, client, request).await;
        life.contact.covered(&heard).await;
        found
    };
    // A client that waits for the database in vain comes back for read-only mode, or goes elsewhere.
    let found = match race(finding, life.isolated()).await {
        Either::Left(found) => found?,
        Either::Right(()) => return None,
    };
    let Some(found) = found else {
        let nobody = (0, 0, Bytes::from_static(&[0; PASSWORD_BYTES]));
        answer(outbox, (request, protocol), nobody, false);
        return None;
    };
    let (session, timeout_ms, _) = found;
    if !is_still_its_own(&life, client, session) {
        // It ended, or went on elsewhere, while the answer was held back. The client asks again.
        probe!("keeper_found_session_is_gone");
        return None;
    }
    answer(outbox, (request, protocol), found, false);
    Some(Accepted {
        life,
        session,
        timeout_ms,
        protocol,
        is_read_only: false,
    })
}

fn is_still_its_own(life: &Life, client: Client, session: i64) -> bool {
    let sessions = life.clients.sessions.borrow();
    let owned = sessions.get(session);
    owned.is_some_and(|owned| owned.client == Some(client))
}

/// Answers the greeting of a gateway that only reads; see [`crate::read_only`].
fn accept_reader(
    gateway: &Gateway,
    life: Rc<Life>,
    (request, protocol): (&ConnectRequest, Protocol),
    outbox: &Outbox,
) -> Option<Accepted> {
    let replica = &life.replica;
    let is_ahead = request.last_zxid_seen > replica.zxid()
        && replica.zxids.version_of(request.last_zxid_seen) > replica.version();
    if request.read_only != Some(true) || is_ahead {
        return None;
    }
    let (session, password) = match request.session_id {
        0 => (new_session(), new_password()),
        session => (session, request.password.clone()),
    };
    let timeout_ms = timeout_of(gateway, request);
    probe!("keeper_read_only");
    trace!("KeeperReadOnlyClient", "session" => format!("{session:#x}"));
    answer(
        outbox,
        (request, protocol),
        (session, timeout_ms, password),
        true,
    );
    Some(Accepted {
        life,
        session,
        timeout_ms,
        protocol,
        is_read_only: true,
    })
}

/// The session that the client gets; `Some(None)` if the one that it names has expired, or is not its own.
async fn find(
    gateway: &Gateway,
    life: &Life,
    client: Client,
    request: &ConnectRequest,
) -> Option<Option<Session>> {
    // A client that has seen more than this gateway must not go back.
    let seen = life.replica.zxids.version_of(request.last_zxid_seen);
    if seen > life.replica.version() {
        probe!("keeper_client_has_seen_more");
        life.pipeline.refreshed().await.ok()?;
        if seen > life.replica.version() {
            trace!("KeeperClientFromTheFuture", "client" => client, "zxid" => request.last_zxid_seen);
            return None;
        }
    }
    life.replica.saw(request.last_zxid_seen);
    match request.session_id {
        0 => open(gateway, life, client, request).await,
        session => take(gateway, life, client, session, request).await,
    }
}

/// Answers the greeting. A time-out of 0 says that the session is over.
fn answer(
    outbox: &Outbox,
    (request, protocol): (&ConnectRequest, Protocol),
    (session_id, timeout_ms, password): Session,
    is_read_only: bool,
) {
    let answer = ConnectAnswer {
        protocol_version: protocol.version(),
        timeout_ms: timeout_ms as i32,
        session_id,
        password,
        // Clients before 3.4 do not know the question.
        read_only: request.read_only.map(|_| is_read_only),
    };
    let encode = |out: &mut Output| {
        encode_connect_answer(out, &answer);
        Ok::<(), ()>(())
    };
    let _ = outbox.push(encode); // never refused: it is short
}

/// Id, time-out in milliseconds, and password.
type Session = (i64, u32, Bytes);

/// The time-out for what the client asks for.
fn timeout_of(gateway: &Gateway, request: &ConnectRequest) -> u32 {
    let (shortest, longest) = gateway.options.session_timeouts_ms();
    let wanted = u32::try_from(request.timeout_ms).unwrap_or(0);
    wanted.clamp(shortest, longest)
}

/// Positive: the other half of the numbers are owners that are no sessions.
fn new_session() -> i64 {
    ((random::u64() >> 2) as i64).max(1)
}

/// Of the operating system: who knows his own session, and other numbers of the gateway, must not find out those of
/// others. Gateways need no secret in common for it: the password stands in the session's row.
fn new_password() -> Bytes {
    let mut password = [0; PASSWORD_BYTES];
    secret::fill(&mut password);
    Bytes::copy_from_slice(&password)
}

async fn open(
    gateway: &Gateway,
    life: &Life,
    client: Client,
    request: &ConnectRequest,
) -> Option<Option<Session>> {
    let timeout_ms = timeout_of(gateway, request);
    let (session, password) = (new_session(), new_password());
    let operation = Operation::OpenSession {
        session,
        timeout_ms,
        password: password.to_vec(),
    };
    insert(life, client, session, (timeout_ms, &password));
    life.pipeline.run(operation).await?;
    Some(Some((session, timeout_ms, password)))
}

/// The gateway that had the session, if it is this one's now.
fn taken_from(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Done {
            executed: Executed::One(Ok(Shape::Taken { from })),
            ..
        } => Some(*from),
        _ => None,
    }
}

fn insert(life: &Life, client: Client, session: i64, (timeout_ms, password): (u32, &Bytes)) {
    let timeout = Duration::from_millis(u64::from(timeout_ms));
    let owned = Owned::new(timeout, password.clone(), Some(client), now());
    life.clients.sessions.borrow_mut().insert(session, owned);
}

/// `Some(None)`: the session has expired, or the password is not its own.
async fn take(
    gateway: &Gateway,
    life: &Life,
    client: Client,
    session: i64,
    request: &ConnectRequest,
) -> Option<Option<Session>> {
    let password = &request.password;
    let timeout_ms = timeout_of(gateway, request);
    let operation = Operation::TakeSession {
        session,
        timeout_ms,
        password: password.to_vec(),
        found: None,
    };
    let (sender, receiver) = oneshot();
    let (clients, shown) = (life.clients.clone(), password.clone());
    let complete = move |_: &Replica, outcome: Outcome, _: Vec<_>| {
        // It is this gateway's to end from now on, even if the client waits no longer. Then it may be where it was
        // before, and be answered there until that gateway knows.
        if let Some(from) = taken_from(&outcome) {
            let timeout = Duration::from_millis(u64::from(timeout_ms));
            let owned = Owned::new(timeout, shown, None, now() + hold());
            clients.sessions.borrow_mut().own(session, owned);
            if from != clients.gateway {
                let session = format!("{session:#x}");
                trace!("KeeperSessionTaken", "gateway" => clients.gateway, "session" => session, "from" => from);
            }
        }
        let _ = sender.send(outcome);
    };
    life.pipeline.submit(operation, Box::new(complete));
    let outcome = receiver.await.ok()?;
    if taken_from(&outcome).is_none() {
        return Some(None);
    }
    let Some(row) = row_of_taken(life, session).await? else {
        return Some(None);
    };
    // The connection that it had here is over.
    let before = life.clients.sessions.borrow_mut().remove(session);
    let connections = life.clients.connections.borrow();
    if let Some(old) = before
        .and_then(|owned| owned.client)
        .and_then(|old| connections.get(&old))
    {
        old.hang_up();
    }
    insert(life, client, session, (row.timeout_ms, password));
    Some(Some((session, row.timeout_ms, password.clone())))
}

/// The row of a session that was taken just now; `Some(None)`: it is over.
async fn row_of_taken(life: &Life, session: i64) -> Option<Option<SessionRow>> {
    life.pipeline.refreshed().await.ok()?;
    let row = loop {
        match life.replica.session(session).await {
            Ok(Some(row)) => break row,
            Ok(None) => return Some(None),
            Err(_) => life.pipeline.refreshed().await.ok()?,
        }
    };
    if row.owner != life.id {
        return None;
    }
    if row.is_ending() {
        // Its end has begun right behind. A session without a time-out would never be looked at again.
        probe!("keeper_taken_session_ends");
        return Some(None);
    }
    if life.clients.sessions.borrow().get(session).is_none() {
        // It ended, or went on elsewhere, while its row was read. The client asks again.
        probe!("keeper_taken_session_is_gone");
        return None;
    }
    Some(Some(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real::block_on;

    #[test]
    fn a_password_does_not_follow_from_the_numbers_that_a_gateway_draws() {
        block_on(async {
            let drawn = || {
                random::reseed(7);
                (new_session(), new_password())
            };
            let (first, second) = (drawn(), drawn());
            assert_eq!(first.0, second.0, "the generator is where it was");
            assert_ne!(first.1, second.1);
            assert_eq!(first.1.len(), PASSWORD_BYTES);
        });
    }
}
