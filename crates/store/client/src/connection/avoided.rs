//! Servers that failed or were slow recently: other servers of a team are asked first.
//!
//! Without this, a machine that is gone delays its share of all reads until its shards are healed; a transaction that
//! reads from many shards would be too old before it is done.

use plinth_rpc::Interface;
use plinth_runtime::{Duration, Instant, probe};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// How long a server is avoided after another replica was faster, although it was asked later.
const SLOW: Duration = Duration::from_millis(500);
/// How long a server is avoided after its connection failed.
const FAILED: Duration = Duration::from_secs(2);

/// A server that has not failed for this long after it was last avoided is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Avoided(RefCell<BTreeMap<SocketAddr, Entry>>);

struct Entry {
    until: Instant,
    /// How long it is avoided the next time.
    pause: Duration,
}

impl Avoided {
    pub fn slow(&self, server: &Interface) {
        self.avoid(server, SLOW);
    }

    pub fn failed(&self, server: &Interface) {
        self.avoid(server, FAILED);
    }

    pub fn answered(&self, server: &Interface) {
        let mut avoided = self.0.borrow_mut();
        if !avoided.is_empty() {
            avoided.remove(&server.address);
        }
    }

    fn avoid(&self, server: &Interface, pause: Duration) {
        let until = plinth_runtime::now() + pause;
        let mut avoided = self.0.borrow_mut();
        match avoided.get(&server.address) {
            Some(known) if known.until > until => {}
            _ => drop(avoided.insert(server.address, Entry { until, pause })),
        }
    }

    /// The members of a team in the order in which to ask them: at random, avoided ones last.
    pub fn order(&self, servers: &[Interface]) -> Vec<Interface> {
        let first = plinth_runtime::random::below(servers.len() as u64) as usize;
        let mut order: Vec<Interface> = (0..servers.len())
            .map(|i| servers[(first + i) % servers.len()])
            .collect();
        let mut avoided = self.0.borrow_mut();
        if avoided.is_empty() {
            return order;
        }
        let now = plinth_runtime::now();
        avoided.retain(|_, entry| entry.until + FORGOTTEN > now);
        let is_avoided =
            |server: &Interface| avoided.get(&server.address).is_some_and(|e| e.until > now);
        if is_avoided(&order[0]) {
            probe!("client_avoids_server");
        }
        order.sort_by_key(is_avoided);
        if let Some(entry) = avoided.get_mut(&order[0].address)
            && entry.until <= now
        {
            // This one read tests whether the server is well again; other reads do not wait for that.
            entry.until = now + entry.pause;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;
    use plinth_runtime::sim::{SimConfig, Simulation};

    #[test]
    fn one_read_finds_out_whether_a_server_is_back_and_the_others_go_elsewhere() {
        let simulation = Simulation::new(1, SimConfig::default());
        simulation.run(async {
            let server = |port| Interface::new(([10, 0, 0, 1], port).into(), Uid(port.into()));
            let team = [server(1), server(2)];
            let avoided = Avoided::default();
            let asked_first = |count: usize| {
                let orders = (0..count).map(|_| avoided.order(&team));
                orders.filter(|order| order[0] == team[0]).count()
            };
            avoided.failed(&team[0]);
            assert_eq!(asked_first(100), 0);
            plinth_runtime::sleep(FAILED).await;
            assert_eq!(asked_first(100), 1);
            avoided.answered(&team[0]);
            assert!(asked_first(100) > 20);
        });
    }
}
