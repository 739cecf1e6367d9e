//! How fast numbers grow, over the last few seconds.

use plinth_core::Uid;
use plinth_protocol::control::{Count, RoleCounts};
use plinth_runtime::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// A rate is an average over so long.
const WINDOW: Duration = Duration::from_secs(5);

/// Whose number it is, `None` for the process itself, and its name.
type Key = (Option<Uid>, &'static str);

#[derive(Default)]
pub struct Rates(BTreeMap<Key, VecDeque<(Instant, u64)>>);

impl Rates {
    /// Takes in the present numbers. Those that are not among them are forgotten.
    pub fn note(&mut self, now: Instant, numbers: impl IntoIterator<Item = (Key, u64)>) {
        let mut noted = BTreeMap::new();
        for (key, total) in numbers {
            let mut history = self.0.remove(&key).unwrap_or_default();
            let last = history.back().map(|(at, _)| *at);
            assert!(
                last.is_none_or(|last| last <= now),
                "{key:?} at {now:?} after {last:?}"
            );
            history.push_back((now, total));
            // One from before the window stays: the average begins there.
            while history
                .get(1)
                .is_some_and(|(at, _)| now.saturating_since(*at) >= WINDOW)
            {
                history.pop_front();
            }
            noted.insert(key, history);
        }
        self.0 = noted;
    }

    pub fn of_process(&self) -> Vec<Count> {
        let own = self.0.iter().filter(|((role, _), _)| role.is_none());
        own.map(|((_, name), history)| count(name, history))
            .collect()
    }

    pub fn of_roles(&self) -> Vec<RoleCounts> {
        let mut roles: BTreeMap<Uid, Vec<Count>> = BTreeMap::new();
        for ((role, name), history) in &self.0 {
            if let Some(role) = role {
                roles.entry(*role).or_default().push(count(name, history));
            }
        }
        let listed = roles.into_iter();
        listed
            .map(|(role, counts)| RoleCounts { role, counts })
            .collect()
    }
}

fn count(name: &str, history: &VecDeque<(Instant, u64)>) -> Count {
    let (first, last) = (
        history.front().expect("not empty"),
        history.back().expect("not empty"),
    );
    let elapsed = last.0.saturating_since(first.0).as_secs_f64();
    Count {
        name: name.to_string(),
        total: last.1,
        hz: match elapsed > 0.0 {
            true => last.1.saturating_sub(first.1) as f64 / elapsed,
            false => 0.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let mut rates = Rates::default();
        let at = |s: u64| Instant(s * 1_000_000_000);
        for s in 0..20 {
            let fast = if s < 10 { s * 100 } else { 1000 + s };
            rates.note(at(s), [((None, "fast"), fast), ((Some(Uid(7)), "slow"), s)]);
        }
        let own = rates.of_process();
        assert_eq!((own.len(), own[0].total), (1, 1019));
        assert!((own[0].hz - 1.0).abs() < 1e-9, "{}", own[0].hz);
        let roles = rates.of_roles();
        assert_eq!((roles.len(), roles[0].role), (1, Uid(7)));
        assert!((roles[0].counts[0].hz - 1.0).abs() < 1e-9);
        rates.note(at(20), [((None, "fast"), 2000)]);
        assert_eq!(
            rates.of_roles().len(),
            0,
            "a role that has ended is forgotten"
        );
    }
}
