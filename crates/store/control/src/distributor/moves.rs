//! How much data is on its way to other servers, for the status document.

use super::plan::{Step, World};
use plinth_core::Key;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Moves {
    /// Bytes of the shards that move, by their begin.
    moving: BTreeMap<Key, u64>,
    moved_bytes: u64,
}

impl Moves {
    /// Looks which shards move, and forgets those that do not: their moves were ended elsewhere. Moves that are `busy`
    /// may have begun or ended since the look.
    pub fn see(&mut self, world: &World, busy: &BTreeSet<Key>) {
        let moving = world
            .shards
            .iter()
            .filter(|shard| !shard.destination.is_empty());
        let seen: BTreeMap<Key, u64> = moving
            .map(|shard| (shard.range.begin.clone(), shard.bytes))
            .collect();
        self.moving
            .retain(|begin, _| busy.contains(begin) || seen.contains_key(begin));
        self.moving.extend(seen);
    }

    pub fn begin(&mut self, begin: Key, bytes: u64) {
        self.moving.insert(begin, bytes);
    }

    pub fn end(&mut self, begin: &Key, is_done: bool) {
        let bytes = self.moving.remove(begin).unwrap_or(0);
        self.moved_bytes += if is_done { bytes } else { 0 };
    }

    /// Bytes that are on their way, and bytes that have arrived since the distributor started.
    pub fn bytes(&self) -> (u64, u64) {
        (self.moving.values().sum(), self.moved_bytes)
    }
}

/// Bytes of the shard that a step moves.
pub(super) fn bytes_of(step: &Step, world: &World) -> u64 {
    let Step::Move { range, .. } = step else {
        return 0;
    };
    let place = world
        .shards
        .partition_point(|shard| shard.range.begin < range.begin);
    world.shards.get(place).map_or(0, |shard| shard.bytes)
}
