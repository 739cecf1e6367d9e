//! Metrics: numbers for monitoring, each declared where it is counted.
//!
//! A declaration registers itself at link time, so the page of metrics, its help texts and the test of the dashboard
//! know every family. [`Family::add`] counts events of this process; [`Values`] are numbers that their owner keeps up
//! to date; other values are read when the page is made (see `server/src/metrics.rs`).

mod history;
pub mod latency;
pub mod page;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, from zero at the start of the process.
    Counter,
    Gauge,
    Histogram,
}

/// A number, or several that differ by labels, under one name.
#[derive(PartialEq, Eq, Debug)]
pub struct Family {
    pub kind: Kind,
    /// Name in the terms of Prometheus: `plinth_`, the subject, the unit, and `_total` for a counter.
    pub name: &'static str,
    pub help: &'static str,
}

#[doc(hidden)]
#[linkme::distributed_slice]
pub static FAMILIES: [Family];

/// Declares metrics, for example
/// `metric! { pub INCREMENTS: Counter = "plinth_counter_increments_total", "increments answered"; }`.
#[macro_export]
macro_rules! metric {
    ($($(#[$doc:meta])* $visible:vis $metric:ident: $kind:ident = $name:literal, $help:literal;)*) => {$(
        $(#[$doc])*
        #[$crate::macro_support::linkme::distributed_slice($crate::metric::FAMILIES)]
        #[linkme(crate = $crate::macro_support::linkme)]
        $visible static $metric: $crate::metric::Family = $crate::metric::Family {
            kind: $crate::metric::Kind::$kind,
            name: $name,
            help: $help,
        };
    )*};
}

thread_local! {
    static COUNTS: RefCell<BTreeMap<&'static str, (&'static Family, u64)>> = const { RefCell::new(BTreeMap::new()) };
}

impl Family {
    /// Counts `more` events of this thread. It costs a map lookup.
    pub fn add(&'static self, more: u64) {
        assert_eq!(self.kind, Kind::Counter, "{}", self.name);
        COUNTS.with_borrow_mut(|counts| counts.entry(self.name).or_insert((self, 0)).1 += more);
    }
}

/// Events counted on this thread. In a simulation: by all processes together.
pub fn counts() -> Vec<(&'static Family, u64)> {
    COUNTS.with_borrow(|counts| counts.values().copied().collect())
}

/// A number of a family, with its labels.
#[derive(Clone, PartialEq, Debug)]
pub struct Labelled {
    pub family: &'static Family,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

thread_local! {
    static VALUES: RefCell<BTreeMap<u64, Vec<Labelled>>> = const { RefCell::new(BTreeMap::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Numbers that somebody who knows them keeps up to date. They are on the page while this is alive.
pub struct Values(u64);

impl Values {
    /// No numbers yet.
    #[allow(clippy::new_without_default)] // it registers
    pub fn new() -> Self {
        let id = NEXT.get();
        NEXT.set(id + 1);
        Values(id)
    }

    /// Replaces all numbers.
    pub fn set(&self, values: Vec<Labelled>) {
        VALUES.with_borrow_mut(|all| all.insert(self.0, values));
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        // On a thread that ends, the table is gone already.
        let _ = VALUES.try_with(|all| all.borrow_mut().remove(&self.0));
    }
}

/// The numbers on this thread. In a simulation: of all processes together.
pub fn values() -> Vec<Labelled> {
    VALUES.with_borrow(|all| all.values().flatten().cloned().collect())
}

/// Every family linked into this program, by name.
pub fn families() -> Vec<&'static Family> {
    let mut families: Vec<&Family> = FAMILIES.iter().collect();
    families.sort_unstable_by_key(|family| family.name);
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    metric! { EVENTS: Counter = "plinth_test_events_total", "events of a test"; }

    metric! { LEVEL: Gauge = "plinth_test_level", "a level of a test"; }

    #[test]
    fn values_are_replaced_as_a_whole_and_go_with_their_owner() {
        let value = |value| Labelled {
            family: &LEVEL,
            labels: vec![("of", "x".into())],
            value,
        };
        let (one, other) = (Values::new(), Values::new());
        one.set(vec![value(1.0), value(2.0)]);
        other.set(vec![value(3.0)]);
        one.set(vec![value(4.0)]);
        assert_eq!(values(), [value(4.0), value(3.0)]);
        drop(one);
        assert_eq!(values(), [value(3.0)]);
    }

    #[test]
    fn a_declared_counter_is_known_before_it_counts_and_adds_up() {
        assert!(families().contains(&&EVENTS));
        let count = || {
            let found = counts().into_iter().find(|(family, _)| **family == EVENTS);
            found.map(|(_, count)| count)
        };
        assert_eq!(count(), None);
        EVENTS.add(2);
        EVENTS.add(3);
        assert_eq!(count(), Some(5));
    }
}
