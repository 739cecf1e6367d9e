//! What is done in steps, because it may be too much for one entry of the log: filling a new index, and removing what
//! a dropped table or index has left.
//!
//! Every request takes a small step first, and `Step` a large one, so it goes on for as long as there are requests.
//! How far it is, is a row: all replicas are equally far. A piece of work is a tuple:
//!
//! ```text
//!   (0, begin, end)                  rows of this range are removed
//!   (1, table, index, begin)         rows from here on are added to the index
//! ```

use crate::Result;
use crate::keys::{Key, WORK, WORK_END};
use crate::rows::Table;
use crate::schema::{self, State};
use crate::value::Value;
use crate::{Code, Ended, Refused};
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::tuple::{Element, pack, unpack};
use plinth_delos::store::{Reads, RwTx};

/// Rows of a step that comes along with a request, and of one that is asked for.
pub const SMALL: usize = 100;
pub const LARGE: usize = 2000;

#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    Clear {
        begin: Bytes,
        end: Bytes,
    },
    Fill {
        table: String,
        index: u32,
        begin: Bytes,
    },
}

impl Work {
    /// Removes all that begins with `key`.
    pub fn clear(key: Key) -> Work {
        Work::Clear {
            begin: key.0.clone().into(),
            end: key.end().0.into(),
        }
    }

    fn pack(&self) -> Bytes {
        let packed = match self {
            Work::Clear { begin, end } => pack(&[
                Element::Int(0),
                Element::Bytes(begin.clone()),
                Element::Bytes(end.clone()),
            ]),
            Work::Fill {
                table,
                index,
                begin,
            } => pack(&[
                Element::Int(1),
                table[..].into(),
                (*index).into(),
                Element::Bytes(begin.clone()),
            ]),
        };
        packed.expect("it has no versionstamp")
    }

    fn unpack(row: &Bytes) -> Result<Work> {
        let elements = unpack(row).map_err(|_| Error::file_corrupt)?;
        match &elements[..] {
            [Element::Int(0), Element::Bytes(begin), Element::Bytes(end)] => Ok(Work::Clear {
                begin: begin.clone(),
                end: end.clone(),
            }),
            [
                Element::Int(1),
                Element::Text(table),
                Element::Int(index),
                Element::Bytes(begin),
            ] => Ok(Work::Fill {
                table: table.clone(),
                index: u32::try_from(*index).map_err(|_| Error::file_corrupt)?,
                begin: begin.clone(),
            }),
            _ => Err(Error::file_corrupt),
        }
    }
}

/// Adds work to be done later.
pub fn add(tx: &mut RwTx, work: &Work) -> Result<()> {
    let mut counters = schema::counters(tx)?;
    let number = counters.next_work as i64;
    counters.next_work += 1;
    schema::set_counters(tx, &counters);
    tx.set(&Key(WORK.to_vec()).then(&Value::Int(number)).0, work.pack());
    Ok(())
}

fn first(tx: &impl Reads) -> Result<Option<(Bytes, Bytes)>> {
    Ok(tx.range((WORK, WORK_END), 1, false)?.into_iter().next())
}

/// True if there is work.
pub fn is_left(tx: &impl Reads) -> Result<bool> {
    Ok(first(tx)?.is_some())
}

/// Does a part of what is to be done, the oldest work first: up to `limit` rows.
pub fn step(tx: &mut RwTx, limit: usize) -> Result<()> {
    let mut left = limit;
    while left > 0
        && let Some((key, row)) = first(tx)?
    {
        let rest = match Work::unpack(&row)? {
            Work::Clear { begin, end } => clear(tx, begin, end, &mut left)?,
            Work::Fill {
                table,
                index,
                begin,
            } => {
                let filled = tx.nested(|tx| fill(tx, &table, index, &begin, &mut left));
                match filled {
                    Ok(rest) => rest,
                    Err(Ended::Failed(error)) => return Err(error),
                    Err(Ended::Refused(why)) => fail(tx, &table, index, &why)?,
                }
            }
        };
        match rest {
            Some(rest) => tx.set(&key, rest.pack()),
            None => tx.clear(&key),
        }
    }
    Ok(())
}

fn clear(tx: &mut RwTx, begin: Bytes, end: Bytes, left: &mut usize) -> Result<Option<Work>> {
    let rows = tx.range(&begin, &end, *left)?;
    for (key, _) in &rows {
        tx.clear(key);
    }
    *left -= rows.len();
    let last = rows.last().filter(|_| *left == 0);
    let begin = last.map(|(key, _)| key.clone());
    Ok(begin.map(|begin| Work::Clear { begin, end }))
}

/// Adds rows to an index; what is left. The index may be gone, and its table with it.
///
/// # Errors
/// It is unique, and two rows have the same values; or a row is too large for it.
pub fn fill(
    tx: &mut RwTx,
    name: &str,
    id: u32,
    begin: &Bytes,
    left: &mut usize,
) -> Result<Option<Work>, Ended> {
    let Some(schema) = schema::find(tx, name)? else {
        return Ok(None);
    };
    let mut table = Table::new(schema)?;
    let end = Key::rows(table.schema.id).end().0;
    let found = table.schema.indexes.iter().position(|index| index.id == id);
    let of_this_table = begin[..] >= *Key::rows(table.schema.id).0 && begin[..] < *end;
    let Some(at) = found.filter(|_| of_this_table) else {
        return Ok(None);
    };
    let (index, places) = (table.schema.indexes[at].clone(), table.indexes[at].clone());
    let rows = tx.range(begin, &end, *left)?;
    *left -= rows.len();
    for (key, stored) in &rows {
        let row = table.decode(key, stored)?;
        let entry = table.entry(&index, &places, &row);
        table.add(tx, &index, &places, &row, &entry)?;
    }
    if *left > 0 {
        table.schema.indexes[at].set_state(State::Ready);
        table.schema.store(tx);
        return Ok(None);
    }
    let last = rows.last().expect("there was room for rows");
    Ok(Some(Work::Fill {
        table: name.to_owned(),
        index: id,
        begin: [&last.0, &[0][..]].concat().into(),
    }))
}

/// An index cannot be filled: nobody keeps it from now on.
fn fail(tx: &mut RwTx, name: &str, id: u32, why: &Refused) -> Result<Option<Work>> {
    let mut schema = schema::find(tx, name)?.ok_or(Error::file_corrupt)?;
    let index = schema.indexes.iter_mut().find(|index| index.id == id);
    let index = index.ok_or(Error::file_corrupt)?;
    index.set_state(State::Failed);
    index.failed = match why.code {
        Code::Duplicate => format!("two rows of table {name:?} have the same values"),
        _ => why.why.clone(),
    };
    schema.store(tx);
    Ok(Some(Work::clear(Key::index(schema.id, id))))
}
