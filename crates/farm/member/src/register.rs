//! The register that has the record: the one place where members are decided on.
//!
//! Behind it are the coordinators of the store, which need no database.

use crate::record::Record;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_coordination::{Coordinators, Family, SharedState};
use plinth_core::Error;
use plinth_core::codec::Codec;
use plinth_rpc::Transport;
use std::cell::RefCell;
use std::rc::Rc;

const MAGIC: &[u8] = b"farmrec2";
/// Pause before another attempt, when somebody else has read or written in between.
const PAUSE_MS: std::ops::Range<u64> = 2..20;

/// One record, replaced by comparing its revision.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Register {
    /// # Errors
    /// It cannot be read now, or what is there is not a record.
    async fn read(&self) -> Result<Option<Record>, Error>;

    /// Puts `next` there if the record has the revision before (0: there is none). No two callers swap in the same
    /// record. False if it has another revision: `next` may have been there in between. Whatever it says, `next` is
    /// not put there later.
    ///
    /// # Errors
    /// It may have been put there, or not, or later. The caller tries the same again until it is told.
    async fn swap(&self, next: &Record) -> Result<bool, Error>;
}

/// A register of this process alone.
#[derive(Clone, Default)]
pub struct LocalRegister(Rc<RefCell<Option<Record>>>);

#[cfg(test)]
impl LocalRegister {
    pub fn held(&self) -> Option<Record> {
        self.0.borrow().clone()
    }

    pub fn put(&self, record: Record) {
        *self.0.borrow_mut() = Some(record);
    }
}

impl Register for LocalRegister {
    async fn read(&self) -> Result<Option<Record>, Error> {
        Ok(self.0.borrow().clone())
    }

    async fn swap(&self, next: &Record) -> Result<bool, Error> {
        let mut held = self.0.borrow_mut();
        if held.as_ref() == Some(next) {
            return Ok(true);
        }
        let fits = held.as_ref().map_or(0, |held| held.revision) + 1 == next.revision;
        if fits {
            *held = Some(next.clone());
        }
        Ok(fits)
    }
}

/// A register on coordinators. It waits while no majority of them answers.
pub struct CoordinatedRegister(SharedState);

impl CoordinatedRegister {
    pub fn new(transport: &Transport, coordinators: &Coordinators) -> CoordinatedRegister {
        CoordinatedRegister(SharedState::new(transport, coordinators, PAUSE_MS))
    }

    /// A line for the user about what is there, if it is no record: whose it is, if that can be seen.
    pub async fn not_a_record(&self) -> String {
        self.not_own().await.unwrap_or_else(|| {
            "the coordinators keep the state of another kind of cluster, or of another version: name another file \
             with -C"
                .into()
        })
    }

    /// The line about coordinators of another system, if they are.
    pub async fn not_own(&self) -> Option<String> {
        self.0.not_own(Family::Farm).await
    }
}

pub(crate) fn to_bytes(record: &Record) -> Bytes {
    let mut out = BytesMut::from(MAGIC);
    out.put_slice(&record.to_bytes());
    out.freeze()
}

pub(crate) fn from_bytes(mut bytes: Bytes) -> Result<Record, Error> {
    if !bytes.starts_with(MAGIC) {
        return Err(Error::file_corrupt);
    }
    bytes.advance(MAGIC.len());
    let record = Record::from_bytes(bytes).filter(Record::is_sane);
    record.ok_or(Error::file_corrupt)
}

fn parse(state: Option<Bytes>) -> Result<Option<Record>, Error> {
    state.map(from_bytes).transpose()
}

impl Register for CoordinatedRegister {
    async fn read(&self) -> Result<Option<Record>, Error> {
        parse(self.0.read().await?)
    }

    async fn swap(&self, next: &Record) -> Result<bool, Error> {
        let bytes = to_bytes(next);
        let swapping = self.0.attempt(async |attempt| {
            let held = parse(attempt.read().await?)?;
            // An attempt before this one, whose outcome nobody knew, may have put it there.
            if held.as_ref() == Some(next) {
                return Ok(true);
            }
            let fits = held.map_or(0, |held| held.revision) + 1 == next.revision;
            if fits {
                attempt.write(bytes.clone()).await?;
            }
            Ok(fits)
        });
        swapping.await
    }
}
