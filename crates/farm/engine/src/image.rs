//! Where the objects of a replica are: in memory, or on the disk of this machine (§4.9).
//!
//! ```text
//!   on disk ── becomes the primary's: made ──▶ loading ── the last object has come ──▶ in memory
//!      ▲                                          │                                        │
//!      └─────────────────────────────── another machine is the primary ────────────────────┘
//! ```
//!
//! A region that is loading stays so when the configuration changes, as long as this machine is its primary.
//!
//! Of a replica that is on disk only, a table says what is in the slabs. It is ahead of the backup: it has what is in
//! the line ([`Item`](crate::durable::Item)).

use plinth_farm_disk::Version;
use plinth_farm_memory::{Class, Pointer, Region, Shape};

/// Of each slab, the class of its objects, and a timestamp of which no version in it is newer.
#[derive(Clone)]
pub struct Table {
    shape: Shape,
    slabs: Vec<Option<(Class, u64)>>,
}

pub enum Image {
    Memory(Region),
    /// Some objects are away ([`Cell::is_away`](plinth_farm_memory::Cell::is_away)). The table is of the begin. The
    /// number is another one each time that a region is made.
    Loading(Region, Table, u64),
    Disk(Table),
}

impl Table {
    /// No objects.
    pub fn new(shape: Shape) -> Table {
        Table {
            shape,
            slabs: vec![None; shape.slabs() as usize],
        }
    }

    /// `slabs`: what a backup has. Slabs that the region does not have are left out.
    pub fn of(shape: Shape, slabs: &[(u64, Class, u64)]) -> Table {
        let mut table = Table::new(shape);
        for (word, class, newest) in slabs {
            if let Ok((slab, _)) = shape.place(Pointer::new(0, *class, *word)) {
                table.slabs[slab as usize] = Some((*class, *newest));
            }
        }
        table
    }

    fn of_region(region: &Region, former: Option<&Table>) -> Table {
        let shape = region.shape();
        let slabs = (0..shape.slabs()).map(|slab| {
            let former = former.map_or(0, |former| former.newest_in(slab));
            let class = region.slab_class(slab)?;
            Some((class, newest_in(region, slab).max(former)))
        });
        Table {
            shape,
            slabs: slabs.collect(),
        }
    }

    fn slab(&self, slab: u32) -> Option<(Class, u64)> {
        self.slabs.get(slab as usize).copied().flatten()
    }

    fn newest_in(&self, slab: u32) -> u64 {
        self.slab(slab).map_or(0, |(_, newest)| newest)
    }

    fn has_cell(&self, at: Pointer) -> bool {
        let slab = self.shape.place(at).ok();
        let slab = slab.and_then(|(slab, _)| self.slab(slab));
        slab.is_some_and(|(class, _)| class == at.class())
    }

    /// The object's slab is of its class, and one of its versions has this timestamp.
    fn apply(&mut self, at: Pointer, written_at: u64) -> Option<bool> {
        let (slab, _) = self.shape.place(at).ok()?;
        let slab = self.slabs.get_mut(slab as usize)?;
        let newest = slab.filter(|(class, _)| *class == at.class());
        let newest = newest.map_or(0, |(_, newest)| newest);
        *slab = Some((at.class(), newest.max(written_at)));
        Some(true)
    }

    /// Slabs with objects.
    pub fn slabs(&self) -> impl Iterator<Item = (u32, Class)> {
        let numbered = (0..).zip(&self.slabs);
        numbered.filter_map(|(number, slab)| Some((number, (*slab)?.0)))
    }
}

impl Image {
    /// The region, if there is one in memory.
    #[inline]
    pub fn memory(&self) -> Option<&Region> {
        match self {
            Image::Memory(region) | Image::Loading(region, ..) => Some(region),
            Image::Disk(_) => None,
        }
    }

    pub fn table(&self) -> Option<&Table> {
        match self {
            Image::Disk(table) => Some(table),
            Image::Memory(_) | Image::Loading(..) => None,
        }
    }

    /// What a table says of it.
    pub fn to_table(&self) -> Table {
        match self {
            Image::Memory(region) => Table::of_region(region, None),
            Image::Loading(region, table, _) => Table::of_region(region, Some(table)),
            Image::Disk(table) => table.clone(),
        }
    }

    /// There may be an object of this size at this place.
    pub fn has_cell(&self, at: Pointer) -> bool {
        match self {
            Image::Memory(region) | Image::Loading(region, ..) => region.cell(at).is_ok(),
            Image::Disk(table) => table.has_cell(at),
        }
    }

    /// No version in the slab is newer.
    pub fn newest_in(&self, slab: u32) -> u64 {
        match self {
            Image::Memory(region) => newest_in(region, slab),
            Image::Loading(region, table, _) => newest_in(region, slab).max(table.newest_in(slab)),
            Image::Disk(table) => table.newest_in(slab),
        }
    }

