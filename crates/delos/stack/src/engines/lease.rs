//! Lets one replica read without asking the log, because nobody else writes meanwhile (§4.4 H).
//!
//! ```text
//!   holder    claims at its own time t ───────────► reads until t + LEASE - a part of it
//!   others    see the claim in the log, later than t ─────────► may end it after LEASE + a part of it
//! ```
//! While the log says that a replica has the lease, only its entries are passed up, on all replicas alike. Other
//! replicas refuse proposals, with the holder's name ([`Lost::Elsewhere`]). When the holder is silent, any of them
//! ends the lease by an entry, which names the claim that it ends: a claim that came in between counts.
//!
//! Why the holder's rows are never behind, while its own clock says that the lease is valid:
//! - It has applied its own claim, and with it all that is before the claim in the log.
//! - Behind the claim only its own entries have an effect, unless somebody has ended the lease. Who does so has waited
//!   from a later moment, and longer, even if both clocks are wrong by [`DRIFT_PART`].
//! - Another replica may have read an entry of the holder that the holder has not applied itself. So a read waits for
//!   the holder's own proposals that are under way: a holder that writes nothing waits for nothing.
//! - An entry of which nobody knows whether it is in the log may come later, unnoticed by the holder. So each entry
//!   says a term, and only those of the claim's term pass. After such an entry, and in its next life, the holder asks
//!   the log until it has claimed again with a new term.
//! - It takes the rows first, and looks at its clock then: it may stand still in between.
//!
//! Engines that all replicas propose entries of must be below this one. An engine whose entries change what those
//! above read must be above it.
//!
//! The lease outlives the engine's switch: switching it off only means that no one claims it again. So a holder that
//! has not heard of the switch still reads what is right. The engine may be taken out of the stacks when the log has
//! switched it off and nobody has the lease.

use super::above::{Above, Rule};
use super::guard::Guard;
use crate::entry::Entry;
use crate::log::{LogError, LogPos};
use crate::stack::{
    Answer, Applicator, Applied, Engine, Layer, Lost, Proposed, ProposedTo, ReplicaId, Upper,
};
use crate::store::{LocalStore, RoTx, RwTx};
use crate::words::{parse, words};
use bytes::Bytes;
use plinth_core::{Error, Result};
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::{Duration, Instant, now, planted, probe, race, random, sleep, timeout, trace};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

pub const GUARD: Guard = Guard { name: "lease" };
/// Who proposed an entry: `term u64 | number u64`. It counts whether the engine is on or not.
const BY: &str = "lease_by";
/// Ends the lease of a claim, whether the engine is on or not: `position of the claim u64`.
const END: &str = "lease_end";
pub const LEASE: Duration = Duration::from_secs(2);
/// The rate of a clock is wrong by at most this part.
pub const DRIFT_PART: u32 = 20;

const RENEW_INTERVAL: Duration = Duration::from_millis(500);
const RETRY_PAUSE: Duration = Duration::from_millis(5);

// The holder stops to read before anybody ends its lease: what a clock may be wrong by is more than nothing. And it
// renews its lease before it ends, also if one attempt is lost.
const _: () = assert!(DRIFT_PART > 1 && LEASE.as_nanos() / DRIFT_PART as u128 > 0);
const _: () = assert!(2 * RENEW_INTERVAL.as_nanos() < LEASE.as_nanos());

/// What a clock may be wrong by during a lease.
fn drift() -> Duration {
    let is_exact = planted!(
        "delos_lease_drift",
        "replicas take each other's clocks for exact"
    );
    if is_exact {
        return Duration::ZERO;
    }
    LEASE / DRIFT_PART
}

/// How long the holder reads without asking the log, after it has proposed a claim.
fn holder_reads() -> Duration {
    LEASE - drift()
}

/// How long others let a claim stand after they have noticed it.
fn others_wait() -> Duration {
    LEASE + drift()
}

/// The row of the lease: `replica u64 | term u64 | position of its last claim u64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    replica: ReplicaId,
    term: u64,
    claimed: LogPos,
}

impl Held {
    fn key() -> Vec<u8> {
        GUARD.key(b"holder")
    }

