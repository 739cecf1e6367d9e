//! Memory of the cache that requests with several reads reserve before they load.
//!
//! What such a request needs must be in memory at the same time. So it says how much that may be, waits until there is
//! room for it, and pins its nodes. All pins together take no more than the cache may have, and the longest answer.
//! Nobody who has reserved something waits for more: who needs more lets go and begins again.

use crate::ANSWER_BYTES_MAX;
use crate::replica::Replica;
use crate::wire::Text;
use plinth_runtime::probe;
use plinth_runtime::sync::{Permits, Watch};
use std::rc::Rc;

pub struct Room {
    cache_bytes_max: usize,
    reserved: Watch<usize>,
    /// Who came first waits first: no large request waits for ever.
    turns: Permits,
}

impl Room {
    pub fn new(cache_bytes_max: usize) -> Room {
        Room {
            cache_bytes_max,
            reserved: Watch::new(0),
            turns: Permits::new(1),
        }
    }

    /// The most that a request may reserve.
    pub fn most(&self) -> usize {
        self.cache_bytes_max.max(ANSWER_BYTES_MAX.get())
    }

    async fn reserve(&self, bytes: usize) {
        let most = self.most();
        let has_room = |reserved: &usize| reserved.saturating_add(bytes) <= most;
        let _turn = self.turns.take().await;
        if !self.reserved.with(has_room) {
            probe!("keeper_multi_read_waits_for_memory");
        }
        self.reserved.wait_until(has_room).await;
        self.reserved.update(|reserved| *reserved += bytes);
    }
}

/// Nodes that stay in memory, within what was reserved for them.
pub struct Reserved {
    replica: Rc<Replica>,
    pub bytes: usize,
    paths: Vec<Text>,
}

impl Reserved {
    /// Waits until `bytes` are free, of at most [`Room::most`].
    pub async fn take(replica: Rc<Replica>, paths: Vec<Text>, bytes: usize) -> Reserved {
        replica.room.reserve(bytes).await;
        paths.iter().for_each(|path| replica.pin(path));
        Reserved {
            replica,
            bytes,
            paths,
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let reserved = &self.replica.room.reserved;
        self.paths.iter().for_each(|path| self.replica.unpin(path));
        reserved.update(|reserved| *reserved -= self.bytes);
    }
}
