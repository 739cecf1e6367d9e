//! The hunt: runs many seeds, several at a time, until one fails or the time is up.
//!
//! A simulation lives in thread-locals and shares nothing, so each job is a thread. The result of a seed depends
//! neither on the number of jobs nor on the job that runs it.

use crate::{Limits, Outcome, RunOptions, run};
use plinth_runtime::{Duration, probe};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

#[derive(Clone, Debug)]
pub struct HuntOptions {
    pub seeds: RangeInclusive<u64>,
    pub jobs: usize,
    /// No run starts after this wall time.
    pub budget: Option<Duration>,
    /// No limit of a run in wall time: others have the processor first.
    pub may_take_long: bool,
    pub scenario: String,
    pub planted_fault: Option<String>,
    pub limits: Limits,
    /// One of this many seeds is run twice to compare fingerprints; 0: none.
    pub check_determinism_every: u64,
}

impl HuntOptions {
    pub fn new(seeds: RangeInclusive<u64>, scenario: &str) -> Self {
        HuntOptions {
            seeds,
            jobs: 1,
            budget: None,
            may_take_long: false,
            scenario: scenario.to_owned(),
            planted_fault: None,
            limits: Limits::default(),
            check_determinism_every: 20,
        }
    }

    fn run_options(&self, seed: u64) -> RunOptions {
        let every = self.check_determinism_every;
        RunOptions {
            planted_fault: self.planted_fault.clone(),
            limits: self.limits.clone(),
            may_take_long: self.may_take_long,
            check_determinism: every > 0 && seed.is_multiple_of(every),
            ..RunOptions::new(seed, &self.scenario)
        }
    }
}

/// Result of a hunt.
#[derive(Clone, Debug)]
pub struct HuntReport {
    pub runs: u64,
    /// The first run that failed; the hunt ended with it.
    pub failure: Option<Outcome>,
    /// Number of runs that took each rare path at least once, including paths with 0.
    pub probes: BTreeMap<&'static str, u64>,
    pub sim_seconds: f64,
    /// Wall time of the runs, summed over all jobs.
    pub core_seconds: f64,
}

impl HuntReport {
    fn new() -> Self {
        HuntReport {
            runs: 0,
            failure: None,
            probes: probe::all().into_iter().map(|name| (name, 0)).collect(),
            sim_seconds: 0.0,
            core_seconds: 0.0,
        }
    }

    fn add(&mut self, outcome: Outcome, times: f64) {
        self.runs += 1;
        self.sim_seconds += outcome.sim_seconds * times;
        self.core_seconds += outcome.wall_seconds;
        for name in outcome.probes.keys() {
            *self.probes.entry(name).or_insert(0) += 1;
        }
        if outcome.result.is_err() && self.failure.is_none() {
            self.failure = Some(outcome);
        }
    }

    /// Rare paths that no run took, and that are therefore untested.
    pub fn never_hit(&self) -> Vec<&'static str> {
        let untaken = self.probes.iter().filter(|(_, runs)| **runs == 0);
        untaken.map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for HuntReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>8}  rare path", "runs")?;
        for (name, runs) in &self.probes {
            let remark = if *runs == 0 { "  <- never taken" } else { "" };
            writeln!(f, "{runs:>8}  {name}{remark}")?;
        }
        let speed = self.sim_seconds / self.core_seconds.max(1e-9);
        writeln!(
            f,
            "{} runs, {:.0} simulated seconds, {speed:.0} of them a second and core, {} of {} rare paths never taken",
            self.runs,
            self.sim_seconds,
            self.never_hit().len(),
            self.probes.len()
        )?;
        let Some(outcome) = &self.failure else {
            return write!(f, "nothing found");
        };
        let failure = outcome
            .result
            .as_ref()
            .expect_err("it is kept as a failure");
        writeln!(
            f,
            "seed {} failed: {}: {}",
            outcome.seed, failure.kind, failure.message
        )?;
        write!(f, "reproduce with: {}", outcome.command())
    }
}

/// Runs the seeds, until the first failure. Calls `seen` with every outcome, on the caller's thread.
// Threads and wall time are the runner's; no run sees them.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
pub fn hunt(options: &HuntOptions, mut seen: impl FnMut(&Outcome)) -> HuntReport {
    let started = std::time::Instant::now();
    let next = AtomicU64::new(*options.seeds.start());
    let stop = AtomicBool::new(false);
    let (sender, outcomes) = mpsc::channel::<Outcome>();
    let mut report = HuntReport::new();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                let in_time = || {
                    options
                        .budget
                        .is_none_or(|budget| started.elapsed() < budget)
                };
                while !stop.load(Ordering::Relaxed) && in_time() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > *options.seeds.end() {
                        return;
                    }
                    let outcome = run(options.run_options(seed));
                    stop.fetch_or(outcome.result.is_err(), Ordering::Relaxed);
                    if sender.send(outcome).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in outcomes {
            seen(&outcome);
            let twice = options.run_options(outcome.seed).check_determinism;
            report.add(outcome, if twice { 2.0 } else { 1.0 });
        }
    });
    report
}
