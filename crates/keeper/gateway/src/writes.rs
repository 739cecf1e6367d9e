//! The one place where a gateway writes, and where its replica moves on, as the front end sees it.
//!
//! Operations of a session happen in the order in which they are submitted. An operation is answered when the replica
//! has its changes and none after them, and the [`Listener`] has been told of each change before that.

use crate::QUEUE_BYTES_MAX;
use crate::replica::Replica;
use crate::store::Boxed;
use crate::trace::Trace;
use crate::tree::change::Change;
use crate::tree::execute::{Executed, Operation};
use crate::tree::quota::Exceeded;
use crate::wire::{Code, Stat};
use plinth_runtime::sync::{OneshotReceiver, Watch, oneshot};
use std::rc::Rc;

/// What a written operation leads to.
pub enum Outcome {
    /// It was executed and its effects, if any, are durable and in the replica.
    Done { zxid: i64, executed: Executed },
    /// It cannot be executed as it is: it is larger than what can be written at once.
    TooLarge,
}

/// Takes an operation's outcome, at the moment when the replica has its changes and none after them.
pub type Complete = Box<dyn FnOnce(&Replica, Outcome, Vec<StepStat>)>;

/// What the `Stat` of a node was right after a step of the operation.
pub type StepStat = Option<Stat>;

/// Who is told of changes, in the order of the commits.
pub trait Listener {
    /// Before the replica has it: events go out now.
    fn before(&self, replica: &Replica, change: &Change, zxid: i64);
    /// True if the gateway has this session.
    fn owns(&self, session: i64) -> bool;
    /// True if nothing was heard of the session's client since it was decided to end the session.
    fn is_silent(&self, session: i64) -> bool;
    /// True if clients are connected, who may wait for events.
    fn has_clients(&self) -> bool;
    /// True if hard limits of quotas are hard.
    fn enforces_quotas(&self) -> bool;
    /// A client has come to a limit of a quota.
    fn exceeds(&self, exceeded: &Exceeded, path: &str);
    /// The gateway is no longer the one that it was: its lease was taken, or it has missed changes that are gone.
    fn lost(&self, why: &'static str);
}

/// See the module.
pub trait Writes {
    /// Has `operation` executed after all that were submitted before.
    fn submit(&self, operation: Operation, complete: Complete);
    /// The same, of a client that wants to know what is done with it.
    fn submit_traced(&self, operation: Operation, complete: Complete, trace: Rc<Trace>) {
        let _ = trace; // nothing between its begin and its end is known
        self.submit(operation, complete);
    }
    /// Changes the gateway's own row. False if it may not have.
    fn beat(&self, row: Vec<u8>) -> Boxed<'_, bool>;
    /// Ends when the replica has everything that was committed before the call.
    fn refreshed(&self) -> OneshotReceiver<()>;
    /// Operations that wait.
    fn queued(&self) -> usize;
    /// Bytes of the clients' requests among them.
    fn queued_bytes(&self) -> &Watch<usize>;
    fn is_lost(&self) -> bool;
    /// Runs until the gateway is lost.
    fn serve(self: Rc<Self>) -> Boxed<'static, ()>;
}

impl dyn Writes {
    /// Ends when clients' requests may be submitted.
    pub async fn has_room(&self) {
        let most = QUEUE_BYTES_MAX.get();
        self.queued_bytes().wait_until(|bytes| *bytes < most).await;
    }

    /// As [`submit`](Self::submit); the result when it is durable. `None` if the gateway ends first.
    pub async fn run(&self, operation: Operation) -> Option<Outcome> {
        let (sender, receiver) = oneshot();
        let complete = move |_: &Replica, outcome, _| {
            let _ = sender.send(outcome);
        };
        self.submit(operation, Box::new(complete));
        receiver.await.ok()
    }
}

/// The answer that a client gets.
pub fn code_of(outcome: &Outcome) -> Option<Code> {
    match outcome {
        Outcome::Done {
            executed: Executed::One(Err(code)),
            ..
        } => Some(*code),
        Outcome::TooLarge => Some(Code::MARSHALLING_ERROR),
        Outcome::Done { .. } => None,
    }
}
