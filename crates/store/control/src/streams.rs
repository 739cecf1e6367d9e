//! Removes entries of streams that nobody needs: those that every consumer has handled, and those beyond the stream's
//! limits of age and bytes. See [`plinth_core::streams`].
//!
//! It promises: no entry within the limits goes before every consumer has handled it; a reader that asks for entries
//! that were cut is told so, because the floor moves in the transaction that removes them; a stream that nobody reads
//! stays near its limits, so it stops no commit.
//!
//! ```text
//! consumers' positions ─► least ─────────────┐
//! age: read version, clock of the time keeper ├─► the latest of them: the new floor
//! bytes: sizes of the stream's rows ──────────┘
//! ```
//!
//! The age of an entry is judged by versions and by the clock, and the entry goes when it is too old by both: versions
//! jump in a recovery, and clocks may be wrong.

mod sizes;

use crate::knobs::STREAM_TRIM_MS;
use crate::time_keeper;
use plinth_client::{
    Database, Position, RangeOptions, Stream, StreamInfo, StreamingMode, Transaction,
    TransactionOption,
};
use plinth_core::key::{KeyRange, printable};
use plinth_core::streams::{entries_range, position_of_key};
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_core::{Result, Version};
use plinth_runtime::metric::{Labelled, Values};
use plinth_runtime::{Duration, metric, planted, probe, trace, trace_warn};
pub(crate) use sizes::Sizes;
use std::rc::Rc;

/// A stream whose limit is at most this is measured row by row. Others are measured by estimates.
const COUNTED_BYTES_MAX: u64 = 1 << 20;
/// An estimated stream is cut in steps of this part of its limit.
const STEPS: u64 = 16;
/// Parts in which a stream without a limit is measured.
const PART_BYTES: u64 = 64 << 20;
const TRANSACTION_LIMIT_MS: i64 = 5000;
/// Rounds between two measurements for the metrics.
const MEASURED_EVERY: u64 = 5;

metric! {
    STREAM_BYTES: Gauge = "plinth_stream_bytes", "approximate bytes of the entries of a stream";
    STREAM_LAG_SECONDS: Gauge = "plinth_stream_lag_seconds",
        "age of the oldest entry that a consumer of a stream has not handled";
}

pub(crate) async fn trim(database: Database, sizes: Rc<Sizes>) {
    let values = Values::new();
    for round in 0u64.. {
        if round.is_multiple_of(MEASURED_EVERY)
            && let Ok(states) = states(&database, &sizes).await
        {
            values.set(states.iter().flat_map(measured).collect());
        }
        plinth_runtime::sleep(Duration::from_millis(STREAM_TRIM_MS.get())).await;
        let streams = match attempt(&database, async |tr| tr.list_streams().await).await {
            Ok(streams) => streams,
            Err(error) => {
                trace!("StreamsNotListed", "error" => error);
                continue; // the database is away; the next round reads them
            }
        };
        sizes.keep_only(&streams.iter().map(|info| info.record.id).collect());
        for info in streams {
            let trimmed = attempt(&database, async |tr| trim_one(&tr, &info, &sizes).await);
            if let Err(error) = trimmed.await {
                trace!("StreamNotTrimmed", "stream" => info.record.id, "error" => error);
            }
        }
    }
}

/// One transaction; an error is left to the next round.
async fn attempt<T>(
    database: &Database,
    body: impl AsyncFnOnce(Transaction) -> Result<T>,
) -> Result<T> {
    let transaction = database.create_transaction();
    for option in [
        TransactionOption::Timeout(TRANSACTION_LIMIT_MS),
        TransactionOption::AccessSystemKeys,
        TransactionOption::LockAware,
    ] {
        transaction.set_option(option)?;
    }
    let output = body(transaction.clone()).await?;
    transaction.commit().await?;
    Ok(output)
}

async fn trim_one(transaction: &Transaction, info: &StreamInfo, sizes: &Sizes) -> Result<()> {
    let stream = transaction.open_stream(&info.name).await?;
    if stream.id() != info.record.id {
        return Ok(()); // dropped and made anew since it was listed
    }
    let floor = stream.floor(transaction).await?;
    let consumers = stream.consumers(transaction).await?;
    let handled = consumers.iter().map(|(_, position)| *position).min();
    let aged = by_age(transaction, info).await?;
    let limit = aged.max(by_bytes(transaction, info, floor, sizes).await?);
    // A consumer may be ahead of the read version by nothing more than the next version.
    let now = Position::of_version(transaction.get_read_version().await? + 1);
    let Some(to) = handled.max(limit).map(|to| to.min(now)) else {
        return Ok(());
    };
    if to <= floor {
        return Ok(());
    }
    if handled.is_none_or(|handled| handled < to) {
        probe!("stream_cut_at_its_limit");
        let waiting = consumers.iter().filter(|(_, at)| *at < to).count();
        if waiting > 0 {
            trace_warn!("StreamCut", "stream" => stream.id(), "to" => to.version, "consumers" => waiting);
        }
    } else {
        probe!("stream_trimmed_behind_consumers");
    }
    if planted!(
        "stream_cut_unsaid",
        "entries of a stream are removed, and readers that ask for them are told nothing"
    ) {
        let gone = KeyRange {
            end: plinth_core::streams::entry_key(stream.id(), to),
            ..entries_range(stream.id())
        };
        transaction.clear_range(gone.begin, gone.end);
        return Ok(());
    }
    stream.trim(transaction, to).await
}

