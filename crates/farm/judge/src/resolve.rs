//! Decides which transactions of unknown outcome took effect, and when.
//!
//! One took effect if anybody read what it wrote, or found an object absent that only it can have freed. What nobody
//! saw makes no difference. So the history should end with a transaction that reads everything.
//!
//! If its write timestamp is not known, the latest one is taken that agrees with those who saw it and those who
//! replaced what it saw. Those who saw it bound it from above; a bound from below is what the judges check.

use crate::history::{Change, History, Isolation, Outcome, Timestamp, Transaction};
use crate::prepare::{Groups, Prepared, ReadOf, Saw, Version, versions_of};
use crate::violation::Violation;
use std::collections::BTreeMap;

/// Reads a history, and tells what took effect.
pub(crate) fn prepare(history: &History) -> Result<Prepared<'_>, Box<Violation>> {
    let mut prepared = Prepared::new(history)?;
    prepared.wrote_at = wrote_at(&prepared);
    prepared.versions = versions_of(&prepared, |t| prepared.wrote_at[t as usize]);
    Ok(prepared)
}

/// Of each transaction: the timestamp of its versions, if it took effect.
fn wrote_at(prepared: &Prepared<'_>) -> Vec<Option<Timestamp>> {
    let mut known: Vec<Option<Timestamp>> = prepared
        .all
        .iter()
        .map(|t| match t.outcome {
            Outcome::Committed(at) => Some(at),
            _ => None,
        })
        .collect();
    let has_unknown =
        |t: &Transaction| matches!(t.outcome, Outcome::Unknown(_)) && !t.writes.is_empty();
    if !prepared.all.iter().any(has_unknown) {
        return known;
    }
    // The earliest timestamp at which somebody saw what it did.
    let mut seen: Vec<Option<Timestamp>> = vec![None; known.len()];
    for reader in prepared.numbers() {
        for read in prepared.reads.of(reader) {
            if let Saw::By(writer) = read.saw {
                lower(&mut seen[writer as usize], prepared.read_at(reader));
            }
        }
    }
    let mut inferred = settle(prepared, &seen, &mut known);
    // What is certain of one object helps to choose at another.
    for choice in [Choice::Known, Choice::Only, Choice::Best, Choice::Any] {
        for _ in 0..ROUNDS_MAX {
            if !frees(prepared, &known, choice, &mut seen) {
                break;
            }
            inferred = settle(prepared, &seen, &mut known);
        }
    }
    refine(prepared, &inferred, &mut known);
    known
}

/// Who may be taken for the one that freed an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// Only one of which is known that it took effect.
    Known,
    /// Also one if no other could.
    Only,
    /// The best one.
    Best,
    /// Also one that cannot be it: the judges will tell why.
    Any,
}

fn lower(bound: &mut Option<Timestamp>, by: Timestamp) {
    *bound = Some(bound.map_or(by, |bound| bound.min(by)));
}

/// Gives a timestamp to those of unknown outcome that somebody saw: `seen` is when first. Returns those
/// whose own timestamp is not known.
fn settle(
    prepared: &Prepared<'_>,
    seen: &[Option<Timestamp>],
    known: &mut [Option<Timestamp>],
) -> Vec<u32> {
    let mut inferred = Vec::new();
    for number in prepared.numbers() {
        if let (Outcome::Unknown(at), Some(seen)) =
            (prepared.transaction(number).outcome, seen[number as usize])
        {
            known[number as usize] = Some(at.unwrap_or(seen));
            if at.is_none() {
                inferred.push(number);
            }
        }
    }
    inferred
}

/// Lowers timestamps that were inferred until nobody has replaced before what they relied on.
fn refine(prepared: &Prepared<'_>, inferred: &[u32], known: &mut [Option<Timestamp>]) {
    // One bound may lower another. Circles of bounds do not end; the judges will refuse them.
    for _ in 0..ROUNDS_MAX {
        let versions = versions_of(prepared, |t| known[t as usize]);
        let mut is_changed = false;
        for &number in inferred {
            let bound = latest(prepared, &versions, number);
            let at = &mut known[number as usize];
            is_changed |= bound < *at && bound.is_some();
            *at = (*at).min(bound.or(*at));
        }
        if !is_changed {
            return;
        }
    }
}

