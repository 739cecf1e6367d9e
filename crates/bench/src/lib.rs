//! Floor 8: how fast it is, measured the same way every time.
//!
//! - [`table`]: the rows that the workloads read and write: a key for every row number, random values.
//! - [`workload`]: what one transaction of each workload does.
//! - [`target`]: what is measured: the Rust client, or a library.
//! - [`run`]: clients that repeat it, and what is counted while they do.
//! - [`server_cpu`]: what the servers of this machine spent meanwhile, from the operating system.
//! - [`calibrate`]: what the machine is worth, and [`scale`]: what a figure would be on another.
//! - [`report`]: a page with plots, from the JSON objects of many runs.
//!
//! The load generator shares the machine with the servers more often than not, and is then the bottleneck. What a
//! server costs is therefore also given by the CPU time of the server processes over the measured interval.

pub mod calibrate;
pub mod report;
pub mod run;
pub mod scale;
pub mod server_cpu;
pub mod table;
pub mod target;
pub mod workload;

pub use calibrate::Calibration;
pub use run::{Measured, Plan, run};
pub use workload::Workload;
