//! The high-contention allocator: short numbers, each given out once. Many transactions can allocate at a time with
//! few conflicts.
//!
//! Numbers come from a window that moves on when half of it is used. A transaction counts itself into the window (an
//! atomic addition), picks a number at random, and takes it if it is free; only transactions that pick the same
//! number conflict.

use crate::options::TransactionOption;
use crate::range::RangeOptions;
use crate::subspace::Subspace;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, Key, MutationKind, Result};

#[derive(Clone)]
pub(super) struct Allocator {
    /// First number of a window → how many transactions have looked for a number in it.
    counters: Subspace,
    /// Numbers taken in the window.
    recent: Subspace,
}

fn window_size(start: i64) -> i64 {
    // Windows grow with their start: short numbers for few users, few moves for many.
    match start {
        ..255 => 64,
        255..65_535 => 1024,
        _ => 8192,
    }
}

impl Allocator {
    pub fn new(subspace: &Subspace) -> Result<Self> {
        Ok(Allocator {
            counters: subspace.sub(&[Element::Int(0)])?,
            recent: subspace.sub(&[Element::Int(1)])?,
        })
    }

    /// A packed number that no other committed transaction has.
    pub async fn allocate(&self, transaction: &Transaction) -> Result<Key> {
        loop {
            let start = self.find_window(transaction).await?;
            let window = window_size(start);
            loop {
                let candidate = start + plinth_runtime::random::below(window as u64) as i64;
                if let Some(taken) = self.take(transaction, start, candidate).await? {
                    if taken {
                        return tuple::pack(&[Element::Int(candidate)]);
                    }
                } else {
                    break; // the window has moved on meanwhile
                }
            }
        }
    }

    async fn window(&self, transaction: &Transaction) -> Result<Option<i64>> {
        let range = self.counters.range(&[])?;
        let rows = transaction.get_rows(range, RangeOptions::limit(1).reversed(), true);
        let Some((key, _)) = rows.await?.pop() else {
            return Ok(None);
        };
        let start = self.counters.unpack(&key)?;
        let start = start.first().and_then(Element::as_i64);
        Ok(Some(start.ok_or(Error::invalid_directory_layer_metadata)?))
    }

    /// Finds a window that has room, and counts this transaction in it. Returns the first number of the window.
    async fn find_window(&self, transaction: &Transaction) -> Result<i64> {
        let mut start = self.window(transaction).await?.unwrap_or(0);
        let mut moved = false;
        loop {
            let counter = self.counters.pack(&[Element::Int(start)])?;
            if moved {
                transaction.clear_range(self.counters.key(), &counter);
                transaction.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
                let recent = self.recent.pack(&[Element::Int(start)])?;
                transaction.clear_range(self.recent.key(), recent);
            }
            let one = 1i64.to_le_bytes();
            transaction.atomic_op(MutationKind::Add, &counter, one);
            let count = transaction.get(counter, true).await?;
            let count = count.as_deref().and_then(|bytes| bytes.try_into().ok());
            if count.map_or(0, i64::from_le_bytes) * 2 < window_size(start) {
                return Ok(start);
            }
            start += window_size(start);
            moved = true;
        }
    }

    /// Takes the number if it is free, and returns whether it was; `None` if the window has moved on.
    async fn take(
        &self,
        transaction: &Transaction,
        start: i64,
        candidate: i64,
    ) -> Result<Option<bool>> {
        let key = self.recent.pack(&[Element::Int(candidate)])?;
        let taken = transaction.get(&key, false);
        let latest = self.window(transaction);
        transaction.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
        transaction.set(&key, Bytes::new());
        if latest.await?.is_some_and(|latest| latest > start) {
            return Ok(None);
        }
        if taken.await?.is_some() {
            return Ok(Some(false));
        }
        transaction.add_write_conflict_key(key);
        Ok(Some(true))
    }
}
