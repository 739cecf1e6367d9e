//! What a table looks like, as it is stored: names for people, numbers in keys and rows.
//!
//! The number of a column or an index is never used again, so rows and entries of dropped ones do no harm. To drop a
//! column costs no rewriting: what rows have of it goes when they are written next.

use crate::Result;
use crate::keys::{COUNTERS, Key, SCHEMAS, SCHEMAS_END};
use crate::proto::{self, Kind};
use crate::value::Value;
use crate::{Ended, Refused, limits};
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::similar::most_similar;
use plinth_delos::store::{Reads, RwTx};
use plinth_runtime::nobody_has_lied;
use prost::Message;

messages! {
    Schema {
        id: u32 = (uint32, tag = "1"),
        name: String = (string, tag = "2"),
        /// In the order of their numbers.
        columns: Vec<Column> = (message, repeated, tag = "3"),
        /// Numbers of the columns of the primary key.
        key: Vec<u32> = (uint32, repeated, tag = "4"),
        /// In the order of their numbers.
        indexes: Vec<Index> = (message, repeated, tag = "5"),
        /// Numbers for the next ones.
        next_column: u32 = (uint32, tag = "6"),
        next_index: u32 = (uint32, tag = "7"),
    }
    Column {
        id: u32 = (uint32, tag = "1"),
        name: String = (string, tag = "2"),
        kind: i32 = (enumeration = "Kind", tag = "3"),
        nullable: bool = (bool, tag = "4"),
        /// Also of rows that are older than the column.
        default: Option<proto::Value> = (message, optional, tag = "5"),
    }
    Index {
        id: u32 = (uint32, tag = "1"),
        name: String = (string, tag = "2"),
        /// Numbers of columns.
        columns: Vec<u32> = (uint32, repeated, tag = "3"),
        unique: bool = (bool, tag = "4"),
        state: i32 = (enumeration = "State", tag = "5"),
        failed: String = (string, tag = "6"),
    }
    /// Numbers for the next table, and the next piece of work.
    Counters {
        next_table: u32 = (uint32, tag = "1"),
        next_work: u64 = (uint64, tag = "2"),
        tables: u32 = (uint32, tag = "3"),
    }
}

enumerations! {
    State {
        Ready = 0,
        /// Rows are still to be added. Those that are written get in already.
        Building = 1,
        /// It is not kept any more.
        Failed = 2,
    }
}

impl Column {
    /// What a row gets that says nothing of the column.
    pub fn default_value(&self) -> Value {
        self.default.clone().map_or(Value::Null, Value::from)
    }
}

impl Index {
    /// True if writers keep it up.
    pub fn is_kept(&self) -> bool {
        self.state() != State::Failed
    }
}

impl Schema {
    /// Where a row has the column of this number.
    pub fn place(&self, id: u32) -> Result<usize> {
        let found = self.columns.binary_search_by_key(&id, |column| column.id);
        found.map_err(|_| Error::file_corrupt)
    }

    /// # Errors
    /// There is no such column.
    pub fn column(&self, name: &str) -> Result<usize, Refused> {
        let found = self.columns.iter().position(|column| column.name == name);
        match found {
            Some(at) => Ok(at),
            None => {
                let all: Vec<&str> = self.columns.iter().map(|c| &c.name[..]).collect();
                refuse!(
                    BadRequest,
                    "table {:?} has no column {name:?}; {}it has {}",
                    self.name,
                    nearest(name, all.iter().copied())
                        .map_or(String::new(), |near| format!("did you mean `{near}'? ")),
                    all.join(", ")
                )
            }
        }
    }

    /// # Errors
    /// There is no such index.
    pub fn index(&self, name: &str) -> Result<usize, Refused> {
        let found = self.indexes.iter().position(|index| index.name == name);
        match found {
            Some(at) => Ok(at),
            None => {
                let meant = meant(name, self.indexes.iter().map(|index| &index.name[..]));
                refuse!(
                    Unknown,
                    "table {:?} has no index {name:?}{meant}",
                    self.name
                )
            }
        }
    }

    /// Where a row has the columns of the primary key.
    pub fn key_places(&self) -> Result<Vec<usize>> {
        self.key.iter().map(|id| self.place(*id)).collect()
    }

