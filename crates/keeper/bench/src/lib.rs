//! `plinth keeper bench`: ZooKeeper's protocol, measured against any server that speaks it.
//!
//! - [`mix`]: the workloads; [`tree`]: their nodes, and what is known of each.
//! - [`line`]: a session on a connection; [`load`]: sessions that repeat a workload's requests.
//! - [`claim`]: one bench at a time; [`setup`]: makes and removes the nodes.
//! - [`run`]: every workload on every server in turn: A B B A, because the speed of a machine drifts.
//! - [`spread`]: medians of the rounds; [`goals`]: what is wanted of a server beside another one.
//! - [`report`]: JSON objects, lines of text, and an HTML page; [`markdown`]: tables.
//!
//! Every answer is checked: the sizes and the first bytes of data, versions, paths, the order of answers and zxids. In
//! the end, the versions of written nodes are compared with the number of writes that were answered.

pub mod claim;
pub mod goals;
pub mod line;
pub mod load;
pub mod markdown;
pub mod mix;
pub mod report;
pub mod run;
pub mod setup;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod tree;
