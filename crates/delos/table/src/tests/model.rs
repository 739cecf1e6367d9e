//! What tables are: maps of rows, searched row by row.

use crate::Code;
use crate::filter::Filter;
use crate::proto::{self, Comparison, Kind};
use crate::request::{Cells, Condition, Expect, Operation, Request, To, Transaction};
use crate::value::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;

pub type Row = BTreeMap<String, Value>;

#[derive(Clone, Default, Debug)]
pub struct Model {
    pub tables: BTreeMap<String, Table>,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub columns: Vec<proto::Column>,
    pub key: Vec<String>,
    pub indexes: Vec<proto::Index>,
    pub rows: BTreeMap<Vec<Value>, Row>,
}

fn require(holds: bool, code: Code) -> Result<(), Code> {
    match holds {
        true => Ok(()),
        false => Err(code),
    }
}

fn fits(value: &Value, kind: Kind) -> Result<Value, Code> {
    match (value, kind) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Int(int), Kind::Float) if int.unsigned_abs() < 1 << 53 => {
            Ok(Value::Float(*int as f64))
        }
        // The lowest whole number is also a float; the highest is not.
        (Value::Int(i64::MIN), Kind::Float) => Ok(Value::Float(-9_223_372_036_854_775_808.0)),
        _ if value.kind() == Some(kind) => Ok(value.clone()),
        _ => Err(Code::BadRequest),
    }
}

impl Table {
    pub fn column(&self, name: &str) -> Result<&proto::Column, Code> {
        let found = self.columns.iter().find(|column| column.name == name);
        found.ok_or(Code::BadRequest)
    }

    fn named(&self, cells: &Cells) -> Result<Vec<Value>, Code> {
        let mut values = BTreeMap::new();
        for (name, value) in cells {
            let value = fits(value, self.column(name)?.kind())?;
            require(
                !value.is_null() && self.key.contains(name),
                Code::BadRequest,
            )?;
            require(
                values.insert(name.clone(), value).is_none(),
                Code::BadRequest,
            )?;
        }
        let key = self.key.iter().map(|name| values.get(name).cloned());
        key.collect::<Option<_>>().ok_or(Code::BadRequest)
    }

    fn row(&self, cells: &Cells) -> Result<(Vec<Value>, Row), Code> {
        let default = |c: &proto::Column| c.default.clone().map_or(Value::Null, Value::from);
        let columns = self.columns.iter();
        let mut row: Row = columns.map(|c| (c.name.clone(), default(c))).collect();
        let mut given = Vec::new();
        for (name, value) in cells {
            require(!given.contains(&name), Code::BadRequest)?;
            given.push(name);
            row.insert(name.clone(), fits(value, self.column(name)?.kind())?);
        }
        self.check_nulls(&row)?;
        let key = self.key.iter().map(|name| row[name].clone()).collect();
        Ok((key, row))
    }

    fn check_nulls(&self, row: &Row) -> Result<(), Code> {
        let is_good = |c: &proto::Column| !row[&c.name].is_null() || is_nullable(self, c);
        require(self.columns.iter().all(is_good), Code::BadRequest)
    }

    /// The row at `key` becomes this one: is that allowed?
    fn check_unique(&self, key: &[Value], row: &Row) -> Result<(), Code> {
        for index in self.indexes.iter().filter(|index| index.unique) {
            let values = |row: &Row| -> Vec<Value> {
                index.columns.iter().map(|c| row[c].clone()).collect()
            };
            let own = values(row);
            let mut others = self.rows.iter().filter(|(other, _)| *other != key);
            let is_same = others.any(|(_, other)| values(other) == own);
            require(!is_same || own.contains(&Value::Null), Code::Duplicate)?;
        }
        Ok(())
    }

    fn write(&mut self, key: Vec<Value>, row: Row) -> Result<u64, Code> {
        self.check_unique(&key, &row)?;
        self.rows.insert(key, row);
        Ok(1)
    }

    fn update(&mut self, key: &[Value], set: &[crate::request::Assignment]) -> Result<u64, Code> {
        let mut row = self.rows[key].clone();
        let mut given = Vec::new();
        for assignment in set {
            let name = &assignment.column;
            let kind = self.column(name)?.kind();
            let is_good = !given.contains(&name) && !self.key.contains(name);
            require(is_good, Code::BadRequest)?;
            given.push(name);
            let after = match &assignment.to {
                To::Value(value) => fits(value, kind)?,
                To::Add(more) => match (&row[name], fits(more, kind)?) {
                    (Value::Null, Value::Int(_) | Value::Float(_)) => Value::Null,
                    (Value::Int(before), Value::Int(more)) => {
                        Value::Int(before.checked_add(more).ok_or(Code::BadRequest)?)
                    }
                    (Value::Float(before), Value::Float(more)) => Value::float(before + more),
                    _ => return Err(Code::BadRequest),
                },
            };
            row.insert(name.clone(), after);
            self.check_nulls(&row)?;
        }
        self.write(key.to_vec(), row)
    }