const ROUNDS_MAX: usize = 30;

/// The latest write timestamp at which nobody has replaced yet what it relied on.
fn latest(prepared: &Prepared<'_>, versions: &Groups<Version>, number: u32) -> Option<Timestamp> {
    let read_at = prepared.read_at(number);
    let next_of = |object: u32| {
        let versions = versions.of(object);
        let next = versions.partition_point(|version| version.at <= read_at);
        versions[next..]
            .iter()
            .find(|version| version.writer != number)
    };
    let mut latest = None;
    for write in prepared.writes.of(number) {
        if let Some(next) = next_of(write.object) {
            let bound = match prepared.relies_on(next.writer, next.object, next.change) {
                false => next.at.saturating_sub(1),
                true => prepared.read_at(next.writer),
            };
            lower(&mut latest, bound);
        }
    }
    if prepared.transaction(number).options.isolation == Isolation::Serializable {
        for read in prepared.reads.of(number) {
            if let Some(next) = next_of(read.object) {
                lower(&mut latest, next.at.saturating_sub(1));
            }
        }
    }
    latest
}

/// Finds transactions that only an absent object tells of: readers of a freed object do not learn who freed it. False
/// if that changed nothing.
fn frees(
    prepared: &Prepared<'_>,
    known: &[Option<Timestamp>],
    choice: Choice,
    seen: &mut [Option<Timestamp>],
) -> bool {
    let mut candidates: Vec<(u32, u32)> = Vec::new();
    for number in prepared.numbers() {
        let is_open = match prepared.transaction(number).outcome {
            // If it is known to have taken effect, it may have been earlier than who saw it says.
            Outcome::Unknown(None) => true,
            Outcome::Unknown(Some(_)) => known[number as usize].is_none(),
            _ => false,
        };
        if is_open {
            let writes = prepared.writes.of(number).iter();
            let freed = writes.filter(|write| write.change == Change::Free);
            candidates.extend(freed.map(|write| (write.object, number)));
        }
    }
    if candidates.is_empty() {
        return false;
    }
    candidates.sort_unstable();
    let sightings = sightings(prepared, known, &candidates);
    let last = sightings
        .iter()
        .map(|sighting| ((sighting.object, sighting.saw), sighting.at));
    let frees = Frees {
        prepared,
        known,
        versions: versions_of(prepared, |t| known[t as usize]),
        seen_until: last.collect(),
        sightings,
        choice,
    };
    let mut is_changed = false;
    for freed in candidates.chunk_by(|a, b| a.0 == b.0) {
        let open = freed.iter().map(|candidate| candidate.1).collect();
        is_changed |= frees.explain(freed[0].0, open, seen);
    }
    is_changed
}

struct Frees<'f, 'a> {
    prepared: &'f Prepared<'a>,
    known: &'f [Option<Timestamp>],
    versions: Groups<Version>,
    /// Of all objects that candidates wrote, by object and time.
    sightings: Vec<Sighting>,
    /// When each version of those was seen last.
    seen_until: BTreeMap<(u32, Saw), Timestamp>,
    choice: Choice,
}

