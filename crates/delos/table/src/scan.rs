//! Rows of a path, a few at a time.

use crate::Result;
use crate::keys::Key;
use crate::plan::Path;
use crate::rows::{Row, Table};
use bytes::Bytes;
use plinth_core::Error;
use plinth_delos::store::Reads;

/// Rows that are read at a time.
const CHUNK: usize = 64;

/// What is still to be read.
pub struct Scan<'a> {
    table: &'a Table,
    path: Path,
    is_over: bool,
}

impl<'a> Scan<'a> {
    pub fn new(table: &'a Table, path: Path) -> Scan<'a> {
        Scan {
            table,
            path,
            is_over: false,
        }
    }

    /// The next rows with their keys; none after the last one.
    ///
    /// # Errors
    /// The disk fails, the snapshot is too old, or an index has an entry without a row.
    pub fn next(&mut self, rows: &impl Reads) -> Result<Vec<(Key, Row)>> {
        let path = &mut self.path;
        if self.is_over || path.begin >= path.end {
            return Ok(Vec::new());
        }
        let found = rows.range((&path.begin, &path.end), CHUNK, path.reverse)?;
        match found.last().filter(|_| found.len() == CHUNK) {
            None => self.is_over = true,
            Some((last, _)) if path.reverse => path.end = last.to_vec(),
            Some((last, _)) => path.begin = [last, &[0][..]].concat(),
        }
        let row = |(key, stored): (Bytes, Bytes)| match self.path.index {
            None => Ok((Key(key.to_vec()), self.table.decode(&key, &stored)?)),
            Some(index) => {
                let key = self.table.key_in_entry(index, &key)?;
                let row = self.table.get(rows, &key)?;
                Ok((key, row.ok_or(Error::file_corrupt)?))
            }
        };
        found.into_iter().map(row).collect()
    }
}
