//! Streams: ordered records of what was appended, or of what changed in some ranges of keys.
//!
//! A stream is a product of transactions and is read by transactions. An append takes effect with the transaction's
//! other writes. A change stands in the stream at the version of its commit. A transaction that reads a stream sees
//! every entry up to its read version, as it sees every other row. So the batch that it gets says through which
//! version nothing is missing, and a consumer that keeps its [position](Stream::set_position) in the transaction with
//! which it stores what it derives handles every entry exactly once.
//!
//! The rows are described in [`plinth_core::streams`].

use crate::database::Database;
use crate::options::TransactionOption;
use crate::reader::Budget;
use crate::system_rows;
use crate::transaction::Transaction;
use plinth_core::codec::Codec;
use plinth_core::key::{KeyRange, key_after};
use plinth_core::streams::{self as rows, Position, StreamKind, StreamRecord};
use plinth_core::version::VERSION_MAX;
use plinth_core::{Error, Key, Mutation, MutationBatch, Result, Value, Version};

/// Limit of a new stream's bytes if its maker gives none.
const BYTES_MAX_DEFAULT: u64 = 1 << 30;
/// Age in seconds at which the entries of a new stream are cut if its maker gives none: a week.
const SECONDS_MAX_DEFAULT: u64 = 7 * 24 * 3600;

/// What a new stream shall be.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    kind: StreamKind,
    ranges: Vec<KeyRange>,
    bytes_max: u64,
    seconds_max: u64,
}

impl StreamOptions {
    /// A stream to which transactions append.
    pub fn append() -> Self {
        StreamOptions {
            kind: StreamKind::Append,
            ranges: Vec::new(),
            bytes_max: BYTES_MAX_DEFAULT,
            seconds_max: SECONDS_MAX_DEFAULT,
        }
    }
    /// A stream of all changes in the given ranges of ordinary keys. A clear comes clipped to the ranges, an atomic
    /// operation with its operand.
    pub fn changes(ranges: Vec<KeyRange>) -> Self {
        StreamOptions {
            kind: StreamKind::Changes,
            ranges,
            ..StreamOptions::append()
        }
    }
    /// Cuts the oldest entries while the stream holds more than about so many bytes; 0 means no limit. 1 GiB unless
    /// this is called.
    pub fn bytes_max(self, bytes_max: u64) -> Self {
        StreamOptions { bytes_max, ..self }
    }
    /// Cuts entries that are older than this; 0 means no limit. A week unless this is called.
    pub fn seconds_max(self, seconds_max: u64) -> Self {
        StreamOptions {
            seconds_max,
            ..self
        }
    }
    /// Cuts nothing that a consumer has not handled. Without consumers, the stream grows until it is dropped.
    pub fn keep_all(self) -> Self {
        self.bytes_max(0).seconds_max(0)
    }
}

/// A stream as the database lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInfo {
    pub name: Key,
    pub record: StreamRecord,
}

/// A stream. The handle stays good across transactions; a stream that is dropped and made anew is another one.
#[derive(Clone, Debug)]
pub struct Stream {
    name: Key,
    id: u64,
    kind: StreamKind,
}

/// Where a batch ends at the latest. At least one entry comes, whatever its size.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimit {
    pub entries: usize,
    pub bytes: usize,
}

