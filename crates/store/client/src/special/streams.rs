//! Streams for every binding: their entries as rows, appends and consumers' positions as writes.
//!
//! ```text
//! \xff\xff/streams/<stream>/<position>            an entry. Of changes: a packed tuple with an element for each
//!                                                 mutation, itself a tuple: (kind, first, second)
//! \xff\xff/stream_append/<stream>                 set: appends the value
//! \xff\xff/stream_consumers/<stream>/<consumer>   position; its transaction conflicts with others that write it
//! ```
//!
//! A position has twelve bytes: the versionstamp of the transaction, and a number of two bytes. Nothing is missing up
//! to the transaction's read version. A read that begins at a position from which on entries were cut fails with
//! `stream_too_old`; one that begins before all positions, with the first entry that is left.

use super::{Asked, MODULES, Module, Rows, SpecialWrite, Writable};
use crate::streams::{Stream, StreamContent, StreamLimit};
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::key::{KeyRange, prefix_end};
use plinth_core::streams::Position;
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, Key, MutationBatch, Result, Value};

const STREAMS: &[u8] = b"\xff\xff/streams/";
const APPEND: &[u8] = b"\xff\xff/stream_append/";
const APPEND_END: &[u8] = b"\xff\xff/stream_append0";
const CONSUMERS: &[u8] = b"\xff\xff/stream_consumers/";
const CONSUMERS_END: &[u8] = b"\xff\xff/stream_consumers0";
/// Entries and bytes that one read of the stream asks for.
const ENTRIES_AT_ONCE: usize = 10_000;
const BYTES_AT_ONCE: usize = 1 << 20;
/// A read that needs more of a stream than this at once is refused: it has a selector that counts from the other end.
const BYTES_MAX: usize = 64 << 20;

#[linkme::distributed_slice(MODULES)]
static OF_STREAMS: Module = Module {
    begin: STREAMS,
    end: b"\xff\xff/streams0",
    rows: |transaction, asked| Box::pin(entries(transaction, asked)),
    writable: &[],
};

#[linkme::distributed_slice(MODULES)]
static OF_APPENDS: Module = Module {
    begin: APPEND,
    end: APPEND_END,
    rows: |_, _| Box::pin(async { Ok(Rows::new()) }),
    writable: &[Writable {
        begin: APPEND,
        end: APPEND_END,
        apply: |transaction, write| Box::pin(append(transaction, write)),
    }],
};

#[linkme::distributed_slice(MODULES)]
static OF_CONSUMERS: Module = Module {
    begin: CONSUMERS,
    end: CONSUMERS_END,
    rows: |transaction, asked| Box::pin(consumers(transaction, asked)),
    writable: &[Writable {
        begin: CONSUMERS,
        end: CONSUMERS_END,
        apply: |transaction, write| Box::pin(set_consumer(transaction, write)),
    }],
};

// ---- entries ----

fn prefix_of(module: &[u8], stream: &[u8]) -> Bytes {
    [module, stream, b"/"].concat().into()
}

async fn entries(transaction: &Transaction, asked: &Asked) -> Result<Rows> {
    let mut rows = Rows::new();
    let mut streams = transaction.list_streams().await?;
    if asked.reverse {
        streams.reverse();
    }
    for info in streams {
        let prefix = prefix_of(STREAMS, &info.name);
        let end = prefix_end(&prefix).expect("it ends with a slash");
        let whole = KeyRange::new(prefix.clone(), end);
        let Some(part) = asked.within.intersection(&whole) else {
            continue;
        };
        let stream = transaction.open_stream(&info.name).await?;
        let from = position_at_or_after(part.begin.get(prefix.len()..));
        let to = match part.end == whole.end {
            true => None,
            false => Some(position_at_or_after(part.end.get(prefix.len()..))),
        };
        rows.extend(entries_of(transaction, &stream, &prefix, (from, to), asked).await?);
    }
    rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(rows)
}

/// The first position whose bytes are not below these; they may be fewer or more than those of a position.
fn position_at_or_after(bytes: Option<&[u8]>) -> Position {
    let bytes = bytes.unwrap_or_default();
    let mut padded = [0; Position::LEN];
    let given = bytes.len().min(Position::LEN);
    padded[..given].copy_from_slice(&bytes[..given]);
    match Position::from_bytes(&padded) {
        Some(position) if bytes.len() > Position::LEN => position.next(),
        Some(position) => position,
        None => Position::end_of_version(plinth_core::version::VERSION_MAX),
    }
}

