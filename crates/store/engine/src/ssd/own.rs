//! The second place of the rows that are kept twice: a tree of its own, which changes with the rows in one commit.

use super::{SsdEngine, Tree};
use crate::KEPT_TWICE;
use crate::batch::NetEffect;
use crate::ssd::frames::BlockFile;
use bytes::Bytes;
use plinth_core::{Error, Result};
use plinth_runtime::probe;
use redb::{
    ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageError, Table, TableDefinition,
};
use std::cmp::{max, min};
use std::collections::BTreeMap;

/// Rows that are kept twice, for the second time.
pub(super) const OWN: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("own");

pub(super) type OwnRows = BTreeMap<Bytes, Bytes>;

/// The part of a range that is kept twice.
pub(super) fn kept_twice<'a>(begin: &'a [u8], end: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (begin, end) = (max(begin, KEPT_TWICE.0), min(end, KEPT_TWICE.1));
    (begin < end).then_some((begin, end))
}

pub(super) fn is_kept_twice(key: &[u8]) -> bool {
    KEPT_TWICE.0 <= key && key < KEPT_TWICE.1
}

/// Does to the second tree what was done to the rows. It is empty in a file of the former format.
pub(super) fn apply_own(
    own: &mut Table<'_, &'static [u8], &'static [u8]>,
    rows: &Table<'_, &'static [u8], &'static [u8]>,
    net: &NetEffect<'_>,
) -> std::result::Result<(), StorageError> {
    if own.is_empty()? {
        for row in rows.range(KEPT_TWICE.0..KEPT_TWICE.1)? {
            let (key, value) = row?;
            own.insert(key.value(), value.value())?;
        }
        return Ok(());
    }
    for &(begin, end) in &net.clears {
        if let Some((begin, end)) = kept_twice(begin, end) {
            own.retain_in(begin..end, |_, _| false)?;
        }
    }
    for &(key, value) in net.sets.iter().filter(|(key, _)| is_kept_twice(key)) {
        own.insert(key, value)?;
    }
    Ok(())
}

pub(super) fn follow_own(own: &mut OwnRows, net: &NetEffect<'_>) {
    for &(begin, end) in &net.clears {
        own.retain(|key, _| *key < *begin || *key >= *end);
    }
    for &(key, value) in net.sets.iter().filter(|(key, _)| is_kept_twice(key)) {
        own.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    }
}

pub(super) fn show_own(
    own: &OwnRows,
    (begin, end): (&[u8], &[u8]),
    reverse: bool,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) {
    let range = (
        std::ops::Bound::Included(begin),
        std::ops::Bound::Excluded(end),
    );
    let mut rows = own.range::<[u8], _>(range);
    while let Some((key, value)) = match reverse {
        true => rows.next_back(),
        false => rows.next(),
    } {
        if !visit(key, value) {
            return;
        }
    }
}

impl<F: BlockFile> Tree<F> {
    /// The rows that are kept twice, from their second place; none if there is no such tree. Blocks.
    pub(super) fn own_rows(&self) -> std::result::Result<OwnRows, redb::Error> {
        let table = match self.database.begin_read()?.open_table(OWN) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(OwnRows::new()),
            opened => opened?,
        };
        let mut own = OwnRows::new();
        for row in table.range::<&[u8]>(..)? {
            let (key, value) = row?;
            let copied = |bytes| Bytes::copy_from_slice(bytes);
            own.insert(copied(key.value()), copied(value.value()));
        }
        Ok(own)
    }
}

impl SsdEngine {
    /// Looks whether the rows that are kept twice can be read, and takes them from their second place otherwise.
    pub(super) async fn find_own_rows(&self) -> Result<()> {
        match self.scan(KEPT_TWICE, false, false, &mut |_, _| true) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_damage() => self.open_again().await?,
            Err(error) => return Err(error),
        }
        probe!("ssd_engine_takes_own_rows_from_their_second_place");
        let tree = self.tree.borrow().clone();
        let tree = tree.ok_or(Error::operation_cancelled)?;
        let shared = tree.clone();
        let read = self.file.offload(true, move || shared.own_rows()).await;
        let own = read.map_err(|error| self.failure("read", error, Some(&tree.frames), None))?;
        if own.is_empty() {
            return Err(Error::checksum_failed); // of a former version
        }
        *self.own.borrow_mut() = Some(own);
        Ok(())
    }
}