impl Default for StreamLimit {
    fn default() -> Self {
        StreamLimit {
            entries: 10_000,
            bytes: 1 << 20,
        }
    }
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEntry {
    pub position: Position,
    pub content: StreamContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StreamContent {
    Appended(Value),
    /// What one transaction changed, in the order of its calls. A large transaction comes as several entries, one
    /// after the other, at positions that differ in their `piece`.
    Changed(MutationBatch),
}

/// Entries, in order.
#[derive(Clone, Debug)]
pub struct StreamBatch {
    pub entries: Vec<StreamEntry>,
    /// Where to read on: everything before it has come.
    pub next: Position,
    /// Nothing at or below this version is missing: the read version, unless the batch reached its limit.
    pub through: Version,
    /// The batch reached its limit: there may be more to read at the same read version.
    pub more: bool,
}

fn refuse_tenant(transaction: &Transaction) -> Result<()> {
    match transaction.database().tenant_of() {
        Some(_) => Err(Error::illegal_tenant_access),
        None => Ok(()),
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    let legal = (1..=rows::NAME_BYTES_MAX).contains(&name.len()) && !name.contains(&0);
    legal.then_some(()).ok_or(Error::invalid_stream)
}

fn position_in(row: Value) -> Result<Position> {
    Position::from_bytes(&row).ok_or(Error::internal_error)
}

// ---- the list of streams ----

impl Transaction {
    /// Makes a stream. A changes stream records every later transaction, and no earlier one.
    ///
    /// Fails with `stream_already_exists`, with `too_many_streams` if three streams have a key of its ranges already,
    /// or with `invalid_stream` for a name that is empty, longer than 255 bytes or contains a zero byte, and for
    /// ranges that are empty or reach beyond ordinary keys.
    pub async fn create_stream(
        &self,
        name: impl AsRef<[u8]>,
        options: &StreamOptions,
    ) -> Result<()> {
        let name = name.as_ref();
        check_name(name)?;
        let ranges = match options.kind {
            StreamKind::Append => Vec::new(),
            StreamKind::Changes => {
                rows::canonical_ranges(options.ranges.clone()).ok_or(Error::invalid_stream)?
            }
        };
        let existing = self.list_streams().await?;
        if existing.iter().any(|stream| stream.name == *name) {
            return Err(Error::stream_already_exists);
        }
        let last = system_rows::get(self, rows::LAST_STREAM_ID).await?;
        let last = last.map_or(Ok([0; 8]), |row| row[..].try_into());
        let last = last.map_err(|_| Error::internal_error)?;
        let record = StreamRecord {
            id: u64::from_be_bytes(last) + 1,
            kind: options.kind,
            ranges,
            bytes_max: options.bytes_max,
            seconds_max: options.seconds_max,
        };
        let records = existing.iter().map(|stream| &stream.record);
        let overlap = rows::overlap(records.chain([&record]));
        if existing.len() >= rows::STREAMS_MAX || overlap > rows::OVERLAP_MAX {
            return Err(Error::too_many_streams);
        }
        system_rows::set(self, rows::LAST_STREAM_ID, &record.id.to_be_bytes())?;
        system_rows::set(self, &rows::map_key(name), &record.to_bytes())?;
        system_rows::stamp_value(self, &rows::floor_key(record.id), 0)
    }

    /// Removes a stream, its entries and its consumers. Fails with `stream_not_found`.
    pub async fn drop_stream(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let stream = self.open_stream(name).await?;
        system_rows::clear(self, &KeyRange::single(&rows::map_key(&stream.name)))?;
        system_rows::clear(self, &rows::data_range(stream.id))
    }

    /// All streams, by name.
    pub async fn list_streams(&self) -> Result<Vec<StreamInfo>> {
        refuse_tenant(self)?;
        let range = KeyRange::new(rows::STREAM_MAP, rows::STREAM_MAP_END);
        let found = system_rows::read(self, range, usize::MAX).await?;
        let info = |(key, value): (Key, Value)| {
            Ok(StreamInfo {
                name: key.slice(rows::STREAM_MAP.len()..),
                record: decoded(value)?,
            })
        };
        found.into_iter().map(info).collect()
    }

    /// The stream with this [id](Stream::id). Fails with `stream_not_found`.
    pub async fn open_stream_by_id(&self, id: u64) -> Result<Stream> {
        let streams = self.list_streams().await?.into_iter();
        let found = streams.map(|info| Stream {
            id: info.record.id,
            kind: info.record.kind,
            name: info.name,
        });
        let mut found = found.filter(|stream| stream.id == id);
        found.next().ok_or(Error::stream_not_found)
    }

    /// The stream of this name. Fails with `stream_not_found`.
    pub async fn open_stream(&self, name: impl AsRef<[u8]>) -> Result<Stream> {
        refuse_tenant(self)?;
        let name = name.as_ref();
        check_name(name)?;
        let row = system_rows::get(self, &rows::map_key(name)).await?;
        let record = decoded(row.ok_or(Error::stream_not_found)?)?;
        Ok(Stream {
            name: Key::copy_from_slice(name),
            id: record.id,
            kind: record.kind,
        })
    }
}

fn decoded(row: Value) -> Result<StreamRecord> {
    StreamRecord::from_bytes(row).ok_or(Error::internal_error)
}

// ---- a stream ----

impl Stream {
    pub fn name(&self) -> &Key {
        &self.name
    }
    /// Never given to another stream of this database.
    pub fn id(&self) -> u64 {
        self.id
    }
    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    /// Appends an entry, of at most 100,000 bytes, when the transaction commits. Its position is the transaction's
    /// versionstamp, followed by the number returned here, two bytes big-endian.
    ///
    /// Fails with `stream_not_found` if the stream was dropped, and with `invalid_stream` if it is no append stream.
    /// Appends of different transactions never conflict.
    pub async fn append(&self, transaction: &Transaction, entry: impl AsRef<[u8]>) -> Result<u16> {
        self.check_entry(entry.as_ref())?;
        // Also a conflict with whoever drops the stream.
        self.check_exists(transaction).await?;
        self.push_entry(transaction, entry.as_ref())
    }

    /// Like [`Stream::append`], without looking whether the stream still exists: for whoever follows the stream, and
    /// has found it there at the transaction's read version. The transaction conflicts with whoever drops the stream
    /// after that version.
    pub fn append_followed(
        &self,
        transaction: &Transaction,
        entry: impl AsRef<[u8]>,
    ) -> Result<u16> {
        self.check_entry(entry.as_ref())?;
        system_rows::conflict_with(transaction, &rows::map_key(&self.name))?;
        self.push_entry(transaction, entry.as_ref())
    }

    fn check_entry(&self, entry: &[u8]) -> Result<()> {
        if entry.len() > rows::ENTRY_BYTES_MAX {
            return Err(Error::value_too_large);
        }
        match self.kind {
            StreamKind::Append => Ok(()),
            StreamKind::Changes => Err(Error::invalid_stream),
        }
    }

    async fn check_exists(&self, transaction: &Transaction) -> Result<()> {
        match transaction.open_stream(&self.name).await?.id == self.id {
            true => Ok(()),
            false => Err(Error::stream_not_found),
        }
    }

    fn push_entry(&self, transaction: &Transaction, entry: &[u8]) -> Result<u16> {
        let number = system_rows::next_append(transaction)?;
        system_rows::stamp_key(transaction, &rows::entry_prefix(self.id), number, entry)?;
        system_rows::stamp_value(transaction, &rows::head_key(self.id), number)?;
        Ok(number)
    }

    /// Reads entries from `from` on, [`Position::START`] being the oldest that is left. Entries that the transaction
    /// itself appends or causes are not among them. No other transaction's append is a conflict.
    ///
    /// Fails with `stream_too_old` if entries from `from` on have been cut, and with `stream_not_found` if the stream
    /// was dropped.
    pub async fn read(
        &self,
        transaction: &Transaction,
        from: Position,
        limit: StreamLimit,
    ) -> Result<StreamBatch> {
        refuse_tenant(transaction)?;
        let version = transaction.get_read_version().await?;
        let from = self.from(transaction, from).await?;
        let mut begin = self.row_of(transaction, from).await?;
        let end = rows::entries_range(self.id).end;
        let most = limit.entries.max(1);
        let (mut entries, mut more);
        loop {
            let budget = Budget {
                rows: most.saturating_add(1), // the first row may lie before the position
                bytes: limit.bytes.max(1),
            };
            let range = KeyRange::new(begin, end.clone());
            let found = system_rows::scan_snapshot(transaction, range, false, budget);
            let (found, rest) = found.await?;
            let last = found.last().map(|(key, _)| key_after(key));
            (entries, more) = (self.entries(found)?, rest);
            entries.retain(|entry| entry.position >= from);
            match last {
                Some(after) if more && entries.is_empty() => begin = after,
                _ => break,
            }
        }
        if entries.len() > most {
            entries.truncate(most);
            more = true;
        }
        let next = match entries.last() {
            Some(last) if more => last.position.next(),
            _ => from.max(Position::of_version(version + 1)),
        };
        Ok(StreamBatch {
            through: version.min(next.version - 1),
            entries,
            next,
            more,
        })
    }

    /// Reads the changes of whole versions, of about `bytes` together: the versions after `after`, each with its
    /// mutations, and the version through which nothing is missing. Errors as of [`Stream::read`].
    pub async fn read_versions(
        &self,
        transaction: &Transaction,
        after: Version,
        bytes: usize,
    ) -> Result<(Vec<(Version, Vec<Mutation>)>, Version)> {
        let mut at = match after {
            ..=0 => Position::START,
            after => Position::of_version(after.min(VERSION_MAX) + 1),
        };
        let mut versions: Vec<(Version, Vec<Mutation>)> = Vec::new();
        loop {
            let limit = StreamLimit {
                entries: usize::MAX,
                bytes,
            };
            let batch = self.read(transaction, at, limit).await?;
            for entry in batch.entries {
                let StreamContent::Changed(mutations) = entry.content else {
                    return Err(Error::invalid_stream);
                };
                match versions.last_mut() {
                    Some((version, all)) if *version == entry.position.version => {
                        all.extend(mutations.iter_owned());
                    }
                    _ => versions.push((entry.position.version, mutations.iter_owned().collect())),
                }
            }
            at = batch.next;
            if !batch.more {
                return Ok((versions, batch.through));
            }
            // The last version may have more. It comes whole the next time, unless it is the only one.
            if versions.len() > 1 {
                versions.pop();
                let through = versions.last().map_or(after, |(version, _)| *version);
                return Ok((versions, through));
            }
        }
    }

    /// The last entries at or after `from` and before `to`, in order; and, if the limit was reached, the position
    /// before which there may be more. Errors as of [`Stream::read`].
    pub(crate) async fn read_last(
        &self,
        transaction: &Transaction,
        from: Position,
        to: Option<Position>,
        limit: StreamLimit,
    ) -> Result<(Vec<StreamEntry>, Option<Position>)> {
        refuse_tenant(transaction)?;
        let from = self.from(transaction, from).await?;
        let begin = self.row_of(transaction, from).await?;
        let end = match to {
            Some(to) => rows::entry_key(self.id, to),
            None => rows::entries_range(self.id).end,
        };
        let budget = Budget {
            rows: limit.entries,
            bytes: limit.bytes,
        };
        let range = KeyRange::new(begin, end);
        let found = system_rows::scan_snapshot(transaction, range, true, budget);
        let (mut found, more) = found.await?;
        found.reverse();
        let first = found
            .first()
            .and_then(|(key, _)| rows::position_of_key(self.id, key));
        let mut entries = self.entries(found)?;
        entries.retain(|entry| entry.position >= from && to.is_none_or(|to| entry.position < to));
        Ok((entries, first.filter(|_| more)))
    }

    /// The position at which a read from `from` begins.
    async fn from(&self, transaction: &Transaction, from: Position) -> Result<Position> {
        let floor = system_rows::get_snapshot(transaction, &rows::floor_key(self.id)).await?;
        let floor = position_in(floor.ok_or(Error::stream_not_found)?)?;
        if from < floor && from != Position::START {
            return Err(Error::stream_too_old);
        }
        Ok(from.max(floor))
    }

    /// Key of the row that has the entry at `from`, or of the next one.
    async fn row_of(&self, transaction: &Transaction, from: Position) -> Result<Key> {
        let exact = rows::entry_key(self.id, from);
        let begin = Position::of_version(from.version);
        if self.kind == StreamKind::Append || from == begin {
            return Ok(exact);
        }
        let of_version = KeyRange::new(rows::entry_key(self.id, begin), key_after(&exact));
        let found = system_rows::scan_snapshot(transaction, of_version, true, Budget::rows(1));
        let (found, _) = found.await?;
        Ok(found.into_iter().next().map_or(exact, |(key, _)| key))
    }

    fn entries(&self, found: Vec<(Key, Value)>) -> Result<Vec<StreamEntry>> {
        let mut entries = Vec::with_capacity(found.len());
        for (key, value) in found {
            let position = rows::position_of_key(self.id, &key).ok_or(Error::internal_error)?;
            if self.kind == StreamKind::Append {
                let content = StreamContent::Appended(value);
                entries.push(StreamEntry { position, content });
                continue;
            }
            let changes = rows::parse_changes(position, value).ok_or(Error::internal_error)?;
            entries.extend(
                changes
                    .into_iter()
                    .map(|(position, mutations)| StreamEntry {
                        position,
                        content: StreamContent::Changed(mutations),
                    }),
            );
        }
        Ok(entries)
    }

    // ---- consumers ----

    fn consumer_key(&self, consumer: &[u8]) -> Result<Key> {
        check_name(consumer)?;
        Ok(rows::consumer_key(self.id, consumer))
    }

    /// How far a consumer has come: it has handled everything before this position. `None` if it does not exist.
    pub async fn position(
        &self,
        transaction: &Transaction,
        consumer: impl AsRef<[u8]>,
    ) -> Result<Option<Position>> {
        refuse_tenant(transaction)?;
        let key = self.consumer_key(consumer.as_ref())?;
        let row = system_rows::get(transaction, &key).await?;
        row.map(position_in).transpose()
    }

    /// Notes how far a consumer has come, and makes the consumer if it does not exist. Entries that every consumer has
    /// handled are removed.
    pub async fn set_position(
        &self,
        transaction: &Transaction,
        consumer: impl AsRef<[u8]>,
        position: Position,
    ) -> Result<()> {
        let key = self.consumer_key(consumer.as_ref())?;
        self.check_exists(transaction).await?;
        system_rows::set(transaction, &key, &position.to_bytes())
    }

    /// Forgets a consumer: entries no longer wait for it.
    pub fn remove_consumer(
        &self,
        transaction: &Transaction,
        consumer: impl AsRef<[u8]>,
    ) -> Result<()> {
        refuse_tenant(transaction)?;
        let key = self.consumer_key(consumer.as_ref())?;
        system_rows::clear(transaction, &KeyRange::single(&key))
    }

    /// All consumers with their positions, by name.
    pub async fn consumers(&self, transaction: &Transaction) -> Result<Vec<(Key, Position)>> {
        refuse_tenant(transaction)?;
        let range = rows::consumers_range(self.id);
        let named = range.begin.len();
        let found = system_rows::read(transaction, range, usize::MAX).await?;
        let consumer = |(key, row): (Key, Value)| Ok((key.slice(named..), position_in(row)?));
        found.into_iter().map(consumer).collect()
    }

    /// All consumers with their positions, by name, and how many versions old the oldest entry is that each has not
    /// handled; 0 if it has handled all.
    pub async fn lags(&self, transaction: &Transaction) -> Result<Vec<(Key, Position, Version)>> {
        let version = transaction.get_read_version().await?;
        let head = system_rows::get(transaction, &rows::head_key(self.id)).await?;
        let head = head.map(position_in).transpose()?;
        let mut lags = Vec::new();
        for (name, at) in self.consumers(transaction).await? {
            let oldest = match head {
                Some(head) if head >= at => self.oldest(transaction, at).await?,
                _ => None,
            };
            lags.push((
                name,
                at,
                oldest.map_or(0, |oldest| (version - oldest).max(0)),
            ));
        }
        Ok(lags)
    }

    /// The version of the first entry at or after `at`; of `at` itself, if entries from there on have been cut.
    async fn oldest(&self, transaction: &Transaction, at: Position) -> Result<Option<Version>> {
        let first = StreamLimit {
            entries: 1,
            bytes: 1,
        };
        match self.read(transaction, at, first).await {
            Ok(batch) => Ok(batch.entries.first().map(|entry| entry.position.version)),
            Err(Error::stream_too_old) => Ok(Some(at.version)),
            Err(error) => Err(error),
        }
    }

    /// The oldest position that can be read.
    pub async fn floor(&self, transaction: &Transaction) -> Result<Position> {
        refuse_tenant(transaction)?;
        let row = system_rows::get(transaction, &rows::floor_key(self.id)).await?;
        position_in(row.ok_or(Error::stream_not_found)?)
    }

    /// Removes the entries before `position` for all readers.
    pub async fn trim(&self, transaction: &Transaction, position: Position) -> Result<()> {
        let floor = self.floor(transaction).await?;
        if position <= floor {
            return Ok(());
        }
        let begin = rows::entries_range(self.id).begin;
        // A row of changes that begins before the position may have entries after it: the row stays.
        let end = self.row_of(transaction, position).await?;
        system_rows::clear(transaction, &KeyRange::new(begin, end))?;
        system_rows::set(transaction, &rows::floor_key(self.id), &position.to_bytes())
    }
}

impl Database {
    /// Waits until the stream has an entry at or after `from`, or is dropped.
    pub async fn wait_for_stream(&self, stream: &Stream, from: Position) -> Result<()> {
        let head = rows::head_key(stream.id);
        loop {
            let transaction = self.create_transaction();
            transaction.set_option(TransactionOption::ReadSystemKeys)?;
            transaction.set_option(TransactionOption::LockAware)?;
            let watched = async {
                let exists = transaction.open_stream(&stream.name).await;
                match exists {
                    Ok(found) if found.id == stream.id => {}
                    Ok(_) | Err(Error::stream_not_found) => return Ok(None),
                    Err(error) => return Err(error),
                }
                let newest = transaction.get(head.clone(), false).await?;
                if newest.map(position_in).transpose()? >= Some(from) {
                    return Ok(None);
                }
                let watch = transaction.watch(head.clone());
                transaction.commit().await?;
                Ok(Some(watch))
            };
            match watched.await {
                Ok(None) => return Ok(()),
                Ok(Some(watch)) => watch.await?,
                Err(error) => transaction.on_error(error).await?,
            }
        }
    }
}
