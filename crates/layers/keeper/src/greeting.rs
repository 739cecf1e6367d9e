//! The first bytes of a connection: an administrator's word, or a client that wants a session.

use crate::life::{Gateway, Life};
use crate::pipeline::{Outcome, code_of};
use crate::tree::execute::Operation;
use crate::watches::Client;
use crate::wire::{
    ConnectAnswer, ConnectRequest, decode_connect_request, encode_connect_answer, take_frame,
};
use crate::{admin, sessions};
use bytes::Bytes;
use plinth_core::output::Output;
use plinth_runtime::serve::{Inbox, Outbox};
use plinth_runtime::{Duration, now, probe, random, timeout, trace};
use std::rc::Rc;

/// A connection that has not greeted by then is closed.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Longest greeting. A password has 16 bytes.
const GREETING_BYTES_MAX: usize = 1024;
/// How long a client waits for the gateway to be there.
const LIFE_LIMIT: Duration = Duration::from_secs(5);
const PASSWORD_BYTES: usize = 16;

pub enum Begun {
    Word(admin::Word),
    Connect(ConnectRequest),
}

/// `None` if the connection is to be closed.
pub async fn await_greeting(inbox: &mut Inbox) -> Option<Begun> {
    let greeting = async {
        loop {
            if let Some(word) = inbox.buffer.first_chunk::<4>().and_then(admin::Word::parse) {
                return Some(Begun::Word(word));
            }
            if let Some(frame) = take_frame(&mut inbox.buffer, GREETING_BYTES_MAX).ok()? {
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
}

/// Answers the greeting; `None` if the connection is to be closed.
pub async fn accept(
    gateway: &Gateway,
    client: Client,
    request: &ConnectRequest,
    outbox: &Outbox,
) -> Option<Accepted> {
    timeout(LIFE_LIMIT, gateway.life.wait_until(Option::is_some)).await?;
    let life = gateway.life.get()?;
    if life.is_isolated() {
        return None;
    }
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
    let found = match request.session_id {
        0 => open(gateway, &life, client, request).await?,
        session => take(gateway, &life, client, session, request).await?,
    };
    let (answer, accepted) = match found {
        Some((session, timeout_ms, password)) => {
            let answer = ConnectAnswer {
                protocol_version: 0,
                timeout_ms: timeout_ms as i32,
                session_id: session,
                password,
                read_only: request.read_only.map(|_| false),
            };
            let accepted = Accepted {
                life,
                session,
                timeout_ms,
            };
            (answer, Some(accepted))
        }
        None => {
            let answer = ConnectAnswer {
                protocol_version: 0,
                timeout_ms: 0,
                session_id: 0,
                password: Bytes::from_static(&[0; PASSWORD_BYTES]),
                read_only: request.read_only.map(|_| false),
            };
            (answer, None)
        }
    };
    let encode = |out: &mut Output| {
        encode_connect_answer(out, &answer);
        Ok::<(), ()>(())
    };
    let _ = outbox.push(encode); // never refused: it is short
    accepted
}

type Session = (i64, u32, Bytes);

/// The time-out for what the client asks for.
fn timeout_of(gateway: &Gateway, request: &ConnectRequest) -> u32 {
    let tick = gateway.options.tick_ms;
    let wanted = u32::try_from(request.timeout_ms).unwrap_or(0);
    wanted.clamp(2 * tick, 20 * tick)
}

async fn open(
    gateway: &Gateway,
    life: &Life,
    client: Client,
    request: &ConnectRequest,
) -> Option<Option<Session>> {
    let timeout_ms = timeout_of(gateway, request);
    // Positive: the other half of the numbers are owners that are no sessions.
    let session = ((random::u64() >> 2) as i64).max(1);
    let mut password = [0; PASSWORD_BYTES];
    random::fill(&mut password);
    let operation = Operation::OpenSession {
        session,
        timeout_ms,
        password: password.to_vec(),
    };
    insert(life, client, session, timeout_ms);
    life.pipeline.run(operation).await?;
    Some(Some((
        session,
        timeout_ms,
        Bytes::copy_from_slice(&password),
    )))
}

fn insert(life: &Life, client: Client, session: i64, timeout_ms: u32) {
    let timeout = Duration::from_millis(u64::from(timeout_ms));
    let mut sessions = life.clients.sessions.borrow_mut();
    sessions.insert(session, timeout, Some(client), now());
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
    let operation = Operation::TakeSession {
        session,
        timeout_ms: timeout_of(gateway, request),
        password: password.to_vec(),
        found: None,
    };
    let outcome = life.pipeline.run(operation).await?;
    if code_of(&outcome).is_some() || matches!(outcome, Outcome::TooLarge) {
        return Some(None);
    }
    life.pipeline.refreshed().await.ok()?;
    let row: sessions::SessionRow = loop {
        match life.replica.session(session).await {
            Ok(row) => match row {
                Some(row) => break row,
                None => return Some(None),
            },
            Err(_) => life.pipeline.refreshed().await.ok()?,
        }
    };
    if row.owner != life.id {
        return None;
    }
    // The connection that it had here is over.
    let before = life.clients.sessions.borrow_mut().remove(session);
    let connections = life.clients.connections.borrow();
    if let Some(old) = before
        .and_then(|owned| owned.client)
        .and_then(|old| connections.get(&old))
    {
        old.hang_up();
    }
    insert(life, client, session, row.timeout_ms);
    Some(Some((session, row.timeout_ms, password.clone())))
}
