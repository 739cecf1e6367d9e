//! The coordinated state, for several that read and write it by turns. Each attempt has a generation of its own; where
//! somebody else's came in between, or the coordinators have moved, another one follows after a pause.

use crate::{CoordinatedState, Coordinators, Family};
use bytes::Bytes;
use plinth_core::{Error, Result, Uid};
use plinth_rpc::Transport;
use plinth_runtime::{Duration, probe, random, sleep};
use std::ops::Range;

/// See the module. It waits while no majority of the coordinators answers.
pub struct SharedState {
    transport: Transport,
    coordinators: Coordinators,
    pause_ms: Range<u64>,
}

impl SharedState {
    pub fn new(transport: &Transport, of: &Coordinators, pause_ms: Range<u64>) -> SharedState {
        SharedState {
            transport: transport.clone(),
            coordinators: of.clone(),
            pause_ms,
        }
    }

    pub fn coordinators(&self) -> &Coordinators {
        &self.coordinators
    }

    /// The line about coordinators of another system than this one, if they are.
    pub async fn not_own(&self, family: Family) -> Option<String> {
        let file = self.coordinators.file();
        let found = family.other_behind(&self.transport, &file).await?;
        Some(family.not_own(found))
    }

    fn fresh(&self) -> CoordinatedState {
        let writer = Uid(random::uid());
        CoordinatedState::new(&self.transport, &self.coordinators, writer)
    }

    /// The state, if there is one. It fences nobody unless somebody is writing: those who wait for a change would hold
    /// up the one who makes it.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read(&self) -> Result<Option<Bytes>> {
        let reading = self.attempt(async |attempt| {
            if let Some(state) = attempt.peek().await {
                return Ok(state);
            }
            probe!("shared_state_is_written");
            self.fresh().read().await
        });
        reading.await
    }

    /// Carries out `body` until nobody else comes in between.
    ///
    /// # Errors
    /// As `body`.
    pub async fn attempt<T>(
        &self,
        body: impl AsyncFn(&mut CoordinatedState) -> Result<T>,
    ) -> Result<T> {
        loop {
            match body(&mut self.fresh()).await {
                Err(Error::coordinated_state_conflict | Error::coordinators_changed) => {
                    probe!("shared_state_conflict");
                    let pause = random::range(self.pause_ms.clone());
                    sleep(Duration::from_millis(pause)).await;
                }
                outcome => return outcome,
            }
        }
    }
}
