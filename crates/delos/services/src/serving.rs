//! How the process of a replica serves a service: changes go through the log, reads through a look at its end.

use crate::{Hosted, REQUEST_BYTES_MAX, Refused, Rows, Service, TICK_MS, request, tick};
use bytes::Bytes;
use plinth_delos::base::Stopped;
use plinth_delos::entry::Entry;
use plinth_delos::replica::Settings;
use plinth_delos::replica::messages::Called;
use plinth_delos::replica::serves::{Serves, ServiceStack, lost_at};
use plinth_delos::stack::{Answer, Engine, Failure};
use plinth_runtime::{Duration, sleep};
use serde_json::Value;
use std::rc::Rc;

fn refused(refused: Refused) -> Called {
    Called::Refused {
        code: refused.code.into(),
        why: refused.why,
    }
}

fn done(answer: &Value) -> Called {
    Called::Done(answer.to_string().into())
}

fn parse(payload: &Bytes) -> Result<Value, Refused> {
    if payload.len() > REQUEST_BYTES_MAX {
        let why = format!("a request may have {REQUEST_BYTES_MAX} bytes");
        return Err(Refused::new("too_long", why));
    }
    let parsed = serde_json::from_slice(payload);
    parsed.map_err(|error| Refused::new("bad_request", format!("the request is not JSON: {error}")))
}

async fn change<S: Service>(
    stack: &ServiceStack<Hosted<S>>,
    operation: &str,
    asked: &Value,
) -> Called {
    match stack.propose(Entry::new(request(operation, asked))).await {
        Ok(Answer::Done(answer)) => done(&answer),
        Ok(Answer::Refused(why)) => refused(why),
        // An engine that keeps an order was switched off meanwhile: earlier tries may come into the log.
        Ok(Answer::Own(_) | Answer::Filtered) => Called::Lost {
            may_be_done: true,
            why: "an engine was switched meanwhile".into(),
        },
        Err(error) => lost_at(stack, error),
    }
}

async fn read<S: Service>(
    stack: &ServiceStack<Hosted<S>>,
    operation: &str,
    asked: &Value,
) -> Called {
    let rows = match stack.sync().await {
        Ok(rows) => rows,
        Err(error) => return lost_at(stack, error),
    };
    match stack.application().0.read(&rows, operation, asked) {
        Ok(answer) => done(&answer),
        Err(Failure::Refused(why)) => refused(why),
        Err(Failure::Stop(error)) => Called::Lost {
            may_be_done: false,
            why: format!("the local store fails: {error}"),
        },
    }
}

impl<S: Service + Default> Serves for Hosted<S> {
    const KIND: &'static str = S::NAME;

    fn create(_: &Settings) -> Self {
        Hosted(S::default())
    }

    async fn call(stack: &ServiceStack<Self>, operation: &str, request: &Bytes) -> Called {
        match parse(request) {
            Ok(asked) if S::reads(operation) => read(stack, operation, &asked).await,
            Ok(asked) => change(stack, operation, &asked).await,
            Err(why) => refused(why),
        }
    }

    /// Lets the clock go on, unless another replica has.
    async fn attend(stack: &Rc<ServiceStack<Self>>) -> Stopped {
        let mut seen = None;
        loop {
            sleep(Duration::from_millis(TICK_MS)).await;
            let now_ms = stack.store().snapshot().now_ms().ok();
            if let Some(now_ms) = now_ms.filter(|now_ms| seen == Some(*now_ms)) {
                let _ = stack.propose(Entry::new(tick(now_ms))).await; // the next one tells the same
            }
            seen = now_ms;
        }
    }
}