    pub fn matching(&self, filter: &Filter) -> Result<Vec<Vec<Value>>, Code> {
        check(self, filter)?;
        let rows = self
            .rows
            .iter()
            .filter(|(_, row)| matches(self, filter, row));
        Ok(rows.map(|(key, _)| key.clone()).collect())
    }
}

fn is_nullable(table: &Table, column: &proto::Column) -> bool {
    column.nullable && !table.key.contains(&column.name)
}

/// Does the filter fit the table?
fn check(table: &Table, filter: &Filter) -> Result<(), Code> {
    match filter {
        Filter::All(filters) | Filter::Any(filters) => {
            filters.iter().try_for_each(|filter| check(table, filter))
        }
        Filter::Not(filter) => check(table, filter),
        Filter::Compare(name, comparison, value) => {
            let kind = table.column(name)?.kind();
            fits(value, kind)?;
            let has_prefix = matches!(kind, Kind::Text | Kind::Bytes);
            require(
                *comparison != Comparison::Prefix || has_prefix,
                Code::BadRequest,
            )?;
            let equality = [Comparison::Equal, Comparison::NotEqual].contains(comparison);
            require(equality || !value.is_null(), Code::BadRequest)
        }
    }
}

fn matches(table: &Table, filter: &Filter, row: &Row) -> bool {
    match filter {
        Filter::All(filters) => !filters.iter().any(|filter| !matches(table, filter, row)),
        Filter::Any(filters) => filters.iter().any(|filter| matches(table, filter, row)),
        Filter::Not(filter) => !matches(table, filter, row),
        Filter::Compare(name, comparison, value) => {
            let kind = table.column(name).expect("it was checked").kind();
            let value = fits(value, kind).expect("it was checked");
            match (&row[name], value) {
                (Value::Null, Value::Null) => *comparison == Comparison::Equal,
                (_, Value::Null) => *comparison == Comparison::NotEqual,
                (Value::Null, _) => false,
                (Value::Text(own), Value::Text(value)) if *comparison == Comparison::Prefix => {
                    own.starts_with(&value)
                }
                (Value::Bytes(own), Value::Bytes(value)) if *comparison == Comparison::Prefix => {
                    own.starts_with(&value)
                }
                (own, value) => match own.cmp(&value) {
                    Ordering::Less => [
                        Comparison::Less,
                        Comparison::LessOrEqual,
                        Comparison::NotEqual,
                    ]
                    .contains(comparison),
                    Ordering::Equal => [
                        Comparison::Equal,
                        Comparison::LessOrEqual,
                        Comparison::GreaterOrEqual,
                    ]
                    .contains(comparison),
                    Ordering::Greater => [
                        Comparison::Greater,
                        Comparison::GreaterOrEqual,
                        Comparison::NotEqual,
                    ]
                    .contains(comparison),
                },
            }
        }
    }
}

impl Model {
    pub fn execute(&mut self, request: &Request) -> Result<Vec<u64>, Code> {
        let before = self.clone();
        let done = self.attempt(request);
        if done.is_err() {
            *self = before;
        }
        done
    }

    fn table(&mut self, name: &str) -> Result<&mut Table, Code> {
        self.tables.get_mut(name).ok_or(Code::Unknown)
    }

