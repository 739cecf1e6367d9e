//! Many seeds, several at a time. Each run has a thread to itself, because a simulation lives in its thread's locals.

use crate::{Outcome, RunOptions, run, run_twice};
use plinth_runtime::{Duration, probe};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One run in so many is done twice, to check that it repeats.
const REPEAT_EVERY: u64 = 20;

#[derive(Clone, Debug)]
pub struct HuntOptions {
    pub seeds: RangeInclusive<u64>,
    pub jobs: usize,
    /// No new run is begun after this wall time.
    pub budget: Option<Duration>,
    /// All of them in turn if there are several.
    pub scenarios: Vec<String>,
    pub planted_fault: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct HuntReport {
    pub runs: u64,
    pub sim_seconds: f64,
    /// Wall seconds, summed over all jobs.
    pub job_seconds: f64,
    /// The first failure: the hunt stops there.
    pub failure: Option<Outcome>,
    pub probes: BTreeMap<&'static str, u64>,
}

impl HuntReport {
    /// Rare paths that no run has taken.
    pub fn probes_never_hit(&self) -> Vec<&'static str> {
        probe::all()
            .into_iter()
            .filter(|name| !self.probes.contains_key(name))
            .collect()
    }

    fn add(&mut self, outcome: Outcome) {
        self.runs += 1;
        self.sim_seconds += outcome.sim_seconds;
        self.job_seconds += outcome.wall_seconds;
        for (name, hits) in &outcome.probes {
            *self.probes.entry(name).or_default() += hits;
        }
        if outcome.failure.is_some() && self.failure.is_none() {
            self.failure = Some(outcome);
        }
    }
}

/// Runs seeds until one fails, all are done, or the budget is spent. `on_outcome` sees each outcome as it comes.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // the runner is not simulated: it has threads and a clock
pub fn hunt(options: &HuntOptions, on_outcome: impl Fn(&Outcome) + Sync) -> HuntReport {
    let started = std::time::Instant::now();
    let next = AtomicU64::new(*options.seeds.start());
    let stop = AtomicBool::new(false);
    let report = Mutex::new(HuntReport::default());
    let job = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let over = options
                .budget
                .is_some_and(|budget| started.elapsed() >= budget);
            if seed > *options.seeds.end() || over {
                return;
            }
            let scenario = options.scenarios[seed as usize % options.scenarios.len()].clone();
            let planted_fault = options.planted_fault.clone();
            let one = RunOptions {
                seed,
                scenario,
                planted_fault,
                verbose: false,
            };
            let outcome = if seed % REPEAT_EVERY == 0 {
                run_twice(&one)
            } else {
                run(&one)
            };
            on_outcome(&outcome);
            if outcome.failure.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            report
                .lock()
                .expect("no job panics while it holds the report")
                .add(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(job);
        }
    });
    report.into_inner().expect("every job has ended")
}
