//! Transactions that are carried out again until they commit.

use crate::world::World;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_memory::Abort;
use plinth_farm_structures::{Error, Result};
use plinth_runtime::sleep;

/// Runs a transaction until it has committed. `None` if that does not help: the world is blamed, unless its memory is
/// small, and full.
pub async fn insist<T>(
    world: &World,
    engine: &Engine<Any>,
    options: Options,
    body: impl AsyncFn(&Transaction<Any>) -> Result<T>,
) -> Option<T> {
    let mut last = None;
    for _ in 0..200 {
        let tx = engine.begin(options).await.ok()?;
        let error = match body(&tx).await {
            Ok(output) => match tx.commit().await {
                Ok(_) => return Some(output),
                Err(abort) => abort.into(),
            },
            Err(error) => error,
        };
        if matches!(error, Error::Abort(abort) if world.is_excused(abort)) {
            return None;
        }
        if !error.is_retryable() {
            world.blame(error.to_string());
            return None;
        }
        last = Some(error);
        sleep(world.latency).await;
    }
    if world.is_small && last == Some(Error::Abort(Abort::Full)) {
        world.count("given up: memory is full");
        return None;
    }
    let last = last.map_or(String::new(), |error: Error| error.to_string());
    world.blame(format!(
        "a transaction does not commit, however often: {last}"
    ));
    None
}
