//! The backup of the simulated service: what is restored from it has the rows of the replicas.

use super::shelf::{self, SHELF};
use super::{CACHE_BYTES, Delos, KIND};
use crate::backup::restore::{copy_rows, plan};
use crate::engines::log_backup;
use crate::replica::messages::{AskBackup, AskChecksum, BackUp, BackupStatus, MarkLog};
use crate::stacks::make_new;
use crate::store::LocalStore;
use plinth_core::EngineKind;
use plinth_runtime::random;
use plinth_runtime::{Duration, now, probe, sleep, trace};
use plinth_workload::Verdict;
use std::cell::Cell;
use std::path::Path;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// When all is well, what was marked is in the backup so long after the time that it may wait, even if those who have
/// bid for it are gone.
const LIMIT: Duration = Duration::from_secs(150);

/// What the operator remembers of the backup.
#[derive(Default)]
pub struct Remembered {
    /// The first position that could be restored.
    from: Cell<Option<u64>>,
    /// The engine was switched off: entries may be gone that are in no backup.
    may_begin_anew: Cell<bool>,
}

impl Remembered {
    pub fn is_switched_off(&self) {
        self.may_begin_anew.set(true);
    }
}

impl Delos {
    pub fn may_back_up(&self) -> bool {
        self.never_on
            .is_none_or(|of| of.name != log_backup::GUARD.name)
    }

    /// Begins the backup, or goes on with it.
    pub async fn back_up(&self) {
        if !self.may_back_up() {
            return;
        }
        trace!("DelosBacksUp");
        let place = SHELF.into();
        let told = self.ask(self.any_server(), BackUp { place }).await;
        if told.is_some_and(|told| told.refused.is_empty()) {
            probe!("delos_backup_begun");
        }
    }

    /// What a replica knows of the backup. Nothing is trimmed that is not in it, so it goes on for ever while its
    /// engine is on.
    pub async fn look_at_backup(&self) -> Option<BackupStatus> {
        let status = self.ask(self.any_server(), AskBackup {}).await?;
        let (known, from) = (self.backup.from.get(), status.from);
        let is_other = known.is_some() && from.is_some() && from != known;
        if is_other && !self.backup.may_begin_anew.get() {
            self.judge.complain(format!(
                "the backup began at {known:?}, begins at {from:?} now, and its engine was never off"
            ));
        }
        self.backup.from.set(from.or(known));
        Some(status)
    }

    /// A position with the checksum that a replica has there.
    async fn mark(&self) -> Option<(u64, u64)> {
        let server = self.any_server();
        let told = self.ask(server, MarkLog {}).await?;
        let mark = told.pos;
        let said = self.ask(server, AskChecksum { mark }).await?;
        Some((mark, said.checksum?))
    }

    /// Waits until the backup goes beyond a mark. `None` if it is off.
    async fn marked_in_backup(&self) -> Result<Option<(u64, u64)>, String> {
        let (begun, mut marked, mut server) = (now(), None, self.any_server());
        while begun.elapsed() < LIMIT + log_backup::wait() {
            sleep(LOOK_INTERVAL).await;
            let Some(status) = self.look_at_backup().await else {
                continue;
            };
            if status.place.is_empty() {
                return Ok(None);
            }
            match marked {
                Some((mark, _)) if status.next > mark => return Ok(marked),
                // Without requests, a segment may wait for longer.
                Some(_) => drop(self.write(&mut server).await),
                // One before the begin of the backup is of no use.
                None if status.from.is_some() => marked = self.mark().await,
                None => {}
            }
        }
        Err("the backup does not go on".into())
    }

    /// Restores the service as it was at a mark.
    ///
    /// # Errors
    /// It has other rows, or cannot be restored.
    pub async fn check_backup(&self) -> Verdict {
        shelf::become_good();
        let Some((mark, checksum)) = self.marked_in_backup().await? else {
            return Ok(());
        };
        // The manifest is written after the log knows of the segment.
        let from = shelf::open(SHELF)?;
        let begun = now();
        let plan = loop {
            match plan(from.as_ref(), Some(mark)).await {
                Ok(plan) => break plan,
                Err(line) if begun.elapsed() > LIMIT => return Err(line),
                Err(_) => sleep(LOOK_INTERVAL).await,
            }
        };
        let path = format!("/restored-{}", random::u64());
        let failed = |error| format!("the restored store: {error}");
        let engine = plinth_engine::open(EngineKind::Memory, Path::new(&path), true, CACHE_BYTES);
        let engine = engine.await.map_err(failed)?;
        copy_rows(from.as_ref(), &plan, &engine, "restored").await?;
        let store = LocalStore::open(engine).map_err(failed)?;
        (KIND.play)(from.as_ref(), &plan, &store).await?;
        if (store.applied(), store.checksum()) != (mark, checksum) {
            return Err(format!(
                "what is restored to position {mark} has checksum {:x} at {}, and a replica had {checksum:x}",
                store.checksum(),
                store.applied()
            ));
        }
        probe!("delos_service_restored");
        make_new(&store, 1).map_err(failed)
    }
}
