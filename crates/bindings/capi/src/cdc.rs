//! FoundationDB 8.0's change data capture (`fdb_*_cdc_*`) over Plinth's streams.
//!
//! A stream of that interface is a changes stream that keeps all until it is acknowledged. Its
//! acknowledged position is that of the consumer [`CONSUMER`], so `plinth stream list` shows how far it is. Errors are
//! FoundationDB's: `client_invalid_operation` for names, ranges, positions and streams that are wrong or gone.

use crate::arguments::{Code, both, bytes_at, functions};
use crate::captured::{Changes, StreamEntry, Streams, VersionEntry};
use crate::connection::Connection;
use crate::database::Database;
use crate::entries::{KeyEntry, RangeEntry};
use crate::future::Future;
use crate::payload::Payload;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_client::{Database as Local, Position, Stream, StreamInfo, StreamKind, StreamOptions};
use plinth_core::key::KeyRange;
use plinth_core::streams::canonical_ranges;
use plinth_core::{Error, Result, Version};
use plinth_runtime::Duration;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CONSUMER: &str = "cdc";
const RANGES_MAX: usize = 10_000;
/// Version of a consumer that has consumed nothing.
const NOTHING: Version = -1;
/// Bytes of changes in one reply; a version comes whole.
const REPLY_BYTES: usize = 1 << 20;
/// A call that waits for changes ends after this time without any.
const PATIENCE: Duration = Duration::from_secs(5);

/// `FDBCdcConsumer`.
pub struct Consumer {
    connection: Arc<Connection>,
    cursor: Mutex<Cursor>,
}

#[derive(Clone, Copy)]
struct Cursor {
    stream: u64,
    consumed: Version,
    /// A call is under way; there may be only one.
    busy: bool,
}

/// Ends the call that is under way.
struct Call(Arc<Consumer>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.lock().busy = false;
    }
}

