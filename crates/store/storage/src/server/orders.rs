//! Orders from the proxies about this server's shards, each at its version.

use super::Server;
use crate::ownership::Holding;
use plinth_core::key::KeyRange;
use plinth_core::shard_order::Order;
use plinth_core::{Error, Result, Version};
use plinth_runtime::{Pace, never, planted, probe, trace};

impl Server {
    /// Reports that the server does not hold what its orders made it hold. A shard is moved only after it is complete
    /// and durable here (pitfall 20), and a server that gave one away does not hold it. So the disk has lost data.
    /// Other servers hold the shard.
    fn has_lost(&self, what: &str) -> Error {
        never!("StorageHasLostShard", "id" => self.role.id, "what" => what, "tag" => self.role.tag.0);
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
                let is_held = |(_, holding): &(_, Holding)| match holding {
                    Holding::Held { since } => *since < version,
                    _ => false,
                };
                if !pieces.iter().all(is_held) {
                    return Err(self.has_lost(&format!("{range:?} at {version}: {pieces:?}")));
                }
            }
            Order::Leave => self.leave(version, range, pace).await,
        }
        Ok(())
    }

    /// Clears the data in the range. Watches there fail, so that their clients go to the servers that hold the range
    /// now.
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
        // Before the clear, which may take a while: the range must not be fetched again meanwhile.
        self.ownership
            .borrow_mut()
            .set(version, range, Holding::Absent);
        self.clear_rows(version, &begin, &end, pace).await;
    }

    /// Undoes orders above `recovered_to`, the version at which a recovery ended the epoch: they were never given.
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

    /// Takes over parts that are stored in the engine with rows older than `version`, which is the next version to be
    /// applied. They are held from `version` on.
    pub(super) async fn take_over_parts(&self, version: Version) -> Result<()> {
        if !self.incoming.borrow().has_stored(version) {
            return Ok(());
        }
        let parts = self.incoming.borrow_mut().take_stored(version);
        // All at once: a range that is neither held nor being copied would be fetched again.
        for part in &parts {
            probe!("storage_takes_over_part");
            trace!("PartHeld", "tag" => self.role.tag.0, "version" => version, "range" => format!("{:?}", part.range));
            let held = Holding::Held { since: version };
            let mut ownership = self.ownership.borrow_mut();
            ownership.set(version, part.range.clone(), held);
        }
        let mut pace = Pace::new();
        for (_, mutation) in parts.iter().flat_map(|part| &part.queue) {
            if planted!(
                "fetch_forgets_queue",
                "a storage server takes over a range without what was written while it was copied"
            ) {
                break;
            }
            self.apply_paced(version, mutation.as_ref(), &mut pace)
                .await?;
        }
        self.fetch_wanted.notify_one();
        Ok(())
    }
}