    fn attempt(&mut self, request: &Request) -> Result<Vec<u64>, Code> {
        match request {
            Request::Transaction(asked) => return self.transaction(asked),
            Request::CreateTable(table) => {
                require(!self.tables.contains_key(&table.name), Code::Exists)?;
                let made = Table {
                    columns: table.columns.clone(),
                    key: table.key.clone(),
                    indexes: table.indexes.clone(),
                    rows: BTreeMap::new(),
                };
                self.tables.insert(table.name.clone(), made);
            }
            Request::DropTable(name) => {
                self.tables.remove(name).ok_or(Code::Unknown)?;
            }
            Request::AddColumn(table, column) => {
                let table = self.table(table)?;
                require(table.column(&column.name).is_err(), Code::Exists)?;
                let default = column.default.clone().map_or(Value::Null, Value::from);
                let default = fits(&default, column.kind())?;
                let is_good = column.nullable || !default.is_null();
                require(is_good, Code::BadRequest)?;
                table.columns.push(column.clone());
                for row in table.rows.values_mut() {
                    row.insert(column.name.clone(), default.clone());
                }
            }
            Request::DropColumn(table, name) => {
                let table = self.table(table)?;
                table.column(name)?;
                let in_index = table
                    .indexes
                    .iter()
                    .any(|index| index.columns.contains(name));
                require(!in_index && !table.key.contains(name), Code::BadRequest)?;
                table.columns.retain(|column| column.name != *name);
                for row in table.rows.values_mut() {
                    row.remove(name);
                }
            }
            Request::CreateIndex(table, index) => {
                let table = self.table(table)?;
                let is_new = table.indexes.iter().all(|other| other.name != index.name);
                require(is_new, Code::Exists)?;
                index
                    .columns
                    .iter()
                    .try_for_each(|c| table.column(c).map(|_| ()))?;
                table.indexes.push(index.clone());
                let rows = table.rows.iter();
                rows.clone()
                    .try_for_each(|(key, row)| table.check_unique(key, row))?;
            }
            Request::DropIndex(table, name) => {
                let table = self.table(table)?;
                let is_there = table.indexes.iter().any(|index| index.name == *name);
                require(is_there, Code::Unknown)?;
                table.indexes.retain(|index| index.name != *name);
            }
            Request::Step => {}
        }
        Ok(Vec::new())
    }

    fn transaction(&mut self, asked: &Transaction) -> Result<Vec<u64>, Code> {
        for Condition { table, key, expect } in &asked.conditions {
            let table = self.table(table)?;
            let key = table.named(key)?;
            let row = table.rows.get(&key);
            let holds = match expect {
                Expect::Exists => row.is_some(),
                Expect::Missing => row.is_none(),
                Expect::Matches(filter) => {
                    check(table, filter)?;
                    row.is_some_and(|row| matches(table, filter, row))
                }
            };
            require(holds, Code::ConditionFailed)?;
        }
        let operations = asked.operations.iter();
        operations
            .map(|operation| self.operate(operation))
            .collect()
    }

    fn operate(&mut self, operation: &Operation) -> Result<u64, Code> {
        match operation {
            Operation::Insert { table, row } => {
                let table = self.table(table)?;
                let (key, row) = table.row(row)?;
                require(!table.rows.contains_key(&key), Code::RowExists)?;
                table.write(key, row)
            }
            Operation::Upsert { table, row } => {
                let table = self.table(table)?;
                let (key, row) = table.row(row)?;
                table.write(key, row)
            }
            Operation::Update { table, key, set } => {
                let table = self.table(table)?;
                let key = table.named(key)?;
                require(table.rows.contains_key(&key), Code::RowNotFound)?;
                table.update(&key, set)
            }
            Operation::UpdateWhere { table, filter, set } => {
                let table = self.table(table)?;
                let keys = table.matching(filter)?;
                keys.iter().map(|key| table.update(key, set)).sum()
            }
            Operation::Delete { table, key } => {
                let table = self.table(table)?;
                let key = table.named(key)?;
                Ok(u64::from(table.rows.remove(&key).is_some()))
            }
            Operation::DeleteWhere { table, filter } => {
                let table = self.table(table)?;
                let keys = table.matching(filter)?;
                keys.iter().for_each(|key| {
                    table.rows.remove(key);
                });
                Ok(keys.len() as u64)
            }
        }
    }

    /// All rows of a query, whatever its limit.
    pub fn read(&self, asked: &proto::Query, filter: &Filter) -> Result<Vec<Vec<Value>>, Code> {
        let table = self.tables.get(&asked.table).ok_or(Code::Unknown)?;
        let mut keys = table.matching(filter)?;
        for order in &asked.order {
            table.column(&order.column)?;
        }
        let is_index = table.indexes.iter().any(|index| index.name == asked.index);
        let is_known = is_index || ["", "primary"].contains(&&asked.index[..]);
        require(is_known, Code::Unknown)?;
        let last = asked.order.last().is_some_and(|order| order.descending);
        let turn = |descending: bool, ordering: Ordering| match descending {
            true => ordering.reverse(),
            false => ordering,
        };
        keys.sort_by(|a, b| {
            for order in &asked.order {
                let value = |key: &Vec<Value>| table.rows[key][&order.column].clone();
                let ordering = turn(order.descending, value(a).cmp(&value(b)));
                if ordering != Ordering::Equal {
                    return ordering;
                }
            }
            turn(last, a.cmp(b))
        });
        let names = table.columns.iter().map(|column| &column.name);
        let row = |key: &Vec<Value>| names.clone().map(|c| table.rows[key][c].clone()).collect();
        Ok(keys.iter().map(row).collect())
    }
}
