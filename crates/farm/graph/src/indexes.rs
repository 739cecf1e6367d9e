//! Secondary indexes: kept by every change of a vertex, and looked up.
//!
//! ```text
//!   key in the tree of an index:    value, in bytes with its order | place of the vertex 8, big-endian
//! ```
//!
//! A vertex without the property is not in the index.

use crate::error::{Error, Result, damaged};
use crate::schema::{Index, Row, State, check_value, get};
use crate::transaction::{GraphTx, Vertex};
use crate::value::Value;
use plinth_farm_memory::{Objects, Pointer};
use plinth_farm_structures::btree::Settings;
use plinth_runtime::{nobody_has_lied, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Most bytes of a value in an index, in the form in which values have an order; see
/// [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
pub const INDEXED_BYTES_MAX: usize = 240;
const PLACE_BYTES: usize = 8;

pub(crate) fn settings() -> Settings {
    Settings {
        key_bytes_max: INDEXED_BYTES_MAX + PLACE_BYTES,
        inline_bytes_max: 0,
        is_spread: true,
        ..Settings::default()
    }
}

/// Where a lookup goes on. It may be kept for other transactions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind(Vec<u8>);

impl Behind {
    pub fn to_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Error: `Malformed`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Behind> {
        match bytes.len() <= INDEXED_BYTES_MAX + PLACE_BYTES {
            true => Ok(Behind(bytes.to_vec())),
            false => Err(Error::Malformed("a continuation")),
        }
    }
}

/// Vertices that a lookup has found, in the order of their values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub vertices: Vec<Vertex>,
    /// There may be more, which follow it.
    pub next: Option<Behind>,
}

fn index_key(index: &Index, value: &Value, at: Pointer) -> Result<Vec<u8>> {
    let mut key = value.ordered();
    if key.len() > INDEXED_BYTES_MAX {
        return Err(Error::property(
            &index.name,
            "the value is too long for this index",
        ));
    }
    key.extend_from_slice(&at.bits().to_be_bytes());
    Ok(key)
}

fn place_of(key: &[u8]) -> Option<Pointer> {
    let (_, place) = key.split_last_chunk::<PLACE_BYTES>()?;
    Pointer::from_bits(u64::from_be_bytes(*place))
}

/// Above all keys of the value, and below those of greater ones: no value's bytes begin with another's.
fn above(value: &Value) -> Vec<u8> {
    let mut key = value.ordered();
    key.resize(key.len() + PLACE_BYTES + 1, 0xff);
    key
}

/// The keys that an index of these rows has.
pub(crate) fn index_entries(
    index: &Index,
    rows: &BTreeMap<Pointer, Row>,
) -> Result<BTreeSet<Vec<u8>>> {
    let valued = rows
        .iter()
        .filter_map(|(at, row)| Some((at, get(row, index.property)?)));
    valued
        .map(|(at, value)| index_key(index, value, *at))
        .collect()
}

/// Those that changes maintain.
fn kept(indexes: &[Index]) -> impl Iterator<Item = (usize, &Index)> {
    let all = indexes.iter().enumerate();
    all.filter(|(_, index)| index.state != State::Dropping)
}

