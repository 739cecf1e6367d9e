//! Finds transactions that took effect though nobody read what they wrote.
//!
//! Readers of a freed object do not learn who freed it. Who changes an object without a look at it does not learn who
//! allocated it.

use crate::bound::{latest, lower};
use crate::history::{Change, Outcome, Timestamp};
use crate::prepare::{Groups, Prepared, ReadOf, Saw, Version, versions_of};
use std::collections::BTreeMap;

/// Who may be taken for the one that freed or allocated an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Only one of which is known that it took effect.
    Known,
    /// Also one if no other could.
    Only,
    /// The best one.
    Best,
    /// Also one that cannot be it: the judges will tell why.
    Any,
}

/// Transactions of which nothing proves that they took effect. Without them something else must explain what was seen.
pub(crate) struct Guesses {
    /// These are not guessed to have taken effect.
    pub without: Vec<u32>,
    pub made: Vec<u32>,
}

/// Lowers `seen`, when the effects of each were seen first, by what only those of unknown outcome explain. False if
/// that changed nothing.
pub(crate) fn find(
    prepared: &Prepared<'_>,
    known: &[Option<Timestamp>],
    choice: Choice,
    (seen, guesses): (&mut [Option<Timestamp>], &mut Guesses),
) -> bool {
    let mut candidates: Vec<Candidate> = Vec::new();
    for number in prepared.numbers() {
        let is_open = match prepared.transaction(number).outcome {
            // If it is known to have taken effect, it may have been earlier than who saw it says.
            Outcome::Unknown(None) => true,
            Outcome::Unknown(Some(_)) => known[number as usize].is_none(),
            _ => false,
        };
        let is_guess = known[number as usize].is_none();
        if !is_open || is_guess && guesses.without.contains(&number) {
            continue;
        }
        for write in prepared.writes.of(number) {
            if write.change != Change::Set {
                candidates.push(Candidate {
                    object: write.object,
                    number,
                    allocates: write.change == Change::Allocate,
                });
            }
        }
    }
    if candidates.is_empty() {
        return false;
    }
    candidates.sort_unstable_by_key(|candidate| (candidate.object, candidate.number));
    let sightings = sightings(prepared, known, &candidates);
    let last = sightings
        .iter()
        .filter_map(|sighting| Some(((sighting.object, sighting.saw?), sighting.at)));
    let search = Search {
        prepared,
        known,
        versions: versions_of(prepared, |t| known[t as usize]),
        seen_until: last.collect(),
        sightings,
        choice,
    };
    let mut is_changed = false;
    for of_one in candidates.chunk_by(|a, b| a.object == b.object) {
        is_changed |= search.explain(of_one[0].object, of_one.to_vec(), seen, guesses);
    }
    is_changed
}

/// One of unknown outcome that freed or allocated an object if it took effect.
#[derive(Clone, Copy)]
struct Candidate {
    object: u32,
    number: u32,
    allocates: bool,
}

struct Search<'f, 'a> {
    prepared: &'f Prepared<'a>,
    known: &'f [Option<Timestamp>],
    versions: Groups<Version>,
    /// Of all objects that candidates wrote, by object and time.
    sightings: Vec<Sighting>,
    /// When each version of those was seen last.
    seen_until: BTreeMap<(u32, Saw), Timestamp>,
    choice: Choice,
}

impl Search<'_, '_> {
    /// Finds who of `open` has freed `object` whenever it was found absent and nobody known has freed it, and who has
    /// allocated it whenever it was there and nobody known has. True if that changed anything.
    fn explain(
        &self,
        object: u32,
        mut open: Vec<Candidate>,
        seen: &mut [Option<Timestamp>],
        guesses: &mut Guesses,
    ) -> bool {
        let mut is_changed = false;
        let by_object = |sighting: &Sighting| sighting.object;
        let from = self.sightings.partition_point(|it| by_object(it) < object);
        let to = self.sightings.partition_point(|it| by_object(it) <= object);
        let sightings = &self.sightings[from..to];
        let versions = self.versions.of(object);
        // What it was before all versions. If nobody tells, the first sighting does.
        let was_there = sightings.iter().any(|it| it.saw == Some(Saw::Initial));
        let mut at_first = was_there.then_some(true);
        // The last change that was found, and when.
        let mut found: Option<(Timestamp, bool)> = None;
        for sighting in sightings {
            let at = sighting.at;
            let is_there = match sighting.saw {
                Some(Saw::Absent) => false,
                None => true,
                // It names the version.
                Some(_) => continue,
            };
            let before = versions.partition_point(|version| version.at <= at);
            let last = before.checked_sub(1).map(|place| versions[place]);
            let last_at = last.map(|version| version.at);
            let state = match (found, last) {
                (Some((from, state)), _) if Some(from) >= last_at => state,
                (_, Some(version)) => version.change != Change::Free,
                (_, None) => *at_first.get_or_insert(is_there),
            };
            if state == is_there {
                continue;
            }
            let what = match last {
                _ if is_there => Saw::Absent,
                Some(version) => Saw::By(version.writer),
                None => Saw::Initial,
            };
            if let Some(place) = self.best(&open, what, (last_at, at), seen) {
                let number = open.swap_remove(place).number;
                let bound = &mut seen[number as usize];
                if bound.is_none() {
                    guesses.made.push(number);
                }
                is_changed |= bound.is_none_or(|bound| at < bound);
                lower(bound, at);
                found = Some((at, is_there));
            }
        }
        is_changed
    }

