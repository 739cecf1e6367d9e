//! A transaction's handle: it gathers operations, sends them to the transaction's thread together, and takes the
//! answers.
//!
//! Operations go into a buffer, in the order of their calls. The buffer is sent when somebody waits for an answer, or
//! when it is full. So a transaction that starts ten reads and awaits them crosses to the thread once, and so does one
//! that writes ten keys and commits.

use crate::group::{Filler, Group, group};
use crate::open_error::Result;
use crate::slot::{Answer, pair};
use crate::threads::{self, Home, Thread};
use bytes::Bytes;
use plinth_client::Transaction as Local;
use plinth_core::{Error, Key, MutationKind, Value};
use plinth_runtime::Instant;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

/// A full buffer is sent.
const OPERATIONS_MAX: usize = 1024;
const BYTES_MAX: usize = 256 << 10;
/// Reads that one task of the thread waits for.
const READS_A_TASK: usize = 64;
const NO_VERSION: i64 = -1;

/// A transaction: one snapshot to read, and writes that happen all at once or not at all.
///
/// It is a handle: clones are the same transaction, and tasks on any thread can use it at once. Its operations take
/// `&self`. Those that answer return a [`Reply`], which is a future.
///
/// **Reading.** Reads see the snapshot with the transaction's own earlier writes on top. A read is sent when it, or
/// any other operation of the transaction, is first awaited: start several reads, then await them, and they travel
/// together.
///
/// **Writing.** A write returns nothing and waits for nothing. The next read or the commit reports its error, for
/// example a key that is too long.
///
/// **Ending.** [`Database::run`](crate::Database::run) commits and retries. Whoever makes a transaction by
/// [`create_transaction`](crate::Database::create_transaction) does both: [`commit`](Transaction::commit), and after
/// an error [`on_error`](Transaction::on_error). A transaction that is dropped without a commit has never happened.
#[derive(Clone)]
pub struct Transaction {
    inner: Arc<Inner>,
}

struct Inner {
    /// The database lives as long as its transactions.
    home: Arc<Home>,
    thread: Thread,
    number: u64,
    buffer: Mutex<Buffer>,
    committed_version: AtomicI64,
    answered: Answered,
}

/// How many reads of the present attempt have succeeded and were awaited.
struct Answered(AtomicU64);

impl Answered {
    /// The lower half counts, the upper half is that of the attempt's number.
    const COUNT_BITS: u32 = 32;

    fn begin(&self, attempt: u64) {
        self.0.store(attempt << Self::COUNT_BITS, Ordering::Release);
    }

    fn add(&self, attempt: u64) {
        let of = |value: u64| value >> Self::COUNT_BITS == attempt & u64::from(u32::MAX);
        let one_more = |value: u64| of(value).then(|| value + 1);
        // A read of a former attempt does not count.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire) & u64::from(u32::MAX)
    }
}

struct Buffer {
    operations: Vec<Operation>,
    /// Their keys and values, one behind the other.
    bytes: Vec<u8>,
    /// Results of the gets among them.
    gets: Option<(Filler<Option<Value>>, Group<Option<Value>>)>,
    /// When the transaction was made; nothing once the thread knows it.
    new_at: Option<Instant>,
    attempt: Attempt,
}

/// What the handle knows of the present attempt.
#[derive(Clone, Copy)]
struct Attempt {
    number: u64,
    /// It has done nothing but read.
    only_reads: bool,
    reads: u64,
    /// The last error that the application was given.
    error: Option<Error>,
}

impl Attempt {
    fn of(number: u64) -> Self {
        Attempt {
            number,
            only_reads: true,
            reads: 0,
            error: None,
        }
    }
}

type Act = Box<dyn FnOnce(&Local) + Send>;

enum Operation {
    /// The length of its key, whether it is a snapshot read, and the place of its result.
    Get(usize, bool, usize),
    /// The lengths of its key and value, or of the ends of its range.
    Write(MutationKind, usize, usize),
    Clear(usize),
    Act(Act),
    /// Nobody wants the answer of this work any more.
    Stop(u64),
    Forget,
}

/// A buffer under way to its thread.
struct Batch {
    transaction: u64,
    database: u64,
    new_at: Option<Instant>,
    operations: Vec<Operation>,
    bytes: Vec<u8>,
    gets: Option<Arc<Filler<Option<Value>>>>,
}

