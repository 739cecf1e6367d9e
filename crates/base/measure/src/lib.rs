//! What every benchmark measures with, and how its figures are shown. No system is known here.
//!
//! - [`latency`]: histograms of latencies, and their quantiles; [`samples`]: those of samples that are all kept.
//! - [`server_cpu`]: CPU time and memory of the servers on this machine during a run, from the operating system.
//! - [`disk`]: what they have written.
//! - [`calibrate`]: the speed of the machine.
//! - [`text`]: numbers in groups of digits.
//! - [`runs`]: the JSON objects of many runs, read again; [`plots`] and [`tables`]: pieces of an HTML page of them.

pub mod calibrate;
pub mod disk;
pub mod latency;
pub mod plots;
pub mod runs;
pub mod samples;
pub mod server_cpu;
pub mod tables;
pub mod text;

pub use calibrate::Calibration;
pub use text::grouped;
