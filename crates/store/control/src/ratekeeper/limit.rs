//! How many transactions a second the database can take. Pure.
//!
//! Every signal is a quantity that grows without bound when more comes in than goes out: a queue, a lag, a latency.
//! It has a target, and gives two numbers: its pressure (1 at the target), and the share of the recent input that
//! also went out. The recent rate of admitted transactions, times that share, is the rate that the server behind the
//! signal can take. A little more is admitted while the server is below its target, a little less above. The lowest
//! rate over all signals is the limit.
//!
//! ```text
//! limit = admitted · drained / input · (1 + gain · (1 − pressure))
//! ```
//!
//! A signal below half of its target does not limit. After an overload the limit rises step by step, and is removed
//! when it is far above the demand.

/// A signal below this pressure does not limit.
const CALM: f64 = 0.5;
/// Lowest limit, whatever the pressure. With a lower one, the end of an overload might never be seen.
const FLOOR: f64 = 10.0;
/// Factor by which a limit rises at most from one look to the next.
const STEP_UP: f64 = 1.3;
/// A limit of this many times the admitted rate is removed.
const RELEASED: f64 = 8.0;
/// Target for work of batch priority, as a share of the normal target.
const BATCH_TARGET: f64 = 0.5;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Signal<R> {
    pub reason: R,
    /// 1 at the target.
    pub pressure: f64,
    /// The share of recent input that went out.
    pub drained: f64,
    pub gain: f64,
}

impl<R: Copy> Signal<R> {
    /// The rate that this signal allows; infinite if the signal does not limit.
    fn limit(&self, admitted: f64, target: f64) -> f64 {
        let pressure = self.pressure / target;
        if pressure < CALM {
            return f64::INFINITY;
        }
        let correction = (1.0 + self.gain * (1.0 - pressure)).clamp(0.5, 1.5);
        admitted * self.drained.clamp(0.05, 2.0) * correction
    }
}

/// The limits of default and of batch priority, transactions a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    pub default: f64,
    pub batch: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            default: f64::INFINITY,
            batch: f64::INFINITY,
        }
    }
}

impl Limits {
    /// Takes another look. `admitted`: transactions recently admitted a second. Returns the reason of the signal that
    /// limits most, if one does.
    pub fn step<R: Copy>(&mut self, admitted: f64, signals: &[Signal<R>]) -> Option<R> {
        let (batch, _) = least(admitted, signals, BATCH_TARGET);
        self.batch = follow(self.batch, admitted, batch);
        let (default, reason) = least(admitted, signals, 1.0);
        self.default = follow(self.default, admitted, default);
        self.batch = self.batch.min(self.default);
        // Not so for what is no number.
        assert!(
            FLOOR <= self.batch && self.batch <= self.default,
            "limits {} and {} after {admitted} a second",
            self.default,
            self.batch
        );
        reason
    }
}

fn least<R: Copy>(admitted: f64, signals: &[Signal<R>], target: f64) -> (f64, Option<R>) {
    let limits = signals
        .iter()
        .map(|signal| (signal.limit(admitted, target), signal.reason));
    let least = limits.min_by(|(a, _), (b, _)| a.total_cmp(b));
    match least.filter(|(limit, _)| limit.is_finite()) {
        Some((limit, reason)) => (limit, Some(reason)),
        None => (f64::INFINITY, None),
    }
}

