//! What this process and its machine use: processor, memory, network, disk.

pub(crate) mod usage;

pub use usage::{Connections, DiskUsage, Usage};

use crate::{real, sim};
use std::path::Path;

/// The arguments that this process was started with, its name first.
pub fn arguments() -> Vec<String> {
    match sim::current() {
        Some(_) => Vec::new(),
        None => real::machine::arguments(),
    }
}

/// Asks the system. `directory` is on the disk of interest. A simulated machine uses nothing.
pub async fn usage(directory: &Path) -> Usage {
    match sim::current() {
        Some(_) => Usage::default(),
        None => real::machine::usage(directory).await,
    }
}
