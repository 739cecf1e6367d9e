//! The positions of entries: each replica counts the entries of the stream.

use super::{Floor, HEAD_LEN, Inner, LogResult, RETRY_PAUSE};
use crate::log::{LogError, LogPos, Tail};
use bytes::{Buf, Bytes, BytesMut};
use plinth_client::{Position, StreamContent, StreamEntry, StreamLimit};
use plinth_core::{Error, Version};
use plinth_runtime::{Pace, planted, probe, sleep, trace_warn};
use std::collections::{BTreeMap, VecDeque};

/// Every so many entries, the place of one is kept in memory.
const MARK_EVERY: u64 = 256;
/// Bytes of the newest entries that stay in memory.
const RECENT_BYTES: usize = 16 << 20;
const FLOOR_LEN: usize = 8 + Position::LEN;

pub(super) fn parse_floor(row: &[u8]) -> Result<Floor, Error> {
    let (pos, at) = row.split_first_chunk::<8>().ok_or(Error::file_corrupt)?;
    let at = Position::from_bytes(at).ok_or(Error::file_corrupt)?;
    match u64::from_le_bytes(*pos) {
        0 => Err(Error::file_corrupt),
        pos => Ok((pos, at)),
    }
}

pub(super) fn floor_row(pos: LogPos, at: Position) -> [u8; FLOOR_LEN] {
    let mut row = [0; FLOOR_LEN];
    row[..8].copy_from_slice(&pos.to_le_bytes());
    row[8..].copy_from_slice(&at.to_bytes());
    row
}

/// Puts the parts of entries together.
#[derive(Default)]
struct Assembly {
    /// Where the first part of the current entry is.
    began: Option<Position>,
    bytes: BytesMut,
}

/// An entry, where it begins, and who appended it.
struct Whole {
    began: Position,
    appender: u64,
    number: u64,
    bytes: Bytes,
}

impl Assembly {
    fn add(&mut self, entry: StreamEntry) -> Result<Option<Whole>, Error> {
        let StreamContent::Appended(part) = entry.content else {
            return Err(Error::file_corrupt);
        };
        if part.len() < HEAD_LEN {
            return Err(Error::file_corrupt);
        }
        let mut head = part.slice(..HEAD_LEN);
        let (appender, number, is_last) =
            (head.get_u64_le(), head.get_u64_le(), head.get_u8() == 1);
        let body = part.slice(HEAD_LEN..);
        let began = *self.began.get_or_insert(entry.position);
        if !is_last {
            self.bytes.extend_from_slice(&body);
            return Ok(None);
        }
        self.began = None;
        let bytes = match self.bytes.is_empty() {
            true => body,
            false => {
                self.bytes.extend_from_slice(&body);
                std::mem::take(&mut self.bytes).freeze()
            }
        };
        Ok(Some(Whole {
            began,
            appender,
            number,
            bytes,
        }))
    }
}

/// What was counted so far.
pub(super) struct Counted {
    /// Position of the next entry.
    pub next: LogPos,
    /// Where the stream is read on.
    at: Position,
    /// Everything through this version was counted.
    through: Version,
    is_sealed: bool,
    /// How often entries were gone before they were counted.
    pub gaps: u64,
    /// Position of the first entry that is kept.
    floor: LogPos,
    assembly: Assembly,
    /// Where some entries begin, among them the first.
    marks: BTreeMap<LogPos, Position>,
    /// The entries before `next`.
    recent: VecDeque<Bytes>,
    recent_bytes: usize,
}

impl Counted {
    pub fn new() -> Self {
        Counted {
            next: 1,
            at: Position::START,
            through: 0,
            is_sealed: false,
            gaps: 0,
            floor: 1,
            assembly: Assembly::default(),
            marks: [(1, Position::START)].into(),
            recent: VecDeque::new(),
            recent_bytes: 0,
        }
    }

    pub fn tail(&self) -> Tail {
        Tail {
            next: self.next,
            is_sealed: self.is_sealed,
        }
    }