    /// The place of the candidate that changed an object which was `what`, after the first timestamp and not after the
    /// second.
    fn best(
        &self,
        open: &[Candidate],
        what: Saw,
        between: (Option<Timestamp>, Timestamp),
        seen: &[Option<Timestamp>],
    ) -> Option<usize> {
        let ranked = (0..).zip(open).filter_map(|(place, candidate)| {
            let number = candidate.number;
            if candidate.allocates != (what == Saw::Absent) {
                return None;
            }
            let is_possible = self.choice == Choice::Any || self.is_possible(number, between);
            let is_known = self.known[number as usize]
                .or(seen[number as usize])
                .is_some();
            let rank = rank(self.prepared, candidate, what, is_known)?;
            is_possible.then_some((rank, place))
        });
        let ranked: Vec<(u32, usize)> = ranked.collect();
        let &(rank, place) = ranked.iter().min()?;
        let may_be_taken = match self.choice {
            Choice::Known => rank == 0,
            Choice::Only => rank == 0 || ranked.len() == 1,
            Choice::Best | Choice::Any => true,
        };
        may_be_taken.then_some(place)
    }

    /// True if `number` can have taken effect then, and after everybody who saw what it replaced.
    fn is_possible(&self, number: u32, between: (Option<Timestamp>, Timestamp)) -> bool {
        let prepared = self.prepared;
        let (last, until) = between;
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
            Outcome::Unknown(Some(wrote_at)) => {
                wrote_at <= until && Some(wrote_at) > after && Some(wrote_at) > last
            }
            _ => {
                let latest = latest(prepared, &self.versions, number, Some(until));
                Some(until) > after && latest.is_none_or(|at| Some(at) > after)
            }
        }
    }
}

/// How well it explains a change of an object that was `what`; the lower the better. Best is one of which is known
/// that it took effect. If it is not, and it wrote something else, nobody has seen that. Two that only freed, or
/// allocated, the same object cannot be told apart.
fn rank(prepared: &Prepared<'_>, candidate: &Candidate, what: Saw, is_known: bool) -> Option<u32> {
    let writes = prepared.writes.of(candidate.number);
    // Nobody who allocates has to look.
    let (relies, change) = match candidate.allocates {
        true => (false, Change::Allocate),
        false => (true, Change::Free),
    };
    match prepared.saw(candidate.number, candidate.object) {
        Some(saw) if saw != what => None,
        _ if is_known => Some(0),
        None if relies => Some(3),
        _ if writes.iter().all(|write| write.change == change) => Some(1),
        _ => Some(2),
    }
}

/// What somebody found at an object that candidates wrote.
struct Sighting {
    object: u32,
    at: Timestamp,
    /// `None` if it was there, and nobody looked what it was.
    saw: Option<Saw>,
}

/// By object and time.
fn sightings(
    prepared: &Prepared<'_>,
    known: &[Option<Timestamp>],
    candidates: &[Candidate],
) -> Vec<Sighting> {
    let written = candidates
        .iter()
        .flat_map(|candidate| prepared.writes.of(candidate.number));
    let mut asked: Vec<u32> = written.map(|write| write.object).collect();
    asked.sort_unstable();
    asked.dedup();
    let is_asked = |object: u32| asked.binary_search(&object).is_ok();
    let mut sightings = Vec::new();
    for number in prepared.numbers() {
        for &ReadOf { object, saw } in prepared.reads.of(number) {
            if is_asked(object) {
                let (at, saw) = (prepared.read_at(number), Some(saw));
                sightings.push(Sighting { object, at, saw });
            }
        }
        let Some(wrote_at) = known[number as usize] else {
            continue;
        };
        for write in prepared.writes.of(number) {
            let object = write.object;
            // Who has read it has been counted.
            if prepared.saw(number, object).is_some() || !is_asked(object) {
                continue;
            }
            let (at, saw) = match write.change {
                Change::Allocate => (wrote_at.saturating_sub(1), Some(Saw::Absent)),
                _ => (prepared.read_at(number), None),
            };
            sightings.push(Sighting { object, at, saw });
        }
    }
    sightings.sort_unstable_by_key(|sighting| (sighting.object, sighting.at, sighting.saw));
    sightings
}
