//! One attempt of a transaction: the state that its operations under way share.
//!
//! Every future that a transaction hands out holds its attempt, never the transaction. When the attempt fails
//! (timeout, cancel, reset, use during commit, the last handle dropped) all of them end with its error at
//! once, whatever they were waiting for.

use crate::conflicts::{ConflictList, SortedConflicts};
use crate::read_cache::ReadCache;
use crate::write_map::WriteMap;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Key, Result, Version, Versionstamp};
use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// How the commit of an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Committed {
        version: Version,
        order: u16,
    },
    /// Nothing was sent; the reads were done at this version, if there were any.
    ReadOnly {
        read_version: Option<Version>,
    },
    Failed(Error),
}

pub(crate) struct Attempt {
    failure: Cell<Option<Error>>,
    outcome: Cell<Option<Outcome>>,
    /// A slot for each future that waits; free ones are reused.
    waiters: RefCell<Slots>,
    reads: RefCell<ConflictList>,
    /// Results of its reads, at its read version.
    known: RefCell<ReadCache>,
    /// The first read that failed: the commit fails with the same error.
    read_error: Cell<Option<Error>>,
    /// The ranges over which the commit failed, if the transaction asked for them.
    conflicting: Rc<RefCell<Vec<KeyRange>>>,
}

#[derive(Default)]
struct Slots {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Attempt {
    /// Remembers about `known_bytes_max` bytes of results of reads.
    pub fn new(known_bytes_max: usize) -> Rc<Attempt> {
        Rc::new(Attempt {
            failure: Cell::default(),
            outcome: Cell::default(),
            waiters: RefCell::default(),
            reads: RefCell::default(),
            known: RefCell::new(ReadCache::new(known_bytes_max)),
            read_error: Cell::default(),
            conflicting: Rc::default(),
        })
    }

    pub fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), Err)
    }

    /// Fails the attempt. The first failure stands.
    pub fn fail(&self, error: Error) {
        if self.failure.get().is_none() {
            self.failure.set(Some(error));
            self.known.borrow_mut().clear();
            self.wake_all();
        }
    }

    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.get()
    }

    /// Sets the outcome. The first commit of an attempt decides: other commits that were called meanwhile have
    /// failed.
    pub fn set_outcome(&self, outcome: Outcome) {
        let before = self.outcome.get();
        assert!(
            matches!(before, None | Some(Outcome::Failed(_)))
                || matches!(outcome, Outcome::Failed(_)),
            "an attempt that ended as {before:?} ends as {outcome:?}",
        );
        if before.is_none() {
            self.outcome.set(Some(outcome));
            self.known.borrow_mut().clear();
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let woken: Vec<Waker> = self
            .waiters
            .borrow_mut()
            .wakers
            .iter_mut()
            .filter_map(Option::take)
            .collect();
        woken.into_iter().for_each(Waker::wake);
    }

    pub fn note_read_error(&self, error: Error) {
        if self.read_error.get().is_none() {
            self.read_error.set(Some(error));
        }
    }

    pub fn read_error(&self) -> Option<Error> {
        self.read_error.get()
    }

    pub fn known(&self) -> RefMut<'_, ReadCache> {
        self.known.borrow_mut()
    }

    /// Lets `add` remember the result of a read, unless the attempt is over and no read can use it.
    pub fn remember(&self, add: impl FnOnce(&mut ReadCache)) {
        if self.failure.get().is_none() && self.outcome.get().is_none() {
            add(&mut self.known.borrow_mut());
        }
    }

    pub fn add_read_key(&self, key: Key) {
        self.reads.borrow_mut().add_key(key);
    }

    /// Adds the parts of `[begin, end)` that `writes` did not answer.
    pub fn add_read_range(&self, begin: &Key, end: &Key, writes: Option<&WriteMap>) {
        let mut reads = self.reads.borrow_mut();
        match writes {
            None => reads.add_range(begin.clone(), end.clone()),
            Some(writes) => {
                writes.unknown_parts(begin, end, |begin, end| reads.add_range(begin, end))
            }
        }
    }

    pub fn reads_bytes(&self) -> usize {
        self.reads.borrow().added_bytes()
    }

    /// The read conflict ranges so far, in order.
    pub fn sorted_reads(&self) -> SortedConflicts {
        self.reads.borrow().clone().into_sorted()
    }

    pub fn conflicting(&self) -> Rc<RefCell<Vec<KeyRange>>> {
        self.conflicting.clone()
    }

    pub fn take_reads(&self) -> ConflictList {
        self.reads.take()
    }
}

