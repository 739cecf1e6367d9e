//! Benchmarks of the in-memory engine, after *Fast General Distributed Transactions with Opacity using Global
//! Time* (FaRMv2, §5). "§" in this crate refers to that paper.
//!
//! ```text
//!   tpcc  reads  ycsb  scans      workloads: load, measure in rounds, check what is there
//!      └────┴──┬──┴─────┘
//!   cluster    machines in one process, each some tasks of its one thread
//!   measure    throughput by time and by processor time, latencies, ratios
//! ```
//!
//! All machines share one thread, except those of [`apart`], so figures are those of one core. They share memory as
//! processes of a host do: a read of another machine's memory takes the same way as between two processes. What is
//! compared (policies, with and without opacity) runs by turns in one run, each on a database of its own.
//!
//! Promise: each run ends with a check of its data, and a run whose check fails says so in [`Report::broken`].
//!
//! What stands for the paper's baseline (§5.2): the engine cannot run without snapshots, so *without opacity* means
//! here that transactions do not wait for the time of their snapshot (they are serializable, not strict), and that no
//! old version is kept. The wait for the write timestamp stays.

pub mod apart;
mod clocks;
mod cluster;
mod kv;
pub mod lengths;
pub mod measure;
mod mode;
pub mod reads;
mod report;
pub mod scans;
pub mod tpcc;
pub mod uncertainty;
pub mod values;
pub mod ycsb;
pub mod zipf;

pub use cluster::{Machines, Place};
pub use mode::{Mode, parse_policy, policy_name, policy_names};
pub use plinth_farm_engine::Policy;
pub use plinth_farm_tpcc::Scale;
pub use report::Report;

#[cfg(test)]
mod tests;
