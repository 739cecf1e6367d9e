//! Transactions while they run: their snapshot, what they have read, and what they will write (§4.2, 4.6, 4.7).

use crate::active::Token;
use crate::commit::{self, Plan};
use crate::core::Core;
use crate::settings::Options;
use crate::site::{Alive, Site};
use crate::tally::Tally;
use crate::wire::{Change, Message, Write};
use bytes::Bytes;
use plinth_core::hash::HashSet;
use plinth_farm_fabric::Fabric;
use plinth_farm_memory::{Abort, Class, Objects, Pointer};
use plinth_runtime::probe;
use plinth_runtime::sync::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a transaction will do to an object.
enum Intent {
    Update(Bytes),
    /// Made by this transaction.
    Allocate(Bytes),
    Free,
    /// Made and freed by this transaction.
    Nothing,
}

#[derive(Default)]
struct Sets {
    /// Snapshot isolation validates nothing. But it allocates nothing where it knows of another object.
    reads: HashSet<u64>,
    writes: BTreeMap<Pointer, Intent>,
    write_bytes: usize,
    /// Cells that are reserved until the end, and not used.
    unused: Vec<Pointer>,
    /// The configuration in which cells are reserved, if any are. With it the reservations end.
    reserved_in: Option<u64>,
}

/// What has committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The snapshot.
    pub read_at: u64,
    /// When the writes have happened; `None` if there are none.
    pub written_at: Option<u64>,
}

/// A transaction. Dropped, it ends without effect.
pub struct Transaction<F: Fabric + 'static> {
    site: Rc<Site<F>>,
    /// Finishes a commit whose caller has gone.
    alive: Alive,
    options: Options,
    read_at: u64,
    token: Cell<Option<Token>>,
    sets: RefCell<Sets>,
    failed: Cell<Option<Abort>>,
}

impl Core {
    /// A snapshot, and what keeps its versions.
    pub async fn begin(&self, options: &Options) -> Result<(u64, Token), Abort> {
        if let Some(at) = options.at {
            return self.begin_at(at, options).await;
        }
        self.stage.opened().await?;
        let now = self.time().await?;
        if !options.is_strict {
            return Ok((now.lower, self.active.enter(now.lower)));
        }
        // It is active before it waits: the lower bound passes its timestamp in the wait.
        let token = self.active.enter(now.upper);
        let read_at = self.until_past(now).await?;
        Ok((read_at, token))
    }

    async fn begin_at(&self, at: u64, options: &Options) -> Result<(u64, Token), Abort> {
        let now = self.time().await?;
        let floor = self.oat.borrow().floor();
        // Whoever has the snapshot has seen it pass, so it is not above the upper bound.
        let may_be = floor.is_some_and(|floor| floor <= at) && at <= now.upper;
        if !options.is_read_only || !may_be {
            return Err(Abort::NotAllowed);
        }
        let token = self.active.enter(at);
        let then = plinth_farm_time::Interval {
            lower: now.lower,
            upper: at,
        };
        match now.lower > at {
            true => Ok((at, token)),
            false => Ok((self.until_past(then).await?, token)),
        }
    }
}

