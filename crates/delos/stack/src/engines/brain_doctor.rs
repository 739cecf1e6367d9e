//! Changes rows directly, past the application, on all replicas alike (§4.2 C): for emergencies.

use super::above::{Above, Rule};
use super::guard::Guard;
use crate::log::LogPos;
use crate::stack::{Answer, Applicator, Engine, Layer, Lost};
use crate::store::RwTx;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::Result;

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
#[derive(Default)]
pub struct BrainDoctor;
pub type BrainDoctorAbove<A> = Above<BrainDoctor, A>;

impl<A: Applicator> Rule<A> for BrainDoctor {
    const GUARD: Guard = GUARD;

    fn own(&self, tx: &mut RwTx, said: Bytes, _: LogPos) -> Result<Bytes> {
        // What nobody can read changes nothing, on all replicas alike.
        let Some(writes) = decode(said) else {
            return Ok(Bytes::new());
        };
        for (key, value) in writes {
            match value {
                Some(value) => tx.set(&key, value),
                None => tx.clear(&key),
            }
        }
        Ok(Bytes::from_static(b"done"))
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
    pub async fn operate(&self, writes: &[Write]) -> std::result::Result<bool, Lost> {
        let answer = self.down.propose(GUARD.own(&encode(writes))).await?;
        Ok(matches!(answer, Answer::Own(said) if !said.is_empty()))
    }
}

impl<E: Engine> Layer for BrainDoctorBelow<E> {
    type Down = E;

    fn down(&self) -> &E {
        &self.down
    }
}
