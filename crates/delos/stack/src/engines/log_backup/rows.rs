//! What the log says about the backup, and what all replicas know of it.

use crate::backup::PLACE_BYTES_MAX;
use crate::backup::objects::{Manifest, RowsCopy, chained};
use crate::engines::above::{Above, Rule};
use crate::engines::guard::Guard;
use crate::log::LogPos;
use crate::stack::Applicator;
use crate::store::{RoTx, RwTx};
use crate::words::{self, words};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::{Error, Result, record};
use plinth_runtime::probe;

pub const GUARD: Guard = Guard { name: "log_backup" };

pub const START: u8 = 0;
pub const BID: u8 = 1;
pub const TAKE: u8 = 2;
pub const DONE: u8 = 3;
pub const AGAIN: u8 = 4;
pub const COPYING: u8 = 5;
pub const COPIED: u8 = 6;

/// Rows. Bids and segments that are done are there until the backup is whole beyond them.
const STATE: &[u8] = b"state";
const COPY_BID: &[u8] = b"copying";
const BIDS: u8 = b'b';
const SEGMENTS: u8 = b's';
/// Bids of a replica at a time; far more than there are in use.
const BIDS_MAX: usize = 100;

/// An operator's word: `kind u8 | is the place empty u8 | place`.
pub fn start(place: &str, is_empty: bool) -> Bytes {
    [&[START, is_empty.into()], place.as_bytes()]
        .concat()
        .into()
}

/// What an entry or a row says, which is so many words and nothing else.
fn parse<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    words::parse(bytes).filter(|_| bytes.len() == 8 * N)
}

fn row<const N: usize>(row: &[u8]) -> Result<[u64; N]> {
    parse(row).ok_or(Error::file_corrupt)
}

fn key(kind: u8, first: LogPos) -> Vec<u8> {
    GUARD.key(&[&[kind][..], &first.to_be_bytes()].concat())
}

record! {
    /// How far the backup is.
    #[derive(Eq)]
    pub struct State {
        pub place: String,
        /// The entry with which it began.
        pub session: LogPos,
        /// The copy of the rows, when there is one.
        pub copy: Option<RowsCopy>,
        pub first: LogPos,
        /// All from `first` up to here is in the backup.
        pub next: LogPos,
        pub chain: u64,
        /// All before this is in the backup, or somebody copies it.
        pub bid_up_to: LogPos,
    }
}

/// A segment that a replica copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bid {
    pub first: LogPos,
    pub end: LogPos,
    pub replica: u64,
    /// The entry of the bid.
    pub pos: LogPos,
}

/// Who copies the rows, and the entry that says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyBid {
    pub replica: u64,
    pub pos: LogPos,
}

impl State {
    /// A session that begins with the entry at this position.
    fn begin(place: String, pos: LogPos) -> State {
        State {
            place,
            session: pos,
            copy: None,
            first: pos + 1,
            next: pos + 1,
            chain: 0,
            bid_up_to: pos + 1,
        }
    }

    fn parse(stored: Option<Bytes>) -> Result<Option<State>> {
        let parsed = stored.map(|row| State::from_bytes(row).ok_or(Error::file_corrupt));
        parsed.transpose()
    }

    fn load(tx: &RwTx) -> Result<Option<State>> {
        State::parse(tx.get(&GUARD.key(STATE))?)
    }

    /// # Errors
    /// The snapshot is too old, or the disk fails.
    pub fn read(rows: &RoTx) -> Result<Option<State>> {
        State::parse(rows.get(&GUARD.key(STATE))?)
    }

    fn store(&self, tx: &mut RwTx) {
        tx.set(&GUARD.key(STATE), self.to_bytes());
    }

    /// What the backup can say of itself; nothing before the copy of the rows is there.
    pub fn manifest(&self) -> Option<Manifest> {
        Some(Manifest {
            session: self.session,
            copy: self.copy?,
            first: self.first,
            next: self.next,
            chain: self.chain,
        })
    }
}

/// The segments that somebody copies, in the order of the log.
///
/// # Errors
/// The snapshot is too old, or the disk fails.
pub fn bids(rows: &RoTx) -> Result<Vec<Bid>> {
    let found = rows.range(&key(BIDS, 0), &key(BIDS, LogPos::MAX), BIDS_MAX)?;
    let parsed = found.into_iter().map(|(key, stored)| {
        let first = key.last_chunk::<8>().ok_or(Error::file_corrupt)?;
        let [end, replica, pos] = row(&stored)?;
        let first = u64::from_be_bytes(*first);
        Ok(Bid {
            first,
            end,
            replica,
            pos,
        })
    });
    parsed.collect()
}

/// Who copies the rows.
///
/// # Errors
/// The snapshot is too old, or the disk fails.
pub fn copy_bid(rows: &RoTx) -> Result<Option<CopyBid>> {
    let stored = rows.get(&GUARD.key(COPY_BID))?;
    let parse = |stored: Bytes| {
        let [replica, pos] = row(&stored)?;
        Ok(CopyBid { replica, pos })
    };
    stored.map(parse).transpose()
}

/// See `log_backup.rs`.
#[derive(Default)]
pub struct LogBackup;
pub type LogBackupAbove<A> = Above<LogBackup, A>;

