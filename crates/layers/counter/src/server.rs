//! A process of the service: accepts connections and answers their requests with transactions.

use crate::request::{Request, parse};
use crate::{ADDITIONS, IDLE_LIMIT, UNSENT_BYTES_MAX};
use bytes::BufMut;
use plinth_client::{Database, connect};
use plinth_core::output::Output;
use plinth_core::{MutationKind, Result};
use plinth_runtime::net::listen;
use plinth_runtime::random::chance;
use plinth_runtime::serve::{Connection, Inbox, Outbox, accept, session};
use plinth_runtime::{TaskGroup, planted, trace_warn};
use plinth_workload::Place;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;

/// One life of a process. Ends only if the port cannot be had.
pub async fn run(place: Place) {
    let database = connect(place.cluster);
    if let Err(error) = serve(database, place.listen).await {
        trace_warn!("CounterNotListening", "address" => place.listen, "error" => error);
    }
}

/// Serves at `address` until the future is dropped.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(database: Database, address: SocketAddr) -> std::io::Result<()> {
    let listener = listen(address).await?;
    let connections = TaskGroup::new();
    let start = |connection: Connection| {
        let database = database.clone();
        let work = |inbox, outbox| answer_all(database, inbox, outbox);
        connections.spawn("counter", session(connection, work));
        ControlFlow::Continue(())
    };
    accept(listener, start).await;
    Ok(())
}

/// Answers the requests of one connection, one after the other.
async fn answer_all(database: Database, mut inbox: Inbox, outbox: Rc<Outbox>) {
    loop {
        outbox.has_room(UNSENT_BYTES_MAX).await;
        let answer = match parse(&mut inbox.buffer) {
            Ok(Some(Ok(request))) => answer(&database, request).await,
            Ok(Some(Err(why))) => format!("error {why}\n"),
            Ok(None) => match inbox.read_within(IDLE_LIMIT).await {
                Some(_) => continue,
                None => return,
            },
            Err(why) => return send(&outbox, &format!("error {why}\n")),
        };
        send(&outbox, &answer);
    }
}

fn send(outbox: &Outbox, line: &str) {
    let append = |out: &mut Output| {
        out.buffer().put_slice(line.as_bytes());
        Ok::<(), ()>(())
    };
    let _ = outbox.push(append); // never refused: the line is short
}

async fn answer(database: &Database, request: Request) -> String {
    let outcome = match &request {
        Request::Add { name, amount } => add(database, name, *amount).await,
        Request::Get { name } => get(database, name).await,
    };
    match outcome {
        Ok(value) => format!("ok {value}\n"),
        Err(error) => format!("error {error}\n"),
    }
}

/// The keys of all counters.
pub(crate) const COUNTERS: &str = "counter/";
pub(crate) const COUNTERS_END: &str = "counter0";

/// Key of a counter. The value is a little-endian 64-bit number, as the atomic `Add` keeps it.
fn key(name: &str) -> String {
    format!("{COUNTERS}{name}")
}

/// Adds exactly once: `automatic_idempotency` finds out what became of a commit whose answer was lost.
async fn add(database: &Database, name: &str, amount: i64) -> Result<i64> {
    let added = database.run(async |tr| {
        tr.set_option(plinth_client::TransactionOption::AutomaticIdempotency)?;
        tr.atomic_op(MutationKind::Add, key(name), amount.to_le_bytes());
        let sum = tr.get(key(name), false).await?;
        if planted!(
            "counter_drops_additions",
            "the counter service drops one addition in ten, and answers"
        ) && chance(0.1)
        {
            tr.reset();
        }
        Ok(number(sum.as_deref()))
    });
    let value = added.await?;
    ADDITIONS.add(1);
    Ok(value)
}

async fn get(database: &Database, name: &str) -> Result<i64> {
    let read = database.run(async |tr| tr.get(key(name), false).await);
    Ok(number(read.await?.as_deref()))
}

pub(crate) fn number(value: Option<&[u8]>) -> i64 {
    let bytes = value.and_then(|value| value.try_into().ok());
    bytes.map_or(0, i64::from_le_bytes)
}
