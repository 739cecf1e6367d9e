//! How engines and applications fit together (Figure 2, §3.3, §3.4).
//!
//! An engine has two halves that share its state. Its lower half takes proposals from above and passes them down; it
//! is generic over the engine below. Its upper half gets entries from below and passes them up; it is generic over
//! what is above. So a whole stack is one type without boxes, made from the top to the bottom and back:
//!
//! ```text
//!   propose, sync  ▼   Lower<…Lower<Base<L, Up<…Up<App>>>>>   ▲  apply, post_apply
//! ```

use crate::entry::Entry;
use crate::log::{LogError, LogPos};
use crate::store::{RoTx, RwTx};
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::texts;
use plinth_runtime::{Duration, Instant, now};
use std::cell::Cell;
use std::rc::Rc;

/// What an entry led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<R, E> {
    /// The application executed it.
    Done(R),
    /// The application refused it, and changed nothing. All replicas do the same.
    Refused(E),
    /// It was an engine's own.
    Own(Bytes),
    /// An engine kept it from those above.
    Filtered,
}

/// Why an entry is not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure<E> {
    /// Every replica fails in the same way, because it follows from the log. It is an answer, and the log goes on.
    Refused(E),
    /// This replica fails, others may not. It must stop before it differs from them.
    Stop(Error),
}

impl<E> From<Error> for Failure<E> {
    fn from(error: Error) -> Self {
        Failure::Stop(error)
    }
}

pub type Applied<R, E> = Result<Answer<R, E>, Failure<E>>;

/// A state machine that is fed the log.
pub trait Applicator: 'static {
    type Return: 'static;
    /// Errors that follow from the log alone.
    type Refusal: 'static;

    /// Changes the rows as the entry says. Reads nothing but the rows, the entry and the position.
    ///
    /// # Errors
    /// Its changes are taken back.
    fn apply(
        &self,
        tx: &mut RwTx,
        entry: &Entry,
        pos: LogPos,
    ) -> Applied<Self::Return, Self::Refusal>;

    /// The changes of [`apply`](Self::apply) are in the store; state beside the store may follow.
    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        let _ = (entry, pos);
    }
}

/// Identity of a replica, for the life of its store.
pub type ReplicaId = u64;

texts! {
    /// Why a proposal has no answer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Lost {
        /// See [`LogError`]: after [`LogError::Unknown`] the entry may be applied, now or later.
        Log(error: LogError) = "{error}";
        /// This replica has stopped. The entry may be applied by others.
        Stopped = "the replica has stopped";
        /// Only this replica may propose now, because it has the lease. The entry is not applied, now or later.
        Elsewhere(holder: ReplicaId) = "replica {holder} has the lease: propose there";
    }
}

/// What a proposal led to.
pub type Proposed<R, E> = Result<Answer<R, E>, Lost>;

/// What is below an application or an engine.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Engine: 'static {
    type Return: 'static;
    type Refusal: 'static;

    /// Adds the entry to the log; what it led to, when this replica has applied it.
    ///
    /// # Errors
    /// See [`Lost`].
    async fn propose(&self, entry: Entry) -> Proposed<Self::Return, Self::Refusal>;

    /// The rows, with everything that was proposed and answered anywhere before the call.
    ///
    /// # Errors
    /// See [`Lost`].
    async fn sync(&self) -> Result<RoTx, Lost>;

    /// Those above need no entry before `pos` any more.
    fn set_trim_prefix(&self, pos: LogPos);
}

/// An engine that passes calls down, but for those that it overrides.
pub trait Layer: 'static {
    type Down: Engine;

    fn down(&self) -> &Self::Down;

    /// See [`Engine::propose`].
    fn propose(&self, entry: Entry) -> impl Future<Output = ProposedTo<Self::Down>> {
        self.down().propose(entry)
    }

    /// See [`Engine::sync`].
    fn sync(&self) -> impl Future<Output = Result<RoTx, Lost>> {
        self.down().sync()
    }

    /// See [`Engine::set_trim_prefix`].
    fn set_trim_prefix(&self, pos: LogPos) {
        self.down().set_trim_prefix(pos);
    }
}

/// What a proposal to this engine led to.
pub type ProposedTo<E> = Proposed<<E as Engine>::Return, <E as Engine>::Refusal>;