impl<F: Fabric + 'static> Transaction<F> {
    pub(crate) fn new(
        site: Rc<Site<F>>,
        alive: Alive,
        options: Options,
        (read_at, token): (u64, Token),
    ) -> Transaction<F> {
        Transaction {
            site,
            alive,
            options,
            read_at,
            token: Cell::new(Some(token)),
            sets: RefCell::default(),
            failed: Cell::new(None),
        }
    }

    /// The snapshot. Another machine may read at it while this transaction is active ([`Options::at`]).
    pub fn read_at(&self) -> u64 {
        self.read_at
    }

    fn check(&self) -> Result<(), Abort> {
        self.failed.get().map_or(Ok(()), Err)
    }

    /// The transaction can only abort.
    fn fail<T>(&self, abort: Abort) -> Result<T, Abort> {
        self.failed.set(Some(abort));
        Err(abort)
    }

    /// The object as this transaction has left it.
    fn own_write(&self, at: Pointer) -> Option<Result<Bytes, Abort>> {
        let sets = self.sets.borrow();
        Some(match sets.writes.get(&at)? {
            Intent::Update(payload) | Intent::Allocate(payload) => Ok(filled(at.class(), payload)),
            Intent::Free | Intent::Nothing => Err(Abort::NotAllocated),
        })
    }

    async fn read_stored(&self, at: Pointer) -> Result<Bytes, Abort> {
        let version = match self.site.read_version(at, self.read_at).await {
            Ok(version) => version,
            Err(Abort::NotAllocated) => return Err(Abort::NotAllocated),
            Err(abort) => return self.fail(abort),
        };
        let options = &self.options;
        if options.is_read_only {
            return version.payload.ok_or(Abort::NotAllocated);
        }
        let mut sets = self.sets.borrow_mut();
        let will_write = options.will_write || !sets.writes.is_empty();
        if options.is_serializable && will_write && !version.is_newest {
            probe!("farm eager validation");
            drop(sets);
            return self.fail(Abort::Conflict);
        }
        sets.reads.insert(at.bits());
        version.payload.ok_or(Abort::NotAllocated)
    }

    /// Room for another write of so many bytes.
    fn take_room(&self, bytes: usize) -> Result<(), Abort> {
        let mut sets = self.sets.borrow_mut();
        let writes = sets.write_bytes + bytes;
        let regions = sets.writes.len() + 1;
        if Message::bytes_of(regions, writes) > self.site.core.post.message_bytes_max() {
            drop(sets);
            return self.fail(Abort::TooLarge);
        }
        sets.write_bytes = writes;
        Ok(())
    }

    fn may_write(&self) -> Result<(), Abort> {
        self.check()?;
        match self.options.is_read_only {
            true => self.fail(Abort::NotAllowed),
            false => Ok(()),
        }
    }

    fn intend(&self, at: Pointer, payload: Bytes) -> Result<(), Abort> {
        let before = match self.sets.borrow().writes.get(&at) {
            Some(Intent::Free | Intent::Nothing) => return Err(Abort::NotAllocated),
            Some(Intent::Update(old)) => Some((false, old.len())),
            Some(Intent::Allocate(old)) => Some((true, old.len())),
            None => None,
        };
        let (is_new, old) = before.unwrap_or((false, 0));
        match before {
            Some(_) => self.take_room(payload.len().saturating_sub(old))?,
            None => self.take_room(Write::bytes_with(payload.len()))?,
        }
        let intent = match is_new {
            true => Intent::Allocate(payload),
            false => Intent::Update(payload),
        };
        self.sets.borrow_mut().writes.insert(at, intent);
        Ok(())
    }

    /// Regions in the order in which they are asked for room: that of `near`, those of its machine, those of this
    /// machine, the others.
    fn candidates(&self, near: Pointer) -> Vec<u16> {
        let view = self.site.core.view();
        let own = self.site.core.own;
        let near_machine = match near.is_null() {
            true => None,
            false => view.primary(near.region()).map(|place| place.machine),
        };
        let rank = |region: u16| {
            let machine = view.primary(region).map(|place| place.machine);
            match () {
                () if !near.is_null() && region == near.region() => 0,
                () if machine.is_some() && machine == near_machine => 1,
                () if machine == Some(own) => 2,
                () => 3,
            }
        };
        let mut regions: Vec<u16> = (0..view.regions.len() as u16).collect();
        regions.sort_by_key(|region| rank(*region));
        regions
    }

    async fn reserve(&self, region: u16, class: Class) -> Result<Option<Pointer>, Abort> {
        let core = &self.site.core;
        let number = core.stage.opened().await?;
        let former = self.sets.borrow_mut().reserved_in.replace(number);
        if former.is_some_and(|former| former != number) {
            self.sets.borrow_mut().reserved_in = former;
            return Err(Abort::Failed);
        }
        let primary = core.view.borrow().primary(region).ok_or(Abort::Failed)?;
        if primary.machine == core.own {
            return Ok(core.reserve(region, class));
        }
        let (sender, receiver) = oneshot();
        let ask = core.last_ask.get() + 1;
        core.last_ask.set(ask);
        core.asks.borrow_mut().insert(ask, sender);
        let _waiting = core.waiting();
        let class = class.number();
        let reserve = Message::Reserve { ask, region, class };
        let acknowledged = Tally::new(1);
        core.post
            .push(primary.machine, reserve, Some(acknowledged.clone()));
        if !acknowledged.wait().await {
            core.asks.borrow_mut().remove(&ask);
            return core.end_with(number).await;
        }
        let at = receiver.await.map_err(|_| Abort::Failed)?;
        Ok((!at.is_null()).then_some(at))
    }

    /// The same, where the snapshot has no other object: this transaction may know it, or find it later.
    async fn reserve_new(&self, region: u16, class: Class) -> Result<Option<Pointer>, Abort> {
        loop {
            let Some(at) = self.reserve(region, class).await? else {
                return Ok(None);
            };
            let is_known = {
                let sets = self.sets.borrow();
                sets.reads.contains(&at.bits()) || sets.writes.contains_key(&at)
            };
            let is_new = match is_known {
                true => Ok(false),
                false => {
                    let number = self.sets.borrow().reserved_in.unwrap_or_default();
                    self.site.is_current(number, at, self.read_at).await
                }
            };
            if is_new == Ok(true) {
                return Ok(Some(at));
            }
            probe!("farm cell of an object that the snapshot has");
            self.sets.borrow_mut().unused.push(at);
            is_new?;
        }
    }

    fn made(&self, at: Pointer) -> Result<Pointer, Abort> {
        let mut sets = self.sets.borrow_mut();
        sets.writes.insert(at, Intent::Allocate(Bytes::new()));
        drop(sets);
        self.take_room(Write::bytes_with(0))?;
        Ok(at)
    }

    /// Commits, or ends without effect. If the future is dropped, one of the two happens all the same.
    pub async fn commit(self) -> Result<Committed, Abort> {
        self.check()?;
        let sets = std::mem::take(&mut *self.sets.borrow_mut());
        let read_at = self.read_at;
        if sets.writes.is_empty() && sets.unused.is_empty() {
            return Ok(Committed {
                read_at,
                written_at: None,
            });
        }
        let plan = self.plan(sets);
        let committing = Box::pin(commit::run(self.site.clone(), plan));
        let written_at = commit::finish(committing, self.alive.group().clone()).await?;
        Ok(Committed {
            read_at,
            written_at,
        })
    }

    fn plan(&self, sets: Sets) -> Plan {
        let mut plan = Plan {
            options: self.options,
            read_at: self.read_at,
            token: self.token.take(),
            reads: Vec::new(),
            writes: Vec::new(),
            unused: sets.unused,
            reserved_in: sets.reserved_in,
        };
        if self.options.is_serializable {
            let reads = sets.reads.into_iter().filter_map(Pointer::from_bits);
            plan.reads
                .extend(reads.filter(|at| !sets.writes.contains_key(at)));
        }
        for (at, intent) in sets.writes {
            let (change, payload) = match intent {
                Intent::Update(payload) => (Change::Update, payload),
                Intent::Allocate(payload) => (Change::Allocate, payload),
                Intent::Free => (Change::Free, Bytes::new()),
                Intent::Nothing => {
                    plan.unused.push(at);
                    continue;
                }
            };
            plan.writes.push(Write {
                at,
                change,
                payload,
            });
        }
        plan
    }
}

