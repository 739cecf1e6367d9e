//! The states of one key, by version.
//!
//! Nearly every key is written once in a window. So the newest state lies in the entry, in one allocation with the
//! key. Older states, if there are any, lie in a list beside it.

use plinth_core::Version;
use plinth_engine::sorted::Keyed;

/// One state: `bytes` is the key and, unless the key was cleared, the value behind it.
struct State {
    version: Version,
    bytes: Box<[u8]>,
    key_len: u32,
    is_cleared: bool,
}

impl State {
    fn new(key: &[u8], version: Version, value: Option<&[u8]>) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        State {
            version,
            bytes: bytes.into_boxed_slice(),
            key_len: u32::try_from(key.len()).expect("no key reaches 4 GiB"),
            is_cleared: value.is_none(),
        }
    }

    #[inline]
    fn value(&self) -> Option<&[u8]> {
        (!self.is_cleared).then(|| &self.bytes[self.key_len as usize..])
    }

    /// Memory of its own allocation, including the allocator's overhead.
    fn bytes(&self) -> usize {
        size_of::<State>() + self.bytes.len() + 16
    }
}

/// Memory of an entry in addition to its states: the blocks that hold entries are about three quarters full, and keep
/// a head for each.
const ENTRY_BYTES: usize = size_of::<Entry>() - size_of::<State>() + size_of::<Entry>() / 2;

/// A key and its states in the window.
pub(super) struct Entry {
    newest: State,
    /// Ascending, all below `newest`.
    #[allow(clippy::box_collection)]
    // a boxed Vec takes a third of a Vec's size in each of a million entries without older states
    older: Option<Box<Vec<State>>>,
}

impl Keyed for Entry {
    #[inline]
    fn key(&self) -> &[u8] {
        &self.newest.bytes[..self.newest.key_len as usize]
    }
}

impl Entry {
    pub fn new(key: &[u8], version: Version, value: Option<&[u8]>) -> Self {
        Entry {
            newest: State::new(key, version, value),
            older: None,
        }
    }

    pub fn key_bytes(&self) -> &[u8] {
        self.key()
    }

    /// Memory held by a new entry.
    pub fn first_bytes(&self) -> usize {
        self.newest.bytes() + ENTRY_BYTES
    }

    pub fn newest_version(&self) -> Version {
        self.newest.version
    }

    pub fn newest_value(&self) -> Option<&[u8]> {
        self.newest.value()
    }

    /// Adds a newest state; of two at the same version the later wins. `bytes` follows the memory held.
    pub fn push(&mut self, version: Version, value: Option<&[u8]>, bytes: &mut usize) {
        let state = State::new(self.key(), version, value);
        *bytes += state.bytes();
        let before = std::mem::replace(&mut self.newest, state);
        if before.version != version {
            assert!(
                before.version < version,
                "a state at {version} after one at {}",
                before.version
            );
            self.older.get_or_insert_default().push(before);
        } else {
            *bytes -= before.bytes();
        }
    }

    #[inline]
    pub fn at_with_version(&self, version: Version) -> Option<(Version, Option<&[u8]>)> {
        let state = if self.newest.version <= version {
            &self.newest
        } else {
            let older = self.older.as_ref()?;
            &older[older
                .partition_point(|state| state.version <= version)
                .checked_sub(1)?]
        };
        Some((state.version, state.value()))
    }

    /// Asserts that the versions rise. Returns the memory held.
    pub fn check(&self) -> usize {
        let older = self.older.iter().flat_map(|older| older.iter());
        let versions = older.clone().map(|state| state.version);
        let mut versions: Vec<Version> = versions.collect();
        versions.push(self.newest.version);
        assert!(
            versions.is_sorted_by(|a, b| a < b),
            "versions of a key: {versions:?}"
        );
        self.first_bytes() + older.map(State::bytes).sum::<usize>()
    }

    /// The newest state at or below `version`: a value, or cleared.
    #[inline]
    pub fn at(&self, version: Version) -> Option<Option<&[u8]>> {
        self.at_with_version(version).map(|(_, value)| value)
    }

    /// Drops the states at or below `version`; false if none is left.
    pub fn drop_up_to(&mut self, version: Version, bytes: &mut usize) -> bool {
        if let Some(older) = &mut self.older {
            let leaving = older.drain(..older.partition_point(|state| state.version <= version));
            *bytes -= leaving.map(|state| state.bytes()).sum::<usize>();
            if older.is_empty() {
                self.older = None;
            }
        }
        let keep = self.newest.version > version;
        *bytes -= if keep { 0 } else { self.first_bytes() };
        keep
    }

    /// Drops the states above `version`; false if none is left.
    pub fn drop_above(&mut self, version: Version, bytes: &mut usize) -> bool {
        while self.newest.version > version {
            let Some(state) = self.older.as_mut().and_then(|older| older.pop()) else {
                *bytes -= self.first_bytes();
                return false;
            };
            *bytes -= self.newest.bytes();
            self.newest = state;
        }
        if self.older.as_ref().is_some_and(|older| older.is_empty()) {
            self.older = None;
        }
        true
    }
}
