//! What the proxies tell this server about its shards, each at its version.

use super::Server;
use crate::ownership::Holding;
use plinth_core::key::KeyRange;
use plinth_core::shard_order::Order;
use plinth_core::{Error, Result, Version};
use plinth_runtime::{Pace, fault, probe, trace, trace_warn};

impl Server {
    /// What it holds is not what its orders made it hold: whoever moves a shard waits until it is whole and durable here (pitfall
    /// 20), and a server that gave one away does not have it. Its disk has forgotten; others hold the shard.
    fn has_lost(&self, what: &str) -> Error {
        assert!(
            !plinth_runtime::nobody_has_lied(),
            "tag {} does not have what its orders say of {what}",
            self.role.tag.0
        );
        trace_warn!("StorageHasLostShard", "id" => self.role.id, "what" => what);
        Error::file_corrupt
    }

    pub(super) async fn obey(
        &self,
        version: Version,
        range: KeyRange,
        order: Order,
        pace: &mut Pace,
    ) -> Result<()> {
        trace!("ShardOrder", "tag" => self.role.tag.0, "version" => version,
            "range" => format!("{range:?}"), "order" => format!("{order:?}"));
        match order {
            Order::Hold => {
                let held = Holding::Held { since: version };
                self.ownership.borrow_mut().set(version, range, held);
            }
            Order::Fetch => {
                let pieces = self.ownership.borrow().pieces(&range.begin, &range.end);
                if pieces.iter().any(|(_, h)| *h != Holding::Absent) {
                    return Err(
                        self.has_lost(&format!("{range:?}, to fetch at {version}: {pieces:?}"))
                    );
                }
                let mut ownership = self.ownership.borrow_mut();
                ownership.set(version, range, Holding::Fetching);
                self.fetch_wanted.notify_one();
            }
            Order::Keep => {
                let pieces = self.ownership.borrow().pieces(&range.begin, &range.end);
                let is_held = |(_, holding): &(_, Holding)| matches!(holding, Holding::Held { since } if *since < version);
                if !pieces.iter().all(is_held) {
                    return Err(self.has_lost(&format!("{range:?} at {version}: {pieces:?}")));
                }
            }
            Order::Leave => self.leave(version, range, pace).await,
        }
        Ok(())
    }

    /// What lies in the range goes; who watches there is sent to those who hold it now.
    async fn leave(&self, version: Version, range: KeyRange, pace: &mut Pace) {
        if self.incoming.borrow_mut().cancel(&range) {
            probe!("storage_gives_up_fetching");
        }
        let (begin, end) = (range.begin.clone(), range.end.clone());
        let watching = self.watches.borrow_mut().remove_range(&begin, &end);
        for waiting in watching {
            probe!("storage_sends_watcher_away");
            waiting.responder.fail(Error::wrong_shard_server);
        }
        // Before the clear, which may take a while: nobody is to begin with fetching it again.
        self.ownership
            .borrow_mut()
            .set(version, range, Holding::Absent);
        self.clear_in_window(version, &begin, &end, pace).await;
    }

    /// A recovery has ended the epoch at `recovered_to`: later orders were never given.
    pub(super) fn undo_orders(&self, recovered_to: Version) {
        if self.ownership.borrow_mut().rollback(recovered_to) {
            probe!("storage_undoes_shard_order");
        }
        let ownership = self.ownership.borrow();
        let fetching = |h: &Holding| *h == Holding::Fetching;
        let wanted = |range: &KeyRange| {
            let pieces = ownership.pieces(&range.begin, &range.end);
            pieces.iter().all(|(_, holding)| fetching(holding))
        };
        self.incoming.borrow_mut().rollback(recovered_to, wanted);
        self.fetch_wanted.notify_one();
    }

    /// Parts whose rows are in the engine, and not of a later version than this server has come to, are held from `version` on, which is the next that is applied.
    pub(super) async fn take_over_parts(&self, version: Version) -> Result<()> {
        if !self.incoming.borrow().has_stored(version) {
            return Ok(());
        }
        let parts = self.incoming.borrow_mut().take_stored(version);
        // At once: a range that is neither held nor on its way would be fetched again.
        for part in &parts {
            probe!("storage_takes_over_part");
            let held = Holding::Held { since: version };
            let mut ownership = self.ownership.borrow_mut();
            ownership.set(version, part.range.clone(), held);
        }
        let mut pace = Pace::new();
        for (_, mutation) in parts.iter().flat_map(|part| &part.queue) {
            if fault::is_planted("fetch_forgets_queue") {
                break;
            }
            self.apply_to_window(version, mutation.as_ref(), &mut pace)
                .await?;
        }
        self.fetch_wanted.notify_one();
        Ok(())
    }
}
