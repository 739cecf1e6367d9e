//! Reads the log of the memory engine back, around whatever is damaged.
//!
//! Everything that is whole is applied, in order. What is not whole makes keys unknown, from there on and until they
//! are written again: those that the directory of a record names for a block; or, where a record has no directory
//! that can be read, those that the next record says were changed before it; or, if it does not go back that far, all.

use super::lost::Origin;
use super::recent::{Recent, own_part, runs};
use super::record::{Content, Record};
use super::segment::{self, Found, Opened, Reader, Segment};
use super::{KEYS_END, Log, Rows};
use crate::batch::WriteBatch;
use crate::failure::{damage, disk_failure};
use crate::parent_dir;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Result};
use plinth_runtime::{disk, planted, probe};
use std::path::Path;

/// What is known while the log is read.
struct Replay<'a> {
    rows: &'a mut Rows,
    /// Number and oldest needed segment of the last record.
    last: Option<(u64, u64)>,
    recent: Recent,
    /// Where damage was met behind the last record.
    gap: Option<Origin>,
}

/// Replays the segments; `None` if there is no engine.
pub(super) async fn recover(
    prefix: &Path,
    numbers: &[u64],
    may_be_new: bool,
    rows: &mut Rows,
) -> Result<Option<Log>> {
    // A power cut may bring back some of the deleted segments, so the last unbroken run has what is needed, unless a
    // segment was lost.
    let Some(run) = numbers.chunk_by(|a, b| a + 1 == *b).next_back() else {
        return Ok(None);
    };
    let log = replay_all(prefix, run, run[0], may_be_new, rows).await?;
    let Some(mut log) = log else { return Ok(None) };
    if log.oldest_needed < run[0] {
        let needed = numbers.partition_point(|number| *number < log.oldest_needed);
        probe!("memory engine: a needed segment is missing");
        *rows = Rows::new();
        let oldest = log.oldest_needed;
        drop(log);
        let again = replay_all(prefix, &numbers[needed..], oldest, may_be_new, rows).await?;
        log = again.ok_or(Error::file_corrupt)?;
    }
    // What a killed process wrote can be read, but a power cut may still lose it. Everything that is served from here
    // on must be durable.
    let made_durable = async {
        log.current.file.sync().await?;
        disk::sync_dir(parent_dir(prefix)).await
    };
    made_durable
        .await
        .map_err(|error| disk_failure(&log.current.path, "sync", &error))?;
    let is_read = |number: &u64| log.settled.iter().any(|(settled, _)| settled == number);
    let others = numbers
        .iter()
        .filter(|number| **number < log.current.number);
    let others: Vec<u64> = others.copied().filter(|number| !is_read(number)).collect();
    log.settled
        .extend(others.into_iter().map(|number| (number, 0)));
    Ok(Some(log))
}

/// Replays these segments, of which `oldest` should be the first.
async fn replay_all(
    prefix: &Path,
    numbers: &[u64],
    oldest: u64,
    may_be_new: bool,
    rows: &mut Rows,
) -> Result<Option<Log>> {
    let mut replay = Replay {
        rows,
        // Nothing was there before the first segment.
        last: (oldest == 1).then_some((0, 1)),
        recent: Recent::default(),
        gap: None,
    };
    let mut log: Option<Log> = None;
    let mut expected = oldest;
    for &number in numbers {
        if number != expected {
            replay.lacks_segment(prefix, expected);
        }
        expected = number + 1;
        let is_newest = Some(&number) == numbers.last();
        match Segment::open(prefix, number).await? {
            Opened::Segment(mut segment, mut reader) => {
                replay.segment(&mut segment, &mut reader, is_newest).await?;
                log = Some(Log::after(log, segment));
            }
            Opened::Unmade if is_newest && (log.is_some() || may_be_new) => {
                remove_unmade(&segment::segment_path(prefix, number)).await?;
            }
            _ => {
                let path = segment::segment_path(prefix, number);
                let error = damage(&path, 0, Error::file_corrupt, "segment header");
                if is_newest {
                    return Err(error);
                }
                replay.meets_damage(number, 0);
            }
        }
    }
    let Some(mut log) = log else { return Ok(None) };
    if let Some(Origin { segment, offset }) = replay.gap {
        // Nothing behind it tells what it was about.
        let path = segment::segment_path(prefix, segment);
        let what = "the last record";
        return Err(damage(&path, offset, Error::checksum_failed, what));
    }
    let Some((sequence, oldest_needed)) = replay.last else {
        let missing = segment::segment_path(prefix, numbers[0] - 1);
        let what = "a segment that is needed is missing";
        return Err(damage(&missing, 0, Error::file_corrupt, what));
    };
    log.oldest_needed = oldest_needed;
    log.next_sequence = sequence + 1;
    log.recent = replay.recent;
    Ok(Some(log))
}

