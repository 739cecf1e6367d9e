//! An object that is freed twice: whoever does so is told, and nobody reads what is no object any more.

use crate::insist::insist;
use crate::world::World;
use bytes::Bytes;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_runtime::random;

/// Makes an object, and frees it twice in one transaction, and once more in a later one.
pub async fn free_twice(world: &World, engine: &Engine<Any>) {
    let mark = [random::u64().to_le_bytes(); 2].concat();
    let options = Options::default();
    let made = insist(world, engine, options, async |tx| {
        let at = tx.allocate(mark.len(), Pointer::NULL).await?;
        tx.write(at, Bytes::copy_from_slice(&mark)).await?;
        Ok(at)
    });
    let Some(at) = made.await else { return };
    let freed = insist(world, engine, options, async |tx| {
        tx.free(at).await?;
        match tx.free(at).await {
            Err(Abort::NotAllocated) => Ok(()),
            Err(abort) => Err(abort.into()),
            Ok(()) => {
                world.blame(format!("{at:?} is freed twice in one transaction"));
                Ok(())
            }
        }
    });
    if freed.await.is_none() {
        return;
    }
    let tx = match engine.begin(options).await {
        Ok(tx) => tx,
        Err(abort) => return world.aborted(abort),
    };
    match free_again(&tx, at).await {
        Ok(Found::Nothing) => match tx.commit().await {
            Ok(_) => world.count("freed twice"),
            Err(abort) => world.aborted(abort),
        },
        Ok(Found::Object(payload)) if payload.starts_with(&mark) => {
            world.blame(format!("{at:?} was freed, and is read"));
        }
        Ok(Found::Object(_)) => world.count("memory of a freed object is another's"),
        Ok(Found::Freed) => world.blame(format!("{at:?} was freed, and is freed again")),
        Err(abort) => world.aborted(abort),
    }
}

enum Found {
    Nothing,
    Object(Bytes),
    /// There is nothing, and yet it could be freed.
    Freed,
}

async fn free_again(tx: &Transaction<Any>, at: Pointer) -> Result<Found, Abort> {
    if let Some(payload) = tx.read_if_there(at).await? {
        return Ok(Found::Object(payload));
    }
    match tx.free(at).await {
        Ok(()) => Ok(Found::Freed),
        Err(Abort::NotAllocated) => Ok(Found::Nothing),
        Err(abort) => Err(abort),
    }
}
