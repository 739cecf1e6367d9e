//! The load generator of the store, which measures speed the same way every time.
//!
//! - [`table`]: the rows that the workloads read and write: one key per row number, random values.
//! - [`workload`]: what one transaction of each workload does.
//! - [`target`]: the measured client: the Rust client, or a `libfdb_c`.
//! - [`lodging`]: where the table lies in a database, beside the keys of others.
//! - [`run`]: clients that repeat the transaction, and the counters they keep.
//! - [`scale`]: results converted to another machine.
//! - [`report`]: an HTML page with plots, from the JSON objects of many runs.
//!
//! The load generator usually shares the machine with the servers and is then the bottleneck. So the cost of a
//! server is also given as the CPU time of the server processes over the measured interval.

pub mod lodging;
pub mod report;
pub mod run;
pub mod scale;
pub mod table;
pub mod target;
pub mod workload;

pub use run::{Measured, Plan};
pub use workload::Workload;

use plinth_client::connect;
use plinth_coordination::ClusterFile;
use plinth_foreign::Library;
use plinth_runtime::Boxed;
use plinth_runtime::real::spawn_worker;
use std::path::PathBuf;

/// Runs the plan with Plinth's own client. The error is one line.
///
/// This function and the next are what a caller uses: the load generator is compiled here, as a fast program, and not
/// with the command line, which is compiled as a small one.
pub fn run(plan: Plan, file: ClusterFile) -> Boxed<'static, Result<Measured, String>> {
    Box::pin(run::run(plan, move || connect(file.clone())))
}

/// As [`lodging::lodge`].
pub fn lodge(
    rows: u64,
    beside_others: bool,
    run: String,
    file: ClusterFile,
) -> Boxed<'static, Result<bool, String>> {
    Box::pin(async move { lodging::lodge(&connect(file), rows, beside_others, &run).await })
}

/// As [`lodging::live`], in a thread of its own: a loop that measures the machine is late.
pub fn live(run: String, file: ClusterFile) {
    let living = async move || lodging::live(&connect(file), &run).await;
    drop(spawn_worker("bench beats", living)); // it ends with its table, or with the process
}

/// As [`lodging::loaded`].
pub fn loaded(run: String, stays: bool, file: ClusterFile) -> Boxed<'static, Result<(), String>> {
    Box::pin(async move { lodging::loaded(&connect(file), &run, stays).await })
}

/// As [`lodging::clear`].
pub fn clear(run: String, file: ClusterFile) -> Boxed<'static, Result<(), String>> {
    Box::pin(async move { lodging::clear(&connect(file), &run).await })
}

/// As [`run()`], with a library that has opened the cluster of this file before.
pub fn run_foreign(
    plan: Plan,
    library: Library,
    file: PathBuf,
) -> Boxed<'static, Result<Measured, String>> {
    let open = move || library.open(&file).expect("it has been opened before");
    Box::pin(run::run(plan, open))
}