    fn parse(row: Option<Bytes>) -> Result<Option<Held>> {
        let Some(row) = row else {
            return Ok(None);
        };
        let [replica, term, claimed] = parse(&row).ok_or(Error::file_corrupt)?;
        Ok(Some(Held {
            replica,
            term,
            claimed,
        }))
    }
}

/// What both halves of this replica know. It is of this life: nothing of it is in the store.
struct Own {
    /// Of the entries that are proposed now.
    term: Cell<u64>,
    /// An entry of this term may come into the log, and nobody waits for it any more.
    is_doubtful: Cell<bool>,
    /// The claim under way, and when it was proposed.
    claim: Cell<Option<(u64, Instant)>>,
    /// The claim of this term is applied; reads are right until then.
    until: Cell<Option<Instant>>,
    next_number: Cell<u64>,
    /// Number and term of the proposals under way, and whether the lease has kept them from those above.
    under_way: RefCell<BTreeMap<u64, (u64, bool)>>,
    /// No proposal with a smaller number is under way.
    oldest: Watch<u64>,
}

impl Own {
    fn new() -> Rc<Own> {
        Rc::new(Own {
            term: Cell::new(random::u64()),
            is_doubtful: Cell::new(false),
            claim: Cell::new(None),
            until: Cell::new(None),
            next_number: Cell::new(0),
            under_way: RefCell::default(),
            oldest: Watch::new(0),
        })
    }

    /// When the lease ends by this replica's clock, if it is valid.
    fn valid_until(&self) -> Option<Instant> {
        let until = self.until.get().filter(|_| !self.is_doubtful.get());
        let is_used_on = planted!(
            "delos_lease_stale",
            "a replica reads without asking the log after its lease has ended"
        );
        until.filter(|until| now() < *until || is_used_on)
    }

    fn begin_term(&self) {
        self.term.set(random::u64());
        self.is_doubtful.set(false);
        self.until.set(None);
    }

    /// The lease kept an entry from those above.
    fn turn_away(&self, term: u64, number: u64) {
        if let Some((of, is_turned_away)) = self.under_way.borrow_mut().get_mut(&number) {
            *is_turned_away |= *of == term;
        }
    }

    /// An effective claim is applied.
    fn take_claim(&self, claim: u64) {
        let proposed = self.claim.get().filter(|(own, _)| *own == claim);
        let until = proposed.map(|(_, at)| at + holder_reads());
        let before = self.until.replace(until);
        // A claim of which nobody knows when it was proposed ends the reading; the next one goes further.
        assert!(
            until.is_none() || before <= until,
            "the lease was good until {before:?}, and a later claim makes it {until:?}"
        );
    }
}

/// See the module.
pub struct Lease {
    own: Rc<Own>,
}
pub type LeaseAbove<A> = Above<Lease, A>;

impl Default for Lease {
    fn default() -> Self {
        Lease { own: Own::new() }
    }
}

impl Lease {
    /// A claim: `replica u64 | term u64 | position of the row's claim u64 | the claim's own number u64`; position 0 if
    /// it found no row. Nobody claims what another replica has.
    fn claim(&self, tx: &mut RwTx, said: &[u8], pos: LogPos) -> Result<()> {
        let Some([replica, term, expected, claim]) = parse(said) else {
            return Ok(());
        };
        let held = Held::parse(tx.get(&Held::key())?)?;
        let found = held.map_or(0, |held| held.claimed);
        if found == expected && held.is_none_or(|held| held.replica == replica) {
            tx.set(&Held::key(), words(&[replica, term, pos]));
            self.own.take_claim(claim);
        }
        Ok(())
    }

    fn end(&self, tx: &mut RwTx, said: &[u8]) -> Result<()> {
        let held = Held::parse(tx.get(&Held::key())?)?;
        if let (Some([claimed]), Some(held)) = (parse(said), held)
            && claimed == held.claimed
        {
            tx.clear(&Held::key());
            self.own.until.set(None);
        }
        Ok(())
    }

    /// True if the entry may go up while somebody has the lease.
    fn passes(&self, held: &Held, entry: &Entry) -> bool {
        let Some(by) = entry.header(BY) else {
            // Without a request and from below: an operator's switch.
            return entry.payload.is_none();
        };
        let Some([term, number]) = parse(by) else {
            return false;
        };
        if term != held.term {
            probe!("delos_lease_filtered");
            self.own.turn_away(term, number);
        }
        term == held.term
    }
}

