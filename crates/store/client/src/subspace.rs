//! A part of the key space: all keys that begin with a prefix, with tuples behind it.

use bytes::Bytes;
use plinth_core::key::{KeyRange, prefix_end};
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, Key, Result};

/// Byte-compatible with the subspaces of FoundationDB's bindings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subspace {
    prefix: Bytes,
}

impl Subspace {
    /// All keys that begin with `prefix`, whatever it is.
    pub fn new(prefix: impl Into<Bytes>) -> Self {
        Subspace {
            prefix: prefix.into(),
        }
    }

    /// The prefix.
    pub fn key(&self) -> &Key {
        &self.prefix
    }

    /// The part of it behind a tuple.
    pub fn sub(&self, elements: &[Element]) -> Result<Subspace> {
        self.pack(elements).map(Subspace::new)
    }

    pub fn pack(&self, elements: &[Element]) -> Result<Key> {
        tuple::pack_after(&self.prefix, elements)
    }

    /// A key for `SetVersionstampedKey`: exactly one element is an incomplete versionstamp.
    pub fn pack_with_versionstamp(&self, elements: &[Element]) -> Result<Key> {
        tuple::pack_with_versionstamp(&self.prefix, elements)
    }

    /// The tuple of a key in this subspace.
    pub fn unpack(&self, key: &Key) -> Result<Vec<Element>> {
        if !self.contains(key) {
            return Err(Error::key_not_in_subspace);
        }
        tuple::unpack(&key.slice(self.prefix.len()..))
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix)
    }

    /// All tuples that begin with these elements and have more.
    pub fn range(&self, elements: &[Element]) -> Result<KeyRange> {
        let prefix = self.pack(elements)?;
        let after = |byte: u8| Bytes::from([&prefix[..], &[byte]].concat());
        Ok(KeyRange::new(after(0), after(0xff)))
    }

    /// All its keys, the bare prefix included; `None` if there is no key behind them.
    pub fn all(&self) -> Option<KeyRange> {
        Some(KeyRange::new(
            self.prefix.clone(),
            prefix_end(&self.prefix)?,
        ))
    }
}
