//! How one role learns that another has gone.
//!
//! Every role keeps a [`FailureBeacon`]: a request that is never answered while the role lives. When the role goes,
//! its unanswered requests are answered "broken promise". When its process goes, the connection breaks and new ones
//! are refused. When its process is stopped or cut off, the pings of the connection time out; a watched process is
//! pinged often. A watcher that was held up itself does not count that time as silence of the other side.

use crate::knobs::FAILURE_DETECTION_MS;
use crate::{Interface, Registration, Transport, Waiters, requests};
use plinth_core::texts;
use plinth_core::{Error, Uid, record};
use plinth_runtime::{Boxed, Duration, probe};
use std::net::SocketAddr;

record! {
    /// Answered only when the role that serves it is gone.
    pub struct WaitFailure {}
}

requests! {
    WaitFailure = 1 for Readers => ();
}

/// Most watchers of one role. Further ones get [`Error::server_request_queue_full`] and ask again later.
const WATCHERS_MAX: usize = 10_000;

/// After this many refused connections in a row, a process counts as dead, and its roles with it: a live process
/// listens.
const REFUSALS_ENOUGH: u32 = 2;

/// The id that no role has.
const NOBODY: Uid = Uid(0);

/// Held by a role as long as it lives.
pub struct FailureBeacon {
    _registration: Registration,
}

impl FailureBeacon {
    pub fn new(transport: &Transport, id: Uid) -> Self {
        let waiting = Waiters::new("beacon_watchers");
        let registration = transport.serve::<WaitFailure>(id, move |_, responder| {
            // Only newcomers are refused. To drop a waiting request would report the role as dead.
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

texts! {
    /// Why a role counts as gone.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Gone {
        /// Its process lives but no longer hosts the role.
        Ended = "the role ended, its process lives";
        /// No process listens at its address.
        Refused = "no process listens there any more";
        /// Nothing comes from its process, not even an answer to a ping.
        Silent = "its process does not answer, or cannot be reached";
    }
}

/// True if the process at `address` answers anything within `limit`.
pub async fn answers(transport: &Transport, address: SocketAddr, limit: Duration) -> bool {
    let endpoint = Interface::new(address, NOBODY).endpoint::<WaitFailure>();
    let answer = plinth_runtime::timeout(limit, transport.call(&endpoint, WaitFailure {})).await;
    answer == Some(Err(Error::broken_promise))
}

/// Returns when the role at `interface` has certainly gone, or could not be reached for `failure_detection_ms`, and
/// says which.
pub fn wait_failure(transport: &Transport, interface: Interface) -> Boxed<'_, Gone> {
    Box::pin(async move {
        let endpoint = interface.endpoint::<WaitFailure>();
        let patience = Duration::from_millis(FAILURE_DETECTION_MS.get());
        let _watching = transport.watch(interface.address);
        let mut unreachable_since = None;
        loop {
            let asked = plinth_runtime::now();
            match transport.call(&endpoint, WaitFailure {}).await {
                Err(Error::broken_promise) => return Gone::Ended,
                // The kernel of a stopped process accepts connections, but nothing answers on them.
                Err(_) if transport.is_unreachable(&interface.address.into()) => {
                    probe!("rpc_silence_detected");
                    return Gone::Silent;
                }
                Ok(()) | Err(Error::request_maybe_delivered) => {
                    // The connection was up until now. The next attempt shows whether the process is dead or the
                    // connection was cut.
                    unreachable_since = None;
                    plinth_runtime::sleep(Duration::from_millis(5)).await;
                }
                // The role lives; its list of watchers is full.
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
    })
}
