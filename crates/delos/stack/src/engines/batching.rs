//! Gathers proposals into one entry, and applies all of them in one transaction of the store (§4.4 G).
//!
//! A proposal goes down at once if fewer than [`IN_FLIGHT`] entries are under way; those that come meanwhile share the
//! next entry. So nobody waits when the engine is idle, and batches grow with the load. While the engine is off,
//! proposals go down at once. Each proposal is applied in a transaction nested in the batch's: one that is refused
//! takes back its own changes only. All have the position of the batch.
//!
//! Only the application may be above it. An engine there remembers one entry between `apply` and `post_apply`, and
//! would be told of the batch's last.

use super::guard::{Guard, Seen};
use crate::entry::{ENTRY_BYTES_MAX, Entry, Malformed};
use crate::log::{LogError, LogPos};
use crate::stack::{Answer, Applicator, Applied, Engine, Failure, Lost, Proposed, Upper};
use crate::store::{LocalStore, RoTx, RwTx};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::Error;
use plinth_runtime::planted;
use plinth_runtime::sync::{Notify, OneshotSender, Watch, oneshot};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

pub const GUARD: Guard = Guard { name: "batching" };
/// Entries under way at a time.
const IN_FLIGHT: usize = 2;
/// A batch takes no more proposals when it has so many bytes.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_PROPOSALS: usize = 1000;

/// What a proposal of the lower half led to.
pub enum Returned<R, E> {
    One(R),
    /// Of each proposal of a batch, in order.
    Many(Vec<Answer<R, E>>),
}

/// `length u32 | entry`, again and again.
fn encode(entries: &[Entry]) -> Bytes {
    let bytes: usize = entries.iter().map(|entry| 4 + entry.encoded_len()).sum();
    let mut out = BytesMut::with_capacity(bytes);
    for entry in entries {
        let encoded = entry.encode();
        out.put_u32_le(encoded.len() as u32);
        out.put_slice(&encoded);
    }
    out.freeze()
}

fn decode(mut said: Bytes) -> Result<Vec<Entry>, Malformed> {
    let mut entries = Vec::new();
    while !said.is_empty() {
        let len = said.try_get_u32_le().map_err(|_| Malformed::Bytes)? as usize;
        if len > said.len() {
            return Err(Malformed::Bytes);
        }
        entries.push(Entry::decode(said.split_to(len))?);
    }
    Ok(entries)
}

/// A replica that cannot read what others can must not go on.
fn stop<E>(malformed: Malformed) -> Failure<E> {
    Failure::Stop(match malformed {
        Malformed::Version(_) => Error::incompatible_software_version,
        Malformed::Bytes => Error::file_corrupt,
    })
}

type Tried<A> = Result<
    Vec<Answer<<A as Applicator>::Return, <A as Applicator>::Refusal>>,
    Failure<<A as Applicator>::Refusal>,
>;

/// See the module.
pub struct BatchingAbove<A> {
    pub(crate) upper: Upper<A>,
    /// The proposals of the batch that is being applied, which those above have applied.
    applied: RefCell<Vec<Entry>>,
    is_batch: Cell<bool>,
    /// Of a planted fault: what is left of the batch before.
    late: RefCell<Vec<(Entry, LogPos)>>,
}

impl<A: Applicator> BatchingAbove<A> {
    pub fn new(above: A) -> Self {
        BatchingAbove {
            upper: Upper::new(above),
            applied: RefCell::default(),
            is_batch: Cell::new(false),
            late: RefCell::default(),
        }
    }

    /// What a planted fault has put off.
    fn apply_late(&self, tx: &mut RwTx) -> Result<(), Failure<A::Refusal>> {
        for (entry, pos) in self.late.take() {
            self.upper.apply(tx, &entry, pos)?;
        }
        Ok(())
    }

