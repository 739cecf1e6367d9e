//! Floor 6: the load generator of the store, which measures speed the same way every time.
//!
//! - [`table`]: the rows that the workloads read and write: one key per row number, random values.
//! - [`workload`]: what one transaction of each workload does.
//! - [`target`]: the measured client: the Rust client, or a `libfdb_c`.
//! - [`run`]: clients that repeat the transaction, and the counters they keep.
//! - [`scale`]: results converted to another machine.
//! - [`report`]: an HTML page with plots, from the JSON objects of many runs.
//!
//! The load generator usually shares the machine with the servers and is then the bottleneck. So the cost of a
//! server is also given as the CPU time of the server processes over the measured interval.

pub mod report;
pub mod run;
pub mod scale;
pub mod table;
pub mod target;
pub mod workload;

pub use run::{Measured, Plan, run};
pub use workload::Workload;