/// The rows of a stream: enough of them that the last one is beyond the limits, or all.
async fn entries_of(
    transaction: &Transaction,
    stream: &Stream,
    prefix: &[u8],
    (mut from, mut to): (Position, Option<Position>),
    asked: &Asked,
) -> Result<Rows> {
    let limit = StreamLimit {
        entries: asked.rows_max.min(ENTRIES_AT_ONCE),
        bytes: asked.bytes_max.min(BYTES_AT_ONCE),
    };
    let (mut rows, mut bytes) = (Rows::new(), 0);
    loop {
        let (entries, is_rest) = if asked.reverse {
            let (entries, before) = stream.read_last(transaction, from, to, limit).await?;
            to = before.or(to);
            (entries, before.is_some())
        } else {
            let batch = stream.read(transaction, from, limit).await?;
            from = batch.next;
            (batch.entries, batch.more && to.is_none_or(|to| from < to))
        };
        let before = bytes;
        for entry in entries {
            if to.is_some_and(|to| entry.position >= to) && !asked.reverse {
                break;
            }
            let key = Bytes::from([prefix, &entry.position.to_bytes()].concat());
            let value = value_of(entry.content)?;
            bytes += key.len() + value.len();
            rows.push((key, value));
        }
        let enough = rows.len() >= asked.rows_max || before >= asked.bytes_max;
        if !is_rest || enough {
            return Ok(rows);
        }
        if bytes > BYTES_MAX {
            return Err(Error::unsupported_operation);
        }
    }
}

fn value_of(content: StreamContent) -> Result<Value> {
    match content {
        StreamContent::Appended(value) => Ok(value),
        StreamContent::Changed(mutations) => tuple::pack(&elements(&mutations)),
    }
}

fn elements(mutations: &MutationBatch) -> Vec<Element> {
    let element = |mutation: plinth_core::Mutation| {
        Element::Nested(vec![
            Element::Int(mutation.kind as i64),
            Element::Bytes(mutation.first),
            Element::Bytes(mutation.second),
        ])
    };
    mutations.iter_owned().map(element).collect()
}

// ---- appends ----

async fn append(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
    let SpecialWrite::Set(key, value) = write else {
        return Err(Error::special_keys_api_failure);
    };
    let name = key.slice(APPEND.len()..);
    let stream = transaction.open_stream(&name).await?;
    stream.append(transaction, &value).await.map(drop)
}

// ---- consumers ----

async fn consumers(transaction: &Transaction, asked: &Asked) -> Result<Rows> {
    let mut rows = Rows::new();
    for info in transaction.list_streams().await? {
        let prefix = prefix_of(CONSUMERS, &info.name);
        let end = prefix_end(&prefix).expect("it ends with a slash");
        if !asked.within.intersects(&KeyRange::new(prefix.clone(), end)) {
            continue;
        }
        let stream = transaction.open_stream(&info.name).await?;
        for (consumer, position) in stream.consumers(transaction).await? {
            let key = Bytes::from([&prefix[..], &consumer].concat());
            rows.push((key, Value::copy_from_slice(&position.to_bytes())));
        }
    }
    rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(rows)
}

/// The stream and the consumer that a key names.
async fn named(transaction: &Transaction, key: &Key) -> Result<(Stream, Key)> {
    let names = key.get(CONSUMERS.len()..).unwrap_or_default();
    let slash = names.iter().rposition(|byte| *byte == b'/');
    let slash = slash.ok_or(Error::special_keys_api_failure)?;
    let stream = transaction.open_stream(&names[..slash]).await?;
    Ok((stream, Key::copy_from_slice(&names[slash + 1..])))
}

async fn set_consumer(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
    match write {
        SpecialWrite::Set(key, value) => {
            let (stream, consumer) = named(transaction, &key).await?;
            let position = Position::from_bytes(&value).ok_or(Error::invalid_stream)?;
            // Two that consume for one name conflict, even if neither has read the position.
            stream.position(transaction, &consumer).await?;
            stream.set_position(transaction, &consumer, position).await
        }
        SpecialWrite::Clear(range) => {
            let (stream, consumer) = named(transaction, &range.begin).await?;
            if range != KeyRange::single(&range.begin) {
                return Err(Error::special_keys_api_failure);
            }
            stream.remove_consumer(transaction, &consumer)
        }
    }
}