/// Entries before this position are too old.
async fn by_age(transaction: &Transaction, info: &StreamInfo) -> Result<Option<Position>> {
    if info.record.seconds_max == 0 {
        return Ok(None);
    }
    let version = transaction.get_read_version().await?;
    let by_version = age_in_versions(info.record.seconds_max)
        .and_then(|age| version.checked_sub(age))
        .filter(|version| *version > 0);
    let by_clock = time_keeper::version_before(transaction, info.record.seconds_max).await?;
    let oldest = by_version.zip(by_clock).map(|(a, b)| a.min(b));
    Ok(oldest.map(Position::of_version))
}

fn age_in_versions(seconds: u64) -> Option<Version> {
    i64::try_from(seconds)
        .ok()?
        .checked_mul(VERSIONS_PER_SECOND)
}

/// Entries before this position exceed the limit of bytes.
async fn by_bytes(
    transaction: &Transaction,
    info: &StreamInfo,
    floor: Position,
    sizes: &Sizes,
) -> Result<Option<Position>> {
    let (id, bytes_max) = (info.record.id, info.record.bytes_max);
    let cut = match bytes_max {
        0 => {
            sizes.measure(transaction, id, floor, PART_BYTES).await?;
            None
        }
        counted if counted <= COUNTED_BYTES_MAX => {
            first_within(transaction, &entries_range(id), bytes_max as usize).await?
        }
        _ => {
            let part = bytes_max / STEPS;
            sizes.measure(transaction, id, floor, part).await?;
            sizes.cut(id, bytes_max)
        }
    };
    Ok(cut.and_then(|key| position_of_key(id, &key)))
}

/// The first of the last rows that have `bytes_max` together, if there are others before it.
async fn first_within(
    transaction: &Transaction,
    range: &KeyRange,
    bytes_max: usize,
) -> Result<Option<plinth_core::Key>> {
    let options = RangeOptions::mode(StreamingMode::WantAll).reversed();
    let (begin, end) = range.clone().selectors();
    let mut rows = transaction.get_range_stream(begin, end, options, true);
    let (mut bytes, mut first) = (0, None);
    while let Some((key, value)) = rows.next().await? {
        bytes += key.len() + value.len();
        if bytes > bytes_max {
            // A row that exceeds the limit alone goes as well.
            let after = || plinth_core::key::key_after(&key);
            return Ok(Some(first.unwrap_or_else(after)));
        }
        first = Some(key);
    }
    Ok(None)
}

/// What the status says of a stream.
pub(crate) struct StreamState {
    pub info: StreamInfo,
    pub bytes: i64,
    pub floor: Position,
    /// Names of consumers, with the age in seconds of the oldest entry that each has not handled, counted in versions.
    pub consumers: Vec<(plinth_core::Key, f64)>,
}

fn measured(state: &StreamState) -> Vec<Labelled> {
    let stream = ("stream", printable(&state.info.name));
    let mut values = vec![Labelled {
        family: &STREAM_BYTES,
        labels: vec![stream.clone()],
        value: state.bytes as f64,
    }];
    values.extend(state.consumers.iter().map(|(name, lag_s)| Labelled {
        family: &STREAM_LAG_SECONDS,
        labels: vec![stream.clone(), ("consumer", printable(name))],
        value: *lag_s,
    }));
    values
}

/// The state of all streams.
pub(crate) async fn states(database: &Database, sizes: &Sizes) -> Result<Vec<StreamState>> {
    attempt(database, async |tr| {
        let mut states = Vec::new();
        for info in tr.list_streams().await? {
            let stream = tr.open_stream(&info.name).await?;
            states.push(state(&tr, &stream, info, sizes).await?);
        }
        Ok(states)
    })
    .await
}

async fn state(
    tr: &Transaction,
    stream: &Stream,
    info: StreamInfo,
    sizes: &Sizes,
) -> Result<StreamState> {
    let bytes = match sizes.total(stream.id()) {
        Some(bytes) => bytes as i64,
        None => {
            let range = entries_range(stream.id());
            let size = tr.get_estimated_range_size_bytes(range.begin, range.end);
            size.await?
        }
    };
    let lags = stream.lags(tr).await?.into_iter();
    let seconds = |versions: Version| versions as f64 / VERSIONS_PER_SECOND as f64;
    Ok(StreamState {
        bytes,
        floor: stream.floor(tr).await?,
        consumers: lags
            .map(|(name, _, behind)| (name, seconds(behind)))
            .collect(),
        info,
    })
}