impl<A: Applicator> Rule<A> for Lease {
    const GUARD: Guard = GUARD;

    fn own(&self, tx: &mut RwTx, said: Bytes, pos: LogPos) -> Result<Bytes> {
        self.claim(tx, &said, pos).map(|()| Bytes::new())
    }

    fn pass(
        &self,
        upper: &Upper<A>,
        tx: &mut RwTx,
        entry: &Entry,
        _: Option<Bytes>,
        pos: LogPos,
    ) -> Applied<A::Return, A::Refusal> {
        if let Some(said) = entry.header(END) {
            self.end(tx, said)?;
            return Ok(Answer::Own(Bytes::new()));
        }
        match Held::parse(tx.get(&Held::key())?)? {
            Some(held) if !self.passes(&held, entry) => Ok(Answer::Filtered),
            _ => upper.apply(tx, entry, pos),
        }
    }
}

/// See the module.
pub struct LeaseBelow<E> {
    down: E,
    store: Rc<LocalStore>,
    replica: ReplicaId,
    own: Rc<Own>,
    wants: Cell<bool>,
    /// The last claim of another replica, and when it was noticed here.
    seen: Cell<(LogPos, Instant)>,
    wake: Notify,
}

impl<E: Engine> LeaseBelow<E> {
    /// Only one process at a time has this `replica` identity: the one that has its store open.
    pub fn new<A: Applicator>(
        down: E,
        store: Rc<LocalStore>,
        replica: ReplicaId,
        above: &LeaseAbove<A>,
    ) -> Self {
        LeaseBelow {
            down,
            store,
            replica,
            own: above.rule.own.clone(),
            wants: Cell::new(false),
            seen: Cell::new((0, Instant::default())),
            wake: Notify::new(),
        }
    }

    /// True: takes the lease when nobody has it, and keeps it. False: gives it up, soon.
    pub fn want(&self, wants: bool) {
        self.wants.set(wants);
        self.wake.notify_one();
    }

    /// Who has the lease, as far as this replica has applied the log. It need not be valid any more.
    ///
    /// # Errors
    /// The disk fails.
    pub fn holder(&self) -> Result<Option<ReplicaId>> {
        Ok(self.held()?.map(|held| held.replica))
    }

    /// True if this replica reads without asking the log.
    pub fn is_valid(&self) -> bool {
        self.own.valid_until().is_some()
    }

    fn held(&self) -> Result<Option<Held>> {
        Held::parse(self.store.snapshot().get(&Held::key())?)
    }

    /// Takes, renews, gives up and ends leases, for ever.
    pub async fn run(&self) -> Infallible {
        loop {
            let _ = self.look_around().await; // the next look does the same
            race(sleep(self.pause()), self.wake.notified()).await;
        }
    }

    async fn look_around(&self) -> std::result::Result<(), Lost> {
        if !self.is_valid() {
            drop(self.down.sync().await?); // nothing else may play the log here
        }
        let failed = |error| Lost::Log(LogError::Failed(error));
        let may_claim = self.wants.get() && GUARD.was_on(&self.store.snapshot()).map_err(failed)?;
        let mut expected = 0;
        if let Some(held) = self.held().map_err(failed)? {
            expected = held.claimed;
            let is_own = held.replica == self.replica;
            if !is_own && !self.is_overdue(held.claimed) {
                return Ok(());
            }
            if !is_own || !may_claim {
                self.end(held).await?;
                expected = 0;
            }
        }
        match may_claim {
            true => self.claim(expected).await,
            false => Ok(()),
        }
    }

    /// True if the holder's clock, too, says that the lease of this claim is over.
    fn is_overdue(&self, claimed: LogPos) -> bool {
        let (of, since) = self.seen.get();
        if of != claimed {
            self.seen.set((claimed, now()));
            return false;
        }
        now() >= since + others_wait()
    }

    /// Until the next look.
    fn pause(&self) -> Duration {
        let overdue = self.seen.get().1 + others_wait();
        match overdue.saturating_since(now()) {
            Duration::ZERO => RENEW_INTERVAL,
            left => left.min(RENEW_INTERVAL),
        }
    }

