//! The future that a read gives to the application.

use crate::attempt::{Attempt, Interest};
use crate::shared::Shared;
use plinth_core::{Result, Value};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The value of a key; see [`crate::Transaction::get`].
pub type ValueFuture = ReadFuture<Option<Value>>;

/// The result of a read. A commit waits for it: when the commit has ended, so has the read, and its result stays
/// whatever happens to the transaction.
#[must_use = "a read does nothing until it is awaited"]
pub struct ReadFuture<T> {
    interest: Interest,
    read: Option<Shared<Result<T>>>,
    early: Option<Result<T>>,
}

impl<T: Unpin> Future for ReadFuture<T> {
    type Output = Result<T>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(read) = &self.read else {
            return Poll::Ready(
                self.early
                    .take()
                    .expect("a future is not polled after its end"),
            );
        };
        // A read that its commit has waited for keeps its result, whatever has happened to the transaction since.
        if !read.is_done() {
            self.interest.attempt().check()?;
        }
        if let Poll::Ready(result) = read.poll_take(context) {
            return Poll::Ready(result);
        }
        self.interest.poll_failed(context)?;
        Poll::Pending
    }
}

impl<T: 'static> ReadFuture<T> {
    /// A read under way.
    pub(crate) fn under_way(attempt: &Rc<Attempt>, read: Shared<Result<T>>) -> Self {
        ReadFuture {
            interest: Interest::new(attempt),
            read: Some(read),
            early: None,
        }
    }

    /// A read whose result was there when it was issued.
    pub(crate) fn early(attempt: &Rc<Attempt>, result: Result<T>) -> Self {
        ReadFuture {
            interest: Interest::new(attempt),
            read: None,
            early: Some(result),
        }
    }
}

impl<T: Clone> ReadFuture<T> {
    /// The result, if it was there from the beginning.
    pub(crate) fn ready_value(&self) -> Option<Result<T>> {
        self.early.clone()
    }
}
