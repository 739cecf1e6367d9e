//! What is the store's, of all that is linked into a program. Runs draw from lists that fill themselves at link time:
//! requests that strangers send, knobs that operators set. If they drew from all of it, a run would be another one in
//! each program.

use crate::cluster::Shape;

/// Crates of the store that declare requests or knobs.
const CRATES: [&str; 10] = [
    "plinth_client",
    "plinth_control",
    "plinth_coordination",
    "plinth_engine",
    "plinth_log",
    "plinth_protocol",
    "plinth_rpc",
    "plinth_server",
    "plinth_storage",
    "plinth_transaction",
];

fn crate_of(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

impl Shape {
    /// True if what this module declares may take part in the run: it is the store's, or the application's.
    pub fn draws_from(&self, module: &str) -> bool {
        let of = crate_of(module);
        let is_of = |application: &str| crate_of(application) == of;
        CRATES.contains(&of) || self.application.is_some_and(|one| is_of(one.module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_rpc::REQUESTS;
    use plinth_runtime::knobs::Knobs;
    use std::collections::BTreeSet;

    #[test]
    fn every_crate_of_the_store_with_requests_or_knobs_is_listed() {
        // No service is linked into this test.
        let knobs = Knobs::default().list().into_iter();
        let knobs = knobs.filter_map(|(name, _)| Knobs::module_of(name));
        let all = knobs.chain(REQUESTS.iter().map(|kind| kind.module));
        let mut all: BTreeSet<&str> = all.map(crate_of).collect();
        // Its knob switches checks on. No run draws it: all have them.
        assert!(all.remove("plinth_runtime"));
        assert_eq!(all, BTreeSet::from(CRATES));
    }
}
