//! Where ZooKeeper's clients come in.

use plinth_keeper::Options;
use std::net::SocketAddr;

/// A setting of a process.
#[derive(Clone, Debug)]
pub struct Door {
    pub listen: SocketAddr,
    pub options: Options,
}
