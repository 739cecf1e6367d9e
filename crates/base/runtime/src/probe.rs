//! Probes count how often rare paths are taken (FDB §4: conditional coverage).
//!
//! `probe!("name")` registers itself at link time. After thousands of simulated runs one can list the probes that no
//! run has hit: code paths that are untested.

use std::cell::RefCell;
use std::collections::BTreeMap;

#[doc(hidden)]
#[linkme::distributed_slice]
pub static PROBES: [&'static str];

thread_local! {
    static HITS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts one visit. For rare paths: it is a map lookup.
#[macro_export]
macro_rules! probe {
    ($name:literal) => {{
        #[$crate::macro_support::linkme::distributed_slice($crate::probe::PROBES)]
        #[linkme(crate = $crate::macro_support::linkme)]
        static PROBE: &str = $name;
        $crate::probe::hit(PROBE);
    }};
}

#[doc(hidden)]
pub fn hit(name: &'static str) {
    HITS.with(|hits| *hits.borrow_mut().entry(name).or_insert(0) += 1);
}

/// Every probe linked into this program, sorted, each name once.
pub fn all() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = PROBES.iter().copied().collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Visits on this thread since the last [`reset`].
pub fn hits() -> BTreeMap<&'static str, u64> {
    HITS.with(|hits| hits.borrow().clone())
}

pub fn reset() {
    HITS.with(|hits| hits.borrow_mut().clear());
}
