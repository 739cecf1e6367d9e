//! A region whose backups are on disk, at the machine that has become its primary (§4.9).
//!
//! ```text
//!   decided, and on disk ─▶ make: slabs in memory, objects away ─┬─▶ Done ─▶ open ─▶ fetch: what readers ask for
//!                                                                └─▶ load: scan of the backup
//! ```
//!
//! The load goes on through further configurations.
//!
//! An object that is away looks as if it was locked. So readers wait, validation fails, and locks are refused, until
//! it has come; whoever meets one asks the primary for it. Every whole replica has all of the region on its own disk,
//! so nobody else is asked.
//!
//! **Why nothing old is loaded over something newer.** When the region is made, the versions in the line to the backup
//! go into memory where they are newer than what the backup has. From then on an object that is away is the backup's,
//! because nobody can change it before it has come. Only a cell that is away is loaded. A later recovery may bring
//! versions again, of which the backup has newer ones: what is not news to the backup does not replace what is away.

use crate::core::Core;
use crate::durable::Durable;
use crate::site::Site;
use crate::wire::Message;
use plinth_farm_disk::{Error, Version};
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_memory::{Pointer, Region};
use plinth_runtime::{
    Duration, TaskGroup, knob, nobody_has_lied, planted, probe, race, sleep, spawn, trace,
    yield_now,
};
use std::rc::Rc;

knob! {
    /// A region is loaded from the disk by so many objects at a time.
    pub LOAD_OBJECTS: usize = "farm_load_objects", 1024, sim 1, 1024, legal 1, 1 << 20;
    /// And with this pause after them, so that those who ask for objects get the disk.
    pub LOAD_PAUSE_US: usize = "farm_load_pause_us", 0, sim 0, 200, legal 0, 1_000_000;
}

async fn rest() {
    match LOAD_PAUSE_US.get() {
        0 => yield_now().await,
        pause => sleep(Duration::from_micros(pause as u64)).await,
    }
}

fn overwrites() -> bool {
    planted!(
        "farm_load_overwrites",
        "what is loaded replaces what has been written since"
    )
}

impl Core {
    /// A machine waits for an object of which this one is the primary. It hears when that is there, or asks again
    /// after a while.
    pub fn want(&self, at: Pointer, by: Machine) {
        match self.store.is_away(at) {
            true => self.wanted.add(at, by),
            false => self.tell_fetched(at, by),
        }
    }

    fn tell_fetched(&self, at: Pointer, to: Machine) {
        match to == self.own {
            true => self.wanted.has_come(),
            false => self.post.push(to, Message::Fetched { at }, None),
        }
    }

    /// Asks the primary for an object that is away, and waits for it, or for a while.
    pub async fn ask_for(&self, primary: Machine, at: Pointer) {
        probe!("farm read of an object that is away");
        let come = self.wanted.arrival();
        let sleep = sleep(self.settings.patience);
        match primary == self.own {
            true => self.want(at, self.own),
            false => self.post.push(primary, Message::Fetch { at }, None),
        }
        race(come, sleep).await;
    }

    /// The version of an object that is away has come from the disk; `None` if there is none.
    fn bring(&self, at: Pointer, version: Option<&Version>) {
        let version = version.filter(|version| !self.is_over(at, version.timestamp));
        self.store.with(at.region(), |region| {
            let Ok(cell) = region.cell(at) else {
                return;
            };
            match version {
                _ if !cell.is_away() => {
                    let header = cell.header();
                    if overwrites()
                        && let Some(version) = version.filter(|_| cell.lock(header))
                    {
                        cell.clear();
                        cell.apply(version.timestamp, version.is_allocated, &version.payload);
                    }
                }
                Some(version) => {
                    cell.apply(version.timestamp, version.is_allocated, &version.payload);
                }
                // It was of a slab that was freed.
                None => cell.clear(),
            }
        });
    }

    /// The region is made in memory, where the slabs of its objects are known.
    async fn fill(&self, durable: &Durable, region: &Region) {
        let pending = durable.versions_in_line(region.number());
        let Some(table) = self.store.table(region.number()) else {
            return;
        };
        for (slab, class) in table.slabs() {
            let is_away = |at: Pointer| durable.backup().has(at);
            if region.assign_slab_away(slab, class, is_away).is_err() {
                probe!("farm table has a slab that cannot be");
            }
            yield_now().await;
        }
        for version in &pending {
            let Ok(cell) = region.cell(version.pointer) else {
                continue;
            };
            let is_there = cell.is_away() && !durable.backup().is_news(version);
            if is_there || self.is_over(version.pointer, version.timestamp) {
                continue;
            }
            probe!("farm version in the line to the backup goes to memory");
            cell.apply(version.timestamp, version.is_allocated, &version.payload);
        }
    }
}

