//! Whether a process is ready: whether work has gone through lately, as a user would have it (pitfall 44).
//!
//! ```text
//! a probe ──► went_through(kind) ─┐
//!                                 ├─► verdict: ready while each kind went through within 5 s
//! others' work that it sees ──────┘
//! ```
//!
//! What a process knows of itself proves nothing: it may know a database that stands still. So whoever serves probes
//! what it serves, and tells it here. It has no clock of its own: every time is given to it.

use crate::metric::latency::Timed;
use crate::metric::page::Samples;
pub use crate::metric::page::Verdict;
use crate::{Duration, Instant};

/// Work of each kind must have gone through within this time.
pub const READY_LIMIT: Duration = Duration::from_secs(5);

crate::metric! {
    pub READY: Gauge = "plinth_ready",
        "1 while reads, commits and what comes before them have gone through within the last 5 s, as far as it sees";
    PROBE_SECONDS: Histogram = "plinth_probe_seconds",
        "time of the work by which a process finds out whether it is ready, by kind";
}

/// A kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// To learn the version, or the end of the log, that a read needs.
    ReadVersion,
    Read,
    Commit,
}

const KINDS: usize = 3;

impl Work {
    const ALL: [Work; KINDS] = [Work::ReadVersion, Work::Read, Work::Commit];

    fn label(self) -> &'static str {
        match self {
            Work::ReadVersion => "read_version",
            Work::Read => "read",
            Work::Commit => "commit",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Work::ReadVersion => "read version",
            Work::Read => "read",
            Work::Commit => "commit",
        }
    }
}

/// The last time that work of each kind went through.
#[derive(Debug)]
pub struct Readiness {
    began: Instant,
    last: [Option<Instant>; KINDS],
    times: [Timed; KINDS],
    /// Since when a commit of the process's own is under way.
    committing_since: Option<Instant>,
    remark: &'static str,
}

impl Readiness {
    /// Nothing has gone through yet.
    pub fn new(now: Instant) -> Self {
        Readiness {
            began: now,
            last: [None; KINDS],
            times: Default::default(),
            committing_since: None,
            remark: "",
        }
    }

    /// Work of this kind went through at `at`, whoever's it was.
    pub fn went_through(&mut self, work: Work, at: Instant) {
        let last = &mut self.last[work as usize];
        *last = (*last).max(Some(at));
    }

    /// A probe of the process's own went through.
    pub fn probed(&mut self, work: Work, from: Instant, to: Instant) {
        self.went_through(work, to);
        self.times[work as usize].add(to.saturating_since(from));
    }

    /// The process itself begins to commit. While others' commits go through and its own does not, it is not ready.
    pub fn commit_begins(&mut self, at: Instant) {
        self.committing_since.get_or_insert(at);
    }

    pub fn commit_ends(&mut self, from: Instant, to: Instant) {
        self.committing_since = None;
        self.probed(Work::Commit, from, to);
    }

    /// What a user should know although the process is ready.
    pub fn remark(&mut self, remark: &'static str) {
        self.remark = remark;
    }

    /// How long ago the last work of the kind went through that is longest ago.
    pub fn age(&self, now: Instant) -> Duration {
        let last = self.last.iter().map(|last| last.unwrap_or(self.began));
        let oldest = last.min().unwrap_or(self.began);
        now.saturating_since(oldest)
    }

    pub fn verdict(&self, now: Instant) -> Verdict {
        if let Some(why) = self.why_not(now) {
            return Verdict::not(why);
        }
        Verdict {
            is_ready: true,
            words: self.remark.to_owned(),
        }
    }

    /// The kinds in the order in which a transaction needs them: what comes first is the reason for the others.
    fn why_not(&self, now: Instant) -> Option<String> {
        for work in Work::ALL {
            let last = self.last[work as usize];
            let age = now.saturating_since(last.unwrap_or(self.began));
            if last.is_none() || age > READY_LIMIT {
                let age = age.as_secs_f64();
                return Some(format!("no {} for {age:.1} s", work.words()));
            }
        }
        let hangs = now.saturating_since(self.committing_since?);
        (hangs > READY_LIMIT).then(|| {
            let hangs = hangs.as_secs_f64();
            format!("others' commits go through, and its own has waited for {hangs:.1} s")
        })
    }

