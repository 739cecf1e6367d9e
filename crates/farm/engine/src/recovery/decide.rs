//! What becomes of transactions. Pure.
//!
//! A primary gathers what the whole replicas of its region know into votes, and the master gathers the votes:
//!
//! - Who knows that a transaction is committed, decides. Somebody may have seen it.
//! - Otherwise it is committed if each whole replica of each region that it wrote knows of it, and one knows the
//!   timestamp. So whoever dies next, no region loses writes that another region already shows.
//! - Otherwise nobody has seen it: its coordinator sends CommitPrimary when all backups have CommitBackup, which is
//!   after all primaries have their locks. It has no effect.
//!
//! That no one contradicts it later follows from how decisions are kept: see the parent.

use super::members::Members;
use super::messages::{Author, Below, Decision, Fate, Id, Record, Redone, Vote};
use crate::wire::{Number, Write};
use plinth_farm_fabric::Machine;
use plinth_runtime::{nobody_has_lied, probe};
use std::collections::{BTreeMap, BTreeSet};

/// What all whole replicas of a region know of a transaction.
#[derive(Default)]
struct Merged {
    knowers: BTreeSet<Machine>,
    regions: Vec<u16>,
    is_proof: bool,
    is_open: bool,
    written_at: Option<u64>,
    writes: Vec<Write>,
}

impl Merged {
    fn add(&mut self, replica: Machine, record: Record) {
        self.knowers.insert(replica);
        // What is truncated is known without its regions.
        if self.regions.is_empty() {
            self.regions = record.regions;
        }
        self.is_proof |= record.state.is_proof();
        self.is_open |= record.state.is_open();
        self.written_at = self.written_at.max(record.state.written_at());
        if self.writes.is_empty() {
            self.writes = record.writes;
        }
    }
}

/// What a primary has heard of its region.
#[derive(Default)]
pub struct Gathered {
    heard: BTreeMap<Machine, Vec<Below>>,
    merged: BTreeMap<Id, Merged>,
}

fn is_below(below: &[Below], id: Id) -> bool {
    let mut mine = below.iter().filter(|below| below.author == id.author);
    mine.any(|below| id.number < below.number)
}

impl Gathered {
    /// The first word of a replica counts.
    pub fn add(&mut self, replica: Machine, records: Vec<Record>, below: Vec<Below>) {
        if self.heard.contains_key(&replica) {
            return;
        }
        self.heard.insert(replica, below);
        for record in records {
            let merged = self.merged.entry(record.id).or_default();
            merged.add(replica, record);
        }
    }

    /// Transactions that somebody knows of.
    pub fn count(&self) -> usize {
        self.merged.len()
    }

    pub fn has_all(&self, mut whole: impl Iterator<Item = Machine>) -> bool {
        whole.all(|machine| self.heard.contains_key(&machine))
    }

    pub fn votes(&self) -> Vec<Vote> {
        let vote = |(id, merged): (&Id, &Merged)| Vote {
            id: *id,
            regions: merged.regions.clone(),
            is_everywhere: self
                .heard
                .iter()
                .all(|(replica, below)| merged.knowers.contains(replica) || is_below(below, *id)),
            is_proof: merged.is_proof,
            is_open: merged.is_open,
            written_at: merged.written_at,
        };
        self.merged.iter().map(vote).collect()
    }

    /// Of each author, what is below at all replicas.
    pub fn below(&self) -> Vec<Below> {
        let mut all: BTreeMap<Author, BTreeMap<Machine, Number>> = BTreeMap::new();
        for (replica, below) in &self.heard {
            for below in below {
                let numbers = all.entry(below.author).or_default();
                numbers.insert(*replica, below.number);
            }
        }
        all.retain(|_, numbers| numbers.len() == self.heard.len());
        let lowest = |(author, numbers): (Author, BTreeMap<Machine, Number>)| Below {
            author,
            number: numbers.into_values().min().unwrap_or_default(),
        };
        all.into_iter().map(lowest).collect()
    }

    /// What is to be redone in this region; no writes if nobody has them, so that all have applied them.
    pub fn redone(&self, id: Id, written_at: u64) -> Option<Redone> {
        let merged = self.merged.get(&id)?;
        Some(Redone {
            id,
            regions: merged.regions.clone(),
            written_at,
            writes: merged.writes.clone(),
        })
    }
}

