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
    settle(prepared, &seen, &mut known);
    if frees(prepared, &known, &mut seen) {
        settle(prepared, &seen, &mut known);
    }
    known
}

fn lower(bound: &mut Option<Timestamp>, by: Timestamp) {
    *bound = Some(bound.map_or(by, |bound| bound.min(by)));
}

/// Gives a timestamp to those of unknown outcome that somebody saw: `seen` is when first.
fn settle(prepared: &Prepared<'_>, seen: &[Option<Timestamp>], known: &mut [Option<Timestamp>]) {
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
    // One bound may lower another. Circles of bounds do not end; the judges will refuse them.
    for _ in 0..ROUNDS_MAX {
        let versions = versions_of(prepared, |t| known[t as usize]);
        let mut is_changed = false;
        for &number in &inferred {
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
            let bound = match next.change {
                Change::Allocate => next.at.saturating_sub(1),
                _ => prepared.read_at(next.writer),
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
/// if there is none that could be one.
fn frees(
    prepared: &Prepared<'_>,
    known: &[Option<Timestamp>],
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
    let versions = versions_of(prepared, |t| known[t as usize]);
    let sightings = sightings(prepared, known, &candidates);
    for freed in candidates.chunk_by(|a, b| a.0 == b.0) {
        let object = freed[0].0;
        let from = sightings.partition_point(|sighting| sighting.object < object);
        let to = sightings.partition_point(|sighting| sighting.object <= object);
        let mut open: Vec<u32> = freed.iter().map(|candidate| candidate.1).collect();
        // When the last one was found, and until when each version was seen.
        let mut absent_from = None;
        let mut seen_until: BTreeMap<Saw, Timestamp> = BTreeMap::new();
        for sighting in &sightings[from..to] {
            let at = sighting.at;
            if sighting.saw != Saw::Absent {
                seen_until.insert(sighting.saw, at);
                continue;
            }
            let of_object = versions.of(object);
            let before = of_object.partition_point(|version| version.at <= at);
            let last = before.checked_sub(1).map(|place| of_object[place]);
            let last_at = last.map(|version| version.at);
            let is_absent = last.is_some_and(|version| version.change == Change::Free);
            if is_absent || absent_from.is_some_and(|from| Some(from) >= last_at) {
                continue;
            }
            let what = last.map_or(Saw::Initial, |version| Saw::By(version.writer));
            let is_here = |number: u32| rank(prepared, known, number, object, what);
            let can = |number: u32| match prepared.transaction(number).outcome {
                Outcome::Unknown(Some(wrote_at)) => {
                    wrote_at <= at && Some(&wrote_at) > seen_until.get(&what)
                }
                _ => prepared.read_at(number) < at,
            };
            let can_be = (0..).zip(&open).filter(|(_, number)| can(**number));
            let ranked = can_be.filter_map(|(place, &number)| Some((is_here(number)?, place)));
            if let Some((_, place)) = ranked.min() {
                lower(&mut seen[open.swap_remove(place) as usize], at);
                absent_from = Some(at);
            }
        }
    }
    true
}

/// How well it explains that `number` freed an object that was `what`; the lower the better. Best is one of which is
/// known that it took effect. If it is not, and it wrote something else, nobody has seen that. Two that only freed the
/// same object cannot be told apart.
fn rank(
    prepared: &Prepared<'_>,
    known: &[Option<Timestamp>],
    number: u32,
    object: u32,
    what: Saw,
) -> Option<u32> {
    let writes = prepared.writes.of(number);
    match (
        prepared.saw(number, object),
        known[number as usize].is_some(),
    ) {
        (Some(saw), _) if saw != what => None,
        (Some(_), true) => Some(0),
        (Some(_), false) if writes.iter().all(|write| write.change == Change::Free) => Some(1),
        (Some(_), false) => Some(2),
        (None, _) => Some(3),
    }
}

/// What somebody found at an object that candidates freed.
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
    let is_asked = |object: u32| {
        candidates
            .binary_search_by_key(&object, |candidate| candidate.0)
            .is_ok()
    };
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
            if write.change == Change::Allocate && is_asked(write.object) {
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
