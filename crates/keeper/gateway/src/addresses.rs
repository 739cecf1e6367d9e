//! Connections by address: no machine takes them all (ZooKeeper's `maxClientCnxns`).
//!
//! Who comes when the address has all that it may have takes the place of the oldest connection of the address that
//! has not said who it is. So connections that say nothing keep nobody out.

use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Instant, now, probe, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

/// The trace tells of an address again after this time.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// The connections of an address.
#[derive(Default)]
struct Taken {
    count: usize,
    /// Those that have not said who they are, the oldest first.
    silent: BTreeMap<u64, Notify>,
}

/// See the module.
#[derive(Default)]
pub struct Addresses {
    taken: RefCell<BTreeMap<IpAddr, Taken>>,
    next: Cell<u64>,
    refused: Cell<u64>,
    /// The address of the last that was.
    last: Cell<Option<IpAddr>>,
    told: Cell<Option<Instant>>,
}

impl Addresses {
    /// A place for one more connection of the address; `None` if `most` others have said who they are. 0 is no limit.
    pub fn take(self: &Rc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let address = address.to_canonical();
        let mut all = self.taken.borrow_mut();
        let taken = all.entry(address).or_default();
        if most > 0 && taken.count >= most {
            self.refuse(address, most);
            let (_, oldest) = taken.silent.pop_first()?;
            taken.count -= 1;
            oldest.notify_one();
        }
        let number = self.next.get();
        self.next.set(number + 1);
        let given_up = Notify::new();
        taken.count += 1;
        taken.silent.insert(number, given_up.clone());
        let (all, silent) = (taken.count, taken.silent.len());
        assert!(
            silent <= all,
            "{silent} of {all} connections of {address} say nothing"
        );
        Some(Place {
            addresses: self.clone(),
            address,
            number,
            given_up,
            is_silent: Cell::new(true),
        })
    }

    fn refuse(&self, address: IpAddr, most: usize) {
        probe!("keeper_address_has_many_connections");
        self.refused.set(self.refused.get() + 1);
        self.last.set(Some(address));
        if self.told.get().is_none_or(|at| at.elapsed() >= QUIET_FOR) {
            self.told.set(Some(now()));
            trace_warn!(
                "KeeperTooManyConnections",
                "address" => address,
                "limit" => most,
                "flag" => "--max-connections-per-address"
            );
        }
    }

    /// Connections that found no place, or lost it to one that came later.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Whose connection was the last of them.
    pub fn last_refused(&self) -> Option<IpAddr> {
        self.last.get()
    }
}

/// The place of a connection, as long as it lives.
pub struct Place {
    addresses: Rc<Addresses>,
    address: IpAddr,
    number: u64,
    given_up: Notify,
    is_silent: Cell<bool>,
}

impl Place {
    /// Ends if another connection takes the place.
    pub async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// The client has said who it is: nobody takes its place any more.
    pub fn keep(&self) {
        if let Some(taken) = self.addresses.taken.borrow_mut().get_mut(&self.address)
            && taken.silent.remove(&self.number).is_some()
        {
            self.is_silent.set(false);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.addresses.taken.borrow_mut();
        let Some(taken) = all.get_mut(&self.address) else {
            return;
        };
        let was_silent = taken.silent.remove(&self.number).is_some();
        // Otherwise another connection has its place.
        if was_silent || !self.is_silent.get() {
            assert!(
                taken.count > taken.silent.len(),
                "{} has more places than it took",
                self.address
            );
            taken.count -= 1;
        }
        if taken.count == 0 {
            all.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::{real, timeout};

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_gets_as_many_places_as_it_may_have_at_the_same_time() {
        real::block_on(async {
            let addresses = Rc::new(Addresses::default());
            let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
            let mapped = address("::ffff:10.0.0.1");
            let places = [one, mapped].map(|of| addresses.take(of, 2).expect("a place"));
            places.iter().for_each(Place::keep);
            assert!(addresses.take(one, 2).is_none() && addresses.take(other, 2).is_some());
            assert!(addresses.take(one, 0).is_some(), "there is no limit");
            drop(places);
            assert!(addresses.take(one, 2).is_some());
            assert_eq!(addresses.refused(), 1);
            assert!(addresses.taken.borrow().is_empty());
        });
    }

    #[test]
    fn the_oldest_connection_that_says_nothing_makes_room() {
        real::block_on(async {
            let addresses = Rc::new(Addresses::default());
            let one = address("10.0.0.1");
            let take = || addresses.take(one, 3).expect("a place");
            let (kept, oldest, younger) = (take(), take(), take());
            kept.keep();
            let next = take();
            oldest.given_up().await;
            let moment = Duration::from_millis(1);
            assert!(timeout(moment, younger.given_up()).await.is_none());
            // It has lost its place: neither its greeting nor its end changes anything.
            oldest.keep();
            drop(oldest);
            assert_eq!(addresses.taken.borrow()[&one].count, 3);
            younger.keep();
            next.keep();
            assert!(addresses.take(one, 3).is_none());
            drop((kept, younger, next));
            assert!(addresses.taken.borrow().is_empty());
        });
    }
}
