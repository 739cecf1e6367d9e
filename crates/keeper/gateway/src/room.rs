//! Memory of the cache that requests with several reads reserve before they load.
//!
//! What such a request needs must be in memory at the same time. So it says how much that may be, waits until there is
//! room for it, and pins its nodes. All pins together take no more than the cache may have, or the longest answer.
//! Nobody who has reserved something waits for more: who needs more lets go and begins again.

use crate::ANSWER_BYTES_MAX;
use crate::paths;
use crate::wire::Request;
use plinth_runtime::probe;
use plinth_runtime::sync::{Permits, Watch};
use std::collections::BTreeSet;

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

    /// Waits until so many bytes are free, of at most [`Room::most`].
    pub async fn reserve(&self, bytes: usize) {
        let most = self.most();
        let has_room = |reserved: &usize| reserved.saturating_add(bytes) <= most;
        let _turn = self.turns.take().await;
        if !self.reserved.with(has_room) {
            probe!("keeper_multi_read_waits_for_memory");
        }
        self.reserved.wait_until(has_room).await;
        self.reserved.update(|reserved| *reserved += bytes);
    }

    pub fn give_back(&self, bytes: usize) {
        self.reserved.update(|reserved| {
            assert!(
                *reserved >= bytes,
                "{bytes} of {reserved} bytes are given back"
            );
            *reserved -= bytes;
        });
    }
}

/// Of several reads those that look at something new. What is asked for again takes no more memory.
pub fn once<'a>(reads: impl IntoIterator<Item = &'a Request>) -> Vec<&'a Request> {
    let mut seen = BTreeSet::new();
    let mut is_new = |read: &'a Request| looks_at(read).is_none_or(|of| seen.insert(of));
    reads.into_iter().filter(|read| is_new(read)).collect()
}

/// What is in memory for it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Node,
    Data,
    Children,
}

fn looks_at(read: &Request) -> Option<(&str, Part)> {
    let (path, part) = match read {
        Request::Exists { path, .. } => (path, Part::Node),
        Request::GetData { path, .. } => (path, Part::Data),
        Request::GetChildren { path, .. } | Request::GetChildren2 { path, .. } => {
            (path, Part::Children)
        }
        _ => return None,
    };
    Some((paths::named(path), part))
}