    /// Of a planted fault: answers the entries now, and applies them along with the next one.
    fn put_off(&self, tx: &mut RwTx, late: Vec<Entry>, pos: LogPos) -> Tried<A> {
        let tried = tx.nested(|tx| {
            let each = late.iter().map(|entry| self.upper.apply(tx, entry, pos));
            Err::<(), Tried<A>>(each.collect())
        });
        let late = late.into_iter().map(|entry| (entry, pos));
        self.late.replace(late.collect());
        tried.expect_err("it is taken back")
    }

    /// What is above.
    pub fn above(&self) -> &A {
        &self.upper.applicator
    }
}

impl<A: Applicator> Applicator for BatchingAbove<A> {
    type Return = Returned<A::Return, A::Refusal>;
    type Refusal = A::Refusal;

    fn apply(
        &self,
        tx: &mut RwTx,
        entry: &Entry,
        pos: LogPos,
    ) -> Applied<Self::Return, A::Refusal> {
        self.apply_late(tx)?;
        self.upper.pass_over();
        self.applied.borrow_mut().clear();
        self.is_batch.set(false);
        let mut batch = match GUARD.look(tx, entry)? {
            Seen::Passing(_) => {
                let answer = self.upper.apply(tx, entry, pos)?;
                return Ok(match answer {
                    Answer::Done(done) => Answer::Done(Returned::One(done)),
                    Answer::Refused(refusal) => Answer::Refused(refusal),
                    Answer::Own(said) => Answer::Own(said),
                    Answer::Filtered => Answer::Filtered,
                });
            }
            Seen::Over => return Ok(Answer::Own(Bytes::new())),
            Seen::Own(said) => decode(said).map_err(stop)?,
        };
        self.is_batch.set(true);
        let is_split = planted!(
            "delos_batch_in_two",
            "the second half of a batch is applied in another transaction than the first"
        );
        let late = match is_split {
            true => batch.split_off(batch.len().div_ceil(2)),
            false => Vec::new(),
        };
        let mut answers = Vec::with_capacity(batch.len());
        for entry in batch {
            answers.push(self.upper.apply(tx, &entry, pos)?);
            if self.upper.has_applied() {
                self.applied.borrow_mut().push(entry);
            }
        }
        if !late.is_empty() {
            answers.extend(self.put_off(tx, late, pos)?);
        }
        Ok(Answer::Done(Returned::Many(answers)))
    }

    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        if !self.is_batch.get() {
            return self.upper.post_apply(entry, pos);
        }
        for entry in self.applied.borrow().iter() {
            self.upper.applicator.post_apply(entry, pos);
        }
    }
}

struct Waiting<R, E> {
    entry: Entry,
    reply: OneshotSender<Proposed<R, E>>,
}

/// See the module.
pub struct BatchingBelow<E, R, F> {
    pub down: E,
    store: Rc<LocalStore>,
    waiting: RefCell<VecDeque<Waiting<R, F>>>,
    wake: Notify,
    /// How many proposals have come, and how many of them have gone down.
    come: Cell<u64>,
    gone: Watch<u64>,
}

