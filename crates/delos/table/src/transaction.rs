//! A transaction: if all its conditions hold, all its operations are executed, one after the other; or nothing is.

use crate::filter::Filter;
use crate::keys::Key;
use crate::plan;
use crate::proto::Kind;
use crate::request::{Assignment, Cells, Condition, Expect, Operation, To, Transaction};
use crate::rows::{Row, Table};
use crate::scan::Scan;
use crate::value::{Value, kind_name};
use crate::{Ended, Refused, limits};
use plinth_delos::store::RwTx;
use plinth_runtime::nobody_has_lied;
use std::collections::BTreeMap;

/// The tables of a transaction, and what it has used up of its limits.
#[derive(Default)]
struct Course {
    tables: BTreeMap<String, Table>,
    changed: usize,
    searched: usize,
    written: usize,
}

/// Executes a transaction; how many rows each operation has changed.
///
/// # Errors
/// It is refused, and changes nothing.
pub fn execute(tx: &mut RwTx, asked: Transaction) -> Result<Vec<u64>, Ended> {
    let mut course = Course::default();
    for (number, condition) in asked.conditions.iter().enumerate() {
        course.load(tx, &condition.table)?;
        check(tx, &course.tables[&condition.table], number, condition)?;
    }
    let mut changed = Vec::with_capacity(asked.operations.len());
    for operation in asked.operations {
        let before = course.changed;
        course.operate(tx, operation)?;
        changed.push((course.changed - before) as u64);
    }
    Ok(changed)
}

fn check(tx: &RwTx, table: &Table, number: usize, condition: &Condition) -> Result<(), Ended> {
    let row = table.get(tx, &table.named(&condition.key)?)?;
    let why = match (&condition.expect, row) {
        (Expect::Exists, Some(_)) | (Expect::Missing, None) => return Ok(()),
        (Expect::Missing, Some(_)) => "the row is there",
        (Expect::Exists, None) => "there is no such row",
        (Expect::Matches(filter), row) => {
            let filter = filter.bind(&table.schema)?;
            match row {
                Some(row) if filter.matches(&row) => return Ok(()),
                Some(_) => "the row does not match",
                None => "there is no such row",
            }
        }
    };
    refuse!(
        ConditionFailed,
        "condition {} does not hold: {why} in table {:?}",
        number + 1,
        table.name()
    )
}

impl Course {
    fn load(&mut self, tx: &RwTx, name: &str) -> Result<(), Ended> {
        if !self.tables.contains_key(name) {
            self.tables.insert(name.to_owned(), Table::load(tx, name)?);
        }
        Ok(())
    }

    fn operate(&mut self, tx: &mut RwTx, operation: Operation) -> Result<(), Ended> {
        match operation {
            Operation::Insert { table, row } => self.put(tx, &table, &row, true),
            Operation::Upsert { table, row } => self.put(tx, &table, &row, false),
            Operation::Update { table, key, set } => {
                let (key, row) = self.row(tx, &table, &key)?;
                let Some(row) = row else {
                    return refuse!(
                        RowNotFound,
                        "there is no such row to update in table {table:?}"
                    );
                };
                self.update(tx, &table, key, row, &set)
            }
            Operation::UpdateWhere { table, filter, set } => {
                for (key, row) in self.search(tx, &table, &filter)? {
                    self.update(tx, &table, key, row, &set)?;
                }
                Ok(())
            }
            Operation::Delete { table, key } => match self.row(tx, &table, &key)? {
                (key, Some(row)) => self.write(tx, &table, &key, Some(&row), None),
                (_, None) => Ok(()),
            },
            Operation::DeleteWhere { table, filter } => {
                for (key, row) in self.search(tx, &table, &filter)? {
                    self.write(tx, &table, &key, Some(&row), None)?;
                }
                Ok(())
            }
        }
    }

    fn row(&mut self, tx: &RwTx, table: &str, key: &Cells) -> Result<(Key, Option<Row>), Ended> {
        self.load(tx, table)?;
        let table = &self.tables[table];
        let key = table.named(key)?;
        let row = table.get(tx, &key)?;
        Ok((key, row))
    }

    fn put(&mut self, tx: &mut RwTx, name: &str, cells: &Cells, is_new: bool) -> Result<(), Ended> {
        self.load(tx, name)?;
        let table = &self.tables[name];
        let row = table.row(cells)?;
        let key = table.key_of(&row);
        let before = table.get(tx, &key)?;
        if is_new && before.is_some() {
            return refuse!(RowExists, "table {name:?} has a row with this key already");
        }
        self.write(tx, name, &key, before.as_ref(), Some(&row))
    }

