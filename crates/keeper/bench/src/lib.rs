//! `plinth keeper bench`: ZooKeeper's protocol, measured against any server that speaks it.
//!
//! - [`mix`]: the workloads; [`tree`]: their nodes, and what is known of each.
//! - [`line`]: a session on a connection; [`load`]: sessions that repeat a workload's requests.
//! - [`setup`]: makes and removes the nodes.
//! - [`run`]: every workload on every server in turn: A B A B, because the speed of a machine drifts.
//! - [`report`]: JSON objects, lines of text, and an HTML page.
//!
//! Every answer is checked: the sizes and the first bytes of data, versions, paths, the order of answers and zxids. In
//! the end, the versions of written nodes are compared with the number of writes that were answered.

pub mod line;
pub mod load;
pub mod mix;
pub mod report;
pub mod run;
pub mod setup;
#[cfg(test)]
mod tests;
pub mod tree;
