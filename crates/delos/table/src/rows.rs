//! Rows, and their entries in the indexes: one changes with the other.
//!
//! A row is a tuple `(column, value, column, value, …)` of all columns outside the primary key, which is in its key.
//! A column that is not there is younger than the row, and has its default.

use crate::Result;
use crate::keys::{INDEXES, Key, ROWS, elements};
use crate::request::Cells;
use crate::schema::{Column, Index, Schema, State};
use crate::value::Value;
use crate::{Ended, Refused, limits};
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::tuple::{Element, pack, unpack};
use plinth_delos::store::{Reads, RwTx};
use plinth_runtime::nobody_has_lied;

/// Values in the order of the schema's columns.
pub type Row = Vec<Value>;

/// A table with the places of its columns.
pub struct Table {
    pub schema: Schema,
    pub key: Vec<usize>,
    /// Those of each index.
    pub indexes: Vec<Vec<usize>>,
}

pub fn pick<'a>(row: &'a [Value], places: &'a [usize]) -> impl Iterator<Item = &'a Value> {
    places.iter().map(|at| &row[*at])
}

impl Table {
    pub fn new(schema: Schema) -> Result<Table> {
        let places = schema
            .indexes
            .iter()
            .map(|index| schema.index_places(index));
        Ok(Table {
            key: schema.key_places()?,
            indexes: places.collect::<Result<_>>()?,
            schema,
        })
    }

    /// # Errors
    /// There is no such table.
    pub fn load(rows: &impl Reads, name: &str) -> Result<Table, Ended> {
        Ok(Table::new(crate::schema::load(rows, name)?)?)
    }

    pub fn name(&self) -> &str {
        &self.schema.name
    }

    // ---- what a request says of a row ----

    /// The values of a whole row; defaults for what is left out.
    ///
    /// # Errors
    /// It does not fit the table.
    pub fn row(&self, cells: &Cells) -> Result<Row, Refused> {
        let columns = self.schema.columns.iter();
        let mut row: Row = columns
            .clone()
            .map(|column| column.default_value())
            .collect();
        self.fill(&mut row, cells)?;
        for (column, value) in columns.zip(&row) {
            self.check_null(column, value)?;
        }
        Ok(row)
    }

    /// A null is where one may be.
    ///
    /// # Errors
    /// It is not.
    pub fn check_null(&self, column: &Column, value: &Value) -> Result<(), Refused> {
        match value.is_null() && !column.nullable {
            false => Ok(()),
            true => refuse!(
                BadRequest,
                "column {:?} of table {:?} needs a value: it was made without `null'",
                column.name,
                self.name()
            ),
        }
    }

    fn fill(&self, row: &mut Row, cells: &Cells) -> Result<(), Refused> {
        let mut given = vec![false; row.len()];
        for (name, value) in cells {
            let at = self.schema.column(name)?;
            if std::mem::replace(&mut given[at], true) {
                return refuse!(BadRequest, "column {name:?} is given twice");
            }
            let kind = self.schema.columns[at].kind();
            row[at] = value.clone().of_kind(kind, name)?;
        }
        Ok(())
    }

    /// The key of the row that a request names.
    ///
    /// # Errors
    /// It is not exactly the primary key.
    pub fn named(&self, cells: &Cells) -> Result<Key, Refused> {
        let mut row = vec![Value::Null; self.schema.columns.len()];
        self.fill(&mut row, cells)?;
        let is_whole = cells.len() == self.key.len() && pick(&row, &self.key).all(|v| !v.is_null());
        if !is_whole {
            let names = self.key.iter().map(|at| &self.schema.columns[*at].name[..]);
            let names: Vec<&str> = names.collect();
            return refuse!(
                BadRequest,
                "a row of table {:?} is named by {}, and nothing else",
                self.name(),
                names.join(", ")
            );
        }
        Ok(self.key_of(&row))
    }

    // ---- what is stored ----

    pub fn key_of(&self, row: &[Value]) -> Key {
        Key::rows(self.schema.id).then_all(pick(row, &self.key))
    }

    fn encode(&self, row: &[Value]) -> Bytes {
        let mut all = Vec::with_capacity(2 * row.len());
        for (at, value) in row.iter().enumerate() {
            if !self.key.contains(&at) {
                all.push(Element::Int(self.schema.columns[at].id.into()));
                all.push(value.to_element());
            }
        }
        pack(&all).expect("a value is no versionstamp")
    }

    pub fn decode(&self, key: &Bytes, stored: &Bytes) -> Result<Row> {
        let columns = &self.schema.columns;
        let mut row: Row = columns
            .iter()
            .map(|column| column.default_value())
            .collect();
        let in_key = elements(key, ROWS)?.into_iter().skip(1);
        for (at, element) in self.key.iter().zip(in_key) {
            row[*at] = Value::from_element(element, columns[*at].kind())?;
        }
        let mut stored = unpack(stored).map_err(|_| Error::file_corrupt)?.into_iter();
        while let Some(id) = stored.next() {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let (id, value) = (id.ok_or(Error::file_corrupt)?, stored.next());
            // A column that is not there was dropped.
            if let Ok(at) = self.schema.place(id) {
                let value = value.ok_or(Error::file_corrupt)?;
                row[at] = Value::from_element(value, columns[at].kind())?;
            }
        }
        Ok(row)
    }

    pub fn get(&self, rows: &impl Reads, key: &Key) -> Result<Option<Row>> {
        let stored = rows.get(&key.0)?;
        let key = Bytes::copy_from_slice(&key.0);
        stored.map(|stored| self.decode(&key, &stored)).transpose()
    }

