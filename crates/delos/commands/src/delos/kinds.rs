//! The kinds of services that a process of this program can host.

use plinth_delos::replica::Kind;
use plinth_delos::replica::serves::Serves;
use plinth_services::{LOCKS, QUEUES};
use plinth_zelos::Zelos;

pub static KINDS: [&Kind; 4] = [&LOCKS, &QUEUES, &plinth_table::KIND, &plinth_zelos::KIND];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(|kind| kind.name)
}

/// The kind that serves ZooKeeper's clients.
pub const ZELOS: &str = <Zelos as Serves>::KIND;
