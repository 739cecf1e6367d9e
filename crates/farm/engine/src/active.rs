//! The read timestamps of transactions that are active here, and the oldest of them (§4.5).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Timestamps mostly come in order, so they stand in a row whose front is the oldest. Those that come late stand
/// apart.
#[derive(Default)]
struct Row {
    /// Each timestamp and how many transactions have it.
    row: VecDeque<(u64, u32)>,
    /// The position of the first in `row` since the beginning.
    first: u64,
    late: BTreeMap<u64, u32>,
}

#[derive(Clone, Copy)]
enum Standing {
    InRow(u64),
    Late(u64),
}

/// The active transactions of a machine.
#[derive(Clone, Default)]
pub struct Active(Rc<RefCell<Row>>);

/// A transaction is active as long as this is there.
pub struct Token {
    active: Active,
    standing: Cell<Standing>,
}

impl Active {
    #[inline]
    pub fn enter(&self, read_at: u64) -> Token {
        let standing = self.0.borrow_mut().enter(read_at);
        Token {
            active: self.clone(),
            standing: Cell::new(standing),
        }
    }

    pub fn oldest(&self) -> Option<u64> {
        let row = self.0.borrow();
        let late = row.late.keys().next().copied();
        let front = row.row.front().map(|(at, _)| *at);
        front.into_iter().chain(late).min()
    }

    pub fn len(&self) -> usize {
        let row = self.0.borrow();
        let counts = row.row.iter().map(|(_, count)| *count);
        counts.chain(row.late.values().copied()).sum::<u32>() as usize
    }
}

impl Row {
    fn enter(&mut self, read_at: u64) -> Standing {
        match self.row.back_mut() {
            Some((last, _)) if *last > read_at => {
                *self.late.entry(read_at).or_default() += 1;
                return Standing::Late(read_at);
            }
            Some((last, count)) if *last == read_at => *count += 1,
            _ => self.row.push_back((read_at, 1)),
        }
        Standing::InRow(self.first + self.row.len() as u64 - 1)
    }

    fn leave(&mut self, standing: Standing) {
        match standing {
            Standing::InRow(at) => {
                let place = at.checked_sub(self.first);
                let entry = place.and_then(|place| self.row.get_mut(place as usize));
                match entry {
                    Some((_, count)) if *count > 0 => *count -= 1,
                    entry => panic!(
                        "place {at} is left, where {entry:?} stands, and the row begins at {}",
                        self.first
                    ),
                }
                while self.row.front().is_some_and(|(_, count)| *count == 0) {
                    self.row.pop_front();
                    self.first += 1;
                }
            }
            Standing::Late(at) => {
                let count = self.late.get_mut(&at);
                let count = count.unwrap_or_else(|| panic!("nobody reads at {at}, and one leaves"));
                *count -= 1;
                if *count == 0 {
                    self.late.remove(&at);
                }
            }
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.active.0.borrow_mut().leave(self.standing.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_oldest_is_the_least_of_those_that_are_there(
            steps in prop::collection::vec((0..50u64, 0..8usize), 1..100),
        ) {
            let active = Active::default();
            let mut there: Vec<(u64, Token)> = Vec::new();
            for (at, leaves) in steps {
                if leaves < there.len() {
                    there.remove(leaves);
                } else {
                    there.push((at, active.enter(at)));
                }
                prop_assert_eq!(active.oldest(), there.iter().map(|(at, _)| *at).min());
                prop_assert_eq!(active.len(), there.len());
            }
        }
    }
}