    /// Ends the lease. If it is this replica's own, reads ask the log from now on.
    async fn end(&self, held: Held) -> std::result::Result<(), Lost> {
        if held.replica != self.replica {
            probe!("delos_lease_taken_away");
            trace!("DelosLeaseTakenAway", "from" => held.replica, "position" => held.claimed);
        }
        self.own.claim.set(None);
        self.own.until.set(None);
        let mut entry = Entry::default();
        entry.set_header(END, words(&[held.claimed]));
        self.down.propose(entry).await.map(drop)
    }

    async fn claim(&self, expected: LogPos) -> std::result::Result<(), Lost> {
        let own = &self.own;
        if own.is_doubtful.get() {
            own.begin_term();
        }
        let claim = random::u64();
        own.claim.set(Some((claim, now())));
        let said = words(&[self.replica, own.term.get(), expected, claim]);
        self.down.propose(GUARD.own(&said)).await.map(drop)
    }

    /// The rows, if this replica may read without asking the log.
    async fn read_here(&self) -> Option<RoTx> {
        let own = &self.own;
        let until = own.valid_until()?;
        let next = own.next_number.get();
        let is_unwaited = planted!(
            "delos_lease_unwaited",
            "the holder of a lease reads without its own entries that others have read"
        );
        if !is_unwaited {
            let waiting = own.oldest.wait_until(|oldest| *oldest >= next);
            timeout(until - now(), waiting).await?;
        }
        let rows = self.store.snapshot();
        own.valid_until().map(|_| rows)
    }
}

/// A proposal under way.
struct Proposal<'a> {
    own: &'a Own,
    number: u64,
    term: u64,
    /// It may be in the log, and no answer has come.
    is_open: bool,
}

impl<'a> Proposal<'a> {
    fn new(own: &'a Own) -> Self {
        let number = own.next_number.get();
        own.next_number.set(number + 1);
        let term = own.term.get();
        own.under_way.borrow_mut().insert(number, (term, false));
        Proposal {
            own,
            number,
            term,
            is_open: false,
        }
    }

    fn send(&mut self, entry: &mut Entry) {
        self.term = self.own.term.get();
        self.is_open = true;
        entry.set_header(BY, words(&[self.term, self.number]));
        let mut under_way = self.own.under_way.borrow_mut();
        under_way.insert(self.number, (self.term, false));
    }

    /// True if the lease kept it from those above.
    fn settle<R, F>(&mut self, said: &Proposed<R, F>) -> bool {
        self.is_open = match said {
            Ok(_)
            | Err(Lost::Log(LogError::Sealed | LogError::TooLong(_)) | Lost::Elsewhere(_)) => false,
            Err(Lost::Log(_) | Lost::Stopped) => true,
        };
        let under_way = self.own.under_way.borrow();
        under_way.get(&self.number).is_some_and(|(_, away)| *away)
    }
}

impl Drop for Proposal<'_> {
    fn drop(&mut self) {
        let own = self.own;
        if self.is_open && self.term == own.term.get() {
            own.is_doubtful.set(true);
        }
        let mut under_way = own.under_way.borrow_mut();
        under_way.remove(&self.number);
        let first = under_way.keys().next().copied();
        drop(under_way);
        let oldest = first.unwrap_or(own.next_number.get());
        let before = own.oldest.get();
        assert!(
            before <= oldest,
            "no proposal before {before} was under way, and now {oldest} is"
        );
        own.oldest.update(|now| *now = oldest);
    }
}

impl<E: Engine> Layer for LeaseBelow<E> {
    type Down = E;

    fn down(&self) -> &E {
        &self.down
    }

    async fn propose(&self, mut entry: Entry) -> ProposedTo<E> {
        let mut proposal = Proposal::new(&self.own);
        loop {
            let held = self.held().ok().flatten();
            if let Some(other) = held.filter(|held| held.replica != self.replica) {
                return Err(Lost::Elsewhere(other.replica));
            }
            proposal.send(&mut entry);
            let said = self.down.propose(entry.clone()).await;
            if !proposal.settle(&said) {
                return said;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn sync(&self) -> std::result::Result<RoTx, Lost> {
        match self.read_here().await {
            Some(rows) => Ok(rows),
            None => self.down.sync().await,
        }
    }
}