    fn update(
        &mut self,
        tx: &mut RwTx,
        name: &str,
        key: Key,
        before: Row,
        set: &[Assignment],
    ) -> Result<(), Ended> {
        let mut after = before.clone();
        assign(&self.tables[name], &mut after, set)?;
        self.write(tx, name, &key, Some(&before), Some(&after))
    }

    fn write(
        &mut self,
        tx: &mut RwTx,
        name: &str,
        key: &Key,
        before: Option<&Row>,
        after: Option<&Row>,
    ) -> Result<(), Ended> {
        self.changed += 1;
        self.written += self.tables[name].write(tx, key, before, after)?;
        if self.changed > limits::ROWS_CHANGED || self.written > limits::BYTES_WRITTEN {
            return refuse!(
                TooLarge,
                "a transaction changes at most {} rows and writes at most {} bytes",
                limits::ROWS_CHANGED,
                limits::BYTES_WRITTEN
            );
        }
        Ok(())
    }

    /// The rows of a filter, as they are before any of them is changed.
    fn search(&mut self, tx: &RwTx, name: &str, filter: &Filter) -> Result<Vec<(Key, Row)>, Ended> {
        self.load(tx, name)?;
        let table = &self.tables[name];
        let filter = filter.bind(&table.schema)?;
        let path = plan::choose(table, &filter, &plan::Order::new(), None);
        let mut scan = Scan::new(table, path);
        let (mut found, mut bytes) = (Vec::<(Key, Row)>::new(), 0);
        loop {
            let rows = scan.next(tx)?;
            if rows.is_empty() {
                // They are changed in one order, whichever way they were found.
                found.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0));
                let is_once = || found.windows(2).all(|two| two[0].0.0 < two[1].0.0);
                // Not where all replicas would end alike.
                assert!(
                    !nobody_has_lied() || is_once(),
                    "a filter finds a row of {name:?} twice"
                );
                return Ok(found);
            }
            self.searched += rows.len();
            let matching = rows.into_iter().filter(|(_, row)| filter.matches(row));
            for (key, row) in matching {
                bytes += row.iter().map(Value::size).sum::<usize>();
                found.push((key, row));
            }
            let is_too_much = self.searched > limits::ROWS_SEARCHED
                || self.changed + found.len() > limits::ROWS_CHANGED
                || bytes > limits::BYTES_WRITTEN;
            if is_too_much {
                return refuse!(
                    TooLarge,
                    "the filters of a transaction look at {} rows at most, and it changes {} rows of {} bytes: \
                         narrow the filter, or do a part at a time",
                    limits::ROWS_SEARCHED,
                    limits::ROWS_CHANGED,
                    limits::BYTES_WRITTEN
                );
            }
        }
    }
}

/// Changes the columns of a row.
fn assign(table: &Table, row: &mut Row, set: &[Assignment]) -> Result<(), Refused> {
    let mut given: Vec<usize> = Vec::new();
    for Assignment { column, to } in set {
        let at = table.schema.column(column)?;
        let about = &table.schema.columns[at];
        if given.contains(&at) {
            return refuse!(BadRequest, "column {column:?} is given twice");
        }
        given.push(at);
        if table.key.contains(&at) {
            return refuse!(
                BadRequest,
                "column {column:?} is part of the primary key: delete the row and insert another"
            );
        }
        row[at] = match to {
            To::Value(value) => value.clone().of_kind(about.kind(), column)?,
            To::Add(more) => sum(&row[at], more, about.kind(), column)?,
        };
        table.check_null(about, &row[at])?;
    }
    Ok(())
}

/// A null stays null.
fn sum(before: &Value, more: &Value, kind: Kind, column: &str) -> Result<Value, Refused> {
    let more = more.clone().of_kind(kind, column)?;
    let sum = match (before, &more) {
        (Value::Null, Value::Int(_) | Value::Float(_)) => Some(Value::Null),
        (Value::Int(before), Value::Int(more)) => before.checked_add(*more).map(Value::Int),
        (Value::Float(before), Value::Float(more)) => Some(Value::float(before + more)),
        _ => {
            return refuse!(
                BadRequest,
                "column {column:?} is {}: only numbers are added to",
                kind_name(kind)
            );
        }
    };
    match sum {
        Some(sum) => Ok(sum),
        None => refuse!(
            BadRequest,
            "column {column:?} would be larger than 64 bits hold"
        ),
    }
}
