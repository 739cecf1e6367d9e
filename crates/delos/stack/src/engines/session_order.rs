//! Applies the proposals of a replica in the order in which they were made, each once, and lets its reads see all that
//! it has proposed before, answered or not (§4.2 E): what ZooKeeper promises to a session.
//!
//! Each proposal has a number. One that comes out of order, or again, is kept from those above, on all replicas alike.
//! Its proposer waits until all that are under way have come back, and proposes those that are left once more, in
//! their order. So an entry of which nobody knows whether it is in the log is no danger either. The answer is taken
//! where the entry is applied, and not from below: any of the tries may be the one that counts.
//!
//! A session is a part of a replica's life. One that has proposed nothing for [`FORGET_AFTER`] positions is forgotten,
//! and may not come back: the replica begins another. While the engine is off, or is switched, nothing is promised.

use super::above::{Above, Rule};
use super::guard::Guard;
use crate::entry::{ENTRY_BYTES_MAX, Entry};
use crate::log::{LogError, LogPos};
use crate::stack::{Answer, Applicator, Applied, Engine, Layer, Lost, Proposed, Upper};
use crate::store::{LocalStore, RoTx, RwTx};
use crate::words::{parse, words};
use bytes::Bytes;
use plinth_core::{Error, Result};
use plinth_runtime::sync::{Notify, OneshotSender, Watch, oneshot};
use plinth_runtime::{Duration, TaskGroup, planted, probe, random, sleep};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::rc::Rc;

pub const GUARD: Guard = Guard {
    name: "session_order",
};
/// See the module.
pub const FORGET_AFTER: LogPos = 1_000_000;
/// How often sessions are looked at, in positions.
const SWEEP_INTERVAL: LogPos = 4096;
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Room in an entry for the headers of this engine and those below.
const HEADERS_BYTES: usize = 4096;

/// `session u64 | the log's end when it began u64 | settled u64 | number u64`. Numbers begin at 1. All up to the
/// settled one were answered when the proposal was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Note {
    session: u64,
    began: LogPos,
    settled: u64,
    number: u64,
}

impl Note {
    fn encode(self) -> Bytes {
        words(&[self.session, self.began, self.settled, self.number])
    }

    fn parse(said: &[u8]) -> Option<Note> {
        let [session, began, settled, number] = parse(said)?;
        Some(Note {
            session,
            began,
            settled,
            number,
        })
    }
}

/// True if the entry is the next of its session. Moves the session on, whose row is
/// `last number u64 | its position u64`.
fn take_turn(tx: &mut RwTx, note: Note, pos: LogPos) -> Result<bool> {
    let key = GUARD.key(&note.session.to_be_bytes());
    let last = match tx.get(&key)? {
        Some(row) => parse::<2>(&row).ok_or(Error::file_corrupt)?[0],
        // It is new. It was not forgotten: it began too late for that.
        None if note.began + FORGET_AFTER > pos => 0,
        None => return Ok(false),
    };
    // What was answered while the engine was off is not in the row.
    let last = last.max(note.settled);
    let is_overlooked = planted!(
        "delos_order_overlooked",
        "a proposal that comes out of its order is applied"
    );
    if note.number != last + 1 && !is_overlooked {
        probe!("delos_out_of_order");
        return Ok(false);
    }
    tx.set(&key, words(&[note.number, pos]));
    Ok(true)
}

fn forget_sessions(tx: &mut RwTx, pos: LogPos) -> Result<()> {
    let (begin, end) = GUARD.keys();
    for (key, row) in tx.range(&begin, &end, usize::MAX)? {
        let [_, last] = parse(&row).ok_or(Error::file_corrupt)?;
        if last + FORGET_AFTER <= pos {
            tx.clear(&key);
        }
    }
    Ok(())
}

/// The replica's session, which both halves know.
struct Own<R, E> {
    session: Cell<u64>,
    began: Cell<LogPos>,
    /// The number of the last proposal.
    last: Cell<u64>,
    /// All proposals up to this number are answered; and those behind it that are.
    settled: Watch<u64>,
    answered: RefCell<BTreeSet<u64>>,
    replies: RefCell<BTreeMap<u64, OneshotSender<Proposed<R, E>>>>,
}

impl<R, E> Own<R, E> {
    /// Begins a new session. What was not answered in the one before may be applied or not.
    fn begin(&self, began: LogPos) {
        self.session.set(random::u64());
        self.began.set(began);
        self.last.set(0);
        self.answered.borrow_mut().clear();
        let open = std::mem::take(&mut *self.replies.borrow_mut());
        for (_, reply) in open {
            let _ = reply.send(Err(Lost::Log(LogError::Unknown))); // it may wait no longer
        }
        self.settled.update(|settled| *settled = 0);
    }

    fn waits(&self, session: u64, number: u64) -> bool {
        session == self.session.get() && self.replies.borrow().contains_key(&number)
    }

