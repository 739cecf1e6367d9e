//! The oldest active transaction of the cluster, and the safe point (§4.5, 4.6, Figure 9).
//!
//! ```text
//!   machine     oldest: the lower bound of the time, and every read timestamp here, are at or above it   ─▶ collector
//!   collector   least of all                                                                            ─▶ machines
//!   machine     that, if no transaction here is older                                                   ─▶ collector
//!   collector   least of all: the safe point                                                            ─▶ machines
//! ```
//!
//! A transaction may begin at the snapshot of another one if no machine can have collected its versions: the snapshot
//! is not below what this machine has last heard in the first round. A safe point that is above the snapshot needs
//! this machine's word in the second round, and it gives that only for what it has heard, and for no more than the
//! oldest of its transactions. (The paper's second round has only the former. Then a transaction that begins at an old
//! snapshot between the two rounds loses its versions.)

use crate::wire::Horizon;
use plinth_farm_fabric::Machine;
use plinth_runtime::nobody_has_lied;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Oat {
    /// What the collector has last said. Neither ever goes back.
    heard: Horizon,
    /// At the collector: what each machine has last said, in this configuration.
    said: BTreeMap<Machine, Horizon>,
}

impl Oat {
    /// The oldest snapshot at which a transaction may begin here; `None` before the collector has said anything.
    pub fn floor(&self) -> Option<u64> {
        (self.heard.oldest > 0).then_some(self.heard.oldest)
    }

    /// No transaction reads, or will read, what was replaced at a lower timestamp.
    pub fn safe(&self) -> u64 {
        self.heard.safe
    }

    /// Another configuration, in which nobody has said anything.
    pub fn begin(&mut self) {
        self.said.clear();
    }

    /// What this machine says. `active`: the oldest read timestamp here.
    pub fn report(&self, lower: u64, active: Option<u64>) -> Horizon {
        let active = active.unwrap_or(u64::MAX);
        // This machine's word is in what the collector has said, and its time never goes back.
        assert!(
            self.heard.oldest <= lower || !nobody_has_lied(),
            "the oldest of all is {}, and the time here is {lower} at least",
            self.heard.oldest
        );
        Horizon {
            oldest: lower.min(active),
            safe: self.heard.oldest.min(active),
        }
    }

    /// The collector hears a machine. Returns the answer; zeros until all machines have said something.
    pub fn collect(&mut self, machines: &[Machine], from: Machine, horizon: Horizon) -> Horizon {
        self.said.insert(from, horizon);
        let said = |machine: &Machine| self.said.get(machine).copied().unwrap_or_default();
        Horizon {
            oldest: machines.iter().map(|m| said(m).oldest).min().unwrap_or(0),
            safe: machines.iter().map(|m| said(m).safe).min().unwrap_or(0),
        }
    }

    /// True if the safe point has moved.
    pub fn hear(&mut self, horizon: Horizon) -> bool {
        let before = self.heard;
        self.heard.oldest = before.oldest.max(horizon.oldest);
        self.heard.safe = before.safe.max(horizon.safe);
        assert!(
            self.heard.safe <= self.heard.oldest || !nobody_has_lied(),
            "the safe point is after the oldest transaction: {:?}, and the collector said {horizon:?}",
            self.heard
        );
        self.heard.safe > before.safe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine: its lower bound, and the snapshots that are active on it.
    #[derive(Default)]
    struct Model {
        oat: Oat,
        lower: u64,
        active: Vec<u64>,
    }

    #[test]
    fn a_transaction_at_an_old_snapshot_that_begins_between_the_rounds_keeps_its_versions() {
        let machines = [Machine(0), Machine(1)];
        let mut oats = [Oat::default(), Oat::default()];
        let mut round = |lower: u64, active: [Option<u64>; 2]| {
            let collect = |at: usize, oats: &mut [Oat; 2]| {
                let report = oats[at].report(lower, active[at]);
                oats[0].collect(&machines, machines[at], report)
            };
            collect(0, &mut oats);
            let answer = collect(1, &mut oats);
            oats.iter_mut().for_each(|oat| {
                oat.hear(answer);
            });
            (oats[1].floor(), oats[1].safe())
        };
        assert_eq!(round(50, [None, None]), (Some(50), 0));
        // Machine 1 has not heard of 100 when the transaction begins, and hears of it afterwards.
        assert_eq!(round(100, [None, None]), (Some(100), 50));
        assert_eq!(round(150, [None, Some(60)]), (Some(100), 60));
        assert_eq!(round(150, [None, None]), (Some(150), 100));
    }

    proptest! {
        /// Reports and answers are delayed and mixed with transactions that begin, at old snapshots too.
        #[test]
        fn no_active_transaction_is_older_than_a_safe_point(
            steps in prop::collection::vec((0..7u8, 0..3usize, 0..100u64), 1..400),
        ) {
            let machines = [Machine(0), Machine(1), Machine(2)];
            let mut models: Vec<Model> = machines.iter().map(|_| Model::default()).collect();
            let mut on_way: Vec<(usize, Horizon, bool)> = Vec::new();
            for (what, at, some) in steps {
                let model = &mut models[at];
                match what {
                    0 => model.lower += some,
                    1 => model.active.push(model.lower + some % 5),
                    2 if !model.active.is_empty() => {
                        model.active.remove(some as usize % model.active.len());
                    }
                    3 => {
                        // The snapshot of another machine's transaction, or one that has ended.
                        let snapshot = model.lower.saturating_sub(some);
                        if model.oat.floor().is_some_and(|floor| floor <= snapshot) {
                            model.active.push(snapshot);
                        }
                    }
                    4 => {
                        let oldest = model.active.iter().copied().min();
                        let report = model.oat.report(model.lower, oldest);
                        on_way.push((at, report, true));
                    }
                    _ => {
                        // Those of one machine come in order.
                        let Some(next) = on_way.iter().position(|(of, ..)| *of == at) else { continue };
                        let (of, horizon, is_report) = on_way.remove(next);
                        if is_report {
                            let answer = models[0].oat.collect(&machines, Machine(of as u16), horizon);
                            on_way.push((of, answer, false));
                        } else {
                            models[of].oat.hear(horizon);
                        }
                    }
                }
                let safe = models.iter().map(|m| m.oat.safe()).max().unwrap_or(0);
                let oldest = models.iter().flat_map(|m| &m.active).copied().min();
                prop_assert!(oldest.is_none_or(|oldest| safe <= oldest), "{safe} {oldest:?}");
            }
        }
    }
}
