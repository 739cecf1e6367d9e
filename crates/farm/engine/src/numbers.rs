//! The transactions that this machine coordinates, from their locks to the truncation everywhere (§4.8).

use crate::active::Token;
use crate::wire::Number;
use plinth_farm_fabric::Machine;
use std::collections::BTreeMap;

/// A transaction that may still have state at participants.
struct Open {
    /// Machines that know something of it, and have not said that they have truncated it.
    participants: Vec<Machine>,
    /// It counts as active until it has ended here.
    _token: Option<Token>,
}

#[derive(Default)]
pub struct Numbers {
    last: Number,
    open: BTreeMap<Number, Open>,
}

impl Numbers {
    pub fn begin(&mut self, participants: Vec<Machine>, token: Option<Token>) -> Number {
        self.last += 1;
        assert!(
            !participants.is_empty(),
            "nobody would truncate transaction {}, and all behind it would stay",
            self.last
        );
        let open = Open {
            participants,
            _token: token,
        };
        self.open.insert(self.last, open);
        self.last
    }

    /// All before this one are truncated everywhere, or have had no effect and are known nowhere.
    pub fn below(&self) -> Number {
        let first = self.open.keys().next();
        first.copied().unwrap_or(self.last + 1)
    }

    pub fn truncated(&mut self, number: Number, by: Machine) {
        if let Some(open) = self.open.get_mut(&number) {
            open.participants.retain(|machine| *machine != by);
            if open.participants.is_empty() {
                self.open.remove(&number);
            }
        }
    }

    /// It has had no effect, and no participant knows of it any more.
    pub fn forget(&mut self, number: Number) {
        self.open.remove(&number);
    }

    /// A recovery has ended all of them.
    pub fn forget_all(&mut self) {
        self.open.clear();
    }

    /// Those that are not truncated everywhere, each with the machines that have not truncated it.
    pub fn open(&self) -> impl Iterator<Item = (Number, &[Machine])> {
        let open = self.open.iter();
        open.map(|(number, open)| (*number, &open.participants[..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_goes_on_when_all_before_are_truncated_everywhere() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.below(), 1);
        let (a, b) = (Machine(0), Machine(1));
        let first = numbers.begin(vec![a, b], None);
        let second = numbers.begin(vec![a], None);
        numbers.truncated(second, a);
        numbers.truncated(first, b);
        numbers.truncated(first, b);
        assert_eq!(numbers.below(), first);
        assert!(numbers.open().eq([(first, &[a][..])]));
        numbers.truncated(first, a);
        assert_eq!(numbers.below(), second + 1);
        let third = numbers.begin(vec![a], None);
        numbers.forget(third);
        assert_eq!((numbers.below(), numbers.open().count()), (third + 1, 0));
    }
}
