//! Servers that failed or were slow a moment ago: others of a team are asked before them.
//!
//! Without this a machine that is gone costs its share of all reads a wait, for as long as it takes to heal its shards;
//! a transaction that reads from many shards would be too old before it is done.

use plinth_rpc::Interface;
use plinth_runtime::{Duration, Instant, probe};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// After another replica was faster, although it was asked later.
const SLOW: Duration = Duration::from_millis(500);
/// After the connection failed.
const FAILED: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Avoided(RefCell<BTreeMap<SocketAddr, Instant>>);

impl Avoided {
    pub fn slow(&self, server: &Interface) {
        self.until(server, SLOW);
    }

    pub fn failed(&self, server: &Interface) {
        self.until(server, FAILED);
    }

    fn until(&self, server: &Interface, time: Duration) {
        let until = plinth_runtime::now() + time;
        let mut avoided = self.0.borrow_mut();
        let known = avoided.entry(server.address).or_insert(until);
        *known = until.max(*known);
    }

    /// The members of a team in the order in which to ask them: at random, those to be avoided last.
    pub fn order(&self, servers: &[Interface]) -> Vec<Interface> {
        let first = plinth_runtime::random::below(servers.len() as u64) as usize;
        let mut order: Vec<Interface> = (0..servers.len())
            .map(|i| servers[(first + i) % servers.len()])
            .collect();
        let mut avoided = self.0.borrow_mut();
        if !avoided.is_empty() {
            let now = plinth_runtime::now();
            avoided.retain(|_, until| *until > now);
            if avoided.contains_key(&order[0].address) {
                probe!("client_avoids_server");
            }
            order.sort_by_key(|server| avoided.contains_key(&server.address));
        }
        order
    }
}
