//! How one role learns that another has gone.
//!
//! Every role keeps a [`FailureBeacon`]: a request that is never answered while the role lives. When the role
//! goes, its unanswered requests are answered "broken promise"; when its process goes, the connection breaks and
//! new ones are refused; when it is stopped, or cut off, the pings of the connection time out: whoever is watched is
//! pinged often. Who was held up itself gives the other the benefit of the doubt.

use crate::{Interface, Registration, Transport, Waiters, requests};
use plinth_core::{Error, Uid, record};
use plinth_runtime::knobs::knobs;
use plinth_runtime::{Duration, probe};

record! {
    /// Answered only when the role that serves it is gone.
    pub struct WaitFailure {}
}

requests! {
    WaitFailure = 1 => ();
}

/// At most this many watchers a role; more are told to come again.
const WATCHERS_MAX: usize = 10_000;

/// A process that lives listens. So many refused connections in a row say that it does not, and its roles went with it.
const REFUSALS_ENOUGH: u32 = 2;

/// Held by a role as long as it lives.
pub struct FailureBeacon {
    _registration: Registration,
}

impl FailureBeacon {
    pub fn new(transport: &Transport, id: Uid) -> Self {
        let waiting = Waiters::new("beacon_watchers");
        let registration = transport.serve::<WaitFailure>(id, move |_, responder| {
            // Nobody is sent away who waits already: that would tell of a death.
            if waiting.len() >= WATCHERS_MAX {
                return responder.fail(Error::server_request_queue_full);
            }
            waiting.add((), responder);
        });
        FailureBeacon {
            _registration: registration,
        }
    }
}

/// Why a role is taken for gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// Its process lives, and does not have it any more.
    Ended,
    /// No process listens where it was.
    Refused,
    /// Nothing comes from its process, not even an answer to a ping.
    Silent,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gone::Ended => "the role ended, its process lives",
            Gone::Refused => "no process listens there any more",
            Gone::Silent => "its process does not answer, or cannot be reached",
        })
    }
}

/// Returns when the role at `interface` has certainly gone, or cannot be reached for `failure_detection_ms`, and says which.
pub async fn wait_failure(transport: &Transport, interface: Interface) -> Gone {
    let endpoint = interface.endpoint::<WaitFailure>();
    let patience = Duration::from_millis(knobs().failure_detection_ms);
    let _watching = transport.watch(interface.address);
    let mut unreachable_since = None;
    loop {
        let asked = plinth_runtime::now();
        match transport.call(&endpoint, WaitFailure {}).await {
            Err(Error::broken_promise) => return Gone::Ended,
            // A stopped process takes connections, and says nothing.
            Err(_) if transport.is_unreachable(interface.address) => {
                probe!("rpc_silence_detected");
                return Gone::Silent;
            }
            Ok(()) | Err(Error::request_maybe_delivered) => {
                // The connection was up until now: one more attempt tells a cut cable from a dead process.
                unreachable_since = None;
                plinth_runtime::sleep(Duration::from_millis(5)).await;
            }
            // It lives, and says so to others.
            Err(Error::server_request_queue_full) => {
                unreachable_since = None;
                plinth_runtime::sleep(patience).await;
            }
            Err(_) if transport.refusals(interface.address) >= REFUSALS_ENOUGH => {
                probe!("rpc_refused_by_dead_process");
                return Gone::Refused;
            }
            Err(_) => {
                let since = *unreachable_since.get_or_insert(asked);
                if plinth_runtime::now().saturating_since(since) >= patience {
                    probe!("rpc_failure_detected");
                    return Gone::Silent;
                }
            }
        }
    }
}
