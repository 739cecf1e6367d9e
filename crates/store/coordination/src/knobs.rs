//! The knobs of coordinators and elections.

use plinth_runtime::knob;

knob! {
    pub COORDINATOR_LEASE_MS: u64 = "coordinator_lease_ms", 2000, sim 1000, 4000, legal 1000, 20_000;
    pub ELECTION_INTERVAL_MS: u64 = "election_interval_ms", 100, sim 50, 500, legal 10, 500;
}
