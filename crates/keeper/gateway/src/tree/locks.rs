//! A set of locks that is built once and then asked.

use super::rows::Lock;

/// What a lock is of: a kind, and the hash of a path or the number of a session or gateway.
pub type Locked = (Lock, u64);

/// Locks in the order in which they were added, and more than once. [`seal`](Self::seal) makes a set of them: sorting
/// thousands of small values once costs a fraction of keeping them sorted.
#[derive(Default)]
pub struct Locks(Vec<Locked>);

impl Locks {
    pub fn of(lock: Locked) -> Locks {
        Locks(vec![lock])
    }

    pub fn add(&mut self, lock: Locked) {
        self.0.push(lock);
    }

    /// Takes all locks of a kind out.
    pub fn forget(&mut self, kind: Lock) {
        self.0.retain(|(lock, _)| *lock != kind);
    }

    pub fn seal(mut self) -> LockSet {
        self.0.sort_unstable();
        self.0.dedup();
        LockSet(self.0)
    }
}

/// See [`Locks`].
pub struct LockSet(Vec<Locked>);

impl LockSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Locked> {
        self.0.iter().copied()
    }

    pub fn contains(&self, lock: Locked) -> bool {
        self.0.binary_search(&lock).is_ok()
    }

    /// True if a lock is in both.
    pub fn meets(&self, other: &LockSet) -> bool {
        let (small, large) = match self.0.len() < other.0.len() {
            true => (self, other),
            false => (other, self),
        };
        small.iter().any(|lock| large.contains(lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All sets of a few locks, each lock added twice.
    fn sets() -> Vec<(LockSet, BTreeSet<u64>)> {
        let set = |bits: u64| {
            let numbers: BTreeSet<u64> = (0..4).filter(|n| bits >> n & 1 == 1).collect();
            let mut locks = Locks::default();
            let twice = numbers.iter().chain(numbers.iter().rev());
            twice.for_each(|n| locks.add((Lock::Data, *n)));
            (locks.seal(), numbers)
        };
        (0..16).map(set).collect()
    }

    #[test]
    fn sealed_locks_are_a_set() {
        for (locks, numbers) in sets() {
            assert!(locks.iter().map(|(_, n)| n).eq(numbers.iter().copied()));
            assert_eq!(locks.is_empty(), numbers.is_empty());
            assert!((0..5).all(|n| locks.contains((Lock::Data, n)) == numbers.contains(&n)));
            assert!(!locks.contains((Lock::Children, 1)));
            for (other, others) in sets() {
                assert_eq!(locks.meets(&other), !numbers.is_disjoint(&others));
            }
        }
    }
}
