//! What the proxies tell this server about its shards, each at its version.

use super::Server;
use crate::ownership::Holding;
use plinth_core::key::KeyRange;
use plinth_core::shard_order::Order;
use plinth_core::{Error, Mutation, Result, Version};
use plinth_runtime::{fault, probe, trace};

impl Server {
    pub(super) fn obey(&self, version: Version, range: KeyRange, order: Order) -> Result<()> {
        trace!("ShardOrder", "tag" => self.role.tag.0, "version" => version,
            "range" => format!("{range:?}"), "order" => format!("{order:?}"));
        match order {
            Order::Hold => {
                let held = Holding::Held { since: version };
                self.ownership.borrow_mut().set(version, range, held);
            }
            Order::Fetch => {
                let pieces = self.ownership.borrow().pieces(&range.begin, &range.end);
                assert!(
                    pieces.iter().all(|(_, h)| *h == Holding::Absent),
                    "tag {} is to fetch {range:?} at {version}, of which it has {pieces:?}",
                    self.role.tag.0
                );
                let mut ownership = self.ownership.borrow_mut();
                ownership.set(version, range, Holding::Fetching);
                self.fetch_wanted.notify_one();
            }
            Order::Keep => {
                let pieces = self.ownership.borrow().pieces(&range.begin, &range.end);
                // Whoever moves a shard waits until it is whole and durable here (pitfall 20).
                assert!(
                    pieces
                        .iter()
                        .all(|(_, h)| matches!(h, Holding::Held { since } if *since < version)),
                    "tag {} is the holder of {range:?} from {version} on, but has {pieces:?}",
                    self.role.tag.0
                );
            }
            Order::Leave => self.leave(version, range)?,
        }
        Ok(())
    }

    /// What lies in the range goes; who watches there is sent to those who hold it now.
    fn leave(&self, version: Version, range: KeyRange) -> Result<()> {
        if self.incoming.borrow_mut().cancel(&range) {
            probe!("storage_gives_up_fetching");
        }
        let (begin, end) = (&range.begin[..], &range.end[..]);
        let clear = Mutation::clear_range(range.begin.clone(), range.end.clone());
        self.window
            .borrow_mut()
            .apply(version, clear.as_ref(), |key| self.engine.get(key))?;
        let watching = self.watches.borrow_mut().remove_range(begin, end);
        for waiting in watching {
            probe!("storage_sends_watcher_away");
            waiting.responder.fail(Error::wrong_shard_server);
        }
        let mut ownership = self.ownership.borrow_mut();
        ownership.set(version, range, Holding::Absent);
        Ok(())
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
    pub(super) fn take_over_parts(&self, version: Version) -> Result<()> {
        if !self.incoming.borrow().has_stored(version) {
            return Ok(());
        }
        let parts = self.incoming.borrow_mut().take_stored(version);
        for part in parts {
            probe!("storage_takes_over_part");
            let mut window = self.window.borrow_mut();
            for (_, mutation) in &part.queue {
                if fault::is_planted("fetch_forgets_queue") {
                    break;
                }
                window.apply(version, mutation.as_ref(), |key| self.engine.get(key))?;
            }
            let held = Holding::Held { since: version };
            self.ownership.borrow_mut().set(version, part.range, held);
        }
        self.fetch_wanted.notify_one();
        Ok(())
    }
}
