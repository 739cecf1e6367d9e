//! What a transaction has written and not yet committed.

use bytes::Bytes;
use plinth_core::key::SYSTEM_BEGIN;
use plinth_core::range_map::RangeMap;
use plinth_core::{Key, KeyRange, MutationKind, Value, atomic};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Atomic operations on a value that is not known yet.
pub type Operations = Vec<(MutationKind, Bytes)>;

/// The value after the operations.
pub fn fold(operations: &Operations, value: Option<Value>) -> Option<Value> {
    operations.iter().fold(value, |value, (kind, operand)| {
        atomic::apply(*kind, value.as_deref(), operand)
    })
}

/// What the writes say of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Own {
    Value(Option<Value>),
    /// Empty: nothing was written.
    Operations(Operations),
}

#[derive(Clone)]
pub struct Writes {
    keys: BTreeMap<Key, Own>,
    cleared: RangeMap<bool>,
}

impl Default for Writes {
    fn default() -> Self {
        Writes {
            keys: BTreeMap::new(),
            cleared: RangeMap::new(false),
        }
    }
}

impl Writes {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.cleared.only() == Some(&false)
    }

    pub fn set(&mut self, key: Key, value: Option<Value>) {
        self.keys.insert(key, Own::Value(value));
    }

    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) {
        let inside = (Bound::Included(begin), Bound::Excluded(end));
        let gone: Vec<Key> = self
            .keys
            .range::<[u8], _>(inside)
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.keys.remove(&key);
        }
        self.cleared.set(begin, end, true);
    }

    pub fn atomic_op(&mut self, kind: MutationKind, key: Key, operand: Bytes) {
        let own = match self.of(&key) {
            Own::Value(value) => Own::Value(atomic::apply(kind, value.as_deref(), &operand)),
            Own::Operations(mut operations) => {
                operations.push((kind, operand));
                Own::Operations(operations)
            }
        };
        self.keys.insert(key, own);
    }

    pub fn of(&self, key: &[u8]) -> Own {
        match self.keys.get(key) {
            Some(own) => own.clone(),
            None if *self.cleared.at(key) => Own::Value(None),
            None => Own::Operations(Operations::new()),
        }
    }

    /// Rows that lie there without the writes, as they are with them. `rows` are all of the range, in ascending order.
    pub fn over(&self, begin: &[u8], end: &[u8], rows: Vec<(Key, Value)>) -> Vec<(Key, Value)> {
        if begin >= end {
            return rows;
        }
        let inside = (Bound::Included(begin), Bound::Excluded(end));
        let mut own = self.keys.range::<[u8], _>(inside).peekable();
        if own.peek().is_none() && self.cleared.all(begin, end, |cleared| !cleared) {
            return rows;
        }
        let kept = rows.into_iter().filter(|(key, _)| !self.cleared.at(key));
        let mut merged: BTreeMap<Key, Value> = kept.collect();
        for (key, own) in own {
            let value = match own {
                Own::Value(value) => value.clone(),
                Own::Operations(operations) => fold(operations, merged.remove(key)),
            };
            match value {
                Some(value) => merged.insert(key.clone(), value),
                None => merged.remove(key),
            };
        }
        merged.into_iter().collect()
    }

    pub fn cleared(&self) -> impl Iterator<Item = KeyRange> {
        let pieces = match self.cleared.only() {
            Some(false) => Vec::new(), // as most transactions do
            _ => self.cleared.pieces(b"", SYSTEM_BEGIN),
        };
        pieces
            .into_iter()
            .filter(|(_, cleared)| *cleared)
            .map(|(range, _)| range)
    }

    /// True if the key was written after it was cleared.
    pub fn is_written(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = (&Key, &Own)> {
        self.keys.iter()
    }
}