impl<T: Layer> Engine for T {
    type Return = <T::Down as Engine>::Return;
    type Refusal = <T::Down as Engine>::Refusal;

    fn propose(&self, entry: Entry) -> impl Future<Output = ProposedTo<T::Down>> {
        Layer::propose(self, entry)
    }

    fn sync(&self) -> impl Future<Output = Result<RoTx, Lost>> {
        Layer::sync(self)
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        Layer::set_trim_prefix(self, pos);
    }
}

impl<E: Engine> Layer for Rc<E> {
    type Down = E;

    fn down(&self) -> &E {
        self
    }
}

/// A database on top of a stack.
pub trait Application: 'static {
    type Return: 'static;
    /// Errors that follow from the log alone.
    type Refusal: 'static;

    /// Executes a request. Reads nothing but the rows, the request and the position.
    ///
    /// # Errors
    /// Its changes are taken back.
    fn execute(
        &self,
        tx: &mut RwTx,
        request: &Bytes,
        pos: LogPos,
    ) -> Result<Self::Return, Failure<Self::Refusal>>;

    /// The changes of [`execute`](Self::execute) are in the store; state beside the store may follow.
    fn executed(&self, request: &Bytes, pos: LogPos) {
        let _ = (request, pos);
    }
}

/// The top of a stack. An entry without a request is of an engine that this replica does not have: nothing to execute.
pub struct Top<D>(pub D);

impl<D: Application> Applicator for Top<D> {
    type Return = D::Return;
    type Refusal = D::Refusal;

    fn apply(&self, tx: &mut RwTx, entry: &Entry, pos: LogPos) -> Applied<D::Return, D::Refusal> {
        match &entry.payload {
            Some(request) => Ok(Answer::Done(self.0.execute(tx, request, pos)?)),
            None => Ok(Answer::Filtered),
        }
    }

    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        if let Some(request) = &entry.payload {
            self.0.executed(request, pos);
        }
    }
}

/// How long something took, of the entries that are timed ([`RwTx::is_timed`]).
#[derive(Default)]
pub struct Spent {
    times: Cell<u64>,
    sum: Cell<Duration>,
}

impl Spent {
    pub fn add(&self, took: Duration) {
        self.times.update(|times| times + 1);
        self.sum.update(|sum| sum + took);
    }

    /// The time from `since` to now, if it is timed; the end is where the next part begins.
    pub fn add_since(&self, since: Option<Instant>) -> Option<Instant> {
        let since = since?;
        let end = now();
        self.add(end - since);
        Some(end)
    }

    pub fn times(&self) -> u64 {
        self.times.get()
    }

    pub fn sum(&self) -> Duration {
        self.sum.get()
    }
}

/// What is above an engine. Its changes are a transaction of their own.
pub struct Upper<A> {
    pub applicator: A,
    has_applied: Cell<bool>,
    /// By applying entries above.
    pub spent: Spent,
}

impl<A: Applicator> Upper<A> {
    pub fn new(applicator: A) -> Self {
        Upper {
            applicator,
            has_applied: Cell::new(false),
            spent: Spent::default(),
        }
    }

    /// Passes an entry up. If it is refused there, the changes below stay.
    ///
    /// # Errors
    /// [`Failure::Stop`] only.
    pub fn apply(
        &self,
        tx: &mut RwTx,
        entry: &Entry,
        pos: LogPos,
    ) -> Applied<A::Return, A::Refusal> {
        self.has_applied.set(false);
        let since = tx.is_timed().then(now);
        let applied = tx.nested(|tx| self.applicator.apply(tx, entry, pos));
        self.spent.add_since(since);
        match applied {
            Ok(answer) => {
                self.has_applied.set(true);
                Ok(answer)
            }
            Err(Failure::Refused(refusal)) => Ok(Answer::Refused(refusal)),
            Err(stop) => Err(stop),
        }
    }

    /// An entry was not passed up.
    pub fn pass_over(&self) {
        self.has_applied.set(false);
    }

    /// True if the last entry was applied above.
    pub fn has_applied(&self) -> bool {
        self.has_applied.get()
    }

    /// Passes the call up if the entry was applied there.
    pub fn post_apply(&self, entry: &Entry, pos: LogPos) {
        if self.has_applied.get() {
            self.applicator.post_apply(entry, pos);
        }
    }
}