    /// Where a row has the columns of an index.
    pub fn index_places(&self, index: &Index) -> Result<Vec<usize>> {
        index.columns.iter().map(|id| self.place(*id)).collect()
    }

    pub fn store(&self, tx: &mut RwTx) {
        let places = || {
            let of_indexes = self.indexes.iter().map(|index| self.index_places(index));
            of_indexes.chain([self.key_places()]).all(|all| all.is_ok())
        };
        // Not where all replicas would end alike. They find columns by halving.
        assert!(
            !nobody_has_lied() || (self.columns.is_sorted_by(|a, b| a.id < b.id) && places()),
            "a schema that nobody can go by: {self:?}"
        );
        tx.set(&Key::schema(&self.name).0, self.encode_to_vec());
    }

    /// For people and clients.
    pub fn describe(&self) -> proto::Table {
        let name_of = |id: &u32| {
            let place = self.place(*id);
            place.map_or(String::new(), |at| self.columns[at].name.clone())
        };
        let names = |ids: &[u32]| ids.iter().map(name_of).collect();
        proto::Table {
            name: self.name.clone(),
            columns: self.columns.iter().map(Column::describe).collect(),
            key: names(&self.key),
            indexes: self
                .indexes
                .iter()
                .map(|index| proto::Index {
                    name: index.name.clone(),
                    columns: names(&index.columns),
                    unique: index.unique,
                    building: index.state() == State::Building,
                    failed: index.failed.clone(),
                })
                .collect(),
        }
    }
}

impl Column {
    fn describe(&self) -> proto::Column {
        proto::Column {
            name: self.name.clone(),
            kind: self.kind,
            nullable: self.nullable,
            default: self.default.clone(),
        }
    }
}

/// A name of the same letters, small or large: those of other databases are often in any case. Or one like it.
fn nearest<'a>(name: &str, all: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let mut same = all.clone().into_iter();
    let same = same.find(|other| other.eq_ignore_ascii_case(name));
    same.or_else(|| most_similar(name, all))
}

/// What is said behind a name that does not exist.
fn meant<'a>(name: &str, all: impl IntoIterator<Item = &'a str> + Clone) -> String {
    nearest(name, all).map_or_else(String::new, |meant| format!("; did you mean `{meant}'?"))
}

fn parse(row: Bytes) -> Result<Schema> {
    Schema::decode(row).map_err(|_| Error::file_corrupt)
}

pub fn find(rows: &impl Reads, name: &str) -> Result<Option<Schema>> {
    let row = rows.get(&Key::schema(name).0)?;
    row.map(parse).transpose()
}

/// # Errors
/// There is no such table.
pub fn load(rows: &impl Reads, name: &str) -> Result<Schema, Ended> {
    match find(rows, name)? {
        Some(schema) => Ok(schema),
        None => {
            let (tables, _) = all(rows, "")?;
            let meant = meant(name, tables.iter().map(|table| &table.name[..]));
            refuse!(Unknown, "there is no table {name:?}{meant}")
        }
    }
}

pub fn counters(rows: &impl Reads) -> Result<Counters> {
    match rows.get(COUNTERS)? {
        Some(row) => Counters::decode(row).map_err(|_| Error::file_corrupt),
        None => Ok(Counters::default()),
    }
}

pub fn set_counters(tx: &mut RwTx, counters: &Counters) {
    tx.set(COUNTERS, counters.encode_to_vec());
}

/// The tables whose names are after `after`, up to about a page of bytes; whether there are more.
pub fn all(rows: &impl Reads, after: &str) -> Result<(Vec<proto::Table>, bool)> {
    let mut begin = match after {
        "" => SCHEMAS.to_vec(),
        _ => Key::schema(after).end().0,
    };
    let (mut found, mut bytes) = (Vec::new(), 0);
    loop {
        let page = rows.range((&begin, SCHEMAS_END), 50, false)?;
        let Some((last, _)) = page.last() else {
            return Ok((found, false));
        };
        begin = [last, &[0][..]].concat();
        for (_, row) in page {
            if bytes > 0 && bytes + row.len() > limits::PAGE_BYTES {
                return Ok((found, true));
            }
            bytes += row.len();
            found.push(parse(row)?.describe());
        }
    }
}