impl Frees<'_, '_> {
    /// Finds who of `open` has freed `object` whenever it was found absent and nobody known has freed it. True if that
    /// changed anything.
    fn explain(&self, object: u32, mut open: Vec<u32>, seen: &mut [Option<Timestamp>]) -> bool {
        let mut is_changed = false;
        let from = self
            .sightings
            .partition_point(|sighting| sighting.object < object);
        let to = self
            .sightings
            .partition_point(|sighting| sighting.object <= object);
        let versions = self.versions.of(object);
        // When the last one was found.
        let mut absent_from = None;
        for sighting in &self.sightings[from..to] {
            let at = sighting.at;
            if sighting.saw != Saw::Absent {
                continue;
            }
            let before = versions.partition_point(|version| version.at <= at);
            let last = before.checked_sub(1).map(|place| versions[place]);
            let last_at = last.map(|version| version.at);
            let is_absent = last.is_some_and(|version| version.change == Change::Free);
            if is_absent || absent_from.is_some_and(|from| Some(from) >= last_at) {
                continue;
            }
            let what = last.map_or(Saw::Initial, |version| Saw::By(version.writer));
            let ranked = (0..).zip(&open).filter_map(|(place, &number)| {
                let is_possible = self.choice == Choice::Any || self.is_possible(number, at);
                let is_known = self.known[number as usize]
                    .or(seen[number as usize])
                    .is_some();
                let rank = rank(self.prepared, number, object, what, is_known)?;
                is_possible.then_some((rank, place))
            });
            let ranked: Vec<(u32, usize)> = ranked.collect();
            let Some(&(rank, place)) = ranked.iter().min() else {
                continue;
            };
            let may_be_taken = match self.choice {
                Choice::Known => rank == 0,
                Choice::Only => rank == 0 || ranked.len() == 1,
                Choice::Best | Choice::Any => true,
            };
            if may_be_taken {
                let bound = &mut seen[open.swap_remove(place) as usize];
                is_changed |= bound.is_none_or(|bound| at < bound);
                lower(bound, at);
                absent_from = Some(at);
            }
        }
        is_changed
    }

    /// True if `number` can have taken effect until a timestamp, and after everybody who saw what it replaced.
    fn is_possible(&self, number: u32, until: Timestamp) -> bool {
        let prepared = self.prepared;
        let replaced = prepared.writes.of(number).iter().filter_map(|write| {
            let saw = prepared.saw(number, write.object)?;
            // An object may be absent again and again.
            if saw == Saw::Absent {
                return None;
            }
            self.seen_until.get(&(write.object, saw)).copied()
        });
        let after = replaced
            .max()
            .max(prepared.transaction(number).read_timestamp);
        match prepared.transaction(number).outcome {
            Outcome::Unknown(Some(wrote_at)) => wrote_at <= until && Some(wrote_at) > after,
            _ => {
                let latest = latest(prepared, &self.versions, number);
                Some(until) > after && latest.is_none_or(|at| Some(at) > after)
            }
        }
    }
}

/// How well it explains that `number` freed an object that was `what`; the lower the better. Best is one of which is
/// known that it took effect. If it is not, and it wrote something else, nobody has seen that. Two that only freed the
/// same object cannot be told apart.
fn rank(
    prepared: &Prepared<'_>,
    number: u32,
    object: u32,
    what: Saw,
    is_known: bool,
) -> Option<u32> {
    let writes = prepared.writes.of(number);
    match prepared.saw(number, object) {
        Some(saw) if saw != what => None,
        Some(_) if is_known => Some(0),
        Some(_) if writes.iter().all(|write| write.change == Change::Free) => Some(1),
        Some(_) => Some(2),
        None => Some(3),
    }
}

/// What somebody found at an object that candidates wrote.
struct Sighting {
    object: u32,
    at: Timestamp,
    saw: Saw,
}

/// By object and time.
fn sightings(
    prepared: &Prepared<'_>,
    known: &[Option<Timestamp>],
    candidates: &[(u32, u32)],
) -> Vec<Sighting> {
    let written = candidates
        .iter()
        .flat_map(|candidate| prepared.writes.of(candidate.1));
    let mut asked: Vec<u32> = written.map(|write| write.object).collect();
    asked.sort_unstable();
    asked.dedup();
    let is_asked = |object: u32| asked.binary_search(&object).is_ok();
    let mut sightings = Vec::new();
    for number in prepared.numbers() {
        for &ReadOf { object, saw } in prepared.reads.of(number) {
            if is_asked(object) {
                let at = prepared.read_at(number);
                sightings.push(Sighting { object, at, saw });
            }
        }
        let Some(at) = known[number as usize] else {
            continue;
        };
        for write in prepared.writes.of(number) {
            // Who has read it has been counted.
            let is_blind = !prepared.relies_on(number, write.object, write.change);
            if is_blind && is_asked(write.object) {
                sightings.push(Sighting {
                    object: write.object,
                    at: at.saturating_sub(1),
                    saw: Saw::Absent,
                });
            }
        }
    }
    sightings.sort_unstable_by_key(|sighting| (sighting.object, sighting.at, sighting.saw));
    sightings
}
