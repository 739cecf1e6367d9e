//! The rows of a range, as a stream that reads chunk after chunk.

use crate::open_error::Result;
use crate::range::IntoReadRange;
use crate::transaction::{Kind, Reply, Transaction};
use crate::tuple::{TupleUnpack, unpack_bytes};
use futures_core::Stream;
use plinth_client::{RangeCursor, RangeOptions, RangeResult, StreamingMode};
use plinth_core::{Error, Key, KeySelector, Value};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A key and its value.
pub type Row = (Key, Value);

/// The rows of a range: a [`Stream`] of [`Row`]s, made by [`Transaction::range`].
///
/// Say first what is wanted of the range ([`limit`](Rows::limit), [`reverse`](Rows::reverse)), then take the rows: by
/// [`try_next`](Rows::try_next), all at once by [`all`](Rows::all), or by the combinators that crates such as
/// `futures-util` have for streams. Rows come in chunks, each larger than the one before, so taking a few is cheap.
///
/// A chunk sees the writes that the transaction made before the chunk was asked for.
#[must_use = "rows are read when they are awaited"]
pub struct Rows {
    transaction: Transaction,
    snapshot: bool,
    begin: KeySelector,
    end: KeySelector,
    options: RangeOptions,
    prefix_bytes: usize,
    reading: Reading,
    ready: VecDeque<Row>,
}

enum Reading {
    NotBegun,
    Between(RangeCursor),
    Asked(RangeCursor, Reply<RangeResult>),
    Ended,
}

impl Rows {
    pub(crate) fn new(
        transaction: &Transaction,
        range: impl IntoReadRange,
        snapshot: bool,
    ) -> Self {
        let (begin, end, prefix_bytes) = range.into_read_range();
        Rows {
            transaction: transaction.clone(),
            snapshot,
            begin: begin.0,
            end: end.0,
            options: RangeOptions::default(),
            prefix_bytes,
            reading: Reading::NotBegun,
            ready: VecDeque::new(),
        }
    }

    /// At most so many rows.
    pub fn limit(mut self, rows: usize) -> Self {
        if rows == 0 {
            self.reading = Reading::Ended; // for the database, 0 is no limit
        }
        self.options.limit = i32::try_from(rows).unwrap_or(i32::MAX);
        self
    }

    /// From the end backwards. A limit then takes the last rows.
    pub fn reverse(mut self) -> Self {
        self.options.reverse = true;
        self
    }

    /// How much to transfer at once. The default is a little first, then more and more.
    pub fn mode(mut self, mode: StreamingMode) -> Self {
        self.options.mode = mode;
        self
    }

    /// The keys as tuples of these types. In a range that a [`Subspace`](crate::Subspace) gave, they are the tuples
    /// behind its prefix; in every other range, the whole key is a tuple.
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// let scores = plinth::Subspace::new(("scores",));
    /// db.run(async |tr| {
    ///     tr.set(scores.pack((42, "ada")), "");
    ///     let mut best = tr.range(&scores).reverse().limit(1).tuples::<(i64, String)>();
    ///     let ((score, player), _) = best.try_next().await?.expect("there is one");
    ///     assert_eq!((score, player.as_str()), (42, "ada"));
    ///     Ok(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn tuples<T: TupleUnpack>(self) -> Tuples<T> {
        Tuples {
            rows: self,
            types: PhantomData,
        }
    }

    /// The next row; `None` at the end.
    pub async fn try_next(&mut self) -> Result<Option<Row>> {
        poll_fn(|context| self.poll_row(context)).await.transpose()
    }

    /// All rows, in as few requests as possible.
    pub async fn all(mut self) -> Result<Vec<Row>> {
        if self.options.mode == StreamingMode::Iterator {
            self.options.mode = StreamingMode::WantAll;
        }
        let mut all = Vec::new();
        while let Some(row) = self.try_next().await? {
            all.push(row);
            all.extend(self.ready.drain(..));
        }
        Ok(all)
    }

    fn poll_row(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Row>>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(row)));
            }
            match std::mem::replace(&mut self.reading, Reading::Ended) {
                Reading::Ended => return Poll::Ready(None),
                Reading::NotBegun => {
                    let (begin, end) = (self.begin.clone(), self.end.clone());
                    self.reading = Reading::Between(RangeCursor::new(begin, end, self.options));
                }
                Reading::Between(cursor) => {
                    let Some((begin, end, options)) = cursor.next_read() else {
                        continue; // it has ended
                    };
                    let snapshot = self.snapshot;
                    let asked = self.transaction.ask(Kind::Read, move |transaction| {
                        transaction.get_range(begin, end, options, snapshot)
                    });
                    self.reading = Reading::Asked(cursor, asked);
                }
                Reading::Asked(mut cursor, mut asked) => match Pin::new(&mut asked).poll(context) {
                    Poll::Pending => {
                        self.reading = Reading::Asked(cursor, asked);
                        return Poll::Pending;
                    }
                    // After an error the stream ends.
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(Ok(chunk)) => {
                        cursor.pass(&chunk);
                        self.ready = chunk.rows.into();
                        self.reading = Reading::Between(cursor);
                    }
                },
            }
        }
    }
}

impl Stream for Rows {
    type Item = Result<Row>;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Row>>> {
        self.poll_row(context)
    }
}

/// Rows whose keys are tuples of Rust types, made by [`Rows::tuples`]: a [`Stream`] of tuples and values.
///
/// # Errors
///
/// [`Error::invalid_tuple_data_type`] for a key that is no such tuple, and the errors of reads.
#[must_use = "rows are read when they are awaited"]
pub struct Tuples<T> {
    rows: Rows,
    types: PhantomData<fn() -> T>,
}

fn unpacked<T: TupleUnpack>(prefix_bytes: usize, (key, value): Row) -> Result<(T, Value)> {
    let tuple = key.get(prefix_bytes..).ok_or(Error::key_not_in_subspace)?;
    Ok((unpack_bytes(&key.slice_ref(tuple))?, value))
}

impl<T: TupleUnpack> Tuples<T> {
    /// The next tuple and value; `None` at the end.
    pub async fn try_next(&mut self) -> Result<Option<(T, Value)>> {
        let row = self.rows.try_next().await?;
        row.map(|row| unpacked(self.rows.prefix_bytes, row))
            .transpose()
    }

    /// All of them.
    pub async fn all(self) -> Result<Vec<(T, Value)>> {
        let prefix_bytes = self.rows.prefix_bytes;
        let rows = self.rows.all().await?.into_iter();
        rows.map(|row| unpacked(prefix_bytes, row)).collect()
    }
}

impl<T: TupleUnpack> Stream for Tuples<T> {
    type Item = Result<(T, Value)>;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let row = ready!(self.rows.poll_row(context));
        Poll::Ready(row.map(|row| row.and_then(|row| unpacked(self.rows.prefix_bytes, row))))
    }
}
