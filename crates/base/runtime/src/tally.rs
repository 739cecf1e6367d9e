//! Tallies: what a role has done since it started, for the status document.
//!
//! A role counts into a cell, which costs no lookup and no clock. Whoever knows the role's id reads all its tallies.

use plinth_core::Uid;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

type All = BTreeMap<(Uid, &'static str), Rc<Cell<u64>>>;

thread_local! {
    static ALL: RefCell<All> = const { RefCell::new(BTreeMap::new()) };
}

/// A number of a role that only grows. It is listed while this is alive.
pub struct Tally {
    key: (Uid, &'static str),
    count: Rc<Cell<u64>>,
}

impl Tally {
    /// Begins at zero. A role has at most one of each name; a later one takes its place.
    pub fn of(role: Uid, name: &'static str) -> Tally {
        let (key, count) = ((role, name), Rc::new(Cell::new(0)));
        ALL.with_borrow_mut(|all| all.insert(key, count.clone()));
        Tally { key, count }
    }

    #[inline]
    pub fn add(&self, more: u64) {
        self.count.set(self.count.get() + more);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // On a thread that ends, the table is gone already.
        let _ = ALL.try_with(|all| {
            let mut all = all.borrow_mut();
            if all
                .get(&self.key)
                .is_some_and(|count| Rc::ptr_eq(count, &self.count))
            {
                all.remove(&self.key);
            }
        });
    }
}

/// The tallies of a role on this thread, by name.
pub fn of(role: Uid) -> Vec<(&'static str, u64)> {
    ALL.with_borrow(|all| {
        let of_role = all
            .range((role, "")..)
            .take_while(|((of, _), _)| *of == role);
        of_role
            .map(|((_, name), count)| (*name, count.get()))
            .collect()
    })
}

/// Removes the tallies of an earlier simulation that ended in a panic.
pub fn reset() {
    drop(ALL.with_borrow_mut(std::mem::take));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_its_tallies_while_they_live() {
        let (reads, writes) = (Tally::of(Uid(1), "reads"), Tally::of(Uid(1), "writes"));
        let _other = Tally::of(Uid(2), "reads");
        reads.add(2);
        writes.add(1);
        reads.add(3);
        assert_eq!(of(Uid(1)), [("reads", 5), ("writes", 1)]);
        drop(reads);
        assert_eq!(of(Uid(1)), [("writes", 1)]);
        let again = Tally::of(Uid(1), "writes");
        drop(writes);
        again.add(7);
        assert_eq!(of(Uid(1)), [("writes", 7)]);
    }
}
