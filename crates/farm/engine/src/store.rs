//! The objects in this machine's memory: its replicas, and the old versions of those of which it is the primary.

use crate::image::{Image, Table};
use crate::settings::Policy;
use crate::view::Configuration;
use plinth_core::texts;
use plinth_farm_fabric::Memory;
use plinth_farm_fabric::{Host, Machine};
use plinth_farm_memory::{Error, Old, Pointer, Region, Shape, Sizes, Slabs};
use plinth_runtime::nobody_has_lied;
use plinth_runtime::sync::{Notify, Permits};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

texts! {
    /// The memory does not fit the view.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Unfit {
        /// The view names a slot that the memory does not have.
        NoSlot(slot: u16) = "the memory has no slot {slot}";
        /// Sizes, or what a slot holds.
        Memory(error: Error) = "{error}";
        /// The configuration has a whole replica of the region here, and the disk of this machine was not read for it.
        NotLoaded(region: u16) = "region {region} was not read from the disk";
    }
}

impl std::error::Error for Unfit {}

/// A replica on this machine.
struct Replica {
    slot: u16,
    image: Image,
    /// At the primary.
    slabs: Option<Slabs>,
}

/// Slabs of a region that are empty here, and the backups that have not freed them.
type Leaving = BTreeMap<(u16, u32), Vec<Machine>>;

pub struct Store {
    host: Rc<Host>,
    own: Machine,
    pub sizes: Sizes,
    /// Of all regions of the cluster.
    pub shape: Shape,
    pub policy: Policy,
    /// By the region's number.
    replicas: RefCell<Vec<Option<Replica>>>,
    pub old: RefCell<Old>,
    pub leaving: RefCell<Leaving>,
    /// No version that was ever installed here is newer.
    newest: Cell<u64>,
    /// How many slabs were freed here because a primary has said so.
    pub frees: Cell<u64>,
    /// Replicas of which this machine is not the primary are on disk only.
    pub is_on_disk: bool,
    /// Of these: slots in which a region is or is made, and those whose memory was given back.
    used: RefCell<BTreeSet<u16>>,
    released: RefCell<BTreeSet<u16>>,
    /// One at a time takes memory for a slot, or gives it back.
    pub changing: Permits,
    /// How often a region was made in memory.
    makes: Cell<u64>,
    pub load_wanted: Notify,
}

impl Store {
    /// No replicas yet.
    pub fn make(
        host: Rc<Host>,
        own: Machine,
        sizes: Sizes,
        policy: Policy,
        is_on_disk: bool,
    ) -> Result<Store, Unfit> {
        sizes.check().map_err(Unfit::Memory)?;
        let old = host.region(sizes.old());
        let old = old.map_err(|_| Unfit::NoSlot(sizes.old()))?;
        let old = Old::new(old, sizes.block_words).map_err(Unfit::Memory)?;
        Ok(Store {
            host,
            own,
            sizes,
            shape: sizes.shape().map_err(Unfit::Memory)?,
            policy,
            replicas: RefCell::default(),
            old: RefCell::new(old),
            leaving: RefCell::default(),
            newest: Cell::new(0),
            frees: Cell::new(0),
            is_on_disk,
            used: RefCell::default(),
            released: RefCell::default(),
            changing: Permits::new(1),
            makes: Cell::new(0),
            load_wanted: Notify::new(),
        })
    }

    /// Replicas that were read from the disk, for the first configuration.
    pub fn restore(&self, loaded: BTreeMap<u16, (u16, Image)>) {
        let mut replicas = self.replicas.borrow_mut();
        for (number, (slot, image)) in loaded {
            let at = usize::from(number);
            if replicas.len() <= at {
                replicas.resize_with(at + 1, || None);
            }
            replicas[at] = Some(Replica {
                slot,
                image,
                slabs: None,
            });
        }
    }

