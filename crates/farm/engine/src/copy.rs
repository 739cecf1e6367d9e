//! A replica that is not whole copies its region from the primary, when that is open: object by object, by one-sided
//! reads, while transactions go on. It takes part in all commits meanwhile, so the newer version wins.
//!
//! Cells without an object are copied too if there was one: a later primary must know that a snapshot before its end
//! sees something that is gone.
//!
//! A replica that is on disk only has no memory to copy to: versions go to the line to the backup as they come.

use crate::durable::{Item, version};
use crate::site::Site;
use crate::view::Place;
use crate::wire::{Change, Write};
use bytes::Bytes;
use plinth_farm_disk::Version;
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_memory::{Abort, Header, Older, Pointer, Seen, Snapshot};
use plinth_runtime::{probe, sleep, trace, yield_now};
use std::rc::Rc;

/// So many bytes are read at a time.
const READ_BYTES: usize = 256 << 10;

impl<F: Fabric + 'static> Site<F> {
    /// The region is open. Copies it if the replica here is not whole.
    pub fn begin_copy(self: &Rc<Self>, region: u16) {
        if !self.core.copies.borrow().contains(&region) {
            return;
        }
        let (number, primary) = {
            let view = self.core.view.borrow();
            (view.number, view.primary(region))
        };
        let Some(primary) = primary else {
            return;
        };
        let site = self.clone();
        self.tasks.spawn("farm copy", async move {
            if site.copy(number, region, primary).await.is_ok() {
                trace!("FarmReplicaWhole", "number" => number, "region" => region);
                site.core.copies.borrow_mut().remove(&region);
                match &site.core.durable {
                    Some(durable) => site.copy_to_disk(durable, number, region).await,
                    None => site.say_whole(number, region),
                }
            }
        });
    }

    pub fn say_whole(&self, number: u64, region: u16) {
        if let Some(links) = &self.links {
            links.whole(number, region);
        }
    }

    async fn copy(&self, number: u64, region: u16, primary: Place) -> Result<(), Abort> {
        let shape = self.core.store.shape;
        for slab in 0..shape.slabs() {
            while !self.copy_slab(number, region, primary, slab).await? {
                probe!("farm slab copied anew");
            }
            yield_now().await;
        }
        Ok(())
    }

    /// False if a slab was freed meanwhile, perhaps this one: what was read may be anything.
    async fn copy_slab(
        &self,
        number: u64,
        region: u16,
        primary: Place,
        slab: u32,
    ) -> Result<bool, Abort> {
        let shape = self.core.store.shape;
        let place = (primary.machine, primary.slot);
        let frees = self.core.store.frees.get();
        let table = self.header(number, place, shape.table_word(slab)).await?;
        let Some(class) = shape.class_in(table.bits()) else {
            // Objects that come into the slab from now on come here too.
            return Ok(true);
        };
        let cell_bytes = Snapshot::bytes(class);
        let at_once = (READ_BYTES / cell_bytes).max(1) as u32;
        let mut index = 0;
        while index < shape.cells(class) {
            let count = at_once.min(shape.cells(class) - index);
            let first = shape.pointer(region, class, slab, index);
            let mut bytes = vec![0; count as usize * cell_bytes];
            self.read(number, place, first.word(), &mut bytes).await?;
            if self.core.store.frees.get() != frees {
                return Ok(false);
            }
            let bytes = Bytes::from(bytes);
            let mut copied = Vec::new();
            for cell in 0..count {
                let at = shape.pointer(region, class, slab, index + cell);
                let bytes = bytes.slice(cell as usize * cell_bytes..);
                let bytes = bytes.slice(..cell_bytes);
                match self.copy_cell(number, place, at, bytes, frees).await? {
                    Some(version) => copied.extend(version),
                    None => return Ok(false),
                }
            }
            self.copied(copied).await;
            index += count;
        }
        Ok(true)
    }

    /// The same for a cell, of which `bytes` were read. A version that is about to be replaced is read again: nobody
    /// is in the middle of that for long. What is away is waited for. `None` if a slab was freed meanwhile; otherwise
    /// what a replica has taken in.
    async fn copy_cell(
        &self,
        number: u64,
        place: (Machine, u16),
        at: Pointer,
        mut bytes: Bytes,
        frees: u64,
    ) -> Result<Option<Option<Version>>, Abort> {
        loop {
            match Snapshot::judge(&bytes, at.class()) {
                Seen::Version {
                    header, payload, ..
                } => {
                    let payload = bytes.slice(payload);
                    return Ok(Some(self.copy_version(at, header, payload)));
                }
                Seen::Locked { older, .. } if older == Older::AWAY => {
                    probe!("farm copy waits for an object that is away");
                    sleep(self.core.settings.patience).await;
                }
                _ => {
                    probe!("farm cell copied again");
                    self.core.pause().await;
                }
            }
            bytes = self.read_cell(number, place, at).await?;
            if self.core.store.frees.get() != frees {
                return Ok(None);
            }
        }
    }

    async fn read_cell(
        &self,
        number: u64,
        place: (Machine, u16),
        at: Pointer,
    ) -> Result<Bytes, Abort> {
        let mut again = vec![0; Snapshot::bytes(at.class())];
        self.read(number, place, at.word(), &mut again).await?;
        Ok(again.into())
    }

    fn copy_version(&self, at: Pointer, header: Header, payload: Bytes) -> Option<Version> {
        if header.timestamp() == 0 {
            return None;
        }
        let change = match header.is_allocated() {
            true => Change::Update,
            false => Change::Free,
        };
        let write = Write {
            at,
            change,
            payload,
        };
        self.core.store.installed(header.timestamp());
        let copied = self.core.apply_one(at.region(), header.timestamp(), &write);
        if copied.is_none() {
            probe!("farm copy has no such cell");
        }
        (copied == Some(true)).then(|| version(&write, header.timestamp()))
    }

    /// What was copied goes to the backup, of a replica that is on disk only. The backup tells what is older than what
    /// has come meanwhile.
    async fn copied(&self, versions: Vec<Version>) {
        let durable = self.core.durable.as_ref();
        let durable = durable.filter(|_| self.core.store.is_on_disk && !versions.is_empty());
        if let Some(durable) = durable {
            durable.push(Item::Copied(versions));
            durable.until_half_done().await;
        }
    }
}
