//! The objects in this machine's memory: its replicas, and the old versions of those of which it is the primary.

use crate::settings::Policy;
use crate::view::Configuration;
use plinth_farm_fabric::{Host, Machine};
use plinth_farm_memory::{Error, Old, Region, Shape, Sizes, Slabs};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// The memory does not fit the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The view names a slot that the memory does not have.
    NoSlot(u16),
    /// Sizes, or what a slot holds.
    Memory(Error),
    /// The configuration has a whole replica of the region here, and the disk of this machine was not read for it.
    NotLoaded(u16),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NoSlot(slot) => write!(f, "the memory has no slot {slot}"),
            Unfit::Memory(error) => write!(f, "{error}"),
            Unfit::NotLoaded(region) => write!(f, "region {region} was not read from the disk"),
        }
    }
}

impl std::error::Error for Unfit {}

/// A replica on this machine.
struct Replica {
    slot: u16,
    region: Region,
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
}

impl Store {
    /// No replicas yet.
    pub fn make(
        host: Rc<Host>,
        own: Machine,
        sizes: Sizes,
        policy: Policy,
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
        })
    }

    /// Replicas that were read from the disk, for the first configuration.
    pub fn restore(&self, loaded: BTreeMap<u16, (u16, Region)>) {
        let mut replicas = self.replicas.borrow_mut();
        for (number, (slot, region)) in loaded {
            let at = usize::from(number);
            if replicas.len() <= at {
                replicas.resize_with(at + 1, || None);
            }
            replicas[at] = Some(Replica {
                slot,
                region,
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
            let region = match kept {
                Some(kept) => {
                    all_kept.push(number as u16);
                    kept.region
                }
                None => self.new_region(slot, number as u16)?,
            };
            let slabs = None;
            replicas.push(Some(Replica {
                slot,
                region,
                slabs,
            }));
        }
        self.replicas.replace(replicas);
        self.leaving.borrow_mut().clear();
        Ok(all_kept)
    }

    fn new_region(&self, slot: u16, number: u16) -> Result<Region, Unfit> {
        let memory = self.host.region(slot).map_err(|_| Unfit::NoSlot(slot))?;
        Region::make(memory, number, self.sizes.slab_words).map_err(Unfit::Memory)
    }

    /// This machine is the primary of the region, in which no transaction is under way.
    pub fn lead(&self, region: u16) {
        let mut replicas = self.replicas.borrow_mut();
        if let Some(Some(replica)) = replicas.get_mut(usize::from(region)) {
            replica.slabs = Some(Slabs::open(&replica.region));
        }
    }

    /// Does `work` with a replica; `None` if it is not here.
    #[inline]
    pub fn with<T>(&self, region: u16, work: impl FnOnce(&Region) -> T) -> Option<T> {
        let replicas = self.replicas.borrow();
        let replica = replicas.get(usize::from(region))?.as_ref()?;
        Some(work(&replica.region))
    }

    /// The same with a region of which this machine is the primary.
    #[inline]
    pub fn with_primary<T>(&self, region: u16, work: impl FnOnce(&Region) -> T) -> Option<T> {
        let replicas = self.replicas.borrow();
        let replica = replicas.get(usize::from(region))?.as_ref()?;
        replica.slabs.as_ref()?;
        Some(work(&replica.region))
    }

    pub fn with_slabs<T>(&self, region: u16, work: impl FnOnce(&mut Slabs) -> T) -> Option<T> {
        let mut replicas = self.replicas.borrow_mut();
        let replica = replicas.get_mut(usize::from(region))?.as_mut()?;
        Some(work(replica.slabs.as_mut()?))
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
