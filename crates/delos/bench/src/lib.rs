//! `plinth delos bench`: log-structured protocols on this machine. The figures of *Log-structured Protocols
//! in Delos* (SOSP'21, §5), and what the project promises of its logs. Every figure is a ratio, or a comparison within
//! one run.
//!
//! - [`nodes`]: three workers of this process, each with a log server, sequencers, a coordinator and a replica, over
//!   real sockets and disks.
//! - [`append`], [`reconfigure`]: the log alone. [`rates`]: Figure 9. [`apply`]: Figure 7. [`lease`]: Figure 10.
//! - [`parts`]: all of these. [`figure`]: what one has found, as text, JSON and HTML.

pub mod append;
pub mod apply;
pub mod disk;
pub mod figure;
pub mod lease;
pub mod nodes;
pub mod parts;
pub mod plan;
mod proxy;
pub mod rates;
pub mod reconfigure;
pub mod replicas;
pub mod rows;
