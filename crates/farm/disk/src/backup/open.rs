//! Opening: the manifest says which extents there are, and the maps are made anew from what is in them.
//!
//! The maps have no image of their own on disk. They are right whatever happened, and a machine that begins again
//! reads all of its backups anyhow, to make its regions whole.

use super::blocks::{Blocks, Broken, Item, Version};
use super::group::{Extent, Group};
use super::manifest::{GroupRecord, Record};
use super::maps::Slab;
use super::store::{State, Store};
use crate::layout::{Key, Layout};
use crate::{Error, Journal};
use plinth_core::codec::Codec;
use plinth_farm_memory::Pointer;
use plinth_runtime::disk::{self, OpenOptions};
use plinth_runtime::sync::Permits;
use plinth_runtime::{Pace, random};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

const IMAGE: &str = "backup.image";
const MANIFEST: &str = "backup.manifest";
/// A process that died may have given numbers to extents that the manifest does not know. The next ones are random
/// steps away from theirs.
const SEQUENCE_STEP_MAX: u64 = 1 << 32;

/// What the records of the manifest say together.
struct Found {
    layout: Layout,
    groups: Option<BTreeMap<Key, GroupRecord>>,
    safe_point: u64,
    next_sequence: u64,
    bytes: u64,
}

impl Found {
    fn take(&mut self, record: Record, bytes: u64, path: &Path) -> Result<(), Error> {
        if record.layout != self.layout {
            let (path, found) = (path.to_owned(), record.layout);
            let what = format!("it was made with other sizes: {found:?}");
            return Err(Error::Unlike { path, what });
        }
        if record.is_whole {
            self.groups = Some(BTreeMap::new());
            self.bytes = 0;
        }
        // Records before the first whole one were cut off.
        if let Some(groups) = &mut self.groups {
            self.safe_point = record.safe_point;
            self.next_sequence = record.next_sequence;
            self.bytes += bytes;
            groups.extend(record.groups.into_iter().map(|group| (group.key, group)));
            groups.retain(|_, group| !group.extents.is_empty() || !group.freed.is_empty());
        }
        Ok(())
    }

    /// Fails if this cannot be.
    fn check(&self, places: u32, path: &Path) -> Result<(), Error> {
        let layout = &self.layout;
        let mut used = BTreeSet::new();
        for group in self.groups.iter().flat_map(|groups| groups.values()) {
            let mut numbers = BTreeSet::new();
            for extent in &group.extents {
                let is_possible = u32::from(extent.local) < layout.group_extents
                    && extent.blocks <= layout.extent_blocks
                    && extent.sequence < self.next_sequence
                    && used.insert(extent.place)
                    && numbers.insert(extent.local);
                if !is_possible {
                    return Err(Error::damaged(path, 0, "extents of the manifest"));
                }
            }
            let mut slabs = group.freed.iter();
            if !slabs.all(|(slab, _)| *slab < layout.subregion_slabs) {
                return Err(Error::damaged(path, 0, "freed slabs of the manifest"));
            }
        }
        match used.last() {
            Some(last) if *last >= places => {
                let end = u64::from(places) * layout.extent_bytes();
                let image = path.with_file_name(IMAGE);
                Err(Error::damaged(&image, end, "the file was cut short"))
            }
            _ => Ok(()),
        }
    }
}

pub async fn open(directory: &Path, id: u64, layout: Layout) -> Result<Rc<Store>, Error> {
    layout.check()?;
    let path = directory.join(IMAGE);
    let options = OpenOptions {
        create: true,
        exclusive: true,
        ..OpenOptions::default()
    };
    let failed = |e| Error::of(&path, &e);
    let image = disk::open(&path, options).await.map_err(failed)?;
    let manifest_path = directory.join(MANIFEST);
    let mut found = Found {
        layout,
        groups: None,
        safe_point: 0,
        next_sequence: 0,
        bytes: 0,
    };
    let manifest = Journal::open(&manifest_path, id, |position, bytes| {
        let length = bytes.len() as u64;
        let record = Record::from_bytes(bytes);
        let what = "the record with this number";
        let record = record.ok_or_else(|| Error::damaged(&manifest_path, position.0, what))?;
        found.take(record, length, &manifest_path)
    });
    // This also makes the name of the image durable.
    let manifest = manifest.await?;
    if found.groups.is_none() && manifest.end().0 > 0 {
        let what = "there is no whole record";
        return Err(Error::damaged(&manifest_path, 0, what));
    }
    let size = image.size().await.map_err(failed)?;
    let places = (size / layout.extent_bytes()).min(u32::MAX.into()) as u32;
    found.check(places, &manifest_path)?;
    let mut state = State::new(manifest.sync().await?.synced);
    state.safe_point = found.safe_point;
    state.synced_safe_point = found.safe_point;
    state.next_sequence = found.next_sequence + random::below(SEQUENCE_STEP_MAX);
    // A new manifest begins with a whole record.
    state.manifest_bytes = found.groups.as_ref().map_or(u64::MAX, |_| found.bytes);
    state.places = places;
    state.free = (0..places).collect();
    let store = Rc::new(Store {
        layout,
        id,
        path,
        image,
        manifest,
        state: RefCell::new(state),
        writing: Permits::new(1),
        growing: Permits::new(1),
        syncing: Permits::new(1),
        cleaning: Permits::new(1),
    });
    for (_, record) in found.groups.unwrap_or_default() {
        store.rebuild(record).await?;
    }
    Ok(store)
}

