//! Backups on disk: the newest version of each object of some regions, in a log (§4.9).
//!
//! ```text
//! region ─ subregion: a group of extents
//!             │
//!   redirection map   slab ─▶ object ─▶ number of the block where its newest version begins     1 or 2 bytes
//!   version map       object ─▶ timestamp, while it is not below the safe point
//!             │
//!   image     extent │ extent │ …   each of one group, filled block by block; any place of the image can be any
//!                                   extent of any group
//!   manifest  which extents are in use, and how many blocks of each are on disk
//! ```
//!
//! What [`Backup::apply`] takes is in the log's end, in memory. It is durable when a [`Backup::sync`] that began later
//! has returned: its proof is what [`Journal::truncate_below`](crate::Journal::truncate_below) wants. After a crash
//! the backup is what it was at the last sync that has come to its end, or a later one; the caller applies again what
//! its journal has, in any order. Blocks that the manifest does not list are not read; a block that it lists and that
//! is not what was written is damage. Every call may be left in the middle.

pub mod blocks;
mod clean;
mod group;
pub(crate) mod manifest;
mod maps;
mod open;
mod scan;
mod store;
mod sync;

pub use scan::Scan;

use crate::Error;
use crate::layout::{Layout, Place};
use blocks::{Blocks, Item, TIMESTAMP_END, Version};
use plinth_farm_memory::{Class, Pointer};
use plinth_runtime::disk::Synced;
use plinth_runtime::{planted, probe};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use store::{State, Store, Wish};

/// What became of the versions of one [`Backup::apply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Are the newest ones of their objects now.
    pub taken: usize,
    /// Were there already, or newer ones were.
    pub older: usize,
    /// Are below the safe point, so they were there already. Only what a journal has kept can be.
    pub settled: usize,
}

/// Figures of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Objects that it has a version of.
    pub objects: u64,
    /// Bytes of memory of the redirection maps.
    pub map_bytes: usize,
    /// Entries of the version map.
    pub versions: usize,
    /// Extents in use, and those of the image that are not.
    pub extents: usize,
    pub free_extents: usize,
    /// About how many bytes are live.
    pub live_bytes: u64,
    pub image_bytes: u64,
}

/// The backups of a machine; clones are the same.
#[derive(Clone)]
pub struct Backup(Rc<Store>);

impl Backup {
    /// Opens the backups in a directory, or makes empty ones there. `id` tells them from others. One process at a time
    /// may have them; another one waits for a while, and gets an error then.
    pub async fn open(directory: &Path, id: u64, layout: Layout) -> Result<Backup, Error> {
        open::open(directory, id, layout).await.map(Backup)
    }

    /// Applies versions that committed transactions have written, in any order. Of an object the one with the greatest
    /// timestamp counts, and what was applied before may come again.
    ///
    /// After an error, some of them were applied, and the rest were not; all may be applied again. `Full`: there is no
    /// room, and nothing to clean either. `Refused`: a version of no object that could be there.
    pub async fn apply(&self, versions: &[Version]) -> Result<Applied, Error> {
        self.put(versions, wish).await
    }

    /// The same with versions that a new replica has copied from another one. They may be below the safe point, and
    /// were not here before.
    pub async fn copy(&self, versions: &[Version]) -> Result<Applied, Error> {
        self.put(versions, wish_of_copy).await
    }

