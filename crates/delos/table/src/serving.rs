//! How the process of a replica serves tables: requests and answers are messages of `proto/table.proto`, which
//! gateways bring ([`Operation`]). Changes go through the log, reads through a look at its end.

use crate::application::{Answer, Tables};
use crate::backend::payload;
use crate::keys::{WORK, WORK_END};
use crate::request::Request;
use crate::{Code, Ended, Refused, proto, query};
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::words;
use plinth_delos::base::Stopped;
use plinth_delos::entry::Entry;
use plinth_delos::replica::messages::Called;
use plinth_delos::replica::serves::{Serves, ServiceStack, lost_at};
use plinth_delos::replica::{Kind, Settings};
use plinth_delos::stack::{Answer as Proposed, Engine};
use plinth_delos::store::Reads;
use plinth_runtime::{Duration, probe, random, sleep};
use prost::Message;
use std::rc::Rc;

/// A replica looks now and then whether something is to be done in steps, and nobody does it.
const LOOK_MS: std::ops::Range<u64> = 100..300;

words! {
    /// What a gateway asks of a replica.
    pub enum Operation {
        /// `Request` → `Answer`.
        Execute = "execute",
        /// `Query` → `Page`.
        Read = "read",
        /// `Description` → `Described`.
        Describe = "describe",
    }
}

impl Operation {
    /// True if it changes nothing, so that it may be asked for again.
    pub fn reads(self) -> bool {
        self != Operation::Execute
    }
}

fn refused(Refused { code, why }: Refused) -> Called {
    let code = code.name().into();
    Called::Refused { code, why }
}

fn bad_request(why: String) -> Called {
    let code = Code::BadRequest;
    refused(Refused { code, why })
}

fn done(answer: &impl Message) -> Called {
    Called::Done(answer.encode_to_vec().into())
}

fn read(outcome: Result<impl Message, Ended>) -> Called {
    match outcome {
        Ok(answer) => done(&answer),
        Err(Ended::Refused(why)) => refused(why),
        Err(Ended::Failed(error)) => {
            let may_be_done = false;
            let why = match error {
                Error::transaction_too_old => {
                    "the read took longer than a snapshot is kept (5 s)".into()
                }
                error => format!("the local store fails: {error}"),
            };
            Called::Lost { may_be_done, why }
        }
    }
}

type Stack = ServiceStack<Tables>;

async fn propose(stack: &Stack, payload: Bytes) -> Result<Answer, Called> {
    match stack.propose(Entry::new(payload)).await {
        Ok(Proposed::Done(answer)) => Ok(answer),
        Ok(Proposed::Refused(why)) => Err(refused(why)),
        // An engine that keeps an order was switched off meanwhile: earlier tries may come into the log.
        Ok(Proposed::Own(_) | Proposed::Filtered) => Err(Called::Lost {
            may_be_done: true,
            why: "an engine was switched meanwhile".into(),
        }),
        Err(error) => Err(lost_at(stack, error)),
    }
}

async fn execute(stack: &Stack, asked: proto::Request) -> Called {
    let payload = match payload(asked) {
        Ok(payload) => payload,
        Err(why) => return refused(why),
    };
    match propose(stack, payload).await {
        Ok(answer) => done(&proto::Answer::from(answer)),
        Err(called) => called,
    }
}

async fn answer(
    stack: &Stack,
    operation: Operation,
    request: &Bytes,
) -> Result<Called, prost::DecodeError> {
    let sync = async || stack.sync().await.map_err(|error| lost_at(stack, error));
    let rows = match operation {
        Operation::Execute => {
            let asked = proto::Request::decode(request.clone())?;
            return Ok(execute(stack, asked).await);
        }
        Operation::Read | Operation::Describe => sync().await,
    };
    let rows = match rows {
        Ok(rows) => rows,
        Err(called) => return Ok(called),
    };
    Ok(match operation {
        Operation::Describe => {
            let asked = proto::Description::decode(request.clone())?;
            read(query::describe(&rows, &asked))
        }
        _ => {
            let asked = proto::Query::decode(request.clone())?;
            read(query::page(&rows, asked).await)
        }
    })
}

/// Tables, for a process that hosts them.
pub static KIND: Kind = Kind::of::<Tables>();

impl Serves for Tables {
    const KIND: &'static str = "table";

    fn create(_: &Settings) -> Self {
        Tables
    }

    async fn call(stack: &Stack, operation: &str, request: &Bytes) -> Called {
        let Some(operation) = Operation::from_name(operation) else {
            return bad_request(format!(
                "there is no operation {operation:?}: use tables through `plinth table server -C SERVICE' and gRPC"
            ));
        };
        let called = answer(stack, operation, request).await;
        called.unwrap_or_else(|error| {
            bad_request(format!(
                "the request is no message of proto/table.proto ({error}): use tables through \
                 `plinth table server -C SERVICE' and gRPC"
            ))
        })
    }

    /// Goes on with what requests have left to be done in steps, unless another replica does.
    async fn attend(stack: &Rc<Stack>) -> Stopped {
        let mut seen = None;
        loop {
            sleep(Duration::from_millis(random::range(LOOK_MS))).await;
            let rows = stack.store().snapshot();
            // The next look tells what fails.
            let work = Reads::range(&rows, (WORK, WORK_END), 1, false).ok();
            let work = work.and_then(|mut found| found.pop());
            drop(rows);
            if work.is_none() || work != seen {
                seen = work;
                continue;
            }
            probe!("table_steps_are_taken");
            while let Ok(answer) = propose(stack, Request::Step.payload()).await {
                if !answer.is_working {
                    break;
                }
            }
        }
    }
}