/// The process died while it created this segment: nothing in it was ever acknowledged.
async fn remove_unmade(path: &Path) -> Result<()> {
    probe!("memory engine: a segment was being created");
    let removed = disk::remove(path).await;
    removed.map_err(|error| disk_failure(path, "remove", &error))
}

impl Replay<'_> {
    fn meets_damage(&mut self, segment: u64, offset: u64) {
        self.gap.get_or_insert(Origin { segment, offset });
    }

    fn lacks_segment(&mut self, prefix: &Path, number: u64) {
        let path = segment::segment_path(prefix, number);
        let what = "a segment that is needed is missing";
        damage(&path, 0, Error::file_corrupt, what);
        self.meets_damage(number, 0);
    }

    /// Applies the records of a segment. Leaves its end where the next record goes.
    async fn segment(
        &mut self,
        segment: &mut Segment,
        reader: &mut Reader,
        is_newest: bool,
    ) -> Result<()> {
        while segment.end < reader.size {
            let offset = segment.end;
            let found = reader.record(segment, offset).await?;
            let next = match found {
                Found::Record(record) if !self.is_of_the_past(&record) => {
                    // Each append begins when the one before it is on disk, so only the last can be torn.
                    let may_be_torn =
                        record.unreadable().next().is_some() || record.end > reader.size;
                    let is_last = may_be_torn && is_newest;
                    if is_last && reader.find(segment, offset + 1).await?.is_none() {
                        return reader.cut_torn_tail(segment).await;
                    }
                    let end = record.end.min(reader.size);
                    self.apply(segment, offset, record)?;
                    end
                }
                _ => match reader.find(segment, offset + 1).await? {
                    None if is_newest => return reader.cut_torn_tail(segment).await,
                    behind => {
                        damage(&segment.path, offset, Error::checksum_failed, "record");
                        self.meets_damage(segment.number, offset);
                        behind.unwrap_or(reader.size)
                    }
                },
            };
            segment.end = next;
            plinth_runtime::yield_now().await;
        }
        Ok(())
    }

    /// True if a record with its number was there before.
    fn is_of_the_past(&self, record: &Record) -> bool {
        self.last
            .is_some_and(|(last, _)| record.header.sequence <= last)
    }

    fn apply(&mut self, segment: &Segment, offset: u64, record: Record) -> Result<()> {
        let number = segment.number;
        let sequence = record.header.sequence;
        self.close_gap(
            Origin {
                segment: number,
                offset,
            },
            &record,
        );
        let len = record.end - offset;
        let mut ranges: Vec<KeyRange> = Vec::new();
        let (mut own, mut is_whole) = (WriteBatch::new(), true);
        for block in record.blocks {
            match block.content {
                Content::Operations(batch) => {
                    self.rows.replay(&batch);
                    own.append(own_part(batch.iter()));
                    if block.ranges.is_empty() {
                        let runs = runs(batch.bytes()).into_iter();
                        ranges.extend(runs.flat_map(|run| run.ranges));
                    }
                }
                Content::Lost(parts) => {
                    is_whole = false;
                    for part in parts {
                        self.rows
                            .lose(&part.range.begin, &part.range.end, part.origin);
                    }
                }
                Content::Unreadable => {
                    probe!("memory engine: a block is lost");
                    is_whole = false;
                    let what = "block of a record";
                    damage(&segment.path, block.at, Error::checksum_failed, what);
                    let origin = Origin {
                        segment: number,
                        offset: block.at,
                    };
                    for range in &block.ranges {
                        self.rows.lose(&range.begin, &range.end, origin);
                    }
                }
            }
            ranges.extend(block.ranges);
        }
        if is_whole {
            self.recent.push(sequence, len, ranges, own);
        } else {
            // What it has done cannot be said again.
            self.recent.forget();
        }
        self.last = Some((sequence, record.header.oldest_needed));
        Ok(())
    }

    /// Before a record that was read: what was lost between the last one and it.
    fn close_gap(&mut self, here: Origin, record: &Record) {
        let gap = self.gap.take();
        let Some((last, _)) = self.last else {
            if let Some(origin) = gap {
                self.rows.lose(b"", &KEYS_END, origin);
            }
            return;
        };
        if record.header.sequence == last + 1 {
            return;
        }
        let origin = gap.unwrap_or(here);
        self.recent.forget();
        if planted!(
            "memory_gap_is_nothing",
            "a memory engine takes records that it cannot read for such as have changed nothing"
        ) {
            return;
        }
        if record.since > last + 1 {
            probe!("memory engine: records are lost, and nothing says what they were about");
            self.rows.lose(b"", &KEYS_END, origin);
        } else {
            probe!("memory engine: a record is lost, and the next one says what it was about");
            for range in &record.recent {
                self.rows.lose(&range.begin, &range.end, origin);
            }
        }
        if let Some(own) = &record.own {
            self.rows.replay(own);
        }
    }
}