    /// The entries from `from` on, if they are in memory.
    pub fn recent(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> LogResult<Option<Vec<(LogPos, Bytes)>>> {
        if from < self.floor {
            return Err(LogError::Trimmed(self.floor));
        }
        let first = self.next - self.recent.len() as u64;
        if from >= self.next {
            return Ok(Some(Vec::new()));
        }
        if from < first {
            return Ok(None);
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (pos, entry) in (from..).zip(self.recent.range((from - first) as usize..)) {
            if !entries.is_empty() && bytes >= bytes_max {
                break;
            }
            bytes += entry.len();
            entries.push((pos, entry.clone()));
        }
        Ok(Some(entries))
    }

    /// The last place that is known at or before an entry, if the log may be trimmed up to there.
    pub fn mark_before(&self, pos: LogPos) -> Option<Floor> {
        let (pos, at) = self.marks.range(..=pos).next_back()?;
        (*pos > self.floor).then_some((*pos, *at))
    }

    pub fn forget_before(&mut self, floor: LogPos) {
        self.floor = self.floor.max(floor);
        self.marks = self.marks.split_off(&floor);
        let kept = self.next.saturating_sub(self.floor) as usize;
        while self.recent.len() > kept {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.recent.pop_front() {
            self.recent_bytes -= oldest.len();
        }
    }

    /// Takes over what the row says.
    pub fn take_floor(&mut self, (pos, at): Floor) {
        if pos > self.next {
            probe!("delos_trimmed_past_reader");
            self.gaps += 1;
            (self.next, self.at) = (pos, at);
            self.assembly = Assembly::default();
            self.recent.clear();
            self.recent_bytes = 0;
        }
        if pos == self.next {
            // Nothing before this place can be read any more.
            self.at = self.at.max(at);
        }
        if pos > self.floor {
            self.forget_before(pos);
            self.marks.insert(pos, at);
        }
        assert!(
            self.floor <= self.next && self.recent.len() as u64 <= self.next - self.floor,
            "{} entries are in memory, from {} to {}",
            self.recent.len(),
            self.floor,
            self.next
        );
    }

    fn add(&mut self, whole: &Whole) -> LogPos {
        let pos = self.next;
        if pos.is_multiple_of(MARK_EVERY) {
            self.marks.insert(pos, whole.began);
        }
        self.next += 1;
        self.recent_bytes += whole.bytes.len();
        self.recent.push_back(whole.bytes.clone());
        while self.recent_bytes > RECENT_BYTES && self.recent.len() > 1 {
            self.drop_oldest();
        }
        pos
    }
}

impl Inner {
    /// Counts what was committed through `version`, or before the call. Tries until it can, or rows of the log are
    /// gone.
    pub async fn count_through(&self, version: Option<Version>) {
        let mut version = version;
        while let Err(error) = self.count_once(version).await {
            if self.is_cleared.get() {
                return;
            }
            if !matches!(error, Error::transaction_too_old | Error::future_version) {
                trace_warn!("DelosCountFailed", "error" => error);
            }
            sleep(RETRY_PAUSE).await;
            version = None;
        }
    }

    /// # Errors
    /// What was counted until then stays counted.
    pub async fn count_once(&self, version: Option<Version>) -> Result<(), Error> {
        let transaction = self.database.create_transaction();
        if let Some(version) = version {
            if version <= self.counted.borrow().through {
                return Ok(());
            }
            transaction.set_read_version(version);
        }
        // Before it waits for its turn: what is committed by now must be counted, and somebody else may do it.
        let version = transaction.get_read_version().await?;
        let _turn = self.counting.take().await;
        if version <= self.counted.borrow().through {
            return Ok(());
        }
        let said = self.read_rows(&transaction).await?;
        self.counted.borrow_mut().take_floor(said.floor);
        let mut pace = Pace::new();
        loop {
            let at = self.counted.borrow().at;
            let limit = StreamLimit::default();
            let batch = self.stream.read(&transaction, at, limit).await?;
            for entry in batch.entries {
                self.take(entry)?;
                pace.rest_if_over().await;
            }
            if !batch.more {
                break;
            }
        }
        let mut counted = self.counted.borrow_mut();
        assert!(
            counted.through < version,
            "everything through {} was counted, and now through {version}",
            counted.through
        );
        counted.at = counted.at.max(Position::of_version(version + 1));
        counted.through = version;
        counted.is_sealed = said.is_sealed;
        Ok(())
    }

    fn take(&self, entry: StreamEntry) -> Result<(), Error> {
        let mut counted = self.counted.borrow_mut();
        let next = entry.position.next();
        let whole = counted.assembly.add(entry)?;
        counted.at = next;
        let Some(whole) = whole else { return Ok(()) };
        let is_skipped = planted!(
            "delos_stream_miscount",
            "a replica now and then counts an entry of the stream twice"
        ) && plinth_runtime::random::chance(0.01);
        if is_skipped {
            counted.add(&whole);
        }
        let pos = counted.add(&whole);
        drop(counted);
        if whole.appender == self.appender
            && let Some(reply) = self.appends.borrow_mut().waiting.remove(&whole.number)
        {
            let _ = reply.send(Ok(pos)); // its proposer may wait no longer
        }
        Ok(())
    }

    /// Reads entries that are not in memory any more.
    pub async fn read_old(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> LogResult<Vec<(LogPos, Bytes)>> {
        loop {
            match self.read_from_mark(from, bytes_max).await {
                Ok(entries) => return Ok(entries),
                Err(Error::stream_too_old) => {
                    // Another replica has trimmed the log, perhaps not as far as `from`.
                    self.count().await?;
                    let floor = self.counted.borrow().floor;
                    if from < floor {
                        return Err(LogError::Trimmed(floor));
                    }
                }
                Err(error) => return Err(LogError::Failed(error)),
            }
        }
    }

    async fn read_from_mark(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, Error> {
        let mark = {
            let counted = self.counted.borrow();
            let found = counted.marks.range(..=from).next_back();
            found.map(|(pos, at)| (*pos, *at))
        };
        let (mut pos, mut at) = mark.ok_or(Error::stream_too_old)?;
        let transaction = self.database.create_transaction();
        let (mut assembly, mut entries, mut bytes) = (Assembly::default(), Vec::new(), 0);
        loop {
            let limit = StreamLimit::default();
            let batch = self.stream.read(&transaction, at, limit).await?;
            for entry in batch.entries {
                at = entry.position.next();
                let Some(whole) = assembly.add(entry)? else {
                    continue;
                };
                if pos >= from {
                    bytes += whole.bytes.len();
                    entries.push((pos, whole.bytes));
                }
                pos += 1;
                if bytes >= bytes_max || pos >= self.counted.borrow().next {
                    // Who reads on begins here.
                    self.counted.borrow_mut().marks.insert(pos, at);
                    return Ok(entries);
                }
            }
            if !batch.more {
                return Ok(entries);
            }
        }
    }
}