/// The newest timestamps of a slab's objects, while the maps are made.
type Newest = BTreeMap<u32, Vec<u64>>;

impl Store {
    async fn rebuild(&self, record: GroupRecord) -> Result<(), Error> {
        let key = record.key;
        let mut group = Group::new(key, &self.layout);
        group.freed = record.freed.into_iter().collect();
        let mut extents = record.extents;
        extents.sort_unstable_by_key(|extent| extent.sequence);
        let mut newest = Newest::new();
        for known in extents {
            let local = usize::from(known.local);
            let mut extent = Extent::new(known.place, known.sequence);
            extent.blocks = known.blocks;
            let mut blocks = Blocks::new(self.layout.block_bytes, 0);
            self.load(key, local, &extent, &mut blocks, known.blocks)
                .await?;
            let mut pace = Pace::new();
            for item in blocks.walk() {
                let (number, version) = match item {
                    Ok((number, Item::Whole(version))) => (number, version),
                    Ok((number, Item::Cut(..))) => {
                        return Err(self.damaged(known.place, Broken(number)));
                    }
                    Err(broken) => return Err(self.damaged(known.place, broken)),
                };
                extent.versions += 1;
                extent.bytes += version.bytes() as u32;
                let block = known.local as u32 * self.layout.extent_blocks + number;
                let is_possible = self.take_in(&mut group, &mut newest, block, &version);
                is_possible.ok_or_else(|| self.damaged(known.place, Broken(number)))?;
                if extent.versions.is_multiple_of(64) {
                    pace.rest_if_over().await;
                }
            }
            let length = group.extents.len().max(local + 1);
            group.extents.resize(length, None);
            group.extents[local] = Some(extent);
        }
        self.settle(group, newest);
        Ok(())
    }

    /// Takes a version into the maps. `None` if it does not belong to this group, or not beside the others.
    fn take_in(
        &self,
        group: &mut Group,
        newest: &mut Newest,
        block: u32,
        version: &Version,
    ) -> Option<()> {
        let layout = &self.layout;
        let place = layout.place(version.pointer)?;
        if place.key != group.key {
            return None;
        }
        let freed = group.freed.get(&place.slab);
        if freed.is_some_and(|freed| version.timestamp <= *freed) {
            return Some(());
        }
        let cells = layout.cells(place.class);
        let slab = group.slabs[place.slab as usize]
            .get_or_insert_with(|| Slab::new(place.class, cells, layout.group_blocks()));
        if slab.class != place.class {
            return None;
        }
        slab.newest = slab.newest.max(version.timestamp);
        let times = newest.entry(place.slab).or_insert_with(|| vec![0; cells]);
        let time = &mut times[place.cell as usize];
        if version.timestamp >= *time {
            *time = version.timestamp;
            slab.set(place.cell, block);
        }
        Some(())
    }

    /// Adds a group whose extents were all read.
    fn settle(&self, mut group: Group, newest: Newest) {
        let state = &mut *self.state.borrow_mut();
        let layout = &self.layout;
        for slab in group.slabs.iter().flatten() {
            for block in slab.blocks() {
                let local = (block / layout.extent_blocks) as usize;
                let extent = group.extents[local].as_mut();
                extent.expect("a version was read there").live += 1;
            }
        }
        for extent in group.extents.iter().flatten() {
            state.free.remove(&extent.place);
        }
        for (number, times) in newest {
            let slab = group.slabs[number as usize].as_ref();
            let class = slab.expect("it has objects").class;
            let first = u64::from(group.key.subregion) * u64::from(layout.subregion_slabs);
            let first = layout.head_words + (first + u64::from(number)) * layout.slab_words;
            let recent = (0..)
                .zip(times)
                .filter(|(_, t)| *t > 0 && *t >= state.safe_point);
            for (cell, time) in recent {
                let word = first + cell * class.cell_words() as u64;
                let pointer = Pointer::new(group.key.region, class, word);
                state.versions.put(pointer.bits(), time);
            }
        }
        state.groups.insert(group.key, group);
    }
}
