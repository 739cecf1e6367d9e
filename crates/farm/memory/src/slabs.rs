//! Which cells of a region are free, at its primary (§4.8).
//!
//! ```text
//!              reserve                    the last object freed, at a time
//!   free ───────────────▶ of a class ◀──────────────────────────────▶ retired
//!    ▲                                      reserve                      │ the safe point has passed the time
//!    └─────────────────────── leaving ◀──────────────────────────────────┘
//!          put_free: all backups know
//! ```
//!
//! It is memory of this process alone: a new primary finds it out from the headers, a slab when it is first needed.
//! A cell whose object is [away](crate::Cell::is_away) is not known to be free before all objects are there.

use crate::bitmap::Bitmap;
use crate::cell::Header;
use crate::error::Error;
use crate::pointer::{CLASSES, Class, Pointer};
use crate::region::Region;
use plinth_runtime::{nobody_has_lied, probe};
use std::collections::{BTreeMap, BTreeSet};

enum Slab {
    Free,
    /// Nobody has looked at its headers yet.
    Unknown(Class),
    Known {
        class: Class,
        free: Bitmap,
    },
    /// Empty and closed.
    Leaving,
}

/// Slabs of a class that may have room.
#[derive(Clone, Default)]
struct Room {
    /// Some cells are free.
    known: BTreeSet<u32>,
    unknown: BTreeSet<u32>,
}

/// What is free and reserved in a region.
pub struct Slabs {
    region: Region,
    slabs: Vec<Slab>,
    free: BTreeSet<u32>,
    /// By class.
    rooms: Vec<Room>,
    /// Slabs that have become empty, and when. They may have objects again.
    retired: BTreeMap<u32, u64>,
    /// Some objects of the region may not be in memory yet.
    has_away: bool,
    /// Of slabs that are known, cells that were away when somebody looked.
    away: BTreeMap<u32, Bitmap>,
}

impl Slabs {
    /// Looks at the table only, so that a new primary loses no time. Objects that are locked meanwhile are not
    /// allocated here: recovery has ended.
    pub fn open(region: &Region) -> Slabs {
        let mut this = Slabs {
            region: region.clone(),
            slabs: Vec::new(),
            free: BTreeSet::new(),
            rooms: vec![Room::default(); usize::from(CLASSES)],
            retired: BTreeMap::new(),
            has_away: false,
            away: BTreeMap::new(),
        };
        for slab in 0..region.shape().slabs() {
            let state = match region.slab_class(slab) {
                None => {
                    this.free.insert(slab);
                    Slab::Free
                }
                Some(class) => {
                    this.room(class).unknown.insert(slab);
                    Slab::Unknown(class)
                }
            };
            this.slabs.push(state);
        }
        this
    }

    /// The same with a region in which objects are away.
    pub fn open_away(region: &Region) -> Slabs {
        Slabs {
            has_away: true,
            ..Slabs::open(region)
        }
    }

    /// No object is away any more. `time` is now: see [`release`](Slabs::release).
    pub fn all_here(&mut self, time: u64) {
        self.has_away = false;
        for (slab, away) in std::mem::take(&mut self.away) {
            let Slab::Known { class, free } = &mut self.slabs[slab as usize] else {
                continue;
            };
            let (class, shape) = (*class, self.region.shape());
            for index in (0..shape.cells(class)).filter(|index| away.contains(*index)) {
                let pointer = shape.pointer(self.region.number(), class, slab, index);
                let cell = self.region.cell(pointer);
                if cell.is_ok_and(|cell| !cell.header().is_allocated()) {
                    free.insert(index);
                }
            }
            if free.len() > 0 {
                self.room(class).known.insert(slab);
            }
            self.retire_if_empty(slab, time);
        }
    }

    /// Looks at all headers. `time` is now: see [`release`](Slabs::release).
    pub fn scan(region: &Region, time: u64) -> Slabs {
        let mut this = Slabs::open(region);
        while this.scan_next(time) {}
        this
    }