/// The next limit, from the current one towards `wanted`: down at once, up step by step.
fn follow(limit: f64, admitted: f64, wanted: f64) -> f64 {
    let next = wanted.min(limit * STEP_UP).max(FLOOR);
    if wanted.is_infinite() && next > RELEASED * admitted.max(FLOOR) {
        f64::INFINITY
    } else {
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Seconds between two looks, and looks over which rates are measured.
    const LOOK_S: f64 = 0.2;
    const LOOKS: usize = 5;

    /// A server that can take this much a second, behind a queue.
    struct Plant {
        capacity: f64,
        /// Queued work at which the pressure is 1.
        target: f64,
        gain: f64,
        queue: f64,
        most: f64,
        done: f64,
        limits: Limits,
        /// Input and output of the last looks.
        recent: VecDeque<(f64, f64)>,
    }

    impl Plant {
        fn new(capacity: f64, target: f64, gain: f64) -> Self {
            Plant {
                capacity,
                target,
                gain,
                queue: 0.0,
                most: 0.0,
                done: 0.0,
                limits: Limits::default(),
                recent: VecDeque::new(),
            }
        }

        fn run(&mut self, offered: f64, seconds: f64) {
            (self.done, self.most) = (0.0, 0.0);
            for _ in 0..(seconds / LOOK_S) as usize {
                let input = offered.min(self.limits.default) * LOOK_S;
                let output = (self.queue + input).min(self.capacity * LOOK_S);
                self.queue += input - output;
                self.done += output;
                self.most = self.most.max(self.queue);
                self.recent.push_back((input, output));
                if self.recent.len() > LOOKS {
                    self.recent.pop_front();
                }
                let sum = |f: fn(&(f64, f64)) -> f64| self.recent.iter().map(f).sum::<f64>();
                let (came, went) = (sum(|r| r.0), sum(|r| r.1));
                let signal = Signal {
                    reason: (),
                    pressure: self.queue / self.target,
                    drained: if came > 0.0 { went / came } else { 1.0 },
                    gain: self.gain,
                };
                let admitted = came / (self.recent.len() as f64 * LOOK_S);
                self.limits.step(admitted, &[signal]);
            }
        }
    }

    #[test]
    fn below_capacity_nothing_is_limited() {
        let mut plant = Plant::new(1000.0, 250.0, 0.2);
        plant.run(900.0, 60.0);
        assert_eq!(plant.limits, Limits::default());
    }

    #[test]
    fn under_ten_times_the_load_the_server_stays_busy_and_its_queue_short() {
        // A latency of 250 ms, and a queue of five seconds' worth.
        for (target, gain) in [(250.0, 0.2), (5000.0, 0.6)] {
            let mut plant = Plant::new(1000.0, target, gain);
            plant.run(800.0, 10.0);
            plant.run(10_000.0, 10.0); // it takes a while to settle
            plant.run(10_000.0, 100.0);
            assert!(plant.done > 97_000.0, "{target}: {}", plant.done);
            assert!(plant.most < 2.0 * target, "{target}: {}", plant.most);
            plant.run(800.0, 5.0);
            plant.run(800.0, 10.0);
            assert_eq!(plant.limits.default, f64::INFINITY, "{target}");
            assert!(plant.queue < 0.5 * target, "{target}: {}", plant.queue);
        }
    }

    #[test]
    fn the_first_seconds_of_an_overload_queue_little() {
        let mut plant = Plant::new(1000.0, 250.0, 0.2);
        plant.run(500.0, 10.0);
        plant.run(10_000.0, 10.0);
        assert!(plant.most < 4000.0, "{}", plant.most);
    }

    #[test]
    fn a_server_that_stops_leaves_a_trickle_and_gets_its_work_back_when_it_is_well() {
        let mut plant = Plant::new(1000.0, 250.0, 0.2);
        plant.run(800.0, 5.0);
        plant.capacity = 0.0;
        plant.run(800.0, 20.0);
        assert_eq!(plant.limits.default, FLOOR);
        plant.capacity = 1000.0;
        plant.run(800.0, 10.0);
        plant.run(800.0, 10.0);
        assert!(plant.done >= 7900.0, "{}", plant.done);
    }

    #[test]
    fn batch_work_is_held_back_first() {
        let mut limits = Limits::default();
        let signal = Signal {
            reason: "queue",
            pressure: 0.6,
            drained: 1.0,
            gain: 0.5,
        };
        assert_eq!(limits.step(100.0, &[signal]), Some("queue"));
        assert!(limits.batch < 100.0 && limits.default > 100.0, "{limits:?}");
        let calm = Signal {
            pressure: 0.2,
            ..signal
        };
        for _ in 0..20 {
            assert_eq!(limits.step(100.0, &[calm]), None);
        }
        assert_eq!(limits, Limits::default());
    }
}