    fn answer(&self, number: u64, outcome: Proposed<R, E>) {
        let Some(reply) = self.replies.borrow_mut().remove(&number) else {
            return;
        };
        let mut answered = self.answered.borrow_mut();
        answered.insert(number);
        let mut settled = self.settled.get();
        while answered.remove(&(settled + 1)) {
            settled += 1;
        }
        let last = self.last.get();
        assert!(
            number <= last && settled <= last,
            "proposal {number} is answered, and all up to {settled}, and {last} is the last"
        );
        drop(answered);
        self.settled.update(|now| *now = settled);
        let _ = reply.send(outcome); // as above
    }
}

/// See the module.
pub struct SessionOrder<R, E> {
    own: Rc<Own<R, E>>,
    /// Number and answer of the own entry that is being applied.
    answering: RefCell<Option<(u64, Answer<R, E>)>>,
}
pub type SessionOrderAbove<A> =
    Above<SessionOrder<<A as Applicator>::Return, <A as Applicator>::Refusal>, A>;

impl<R, E> Default for SessionOrder<R, E> {
    fn default() -> Self {
        SessionOrder {
            own: Rc::new(Own {
                session: Cell::new(random::u64()),
                began: Cell::new(0),
                last: Cell::new(0),
                settled: Watch::new(0),
                answered: RefCell::default(),
                replies: RefCell::default(),
            }),
            answering: RefCell::default(),
        }
    }
}

impl<A: Applicator> Rule<A> for SessionOrder<A::Return, A::Refusal> {
    const GUARD: Guard = GUARD;

    fn begin(&self, tx: &mut RwTx, pos: LogPos) -> Result<()> {
        self.answering.take();
        match pos.is_multiple_of(SWEEP_INTERVAL) && GUARD.is_on(tx)? {
            true => forget_sessions(tx, pos),
            false => Ok(()),
        }
    }

    fn own(&self, _: &mut RwTx, _: Bytes, _: LogPos) -> Result<Bytes> {
        Ok(Bytes::new())
    }

    fn pass(
        &self,
        upper: &Upper<A>,
        tx: &mut RwTx,
        entry: &Entry,
        note: Option<Bytes>,
        pos: LogPos,
    ) -> Applied<A::Return, A::Refusal> {
        let Some(said) = note else {
            return upper.apply(tx, entry, pos);
        };
        let Some(note) = Note::parse(&said) else {
            return Ok(Answer::Filtered);
        };
        if !take_turn(tx, note, pos)? {
            return Ok(Answer::Filtered);
        }
        let answer = upper.apply(tx, entry, pos)?;
        if !self.own.waits(note.session, note.number) {
            return Ok(answer);
        }
        self.answering.replace(Some((note.number, answer)));
        Ok(Answer::Own(Bytes::new()))
    }

    fn post_apply(&self) {
        if let Some((number, answer)) = self.answering.take() {
            self.own.answer(number, Ok(answer));
        }
    }
}

/// See the module.
pub struct SessionOrderBelow<D, R, E> {
    carrier: Rc<Carrier<D, R, E>>,
}

/// A proposal that is to be answered.
struct Proposal {
    entry: Entry,
    session: u64,
    number: u64,
    /// A try of it may be in the log, now or later.
    is_open: bool,
}

/// Carries proposals down, whether somebody waits for their answers or not: those behind them do.
struct Carrier<D, R, E> {
    down: D,
    store: Rc<LocalStore>,
    own: Rc<Own<R, E>>,
    /// They go down now, in this order.
    next: RefCell<VecDeque<Proposal>>,
    wake: Notify,
    /// They came back without an answer, and go down together when nothing is under way.
    back: RefCell<BTreeMap<u64, Proposal>>,
    under_way: Cell<usize>,
}

impl<D, R, E> SessionOrderBelow<D, R, E>
where
    D: Engine<Return = R, Refusal = E>,
    R: 'static,
    E: 'static,
{
    pub fn new<A>(down: D, store: Rc<LocalStore>, above: &SessionOrderAbove<A>) -> Self
    where
        A: Applicator<Return = R, Refusal = E>,
    {
        let own = above.rule.own.clone();
        own.begin(store.applied());
        SessionOrderBelow {
            carrier: Rc::new(Carrier {
                down,
                store,
                own,
                next: RefCell::default(),
                wake: Notify::new(),
                back: RefCell::default(),
                under_way: Cell::new(0),
            }),
        }
    }

    /// Carries proposals down, for ever.
    pub async fn run(&self) -> Infallible {
        let carrying = TaskGroup::new();
        loop {
            let next = self.carrier.next.borrow_mut().pop_front();
            let Some(proposal) = next else {
                self.carrier.wake.notified().await;
                continue;
            };
            let carrier = self.carrier.clone();
            carrier.under_way.update(|count| count + 1);
            carrying.spawn("delos_proposal", async move {
                carrier.carry(proposal).await;
            });
        }
    }
}

