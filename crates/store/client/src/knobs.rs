//! The knobs of clients.

use plinth_runtime::knob;

knob! {
    pub CLIENT_LOCATIONS_MAX: usize = "client_locations_max", 100_000, sim 1, 1000;
}
