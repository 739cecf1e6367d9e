//! One log over a chain of logs, *loglets*, the last of which takes the entries (Virtual Consensus, OSDI'20 §3).
//!
//! ```text
//!   position   1 ………… 40 | 41 ……… 97 | 98 ………
//!   loglet        a       |     b     |    c        the map, in a register that can be compared and swapped
//! ```
//! [`VirtualLog::reconfigure`] puts another loglet at the end while the log is in use: it seals the last one, so that
//! its tail is final, and then adds the next one to the map, at that tail. Whoever finds a loglet sealed reads the map
//! again. If the one who has sealed goes away, appends wait until somebody else reconfigures the log.
//!
//! Promises: positions have no gap and are given out once, across reconfigurations too.
//! What may never happen: a map in which a loglet begins below the tail of the one before.

use crate::log::{LogError, LogPos, SharedLog, Tail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::Error;
use plinth_runtime::sync::Permits;
use plinth_runtime::{
    Duration, Instant, join_all, nobody_has_lied, now, probe, sleep, timeout, trace, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A loglet that is sealed gets another one behind it before so many looks, unless who has sealed it is gone.
const SEALED_LOOKS: usize = 3;
const SEALED_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait before the map is read again in the hope that somebody has changed it.
const REFRESH_PAUSE: Duration = Duration::from_millis(10);
/// How often somebody who waits for the next loglet looks whether the one before is still there.
const CLEARED_LOOK: Duration = Duration::from_millis(500);
const FORMAT: u8 = 1;
const LOGLETS_MAX: usize = 10_000;
/// So many of the newest parts stay in the map although they were trimmed: who tries a change again, because nobody
/// has said what became of it, finds it there.
const PARTS_KEPT: usize = 16;

/// The log servers of a part that was trimmed are told again after so long, and so often in all: they may be away for
/// a while, or gone for good.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
const TOLD_MAX: u32 = 10;
/// A part whose last entry is not read within this time cannot be read, as far as a new replica is concerned.
const LOOK_LIMIT: Duration = Duration::from_secs(4);
const PARTS_AT_A_TIME: usize = 64;

/// Where the map is. One value, with a version that grows by one with each change.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Register {
    /// The value and its version; version 0 if there is none.
    ///
    /// # Errors
    /// It cannot be read now.
    async fn read(&self) -> Result<(u64, Bytes), Error>;

    /// Replaces the value if it has this version; false if it has another: the new value may have been there in
    /// between. No two callers swap in the same value, but for the first.
    ///
    /// # Errors
    /// It may have been replaced, or not.
    async fn swap(&self, version: u64, value: Bytes) -> Result<bool, Error>;
}

/// What a register is kept as: `version u64 | value`. Nothing is version 0.
///
/// # Errors
/// It is something else.
pub(crate) fn parse_versioned(kept: Option<Bytes>) -> Result<(u64, Bytes), Error> {
    let Some(mut kept) = kept else {
        return Ok((0, Bytes::new()));
    };
    let version = kept.try_get_u64_le().map_err(|_| Error::file_corrupt)?;
    Ok((version, kept))
}

/// What a register is kept as when `value` has replaced that of `version`.
pub(crate) fn after_version(version: u64, value: &[u8]) -> Bytes {
    [&(version + 1).to_le_bytes(), value].concat().into()
}

/// Opens loglets.
#[allow(async_fn_in_trait)] // as above
pub trait Loglets {
    type Log: SharedLog;

    /// Opens the loglet that `description` tells of, or makes it if this is the first time.
    ///
    /// # Errors
    /// It cannot be reached.
    async fn open(&self, description: &Bytes) -> Result<Self::Log, LogError>;
}

/// A part of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    /// Position of its first entry.
    first: LogPos,
    description: Bytes,
}

/// `format u8 | per part: first u64, description length u32, description`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Map(Vec<Part>);

impl Map {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(FORMAT);
        for part in &self.0 {
            out.put_u64_le(part.first);
            out.put_u32_le(part.description.len() as u32);
            out.put_slice(&part.description);
        }
        out.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<Map> {
        if bytes.try_get_u8().ok()? != FORMAT {
            return None;
        }
        let mut parts: Vec<Part> = Vec::new();
        while !bytes.is_empty() {
            let first = bytes.try_get_u64_le().ok()?;
            let len = bytes.try_get_u32_le().ok()? as usize;
            let follows = parts.last().is_none_or(|before| before.first <= first);
            if len > bytes.len() || parts.len() == LOGLETS_MAX || !follows || first == 0 {
                return None;
            }
            let description = bytes.split_to(len);
            parts.push(Part { first, description });
        }
        (!parts.is_empty()).then_some(Map(parts))
    }

