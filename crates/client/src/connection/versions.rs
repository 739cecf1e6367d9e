//! Read versions, batched: while one request is under way, everybody who asks meanwhile shares the next.

use super::{Inner, RETRY};
use crate::source::Priority;
use plinth_core::{Error, Result};
use plinth_protocol::transaction::{
    GetReadVersion, PRIORITY_BATCH, PRIORITY_DEFAULT, PRIORITY_SYSTEM, ReadVersion,
};
use plinth_runtime::Either;
use plinth_runtime::sync::{OneshotSender, oneshot};
use std::future::Future;
use std::rc::Rc;

type Answer = Result<ReadVersion>;
type Waiting = Vec<OneshotSender<Answer>>;

/// One queue a priority.
pub struct VersionBatcher {
    queues: [Queue; 3],
}

#[derive(Default)]
struct Queue {
    waiting: Waiting,
    asking: bool,
}

fn wire(priority: Priority) -> u8 {
    match priority {
        Priority::SystemImmediate => PRIORITY_SYSTEM,
        Priority::Default => PRIORITY_DEFAULT,
        Priority::Batch => PRIORITY_BATCH,
    }
}

impl VersionBatcher {
    pub fn new() -> Self {
        VersionBatcher {
            queues: Default::default(),
        }
    }

    pub fn ask(inner: &Rc<Inner>, priority: Priority) -> impl Future<Output = Answer> + use<> {
        let priority = wire(priority);
        let (sender, receiver) = oneshot();
        let start = {
            let mut versions = inner.versions.borrow_mut();
            let queue = &mut versions.queues[priority as usize];
            queue.waiting.push(sender);
            !std::mem::replace(&mut queue.asking, true)
        };
        if start {
            // Lives as long as somebody waits: each round ends with an answer for all of it.
            plinth_runtime::spawn("read versions", answer_all(inner.clone(), priority)).detach();
        }
        async move { receiver.await.unwrap_or(Err(Error::operation_cancelled)) }
    }
}

async fn answer_all(inner: Rc<Inner>, priority: u8) {
    loop {
        // Those who ask in this turn of the loop travel together.
        plinth_runtime::yield_now().await;
        let batch = {
            let mut versions = inner.versions.borrow_mut();
            let queue = &mut versions.queues[priority as usize];
            queue.waiting.retain(|sender| !sender.is_closed());
            if queue.waiting.is_empty() {
                queue.asking = false;
                return;
            }
            std::mem::take(&mut queue.waiting)
        };
        let mut answered = batch;
        let left = match ask_once(&inner, priority, answered.len() as u32).await {
            Some(answer) => {
                let count = answer
                    .as_ref()
                    .map_or(usize::MAX, |v| v.count.max(1) as usize);
                let left = answered.split_off(count.min(answered.len()));
                for sender in answered {
                    let _ = sender.send(answer.clone()); // whoever asked may have gone
                }
                left
            }
            None => {
                plinth_runtime::sleep(RETRY).await; // nobody was reached
                answered
            }
        };
        if !left.is_empty() {
            // They go first in the next round.
            let mut versions = inner.versions.borrow_mut();
            let queue = &mut versions.queues[priority as usize];
            let newer = std::mem::replace(&mut queue.waiting, left);
            queue.waiting.extend(newer);
        }
    }
}

/// `None`: a proxy has gone, ask another.
async fn ask_once(inner: &Rc<Inner>, priority: u8, count: u32) -> Option<Answer> {
    let proxy = inner.proxy(|info| &info.grv_proxies).await;
    let call = inner.transport.call(
        &proxy.endpoint::<GetReadVersion>(),
        GetReadVersion { count, priority },
    );
    match plinth_runtime::race(call, inner.retired(proxy)).await {
        Either::Left(Ok(reply)) => Some(Ok(reply)),
        Either::Left(Err(error)) if error.is_retryable_not_committed() => Some(Err(error)),
        Either::Left(Err(_)) | Either::Right(()) => None,
    }
}
