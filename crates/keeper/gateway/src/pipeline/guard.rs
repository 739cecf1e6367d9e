//! Whether somebody who is no gateway writes to the tree's rows.
//!
//! Gateways write rows without conflicts, and say what they rely on by locks, whose keys are behind those of all
//! rows. So a transaction that conflicts with every row, and with no lock, is refused only because of somebody else.
//! At every third beat a gateway commits such a one, which has nothing else. It reads at the version of the one
//! before, so no write is missed while the database keeps what it needs for that, five seconds. Clients' batches carry
//! nothing for it.
//!
//! The record is not among these rows: of gateways that begin at the same time, all but one are refused the making of
//! the tree, and a resolver may have taken it for written. It is looked at when the replica moves on (catch_up.rs).
//!
//! Who counts a quota's nodes does conflict with changes of them (commit.rs): nodes are not watched while there are
//! quotas.
//!
//! A gateway that is told so begins another life: what it remembers may not be what the rows say any more.

use super::Pipeline;
use crate::BEAT_MS;
use crate::tree::rows::Lock;
use crate::writes::Writes;
use plinth_core::{Error, Result, Version};
use plinth_runtime::{Duration, planted, probe, sleep, trace_warn};

/// Beats between two looks: a stranger's write is seen within a second.
const BEATS: u32 = 3;

impl Pipeline {
    /// Ends when the gateway is lost.
    pub(super) async fn guard(&self) {
        let mut since = Some(self.replica.version());
        while !self.is_lost() {
            sleep(BEATS * Duration::from_millis(BEAT_MS.get())).await;
            match self.look_for_others(since).await {
                Ok(Some(version)) => since = Some(version),
                Ok(None) => {
                    probe!("keeper_rows_written_by_others");
                    let tree = String::from_utf8_lossy(self.stream.name()).into_owned();
                    trace_warn!("KeeperTreeTouched", "gateway" => self.gateway, "tree" => tree);
                    self.lose("somebody who is no gateway has written to its tree's rows");
                }
                // What was written meanwhile is not seen; that the tree is gone is seen without this.
                Err(Error::transaction_too_old) => since = None,
                Err(_) => {} // the next look begins at the same version
            }
        }
    }

    /// The version through which nobody else has written; `None` if somebody has.
    async fn look_for_others(&self, since: Option<Version>) -> Result<Option<Version>> {
        let has_quotas = || {
            let has_changed = since.is_some_and(|since| self.quotas_changed.get() > since);
            has_changed || !self.replica.quotas.borrow().is_empty()
        };
        let mut with_nodes = !has_quotas();
        loop {
            match self.ask(since, with_nodes).await {
                Ok(version) => return Ok(Some(version)),
                Err(Error::not_committed) if with_nodes => {
                    // Another gateway may have made the first quota, and counted.
                    let _ = self.refreshed().await;
                    if !has_quotas() {
                        return Ok(None);
                    }
                    with_nodes = false;
                }
                Err(Error::not_committed) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// The version of a commit that conflicts with rows that were written after `since`.
    async fn ask(&self, since: Option<Version>, with_nodes: bool) -> Result<Version> {
        let transaction = self.database.create_transaction();
        match since {
            Some(since) => transaction.set_read_version(since),
            None => {
                transaction.get_read_version().await?;
            }
        }
        let is_overlooked = planted!(
            "keeper_foreign_write_unseen",
            "a gateway does not ask whether others write to its tree's rows"
        );
        let rows = &self.replica.rows;
        for range in rows.but_the_record(with_nodes) {
            if !is_overlooked {
                transaction.add_read_conflict_range(range.begin, range.end);
            }
        }
        // Without a write nothing would be asked.
        transaction.add_write_conflict_key(rows.lock(Lock::Guard, self.gateway));
        transaction.commit().await?;
        Ok(transaction.get_committed_version())
    }
}