    /// Looks at the headers of one more slab that nobody has needed so far. False if there is none.
    pub fn scan_next(&mut self, time: u64) -> bool {
        let unknown = |room: &Room| room.unknown.first().copied();
        let Some(slab) = self.rooms.iter().find_map(unknown) else {
            return false;
        };
        self.look(slab);
        self.retire_if_empty(slab, time);
        true
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn free_slabs(&self) -> usize {
        self.free.len()
    }

    #[inline]
    fn room(&mut self, class: Class) -> &mut Room {
        &mut self.rooms[usize::from(class.number())]
    }

    /// A cell that nobody else gets until it is released, and its header, which its first version replaces. `None`
    /// if there is no room for another object of this class.
    #[inline]
    pub fn reserve(&mut self, class: Class) -> Option<(Pointer, Header)> {
        loop {
            let slab = self.slab_with_room(class)?;
            let Slab::Known { free, .. } = &mut self.slabs[slab as usize] else {
                unreachable!("a slab with room is known");
            };
            let index = free.first();
            let index = index.unwrap_or_else(|| panic!("slab {slab} has room, and no free cell"));
            free.remove(index);
            let is_full = free.len() == 0;
            if is_full {
                self.room(class).known.remove(&slab);
            }
            let shape = self.region.shape();
            let pointer = shape.pointer(self.region.number(), class, slab, index);
            let header = self.region.cell(pointer).ok()?.header();
            // Otherwise somebody has made an object without a reservation. It stays.
            if !header.is_allocated() && !header.is_locked() {
                return Some((pointer, header));
            }
        }
    }

    #[inline]
    fn slab_with_room(&mut self, class: Class) -> Option<u32> {
        loop {
            // The lowest one, so that others become empty.
            let room = self.room(class);
            if let Some(slab) = room.known.first() {
                return Some(*slab);
            }
            match room.unknown.first().copied() {
                Some(slab) => self.look(slab),
                None => self.assign(class)?,
            }
        }
    }

    #[cold]
    fn assign(&mut self, class: Class) -> Option<()> {
        let slab = *self.free.first()?;
        let assigned = self.region.assign_slab(slab, class);
        // One member could give the slab a class in place of another: then there is no room here.
        assert!(
            assigned != Err(Error::OtherClass) || !nobody_has_lied(),
            "slab {slab} is free here, and has class {:?} in the table",
            self.region.slab_class(slab)
        );
        assigned.ok()?;
        self.free.remove(&slab);
        self.know(slab, class);
        Some(())
    }

    /// Looks at the headers of a slab that is not known.
    #[cold]
    fn look(&mut self, slab: u32) {
        if let Slab::Unknown(class) = self.slabs[slab as usize] {
            self.room(class).unknown.remove(&slab);
            self.know(slab, class);
        }
    }

    fn know(&mut self, slab: u32, class: Class) {
        let shape = self.region.shape();
        let (mut free, mut away) = (
            Bitmap::new(shape.cells(class)),
            Bitmap::new(shape.cells(class)),
        );
        for index in 0..shape.cells(class) {
            let pointer = shape.pointer(self.region.number(), class, slab, index);
            match self.region.cell(pointer) {
                Ok(cell) if self.has_away && cell.is_away() => away.insert(index),
                Ok(cell) if !cell.header().is_allocated() => free.insert(index),
                _ => false,
            };
        }
        if away.len() > 0 {
            self.away.insert(slab, away);
        }
        if free.len() > 0 {
            self.room(class).known.insert(slab);
        }
        self.slabs[slab as usize] = Slab::Known { class, free };
    }

    /// Gives back a reservation that has come to nothing, or the cell of an object that was freed: its header says
    /// so already. `time` is not below the snapshot of any transaction that may know the object.
    ///
    /// Errors: `InUse` if the header does not say so, `NotReserved` if it was given back before, and those of
    /// [`Region::cell`]. Nothing changes then.
    #[inline]
    pub fn release(&mut self, pointer: Pointer, time: u64) -> Result<(), Error> {
        let header = self.region.cell(pointer)?.header();
        if header.is_allocated() || header.is_locked() {
            return Err(Error::InUse);
        }
        let (slab, index) = self.region.shape().place(pointer)?;
        match &mut self.slabs[slab as usize] {
            // The look finds the cell free.
            Slab::Unknown(_) => self.look(slab),
            Slab::Known { class, free } => {
                let class = *class;
                if !free.insert(index) {
                    return Err(Error::NotReserved);
                }
                if self.has_away
                    && let Some(away) = self.away.get_mut(&slab)
                {
                    away.remove(index);
                }
                if free.len() == 1 {
                    let is_new = self.room(class).known.insert(slab);
                    assert!(is_new, "slab {slab} was full, and counted as one with room");
                }
            }
            Slab::Free | Slab::Leaving => return Err(Error::NotReserved),
        }
        self.retire_if_empty(slab, time);
        Ok(())
    }

    fn is_empty(&self, slab: u32) -> bool {
        let cells = |class| self.region.shape().cells(class);
        matches!(&self.slabs[slab as usize], Slab::Known { class, free } if free.len() == cells(*class))
    }

    #[inline]
    fn retire_if_empty(&mut self, slab: u32, time: u64) {
        if self.is_empty(slab) {
            self.retired.insert(slab, time);
        }
    }

    /// Takes slabs from their class that have been empty since before the safe point: no transaction reads there any
    /// more. Each is used again after [`put_free`](Slabs::put_free), when every backup has freed it
    /// ([`Region::free_slab`]). A slab in which a cell is reserved meanwhile stays.
    pub fn reuse(&mut self, safe_point: u64) -> Vec<u32> {
        let mut leaving = Vec::new();
        let mut retired = std::mem::take(&mut self.retired);
        retired.retain(|slab, time| {
            let is_empty = self.is_empty(*slab);
            if !is_empty {
                probe!("farm_slab_kept_by_a_reservation");
            } else if *time < safe_point {
                leaving.push(*slab);
            }
            is_empty && *time >= safe_point
        });
        self.retired = retired;
        for slab in &leaving {
            let was = std::mem::replace(&mut self.slabs[*slab as usize], Slab::Leaving);
            if let Slab::Known { class, .. } = was {
                let had_room = self.room(class).known.remove(slab);
                assert!(had_room, "slab {slab} is empty, and counted as full");
            }
        }
        leaving
    }

    /// The slab may go to any class. Error: `NotLeaving` if [`reuse`](Slabs::reuse) has not returned it, or not since
    /// it was put here.
    pub fn put_free(&mut self, slab: u32) -> Result<(), Error> {
        let state = self.slabs.get_mut(slab as usize);
        let state = state.filter(|state| matches!(state, Slab::Leaving));
        *state.ok_or(Error::NotLeaving)? = Slab::Free;
        probe!("farm_slab_goes_to_any_class");
        self.region.free_slab(slab)?;
        let is_new = self.free.insert(slab);
        assert!(is_new, "slab {slab} was leaving, and among the free ones");
        Ok(())
    }
}
