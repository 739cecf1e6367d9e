//! Key selectors.

use crate::key::{Key, KeyRange};

/// Describes a key by its position relative to another: start at the last key less than `key` (less than or equal, if
/// `or_equal`), then move `offset` keys forward.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySelector {
    pub key: Key,
    pub or_equal: bool,
    pub offset: i32,
}

impl KeyRange {
    /// Selectors of both ends, for a read of the range.
    pub fn selectors(self) -> (KeySelector, KeySelector) {
        let at = |key: Key| KeySelector::first_greater_or_equal(key);
        (at(self.begin), at(self.end))
    }
}

impl KeySelector {
    pub fn new(key: impl Into<Key>, or_equal: bool, offset: i32) -> Self {
        KeySelector {
            key: key.into(),
            or_equal,
            offset,
        }
    }
    pub fn last_less_than(key: impl Into<Key>) -> Self {
        Self::new(key, false, 0)
    }
    pub fn last_less_or_equal(key: impl Into<Key>) -> Self {
        Self::new(key, true, 0)
    }
    pub fn first_greater_than(key: impl Into<Key>) -> Self {
        Self::new(key, true, 1)
    }
    pub fn first_greater_or_equal(key: impl Into<Key>) -> Self {
        Self::new(key, false, 1)
    }
}
