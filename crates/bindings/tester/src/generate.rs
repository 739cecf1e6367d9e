//! Random programs with their expected results.

mod api;
mod concurrency;
mod directory;
mod scripted;
mod tuples;

use crate::program::Program;

/// Names of the kinds of program.
pub const KINDS: [&str; 7] = [
    "api",
    "tuple",
    "directory",
    "directory-hca",
    "concurrency",
    "retries",
    "scripted",
];

/// The program of this kind and seed; `None` if the kind does not exist.
pub fn generate(kind: &str, seed: u64) -> Option<Program> {
    Some(match kind {
        "api" => api::generate(seed),
        "tuple" => tuples::generate(seed),
        "directory" => directory::generate(seed),
        "directory-hca" => directory::generate_allocations(seed),
        "concurrency" => concurrency::generate(seed),
        "retries" => api::generate_retried(seed),
        "scripted" => scripted::generate(),
        _ => return None,
    })
}
