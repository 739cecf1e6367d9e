//! Bytes that nobody can guess.

use crate::random::{self, entropy};
use crate::sim;

/// Of the operating system on a real worker, and of the run's seed in a simulation.
pub fn fill(bytes: &mut [u8]) {
    match sim::is_entered() {
        true => random::fill(bytes),
        false => entropy::fill(bytes),
    }
}
