//! Whether a copy of some data counts, and how far its server is behind. Pure.
//!
//! A copy counts while its server could serve it now, if all others were gone. Status says by this how many copies
//! there are and what may fail, and the data distributor decides by it where data goes.

use crate::knobs::STORAGE_SUSPECT_LAG_MS;
use plinth_core::Version;
use plinth_core::version::{MAX_VERSIONS_IN_FLIGHT, VERSIONS_PER_SECOND};
use plinth_protocol::log::LogSystem;
use plinth_runtime::planted;

/// How far a storage server is behind the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lag {
    #[default]
    KeepsUp,
    /// So far that what it holds does not count, and that it gets nothing more while others can.
    Suspect,
    /// So far, and for so long without coming nearer, that others are to have what it holds.
    Late,
}

impl Lag {
    /// As far as one look tells.
    pub fn of(seconds: f64) -> Lag {
        match seconds * 1000.0 < STORAGE_SUSPECT_LAG_MS.get() as f64 {
            true => Lag::KeepsUp,
            false => Lag::Suspect,
        }
    }
}

/// What is known of a storage server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replica {
    /// Its process is there, and it has answered when it was asked last.
    pub answers: bool,
    pub lag: Lag,
    /// Some of its files cannot be read.
    pub is_damaged: bool,
}

/// True if all that the server holds could be read now, if the others that hold it were gone.
pub fn could_serve(server: Replica) -> bool {
    let keeps_up = server.lag == Lag::KeepsUp
        || planted!(
            "stale_replica_is_counted",
            "a copy on a server that is far behind the log counts as one that could be read"
        );
    let is_intact = !server.is_damaged
        || planted!(
            "damaged_copy_counts",
            "status counts a copy whose files are damaged as one that could serve"
        );
    server.answers && keeps_up && is_intact
}

/// Seconds of versions that a server lacks which has all up to `version`. A recovery jumps far ahead: versions in
/// which nobody could commit are no lag.
pub fn seconds_behind(system: &LogSystem, newest: Version, version: Version) -> f64 {
    let begun = system.generations.iter().map(|g| g.recovered_to);
    let jumps = begun.filter(|end| version <= *end && *end < newest).count();
    let jumped = (jumps as Version).saturating_mul(MAX_VERSIONS_IN_FLIGHT);
    let lacks = newest.saturating_sub(version).saturating_sub(jumped);
    lacks.max(0) as f64 / VERSIONS_PER_SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_protocol::log::LogGeneration;

    #[test]
    fn the_jump_of_a_recovery_is_no_lag_and_what_was_committed_on_both_sides_of_it_is() {
        const S: Version = VERSIONS_PER_SECOND;
        let generation = |epoch, start, recovered_to| LogGeneration {
            epoch,
            logs: vec![],
            replication: 1,
            tags_a_set: 1,
            start,
            recovered_to,
        };
        let system = LogSystem {
            generations: vec![generation(1, 1, 0), generation(2, 148 * S, 150 * S)],
        };
        let behind = |newest, version| seconds_behind(&system, newest, version);
        assert_eq!(behind(100 * S, 0), 0.0, "it is new, and so is the database");
        assert_eq!(behind(150 * S, 110 * S), 40.0);
        assert_eq!(
            behind(251 * S, 150 * S),
            1.0,
            "it has not heard of the recovery"
        );
        assert_eq!(behind(251 * S, 110 * S), 41.0);
        assert_eq!(behind(290 * S, 251 * S), 39.0);
        assert_eq!(behind(250 * S, 251 * S), 0.0, "its answer came later");
    }

    #[test]
    fn a_copy_counts_if_its_server_answers_and_keeps_up_and_its_files_are_intact() {
        let counts = |answers, seconds| {
            could_serve(Replica {
                answers,
                lag: Lag::of(seconds),
                is_damaged: false,
            })
        };
        assert!(counts(true, 0.0) && counts(true, 29.9));
        assert!(!counts(true, 30.0) && !counts(false, 0.0));
        assert!(!could_serve(Replica {
            answers: true,
            lag: Lag::KeepsUp,
            is_damaged: true,
        }));
    }
}
