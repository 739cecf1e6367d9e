//! Subspaces: parts of the keys with a common prefix, and tuples behind it.

use crate::open_error::Result;
use crate::range::{IntoKeyRange, KeyRange};
use crate::tuple::{self, TuplePack, TupleUnpack};
use bytes::Bytes;
use plinth_core::tuple::{Element, pack_with_versionstamp};
use plinth_core::{Error, Key};

/// All keys that begin with a prefix, with tuples behind it.
///
/// Give each kind of data a subspace of its own, and its keys never meet those of another kind. Compatible with the
/// subspaces of FoundationDB's bindings.
///
/// ```
/// use plinth::Subspace;
///
/// let scores = Subspace::new(("game", "scores"));
/// let key = scores.pack((42, "ada"));
/// assert_eq!(scores.unpack::<(i64, String)>(&key)?, (42, "ada".to_owned()));
/// # Ok::<(), plinth::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Subspace {
    prefix: Bytes,
}

impl Subspace {
    /// The subspace behind a tuple.
    pub fn new(tuple: impl TuplePack) -> Self {
        Subspace {
            prefix: tuple::pack(tuple),
        }
    }

    /// The subspace of all keys that begin with these bytes, whatever they are.
    pub fn from_bytes(prefix: impl AsRef<[u8]>) -> Self {
        Subspace {
            prefix: Bytes::copy_from_slice(prefix.as_ref()),
        }
    }

    /// The prefix.
    pub fn key(&self) -> &Key {
        &self.prefix
    }

    /// The part of it behind a tuple.
    pub fn subspace(&self, tuple: impl TuplePack) -> Subspace {
        Subspace {
            prefix: self.pack(tuple),
        }
    }

    /// The key of a tuple.
    pub fn pack(&self, tuple: impl TuplePack) -> Key {
        tuple::pack_after(&self.prefix, &tuple)
    }

    /// The tuple of a key.
    ///
    /// # Errors
    ///
    /// [`Error::key_not_in_subspace`] if the key does not begin with the prefix, [`Error::invalid_tuple_data_type`] if
    /// no such tuple follows it.
    pub fn unpack<T: TupleUnpack>(&self, key: impl AsRef<[u8]>) -> Result<T> {
        let rest = key.as_ref().strip_prefix(&self.prefix[..]);
        tuple::unpack(rest.ok_or(Error::key_not_in_subspace)?)
    }

    /// A key for [`set_versionstamped_key`](crate::Transaction::set_versionstamped_key): `before`, then the stamp of
    /// the transaction with `user_version`, then `after`. When it is read, the stamp is a
    /// [`Stamp`](crate::tuple::Stamp).
    ///
    /// ```
    /// # use plinth::Subspace;
    /// let events = Subspace::new(("events",));
    /// let key = events.pack_with_versionstamp((), 0, ());
    /// # let _ = key;
    /// ```
    pub fn pack_with_versionstamp(
        &self,
        before: impl TuplePack,
        user_version: u16,
        after: impl TuplePack,
    ) -> Key {
        let mut elements = before.elements();
        elements.push(Element::incomplete_versionstamp(user_version));
        elements.extend(after.elements());
        let packed = pack_with_versionstamp(&self.prefix, &elements);
        packed.expect("one stamp is incomplete, and Rust types nest a few levels")
    }

    /// Whether the key begins with the prefix.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        key.as_ref().starts_with(&self.prefix)
    }

    /// All tuples in it that begin with this one and have more. Unpacked, they are without the subspace's prefix.
    pub fn range(&self, tuple: impl TuplePack) -> KeyRange {
        KeyRange::behind(&self.pack(tuple), self.prefix.len())
    }
}

/// All tuples in it.
impl IntoKeyRange for &Subspace {
    fn into_key_range(self) -> KeyRange {
        KeyRange::behind(&self.prefix, self.prefix.len())
    }
}

impl IntoKeyRange for Subspace {
    fn into_key_range(self) -> KeyRange {
        (&self).into_key_range()
    }
}