impl Batch {
    /// Does everything, in order. Runs on the transaction's thread.
    fn run(self) {
        threads::forget_those_that_are_over();
        let Some(transaction) = threads::transaction(self.transaction, self.database, self.new_at)
        else {
            return; // the database is closed; the promises answer when they are dropped
        };
        let mut reads = Vec::new();
        let mut bytes = Bytes::from(self.bytes);
        let mut take = |length: usize| bytes.split_to(length);
        for operation in self.operations {
            if let Operation::Get(length, snapshot, place) = operation {
                reads.push((place, take(length), snapshot));
                continue;
            }
            // Reads see what was written before them, and nothing of what comes now.
            read(&transaction, &mut reads, &self.gets);
            match operation {
                Operation::Get(..) => unreachable!("it was taken above"),
                Operation::Write(kind, first, second) => {
                    let (first, second) = (take(first), take(second));
                    match kind {
                        MutationKind::Set => transaction.set(&first[..], &second[..]),
                        MutationKind::ClearRange => {
                            transaction.clear_range(&first[..], &second[..])
                        }
                        atomic => transaction.atomic_op(atomic, &first[..], &second[..]),
                    }
                }
                Operation::Clear(length) => transaction.clear(&take(length)[..]),
                Operation::Act(act) => act(&transaction),
                Operation::Stop(work) => threads::stop(work),
                Operation::Forget => threads::forget_transaction(self.transaction),
            }
        }
        read(&transaction, &mut reads, &self.gets);
    }
}

/// Reads of one batch: the place of each, its key, and whether it is a snapshot read.
type Reads = Vec<(usize, Key, bool)>;

