//! The kinds of services that a process of this program can host.

use plinth_delos::replica::Kind;
use plinth_delos::replica::serves::Serves;
use plinth_services::KINDS as SHORT;
use plinth_table::application::Tables;
use plinth_zelos::Zelos;

/// Those that have a crate of their own.
const LONG: [Kind; 2] = [Kind::of::<Tables>(), Kind::of::<Zelos>()];

pub const KINDS: &[Kind] = &{
    let mut all = [LONG[0]; SHORT.len() + LONG.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = match i < SHORT.len() {
            true => SHORT[i],
            false => LONG[i - SHORT.len()],
        };
        i += 1;
    }
    all
};

/// The kind that serves ZooKeeper's clients.
pub const ZELOS: &str = <Zelos as Serves>::KIND;
