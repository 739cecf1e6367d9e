//! Several reads in one request, all answered of the same state: nobody sees half of what a transaction has changed.
//!
//! What is not in memory is loaded first, and kept. If all of it is there at one moment, that is the state. If others
//! change it faster than it is loaded, the reads take their turn in the pipeline, which does not move on meanwhile.

use super::{header, readable_list, readable_with_data};
use crate::paths;
use crate::replica::Replica;
use crate::talk::Talk;
use crate::tree::execute::Operation;
use crate::wire::{Answer, Code, MultiResult, Request, Text, encode_answer};
use crate::writes::{Outcome, StepStat};
use crate::{ANSWER_BYTES_MAX, MULTI_READ_TRIES};
use plinth_runtime::sync::oneshot;
use plinth_runtime::{join_all, planted, probe};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Reads of a request that wait for the store at the same time.
const LOADS_AT_ONCE: usize = 100;

type Results = Result<Vec<MultiResult>, Code>;

/// Answers the request.
pub async fn answer(connection: &Talk, xid: i32, operations: Vec<Request>, breaks_off: bool) {
    let results = match is_torn() {
        true => one_by_one(connection, &operations).await,
        false => at_once(connection, operations).await,
    };
    match results {
        Ok(results) => {
            let mut header = header(connection, xid);
            if breaks_off {
                header.error = Code::MARSHALLING_ERROR.0;
            }
            let answer = Answer::MultiRead(results);
            connection.answer(header, |out| encode_answer(out, header, &answer));
        }
        Err(code) => connection.answer_with(xid, Err(code)),
    }
}

fn is_torn() -> bool {
    planted!(
        "keeper_multi_read_torn",
        "each of several reads in a request is answered of the state of its own time"
    )
}

async fn one_by_one(connection: &Talk, operations: &[Request]) -> Results {
    let mut results = Vec::new();
    for operation in operations {
        results.push(read_one(connection, operation).await);
    }
    Ok(results)
}

async fn at_once(connection: &Talk, operations: Vec<Request>) -> Results {
    // What is counted for the answer is of no one state anyway, and waits each time.
    let mut counted = Vec::new();
    for operation in operations.iter().filter(|operation| is_counted(operation)) {
        counted.push(read_one(connection, operation).await);
    }
    if let Some(results) = now(connection, &operations, &counted) {
        return results;
    }
    // Guards that overlap for ever would keep all that anybody reads.
    let replica = &connection.life.replica;
    let _kept = (!replica.is_over_full()).then(|| replica.keep_all());
    for _ in 0..MULTI_READ_TRIES.get() {
        load(connection, &operations).await?;
        if let Some(results) = now(connection, &operations, &counted) {
            return results;
        }
        probe!("keeper_multi_read_overtaken");
    }
    in_the_pipeline(connection, operations, counted).await
}

fn is_counted(operation: &Request) -> bool {
    match operation {
        Request::GetData { path, .. } => paths::counted(paths::named(path)).is_some(),
        _ => false,
    }
}

fn is_list(operation: &Request) -> bool {
    matches!(operation, Request::GetChildren { .. })
}

/// The results of what the replica knows at this moment; `None` if it does not know enough.
fn now(connection: &Talk, operations: &[Request], counted: &[MultiResult]) -> Option<Results> {
    let (mut results, mut bytes) = (Vec::new(), 0);
    let mut counted = counted.iter();
    for operation in operations {
        let result = match is_counted(operation) {
            true => counted.next()?.clone(),
            false => {
                let reading = pin!(read_one(connection, operation));
                match reading.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => result,
                    Poll::Pending => return None,
                }
            }
        };
        bytes += bytes_of(&result);
        if bytes > ANSWER_BYTES_MAX.get() {
            return Some(Err(too_long()));
        }
        results.push(result);
    }
    Some(Ok(results))
}

/// Loads what the replica does not know.
async fn load(connection: &Talk, operations: &[Request]) -> Result<(), Code> {
    let mut bytes = 0;
    for some in operations.chunks(LOADS_AT_ONCE) {
        let some = some.iter().filter(|operation| !is_counted(operation));
        // A list may be as large as an answer, and several of one request may be the same: one after the other.
        let (lists, others): (Vec<_>, Vec<_>) = some.partition(|operation| is_list(operation));
        for operation in lists {
            bytes += bytes_of(&read_one(connection, operation).await);
            if bytes > ANSWER_BYTES_MAX.get() {
                return Err(too_long());
            }
        }
        let reading = others
            .into_iter()
            .map(|operation| read_one(connection, operation));
        bytes += join_all(reading).await.iter().map(bytes_of).sum::<usize>();
        if bytes > ANSWER_BYTES_MAX.get() {
            return Err(too_long());
        }
    }
    Ok(())
}

/// No client would read the answer.
fn too_long() -> Code {
    probe!("keeper_multi_read_too_long");
    Code::CONNECTION_LOSS
}

/// Memory of a result.
fn bytes_of(result: &MultiResult) -> usize {
    let more = match result {
        MultiResult::Data(data, _) => data.as_ref().map_or(0, |data| data.len()),
        MultiResult::Children(names) => names.iter().map(|name| name.len() + 4).sum(),
        _ => 0,
    };
    size_of::<MultiResult>() + more
}

/// Lets the reads take their turn among the writes of all clients.
async fn in_the_pipeline(
    connection: &Talk,
    operations: Vec<Request>,
    counted: Vec<MultiResult>,
) -> Results {
    probe!("keeper_multi_read_in_the_pipeline");
    let pipeline = &connection.life.pipeline;
    pipeline.has_room().await;
    let look = Operation::Look {
        session: connection.session,
        request: Request::MultiRead {
            operations: operations.clone(),
            breaks_off: false,
        },
    };
    // The life has the pipeline, and must not be held by what waits there.
    let life = Rc::downgrade(&connection.life);
    let (of, gateway) = (connection.connection.clone(), connection.gateway.clone());
    let (sender, receiver) = oneshot();
    let complete = move |_: &Replica, _: Outcome, _: Vec<StepStat>| {
        let Some(life) = life.upgrade() else { return };
        let talk = Talk {
            connection: of,
            life,
            gateway,
        };
        let _ = sender.send(now(&talk, &operations, &counted)); // it may wait no longer
    };
    pipeline.submit(look, Box::new(complete));
    // Nothing of it if the gateway ends, or a list is too long for any answer.
    receiver
        .await
        .ok()
        .flatten()
        .unwrap_or(Err(Code::CONNECTION_LOSS))
}

async fn read_one(connection: &Talk, operation: &Request) -> MultiResult {
    let result = match operation {
        Request::GetData { path, .. } => readable_with_data(connection, path)
            .await
            .map(|node| MultiResult::Data(super::data_of(&node).cloned(), node.stat())),
        Request::GetChildren { path, .. } => readable_list(connection, path).await.map(|_| {
            let replica = &connection.life.replica;
            let names = replica.with_children(paths::named(path), |names| {
                names.iter().map(|name| Text::from(&**name)).collect()
            });
            MultiResult::Children(names.unwrap_or_default())
        }),
        _ => Err(Code::UNIMPLEMENTED),
    };
    result.unwrap_or_else(MultiResult::Error)
}