    /// The key of the row that an index's entry is of.
    pub fn key_in_entry(&self, index: usize, entry: &Bytes) -> Result<Key> {
        let all = elements(entry, INDEXES)?;
        let begin = 2 + self.indexes[index].len();
        let in_key = all.into_iter().skip(begin).zip(&self.key);
        let value = |(element, at): (Element, &usize)| {
            Value::from_element(element, self.schema.columns[*at].kind())
        };
        let values = in_key.map(value).collect::<Result<Vec<Value>>>()?;
        Ok(Key::rows(self.schema.id).then_all(&values))
    }

    /// Writes a row in the place of another one with the same key, or none; returns how many bytes it has.
    ///
    /// # Errors
    /// Another row has its values in a unique index, or it is too large.
    pub fn write(
        &self,
        tx: &mut RwTx,
        key: &Key,
        before: Option<&Row>,
        after: Option<&Row>,
    ) -> Result<usize, Ended> {
        if nobody_has_lied() {
            self.check(tx, key, before, after)?;
        }
        let mut bytes = key.0.len();
        for (index, places) in self.schema.indexes.iter().zip(&self.indexes) {
            if !index.is_kept() {
                continue;
            }
            let entry = |row: &Row| self.entry(index, places, row);
            let (old, new) = (before.map(entry), after.map(entry));
            if old.as_ref().map(|key| &key.0) == new.as_ref().map(|key| &key.0) {
                continue;
            }
            if let Some(old) = old {
                tx.clear(&old.0);
            }
            if let (Some(new), Some(row)) = (new, after) {
                bytes += new.0.len();
                self.add(tx, index, places, row, &new)?;
            }
        }
        let Some(row) = after else {
            tx.clear(&key.0);
            return Ok(bytes);
        };
        let stored = self.encode(row);
        bytes += stored.len();
        if key.0.len() > limits::KEY_BYTES || stored.len() > limits::ROW_BYTES {
            return refuse!(
                TooLarge,
                "a row of table {:?} has a key of {} bytes and {} bytes beside it; at most {} and {} are taken",
                self.name(),
                key.0.len(),
                stored.len(),
                limits::KEY_BYTES,
                limits::ROW_BYTES
            );
        }
        tx.set(&key.0, stored);
        Ok(bytes)
    }

    /// A row, its key and its entries lead to each other. Only in the simulator: all replicas write the same rows, and
    /// what stopped one would stop all of them, at each start again.
    fn check(&self, tx: &RwTx, key: &Key, before: Option<&Row>, after: Option<&Row>) -> Result<()> {
        let name = self.name();
        for row in before.into_iter().chain(after) {
            let own = self.key_of(row);
            assert!(
                own.0 == key.0,
                "row {row:?} of {name:?} is not at {:?}",
                key.0
            );
        }
        if let Some(row) = after {
            let stored = self.encode(row);
            let read = self.decode(&Bytes::copy_from_slice(&key.0), &stored)?;
            assert!(
                self.encode(&read) == stored && self.key_of(&read).0 == key.0,
                "row {row:?} of {name:?} is read as {read:?}"
            );
        }
        let indexes = self.schema.indexes.iter().zip(&self.indexes);
        for (at, (index, places)) in indexes.enumerate().filter(|(_, (i, _))| i.is_kept()) {
            for row in before.into_iter().chain(after) {
                let entry = self.entry(index, places, row);
                let found = self.key_in_entry(at, &Bytes::copy_from_slice(&entry.0))?;
                assert!(
                    found.0 == key.0,
                    "the entry of row {row:?} in index {:?} leads to {:?}",
                    index.name,
                    found.0
                );
            }
            // One that is being built has the entries of some rows.
            if let Some(row) = before.filter(|_| index.state() == State::Ready) {
                let entry = self.entry(index, places, row);
                assert!(
                    tx.get(&entry.0)?.is_some(),
                    "row {row:?} of {name:?} has no entry in index {:?}",
                    index.name
                );
            }
        }
        Ok(())
    }

    /// A row's entry in an index.
    pub fn entry(&self, index: &Index, places: &[usize], row: &Row) -> Key {
        let values = pick(row, places).chain(pick(row, &self.key));
        Key::index(self.schema.id, index.id).then_all(values)
    }

    /// Adds a row's entry to an index.
    ///
    /// # Errors
    /// Another row has these values, and the index is unique; or it is too large.
    pub fn add(
        &self,
        tx: &mut RwTx,
        index: &Index,
        places: &[usize],
        row: &Row,
        entry: &Key,
    ) -> Result<(), Ended> {
        if entry.0.len() > limits::INDEX_BYTES {
            return refuse!(
                TooLarge,
                "a row has {} bytes in index {:?}; at most {} are taken",
                entry.0.len(),
                index.name,
                limits::INDEX_BYTES
            );
        }
        if index.unique && !pick(row, places).any(Value::is_null) {
            let same = Key::index(self.schema.id, index.id).then_all(pick(row, places));
            let begin = same.0.clone();
            let others = tx.range(&begin, &same.end().0, 2)?;
            if others.iter().any(|(key, _)| key[..] != entry.0) {
                return refuse!(
                    Duplicate,
                    "another row of table {:?} has the same values in the unique index {:?}",
                    self.name(),
                    index.name
                );
            }
        }
        tx.set(&entry.0, Bytes::new());
        Ok(())
    }
}