/// The payload with zeros up to its class.
fn filled(class: Class, payload: &Bytes) -> Bytes {
    if payload.len() == class.payload_bytes() {
        return payload.clone();
    }
    let mut whole = payload.to_vec();
    whole.resize(class.payload_bytes(), 0);
    whole.into()
}

impl<F: Fabric + 'static> Objects for Transaction<F> {
    async fn read(&self, at: Pointer) -> Result<Bytes, Abort> {
        self.check()?;
        if let Some(own) = self.own_write(at) {
            return own;
        }
        self.read_stored(at).await
    }

    async fn write(&self, at: Pointer, payload: Bytes) -> Result<(), Abort> {
        self.may_write()?;
        let view = self.site.core.view();
        if at.is_null() || view.primary(at.region()).is_none() {
            return Err(Abort::NotAllocated);
        }
        match payload.len() > at.class().payload_bytes() {
            true => self.fail(Abort::TooLarge),
            false => self.intend(at, payload),
        }
    }

    async fn allocate(&self, bytes: usize, near: Pointer) -> Result<Pointer, Abort> {
        self.may_write()?;
        let Some(class) = Class::of(bytes) else {
            return self.fail(Abort::TooLarge);
        };
        for region in self.candidates(near) {
            match self.reserve_new(region, class).await {
                Ok(Some(at)) => return self.made(at),
                Ok(None) => (),
                Err(abort) => return self.fail(abort),
            }
        }
        self.fail(Abort::Full)
    }

    async fn free(&self, at: Pointer) -> Result<(), Abort> {
        self.may_write()?;
        let is_new = match self.sets.borrow().writes.get(&at) {
            Some(Intent::Allocate(_)) => true,
            Some(Intent::Free | Intent::Nothing) => return Err(Abort::NotAllocated),
            _ => false,
        };
        if is_new {
            self.sets.borrow_mut().writes.insert(at, Intent::Nothing);
            return Ok(());
        }
        self.read_stored(at).await?;
        self.intend(at, Bytes::new())?;
        self.sets.borrow_mut().writes.insert(at, Intent::Free);
        Ok(())
    }
}

impl<F: Fabric + 'static> Drop for Transaction<F> {
    fn drop(&mut self) {
        let sets = self.sets.get_mut();
        let reserved_in = sets.reserved_in;
        for at in &sets.unused {
            commit::unreserve(&self.site.core, *at, reserved_in);
        }
        let made = sets
            .writes
            .iter()
            .filter(|(_, intent)| matches!(intent, Intent::Allocate(_) | Intent::Nothing));
        for (at, _) in made {
            commit::unreserve(&self.site.core, *at, reserved_in);
        }
    }
}
