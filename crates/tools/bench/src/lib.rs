//! Floor 8: the load generator, which measures speed the same way every time.
//!
//! - [`table`]: the rows that the workloads read and write: one key per row number, random values.
//! - [`workload`]: what one transaction of each workload does.
//! - [`target`]: the measured client: the Rust client, or a `libfdb_c`.
//! - [`run`]: clients that repeat the transaction, and the counters they keep.
//! - [`server_cpu`]: CPU time and memory of the servers on this machine during a run, from the operating system.
//! - [`calibrate`]: the speed of the machine; [`scale`]: results converted to another machine.
//! - [`keeper`]: servers that speak ZooKeeper's protocol, side by side.
//! - [`delos`]: stacks of engines over logs, on this machine.
//! - [`report`]: an HTML page with plots, from the JSON objects of many runs.
//!
//! The load generator usually shares the machine with the servers and is then the bottleneck. So the cost of a
//! server is also given as the CPU time of the server processes over the measured interval.

pub mod calibrate;
pub mod delos;
pub mod keeper;
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
