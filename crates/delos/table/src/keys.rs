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

pub const SCHEMAS: &[u8] = b"table/s";
pub const SCHEMAS_END: &[u8] = b"table/t";
pub const COUNTERS: &[u8] = b"table/c";
pub const ROWS: &[u8] = b"table/r";
pub const INDEXES: &[u8] = b"table/i";
pub const WORK: &[u8] = b"table/w";
pub const WORK_END: &[u8] = b"table/x";
/// Above every element of a tuple.
pub const LAST: u8 = 0xff;

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