    /// The slab that an object would take over from another class. In memory, only if it has no objects there any
    /// more. On disk nobody can tell: the object must be newer than all that is there, and an object of another class
    /// that is newer comes only when the former ones have ended everywhere.
    pub fn taken_over(&self, at: Pointer) -> Option<u32> {
        match self {
            Image::Memory(region) | Image::Loading(region, ..) => {
                let (slab, _) = region.shape().place(at).ok()?;
                let class = region.slab_class(slab)?;
                (class != at.class() && region.is_empty_slab(slab)).then_some(slab)
            }
            Image::Disk(table) => {
                let (slab, _) = table.shape.place(at).ok()?;
                let (class, _) = table.slab(slab)?;
                (class != at.class()).then_some(slab)
            }
        }
    }

    /// Replaces the object's version if this one is newer, and says whether; on disk the backup finds that out later.
    /// `None` if there is no such cell here.
    pub fn apply(&mut self, version: &Version) -> Option<bool> {
        match self {
            Image::Memory(region) | Image::Loading(region, ..) => {
                let cell = region.claim(version.pointer).ok()?;
                Some(cell.apply(version.timestamp, version.is_allocated, &version.payload))
            }
            Image::Disk(table) => table.apply(version.pointer, version.timestamp),
        }
    }

    /// The slab has no objects. There may be no such slab in a region of other sizes, and nothing in it.
    pub fn free_slab(&mut self, slab: u32) {
        match self {
            Image::Memory(region) | Image::Loading(region, ..) => {
                let _ = region.free_slab(slab);
            }
            Image::Disk(table) => {
                if let Some(slab) = table.slabs.get_mut(slab as usize) {
                    *slab = None;
                }
            }
        }
    }
}

/// No version in the slab is newer.
fn newest_in(region: &Region, slab: u32) -> u64 {
    let Some(class) = region.slab_class(slab) else {
        return 0;
    };
    let cells = 0..region.shape().cells(class);
    let cells = cells.filter_map(|index| {
        let at = region.shape().pointer(region.number(), class, slab, index);
        Some(region.cell(at).ok()?.header().timestamp())
    });
    cells.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use plinth_farm_fabric::Memory;

    const REGION: u16 = 3;
    const SLAB_WORDS: u64 = 1 << 9;

    fn shape() -> Shape {
        Shape::of(1 << 12, SLAB_WORDS).expect("a shape")
    }

    fn class(bytes: usize) -> Class {
        Class::of(bytes).expect("a class")
    }

    fn version(bytes: usize, slab: u32, timestamp: u64) -> Version {
        Version {
            pointer: shape().pointer(REGION, class(bytes), slab, 1),
            timestamp,
            is_allocated: false,
            payload: Bytes::new(),
        }
    }

    #[test]
    fn a_table_takes_in_what_memory_takes_in() {
        let memory = Memory::private(1 << 12);
        let region = Region::make(&memory, REGION, SLAB_WORDS).expect("sizes");
        let mut images = [Image::Memory(region), Image::Disk(Table::new(shape()))];
        for image in &mut images {
            let (small, large) = (version(20, 2, 50), version(90, 2, 70));
            assert_eq!(
                (image.has_cell(small.pointer), image.newest_in(2)),
                (false, 0)
            );
            assert_eq!(image.taken_over(small.pointer), None);
            assert_eq!(image.apply(&small), Some(true));
            image.apply(&version(20, 2, 40));
            assert_eq!(
                (image.has_cell(small.pointer), image.newest_in(2)),
                (true, 50)
            );
            assert!(!image.has_cell(large.pointer));
            assert_eq!(image.taken_over(large.pointer), Some(2));
            assert_eq!(image.apply(&large), Some(true));
            assert_eq!(
                (image.has_cell(small.pointer), image.newest_in(2)),
                (false, 70)
            );
            let table = image.to_table();
            assert_eq!(table.slabs().collect::<Vec<_>>(), [(2, class(90))]);
            image.free_slab(2);
            assert!(!image.has_cell(large.pointer) && image.to_table().slabs().next().is_none());
            // Nothing is where no slab is.
            image.free_slab(u32::MAX);
            assert_eq!(image.newest_in(u32::MAX), 0);
        }
    }

    #[test]
    fn a_table_of_a_backup_leaves_out_slabs_that_the_region_does_not_have() {
        let slabs = [
            (1u64 << 30, class(20), 9),
            (shape().slab_word(1), class(20), 8),
        ];
        let table = Table::of(shape(), &slabs);
        assert_eq!(table.slabs().collect::<Vec<_>>(), [(1, class(20))]);
        assert_eq!(table.newest_in(1), 8);
    }

    #[test]
    fn what_was_known_before_the_loading_stays_known() {
        let memory = Memory::private(1 << 12);
        let region = Region::make(&memory, REGION, SLAB_WORDS).expect("sizes");
        region
            .assign_slab_away(1, class(20), |_| true)
            .expect("it is free");
        let table = Table::of(shape(), &[(shape().slab_word(1), class(20), 8)]);
        let loading = Image::Loading(region, table, 1);
        assert_eq!(
            (loading.newest_in(1), loading.to_table().newest_in(1)),
            (8, 8)
        );
        // What is away is not taken for nothing.
        assert_eq!(loading.taken_over(version(90, 1, 9).pointer), None);
    }
}
