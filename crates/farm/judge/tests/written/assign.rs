//! Looks for outcomes of those whose outcome nobody was told, by trying all of them.

use super::*;

/// So many are tried, at most.
const TRIES_MAX: usize = 30_000;

/// Tells whether the unknown outcomes can have been such that nothing is wrong by timestamps. What is left to be
/// judged has no unknown outcome. `None` if there are too many.
pub fn has_outcomes(history: &History) -> Option<bool> {
    let open: Vec<usize> = (0..history.transactions.len())
        .filter(|&at| {
            let t = &history.transactions[at];
            matches!(t.outcome, Outcome::Unknown(_)) && !t.writes.is_empty()
        })
        .collect();
    let choices: Vec<Vec<Outcome>> = open
        .iter()
        .map(|&at| outcomes(history, at, open.len() as u64))
        .collect();
    let tries = choices
        .iter()
        .try_fold(1usize, |all, some| all.checked_mul(some.len()));
    tries.filter(|tries| *tries <= TRIES_MAX)?;
    let mut tried = history.clone();
    Some(tries_on(&mut tried, &open, &choices))
}

/// With `count` of them, that many different timestamps between two that are known are enough.
fn outcomes(history: &History, at: usize, count: u64) -> Vec<Outcome> {
    let t = &history.transactions[at];
    let read_at = t.read_timestamp.expect("who writes has one");
    let mut all = vec![Outcome::Aborted];
    if let Outcome::Unknown(Some(wrote_at)) = t.outcome {
        all.push(Outcome::Committed(wrote_at));
        return all;
    }
    let mut known: Vec<Timestamp> = Vec::new();
    for t in &history.transactions {
        known.extend(t.read_timestamp);
        if let Outcome::Committed(wrote_at) | Outcome::Unknown(Some(wrote_at)) = t.outcome {
            known.push(wrote_at);
        }
    }
    let mut timestamps: Vec<Timestamp> = known
        .iter()
        .flat_map(|known| *known..=known + count)
        .filter(|timestamp| *timestamp > read_at)
        .collect();
    timestamps.sort_unstable();
    timestamps.dedup();
    all.extend(timestamps.into_iter().map(Outcome::Committed));
    all
}

fn tries_on(tried: &mut History, open: &[usize], choices: &[Vec<Outcome>]) -> bool {
    let Some((&at, open)) = open.split_first() else {
        return judge_by_timestamps(tried).is_ok();
    };
    choices[0].iter().any(|&outcome| {
        let t = &mut tried.transactions[at];
        t.outcome = outcome;
        // Nobody was told of its end, so nothing begins after that.
        t.end = NEVER - 1;
        tries_on(tried, open, &choices[1..])
    })
}
