//! Cleaning: what is live in an extent is copied to the end of its group's log, and the extent is free when a sync has
//! said so. A freed object is live as well: its last version hides those before it, wherever they still lie. All of
//! that goes when its slab is freed.

use super::blocks::{Blocks, Broken, Item, Version};
use super::group::Extent;
use super::store::{State, Store, Wish};
use crate::layout::{Key, Place};
use crate::{BACKUP_CLEAN_BELOW, BACKUP_CLEAN_BYTES_PER_SECOND, Error};
use plinth_core::hash::HashMap;
use plinth_runtime::{Duration, Pace, planted, probe, sleep};
use std::rc::Rc;

/// With so little live data an extent is worth cleaning when there is no room otherwise.
const ROOM_BELOW: f64 = 0.9;
/// A cleaner with nothing to do looks again after this time.
const IDLE: Duration = Duration::from_secs(1);

/// The versions in some blocks that no later one in the same block replaces, with the numbers of their blocks.
pub fn last_of_blocks(blocks: &Blocks) -> Result<Vec<(u32, Version)>, Broken> {
    let mut all: Vec<(u32, Version)> = Vec::new();
    let mut places: HashMap<(u32, u64), usize> = HashMap::default();
    for item in blocks.walk() {
        match item? {
            (number, Item::Whole(version)) => {
                let place = (number, version.pointer.bits());
                match places.insert(place, all.len()) {
                    Some(former) => {
                        all[former] = (number, version);
                        places.insert(place, former);
                    }
                    None => all.push((number, version)),
                }
            }
            (number, Item::Cut(..)) => return Err(Broken(number)),
        }
    }
    Ok(all)
}

impl Store {
    /// The extent with the least live data, as a share of what it could have, if that is below `below`.
    fn victim(&self, below: f64, within: Option<Key>) -> Option<(Key, usize, Extent)> {
        let state = self.state.borrow();
        let capacity = self.layout.extent_capacity() as f64;
        let mut best: Option<(f64, Key, usize)> = None;
        for (key, group) in &state.groups {
            if within.is_some_and(|within| within != *key) {
                continue;
            }
            let tail = group.tail.as_ref().map(|tail| tail.local);
            for (local, extent) in group.extents.iter().enumerate() {
                let Some(extent) = extent.as_ref().filter(|e| !e.is_freed) else {
                    continue;
                };
                let share = extent.live_bytes() as f64 / capacity;
                let is_better = best.is_none_or(|(least, ..)| share < least);
                if tail != Some(local) && share < below && is_better {
                    best = Some((share, *key, local));
                }
            }
        }
        let (_, key, local) = best?;
        let extent = state.groups[&key].extents[local].clone();
        Some((key, local, extent.expect("just seen")))
    }

    /// True if the newest version of the object at `place` begins in this block.
    pub fn is_live(state: &State, place: &Place, block: u32) -> bool {
        let group = state.groups.get(&place.key);
        group.is_some_and(|group| group.block_of(place) == Some(block))
    }

    /// Cleans one extent. False if there is none that is worth it.
    pub async fn clean(self: &Rc<Self>, below: f64, within: Option<Key>) -> Result<bool, Error> {
        let _permit = self.cleaning.take().await;
        let Some((key, local, extent)) = self.victim(below, within) else {
            return Ok(false);
        };
        if extent.live > 0 {
            self.copy_live(key, local, &extent).await?;
        }
        let state = &mut *self.state.borrow_mut();
        // The region may have been dropped meanwhile.
        let found = state.groups.get_mut(&key);
        let found = found.filter(|g| g.extents.get(local).is_some_and(Option::is_some));
        if let Some(group) = found
            && group.extent_mut(local).sequence == extent.sequence
            && !group.extent_mut(local).is_freed
        {
            let tail = group.tail.as_ref().map(|tail| tail.local);
            let freed = group.extent_mut(local);
            assert!(
                freed.live == 0 && tail != Some(local),
                "the cleaner has left something behind: {freed:?}, and the tail is {tail:?}"
            );
            freed.is_freed = true;
            group.changes += 1;
            if planted!(
                "farm_disk_reuses_before_sync",
                "the place of a cleaned extent is written to before the copies are on disk"
            ) {
                let place = group.extents[local].take().map(|extent| extent.place);
                state.free.extend(place);
            }
        }
        Ok(true)
    }

    /// A planted fault: does not copy what has to be copied.
    fn is_left(state: &State, version: &Version) -> bool {
        let is_recent = state.versions.get(version.pointer.bits()).is_some();
        planted!(
            "farm_disk_cleans_newest",
            "the cleaner takes versions below the safe point for old ones"
        ) && !is_recent
            || planted!(
                "farm_disk_forgets_freed",
                "the cleaner does not copy that an object was freed"
            ) && !version.is_allocated
    }

    async fn copy_live(
        self: &Rc<Self>,
        key: Key,
        local: usize,
        extent: &Extent,
    ) -> Result<(), Error> {
        probe!("farm_disk_cleans");
        let mut blocks = Blocks::new(self.layout.block_bytes, 0);
        self.load(key, local, extent, &mut blocks, extent.blocks)
            .await?;
        let all = last_of_blocks(&blocks).map_err(|broken| self.damaged(extent.place, broken))?;
        let mut pace = Pace::new();
        for (number, version) in all {
            let Some(place) = self.layout.place(version.pointer) else {
                return Err(self.damaged(extent.place, Broken(number)));
            };
            let block = local as u32 * self.layout.extent_blocks + number;
            let decide = |state: &mut State| {
                if !Self::is_live(state, &place, block) {
                    return Ok(Wish::Leave);
                }
                if Self::is_left(state, &version) {
                    let group = state.groups.get_mut(&key).expect("it has the object");
                    group.forget_object(&self.layout, &place);
                    return Ok(Wish::Leave);
                }
                Ok(Wish::Append)
            };
            self.append(&version, &place, true, decide).await?;
            self.flush_if_much().await?;
            pace.rest_if_over().await;
        }
        Ok(())
    }

    /// Makes room where there is none, at best in this group. False if there is nothing to clean.
    pub async fn make_room(self: &Rc<Self>, key: Key) -> Result<bool, Error> {
        let cleaned =
            self.clean(ROOM_BELOW, Some(key)).await? || self.clean(ROOM_BELOW, None).await?;
        if cleaned {
            self.sync().await?;
        }
        Ok(cleaned)
    }

    /// Cleans in the background, at the pace of the knob, until the disk fails.
    pub async fn clean_forever(self: &Rc<Self>) -> Error {
        loop {
            let pause = match self.clean(BACKUP_CLEAN_BELOW.get(), None).await {
                Ok(true) => {
                    let bytes = self.layout.extent_bytes() as f64;
                    Duration::from_secs_f64(bytes / BACKUP_CLEAN_BYTES_PER_SECOND.get() as f64)
                }
                Ok(false) => IDLE,
                Err(error) if error.is_full() => match self.sync().await {
                    Err(error) if !error.is_full() => return error,
                    _ => IDLE,
                },
                Err(error) => return error,
            };
            sleep(pause).await;
        }
    }
}
