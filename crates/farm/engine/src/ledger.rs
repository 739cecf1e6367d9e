//! What a participant knows of transactions. The state of a transaction here is what recovery will ask for
//! (docs/decisions/0013-farm-on-fences.md): `locked`, `committed`, `logged`, `truncated`.

use crate::recovery::Id;
use crate::wire::{Number, Truncation, Write};
use plinth_farm_disk::Position;
use plinth_farm_fabric::Machine;
use plinth_farm_memory::{Header, Kept};
use std::collections::{BTreeMap, BTreeSet};

/// As a primary.
#[derive(Debug)]
pub struct Locked {
    pub writes: Vec<Write>,
    /// Of each write: the header that was locked, and the copy of that version.
    pub former: Vec<Former>,
    /// The write timestamp, once CommitPrimary has come: the objects have their new versions, and are unlocked.
    pub committed: Option<u64>,
}

/// The version that a write replaces.
#[derive(Debug)]
pub struct Former {
    pub header: Header,
    /// `None` if no old version is kept, or its part is decided.
    pub kept: Option<Kept>,
}

/// Locks of transactions whose configuration has ended, by region and transaction: what each has locked.
pub type Locks = BTreeMap<(u16, Id), Vec<(Write, Former)>>;

/// As a backup: CommitBackup has come, and is not applied yet.
#[derive(Debug)]
pub struct Logged {
    pub writes: Vec<Write>,
    pub written_at: u64,
}

/// What is known here of one transaction that is not truncated.
#[derive(Debug, Default)]
pub struct Known {
    /// All regions that it writes to, here or elsewhere.
    pub regions: Vec<u16>,
    pub locked: Option<Locked>,
    pub logged: Option<Logged>,
    /// Where a durable machine's journal has it.
    pub kept_at: Option<Position>,
}

impl Known {
    /// All its writes to regions that have a replica here.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        let locked = self.locked.iter().flat_map(|locked| &locked.writes);
        let logged = self.logged.iter().flat_map(|logged| &logged.writes);
        locked.chain(logged)
    }
}

/// The transactions of one coordinator.
#[derive(Default)]
pub struct Account {
    /// Everything below is truncated everywhere, or has had no effect.
    below: Number,
    /// What was truncated here, from `below` on.
    truncated: BTreeSet<Number>,
    known: BTreeMap<Number, Known>,
}

impl Account {
    pub fn below(&self) -> Number {
        self.below
    }

    pub fn is_truncated(&self, number: Number) -> bool {
        number < self.below || self.truncated.contains(&number)
    }

    pub fn known(&self) -> impl Iterator<Item = (Number, &Known)> {
        self.known.iter().map(|(number, known)| (*number, known))
    }

    pub fn get_mut(&mut self, number: Number) -> Option<&mut Known> {
        self.known.get_mut(&number)
    }

    /// The transaction's place; `None` if it has ended: nobody says anything more of it.
    pub fn entry(&mut self, number: Number) -> Option<&mut Known> {
        if self.is_truncated(number) {
            return None;
        }
        Some(self.known.entry(number).or_default())
    }

    /// Its locks were refused.
    pub fn forget_unless_logged(&mut self, number: Number) -> Option<Known> {
        let known = self.known.get(&number)?;
        known.logged.is_none().then(|| self.known.remove(&number))?
    }

    /// It has no effect. Returns the locks to be released. What is committed stays: nobody asks for that.
    pub fn unlock(&mut self, number: Number) -> Option<Locked> {
        let known = self.known.get(&number)?;
        let is_locked = known
            .locked
            .as_ref()
            .is_some_and(|locked| locked.committed.is_none());
        is_locked.then(|| self.known.remove(&number))??.locked
    }

    /// Takes the transaction out. What its backup has logged is to be applied.
    pub fn truncate(&mut self, number: Number) -> Option<Known> {
        if !self.is_truncated(number) {
            self.truncated.insert(number);
        }
        self.known.remove(&number)
    }

    /// Gives away all but `below`: what is truncated, and what is known of the others.
    pub fn hand_over(&mut self) -> (BTreeSet<Number>, BTreeMap<Number, Known>) {
        let truncated = std::mem::take(&mut self.truncated);
        (truncated, std::mem::take(&mut self.known))
    }

    pub fn raise(&mut self, below: Number) {
        if below > self.below {
            self.below = below;
            self.truncated = self.truncated.split_off(&below);
        }
    }
}

/// An account for each machine.
pub struct Ledger(Vec<Account>);

impl Ledger {
    pub fn new(machines: usize) -> Ledger {
        Ledger((0..machines).map(|_| Account::default()).collect())
    }

    pub fn of(&mut self, coordinator: Machine) -> Option<&mut Account> {
        self.0.get_mut(usize::from(coordinator.0))
    }

    /// Another life of the machine numbers its transactions from 1 again.
    pub fn begin_anew(&mut self, coordinator: Machine) {
        if let Some(account) = self.of(coordinator) {
            *account = Account::default();
        }
    }

    pub fn accounts(&self) -> impl Iterator<Item = (Machine, &Account)> {
        let accounts = self.0.iter().enumerate();
        accounts.map(|(at, account)| (Machine(at as u16), account))
    }
}

/// What one machine has to tell another of truncation. It goes on the back of messages.
#[derive(Default)]
pub struct Owed {
    pub truncate: Vec<Number>,
    pub truncated: Vec<Number>,
}

/// So that lists of one bundle stay short.
const NUMBERS_MAX: usize = 1000;

impl Owed {
    pub fn is_empty(&self) -> bool {
        self.truncate.is_empty() && self.truncated.is_empty()
    }

    /// Takes at most so many numbers.
    pub fn take(&mut self, below: Number, most: usize) -> Truncation {
        let first = |numbers: &mut Vec<Number>, most: usize| match numbers.len() > most {
            true => numbers.drain(..most).collect(),
            false => std::mem::take(numbers),
        };
        let most = most.min(NUMBERS_MAX);
        let truncate = first(&mut self.truncate, most);
        let truncated = first(&mut self.truncated, most - truncate.len());
        Truncation {
            below,
            truncate,
            truncated,
        }
    }
}