impl<O: Objects> GraphTx<'_, O> {
    /// The indexes can take the row. The vertex at `own`, which has `former`, does not stand in its own way.
    pub(crate) async fn check_indexed(
        &self,
        number: usize,
        former: Option<&Row>,
        row: &Row,
        own: Option<Pointer>,
    ) -> Result<()> {
        let loaded = self.loaded();
        for (i, index) in kept(&loaded.schema.vertices[number].indexes) {
            let value = get(row, index.property);
            let before = former.and_then(|row| get(row, index.property));
            let Some(value) = value.filter(|value| before != Some(value)) else {
                continue;
            };
            index_key(index, value, loaded.tables[number].root())?;
            if index.is_unique {
                self.check_unique(number, i, value, own).await?;
            }
        }
        Ok(())
    }

    /// No vertex but `own` has the value in a unique index.
    pub(crate) async fn check_unique(
        &self,
        number: usize,
        i: usize,
        value: &Value,
        own: Option<Pointer>,
    ) -> Result<()> {
        let loaded = self.loaded();
        let tree = &loaded.trees[number][i];
        let (begin, end) = (value.ordered(), above(value));
        let rows = tree
            .range(self.tx, &begin, Some(&end), 2, false)
            .await?
            .rows;
        if rows.iter().any(|(key, _)| place_of(key) != own) {
            let index = loaded.schema.vertices[number].indexes[i].name.clone();
            return Err(Error::NotUnique { index });
        }
        Ok(())
    }

    /// Brings all indexes from one row of a vertex to another.
    pub(crate) async fn maintain(
        &self,
        number: usize,
        at: Pointer,
        former: Option<&Row>,
        row: Option<&Row>,
    ) -> Result<()> {
        let loaded = self.loaded();
        for (i, index) in kept(&loaded.schema.vertices[number].indexes) {
            let before = former.and_then(|row| get(row, index.property));
            let after = row.and_then(|row| get(row, index.property));
            if before == after {
                continue;
            }
            let tree = &loaded.trees[number][i];
            let is_left = planted!(
                "graph_index_keeps_former_value",
                "an index has the value that a vertex had before"
            );
            if let Some(value) = before.filter(|_| !is_left || after.is_none()) {
                let was_there = tree.remove(self.tx, &index_key(index, value, at)?).await?;
                if !was_there && index.state == State::Ready {
                    return Err(damaged(at, "it is missing in an index"));
                }
            }
            if let Some(value) = after {
                let key = index_key(index, value, at)?;
                let is_new = tree.set(self.tx, &key, b"").await?;
                // Else a lookup of the value has found a vertex that did not have it.
                assert!(
                    is_new || index.state != State::Ready || !nobody_has_lied(),
                    "index {:?} had {value:?} of {at:?} before the vertex has it",
                    index.name
                );
            }
        }
        Ok(())
    }

    /// Enters a value. True if it was not there.
    pub(crate) async fn enter_value(
        &self,
        number: usize,
        i: usize,
        value: &Value,
        at: Pointer,
    ) -> Result<bool> {
        let loaded = self.loaded();
        let index = &loaded.schema.vertices[number].indexes[i];
        let key = index_key(index, value, at)?;
        Ok(loaded.trees[number][i].set(self.tx, &key, b"").await?)
    }

    /// Up to `limit` vertices by their values in an index, from the least one up; those behind `behind` if it is
    /// given. Vertices with equal values are in the order of their places. Error: `NotReady`.
    pub async fn lookup(
        &self,
        vertex_type: &str,
        index: &str,
        range: (Bound<&Value>, Bound<&Value>),
        behind: Option<&Behind>,
        limit: usize,
    ) -> Result<Found> {
        let loaded = self.loaded();
        let number = loaded.schema.vertex_type(vertex_type)?;
        let i = loaded.schema.index(number, index)?;
        let of = &loaded.schema.vertices[number];
        let index = &of.indexes[i];
        let property = &of.properties[index.property];
        for bound in [range.0, range.1] {
            if let Bound::Included(value) | Bound::Excluded(value) = bound {
                check_value(property, Some(value))?;
            }
        }
        let is_ready = planted!(
            "graph_index_is_used_too_early",
            "a lookup goes to an index that is being built"
        );
        if index.state != State::Ready && !is_ready {
            let index = index.name.clone();
            return Err(Error::NotReady { index });
        }
        let mut begin = match range.0 {
            Bound::Included(value) => value.ordered(),
            Bound::Excluded(value) => above(value),
            Bound::Unbounded => Vec::new(),
        };
        let end = match range.1 {
            Bound::Included(value) => Some(above(value)),
            Bound::Excluded(value) => Some(value.ordered()),
            Bound::Unbounded => None,
        };
        if let Some(Behind(key)) = behind {
            let mut behind = key.clone();
            behind.push(0);
            begin = begin.max(behind);
        }
        let tree = &loaded.trees[number][i];
        let found = tree
            .range(self.tx, &begin, end.as_deref(), limit, false)
            .await?;
        let places = found.rows.iter().map(|(key, _)| place_of(key).map(Vertex));
        let vertices = places
            .collect::<Option<_>>()
            .ok_or(damaged(tree.root(), "an entry of an index cannot be read"))?;
        assert!(
            found.rows.len() <= limit
                && (found.rows.first().is_none_or(|(key, _)| begin <= *key) || !nobody_has_lied()),
            "a lookup from {begin:?} on finds {} rows of {limit}, the first of which is {:?}",
            found.rows.len(),
            found.rows.first()
        );
        let last = found.rows.last().map(|(key, _)| Behind(key.to_vec()));
        let next = last.or(behind.cloned()).filter(|_| found.more);
        Ok(Found { vertices, next })
    }

    /// The vertices with this value; see [`lookup`](GraphTx::lookup).
    pub async fn lookup_equal(
        &self,
        vertex_type: &str,
        index: &str,
        value: &Value,
        limit: usize,
    ) -> Result<Vec<Vertex>> {
        let range = (Bound::Included(value), Bound::Included(value));
        let found = self.lookup(vertex_type, index, range, None, limit).await?;
        Ok(found.vertices)
    }
}
