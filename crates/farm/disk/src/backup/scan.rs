//! Scans: all objects of a region, for the machine that becomes its primary.
//!
//! A group is read in the order of its log. What is written meanwhile, by transactions or by the cleaner, goes to the
//! end of the log and is met there. So an object may come twice, the newer version later, and none is missed.

use super::blocks::{Blocks, Version};
use super::clean::last_of_blocks;
use super::store::Store;
use crate::Error;
use crate::layout::Key;
use std::rc::Rc;

pub struct Scan {
    store: Rc<Store>,
    region: u16,
    /// What comes next: the group, the extent from this number on, the block in it.
    subregion: u32,
    sequence: u64,
    block: u32,
}

impl Scan {
    pub(super) fn new(store: Rc<Store>, region: u16) -> Scan {
        Scan {
            store,
            region,
            subregion: 0,
            sequence: 0,
            block: 0,
        }
    }

    fn next_group(&self) -> Option<Key> {
        let (region, subregion) = (self.region, self.subregion);
        let state = self.store.state.borrow();
        let next = state.groups.range(Key { region, subregion }..).next();
        next.map(|(key, _)| *key).filter(|key| key.region == region)
    }

    /// The next versions, those of freed objects among them: what is live in an extent. `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Version>>, Error> {
        while let Some(key) = self.next_group() {
            if key.subregion != self.subregion {
                (self.subregion, self.sequence, self.block) = (key.subregion, 0, 0);
            }
            if let Some(found) = self.step(key).await? {
                if !found.is_empty() {
                    return Ok(Some(found));
                }
                continue;
            }
            let Some(next) = key.subregion.checked_add(1) else {
                break;
            };
            (self.subregion, self.sequence, self.block) = (next, 0, 0);
        }
        Ok(None)
    }

    /// Reads on in a group; `None` at its end.
    async fn step(&mut self, key: Key) -> Result<Option<Vec<Version>>, Error> {
        let store = self.store.clone();
        let (local, extent) = loop {
            let state = &mut *store.state.borrow_mut();
            let found = state.groups.get(&key).map(|g| g.next_extent(self.sequence));
            let Some((local, extent)) = found.flatten() else {
                return Ok(None);
            };
            if extent.sequence > self.sequence {
                (self.sequence, self.block) = (extent.sequence, 0);
            }
            let tail = state.groups[&key].tail.as_ref();
            if tail.is_some_and(|tail| tail.local == local) {
                state.close_block(key);
            }
            let extent = state.groups[&key].extents[local].clone();
            let extent = extent.expect("just seen");
            if self.block < extent.blocks {
                break (local, extent);
            }
            self.sequence += 1;
            self.block = 0;
        };
        let mut blocks = Blocks::new(store.layout.block_bytes, self.block);
        let end = extent.blocks;
        let loaded = store.load(key, local, &extent, &mut blocks, end).await;
        let found = loaded.and_then(|()| {
            last_of_blocks(&blocks).map_err(|broken| store.damaged(extent.place, broken))
        });
        let state = store.state.borrow();
        let group = state.groups.get(&key);
        let now = group.and_then(|group| group.extents.get(local)?.as_ref());
        if now.is_none_or(|now| now.sequence != extent.sequence) {
            // It was cleaned, and its place used again: what was live there is further on.
            self.sequence += 1;
            self.block = 0;
            return Ok(Some(Vec::new()));
        }
        self.block = end;
        let mut live = found?;
        live.retain(|(number, version)| {
            let block = local as u32 * store.layout.extent_blocks + number;
            let place = store.layout.place(version.pointer);
            place.is_some_and(|place| Store::is_live(&state, &place, block))
        });
        Ok(Some(live.into_iter().map(|(_, version)| version).collect()))
    }
}
