//! The kinds of services that this program can host.

use plinth_delos::replica::Kind;
use plinth_delos::replica::serves::Serves;
use plinth_services::{Hosted, lock, queue};
use plinth_zelos::Zelos;

pub static KINDS: [Kind; 3] = [
    Kind::of::<Hosted<lock::Locks>>(),
    Kind::of::<Hosted<queue::Queues>>(),
    Kind::of::<Zelos>(),
];

/// The kind that serves ZooKeeper's clients.
pub const ZELOS: &str = <Zelos as Serves>::KIND;