impl<D, R, E> Carrier<D, R, E>
where
    D: Engine<Return = R, Refusal = E>,
    R: 'static,
    E: 'static,
{
    fn is_on(&self) -> bool {
        GUARD.was_on(&self.store.snapshot()).unwrap_or(false)
    }

    /// The next number. A session that may be forgotten soon is left when nothing of it is under way.
    fn next_number(&self) -> u64 {
        let own = &self.own;
        let is_idle = own.settled.get() == own.last.get();
        if is_idle && own.began.get() + FORGET_AFTER / 2 < self.store.applied() {
            own.begin(self.store.applied());
        }
        let number = own.last.get() + 1;
        own.last.set(number);
        number
    }

    fn begin(&self, proposal: Proposal) {
        let is_empty = self.back.borrow().is_empty();
        let before = self.next.borrow().back().map(|p| (p.session, p.number));
        assert!(
            before.is_none_or(|(session, number)| {
                session != proposal.session || number < proposal.number
            }),
            "proposal {} goes down behind {before:?}",
            proposal.number
        );
        match is_empty {
            true => self.next.borrow_mut().push_back(proposal),
            // It could not be its turn.
            false => drop(self.back.borrow_mut().insert(proposal.number, proposal)),
        }
        self.wake.notify_one();
    }

    async fn carry(&self, proposal: Proposal) {
        let unanswered = self.try_once(proposal).await;
        let under_way = self.under_way.get();
        assert!(
            under_way > 0,
            "a proposal comes back, and none is under way"
        );
        self.under_way.set(under_way - 1);
        let mut back = self.back.borrow_mut();
        back.extend(unanswered.map(|proposal| (proposal.number, proposal)));
        if self.under_way.get() == 0 && !back.is_empty() && self.next.borrow().is_empty() {
            probe!("delos_proposed_again");
            let again = std::mem::take(&mut *back);
            self.next.borrow_mut().extend(again.into_values());
            self.wake.notify_one();
        }
    }

    /// Proposes once; the proposal if there is no answer.
    async fn try_once(&self, proposal: Proposal) -> Option<Proposal> {
        let own = &self.own;
        let (session, number) = (proposal.session, proposal.number);
        if !own.waits(session, number) {
            return None;
        }
        let note = Note {
            session,
            began: own.began.get(),
            settled: own.settled.get(),
            number,
        };
        // Nobody would apply it, whoever else has the log: it is not after what was answered.
        assert!(
            note.settled < number && note.began <= self.store.applied(),
            "a proposal that waits goes down as {note:?}, and {} is applied",
            self.store.applied()
        );
        let was_on = self.is_on();
        let is_last_believed = planted!(
            "delos_order_refusal_believed",
            "a proposal counts as refused though an earlier try of it may come into the log"
        );
        let mut entry = proposal.entry.clone();
        GUARD.note(&mut entry, &note.encode());
        let said = self.down.propose(entry).await;
        if !own.waits(session, number) {
            return None;
        }
        match said {
            Ok(Answer::Filtered) if self.is_on() => Some(proposal),
            Err(Lost::Log(LogError::Unknown)) if was_on => {
                // The log is in trouble.
                sleep(RETRY_PAUSE).await;
                Some(Proposal {
                    is_open: true,
                    ..proposal
                })
            }
            Err(Lost::Elsewhere(_)) if proposal.is_open && !is_last_believed => {
                own.answer(number, Err(Lost::Log(LogError::Unknown)));
                None
            }
            said => {
                own.answer(number, said);
                None
            }
        }
    }
}

impl<D, R, E> Layer for SessionOrderBelow<D, R, E>
where
    D: Engine<Return = R, Refusal = E>,
    R: 'static,
    E: 'static,
{
    type Down = D;

    fn down(&self) -> &D {
        &self.carrier.down
    }

    async fn propose(&self, entry: Entry) -> Proposed<R, E> {
        let bytes = entry.encoded_len() + HEADERS_BYTES;
        if bytes > ENTRY_BYTES_MAX {
            return Err(Lost::Log(LogError::TooLong(bytes)));
        }
        let number = self.carrier.next_number();
        let own = &self.carrier.own;
        let (reply, receiver) = oneshot();
        own.replies.borrow_mut().insert(number, reply);
        self.carrier.begin(Proposal {
            entry,
            session: own.session.get(),
            number,
            is_open: false,
        });
        receiver.await.unwrap_or(Err(Lost::Stopped))
    }

    async fn sync(&self) -> std::result::Result<RoTx, Lost> {
        if !self.carrier.is_on() {
            return self.carrier.down.sync().await;
        }
        let own = &self.carrier.own;
        let (session, last) = (own.session.get(), own.last.get());
        let is_over = |settled: &u64| *settled >= last || own.session.get() != session;
        own.settled.wait_until(is_over).await;
        self.carrier.down.sync().await
    }
}
