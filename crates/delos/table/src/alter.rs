//! Changes of schemas, each one entry of the log. Rows are not rewritten: an index that is added to more rows than a
//! step takes is filled in steps, and a dropped table is removed in steps ([`crate::work`]).

use crate::keys::{INDEXES, Key};
use crate::proto::{self, Kind};
use crate::schema::{self, Column, Index, Schema, State};
use crate::value::Value;
use crate::work::{self, Work};
use crate::{Ended, Refused, limits};
use plinth_core::Error;
use plinth_delos::store::RwTx;

/// What the primary key is called where an index is.
pub const PRIMARY: &str = "primary";

fn check_name(name: &str, what: &str) -> Result<(), Refused> {
    let is_good =
        !name.is_empty() && name.len() <= limits::NAME_BYTES && !name.chars().any(char::is_control);
    match is_good {
        true => Ok(()),
        false => refuse!(
            BadRequest,
            "the name of {what} has 1 to {} bytes and no control characters",
            limits::NAME_BYTES
        ),
    }
}

fn check_count(count: usize, limit: usize, what: &str) -> Result<(), Refused> {
    match count <= limit {
        true => Ok(()),
        false => refuse!(TooLarge, "there may be {limit} {what}"),
    }
}

/// Adds a column to a schema.
fn add(schema: &mut Schema, asked: proto::Column) -> Result<(), Refused> {
    check_name(&asked.name, "a column")?;
    check_count(
        schema.columns.len() + 1,
        limits::COLUMNS,
        "columns in a table",
    )?;
    if schema
        .columns
        .iter()
        .any(|column| column.name == asked.name)
    {
        return refuse!(
            Exists,
            "table {:?} has a column {:?} already",
            schema.name,
            asked.name
        );
    }
    let kind = asked.kind();
    if kind == Kind::Unknown {
        return refuse!(
            BadRequest,
            "column {:?} is bool, int, float, text, bytes or timestamp",
            asked.name
        );
    }
    let default = asked.default.map_or(Value::Null, Value::from);
    let default = default.of_kind(kind, &asked.name)?;
    if default.size() > limits::KEY_BYTES {
        return refuse!(
            TooLarge,
            "a default has at most {} bytes",
            limits::KEY_BYTES
        );
    }
    schema.columns.push(Column {
        id: schema.next_column,
        name: asked.name,
        kind: kind.into(),
        nullable: asked.nullable,
        default: (!default.is_null()).then(|| default.into()),
    });
    schema.next_column += 1;
    Ok(())
}