impl<F: Fabric + 'static> Site<F> {
    /// Makes the region in memory. False if that cannot be: the process ends, or the configuration has ended.
    pub async fn make(&self, region: u16) -> bool {
        let store = &self.core.store;
        let (Some(durable), Some(slot)) = (&self.core.durable, store.take_slot(region)) else {
            return false;
        };
        let _alone = store.changing.take().await;
        let Ok(memory) = store.slot_memory(slot) else {
            return false;
        };
        if let Err(error) = memory.reserve().await {
            let why = format!("no memory for region {region}, of which it is the primary: {error}");
            self.fail_disk(&why);
            return false;
        }
        let Ok(made) = store.make_region(slot, region) else {
            return false;
        };
        self.core.fill(durable, &made).await;
        trace!("FarmRegionMade", "region" => region);
        store.made(region, made)
    }

    /// Gives the memory of slots back in which nothing is.
    pub fn release_slots(self: &Rc<Self>) {
        for slot in self.core.store.idle_slots() {
            let site = self.clone();
            // To its end: what is under way may not come after somebody has begun to use the slot.
            let release = async move {
                let store = &site.core.store;
                let _alone = store.changing.take().await;
                if let Ok(memory) = store.slot_memory(slot)
                    && store.is_idle(slot)
                    && memory.release().await.is_ok()
                {
                    store.released(slot);
                }
            };
            spawn("farm release", release).detach();
        }
    }

    /// Begins what brings objects that are away, if there may be any.
    pub fn load_regions(self: &Rc<Self>, group: &TaskGroup) {
        if self.core.durable.is_none() || !self.core.store.is_on_disk {
            return;
        }
        let site = self.clone();
        group.spawn("farm load", async move {
            if let Some(durable) = &site.core.durable {
                let failed = site.load_all(durable).await;
                site.fail_disk(&failed);
            }
        });
        let site = self.clone();
        group.spawn("farm fetches", async move {
            loop {
                let at = site.core.wanted.next().await;
                let of = site.clone();
                site.tasks
                    .spawn("farm fetch", async move { of.fetch(at).await });
            }
        });
    }

    /// One region after the other, also while configurations change.
    async fn load_all(&self, durable: &Durable) -> Error {
        loop {
            let Some((region, number)) = self.core.store.next_loading() else {
                self.core.store.load_wanted.notified().await;
                continue;
            };
            match self.load(durable, region, number).await {
                Ok(true) => trace!("FarmRegionLoaded", "region" => region),
                Ok(false) => probe!("farm region goes back to the disk while it is loaded"),
                Err(error) => return error,
            }
        }
    }

    async fn fetch(&self, at: Pointer) {
        let Some(durable) = &self.core.durable else {
            return;
        };
        match durable.backup().read(at).await {
            Ok(version) => {
                probe!("farm object read from the disk because somebody asked");
                self.core.bring(at, version.as_ref());
            }
            Err(error) => self.fail_disk(&error),
        }
        for asker in self.core.wanted.take(at) {
            self.core.tell_fetched(at, asker);
        }
    }

    /// False if it is not loading any more, or was made anew: what was read before then may be old.
    async fn load(&self, durable: &Durable, region: u16, number: u64) -> Result<bool, Error> {
        let store = &self.core.store;
        let mut scan = durable.backup().scan(region);
        while let Some(versions) = scan.next().await? {
            if !store.is_loading(region, number) {
                return Ok(false);
            }
            // Versions that were written meanwhile, which the scan meets too, cost no rest.
            let is_wanted = |version: &&Version| store.is_away(version.pointer) || overwrites();
            let away: Vec<&Version> = versions.iter().filter(is_wanted).collect();
            if away.is_empty() {
                yield_now().await;
            }
            for some in away.chunks(LOAD_OBJECTS.get()) {
                for version in some {
                    self.core.bring(version.pointer, Some(version));
                }
                rest().await;
                if !store.is_loading(region, number) {
                    return Ok(false);
                }
            }
        }
        // What is still away was of a slab that was freed.
        for slab in 0..store.shape.slabs() {
            for at in store.away(region, slab) {
                let version = durable.backup().read(at).await?;
                if !store.is_loading(region, number) {
                    return Ok(false);
                }
                self.core.bring(at, version.as_ref());
            }
        }
        if !store.is_loading(region, number) {
            return Ok(false);
        }
        let is_here = |slab| store.away(region, slab).is_empty();
        // Of all slabs, so only in the simulator.
        assert!(
            !nobody_has_lied() || (0..store.shape.slabs()).all(is_here),
            "region {region} is loaded, and some of its objects are away"
        );
        store.loaded(region);
        Ok(true)
    }
}
