//! Changes rows directly, past the application, on all replicas alike (§4.2 C): for emergencies.

use super::guard::{Guard, Seen};
use crate::entry::Entry;
use crate::log::LogPos;
use crate::stack::{Answer, Applicator, Applied, Engine, Lost, Proposed, Upper};
use crate::store::{RoTx, RwTx};
use bytes::{Buf, BufMut, Bytes, BytesMut};

pub const GUARD: Guard = Guard {
    name: "brain_doctor",
};

/// A row and what it becomes; `None` removes it.
pub type Write = (Bytes, Option<Bytes>);

/// `key length u32 | key | is there u8 | value length u32 | value`, again and again.
fn encode(writes: &[Write]) -> Bytes {
    let mut out = BytesMut::new();
    for (key, value) in writes {
        out.put_u32_le(key.len() as u32);
        out.put_slice(key);
        out.put_u8(value.is_some().into());
        let value = value.as_deref().unwrap_or_default();
        out.put_u32_le(value.len() as u32);
        out.put_slice(value);
    }
    out.freeze()
}

fn take(said: &mut Bytes) -> Option<Bytes> {
    let len = said.try_get_u32_le().ok()? as usize;
    (len <= said.len()).then(|| said.split_to(len))
}

fn decode(mut said: Bytes) -> Option<Vec<Write>> {
    let mut writes = Vec::new();
    while !said.is_empty() {
        let key = take(&mut said)?;
        let is_there = said.try_get_u8().ok()? != 0;
        let value = take(&mut said)?;
        writes.push((key, is_there.then_some(value)));
    }
    Some(writes)
}

/// See the module.
pub struct BrainDoctorAbove<A> {
    pub(crate) upper: Upper<A>,
}

impl<A: Applicator> BrainDoctorAbove<A> {
    pub fn new(above: A) -> Self {
        BrainDoctorAbove {
            upper: Upper::new(above),
        }
    }

    /// What is above, for its lower half.
    pub fn above(&self) -> &A {
        &self.upper.applicator
    }
}

impl<A: Applicator> Applicator for BrainDoctorAbove<A> {
    type Return = A::Return;
    type Refusal = A::Refusal;

    fn apply(&self, tx: &mut RwTx, entry: &Entry, pos: LogPos) -> Applied<A::Return, A::Refusal> {
        self.upper.pass_over();
        match GUARD.look(tx, entry)? {
            Seen::Passing(_) => self.upper.apply(tx, entry, pos),
            Seen::Over => Ok(Answer::Own(Bytes::new())),
            Seen::Own(said) => {
                // What nobody can read changes nothing, on all replicas alike.
                let Some(writes) = decode(said) else {
                    return Ok(Answer::Own(Bytes::new()));
                };
                for (key, value) in writes {
                    match value {
                        Some(value) => tx.set(&key, value),
                        None => tx.clear(&key),
                    }
                }
                Ok(Answer::Own(Bytes::from_static(b"done")))
            }
        }
    }

    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        self.upper.post_apply(entry, pos);
    }
}

/// See the module.
pub struct BrainDoctorBelow<E> {
    pub down: E,
}

impl<E: Engine> BrainDoctorBelow<E> {
    /// Makes the writes; false if the engine is off, and nothing has changed. State that replicas keep beside the
    /// store does not hear of it.
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn operate(&self, writes: &[Write]) -> Result<bool, Lost> {
        let answer = self.down.propose(GUARD.own(&encode(writes))).await?;
        Ok(matches!(answer, Answer::Own(said) if !said.is_empty()))
    }
}

impl<E: Engine> Engine for BrainDoctorBelow<E> {
    type Return = E::Return;
    type Refusal = E::Refusal;

    fn propose(&self, entry: Entry) -> impl Future<Output = Proposed<E::Return, E::Refusal>> {
        self.down.propose(entry)
    }

    fn sync(&self) -> impl Future<Output = Result<RoTx, Lost>> {
        self.down.sync()
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        self.down.set_trim_prefix(pos);
    }
}