/// Numbers of columns, none of them twice.
fn ids(schema: &Schema, names: &[String], what: &str) -> Result<Vec<u32>, Refused> {
    if names.is_empty() || names.len() > limits::KEY_COLUMNS {
        return refuse!(
            BadRequest,
            "{what} has 1 to {} columns",
            limits::KEY_COLUMNS
        );
    }
    let mut ids: Vec<u32> = Vec::new();
    for name in names {
        let id = schema.columns[schema.column(name)?].id;
        if ids.contains(&id) {
            return refuse!(BadRequest, "{what} has column {name:?} twice");
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Adds an index to a schema.
fn add_index(schema: &mut Schema, asked: proto::Index, state: State) -> Result<u32, Refused> {
    check_name(&asked.name, "an index")?;
    check_count(
        schema.indexes.len() + 1,
        limits::INDEXES,
        "indexes on a table",
    )?;
    let is_there = schema.indexes.iter().any(|index| index.name == asked.name);
    if is_there || asked.name == PRIMARY {
        return refuse!(
            Exists,
            "table {:?} has an index {:?} already",
            schema.name,
            asked.name
        );
    }
    let columns = ids(schema, &asked.columns, "an index")?;
    let id = schema.next_index;
    schema.next_index += 1;
    schema.indexes.push(Index {
        id,
        name: asked.name,
        columns,
        unique: asked.unique,
        state: state.into(),
        failed: String::new(),
    });
    Ok(id)
}

/// # Errors
/// There is a table of this name, or it cannot be one.
pub fn create_table(tx: &mut RwTx, asked: proto::Table) -> Result<(), Ended> {
    check_name(&asked.name, "a table")?;
    if schema::find(tx, &asked.name)?.is_some() {
        return refuse!(Exists, "there is a table {:?} already", asked.name);
    }
    let mut counters = schema::counters(tx)?;
    check_count(counters.tables as usize + 1, limits::TABLES, "tables")?;
    let mut schema = Schema {
        id: counters.next_table,
        name: asked.name,
        ..Schema::default()
    };
    counters.next_table += 1;
    counters.tables += 1;
    for column in asked.columns {
        add(&mut schema, column)?;
    }
    if asked.key.is_empty() {
        return refuse!(
            BadRequest,
            "a primary key has 1 to {} columns: add `primary key (…)'",
            limits::KEY_COLUMNS
        );
    }
    schema.key = ids(&schema, &asked.key, "a primary key")?;
    for at in schema.key_places()? {
        // A key names its row.
        schema.columns[at].nullable = false;
    }
    for index in asked.indexes {
        add_index(&mut schema, index, State::Ready)?;
    }
    schema::set_counters(tx, &counters);
    schema.store(tx);
    Ok(())
}

/// # Errors
/// There is no such table.
pub fn drop_table(tx: &mut RwTx, name: &str) -> Result<(), Ended> {
    let schema = schema::load(tx, name)?;
    let mut counters = schema::counters(tx)?;
    counters.tables = counters.tables.checked_sub(1).ok_or(Error::file_corrupt)?;
    schema::set_counters(tx, &counters);
    tx.clear(&Key::schema(name).0);
    work::add(tx, &Work::clear(Key::rows(schema.id)))?;
    let entries = Key(INDEXES.to_vec()).then(&Value::Int(schema.id.into()));
    work::add(tx, &Work::clear(entries))?;
    Ok(work::step(tx, work::LARGE)?)
}

/// # Errors
/// There is no such table, or it cannot have the column.
pub fn add_column(tx: &mut RwTx, table: &str, asked: proto::Column) -> Result<(), Ended> {
    let mut schema = schema::load(tx, table)?;
    add(&mut schema, asked)?;
    let column = schema.columns.last().expect("it was added");
    if !column.nullable && column.default.is_none() {
        return refuse!(
            BadRequest,
            "column {:?} needs a default for the rows that are there, or to be nullable",
            column.name
        );
    }
    schema.store(tx);
    Ok(())
}

/// # Errors
/// There is no such column, or a key or an index needs it.
pub fn drop_column(tx: &mut RwTx, table: &str, name: &str) -> Result<(), Ended> {
    let mut schema = schema::load(tx, table)?;
    let at = schema.column(name)?;
    let id = schema.columns[at].id;
    let user = match schema.key.contains(&id) {
        true => Some("the primary key, which never changes: make another table".to_owned()),
        false => {
            let index = schema
                .indexes
                .iter()
                .find(|index| index.columns.contains(&id));
            index.map(|index| format!("index {:?}: drop that first", index.name))
        }
    };
    if let Some(user) = user {
        return refuse!(BadRequest, "column {name:?} is part of {user}");
    }
    schema.columns.remove(at);
    schema.store(tx);
    Ok(())
}

/// # Errors
/// There is no such table; it cannot have the index; or the first rows that it is filled with are not unique.
pub fn create_index(tx: &mut RwTx, table: &str, asked: proto::Index) -> Result<(), Ended> {
    let mut schema = schema::load(tx, table)?;
    let id = add_index(&mut schema, asked, State::Building)?;
    schema.store(tx);
    let begin = Key::rows(schema.id).0.into();
    let mut left = work::LARGE;
    match work::fill(tx, table, id, &begin, &mut left)? {
        Some(rest) => Ok(work::add(tx, &rest)?),
        None => Ok(()),
    }
}

/// # Errors
/// There is no such index.
pub fn drop_index(tx: &mut RwTx, table: &str, name: &str) -> Result<(), Ended> {
    let mut schema = schema::load(tx, table)?;
    let at = schema.index(name)?;
    let index = schema.indexes.remove(at);
    schema.store(tx);
    work::add(tx, &Work::clear(Key::index(schema.id, index.id)))?;
    Ok(work::step(tx, work::LARGE)?)
}