    /// Forgets the oldest parts, if all their entries are before this position.
    fn forget_before(&mut self, trimmed: LogPos) {
        let ends = self.0.iter().skip(1).map(|next| next.first);
        let gone = ends.take_while(|end| *end <= trimmed).count();
        self.0
            .drain(..gone.min(self.0.len().saturating_sub(PARTS_KEPT)));
    }

    /// The part with this position, and the first position behind it; `None` for the last part.
    fn part_of(&self, pos: LogPos) -> Option<(&Part, Option<LogPos>)> {
        let after = self.0.partition_point(|part| part.first <= pos);
        let at = after.checked_sub(1)?;
        Some((&self.0[at], self.0.get(after).map(|next| next.first)))
    }

    fn last(&self) -> &Part {
        self.0.last().expect("a map is never empty")
    }

    /// What everybody takes for a map ([`decode`](Map::decode)): one that nobody reads would be the end of the log.
    fn check(&self) {
        let firsts = self.0.iter().map(|part| part.first);
        assert!(
            (1..=LOGLETS_MAX).contains(&self.0.len()) && self.0[0].first > 0 && firsts.is_sorted(),
            "a map that nobody can read: {} parts, of which the last ones are {:?}",
            self.0.len(),
            &self.0[self.0.len().saturating_sub(3)..]
        );
    }
}

/// Entries that a log has no more, or that nobody can read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gone {
    /// All from here on can be read, as far as is known.
    pub first: LogPos,
    /// The description of the part that nobody can read now; `None` if the entries were trimmed.
    pub unreadable: Option<Bytes>,
}

/// Of a part that was trimmed, and of which too few log servers have said so.
struct Untold {
    times: u32,
    last: Instant,
}

/// See the module.
pub struct VirtualLog<R, L: Loglets> {
    register: R,
    loglets: L,
    map: RefCell<Map>,
    version: Cell<u64>,
    /// The entries before this position are trimmed.
    trimmed: Cell<LogPos>,
    untold: RefCell<BTreeMap<Bytes, Untold>>,
    /// By their descriptions: empty loglets may begin at one position.
    open: RefCell<BTreeMap<Bytes, Rc<L::Log>>>,
    /// One loglet is opened at a time, and each once.
    opening: Permits,
}

impl<R: Register, L: Loglets> VirtualLog<R, L> {
    /// Opens the log. If the register is empty, it begins with the loglet `first`.
    ///
    /// # Errors
    /// The register cannot be read, or has no map.
    pub async fn open(register: R, loglets: L, first: Bytes) -> Result<Self, Error> {
        Self::open_from(register, loglets, 1, first).await
    }