/// Starts the reads, and fills their places as they end. Leaves none.
fn read(transaction: &Local, reads: &mut Reads, filler: &Option<Arc<Filler<Option<Value>>>>) {
    for some in reads.chunks(READS_A_TASK) {
        let places = some[0].0..=some[some.len() - 1].0;
        let filler = filler.clone();
        let filler = filler.expect("a batch with gets has their group");
        let filled = filler.clone();
        let reading = transaction.get_together(some.iter().cloned(), move |results| {
            let mut filling = filled.filling();
            for (place, result) in results.drain(..) {
                filling.fill(place, result);
            }
        });
        let reading = async move {
            if let Err(error) = reading.await {
                filler.filling().fail(places, error);
            }
        };
        plinth_runtime::spawn("reads", reading).detach();
    }
    reads.clear();
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        // No code under the lock can panic.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the buffer, if there is something in it. Under its lock, so that batches arrive in their order.
    fn send(&self, buffer: &mut Buffer) {
        if buffer.operations.is_empty() {
            return;
        }
        let batch = Batch {
            transaction: self.number,
            database: self.home.number,
            new_at: buffer.new_at.take(),
            operations: std::mem::take(&mut buffer.operations),
            bytes: std::mem::take(&mut buffer.bytes),
            gets: buffer.gets.take().map(|(filler, _)| filler.send()),
        };
        self.thread.post(move || batch.run());
    }

    fn push(&self, buffer: &mut Buffer, operation: Operation) {
        buffer.operations.push(operation);
        if buffer.operations.len() >= OPERATIONS_MAX || buffer.bytes.len() >= BYTES_MAX {
            self.send(buffer);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let buffer = self
            .buffer
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let mut buffer = std::mem::replace(buffer, Buffer::of(0));
        // What nobody has waited for has no effect any more.
        let stops = |operation: &Operation| matches!(operation, Operation::Stop(_));
        buffer.operations.retain(stops);
        buffer.bytes.clear();
        if buffer.new_at.is_none() && buffer.operations.is_empty() {
            self.thread.forget_soon(self.number);
        } else if buffer.new_at.is_none() {
            buffer.operations.push(Operation::Forget);
            self.send(&mut buffer);
        }
    }
}

impl Buffer {
    fn of(attempt: u64) -> Self {
        Buffer {
            operations: Vec::new(),
            bytes: Vec::new(),
            gets: None,
            new_at: Some(plinth_runtime::now()),
            attempt: Attempt::of(attempt),
        }
    }
}

impl Transaction {
    pub(crate) fn new(home: &Arc<Home>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Transaction {
            inner: Arc::new(Inner {
                thread: home.next().clone(),
                home: home.clone(),
                number: NEXT.fetch_add(1, Ordering::Relaxed),
                buffer: Mutex::new(Buffer::of(0)),
                committed_version: AtomicI64::new(NO_VERSION),
                answered: Answered(AtomicU64::new(0)),
            }),
        }
    }

    pub(crate) fn get_value(&self, key: &[u8], snapshot: bool) -> Reply<Option<Value>> {
        let mut buffer = self.inner.lock();
        buffer.bytes.extend_from_slice(key);
        buffer.attempt.reads += 1;
        let attempt = buffer.attempt.number;
        let (_, gets) = buffer.gets.get_or_insert_with(group);
        let (gets, place) = (gets.clone(), gets.add());
        let get = Operation::Get(key.len(), snapshot, place);
        self.inner.push(&mut buffer, get);
        drop(buffer);
        Reply::new(self, Source::Of(gets, place), Kind::Read, attempt)
    }

    pub(crate) fn write(&self, kind: MutationKind, first: &[u8], second: &[u8]) {
        let mut buffer = self.inner.lock();
        buffer.attempt.only_reads = false;
        buffer.bytes.extend_from_slice(first);
        buffer.bytes.extend_from_slice(second);
        let write = Operation::Write(kind, first.len(), second.len());
        self.inner.push(&mut buffer, write);
    }

    pub(crate) fn clear_key(&self, key: &[u8]) {
        let mut buffer = self.inner.lock();
        buffer.attempt.only_reads = false;
        buffer.bytes.extend_from_slice(key);
        self.inner.push(&mut buffer, Operation::Clear(key.len()));
    }

    /// For calls without an answer.
    pub(crate) fn act(&self, act: impl FnOnce(&Local) + Send + 'static) {
        let mut buffer = self.inner.lock();
        buffer.attempt.only_reads = false;
        self.inner.push(&mut buffer, Operation::Act(Box::new(act)));
    }

    /// For calls with an answer.
    pub(crate) fn ask<T: Send + 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        kind: Kind,
        start: impl FnOnce(&Local) -> F + Send + 'static,
    ) -> Reply<T> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (promise, answer) = pair();
        let act = move |transaction: &Local| {
            let work = start(transaction);
            match kind {
                Kind::Read => threads::fill(promise, work),
                Kind::Other | Kind::Apart => threads::fill_until_stopped(number, promise, work),
            }
        };
        let mut buffer = self.inner.lock();
        match kind {
            Kind::Read => buffer.attempt.reads += 1,
            Kind::Other | Kind::Apart => buffer.attempt.only_reads = false,
        }
        let attempt = buffer.attempt.number;
        self.inner.push(&mut buffer, Operation::Act(Box::new(act)));
        drop(buffer);
        let mut reply = Reply::new(self, Source::Own(answer), kind, attempt);
        reply.work = (kind != Kind::Read).then(|| (self.inner.thread.clone(), number));
        reply
    }

    /// Makes the writes happen, or fails.
    ///
    /// The commit waits for the reads that were started before it. Do not use the transaction while it commits. If it
    /// has only read, nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::not_committed`]: another transaction has changed what this one read.
    /// [`Error::commit_unknown_result`]: the answer was lost, and the transaction may have committed; see
    /// [`Database::run`](crate::Database::run). Also errors of writes, and those of reads that failed. Hand the error
    /// to [`on_error`](Transaction::on_error).
    pub fn commit(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let mut buffer = self.inner.lock();
        let Attempt {
            only_reads,
            reads,
            error,
            ..
        } = buffer.attempt;
        // Every read has succeeded, and there is nothing that the commit could find or change. The thread hears of it
        // with the next batch, if there is one.
        let is_done = only_reads && error.is_none() && reads == self.inner.answered.count();
        if is_done {
            let commit = |transaction: &Local| threads::run_to_end(transaction.commit());
            let commit = Operation::Act(Box::new(commit));
            self.inner.push(&mut buffer, commit);
            buffer.attempt.only_reads = false;
        }
        drop(buffer);
        let transaction = self.clone();
        let asked = (!is_done).then(|| {
            self.ask(Kind::Other, |transaction| {
                let (committing, transaction) = (transaction.commit(), transaction.clone());
                async move {
                    committing.await?;
                    Ok(transaction.get_committed_version())
                }
            })
        });
        async move {
            if let Some(asked) = asked {
                let version = asked.await?;
                let known = &transaction.inner.committed_version;
                known.store(version, Ordering::Release);
            }
            Ok(())
        }
    }

    /// The version of the commit; `None` if the transaction has not committed or wrote nothing.
    pub fn committed_version(&self) -> Option<i64> {
        let version = self.inner.committed_version.load(Ordering::Acquire);
        (version != NO_VERSION).then_some(version)
    }

    /// Waits as long as `error` needs, and prepares the transaction for another attempt, which starts from nothing.
    ///
    /// # Errors
    ///
    /// The error itself, if another attempt would not help or the retry limit is reached. The transaction is then
    /// cancelled.
    ///
    /// ```no_run
    /// # async fn example(db: plinth::Database) -> plinth::Result<()> {
    /// let tr = db.create_transaction();
    /// loop {
    ///     tr.set("hello", "world");
    ///     match tr.commit().await {
    ///         Ok(()) => break,
    ///         Err(error) => tr.on_error(error).await?,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_error(&self, error: Error) -> impl Future<Output = Result<()>> + Send + use<> {
        let asked = self.ask(Kind::Other, move |transaction| transaction.on_error(error));
        self.begin_attempt();
        asked
    }

    /// Makes the transaction as new, its options included.
    pub fn reset(&self) {
        let now = plinth_runtime::now();
        self.act(move |transaction| transaction.reset_at(now));
        self.begin_attempt();
    }

    /// Makes every operation under way and every later one fail with [`Error::transaction_cancelled`], until
    /// [`reset`](Transaction::reset).
    pub fn cancel(&self) {
        self.act(Local::cancel);
        self.inner.send(&mut self.inner.lock());
    }

    fn begin_attempt(&self) {
        let mut buffer = self.inner.lock();
        buffer.attempt = Attempt::of(buffer.attempt.number + 1);
        self.inner.answered.begin(buffer.attempt.number);
        drop(buffer);
        let known = &self.inner.committed_version;
        known.store(NO_VERSION, Ordering::Release);
    }

    /// The last error that this attempt has given to the application.
    pub(crate) fn last_error(&self) -> Option<Error> {
        self.inner.lock().attempt.error
    }
}

