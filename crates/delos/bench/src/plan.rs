//! How the parts are measured.

use plinth_runtime::Duration;
use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files of the nodes are made below it, and removed afterwards.
    pub directory: PathBuf,
    /// Of each measured interval.
    pub duration: Duration,
    /// How often things that are compared are measured, in turn.
    pub rounds: usize,
    /// Time to a replica far away and back.
    pub round_trip: Duration,
}
