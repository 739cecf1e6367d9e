//! What was found damaged, kept in [its file](kept).

use super::SsdEngine;
use crate::damage::kept;
use crate::failure::forgets_what_was_refused;
use plinth_core::{Error, Result};
use plinth_runtime::{Duration, probe};

/// Pause between two tries to write that down while the disk is full.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

impl SsdEngine {
    /// Writes down what is damaged, before it is refused for the first time. On a full disk it is tried again until
    /// there is room.
    pub(super) async fn keep_damage(&self) -> Result<()> {
        if !self.is_unkept.get() || forgets_what_was_refused() {
            return Ok(());
        }
        match self.try_to_keep_damage().await {
            Err(Error::disk_full) => {
                probe!("ssd_engine_has_no_room_for_what_is_damaged");
                let engine = self.this.clone();
                let keeping = plinth_runtime::spawn("keep damage", async move {
                    loop {
                        plinth_runtime::sleep(KEEP_AGAIN).await;
                        let Some(engine) = engine.upgrade() else {
                            return;
                        };
                        match engine.try_to_keep_damage().await {
                            Err(Error::disk_full) => {}
                            _ => return,
                        }
                    }
                });
                keeping.detach();
                Ok(())
            }
            kept => kept,
        }
    }

    async fn try_to_keep_damage(&self) -> Result<()> {
        let damaged = self.damaged.borrow().clone();
        kept::write(&self.damage_file, &damaged).await?;
        let is_all = *self.damaged.borrow() == damaged;
        self.is_unkept.set(!is_all);
        Ok(())
    }
}
