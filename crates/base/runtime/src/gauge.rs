//! Gauges: the lengths of the lists of waiting requests and of remembered state.
//!
//! A list registers once how to read its length; this costs nothing until the gauges are read. After hours of idling
//! every list must be as short as at the start: the simulator checks that (scenario `idle`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

type Read = Rc<dyn Fn() -> usize>;

thread_local! {
    static GAUGES: RefCell<BTreeMap<u64, (&'static str, Read)>> = const { RefCell::new(BTreeMap::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// The registration of a list. The list is read while this is alive.
pub struct Gauge(u64);

impl Gauge {
    /// `read` returns the length. It must not keep the list alive, and must not borrow data that the owner holds
    /// across an await.
    pub fn new(name: &'static str, read: impl Fn() -> usize + 'static) -> Gauge {
        let id = NEXT.get();
        NEXT.set(id + 1);
        GAUGES.with_borrow_mut(|gauges| gauges.insert(id, (name, Rc::new(read))));
        Gauge(id)
    }

    /// Registers a list that is part of `owner`.
    pub fn of<T: 'static>(
        name: &'static str,
        owner: &Rc<T>,
        read: impl Fn(&T) -> usize + 'static,
    ) -> Gauge {
        let owner = Rc::downgrade(owner);
        Gauge::new(name, move || {
            owner.upgrade().map_or(0, |owner| read(&owner))
        })
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        // On a thread that ends, the table is gone already.
        let gone = GAUGES.try_with(|gauges| gauges.borrow_mut().remove(&self.0));
        drop(gone); // outside the borrow: the closure may own anything
    }
}

/// The lengths on this thread, summed by name. In a simulation: of all processes together.
pub fn read() -> BTreeMap<&'static str, usize> {
    let gauges: Vec<(&'static str, Read)> =
        GAUGES.with_borrow(|gauges| gauges.values().cloned().collect());
    let mut lengths = BTreeMap::new();
    for (name, read) in gauges {
        *lengths.entry(name).or_insert(0) += read();
    }
    lengths
}

/// Removes the gauges of an earlier simulation that ended in a panic.
pub fn reset() {
    let gone = GAUGES.with_borrow_mut(std::mem::take);
    drop(gone);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_one_name_are_added_up_as_long_as_they_live() {
        reset();
        let list = Rc::new(Cell::new(3));
        let seen = list.clone();
        let first = Gauge::new("waiting", move || seen.get());
        let second = Gauge::new("waiting", || 4);
        assert_eq!(read(), BTreeMap::from([("waiting", 7)]));
        list.set(5);
        drop(second);
        assert_eq!(read(), BTreeMap::from([("waiting", 5)]));
        drop(first);
        assert!(read().is_empty());
    }
}
