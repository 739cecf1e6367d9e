//! What a worker tells of those who connect, and of those whom it refuses. Floods are summed: nobody fills a disk.

use plinth_identity::Audience;
use plinth_identity::Identity;
use plinth_runtime::{Duration, Instant, audit, metric, now};
use std::cell::Cell;
use std::fmt::Display;
use std::net::SocketAddr;

metric! {
    CONNECTIONS: Counter = "plinth_connections_greeted_total",
        "connections whose other side has proved a key or shown a certificate";
    REFUSED_CONNECTIONS: Counter = "plinth_connections_refused_total",
        "connections that were refused for want of a good key or certificate";
    REFUSED_REQUESTS: Counter = "plinth_requests_refused_total", "requests that their sender may not send";
}

/// At most so many events follow each other at once, and then one in each pause.
const AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// Of all connections of a worker, or of a port of another protocol.
pub struct Audit {
    refusals: Allowance,
    greetings: Allowance,
    refused: Cell<u64>,
}

/// How many events may be told.
struct Allowance {
    /// Events that may be told at once, and since when one more is due.
    left: Cell<u32>,
    since: Cell<Option<Instant>>,
    /// Not told since the last event.
    untold: Cell<u64>,
}

impl Allowance {
    fn new() -> Allowance {
        Allowance {
            left: Cell::new(AT_ONCE),
            since: Cell::new(None),
            untold: Cell::new(0),
        }
    }

    /// How many were not told before this event; `None` if it is not told either.
    fn may_tell(&self) -> Option<u64> {
        let since = self.since.get().unwrap_or_else(now);
        let due = since.elapsed().as_nanos() / PAUSE.as_nanos();
        let left = u128::from(self.left.get()) + due;
        self.left.set(left.min(u128::from(AT_ONCE)) as u32);
        let is_later = due > 0 || self.since.get().is_none();
        if is_later {
            self.since.set(Some(now()));
        }
        if self.left.get() == 0 {
            self.untold.set(self.untold.get() + 1);
            return None;
        }
        self.left.set(self.left.get() - 1);
        Some(self.untold.take())
    }
}

impl Audit {
    #[expect(clippy::new_without_default, reason = "there is one of a worker")]
    pub fn new() -> Audit {
        Audit {
            refusals: Allowance::new(),
            greetings: Allowance::new(),
            refused: Cell::new(0),
        }
    }

    /// How many connections were refused.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// The other side has proved a key, or shown a certificate.
    pub fn greeted(&self, peer: SocketAddr, identity: impl Display) {
        CONNECTIONS.add(1);
        if let Some(untold) = self.greetings.may_tell() {
            audit!("ConnectionGreeted", "peer" => peer, "identity" => identity, "untold" => untold);
        }
    }

    /// An operator asks for this. Operators are trusted not to fill disks.
    pub fn asked(&self, peer: SocketAddr, request: &str, what: &dyn Display) {
        audit!("OperatorAsked", "peer" => peer, "request" => request, "what" => what);
    }

    pub fn connection_refused(&self, peer: SocketAddr, why: impl Display) {
        REFUSED_CONNECTIONS.add(1);
        self.refused.set(self.refused.get() + 1);
        if let Some(untold) = self.refusals.may_tell() {
            audit!("ConnectionRefused", "peer" => peer, "reason" => why, "untold" => untold);
        }
    }

    pub fn request_refused(
        &self,
        peer: SocketAddr,
        identity: Identity,
        request: &str,
        audience: Audience,
    ) {
        REFUSED_REQUESTS.add(1);
        if let Some(untold) = self.refusals.may_tell() {
            audit!(
                "RequestRefused",
                "peer" => peer,
                "identity" => identity,
                "request" => request,
                "needs" => audience.least(),
                "untold" => untold,
            );
        }
    }

    /// A request of a kind that the caller may send, whose content is not for it.
    pub fn request_denied(&self, peer: SocketAddr, identity: Identity, request: &str, why: &str) {
        REFUSED_REQUESTS.add(1);
        if let Some(untold) = self.refusals.may_tell() {
            audit!(
                "RequestRefused",
                "peer" => peer,
                "identity" => identity,
                "request" => request,
                "reason" => why,
                "untold" => untold,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{SimConfig, Simulation};
    use plinth_runtime::sleep;

    #[test]
    fn a_flood_is_summed_and_told_slowly() {
        Simulation::new(1, SimConfig::default()).run(async {
            let allowance = Allowance::new();
            let told = |count: u32| {
                (0..count)
                    .filter_map(|_| allowance.may_tell())
                    .collect::<Vec<_>>()
            };
            assert_eq!(told(1000), [0; AT_ONCE as usize]);
            sleep(PAUSE + PAUSE / 2).await;
            assert_eq!(told(1000), [990]);
            sleep(100 * PAUSE).await;
            let later = told(1000);
            assert_eq!((later.len(), later[0]), (AT_ONCE as usize, 999));
        });
    }
}