    /// As [`open`](Self::open); a new log begins at this position.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_from(
        register: R,
        loglets: L,
        begin: LogPos,
        first: Bytes,
    ) -> Result<Self, Error> {
        let log = Self::unread(register, loglets);
        if log.register.read().await?.0 == 0 {
            let parts = vec![Part {
                first: begin,
                description: first,
            }];
            let map = Map(parts);
            map.check();
            // If somebody else is faster, theirs counts.
            log.register.swap(0, map.encode()).await?;
        }
        log.refresh().await?;
        Ok(log)
    }

    /// Opens the log if there is one: if the register is not empty.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn find(register: R, loglets: L) -> Result<Option<Self>, Error> {
        let log = Self::unread(register, loglets);
        Ok(log.refresh().await?.then_some(log))
    }

    fn unread(register: R, loglets: L) -> Self {
        VirtualLog {
            register,
            loglets,
            map: RefCell::default(),
            version: Cell::new(0),
            trimmed: Cell::new(0),
            untold: RefCell::default(),
            open: RefCell::default(),
            opening: Permits::new(1),
        }
    }

    /// Reads the map; true if it has changed.
    async fn refresh(&self) -> Result<bool, Error> {
        let (version, value) = self.register.read().await?;
        if version <= self.version.get() {
            return Ok(false);
        }
        let map = Map::decode(value).ok_or(Error::file_corrupt)?;
        let mut open = self.open.borrow_mut();
        if open.len() > map.0.len() {
            let is_there = |of: &Bytes| map.0.iter().any(|part| part.description == *of);
            open.retain(|description, _| is_there(description));
            let mut untold = self.untold.borrow_mut();
            untold.retain(|description, _| is_there(description));
        }
        drop(open);
        let former = self.map.replace(map);
        let (last, next) = (former.0.last(), self.map.borrow());
        // Others have written it: the part that takes the entries now begins where the last one did, or behind that.
        assert!(
            last.is_none_or(|last| last.first <= next.last().first) || !nobody_has_lied(),
            "the last part of the log began at {last:?}, and in version {version} at {:?}",
            next.last()
        );
        trace!("DelosMapRead", "parts" => next.0.len(), "first" => next.last().first);
        drop(next);
        self.version.set(version);
        Ok(true)
    }

    async fn loglet(&self, part: &Part) -> Result<Rc<L::Log>, LogError> {
        if let Some(open) = self.open.borrow().get(&part.description) {
            return Ok(open.clone());
        }
        let _opening = self.opening.take().await;
        if let Some(open) = self.open.borrow().get(&part.description) {
            return Ok(open.clone());
        }
        let opened = Rc::new(self.loglets.open(&part.description).await?);
        let mut open = self.open.borrow_mut();
        open.insert(part.description.clone(), opened.clone());
        Ok(opened)
    }

    async fn last(&self) -> Result<(Part, Rc<L::Log>), LogError> {
        let part = self.map.borrow().last().clone();
        let loglet = self.loglet(&part).await?;
        Ok((part, loglet))
    }

    /// This loglet is sealed: waits for the one behind it. Somebody else who waits may have read the map already.
    async fn await_next(&self, sealed: &Part, loglet: &L::Log) -> Result<(), LogError> {
        let mut look_at = now() + CLEARED_LOOK;
        while self.map.borrow().last() == sealed {
            if !self.refresh().await.map_err(LogError::Failed)? {
                probe!("delos_waits_for_loglet");
                sleep(REFRESH_PAUSE).await;
            }
            if now() >= look_at {
                // Nobody goes on behind one whose rows are gone. Any other failure is for whoever adds the next one.
                let tail = timeout(CLEARED_LOOK, loglet.check_tail()).await;
                if tail == Some(Err(LogError::Cleared)) {
                    return Err(LogError::Cleared);
                }
                look_at = now() + CLEARED_LOOK;
            }
        }
        Ok(())
    }

    /// Lets another loglet take the entries from now on. The log can be used meanwhile.
    ///
    /// # Errors
    /// A loglet or the register cannot be reached; the same may be tried again. A loglet that the log had before is
    /// [`Error::client_invalid_operation`].
    pub async fn reconfigure(&self, description: Bytes) -> Result<(), LogError> {
        self.replace_last(None, description).await.map(drop)
    }

    /// As [`reconfigure`](Self::reconfigure), if the loglet that takes the entries now is still `last`. False if it is
    /// another one: somebody else was faster.
    ///
    /// # Errors
    /// As [`reconfigure`](Self::reconfigure).
    pub async fn replace(&self, last: &Bytes, description: Bytes) -> Result<bool, LogError> {
        self.replace_last(Some(last), description).await
    }

    async fn replace_last(
        &self,
        expected: Option<&Bytes>,
        description: Bytes,
    ) -> Result<bool, LogError> {
        let mut has_tried = false;
        loop {
            self.refresh().await.map_err(LogError::Failed)?;
            // The two belong together: others may refresh them while this waits.
            let (version, mut map) = (self.version.get(), self.map.borrow().clone());
            let part = map.last().clone();
            let is_there = map.0.iter().any(|part| part.description == description);
            if part.description == description || (is_there && has_tried) {
                return Ok(true); // an attempt before this one, whose outcome nobody knew
            }
            if expected.is_some_and(|last| part.description != last) {
                return Ok(false);
            }
            if is_there {
                return Err(LogError::Failed(Error::client_invalid_operation));
            }
            map.forget_before(self.trimmed.get());
            if map.0.len() >= LOGLETS_MAX {
                return Err(LogError::ManyParts(LOGLETS_MAX)); // before it is sealed: the log goes on as it is
            }
            trace!("DelosLogletReplaced", "first" => part.first);
            let tail = self.loglet(&part).await?.seal().await?;
            assert!(
                tail.is_sealed && tail.next > 0,
                "the part from {} on ends at {tail:?}, and may go on",
                part.first
            );
            let first = part.first + tail.next - 1;
            map.0.push(Part {
                first,
                description: description.clone(),
            });
            map.forget_before(self.trimmed.get());
            map.check();
            has_tried = true;
            let swapped = self.register.swap(version, map.encode()).await;
            if swapped.map_err(LogError::Failed)? {
                self.refresh().await.map_err(LogError::Failed)?;
                trace!("DelosLogletAdded", "first" => first);
                return Ok(true);
            }
        }
    }

    /// What cannot be read of the log's begin; `None` if it can be played from its first entry on. Of the part that
    /// takes the entries only the first one is looked at.
    pub async fn gone(&self) -> Option<Gone> {
        let parts = self.map.borrow().0.clone();
        // A part may be trimmed although one before it is not: its log servers were away.
        let ends = parts.iter().skip(1).map(|next| Some(next.first));
        let with_entries: Vec<(&Part, Option<LogPos>)> = parts
            .iter()
            .zip(ends.chain([None]))
            .filter(|(part, end)| end.is_none_or(|end| part.first < end))
            .collect();
        for some in with_entries.rchunks(PARTS_AT_A_TIME) {
            let looks = some.iter().map(|(part, end)| self.look_at(part, *end));
            let newest = join_all(looks).await.into_iter().flatten().last();
            if newest.is_some() {
                return newest;
            }
        }
        self.trimmed_at(1).await
    }

    /// What is gone if the entry at `pos` is trimmed; `None` also if nobody says so in time.
    async fn trimmed_at(&self, pos: LogPos) -> Option<Gone> {
        match timeout(LOOK_LIMIT, self.read_next(pos, 1)).await {
            Some(Err(LogError::Trimmed(first))) => Some(Gone {
                first,
                unreadable: None,
            }),
            _ => None,
        }
    }

    /// Reads the last entry of a part with this end: a log server that has it has all before it, unless they were
    /// trimmed.
    async fn look_at(&self, part: &Part, end: Option<LogPos>) -> Option<Gone> {
        let Some(end) = end else {
            return self.trimmed_at(part.first).await;
        };
        let reading = async {
            let loglet = self.loglet(part).await?;
            loglet.read_next(end - part.first, 1).await
        };
        let read = timeout(LOOK_LIMIT, reading).await;
        if matches!(&read, Some(Ok(entries)) if !entries.is_empty()) {
            return self.trimmed_at(part.first).await;
        }
        let is_trimmed = matches!(read, Some(Err(LogError::Trimmed(_))));
        trace_warn!("DelosPartGone", "first" => part.first, "end" => end, "trimmed" => is_trimmed);
        Some(Gone {
            first: end,
            unreadable: (!is_trimmed).then(|| part.description.clone()),
        })
    }

    /// Tells the log servers of a part that nobody needs any of its entries. Nobody reads it any more, so the trim
    /// does not wait for those that do not answer; they are told again for a while.
    async fn let_go(&self, part: &Part, before: LogPos) -> Result<(), LogError> {
        let is_over =
            |untold: &Untold| untold.times >= TOLD_MAX || untold.last.elapsed() < TOLD_AGAIN;
        if self
            .untold
            .borrow()
            .get(&part.description)
            .is_some_and(is_over)
        {
            return Ok(());
        }
        let told = match self.loglet(part).await {
            Ok(loglet) => loglet.prefix_trim(before - part.first + 1).await,
            Err(error) => Err(error),
        };
        let mut untold = self.untold.borrow_mut();
        match told {
            Err(LogError::Cleared) => return Err(LogError::Cleared),
            Ok(()) => drop(untold.remove(&part.description)),
            Err(error) => {
                probe!("delos_trimmed_untold");
                trace_warn!("DelosTrimUntold", "first" => part.first, "error" => error);
                let last = now();
                let entry = untold.entry(part.description.clone());
                let of = entry.or_insert(Untold { times: 0, last });
                (of.times, of.last) = (of.times + 1, last);
            }
        }
        Ok(())
    }

    /// The description of the loglet that takes the entries.
    pub fn last_description(&self) -> Bytes {
        self.map.borrow().last().description.clone()
    }

    async fn is_last_sealed(&self) -> Result<bool, LogError> {
        let (_, loglet) = self.last().await?;
        Ok(loglet.check_tail().await?.is_sealed)
    }

    /// Resolves when the last loglet takes no more entries, and who has sealed it seems to have gone before it could
    /// add another one.
    pub async fn stays_sealed(&self) {
        let mut looks = 0;
        while looks < SEALED_LOOKS {
            sleep(SEALED_LOOK_INTERVAL).await;
            let is_sealed = self.is_last_sealed().await;
            looks = if is_sealed == Ok(true) { looks + 1 } else { 0 };
        }
    }

    /// An entry has got this position in this part. If the part has an end, it is behind that.
    fn check_part(&self, pos: LogPos, part: &Part) {
        let map = self.map.borrow();
        let found = map.part_of(pos).map(|(of, _)| of);
        let is_last = map.last() == part;
        assert!(
            part.first <= pos && (is_last || found.is_none_or(|of| of == part))
                || !nobody_has_lied(),
            "position {pos} was given out in {part:?}, and is in {found:?}"
        );
    }

    /// The descriptions of the loglets, with the first position of each.
    pub fn parts(&self) -> Vec<(LogPos, Bytes)> {
        let map = self.map.borrow();
        let parts = map.0.iter();
        parts
            .map(|part| (part.first, part.description.clone()))
            .collect()
    }
}

