//! Where the tables' rows are in the local store: tuples after a prefix.
//!
//! ```text
//!   table/s (name)                            schema of a table        schema.rs
//!   table/c                                   counters                 schema.rs
//!   table/r (table, key…)                     a row                    rows.rs
//!   table/i (table, index, value…, key…)      → nothing                rows.rs
//!   table/w (number)                          what is still to be done work.rs
//! ```

use crate::Result;
use crate::value::Value;
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::tuple::{Element, pack_after, unpack};
use plinth_delos::store::{RoTx, RwTx};

pub const SCHEMAS: &[u8] = b"table/s";
pub const SCHEMAS_END: &[u8] = b"table/t";
pub const COUNTERS: &[u8] = b"table/c";
pub const ROWS: &[u8] = b"table/r";
pub const INDEXES: &[u8] = b"table/i";
pub const WORK: &[u8] = b"table/w";
pub const WORK_END: &[u8] = b"table/x";
/// Above every element of a tuple.
pub const LAST: u8 = 0xff;

/// What a transaction and a snapshot have in common.
pub trait Reads {
    /// # Errors
    /// The disk fails, or the snapshot is too old.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// The first rows of `[begin, end)`, or the last ones in reverse order, up to `limit`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn range(
        &self,
        range: (&[u8], &[u8]),
        limit: usize,
        reverse: bool,
    ) -> Result<Vec<(Bytes, Bytes)>>;
}

macro_rules! reads {
    ($($of:ty)*) => {$(
        impl Reads for $of {
            fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
                <$of>::get(self, key)
            }
            fn range(
                &self,
                (begin, end): (&[u8], &[u8]),
                limit: usize,
                reverse: bool,
            ) -> Result<Vec<(Bytes, Bytes)>> {
                match reverse {
                    false => <$of>::range(self, begin, end, limit),
                    true => <$of>::range_back(self, begin, end, limit),
                }
            }
        }
    )*};
}

reads!(RoTx RwTx);

/// A key that grows element by element.
pub struct Key(pub Vec<u8>);

impl Key {
    pub fn schema(name: &str) -> Key {
        Key(SCHEMAS.to_vec()).then(&Value::Text(name.to_owned()))
    }

    pub fn rows(table: u32) -> Key {
        Key(ROWS.to_vec()).number(table)
    }

    pub fn index(table: u32, index: u32) -> Key {
        Key(INDEXES.to_vec()).number(table).number(index)
    }

    fn number(self, number: u32) -> Key {
        self.then(&Value::Int(number.into()))
    }

    pub fn then(self, value: &Value) -> Key {
        let packed = pack_after(&self.0, &[value.to_element()]);
        Key(packed.expect("a value is no versionstamp").into())
    }

    pub fn then_all<'a>(self, values: impl IntoIterator<Item = &'a Value>) -> Key {
        let elements: Vec<Element> = values.into_iter().map(Value::to_element).collect();
        let packed = pack_after(&self.0, &elements);
        Key(packed.expect("a value is no versionstamp").into())
    }

    /// After all keys that begin with this one.
    pub fn end(mut self) -> Key {
        self.0.push(LAST);
        self
    }
}

/// The elements of a key after its prefix.
///
/// # Errors
/// It is damaged.
pub fn elements(key: &Bytes, prefix: &[u8]) -> Result<Vec<Element>> {
    let Some(true) = key.get(..prefix.len()).map(|begin| begin == prefix) else {
        return Err(Error::file_corrupt);
    };
    unpack(&key.slice(prefix.len()..)).map_err(|_| Error::file_corrupt)
}