    async fn put(
        &self,
        versions: &[Version],
        wish: fn(&State, &Place, &Version) -> Result<Wish, Error>,
    ) -> Result<Applied, Error> {
        let mut applied = Applied::default();
        for version in versions {
            let place = self.check(version)?;
            self.0.flush_if_much().await?;
            let mut tries = 0;
            loop {
                let mut is_settled = false;
                let decide = |state: &mut State| {
                    is_settled = version.timestamp < state.safe_point;
                    wish(state, &place, version)
                };
                match self.0.append(version, &place, false, decide).await {
                    Ok(true) => applied.taken += 1,
                    Ok(false) if is_settled => applied.settled += 1,
                    Ok(false) => applied.older += 1,
                    Err(full) if full.is_full() => {
                        tries += 1;
                        let is_hopeless = tries > 2 * self.0.layout.group_extents;
                        if is_hopeless || !self.0.make_room(place.key).await? {
                            return Err(full);
                        }
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                break;
            }
        }
        Ok(applied)
    }

    fn check(&self, version: &Version) -> Result<Place, Error> {
        let pointer = version.pointer;
        let place = self.0.layout.place(pointer);
        let place =
            place.ok_or_else(|| Error::refused(format!("no object begins at {pointer:?}")))?;
        if version.payload.len() > pointer.class().payload_bytes() {
            let bytes = version.payload.len();
            return Err(Error::refused(format!("{bytes} bytes for {pointer:?}")));
        }
        if !(1..TIMESTAMP_END).contains(&version.timestamp) {
            let timestamp = version.timestamp;
            return Err(Error::refused(format!("{timestamp} is no timestamp")));
        }
        Ok(place)
    }

    /// The newest version of an object; `None` if there is none. It takes one read of the disk, or two if the object
    /// goes on in another block than the one that it begins in.
    pub async fn read(&self, pointer: Pointer) -> Result<Option<Version>, Error> {
        let store = &self.0;
        let Some(place) = store.layout.place(pointer) else {
            return Ok(None);
        };
        loop {
            let found = {
                let state = store.state.borrow();
                let group = state.groups.get(&place.key);
                let block = group.and_then(|group| group.block_of(&place));
                block.map(|block| {
                    let local = (block / store.layout.extent_blocks) as usize;
                    let extent = state.groups[&place.key].extents[local].clone();
                    (block, local, extent.expect("it has a live version"))
                })
            };
            let Some((block, local, extent)) = found else {
                return Ok(None);
            };
            let read = self.read_in(&place, pointer, block, local, &extent).await;
            let state = store.state.borrow();
            let group = state.groups.get(&place.key);
            let now = group.and_then(|group| group.extents.get(local)?.as_ref());
            let is_same = now.is_some_and(|now| now.sequence == extent.sequence);
            if is_same && Store::is_live(&state, &place, block) {
                return read.map(Some);
            }
            // It has moved meanwhile, and something else may lie there.
            probe!("farm_disk_read_again");
        }
    }

    /// The version of an object that begins in this block.
    async fn read_in(
        &self,
        place: &Place,
        pointer: Pointer,
        block: u32,
        local: usize,
        extent: &group::Extent,
    ) -> Result<Version, Error> {
        let store = &self.0;
        let number = block % store.layout.extent_blocks;
        let capacity = store.layout.block_bytes as usize - blocks::BLOCK_HEAD_BYTES;
        let bytes = blocks::OBJECT_HEAD_BYTES + pointer.class().payload_bytes();
        let mut blocks = Blocks::new(store.layout.block_bytes, number);
        // At least so many blocks belong to a version of full length. The open block may be one of them.
        let mut end = number + bytes.div_ceil(capacity) as u32;
        end = end.min(extent.blocks.max(number + 1));
        loop {
            store
                .load(place.key, local, extent, &mut blocks, end)
                .await?;
            let mut found = None;
            for item in blocks.walk() {
                let (at, item) = item.map_err(|broken| store.damaged(extent.place, broken))?;
                match item {
                    Item::Whole(version) if at == number && version.pointer == pointer => {
                        found = Some(Ok(version))
                    }
                    Item::Cut(cut, missing) if at == number && cut == pointer => {
                        found = Some(Err(missing))
                    }
                    _ => {}
                }
            }
            let is_missing = || store.damaged(extent.place, blocks::Broken(number));
            match found.ok_or_else(is_missing)? {
                Ok(version) => return Ok(version),
                Err(missing) => end = blocks.end() + missing.div_ceil(capacity) as u32,
            }
            if end > store.layout.extent_blocks {
                return Err(is_missing());
            }
        }
    }

    /// There is a version of the object.
    pub fn has(&self, pointer: Pointer) -> bool {
        let Some(place) = self.0.layout.place(pointer) else {
            return false;
        };
        let state = self.0.state.borrow();
        let group = state.groups.get(&place.key);
        group.is_some_and(|group| group.block_of(&place).is_some())
    }

    /// [`apply`](Backup::apply) would take it: what is there is older, or of objects of another size.
    pub fn is_news(&self, version: &Version) -> bool {
        let Some(place) = self.0.layout.place(version.pointer) else {
            return false;
        };
        let wish = wish(&self.0.state.borrow(), &place, version);
        !matches!(wish, Ok(Wish::Leave))
    }

    /// Slabs of a region that have objects: the first word and the class, and a timestamp of which no version of it is
    /// newer.
    pub fn slabs(&self, region: u16) -> Vec<(u64, Class, u64)> {
        let layout = &self.0.layout;
        let state = self.0.state.borrow();
        let groups = state.groups.iter().filter(|(key, _)| key.region == region);
        let slabs = groups.flat_map(|(key, group)| {
            let first = u64::from(key.subregion) * u64::from(layout.subregion_slabs);
            let numbered = (first..).zip(&group.slabs);
            numbered.filter_map(|(number, slab)| Some((number, slab.as_ref()?)))
        });
        let slabs = slabs.map(|(number, slab)| {
            let word = layout.head_words + number * layout.slab_words;
            (word, slab.class, slab.newest)
        });
        slabs.collect()
    }

    /// All objects of a region.
    pub fn scan(&self, region: u16) -> Scan {
        Scan::new(self.0.clone(), region)
    }

    /// No version with a lower timestamp will come that was not applied before. What is known of such versions needs
    /// less memory then.
    pub fn set_safe_point(&self, timestamp: u64) {
        let state = &mut *self.0.state.borrow_mut();
        if timestamp > state.safe_point {
            state.safe_point = timestamp;
            state.versions.forget_below(timestamp);
        }
    }

    pub fn safe_point(&self) -> u64 {
        self.0.state.borrow().safe_point
    }

    /// The slab at this word of a region is free (§4.8): its objects have ended, with versions up to `at`. It may get
    /// objects of another size, with later timestamps. As durable as a version that is applied now.
    pub fn free_slab(&self, region: u16, word: u64, at: u64) -> Result<(), Error> {
        let layout = &self.0.layout;
        let Some((key, slab)) = layout.slab(region, word) else {
            return Err(Error::refused(format!(
                "there is no slab at {region}:{word}"
            )));
        };
        let state = &mut *self.0.state.borrow_mut();
        let group = state.groups.entry(key);
        let group = group.or_insert_with(|| group::Group::new(key, layout));
        if group.freed.get(&slab).is_some_and(|freed| *freed >= at) {
            return Ok(());
        }
        let is_of_slab = |pointer: u64| {
            let place = Pointer::from_bits(pointer).and_then(|p| layout.place(p));
            place.is_some_and(|place| place.key == key && place.slab == slab)
        };
        if state.versions.any_after(at, is_of_slab) {
            return Err(Error::refused("a slab is freed that has newer objects"));
        }
        state.versions.forget(is_of_slab);
        group.forget_slab(layout, slab);
        group.freed.insert(slab, at);
        Ok(())
    }

    /// Slabs of a region that were freed, by number, each with the timestamp up to which versions are of its former
    /// objects.
    pub fn freed_slabs(&self, region: u16) -> Vec<(u32, u64)> {
        let state = self.0.state.borrow();
        let slabs = self.0.layout.subregion_slabs;
        let of_region = state.groups.iter().filter(|(key, _)| key.region == region);
        let freed = of_region.flat_map(|(key, group)| {
            let first = key.subregion * slabs;
            group
                .freed
                .iter()
                .map(move |(slab, at)| (first + slab, *at))
        });
        freed.collect()
    }

    /// This machine has the region no more. Until the next sync a crash brings it back.
    pub fn drop_region(&self, region: u16) {
        let state = &mut *self.0.state.borrow_mut();
        let keys = state.groups.keys().filter(|key| key.region == region);
        let keys: Vec<_> = keys.copied().collect();
        for key in keys {
            state.forget_chunks(key);
            let group = state.groups.get_mut(&key).expect("just seen");
            *group = group::Group {
                extents: std::mem::take(&mut group.extents),
                changes: group.changes + 1,
                synced: group.synced,
                ..group::Group::new(key, &self.0.layout)
            };
            for extent in group.extents.iter_mut().flatten() {
                extent.live = 0;
                extent.is_freed = true;
            }
        }
        let is_of_region = |pointer: u64| {
            Pointer::from_bits(pointer).is_some_and(|pointer| pointer.region() == region)
        };
        state.versions.forget(is_of_region);
    }

    /// The regions of which it has objects.
    pub fn regions(&self) -> BTreeSet<u16> {
        let state = self.0.state.borrow();
        state.groups.keys().map(|key| key.region).collect()
    }

    /// Makes durable what was applied before. After `Full` it may be tried again; after any other error nothing more
    /// becomes durable.
    pub async fn sync(&self) -> Result<Synced, Error> {
        self.0.sync().await
    }

    /// Cleans the extent with the least live data, if its share of that is below the knob. False if there is none.
    pub async fn clean(&self) -> Result<bool, Error> {
        self.0.clean(crate::BACKUP_CLEAN_BELOW.get(), None).await
    }

    /// Cleans in the background, at the pace of the knob. Ends with an error of the disk. What was cleaned can be
    /// written to when a sync has returned: the cleaner itself syncs only when it has no room.
    pub async fn clean_forever(&self) -> Error {
        self.0.clean_forever().await
    }

    pub fn figures(&self) -> Figures {
        let state = self.0.state.borrow();
        let mut figures = Figures {
            versions: state.versions.len(),
            free_extents: state.free.len(),
            image_bytes: u64::from(state.places) * self.0.layout.extent_bytes(),
            ..Figures::default()
        };
        for group in state.groups.values() {
            let (bytes, objects) = group.map_figures();
            figures.map_bytes += bytes;
            figures.objects += objects;
            for extent in group.extents.iter().flatten() {
                figures.extents += 1;
                figures.live_bytes += extent.live_bytes();
            }
        }
        figures
    }
}

/// Whether a version is of another class than its slab.
fn is_misplaced(state: &State, place: &Place, version: &Version) -> bool {
    let group = state.groups.get(&place.key);
    let slab = group.and_then(|group| group.slabs[place.slab as usize].as_ref());
    slab.is_some_and(|slab| slab.class != version.pointer.class())
}

fn misplaced(version: &Version) -> Error {
    let pointer = version.pointer;
    Error::refused(format!(
        "{pointer:?} lies in a slab of objects of another size"
    ))
}

/// Whether a version that was copied is newer than what is there. What is there and below the safe point is the newest
/// below it, so it is not older than the copy.
fn wish_of_copy(state: &State, place: &Place, version: &Version) -> Result<Wish, Error> {
    let group = state.groups.get(&place.key);
    let freed = group.and_then(|group| group.freed.get(&place.slab));
    let is_there = group.is_some_and(|group| group.block_of(place).is_some());
    let is_over = freed.is_some_and(|freed| version.timestamp <= *freed);
    let known = state.versions.get(version.pointer.bits());
    let is_newer = match known {
        Some(known) => version.timestamp > known,
        None => !is_there,
    };
    match is_newer && !is_over {
        true if is_misplaced(state, place, version) => Err(misplaced(version)),
        true => Ok(Wish::Append),
        false => Ok(Wish::Leave),
    }
}

/// Whether a version is newer than what is there.
fn wish(state: &State, place: &Place, version: &Version) -> Result<Wish, Error> {
    if version.timestamp < state.safe_point {
        return Ok(Wish::Leave);
    }
    let Some(group) = state.groups.get(&place.key) else {
        return Ok(Wish::Append);
    };
    let freed = group.freed.get(&place.slab);
    if freed.is_some_and(|freed| version.timestamp <= *freed) {
        return Ok(Wish::Leave);
    }
    if is_misplaced(state, place, version) {
        return Err(misplaced(version));
    }
    let known = state.versions.get(version.pointer.bits());
    let is_older = known.is_some_and(|known| version.timestamp <= known)
        && !planted!(
            "farm_disk_older_wins",
            "a version that comes late replaces a newer one"
        );
    match is_older {
        true => Ok(Wish::Leave),
        false => Ok(Wish::Append),
    }
}
