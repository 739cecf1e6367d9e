//! Read versions, batched: all requests that arrive while one is under way share the next.

use super::{Inner, RETRY};
use crate::source::Priority;
use plinth_core::transaction_tag::TransactionTags;
use plinth_core::{Error, Result};
use plinth_protocol::transaction::{
    GetReadVersion, PRIORITY_BATCH, PRIORITY_DEFAULT, PRIORITY_SYSTEM, ReadVersion,
};
use plinth_runtime::Either;
use plinth_runtime::sync::{OneshotSender, oneshot};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

type Answer = Result<ReadVersion>;
type Waiting = Vec<OneshotSender<Answer>>;

/// Transactions that may share a request: those of one priority, with the same tags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    priority: u8,
    tags: TransactionTags,
}

/// One queue for each kind. The queues without tags always exist, by priority: most transactions have no tags.
#[derive(Default)]
pub struct VersionBatcher {
    untagged: [Queue; 3],
    tagged: BTreeMap<Kind, Queue>,
    /// How many batches were answered.
    answered: u64,
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
    fn queue(&mut self, kind: Kind) -> &mut Queue {
        match kind.tags.is_empty() {
            true => &mut self.untagged[kind.priority as usize],
            false => self.tagged.entry(kind).or_default(),
        }
    }

    /// While there are requests under way: how many batches were answered.
    pub fn answered_so_far(&self) -> Option<u64> {
        let mut queues = self.untagged.iter().chain(self.tagged.values());
        queues.any(|queue| queue.asking).then_some(self.answered)
    }

    pub fn ask(
        inner: &Rc<Inner>,
        priority: Priority,
        tags: TransactionTags,
    ) -> impl Future<Output = Answer> + use<> {
        let kind = Kind {
            priority: wire(priority),
            tags,
        };
        let (sender, receiver) = oneshot();
        let start = {
            let mut versions = inner.versions.borrow_mut();
            let queue = versions.queue(kind);
            queue.waiting.push(sender);
            !std::mem::replace(&mut queue.asking, true)
        };
        if start {
            // Runs while requests wait. Each round takes one batch.
            plinth_runtime::spawn("read versions", answer_all(inner.clone(), kind)).detach();
        }
        async move { receiver.await.unwrap_or(Err(Error::operation_cancelled)) }
    }
}

async fn answer_all(inner: Rc<Inner>, kind: Kind) {
    loop {
        // Requests of one turn of the loop share a batch.
        plinth_runtime::yield_now().await;
        let batch = {
            let mut versions = inner.versions.borrow_mut();
            let queue = versions.queue(kind);
            queue.waiting.retain(|sender| !sender.is_closed());
            if queue.waiting.is_empty() {
                queue.asking = false;
                versions.tagged.remove(&kind);
                return;
            }
            std::mem::take(&mut queue.waiting)
        };
        let mut answered = batch;
        let left = match ask_once(&inner, kind, answered.len() as u32).await {
            Some(answer) => {
                inner.versions.borrow_mut().answered += 1;
                let count = answer
                    .as_ref()
                    .map_or(usize::MAX, |v| v.count.max(1) as usize);
                let left = answered.split_off(count.min(answered.len()));
                for sender in answered {
                    let _ = sender.send(answer.clone()); // the receiver may be gone
                }
                left
            }
            None => {
                inner.was_missed.set(true); // no proxy was reached
                plinth_runtime::sleep(RETRY).await;
                answered
            }
        };
        if !left.is_empty() {
            // They go first in the next round.
            let mut versions = inner.versions.borrow_mut();
            let queue = versions.queue(kind);
            let newer = std::mem::replace(&mut queue.waiting, left);
            queue.waiting.extend(newer);
        }
    }
}

/// `None` if the proxy has gone: another must be asked.
async fn ask_once(inner: &Rc<Inner>, kind: Kind, count: u32) -> Option<Answer> {
    let proxy = match inner.proxy(|info| &info.grv_proxies).await {
        Ok(proxy) => proxy,
        Err(error) => return Some(Err(error)),
    };
    let request = GetReadVersion {
        count,
        priority: kind.priority,
        tags: kind.tags.as_slice().to_vec(),
    };
    let endpoint = proxy.endpoint::<GetReadVersion>();
    let call = inner.transport.call(&endpoint, request);
    match plinth_runtime::race(call, inner.retired(proxy)).await {
        Either::Left(Ok(reply)) => Some(Ok(reply)),
        Either::Left(Err(error))
            if error.is_retryable_not_committed() || error == Error::permission_denied =>
        {
            Some(Err(error))
        }
        Either::Left(Err(_)) | Either::Right(()) => None,
    }
}
