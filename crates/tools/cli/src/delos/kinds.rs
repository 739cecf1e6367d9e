//! The kinds of services that a process of this program can host.

use plinth_delos::replica::Kind;
use plinth_delos::replica::serves::Serves;
use plinth_table::application::Tables;
use plinth_zelos::Zelos;

pub const KINDS: &[Kind] = &{
    let [lock, queue] = *plinth_services::KINDS else {
        panic!("there are two of them");
    };
    [lock, queue, Kind::of::<Tables>(), Kind::of::<Zelos>()]
};

/// The kind that serves ZooKeeper's clients.
pub const ZELOS: &str = <Zelos as Serves>::KIND;