/// The session that goes on, if the entry is accepted. What nobody can read is not, by all replicas alike.
fn take_in(tx: &mut RwTx, said: &[u8], pos: LogPos) -> Result<Option<LogPos>> {
    let Some((kind, said)) = said.split_first() else {
        return Ok(None);
    };
    let state = State::load(tx)?;
    if *kind == START {
        return begin(tx, state, said, pos);
    }
    let session = said.first_chunk().copied().map(u64::from_le_bytes);
    let Some(state) = state.filter(|state| session == Some(state.session)) else {
        return Ok(None);
    };
    let (session, said) = (state.session, &said[8..]);
    let is_accepted = match *kind {
        AGAIN => return again(tx, state, said, pos),
        COPYING => copying(tx, &state, said, pos)?,
        COPIED => copied(tx, state, said, pos)?,
        BID => bid(tx, state, said, pos)?,
        TAKE => take(tx, said, pos)?,
        DONE => done(tx, state, said)?,
        _ => false,
    };
    Ok(is_accepted.then_some(session))
}

fn begin_session(tx: &mut RwTx, place: String, pos: LogPos) -> Result<Option<LogPos>> {
    let (begin, end) = GUARD.keys();
    tx.clear_range(&begin, &end)?;
    State::begin(place, pos).store(tx);
    Ok(Some(pos))
}

/// An operator names a place. If the backup is there already, it goes on.
fn begin(tx: &mut RwTx, state: Option<State>, said: &[u8], pos: LogPos) -> Result<Option<LogPos>> {
    let Some((is_empty, place)) = said.split_first() else {
        return Ok(None);
    };
    let Ok(place) = String::from_utf8(place.to_vec()) else {
        return Ok(None);
    };
    if place.is_empty() || place.len() > PLACE_BYTES_MAX {
        return Ok(None);
    }
    match state {
        Some(state) if state.place == place && *is_empty == 0 => Ok(Some(state.session)),
        _ => begin_session(tx, place, pos),
    }
}

/// Entries that are not in the backup are gone, because the engine was off for a while.
fn again(tx: &mut RwTx, state: State, said: &[u8], pos: LogPos) -> Result<Option<LogPos>> {
    match parse(said) {
        Some([first]) if first > state.next && first <= pos => {
            probe!("delos_backup_begins_anew");
            begin_session(tx, state.place, pos)
        }
        _ => Ok(None),
    }
}

fn copying(tx: &mut RwTx, state: &State, said: &[u8], pos: LogPos) -> Result<bool> {
    let Some([replica, instead_of]) = parse(said) else {
        return Ok(false);
    };
    if state.copy.is_some() {
        return Ok(false);
    }
    if let Some(stored) = tx.get(&GUARD.key(COPY_BID))? {
        let [other, at] = row(&stored)?;
        if other != replica && at != instead_of {
            return Ok(false);
        }
    }
    tx.set(&GUARD.key(COPY_BID), words(&[replica, pos]));
    Ok(true)
}

fn copied(tx: &mut RwTx, mut state: State, said: &[u8], at: LogPos) -> Result<bool> {
    let Some([pos, replica, pages, checksum]) = parse(said) else {
        return Ok(false);
    };
    if state.copy.is_some() || pos < state.session || pos >= at {
        return Ok(false);
    }
    state.copy = Some(RowsCopy {
        pos,
        replica,
        pages,
        checksum,
    });
    tx.clear(&GUARD.key(COPY_BID));
    state.store(tx);
    Ok(true)
}

fn bid(tx: &mut RwTx, state: State, said: &[u8], pos: LogPos) -> Result<bool> {
    let Some([first, end, replica]) = parse(said) else {
        return Ok(false);
    };
    if first != state.bid_up_to || end <= first || end > pos {
        return Ok(false);
    }
    tx.set(&key(BIDS, first), words(&[end, replica, pos]));
    let bid_up_to = end;
    State { bid_up_to, ..state }.store(tx);
    Ok(true)
}

fn take(tx: &mut RwTx, said: &[u8], pos: LogPos) -> Result<bool> {
    let Some([first, bid, replica]) = parse(said) else {
        return Ok(false);
    };
    let Some(stored) = tx.get(&key(BIDS, first))? else {
        return Ok(false);
    };
    let [end, _, bid_at] = row(&stored)?;
    if bid_at != bid {
        return Ok(false);
    }
    probe!("delos_segment_taken_over");
    tx.set(&key(BIDS, first), words(&[end, replica, pos]));
    Ok(true)
}

fn done(tx: &mut RwTx, mut state: State, said: &[u8]) -> Result<bool> {
    let Some([first, sum]) = parse(said) else {
        return Ok(false);
    };
    let Some(stored) = tx.get(&key(BIDS, first))? else {
        return Ok(false);
    };
    let [end, _, _] = row(&stored)?;
    tx.clear(&key(BIDS, first));
    tx.set(&key(SEGMENTS, first), words(&[end, sum]));
    while let Some(stored) = tx.get(&key(SEGMENTS, state.next))? {
        let [end, sum] = row(&stored)?;
        tx.clear(&key(SEGMENTS, state.next));
        state.chain = chained(state.chain, end, sum as u32);
        state.next = end;
    }
    state.store(tx);
    Ok(true)
}

impl<A: Applicator> Rule<A> for LogBackup {
    const GUARD: Guard = GUARD;

    fn own(&self, tx: &mut RwTx, said: Bytes, pos: LogPos) -> Result<Bytes> {
        let session = take_in(tx, &said, pos)?;
        Ok(session.map_or_else(Bytes::new, |session| words(&[session])))
    }
}
