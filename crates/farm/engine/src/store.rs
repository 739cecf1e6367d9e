//! The objects in this machine's memory: its replicas, and the old versions of those of which it is the primary.

use crate::settings::Policy;
use crate::view::View;
use plinth_farm_fabric::{Host, Machine};
use plinth_farm_memory::{Error, Old, Region, Shape, Sizes, Slabs};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

/// The memory does not fit the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The view names a slot that the memory does not have.
    NoSlot(u16),
    /// Sizes, or what a slot holds.
    Memory(Error),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NoSlot(slot) => write!(f, "the memory has no slot {slot}"),
            Unfit::Memory(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Unfit {}

/// A replica on this machine.
struct Replica {
    region: Region,
    /// At the primary.
    slabs: Option<Slabs>,
}

/// Slabs of a region that are empty here, and the backups that have not freed them.
type Leaving = BTreeMap<(u16, u32), Vec<Machine>>;

pub struct Store {
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
}

impl Store {
    /// The replicas that the view has on `own`, without objects, whatever their slots have held.
    pub fn make(
        host: &Host,
        own: Machine,
        view: &View,
        sizes: Sizes,
        policy: Policy,
    ) -> Result<Store, Unfit> {
        sizes.check().map_err(Unfit::Memory)?;
        let memory = |slot: u16| host.region(slot).map_err(|_| Unfit::NoSlot(slot));
        let mut replicas = Vec::new();
        for (replica, number) in view.regions.iter().zip(0..) {
            let is_primary = replica.primary.machine == own;
            let slot = match is_primary {
                true => Some(replica.primary.slot),
                false => replica.backup_on(own),
            };
            let Some(slot) = slot else {
                replicas.push(None);
                continue;
            };
            let memory = memory(slot)?;
            let region = Region::make(memory, number, sizes.slab_words);
            let region = region.map_err(Unfit::Memory)?;
            let slabs = is_primary.then(|| Slabs::open(&region));
            replicas.push(Some(Replica { region, slabs }));
        }
        let old = Old::new(memory(sizes.old())?, sizes.block_words).map_err(Unfit::Memory)?;
        Ok(Store {
            sizes,
            shape: sizes.shape().map_err(Unfit::Memory)?,
            policy,
            replicas: RefCell::new(replicas),
            old: RefCell::new(old),
            leaving: RefCell::default(),
            newest: Cell::new(0),
        })
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