/// A future's place among those that its attempt's failure or outcome wakes.
pub(crate) struct Interest {
    attempt: Rc<Attempt>,
    slot: Option<usize>,
}

impl Interest {
    pub fn new(attempt: &Rc<Attempt>) -> Self {
        Interest {
            attempt: attempt.clone(),
            slot: None,
        }
    }

    pub fn attempt(&self) -> &Rc<Attempt> {
        &self.attempt
    }

    /// The attempt's failure. If there is none, a failure will wake `context`.
    pub fn poll_failed(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.attempt.check()?;
        self.register(context.waker());
        Ok(())
    }

    fn register(&mut self, waker: &Waker) {
        let mut slots = self.attempt.waiters.borrow_mut();
        let slots = &mut *slots;
        let at = *self.slot.get_or_insert_with(|| {
            let at = slots.free.pop().unwrap_or_else(|| {
                slots.wakers.push(None);
                slots.wakers.len() - 1
            });
            assert!(slots.wakers[at].is_none(), "a free slot has no waker");
            at
        });
        if slots.wakers[at]
            .as_ref()
            .is_none_or(|w| !w.will_wake(waker))
        {
            slots.wakers[at] = Some(waker.clone());
        }
    }

    /// The version of the commit. If nothing was written, the version of the reads, if there were any. The commit's
    /// error if it failed; the attempt's failure if there will be no commit.
    pub async fn version(mut self) -> Result<Option<Version>> {
        std::future::poll_fn(move |context| match self.attempt.outcome() {
            Some(Outcome::Committed { version, .. }) => Poll::Ready(Ok(Some(version))),
            Some(Outcome::ReadOnly { read_version }) => Poll::Ready(Ok(read_version)),
            Some(Outcome::Failed(error)) => Poll::Ready(Err(error)),
            None => match self.poll_failed(context) {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) => Poll::Pending,
            },
        })
        .await
    }

    /// The versionstamp of the commit.
    pub async fn versionstamp(mut self) -> Result<Versionstamp> {
        std::future::poll_fn(move |context| match self.attempt.outcome() {
            Some(Outcome::Committed { version, order }) => {
                Poll::Ready(Ok(Versionstamp::new(version, order)))
            }
            Some(Outcome::ReadOnly { .. }) => Poll::Ready(Err(Error::no_commit_version)),
            Some(Outcome::Failed(_)) => Poll::Ready(Err(Error::transaction_invalid_version)),
            None => match self.poll_failed(context) {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) => Poll::Pending,
            },
        })
        .await
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        if let Some(at) = self.slot {
            let mut slots = self.attempt.waiters.borrow_mut();
            let waker = slots.wakers[at].take();
            slots.free.push(at);
            drop(slots);
            // A waker's destructor may run any code: nothing is borrowed while it runs.
            drop(waker);
        }
    }
}

/// `future`, which ends early with its attempt's failure.
pub(crate) struct Guarded<F> {
    interest: Interest,
    future: Pin<Box<F>>,
}

impl<F> Guarded<F> {
    pub fn new(attempt: &Rc<Attempt>, future: F) -> Self {
        Guarded {
            interest: Interest::new(attempt),
            future: Box::pin(future),
        }
    }
}

impl<T, F: Future<Output = Result<T>>> Future for Guarded<F> {
    type Output = Result<T>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.interest.attempt.check()?;
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(output);
        }
        self.interest.poll_failed(context)?;
        Poll::Pending
    }
}