    /// Has the replicas that the configuration has here. Those that are whole keep what they have; a new one, and one
    /// that will be copied, has no objects. Nothing is a primary's until [`lead`](Store::lead). Returns the regions
    /// that keep what they have.
    pub fn arrange(&self, configuration: &Configuration) -> Result<Vec<u16>, Unfit> {
        let mut former = self.replicas.take();
        let (mut replicas, mut all_kept) = (Vec::new(), Vec::new());
        for number in 0..configuration.regions.len() {
            let Some(seat) = configuration.seat(number, self.own) else {
                replicas.push(None);
                continue;
            };
            let slot = seat.place.slot;
            let kept = former.get_mut(number).and_then(Option::take);
            let kept = kept.filter(|kept| kept.slot == slot && seat.is_whole);
            let image = match kept {
                Some(kept) => {
                    all_kept.push(number as u16);
                    kept.image
                }
                None if self.is_on_disk => Image::Disk(Table::new(self.shape)),
                None => Image::Memory(self.make_region(slot, number as u16)?),
            };
            let is_primary = configuration.primary(number) == Some(self.own);
            let image = match image {
                Image::Memory(_) | Image::Loading(..) if self.is_on_disk && !is_primary => {
                    Image::Disk(image.to_table())
                }
                image => image,
            };
            let slabs = None;
            replicas.push(Some(Replica { slot, image, slabs }));
        }
        self.use_slots(&replicas);
        self.replicas.replace(replicas);
        self.leaving.borrow_mut().clear();
        Ok(all_kept)
    }

    pub fn make_region(&self, slot: u16, number: u16) -> Result<Region, Unfit> {
        let memory = self.slot_memory(slot)?;
        Region::make(memory, number, self.sizes.slab_words).map_err(Unfit::Memory)
    }

    /// This machine is the primary of the region, in which no transaction is under way.
    pub fn lead(&self, region: u16) {
        let mut replicas = self.replicas.borrow_mut();
        if let Some(Some(replica)) = replicas.get_mut(usize::from(region)) {
            assert!(
                replica.slabs.is_none(),
                "machine {} leads region {region} already: what is reserved would be given out again",
                self.own.0
            );
            // It has said that it has the region in memory before all others opened it.
            assert!(
                replica.image.memory().is_some() || !nobody_has_lied(),
                "machine {} leads region {region}, which is on its disk",
                self.own.0
            );
            replica.slabs = match &replica.image {
                Image::Memory(region) => Some(Slabs::open(region)),
                Image::Loading(region, ..) => Some(Slabs::open_away(region)),
                Image::Disk(_) => None,
            };
        }
    }

    /// Does `work` with a replica; `None` if it is not here, or not in memory.
    #[inline]
    pub fn with<T>(&self, region: u16, work: impl FnOnce(&Region) -> T) -> Option<T> {
        let replicas = self.replicas.borrow();
        let replica = replicas.get(usize::from(region))?.as_ref()?;
        Some(work(replica.image.memory()?))
    }

    /// Does `work` with a replica, wherever it is; `None` if it is not here.
    pub fn with_image<T>(&self, region: u16, work: impl FnOnce(&mut Image) -> T) -> Option<T> {
        let mut replicas = self.replicas.borrow_mut();
        let replica = replicas.get_mut(usize::from(region))?.as_mut()?;
        Some(work(&mut replica.image))
    }

    /// The same with a region of which this machine is the primary.
    #[inline]
    pub fn with_primary<T>(&self, region: u16, work: impl FnOnce(&Region) -> T) -> Option<T> {
        let replicas = self.replicas.borrow();
        let replica = replicas.get(usize::from(region))?.as_ref()?;
        replica.slabs.as_ref()?;
        Some(work(replica.image.memory()?))
    }

    pub fn with_slabs<T>(&self, region: u16, work: impl FnOnce(&mut Slabs) -> T) -> Option<T> {
        let mut replicas = self.replicas.borrow_mut();
        let replica = replicas.get_mut(usize::from(region))?.as_mut()?;
        Some(work(replica.slabs.as_mut()?))
    }

    // ---- replicas that are on disk ----

    /// Slots have these replicas.
    fn use_slots(&self, replicas: &[Option<Replica>]) {
        let in_memory = replicas.iter().flatten();
        let in_memory = in_memory.filter(|replica| replica.image.memory().is_some());
        let slots: Vec<u16> = in_memory.map(|replica| replica.slot).collect();
        let used: BTreeSet<u16> = slots.iter().copied().collect();
        assert_eq!(
            used.len(),
            slots.len(),
            "two regions lie in one slot: {slots:?}"
        );
        self.used.replace(used);
    }

    pub fn slot_memory(&self, slot: u16) -> Result<&Memory, Unfit> {
        self.host.region(slot).map_err(|_| Unfit::NoSlot(slot))
    }