    /// Adds the verdict and the times of the probes.
    pub fn add_to(&self, out: &mut Samples, verdict: &Verdict) {
        out.add(&READY, &[], f64::from(u8::from(verdict.is_ready)));
        for work in Work::ALL {
            let kind = ("kind", work.label().to_owned());
            out.add_histogram(&PROBE_SECONDS, kind, &self.times[work as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(1_000_000_000) + Duration::from_millis(ms)
    }

    /// Ready at 0 ms.
    fn ready() -> Readiness {
        let mut readiness = Readiness::new(at(0));
        all_goes_through(&mut readiness, 0);
        readiness
    }

    fn all_goes_through(readiness: &mut Readiness, ms: u64) {
        for work in Work::ALL {
            readiness.went_through(work, at(ms));
        }
    }

    fn words(readiness: &Readiness, ms: u64) -> String {
        let verdict = readiness.verdict(at(ms));
        assert!(!verdict.is_ready);
        verdict.words
    }

    #[test]
    fn nobody_is_ready_before_every_kind_of_work_went_through() {
        let mut readiness = Readiness::new(at(0));
        assert_eq!(words(&readiness, 100), "no read version for 0.1 s");
        readiness.went_through(Work::ReadVersion, at(200));
        assert_eq!(words(&readiness, 300), "no read for 0.3 s");
        readiness.went_through(Work::Read, at(300));
        assert_eq!(words(&readiness, 400), "no commit for 0.4 s");
        readiness.went_through(Work::Commit, at(400));
        assert!(readiness.verdict(at(400)).is_ready);
    }

    #[test]
    fn rising_versions_make_nobody_ready_while_commits_hang() {
        let mut readiness = ready();
        for ms in (500..=6200).step_by(100) {
            readiness.went_through(Work::ReadVersion, at(ms));
            readiness.went_through(Work::Read, at(ms));
            assert_eq!(readiness.verdict(at(ms)).is_ready, ms <= 5000, "{ms}");
        }
        assert_eq!(words(&readiness, 6200), "no commit for 6.2 s");
        readiness.went_through(Work::Commit, at(6300));
        assert!(readiness.verdict(at(6300)).is_ready);
    }

    #[test]
    fn a_recovery_of_a_few_seconds_changes_nothing() {
        let mut readiness = ready();
        assert!(readiness.verdict(at(4900)).is_ready);
        // What is heard late is not newer than it was.
        readiness.went_through(Work::Commit, at(4950));
        readiness.went_through(Work::Commit, at(3000));
        all_goes_through(&mut readiness, 4900);
        assert!(readiness.verdict(at(9900)).is_ready);
        assert_eq!(readiness.age(at(9900)), Duration::from_secs(5));
        assert_eq!(words(&readiness, 9950), "no read version for 5.0 s");
    }

    #[test]
    fn who_cannot_commit_itself_is_not_ready_while_others_can() {
        let mut readiness = ready();
        readiness.commit_begins(at(1000));
        readiness.commit_begins(at(3000)); // another try
        for ms in (1000..=6000).step_by(500) {
            all_goes_through(&mut readiness, ms);
            assert!(readiness.verdict(at(ms)).is_ready, "{ms}");
        }
        let hangs = words(&readiness, 6100);
        assert!(hangs.ends_with("its own has waited for 5.1 s"), "{hangs}");
        readiness.commit_ends(at(6100), at(6150));
        assert!(readiness.verdict(at(6200)).is_ready);
    }

    #[test]
    fn a_ready_process_may_have_something_to_say() {
        let mut readiness = ready();
        readiness.remark("locked");
        let verdict = readiness.verdict(at(1));
        assert_eq!((verdict.is_ready, &*verdict.words), (true, "locked"));
    }
}