/// How an operation concerns its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only reads.
    Read,
    Other,
    /// It outlives the transaction.
    Apart,
}

/// The answer to an operation: a future that can be awaited on any thread, by any executor.
///
/// The operation is sent when the reply, or any other one of its transaction, is first awaited. A reply keeps its
/// transaction alive until the answer is there. Dropping it gives the answer up; a read still counts for the conflicts
/// of its transaction.
///
/// # Errors
///
/// Each [`Error`] has a name, a number and a text, all of them FoundationDB's. Pass them to [`Transaction::on_error`],
/// or out of the body of [`Database::run`](crate::Database::run) with `?`.
#[must_use = "an operation is sent when it is awaited"]
pub struct Reply<T> {
    source: Source<T>,
    /// `None` when it is not needed any more.
    transaction: Option<Transaction>,
    kind: Kind,
    attempt: u64,
    is_sent: bool,
    /// Work to stop when nobody wants the answer any more: its thread and its number.
    work: Option<(Thread, u64)>,
}

/// Where the answer comes.
enum Source<T> {
    Own(Answer<T>),
    /// In a place of a group.
    Of(Group<T>, usize),
}

impl<T> Reply<T> {
    fn new(transaction: &Transaction, source: Source<T>, kind: Kind, attempt: u64) -> Self {
        Reply {
            source,
            transaction: Some(transaction.clone()),
            kind,
            attempt,
            is_sent: false,
            work: None,
        }
    }

    fn note(&self, transaction: &Transaction, result: &Result<T>) {
        match result {
            Ok(_) if self.kind == Kind::Read => transaction.inner.answered.add(self.attempt),
            Ok(_) => {}
            Err(error) => {
                let mut buffer = transaction.inner.lock();
                if buffer.attempt.number == self.attempt {
                    buffer.attempt.error = Some(*error);
                }
            }
        }
    }

    fn poll_source(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.source {
            Source::Own(answer) => Pin::new(answer).poll(context),
            Source::Of(group, place) => {
                let (result, is_sent) = group.poll(*place, context);
                self.is_sent |= is_sent;
                result
            }
        }
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let polled = self.poll_source(context);
        if !std::mem::replace(&mut self.is_sent, true)
            && let Some(transaction) = &self.transaction
        {
            transaction.inner.send(&mut transaction.inner.lock());
            if self.kind == Kind::Apart {
                self.transaction = None;
            }
        }
        let result = ready!(polled);
        self.work = None;
        if let Some(transaction) = self.transaction.take() {
            self.note(&transaction, &result);
        }
        Poll::Ready(result)
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let Some((thread, number)) = self.work.take() else {
            return;
        };
        match &self.transaction {
            // The operation may still be in the buffer.
            Some(transaction) if !self.is_sent => {
                let mut buffer = transaction.inner.lock();
                transaction.inner.push(&mut buffer, Operation::Stop(number));
            }
            _ => thread.post(move || threads::stop(number)),
        }
    }
}
