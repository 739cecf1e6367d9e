//! The state of a group of extents in memory: which there are, what is live in them, and where objects are.

use super::blocks::{Identity, Version, Writer};
use super::maps::Slab;
use crate::layout::{Key, Layout, Place};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Its place in the image.
    pub place: u32,
    /// Extents are numbered as they are begun; no number is given twice.
    pub sequence: u64,
    /// Blocks that are complete.
    pub blocks: u32,
    /// Versions in it, and their bytes.
    pub versions: u32,
    pub bytes: u32,
    /// Versions that are the newest of their objects.
    pub live: u32,
    /// Nothing in it is live. Its place is free when the manifest does not list it any more.
    pub is_freed: bool,
}

impl Extent {
    pub fn new(place: u32, sequence: u64) -> Extent {
        Extent {
            place,
            sequence,
            ..Extent::default()
        }
    }

    pub fn identity(&self, id: u64) -> Identity {
        Identity {
            id,
            place: self.place,
            sequence: self.sequence,
        }
    }

    /// About how many of its bytes are live.
    pub fn live_bytes(&self) -> u64 {
        u64::from(self.bytes) * u64::from(self.live) / u64::from(self.versions.max(1))
    }
}

/// The extent that is being written.
pub struct Tail {
    pub local: usize,
    pub writer: Writer,
}

pub struct Group {
    pub key: Key,
    /// The block with number `n` of the group is one of the extent `n / extent_blocks`.
    pub extents: Vec<Option<Extent>>,
    pub slabs: Vec<Option<Slab>>,
    /// By slab: versions up to this timestamp are of objects that were there before the slab was freed.
    pub freed: BTreeMap<u32, u64>,
    pub tail: Option<Tail>,
    /// Counts changes; the manifest has those up to `synced`.
    pub changes: u64,
    pub synced: u64,
}

impl Group {
    pub fn new(key: Key, layout: &Layout) -> Group {
        Group {
            key,
            extents: Vec::new(),
            slabs: (0..layout.subregion_slabs).map(|_| None).collect(),
            freed: BTreeMap::new(),
            tail: None,
            changes: 0,
            synced: 0,
        }
    }

    /// Something has changed that the manifest does not say.
    pub fn is_dirty(&self) -> bool {
        self.changes > self.synced
    }

    pub fn extent_mut(&mut self, local: usize) -> &mut Extent {
        self.extents[local].as_mut().expect("an extent in use")
    }

    /// A number for another extent; `reserve` numbers are left for others.
    pub fn free_number(&self, layout: &Layout, reserve: usize) -> Option<usize> {
        let used = self.extents.iter().flatten().count();
        if used + reserve >= layout.group_extents as usize {
            return None;
        }
        let gap = self.extents.iter().position(Option::is_none);
        Some(gap.unwrap_or(self.extents.len()))
    }

    /// The block where the newest version of an object begins.
    pub fn block_of(&self, place: &Place) -> Option<u32> {
        let slab = self.slabs[place.slab as usize].as_ref()?;
        (slab.class == place.class)
            .then(|| slab.get(place.cell))
            .flatten()
    }

    /// Forgets an object: only a planted fault does.
    pub fn forget_object(&mut self, layout: &Layout, place: &Place) {
        if let Some(block) = self.block_of(place) {
            let slab = self.slabs[place.slab as usize].as_mut();
            slab.expect("it has the object").clear(place.cell);
            self.forget_live(layout, block);
        }
    }

    /// Bytes of the tail that could be on disk.
    pub fn complete_bytes(&self) -> usize {
        let tail = self.tail.as_ref();
        tail.map_or(0, |tail| tail.writer.complete_bytes())
    }

    /// Completes the open block.
    pub fn close_block(&mut self) {
        if let Some(tail) = &mut self.tail {
            tail.writer.close();
            let (local, blocks) = (tail.local, tail.writer.complete());
            self.extent_mut(local).blocks = blocks;
        }
    }

    /// Writes a version to the tail, which has room for it, and makes it the newest.
    pub fn push(&mut self, layout: &Layout, place: &Place, version: &Version) {
        let tail = self.tail.as_mut().expect("there is room");
        let number = tail.writer.push(version);
        let (local, blocks) = (tail.local, tail.writer.complete());
        let block = local as u32 * layout.extent_blocks + number;
        let extent = self.extent_mut(local);
        assert!(
            !extent.is_freed && extent.live <= extent.versions,
            "a version goes to {extent:?}"
        );
        extent.blocks = blocks;
        extent.versions += 1;
        extent.bytes += version.bytes() as u32;
        extent.live += 1;
        let (cells, blocks) = (layout.cells(place.class), layout.group_blocks());
        let slab = self.slabs[place.slab as usize]
            .get_or_insert_with(|| Slab::new(place.class, cells, blocks));
        slab.newest = slab.newest.max(version.timestamp);
        let former = slab.get(place.cell);
        slab.set(place.cell, block);
        if let Some(former) = former {
            self.forget_live(layout, former);
        }
        self.changes += 1;
    }

    /// A version that begins in this block is not the newest any more.
    pub fn forget_live(&mut self, layout: &Layout, block: u32) {
        let extent = self.extent_mut((block / layout.extent_blocks) as usize);
        assert!(
            extent.live > 0,
            "an extent has lost count of what is live: {extent:?}"
        );
        extent.live -= 1;
    }

    /// Forgets every object of a slab.
    pub fn forget_slab(&mut self, layout: &Layout, slab: u32) {
        if let Some(former) = self.slabs[slab as usize].take() {
            for block in former.blocks() {
                self.forget_live(layout, block);
            }
        }
        self.changes += 1;
    }

    /// The first extent from this sequence number on that is in use.
    pub fn next_extent(&self, sequence: u64) -> Option<(usize, Extent)> {
        let all = self.extents.iter().enumerate();
        let used = all.filter_map(|(local, extent)| Some((local, extent.as_ref()?)));
        let later = used.filter(|(_, e)| !e.is_freed && e.sequence >= sequence);
        let first = later.min_by_key(|(_, e)| e.sequence);
        first.map(|(local, extent)| (local, extent.clone()))
    }

    /// Bytes of memory that its maps take up, and objects in them.
    pub fn map_figures(&self) -> (usize, u64) {
        let maps = self.slabs.iter().flatten().map(Slab::bytes).sum::<usize>();
        let slots = self.slabs.len() * size_of::<Option<Slab>>();
        let objects = self.extents.iter().flatten().map(|e| u64::from(e.live));
        (maps + slots, objects.sum())
    }
}
