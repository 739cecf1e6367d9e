//! What clients write about themselves, each in an object of its own, with every transaction that writes: its number.
//! So the memory tells in the end whether the last transaction of a client that has died was committed, and when.

use crate::insist::insist;
use crate::world::World;
use bytes::Bytes;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_memory::{Abort, Objects, Pointer};
use std::cell::RefCell;

/// The number of the transaction, and its snapshot.
const NOTE_BYTES: usize = 16;

/// What a note tells of a transaction that was committed.
pub struct Told {
    pub read_at: u64,
    pub written_at: u64,
}

#[derive(Default)]
pub struct Notes {
    objects: RefCell<Vec<Pointer>>,
}

impl Notes {
    /// Makes the object of a client. `None` if its machine has failed.
    pub async fn begin(&self, world: &World, engine: &Engine<Any>) -> Option<Pointer> {
        let made = insist(world, engine, Options::default(), async |tx| {
            Ok(tx.allocate(NOTE_BYTES, Pointer::NULL).await?)
        });
        let at = made.await?;
        self.objects.borrow_mut().push(at);
        Some(at)
    }

    /// What is known of the transaction, if it was committed and was the last of its client. `read` shows the
    /// timestamp and the payload of an object.
    pub fn find(&self, id: u64, read: impl Fn(Pointer) -> Option<(u64, Vec<u8>)>) -> Option<Told> {
        let objects = self.objects.borrow();
        let mut found = objects.iter().filter_map(|at| read(*at));
        let found = found.find(|(_, payload)| payload.starts_with(&id.to_le_bytes()));
        let (written_at, payload) = found?;
        let read_at = u64::from_le_bytes(payload.get(8..NOTE_BYTES)?.try_into().ok()?);
        Some(Told {
            read_at,
            written_at,
        })
    }
}

pub async fn write(tx: &Transaction<Any>, at: Pointer, id: u64) -> Result<(), Abort> {
    let payload = [id.to_le_bytes(), tx.read_at().to_le_bytes()].concat();
    tx.write(at, Bytes::from(payload)).await
}