impl<R: Register, L: Loglets> SharedLog for VirtualLog<R, L> {
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError> {
        loop {
            let (part, loglet) = self.last().await?;
            match loglet.append(entry.clone()).await {
                Ok(pos) => {
                    let pos = part.first + pos - 1;
                    self.check_part(pos, &part);
                    return Ok(pos);
                }
                Err(LogError::Sealed) => self.await_next(&part, &loglet).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn check_tail(&self) -> Result<Tail, LogError> {
        loop {
            let (part, loglet) = self.last().await?;
            let tail = loglet.check_tail().await?;
            if !tail.is_sealed {
                return Ok(Tail::open(part.first + tail.next - 1));
            }
            self.await_next(&part, &loglet).await?;
        }
    }

    async fn read_next(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        loop {
            let found = {
                let map = self.map.borrow();
                let found = map.part_of(from);
                found.map(|(part, end)| (part.clone(), end))
            };
            let Some((part, end)) = found else {
                return Err(LogError::Trimmed(self.map.borrow().0[0].first));
            };
            let loglet = self.loglet(&part).await?;
            let base = part.first - 1;
            let mut entries = match loglet.read_next(from - base, bytes_max).await {
                Err(LogError::Trimmed(first)) => return Err(LogError::Trimmed(first + base)),
                read => read?,
            };
            entries.iter_mut().for_each(|(pos, _)| *pos += base);
            let is_next = (from..).zip(&entries).all(|(next, (pos, _))| *pos == next);
            assert!(
                is_next,
                "entries from {from} on are at {:?}",
                entries.iter().map(|(pos, _)| *pos).collect::<Vec<_>>()
            );
            if let (Some(end), Some((last, _))) = (end, entries.last()) {
                // Log servers whose disks have lied may have more than the end that was agreed on.
                assert!(
                    *last < end || !nobody_has_lied(),
                    "entry {last} is in a part that ends at {end}"
                );
                entries.retain(|(pos, _)| *pos < end);
            }
            if !entries.is_empty() || end.is_some() {
                return Ok(entries);
            }
            // The entries may be in a loglet that this replica has not heard of.
            self.refresh().await.map_err(LogError::Failed)?;
            if *self.map.borrow().last() == part {
                return Ok(entries);
            }
        }
    }

    async fn prefix_trim(&self, before: LogPos) -> Result<(), LogError> {
        let parts = self.map.borrow().0.clone();
        let ends = parts.iter().skip(1).map(|next| next.first);
        let gone = ends.take_while(|end| *end <= before).count();
        // One that begins there is empty.
        let some: Vec<&Part> = parts[..gone]
            .iter()
            .filter(|part| part.first < before)
            .collect();
        for some in some.chunks(PARTS_AT_A_TIME) {
            let telling = some.iter().map(|part| self.let_go(part, before));
            join_all(telling)
                .await
                .into_iter()
                .collect::<Result<(), _>>()?;
        }
        // Those parts are done with, whether the next one can be reached or not.
        self.trimmed
            .set(self.trimmed.get().max(parts[gone].first.min(before)));
        if parts[gone].first < before {
            let loglet = self.loglet(&parts[gone]).await?;
            loglet.prefix_trim(before - parts[gone].first + 1).await?;
        }
        self.trimmed.set(self.trimmed.get().max(before));
        Ok(())
    }

    /// Seals the last loglet. Until a [`VirtualLog::reconfigure`], appends wait.
    async fn seal(&self) -> Result<Tail, LogError> {
        let (part, loglet) = self.last().await?;
        let tail = loglet.seal().await?;
        Ok(Tail::sealed(part.first + tail.next - 1))
    }
}

#[cfg(test)]
mod tests;
