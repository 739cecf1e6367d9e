//! What clients write about themselves, each in an object of its own, with every transaction that writes: its number.
//! So the memory tells in the end whether the last transaction of a client that has died was committed, and when.

use crate::insist::insist;
use crate::world::World;
use bytes::Bytes;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_memory::{Abort, Objects, Pointer};
use std::cell::RefCell;

#[derive(Default)]
pub struct Notes {
    objects: RefCell<Vec<Pointer>>,
}

impl Notes {
    /// Makes the object of a client. `None` if its machine has failed.
    pub async fn begin(&self, world: &World, engine: &Engine<Any>) -> Option<Pointer> {
        let made = insist(world, engine, Options::default(), async |tx| {
            Ok(tx.allocate(8, Pointer::NULL).await?)
        });
        let at = made.await?;
        self.objects.borrow_mut().push(at);
        Some(at)
    }

    pub async fn write(&self, tx: &Transaction<Any>, at: Pointer, id: u64) -> Result<(), Abort> {
        tx.write(at, Bytes::copy_from_slice(&id.to_le_bytes()))
            .await
    }

    /// When the transaction was committed, if it was the last of its client. `read` shows the timestamp and the
    /// payload of an object.
    pub fn find(&self, id: u64, read: impl Fn(Pointer) -> Option<(u64, Vec<u8>)>) -> Option<u64> {
        let objects = self.objects.borrow();
        let mut found = objects.iter().filter_map(|at| read(*at));
        let found = found.find(|(_, payload)| payload.starts_with(&id.to_le_bytes()));
        found.map(|(written_at, _)| written_at)
    }
}
