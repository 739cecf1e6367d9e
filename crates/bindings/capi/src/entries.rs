//! Keys and ranges of keys as the C header has them.

use bytes::Bytes;
use plinth_core::key::KeyRange;
use std::ffi::c_int;

/// `FDBKey`, packed as the header packs it.
#[repr(C, packed(4))]
pub struct KeyEntry {
    pub key: *const u8,
    pub key_length: c_int,
}

/// `FDBKeyRange`: two keys, one after the other.
#[repr(C, packed(4))]
pub struct RangeEntry {
    pub begin: KeyEntry,
    pub end: KeyEntry,
}

impl KeyEntry {
    /// Points into the key: valid as long as the key.
    pub fn of(key: &Bytes) -> Self {
        KeyEntry {
            key: key.as_ptr(),
            key_length: key.len() as c_int,
        }
    }
}

impl RangeEntry {
    /// Points into the keys of the range.
    pub fn of(range: &KeyRange) -> Self {
        RangeEntry {
            begin: KeyEntry::of(&range.begin),
            end: KeyEntry::of(&range.end),
        }
    }
}
