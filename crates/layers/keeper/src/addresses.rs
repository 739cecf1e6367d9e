//! Connections by address: no machine takes them all (ZooKeeper's `maxClientCnxns`).

use plinth_runtime::{Duration, Instant, now, probe, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

/// The trace tells of an address again after this time.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// How many connections each address has.
#[derive(Default)]
pub struct Addresses {
    counts: RefCell<BTreeMap<IpAddr, usize>>,
    refused: Cell<u64>,
    told: Cell<Option<Instant>>,
}

impl Addresses {
    /// A place for one more connection of the address; `None` if it has `most` already. 0 is no limit.
    pub fn take(self: &Rc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.counts.borrow_mut();
        let count = counts.entry(address).or_default();
        if most > 0 && *count >= most {
            self.refuse(address, most);
            return None;
        }
        *count += 1;
        Some(Place(self.clone(), address))
    }

    fn refuse(&self, address: IpAddr, most: usize) {
        probe!("keeper_address_has_many_connections");
        self.refused.set(self.refused.get() + 1);
        if self.told.get().is_none_or(|at| at.elapsed() >= QUIET_FOR) {
            self.told.set(Some(now()));
            trace_warn!("KeeperTooManyConnections", "address" => address, "limit" => most);
        }
    }

    /// Connections that found no place.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
}

/// The place of a connection, as long as it lives.
pub struct Place(Rc<Addresses>, IpAddr);

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.0.counts.borrow_mut();
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_as_many_places_as_it_may_have_at_the_same_time() {
        plinth_runtime::real::block_on(async {
            let addresses = Rc::new(Addresses::default());
            let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse::<IpAddr>().expect("one"));
            let mapped = "::ffff:10.0.0.1".parse().expect("an address");
            let places = [addresses.take(one, 2), addresses.take(mapped, 2)];
            assert!(places.iter().all(Option::is_some));
            assert!(addresses.take(one, 2).is_none() && addresses.take(other, 2).is_some());
            assert!(addresses.take(one, 0).is_some(), "there is no limit");
            drop(places);
            assert!(addresses.take(one, 2).is_some());
            assert_eq!(addresses.refused(), 1);
            assert!(addresses.counts.borrow().is_empty());
        });
    }
}