impl<E, R, F> BatchingBelow<E, R, F>
where
    E: Engine<Return = Returned<R, F>, Refusal = F>,
    R: 'static,
    F: 'static,
{
    pub fn new(down: E, store: Rc<LocalStore>) -> Self {
        BatchingBelow {
            down,
            store,
            waiting: RefCell::default(),
            wake: Notify::new(),
            come: Cell::new(0),
            gone: Watch::new(0),
        }
    }

    fn is_on(&self) -> bool {
        GUARD.was_on(&self.store.snapshot()).unwrap_or(false)
    }

    fn take_batch(&self) -> Vec<Waiting<R, F>> {
        let mut waiting = self.waiting.borrow_mut();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_PROPOSALS
            && let Some(next) = waiting.front()
        {
            bytes += next.entry.encoded_len();
            if bytes > BATCH_BYTES && !batch.is_empty() {
                break;
            }
            batch.extend(waiting.pop_front());
        }
        drop(waiting);
        self.gone.update(|gone| *gone += batch.len() as u64);
        let (come, gone) = (self.come.get(), self.gone.get());
        assert!(
            gone <= come,
            "{come} proposals have come, and {gone} gone down"
        );
        batch
    }

    async fn propose_one(&self, entry: Entry) -> Proposed<R, F> {
        Ok(match self.down.propose(entry).await? {
            Answer::Done(Returned::One(done)) => Answer::Done(done),
            Answer::Refused(refusal) => Answer::Refused(refusal),
            Answer::Own(said) => Answer::Own(said),
            Answer::Filtered | Answer::Done(Returned::Many(_)) => Answer::Filtered,
        })
    }

    /// They go down in this order, and do not wait for each other.
    async fn propose_each(&self, all: Vec<Waiting<R, F>>) {
        let each = all.into_iter().map(|Waiting { entry, reply }| async {
            let _ = reply.send(self.propose_one(entry).await); // it may wait no longer
        });
        plinth_runtime::join_all(each).await;
    }

    async fn propose_batch(&self, batch: Vec<Waiting<R, F>>) {
        if batch.len() == 1 {
            return self.propose_each(batch).await;
        }
        let (entries, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|w| (w.entry, w.reply)).unzip();
        match self.down.propose(GUARD.own(&encode(&entries))).await {
            Ok(Answer::Done(Returned::Many(answers))) => {
                assert_eq!(
                    answers.len(),
                    replies.len(),
                    "what a batch led to: proposed again, it would be executed twice"
                );
                for (answer, reply) in answers.into_iter().zip(replies) {
                    let _ = reply.send(Ok(answer)); // as above
                }
            }
            // The engine was switched off meanwhile: nothing of the batch was applied.
            Ok(_) => {
                let both = entries.into_iter().zip(replies);
                let each = both.map(|(entry, reply)| Waiting { entry, reply });
                self.propose_each(each.collect()).await;
            }
            Err(lost) => replies.into_iter().for_each(|reply| {
                let _ = reply.send(Err(lost)); // as above
            }),
        }
    }

    /// Carries proposals down, one entry at a time. Some of these run side by side.
    async fn carry(&self) {
        loop {
            let batch = self.take_batch();
            if batch.is_empty() {
                self.wake.notified().await;
            } else if self.is_on() {
                self.propose_batch(batch).await;
            } else {
                self.propose_each(batch).await;
            }
        }
    }

    /// Carries proposals down, for ever.
    pub async fn run(&self) {
        plinth_runtime::join_all((0..IN_FLIGHT).map(|_| self.carry())).await;
    }
}

impl<E, R, F> Engine for BatchingBelow<E, R, F>
where
    E: Engine<Return = Returned<R, F>, Refusal = F>,
    R: 'static,
    F: 'static,
{
    type Return = R;
    type Refusal = F;

    async fn propose(&self, entry: Entry) -> Proposed<R, F> {
        let bytes = entry.encoded_len();
        if bytes > ENTRY_BYTES_MAX {
            return Err(Lost::Log(LogError::TooLong(bytes)));
        }
        // Those that came before go down before.
        if self.waiting.borrow().is_empty() && !self.is_on() {
            return self.propose_one(entry).await;
        }
        let (reply, receiver) = oneshot();
        self.waiting
            .borrow_mut()
            .push_back(Waiting { entry, reply });
        self.come.update(|come| come + 1);
        self.wake.notify_one();
        receiver.await.unwrap_or(Err(Lost::Stopped))
    }

    /// Goes down after the proposals that came before it: an engine below may promise an order.
    async fn sync(&self) -> Result<RoTx, Lost> {
        let come = self.come.get();
        self.gone.wait_until(|gone| *gone >= come).await;
        self.down.sync().await
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        self.down.set_trim_prefix(pos);
    }
}
