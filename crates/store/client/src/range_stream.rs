//! Range reads that go on: chunk after chunk, until the range or the limit ends.

use crate::range::{RangeOptions, RangeResult, StreamingMode};
use crate::transaction::Transaction;
use plinth_core::key::KeyRange;
use plinth_core::{Key, KeySelector, Result, Value};
use std::collections::VecDeque;

impl Transaction {
    /// The rows of a range, chunk after chunk.
    pub fn get_range_stream(
        &self,
        begin: KeySelector,
        end: KeySelector,
        options: RangeOptions,
        snapshot: bool,
    ) -> RangeStream {
        RangeStream::new(self.clone(), begin, end, options, snapshot)
    }

    /// All rows between two keys, up to the limit.
    pub async fn get_rows(
        &self,
        range: KeyRange,
        options: RangeOptions,
        snapshot: bool,
    ) -> Result<Vec<(Key, Value)>> {
        let (begin, end) = range.selectors();
        self.get_range_all(begin, end, options, snapshot).await
    }

    /// All rows of a range, up to the limit.
    pub async fn get_range_all(
        &self,
        begin: KeySelector,
        end: KeySelector,
        options: RangeOptions,
        snapshot: bool,
    ) -> Result<Vec<(Key, Value)>> {
        let mode = if options.mode == StreamingMode::Iterator {
            StreamingMode::WantAll
        } else {
            options.mode
        };
        let mut stream =
            self.get_range_stream(begin, end, RangeOptions { mode, ..options }, snapshot);
        let mut rows = Vec::new();
        while let Some(chunk) = stream.next_chunk().await? {
            if rows.is_empty() {
                rows = chunk;
            } else {
                rows.extend(chunk);
            }
        }
        Ok(rows)
    }
}

/// The part of a range that is still to be read, chunk after chunk.
#[derive(Clone, Debug)]
pub struct RangeCursor {
    begin: KeySelector,
    end: KeySelector,
    options: RangeOptions,
    limited: bool,
    done: bool,
}

impl RangeCursor {
    pub fn new(begin: KeySelector, end: KeySelector, options: RangeOptions) -> Self {
        RangeCursor {
            begin,
            end,
            options,
            limited: options.limit > 0,
            done: false,
        }
    }

    /// What to ask for next; `None` at the end.
    pub fn next_read(&self) -> Option<(KeySelector, KeySelector, RangeOptions)> {
        (!self.done).then(|| (self.begin.clone(), self.end.clone(), self.options))
    }

    /// Goes behind the chunk that was read.
    pub fn pass(&mut self, RangeResult { rows, more }: &RangeResult) {
        let Some((last, _)) = rows.last() else {
            self.done = true;
            return;
        };
        if self.options.reverse {
            self.end = KeySelector::first_greater_or_equal(last.clone());
        } else {
            self.begin = KeySelector::first_greater_than(last.clone());
        }
        self.options.iteration = self.options.iteration.saturating_add(1);
        if self.limited {
            let limit = self.options.limit;
            assert!(
                rows.len() <= limit as usize,
                "a chunk has {} rows, {limit} were asked for",
                rows.len(),
            );
            self.options.limit = limit - rows.len() as i32;
        }
        // Another request with a limit of 0 would have no limit.
        self.done = !more || (self.limited && self.options.limit == 0);
    }
}

/// Reads a range chunk after chunk, each larger than the one before.
pub struct RangeStream {
    transaction: Transaction,
    cursor: RangeCursor,
    snapshot: bool,
    ready: VecDeque<(Key, Value)>,
}

impl RangeStream {
    pub(crate) fn new(
        transaction: Transaction,
        begin: KeySelector,
        end: KeySelector,
        options: RangeOptions,
        snapshot: bool,
    ) -> Self {
        RangeStream {
            transaction,
            cursor: RangeCursor::new(begin, end, options),
            snapshot,
            ready: VecDeque::new(),
        }
    }

    /// The next row; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<(Key, Value)>> {
        while self.ready.is_empty() {
            match self.next_chunk().await? {
                Some(rows) => self.ready.extend(rows),
                None => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }

    /// The next rows, at least one; `None` at the end. Not to be mixed with [`RangeStream::next`].
    pub async fn next_chunk(&mut self) -> Result<Option<Vec<(Key, Value)>>> {
        let Some((begin, end, options)) = self.cursor.next_read() else {
            return Ok(None);
        };
        let read = self
            .transaction
            .get_range(begin, end, options, self.snapshot);
        let chunk = read.await?;
        self.cursor.pass(&chunk);
        Ok((!chunk.rows.is_empty()).then_some(chunk.rows))
    }
}
