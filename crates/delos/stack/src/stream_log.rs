//! A log in an append stream of the store, for services of a cluster that has a database.
//!
//! ```text
//!   stream   … entry 41 | entry 42 part 1, part 2 | entry 43 …     at versionstamps, in the order of the commits
//!   rows     delos/<name>/floor    position of the first entry that is kept, and where it is in the stream
//!            delos/<name>/sealed   there if the log takes no more
//! ```
//! Appends of different replicas never conflict: an entry has no number of its own. Each replica counts the entries
//! of the stream, which are the same for all. A trim writes the count down, in the transaction that removes entries.
//! Each append has a read conflict with the row `sealed`: no append commits behind a seal.
//!
//! A part is `appender u64 | number u64 | is last u8 | bytes`. An appender finds its own entries in the stream while
//! it counts. So it also learns what became of a commit whose outcome nobody told.
//!
//! Promises: those of [`SharedLog`]. A position is told when its entry is durable in the store.
//! What may never happen: two replicas that count differently; an entry twice because a commit was tried again.

mod count;
#[cfg(test)]
mod tests;

use crate::log::{LogError, LogPos, SharedLog, Tail};
use bytes::{BufMut, Bytes, BytesMut};
use count::{Counted, FLOOR_LEN};
use plinth_client::{Database, Position, Stream, StreamOptions, Transaction};
use plinth_core::streams::ENTRY_BYTES_MAX as PART_BYTES_MAX;
use plinth_core::{Error, Version};
use plinth_runtime::sync::{Notify, OneshotSender, Permits, oneshot};
use plinth_runtime::{
    Boxed, Duration, Instant, Task, now, probe, random, sleep, spawn, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Longest entry: it is written in one transaction.
pub const STREAM_ENTRY_BYTES_MAX: usize = 9_000_000;
/// `appender | number | is last`.
const HEAD_LEN: usize = 17;
/// A transaction with so many bytes takes no more entries.
const BATCH_BYTES: usize = 1 << 20;
/// Parts in a transaction. The store allows more.
const BATCH_PARTS: usize = 500;
/// Transactions of one replica that are under way at the same time.
const APPENDERS: usize = 2;
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// For how long the version of the last commit is good enough to commit at. The store remembers five seconds.
const VERSION_KEPT: Duration = Duration::from_secs(1);

/// An entry that waits for its transaction.
struct Queued {
    number: u64,
    entry: Bytes,
}

impl Queued {
    fn parts(&self) -> usize {
        self.entry.len() / (PART_BYTES_MAX - HEAD_LEN) + 1
    }
}

#[derive(Default)]
struct Appends {
    queue: VecDeque<Queued>,
    next_number: u64,
    /// Entries that were not found in the stream yet, by their numbers.
    waiting: BTreeMap<u64, OneshotSender<Result<LogPos, LogError>>>,
}

struct Inner {
    database: Database,
    stream: Stream,
    sealed_row: Bytes,
    floor_row: Bytes,
    /// Names this life of the replica.
    appender: u64,
    appends: RefCell<Appends>,
    wake: Rc<Notify>,
    counted: RefCell<Counted>,
    /// One at a time reads the stream on.
    counting: Permits,
    /// A version at which the log was not sealed, and when that was heard.
    open_at: Cell<Option<(Version, Instant)>>,
}

/// See the module.
pub struct StreamLog {
    inner: Rc<Inner>,
    _appenders: Vec<Task<()>>,
}

fn row(name: &str, what: &str) -> Bytes {
    format!("delos/{name}/{what}").into()
}

impl StreamLog {
    /// Opens the log of this name, or makes it. The name may have no NUL, and at most 200 bytes.
    ///
    /// # Errors
    /// [`Error::invalid_stream`] for a bad name; the database cannot be read or written.
    pub fn open<'a>(database: &'a Database, name: &'a str) -> Boxed<'a, Result<StreamLog, Error>> {
        Box::pin(async move {
            let of_stream = format!("delos/{name}");
            let made = database.run(async |transaction| {
                let options = StreamOptions::append().keep_all();
                match transaction.open_stream(&of_stream).await {
                    Err(Error::stream_not_found) => {
                        transaction.create_stream(&of_stream, &options).await?;
                        Ok(None)
                    }
                    found => found.map(Some),
                }
            });
            let stream = match made.await? {
                Some(stream) => stream,
                None => {
                    let opened = database.run(async |tr| tr.open_stream(&of_stream).await);
                    opened.await?
                }
            };
            let floor_row = row(name, "floor");
            let floor = database.run(async |transaction| transaction.get(&floor_row, true).await);
            let mut counted = Counted::new();
            if let Some(floor) = floor.await? {
                counted.take_floor(count::parse_floor(&floor)?);
            }
            let inner = Rc::new(Inner {
                database: database.clone(),
                stream,
                sealed_row: row(name, "sealed"),
                floor_row,
                appender: random::u64(),
                appends: RefCell::default(),
                wake: Rc::new(Notify::new()),
                counted: RefCell::new(counted),
                counting: Permits::new(1),
                open_at: Cell::new(None),
            });
            let appender = |_| spawn("stream log", inner.clone().append_for_ever());
            Ok(StreamLog {
                _appenders: (0..APPENDERS).map(appender).collect(),
                inner,
            })
        })
    }
}

/// What a transaction of appends came to.
enum Sent {
    At(Version),
    Sealed,
}

impl Inner {
    async fn append_for_ever(self: Rc<Self>) {
        loop {
            let batch = self.take_batch();
            if batch.is_empty() {
                self.wake.notified().await;
                continue;
            }
            if !self.appends.borrow().queue.is_empty() {
                self.wake.notify_one();
            }
            self.append_batch(batch).await;
        }
    }

    fn take_batch(&self) -> Vec<Queued> {
        let mut appends = self.appends.borrow_mut();
        let (mut batch, mut bytes, mut parts) = (Vec::new(), 0, 0);
        while let Some(next) = appends.queue.front() {
            bytes += next.entry.len();
            parts += next.parts();
            if !batch.is_empty() && (bytes > BATCH_BYTES || parts > BATCH_PARTS) {
                break;
            }
            batch.extend(appends.queue.pop_front());
        }
        batch
    }

    /// Tries until each entry of the batch is in the stream, or never will be.
    async fn append_batch(&self, mut batch: Vec<Queued>) {
        while !batch.is_empty() {
            let gaps = self.counted.borrow().gaps;
            match self.send(&batch).await {
                Ok(Sent::At(version)) => {
                    // Who has sealed the log may have the same version, behind this commit.
                    self.open_at.set(Some((version - 1, now())));
                    self.count_through(Some(version)).await;
                    // All were found, unless others have removed them already.
                    return self.fail(batch, LogError::Unknown);
                }
                Ok(Sent::Sealed) => return self.fail(batch, LogError::Sealed),
                Err(Error::commit_unknown_result) => {
                    probe!("delos_append_unknown");
                    self.open_at.set(None);
                    // It is not under way any more, so it is found now or never.
                    self.count_through(None).await;
                    if self.counted.borrow().gaps > gaps {
                        // It may have been among what was removed.
                        return self.fail(batch, LogError::Unknown);
                    }
                    let appends = self.appends.borrow();
                    batch.retain(|queued| appends.waiting.contains_key(&queued.number));
                }
                Err(error @ (Error::stream_not_found | Error::invalid_stream)) => {
                    return self.fail(batch, LogError::Failed(error));
                }
                Err(error) => {
                    self.open_at.set(None);
                    if !matches!(error, Error::not_committed | Error::transaction_too_old) {
                        trace_warn!("DelosAppendFailed", "error" => error);
                        sleep(RETRY_PAUSE).await;
                    }
                }
            }
        }
    }

    fn fail(&self, batch: Vec<Queued>, error: LogError) {
        let mut appends = self.appends.borrow_mut();
        for queued in batch {
            if let Some(reply) = appends.waiting.remove(&queued.number) {
                let _ = reply.send(Err(error)); // its proposer may wait no longer
            }
        }
    }

    async fn send(&self, batch: &[Queued]) -> Result<Sent, Error> {
        let transaction = self.database.create_transaction();
        let known = self.open_at.get();
        match known.filter(|(_, heard)| heard.elapsed() < VERSION_KEPT) {
            Some((version, _)) => transaction.set_read_version(version),
            None => {
                self.check_that_it_is_there(&transaction).await?;
                if transaction.get(&self.sealed_row, true).await?.is_some() {
                    return Ok(Sent::Sealed);
                }
            }
        }
        transaction.add_read_conflict_key(&self.sealed_row);
        for queued in batch {
            self.put(&transaction, queued)?;
        }
        transaction.commit().await?;
        Ok(Sent::At(transaction.get_committed_version()))
    }

    async fn check_that_it_is_there(&self, transaction: &Transaction) -> Result<(), Error> {
        let found = transaction.open_stream(self.stream.name()).await?;
        match found.id() == self.stream.id() {
            true => Ok(()),
            false => Err(Error::stream_not_found),
        }
    }

    fn put(&self, transaction: &Transaction, queued: &Queued) -> Result<(), Error> {
        let mut rest = queued.entry.clone();
        loop {
            let piece = rest.split_to(rest.len().min(PART_BYTES_MAX - HEAD_LEN));
            let mut part = BytesMut::with_capacity(HEAD_LEN + piece.len());
            part.put_u64_le(self.appender);
            part.put_u64_le(queued.number);
            part.put_u8(u8::from(rest.is_empty()));
            part.put_slice(&piece);
            self.stream.append_followed(transaction, part)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// One transaction, tried again while that may help.
    async fn write(
        &self,
        body: impl AsyncFnMut(Transaction) -> Result<(), Error>,
    ) -> LogResult<()> {
        let written = self.database.run(body).await;
        written.map_err(LogError::Failed)
    }
}

type LogResult<T> = Result<T, LogError>;

impl SharedLog for StreamLog {
    async fn append(&self, entry: Bytes) -> LogResult<LogPos> {
        if entry.len() > STREAM_ENTRY_BYTES_MAX {
            return Err(LogError::TooLong(entry.len()));
        }
        let receiver = {
            let mut appends = self.inner.appends.borrow_mut();
            let number = appends.next_number;
            appends.next_number += 1;
            let (sender, receiver) = oneshot();
            appends.waiting.insert(number, sender);
            appends.queue.push_back(Queued { number, entry });
            receiver
        };
        self.inner.wake.notify_one();
        receiver.await.unwrap_or(Err(LogError::Unknown))
    }

    async fn check_tail(&self) -> LogResult<Tail> {
        self.inner
            .count_once(None)
            .await
            .map_err(LogError::Failed)?;
        Ok(self.inner.counted.borrow().tail())
    }

    async fn read_next(&self, from: LogPos, bytes_max: usize) -> LogResult<Vec<(LogPos, Bytes)>> {
        let inner = &self.inner;
        if from >= inner.counted.borrow().next {
            inner.count_once(None).await.map_err(LogError::Failed)?;
        }
        if let Some(entries) = inner.counted.borrow().recent(from, bytes_max)? {
            return Ok(entries);
        }
        inner.read_old(from, bytes_max).await
    }

    async fn prefix_trim(&self, before: LogPos) -> LogResult<()> {
        let inner = &self.inner;
        let Some((pos, at)) = inner.counted.borrow().mark_before(before) else {
            return Ok(());
        };
        let trimmed = inner.write(async |transaction| {
            let floor = transaction.get(&inner.floor_row, false).await?;
            let floor = floor.as_deref().map(count::parse_floor).transpose()?;
            if floor.is_some_and(|(theirs, _)| theirs >= pos) {
                return Ok(()); // another replica was faster
            }
            let mut row = [0; FLOOR_LEN];
            count::put_floor(&mut row, pos, at);
            transaction.set(&inner.floor_row, row);
            inner.stream.trim(&transaction, at).await
        });
        trimmed.await?;
        inner.counted.borrow_mut().forget_before(pos);
        Ok(())
    }

    async fn seal(&self) -> LogResult<Tail> {
        let inner = &self.inner;
        let sealed = inner.write(async |transaction| {
            if transaction.get(&inner.sealed_row, false).await?.is_none() {
                transaction.set(&inner.sealed_row, "");
            }
            Ok(())
        });
        sealed.await?;
        self.check_tail().await
    }
}

/// The position that a row says, and where that is in the stream.
type Floor = (LogPos, Position);