    /// The slot of a replica here, in which its region will be made.
    pub fn take_slot(&self, region: u16) -> Option<u16> {
        let replicas = self.replicas.borrow();
        let slot = replicas.get(usize::from(region))?.as_ref()?.slot;
        self.used.borrow_mut().insert(slot);
        self.released.borrow_mut().remove(&slot);
        Some(slot)
    }

    pub fn is_idle(&self, slot: u16) -> bool {
        !self.used.borrow().contains(&slot)
    }

    /// Slots in which nothing is, and whose memory was not given back.
    pub fn idle_slots(&self) -> Vec<u16> {
        let slots = 0..if self.is_on_disk { self.sizes.slots } else { 0 };
        let released = self.released.borrow();
        slots
            .filter(|slot| self.is_idle(*slot) && !released.contains(slot))
            .collect()
    }

    pub fn released(&self, slot: u16) {
        if self.is_idle(slot) {
            self.released.borrow_mut().insert(slot);
        }
    }

    /// What a replica has that is on disk.
    pub fn table(&self, region: u16) -> Option<Table> {
        self.with_image(region, |image| image.table().cloned())
            .flatten()
    }

    /// The replica is in memory from here on, and objects are away. False if it is not here any more.
    pub fn made(&self, region: u16, made: Region) -> bool {
        self.makes.set(self.makes.get() + 1);
        let number = self.makes.get();
        let make = |image: &mut Image| *image = Image::Loading(made, image.to_table(), number);
        let is_here = self.with_image(region, make).is_some();
        self.load_wanted.notify_one();
        is_here
    }

    /// A region that is loading: which, and its number.
    pub fn next_loading(&self) -> Option<(u16, u64)> {
        let replicas = self.replicas.borrow();
        let numbered = replicas.iter().zip(0u16..);
        let mut loading = numbered.filter_map(|(replica, region)| match replica.as_ref()?.image {
            Image::Loading(.., number) => Some((region, number)),
            _ => None,
        });
        loading.next()
    }

    /// It is loading still, and was not made anew since.
    pub fn is_loading(&self, region: u16, number: u64) -> bool {
        let is_loading =
            |image: &mut Image| matches!(image, Image::Loading(.., now) if *now == number);
        self.with_image(region, is_loading) == Some(true)
    }

    /// The object is not in memory yet.
    pub fn is_away(&self, at: Pointer) -> bool {
        let is_away = |region: &Region| region.cell(at).is_ok_and(|cell| cell.is_away());
        self.with(at.region(), is_away) == Some(true)
    }

    /// The objects of a slab that are away.
    pub fn away(&self, region: u16, slab: u32) -> Vec<Pointer> {
        let away = self.with(region, |region| {
            let class = region.slab_class(slab)?;
            let (shape, number) = (region.shape(), region.number());
            let cells =
                (0..shape.cells(class)).map(|index| shape.pointer(number, class, slab, index));
            let away = cells.filter(|at| region.cell(*at).is_ok_and(|cell| cell.is_away()));
            Some(away.collect())
        });
        away.flatten().unwrap_or_default()
    }

    /// No object of the region is away.
    pub fn loaded(&self, region: u16) {
        self.with_image(region, |image| {
            if let Image::Loading(region, ..) = image {
                *image = Image::Memory(region.clone());
            }
        });
        let time = self.newest();
        self.with_slabs(region, |slabs| slabs.all_here(time));
    }

    /// Regions that have a replica here.
    pub fn here(&self) -> Vec<u16> {
        let replicas = self.replicas.borrow();
        let numbered = replicas.iter().zip(0u16..);
        let here = numbered.filter(|(replica, _)| replica.is_some());
        here.map(|(_, region)| region).collect()
    }

    /// Regions of which this machine is the primary.
    pub fn primaries(&self) -> Vec<u16> {
        let replicas = self.replicas.borrow();
        let numbered = replicas.iter().zip(0u16..);
        let is_primary =
            |replica: &Option<Replica>| replica.as_ref().is_some_and(|r| r.slabs.is_some());
        let primaries = numbered.filter(|(replica, _)| is_primary(replica));
        primaries.map(|(_, region)| region).collect()
    }

    pub fn installed(&self, written_at: u64) {
        self.newest.set(self.newest.get().max(written_at));
    }

    /// Not below the snapshot of any transaction that may know an object that was freed here.
    pub fn newest(&self) -> u64 {
        self.newest.get()
    }
}
