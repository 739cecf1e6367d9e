//! The kinds of services that a process of this program can host.

use plinth_delos::replica::Kind;
use plinth_table::application::Tables;

pub const KINDS: &[Kind] = &{
    let [lock, queue] = *plinth_services::KINDS else {
        panic!("there are two of them");
    };
    [lock, queue, Kind::of::<Tables>()]
};
