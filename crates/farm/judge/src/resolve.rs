//! Decides which transactions of unknown outcome took effect, and when.
//!
//! One took effect if anybody read what it wrote, found an object absent that only it can have freed, or changed one
//! without a look at it that only it can have allocated. What nobody saw makes no difference. So the history should
//! end with a transaction that reads everything.
//!
//! What an object was before the history is not known until somebody tells: it may have been absent.
//!
//! If its write timestamp is not known, the latest one is taken that agrees with those who saw it and those who
//! replaced what it saw. Those who saw it bound it from above; a bound from below is what the judges check.

use crate::bound::{latest, lower};
use crate::history::{History, Outcome, Timestamp, Transaction};
use crate::prepare::{Prepared, Saw, versions_of};
use crate::unseen::{self, Choice, Guesses};
use crate::violation::Violation;

/// So many ways to explain what nobody names are tried.
const TRIES_MAX: usize = 40;

/// Judges a history with the first way to explain it that is accepted, and returns it. Otherwise the violation is that
/// of the best one.
pub(crate) fn judged<'a>(
    history: &'a History,
    judge: impl Fn(&Prepared<'a>) -> Result<(), Box<Violation>>,
) -> Result<Prepared<'a>, Box<Violation>> {
    let mut prepared = Prepared::new(history)?;
    // Each without some that were only guessed to have taken effect.
    let mut ways: Vec<Vec<u32>> = vec![Vec::new()];
    let mut first = None;
    let mut next = 0;
    while let Some(without) = ways.get(next).cloned() {
        next += 1;
        let mut guesses = Guesses {
            without,
            made: Vec::new(),
        };
        prepared.wrote_at = wrote_at(&prepared, &mut guesses);
        prepared.versions = versions_of(&prepared, |t| prepared.wrote_at[t as usize]);
        let Err(violation) = judge(&prepared) else {
            return Ok(prepared);
        };
        first.get_or_insert(violation);
        for guess in guesses.made {
            let mut without = guesses.without.clone();
            without.push(guess);
            without.sort_unstable();
            if ways.len() < TRIES_MAX && !ways.contains(&without) {
                ways.push(without);
            }
        }
    }
    Err(first.expect("there is one way at least"))
}

/// Of each transaction: the timestamp of its versions, if it took effect.
fn wrote_at(prepared: &Prepared<'_>, guesses: &mut Guesses) -> Vec<Option<Timestamp>> {
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
            if !unseen::find(prepared, &known, choice, (&mut seen, guesses)) {
                break;
            }
            inferred = settle(prepared, &seen, &mut known);
        }
    }
    refine(prepared, &inferred, &mut known);
    known
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
            let bound = latest(prepared, &versions, number, known[number as usize]);
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
