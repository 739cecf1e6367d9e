//! An example of an application on top of the store: named counters behind a port of their own. CONTRIBUTING.md walks
//! through it.
//!
//! ```text
//!   add <name> <amount>      ok <new value>        adds once, even if the commit had to be tried again
//!   get <name>               ok <value>            0 for a name that was never added to
//!   anything else            error <why>
//! ```
//!
//! A request is one line, an answer is one line, in the order of the requests. A process keeps nothing: a client may
//! use any of them. An answer `ok` means that the store has committed. Without an answer the addition may have
//! happened.

mod request;
mod server;
mod special;
mod workload;

pub use request::{Request, parse};
pub use server::serve;

use plinth_runtime::{Duration, knob, metric};

knob! {
    /// Longest request. A client that sends a longer one is disconnected.
    pub REQUEST_BYTES_MAX: usize = "counter_request_bytes_max", 4096, sim 100, 4096, legal 100, 65_536;
}

metric! {
    pub ADDITIONS: Counter = "plinth_counter_additions_total", "additions that were answered with their new value";
}

/// A connection that sends nothing for this long is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Unsent bytes of answers above which no further request is read.
const UNSENT_BYTES_MAX: usize = 64 << 10;

plinth_workload::application! {
    plinth_workload::Application {
        name: "counter",
        module: module_path!(),
        serve: |place| Box::pin(server::run(place)),
        keeps_data: false,
        workloads: &[plinth_workload::Kind {
            name: "counter",
            make: |site| std::rc::Rc::new(workload::Counting::new(site)),
        }],
    }
}