impl Consumer {
    fn new(connection: &Arc<Connection>, stream: u64, consumed: Version) -> Arc<Self> {
        let cursor = Cursor {
            stream,
            consumed,
            busy: false,
        };
        Arc::new(Consumer {
            connection: connection.clone(),
            cursor: Mutex::new(cursor),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(self: &Arc<Self>) -> Result<(Call, Cursor)> {
        let mut cursor = self.lock();
        if cursor.busy {
            return Err(Error::client_invalid_operation);
        }
        cursor.busy = true;
        Ok((Call(self.clone()), *cursor))
    }
}

/// Errors as FoundationDB gives them.
fn as_theirs(error: Error) -> Error {
    match error {
        Error::stream_not_found
        | Error::stream_already_exists
        | Error::stream_too_old
        | Error::invalid_stream
        | Error::too_many_streams => Error::client_invalid_operation,
        error => error,
    }
}

// ---- what the calls do, on a loop ----

fn is_captured(info: &StreamInfo) -> bool {
    info.record.kind == StreamKind::Changes
}

/// Makes the stream, or finds it if it is there with these ranges.
async fn register(database: Local, (name, ranges): (Bytes, Vec<KeyRange>)) -> Result<u64> {
    let ranges = canonical_ranges(ranges).ok_or(Error::client_invalid_operation)?;
    let options = StreamOptions::changes(ranges.clone()).keep_all();
    let made = database.run(async |tr| {
        let existing = tr.list_streams().await?;
        if let Some(info) = existing.iter().find(|info| info.name == name) {
            let same = is_captured(info) && info.record.ranges == ranges;
            return same
                .then_some(info.record.id)
                .ok_or(Error::stream_already_exists);
        }
        tr.create_stream(&name, &options).await?;
        Ok(tr.open_stream(&name).await?.id())
    });
    made.await.map_err(as_theirs)
}

async fn remove(database: Local, name: Bytes) -> Result<()> {
    let removed = database.run(async |tr| match tr.drop_stream(&name).await {
        Err(Error::stream_not_found) => Ok(()),
        other => other,
    });
    removed.await.map_err(as_theirs)
}

/// All streams that this interface can tell of, with the version from which on each is needed.
async fn list(database: Local, _: ()) -> Result<Vec<(StreamInfo, Version)>> {
    let listed = database.run(async |tr| {
        let mut streams = Vec::new();
        for info in tr.list_streams().await?.into_iter().filter(is_captured) {
            let stream = tr.open_stream(&info.name).await?;
            let at = stream.position(&tr, CONSUMER).await?.unwrap_or_default();
            let floor = stream.floor(&tr).await?;
            streams.push((info, at.max(floor).version));
        }
        Ok(streams)
    });
    listed.await.map_err(as_theirs)
}

async fn find(database: Local, name: Bytes) -> Result<u64> {
    let found = database.run(async |tr| Ok(tr.open_stream(&name).await?.id()));
    found.await.map_err(as_theirs)
}

async fn opened(database: &Local, id: u64) -> Result<Stream> {
    database
        .run(async |tr| tr.open_stream_by_id(id).await)
        .await
}

async fn consume(database: Local, (call, cursor): (Call, Cursor)) -> Result<Changes> {
    let consumed = async {
        let stream = opened(&database, cursor.stream).await?;
        let read = async || {
            database
                .run(async |tr| {
                    stream
                        .read_versions(&tr, cursor.consumed, REPLY_BYTES)
                        .await
                })
                .await
        };
        let first = read().await?;
        if !first.0.is_empty() {
            return Ok(first);
        }
        let news = database.wait_for_stream(&stream, Position::of_version(first.1 + 1));
        match plinth_runtime::timeout(PATIENCE, news).await {
            Some(Err(error)) => Err(error),
            Some(Ok(())) | None => read().await,
        }
    };
    let (versions, through) = consumed.await.map_err(as_theirs)?;
    let mut cursor = call.0.lock();
    cursor.consumed = cursor.consumed.max(through);
    Ok(Changes::of((versions, through)))
}

async fn acknowledge(database: Local, (_call, cursor): (Call, Cursor)) -> Result<()> {
    if cursor.consumed < 0 {
        return Err(Error::client_invalid_operation);
    }
    let next = Position::of_version(cursor.consumed + 1);
    let acknowledged = database.run(async |tr| {
        let stream = tr.open_stream_by_id(cursor.stream).await?;
        let before = stream.position(&tr, CONSUMER).await?;
        if next.version > tr.get_read_version().await? + 1 {
            return Err(Error::client_invalid_operation); // nobody has consumed the future
        }
        stream
            .set_position(&tr, CONSUMER, next.max(before.unwrap_or_default()))
            .await
    });
    acknowledged.await.map_err(as_theirs)
}

// ---- the functions ----

impl Database {
    /// A transaction that only leads to the database.
    fn apart(&self) -> Transaction {
        Transaction::new(&self.connection)
    }
}

/// Copies a caller's ranges.
///
/// # Safety
/// The header's contract: `count` ranges, whose pointers and lengths are true.
unsafe fn ranges_at(ranges: *const RangeEntry, count: c_int) -> Result<Vec<KeyRange>> {
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= RANGES_MAX);
    let count = count.ok_or(Error::client_invalid_operation)?;
    if ranges.is_null() {
        return Err(Error::client_invalid_operation);
    }
    // SAFETY: the caller's contract.
    let one = |at| unsafe {
        let range = ranges.add(at).read_unaligned();
        let key = |entry: KeyEntry| bytes_at(entry.key, entry.key_length);
        Ok(KeyRange::new(key(range.begin)?, key(range.end)?))
    };
    (0..count).map(one).collect()
}

functions! {
    fn fdb_database_register_cdc_stream(
        database: &Database, [name, length], ranges: *const RangeEntry, count: c_int
    ) -> *mut Future {
        // SAFETY: the header's contract.
        let ranges = unsafe { ranges_at(ranges, count) };
        database.apart().ask_database(both(name, ranges), register, Payload::Uint64)
    }

    /// Every stream is ordered over all of its ranges, so the split points make no difference to a reader.
    fn fdb_database_register_cdc_ordered_stream(
        database: &Database, [name, length], ranges: *const RangeEntry, count: c_int,
        _split_points: *const KeyEntry, _split_count: c_int
    ) -> *mut Future {
        // SAFETY: the header's contract.
        let ranges = unsafe { ranges_at(ranges, count) };
        database.apart().ask_database(both(name, ranges), register, Payload::Uint64)
    }

    fn fdb_database_remove_cdc_stream(database: &Database, [name, length]) -> *mut Future {
        database.apart().ask_database(name, remove, |()| Payload::Nothing)
    }

    fn fdb_database_list_cdc_streams(database: &Database) -> *mut Future {
        let payload = |streams| Payload::Streams(Streams::of(streams));
        database.apart().ask_database(Ok(()), list, payload)
    }

    fn fdb_database_create_cdc_consumer(database: &Database, [name, length]) -> *mut Future {
        let connection = database.connection.clone();
        let payload = move |id| Payload::Handle(Consumer::new(&connection, id, NOTHING));
        database.apart().ask_database(name, find, payload)
    }

    /// Checks nothing: the calls of the consumer do.
    fn fdb_database_resume_cdc_consumer(
        database: &Database, stream: u64, consumed: i64
    ) -> *mut Future {
        let consumer = Consumer::new(&database.connection, stream, consumed);
        Future::early(Ok(Payload::Handle(consumer)))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_cdc_consumer_destroy(consumer: *const Consumer) {
    if !consumer.is_null() {
        // SAFETY: made by `fdb_future_get_cdc_consumer`, and given back once.
        drop(unsafe { Arc::from_raw(consumer) });
    }
}

/// A handle of its own to the consumer.
///
/// # Safety
/// The pointer was made by `fdb_future_get_cdc_consumer`, and lives.
unsafe fn held(consumer: *const Consumer) -> Arc<Consumer> {
    // SAFETY: the caller's contract; the count stands for the handle that is made here.
    unsafe {
        Arc::increment_strong_count(consumer);
        Arc::from_raw(consumer)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_cdc_consumer_consume(consumer: *const Consumer) -> *mut Future {
    // SAFETY: the header's contract.
    let consumer = unsafe { held(consumer) };
    let call = consumer.call();
    Transaction::new(&consumer.connection).ask_database(call, consume, Payload::Changes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_cdc_consumer_acknowledge(consumer: *const Consumer) -> *mut Future {
    // SAFETY: the header's contract.
    let consumer = unsafe { held(consumer) };
    let call = consumer.call();
    let payload = |()| Payload::Nothing;
    Transaction::new(&consumer.connection).ask_database(call, acknowledge, payload)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_cdc_consumer_get_position(
    consumer: &Consumer,
    stream: &mut u64,
    consumed: &mut i64,
) -> Code {
    let cursor = *consumer.lock();
    (*stream, *consumed) = (cursor.stream, cursor.consumed);
    0
}

crate::future::getters! {
    fdb_future_get_cdc_stream_info_array(streams: *const StreamEntry, count: c_int) of Payload::Streams(found) => {
        (*streams, *count) = (found.entries.as_ptr(), found.entries.len() as c_int);
    }
    fdb_future_get_cdc_versioned_mutations(versions: *const VersionEntry, count: c_int, through: i64)
    of Payload::Changes(found) => {
        (*versions, *count) = (found.entries.as_ptr(), found.entries.len() as c_int);
        *through = found.through;
    }
    fdb_future_get_cdc_consumer(out: *const Consumer) of Payload::Handle(object) => {
        *out = Arc::into_raw(object.clone().downcast::<Consumer>().ok()?);
    }
}
