//! Decides which transactions of unknown outcome took effect, and when.
//!
//! One took effect if anybody read what it wrote, or found an object absent that only it can have freed. What nobody
//! saw makes no difference. So the history should end with a transaction that reads everything.
//!
//! If its write timestamp is not known, the latest one is taken that agrees with those who saw it and those who
//! replaced what it saw. Those who saw it bound it from above; a bound from below is what the judges check.

use crate::history::{Change, Isolation, Outcome, Timestamp};
use crate::prepare::{Groups, Prepared, Saw, Version, versions_of};

/// Of each transaction: the timestamp of its versions, if it took effect.
pub(crate) fn wrote_at(prepared: &Prepared<'_>) -> Vec<Option<Timestamp>> {
    let mut known: Vec<Option<Timestamp>> = prepared
        .all
        .iter()
        .map(|t| match t.outcome {
            Outcome::Committed(at) => Some(at),
            _ => None,
        })
        .collect();
    let has_unknown =
        |t: &crate::Transaction| matches!(t.outcome, Outcome::Unknown(_)) && !t.writes.is_empty();
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
    let versions = versions_of(prepared, |t| known[t as usize]);
    for number in prepared.numbers() {
        settle(
            prepared,
            &versions,
            number,
            seen[number as usize],
            &mut known,
        );
    }
    frees(prepared, &mut known);
    known
}

fn lower(bound: &mut Option<Timestamp>, by: Timestamp) {
    *bound = Some(bound.map_or(by, |bound| bound.min(by)));
}

/// Gives `number` a timestamp if its outcome is unknown and somebody saw it at `seen`.
fn settle(
    prepared: &Prepared<'_>,
    versions: &Groups<Version>,
    number: u32,
    seen: Option<Timestamp>,
    known: &mut [Option<Timestamp>],
) {
    let (Outcome::Unknown(at), Some(seen)) = (prepared.transaction(number).outcome, seen) else {
        return;
    };
    known[number as usize] = Some(at.unwrap_or_else(|| latest(prepared, versions, number, seen)));
}

/// The latest write timestamp that it can have, if it was seen at `seen`.
fn latest(
    prepared: &Prepared<'_>,
    versions: &Groups<Version>,
    number: u32,
    seen: Timestamp,
) -> Timestamp {
    let read_at = prepared.read_at(number);
    let mut latest = seen;
    let next_of = |object: u32| {
        let versions = versions.of(object);
        let next = versions.partition_point(|version| version.at <= read_at);
        versions.get(next).copied()
    };
    for write in prepared.writes.of(number) {
        if let Some(next) = next_of(write.object) {
            latest = latest.min(match next.change {
                Change::Allocate => next.at.saturating_sub(1),
                _ => prepared.read_at(next.writer),
            });
        }
    }
    if prepared.transaction(number).options.isolation == Isolation::Serializable {
        for read in prepared.reads.of(number) {
            if let Some(next) = next_of(read.object) {
                latest = latest.min(next.at.saturating_sub(1));
            }
        }
    }
    latest
}

/// A moment at which an object was found absent.
struct Absence {
    object: u32,
    at: Timestamp,
}

/// Settles transactions that only an absent object tells of. Readers of a freed object do not learn who freed it.
fn frees(prepared: &Prepared<'_>, known: &mut [Option<Timestamp>]) {
    let mut candidates: Vec<(u32, u32)> = Vec::new();
    for number in prepared.numbers() {
        let is_open = matches!(prepared.transaction(number).outcome, Outcome::Unknown(_));
        if is_open && known[number as usize].is_none() {
            let freed = prepared
                .writes
                .of(number)
                .iter()
                .filter(|write| write.change == Change::Free);
            candidates.extend(freed.map(|write| (write.object, number)));
        }
    }
    candidates.sort_unstable();
    if candidates.is_empty() {
        return;
    }
    for absence in absences(prepared, known, &candidates) {
        let versions = versions_of(prepared, |t| known[t as usize]);
        let of_object = versions.of(absence.object);
        let before = of_object.partition_point(|version| version.at <= absence.at);
        let last = before.checked_sub(1).map(|at| of_object[at]);
        if last.is_some_and(|version| version.change == Change::Free) {
            continue;
        }
        let what = last.map_or(Saw::Initial, |version| Saw::By(version.writer));
        let from = candidates.partition_point(|candidate| candidate.0 < absence.object);
        let freed_it = candidates[from..]
            .iter()
            .take_while(|candidate| candidate.0 == absence.object)
            .map(|candidate| candidate.1)
            .find(|&number| {
                let reads = prepared.reads.of(number);
                let saw_it = |read: &crate::prepare::ReadOf| {
                    read.object == absence.object && read.saw == what
                };
                known[number as usize].is_none() && reads.iter().any(saw_it)
            });
        if let Some(number) = freed_it {
            settle(prepared, &versions, number, Some(absence.at), known);
        }
    }
}

/// Where objects that candidates freed were found absent, by time.
fn absences(
    prepared: &Prepared<'_>,
    known: &[Option<Timestamp>],
    candidates: &[(u32, u32)],
) -> Vec<Absence> {
    let is_asked = |object: u32| {
        candidates
            .binary_search_by_key(&object, |candidate| candidate.0)
            .is_ok()
    };
    let mut absences = Vec::new();
    for number in prepared.numbers() {
        for read in prepared.reads.of(number) {
            if read.saw == Saw::Absent && is_asked(read.object) {
                absences.push(Absence {
                    object: read.object,
                    at: prepared.read_at(number),
                });
            }
        }
        let Some(at) = known[number as usize] else {
            continue;
        };
        for write in prepared.writes.of(number) {
            if write.change == Change::Allocate && is_asked(write.object) {
                absences.push(Absence {
                    object: write.object,
                    at: at.saturating_sub(1),
                });
            }
        }
    }
    absences.sort_unstable_by_key(|absence| (absence.at, absence.object));
    absences
}