/// All that the master hears.
#[derive(Default)]
pub struct Council {
    asked: BTreeMap<Machine, Vec<Number>>,
    votes: BTreeMap<u16, (Vec<Vote>, Vec<Below>)>,
}

/// A transaction, from all its regions.
#[derive(Default)]
struct Case {
    regions: BTreeSet<u16>,
    everywhere: BTreeSet<u16>,
    is_proof: bool,
    is_open: bool,
    written_at: Option<u64>,
}

impl Council {
    pub fn here(&mut self, machine: Machine, asked: Vec<Number>) {
        self.asked.entry(machine).or_insert(asked);
    }

    pub fn voted(&mut self, region: u16, votes: Vec<Vote>, below: Vec<Below>) {
        self.votes.entry(region).or_insert((votes, below));
    }

    pub fn is_complete(&self, members: &Members) -> bool {
        members.machines().all(|m| self.asked.contains_key(&m))
            && members.numbers().all(|r| self.votes.contains_key(&r))
    }

    /// What to say to each member: of transactions that wrote in regions of which it is the primary, and of those it
    /// has asked for. Those that are applied everywhere, and that nobody asks for, are left out: they are settled.
    pub fn decide(&self, members: &Members) -> BTreeMap<Machine, Vec<Decision>> {
        let cases = self.cases();
        let mut said: BTreeMap<Machine, BTreeMap<Id, Fate>> =
            members.machines().map(|m| (m, BTreeMap::new())).collect();
        let asked = self.asked(members);
        for (id, case) in &cases {
            if !case.is_open && !asked.contains(id) {
                continue;
            }
            let fate = self.fate(*id, case);
            for primary in case.regions.iter().filter_map(|r| members.primary(*r)) {
                said.entry(primary).or_default().insert(*id, fate);
            }
        }
        for id in asked {
            let case = cases.get(&id);
            let fate = case.map_or(Fate::WithoutEffect, |case| self.fate(id, case));
            let own = said.entry(id.author.machine).or_default();
            own.insert(id, fate);
        }
        let list = |fates: BTreeMap<Id, Fate>| {
            let decisions = fates.into_iter();
            decisions.map(|(id, fate)| Decision { id, fate }).collect()
        };
        said.into_iter()
            .map(|(m, fates)| (m, list(fates)))
            .collect()
    }

    fn asked(&self, members: &Members) -> BTreeSet<Id> {
        let lives = self.asked.iter();
        let lives = lives.filter_map(|(m, numbers)| Some((members.author(*m)?, numbers)));
        let ids = |(author, numbers): (Author, &Vec<Number>)| {
            let ids = numbers.iter().map(move |&number| Id { author, number });
            ids.collect::<Vec<_>>()
        };
        lives.flat_map(ids).collect()
    }

    fn cases(&self) -> BTreeMap<Id, Case> {
        let mut cases: BTreeMap<Id, Case> = BTreeMap::new();
        for (region, (votes, _)) in &self.votes {
            for vote in votes {
                let case = cases.entry(vote.id).or_default();
                case.regions.extend(vote.regions.iter().copied());
                case.regions.insert(*region);
                if vote.is_everywhere {
                    case.everywhere.insert(*region);
                }
                case.is_proof |= vote.is_proof;
                case.is_open |= vote.is_open;
                case.written_at = case.written_at.max(vote.written_at);
            }
        }
        cases
    }

    fn fate(&self, id: Id, case: &Case) -> Fate {
        let is_known = |region: &u16| {
            let votes = self.votes.get(region);
            case.everywhere.contains(region) || votes.is_some_and(|(_, below)| is_below(below, id))
        };
        let is_committed = case.is_proof || case.regions.iter().all(is_known);
        match case.written_at {
            Some(written_at) if is_committed => Fate::Committed { written_at },
            Some(_) => Fate::WithoutEffect,
            None => {
                // Who truncates knows that all backups have the timestamp, and they keep it as long. It has an effect
                // somewhere, so it must not be decided that it has none. The votes are of others.
                let knows_no_time = case.is_proof && case.is_open;
                assert!(
                    !knows_no_time || !nobody_has_lied(),
                    "{id:?} is committed and open in regions {:?}, and nobody knows its time",
                    case.regions
                );
                if knows_no_time {
                    probe!("farm recovery knows no timestamp of what is truncated");
                }
                Fate::WithoutEffect
            }
        }
    }
}
