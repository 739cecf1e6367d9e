//! A disk that is opened, and loaded into memory.

use super::record::Entry;
use super::replay::{Replay, Step};
use super::{Durable, Freed, Item, Restored, version};
use crate::image::{Image, Table};
use crate::wire::Write;
use plinth_core::codec::Codec;
use plinth_farm_disk::{Backup, Error, Journal, Layout, Version};
use plinth_farm_fabric::Host;
use plinth_farm_memory::{Region, Shape, Sizes};
use plinth_runtime::probe;
use std::collections::BTreeMap;
use std::path::Path;

/// What a machine has on its disk.
pub struct Disk {
    pub(crate) durable: Durable,
    replay: Replay,
    sizes: Sizes,
    newest: u64,
    /// Replicas that are in memory: their slots, by region.
    pub(crate) loaded: BTreeMap<u16, (u16, Image)>,
    /// Replicas stay on disk until this machine is their primary.
    pub(crate) is_on_disk: bool,
}

fn unlike(path: &Path, what: impl Into<String>) -> Error {
    Error::Unlike {
        path: path.to_owned(),
        what: what.into(),
    }
}

/// Replaces the object's version if this one is newer. A slab that is of another class by now has newer objects, or
/// has had some.
fn put(image: &mut Image, version: &Version) {
    let slab = image.taken_over(version.pointer);
    if slab.is_some_and(|slab| image.newest_in(slab) >= version.timestamp) {
        return;
    }
    image.apply(version);
}

impl Disk {
    /// Opens what lies in the directory, or makes it. One process at a time may have it. `id` tells it from others.
    /// `is_on_disk`: replicas of which this machine is not the primary are not in memory.
    pub async fn open(
        directory: &Path,
        id: u64,
        sizes: &Sizes,
        is_on_disk: bool,
    ) -> Result<Disk, Error> {
        let shape = sizes.shape();
        let shape: Shape = shape.map_err(|error| unlike(directory, error.to_string()))?;
        let layout = Layout::of(shape.slab_word(0), shape.slab_words());
        let images = directory.join("backup");
        let made = plinth_runtime::disk::create_dir_all(&images).await;
        made.map_err(|error| unlike(&images, error.to_string()))?;
        let backup = Backup::open(&images, id, layout).await?;
        let mut replay = Replay::new(shape);
        let prefix = directory.join("journal");
        let journal = Journal::open(&prefix, id, |position, record| {
            let entry = Entry::from_bytes(record);
            let entry = entry.ok_or_else(|| unlike(&prefix, "a record of another kind"))?;
            replay.take(position, entry);
            Ok(())
        });
        let healths = [directory, &images].map(plinth_runtime::disk::health);
        let durable = Durable::new(journal.await?, backup, healths.into());
        let mut regions = durable.backup.regions();
        regions.extend(replay.regions());
        durable.regions.replace(regions);
        Ok(Disk {
            newest: replay.newest(),
            durable,
            replay,
            sizes: *sizes,
            loaded: BTreeMap::new(),
            is_on_disk,
        })
    }

    /// Reads replicas of these regions into slots of the machine's memory, in which nobody else reads yet; or what is
    /// to be known of those that stay on disk.
    pub async fn load(&mut self, host: &Host, replicas: &[(u16, u16)]) -> Result<(), Error> {
        let directory = Path::new("the memory");
        for (number, slot) in replicas {
            let memory = host.region(*slot);
            let memory = memory.map_err(|_| unlike(directory, format!("it has no slot {slot}")))?;
            for (slab, at) in self.durable.backup.freed_slabs(*number) {
                self.durable.note_freed(*number, slab, at);
            }
            let mut image = match self.is_on_disk {
                true => self.table(*number)?,
                false => {
                    let region = Region::make(memory, *number, self.sizes.slab_words);
                    let region = region.map_err(|error| unlike(directory, error.to_string()))?;
                    self.scan(*number, Image::Memory(region)).await?
                }
            };
            for step in self.replay.steps(*number) {
                self.redo(*number, &mut image, step);
            }
            self.loaded.insert(*number, (*slot, image));
        }
        let regions: Vec<u16> = self.loaded.keys().copied().collect();
        let (records, below) = self.replay.records(&regions);
        let restored = Restored { records, below };
        self.durable.restored.replace(Some(restored));
        Ok(())
    }

    async fn scan(&mut self, number: u16, mut image: Image) -> Result<Image, Error> {
        let mut scan = self.durable.backup.scan(number);
        while let Some(versions) = scan.next().await? {
            for version in versions {
                self.newest = self.newest.max(version.timestamp);
                put(&mut image, &version);
            }
        }
        Ok(image)
    }

    fn table(&mut self, number: u16) -> Result<Image, Error> {
        let shape = self.sizes.shape();
        let shape = shape.map_err(|error| unlike(Path::new("the memory"), error.to_string()))?;
        let slabs = self.durable.backup.slabs(number);
        let newest = slabs.iter().map(|(.., newest)| *newest).max();
        self.newest = self.newest.max(newest.unwrap_or(0));
        Ok(Image::Disk(Table::of(shape, &slabs)))
    }

    /// What the backup may not have goes there too.
    fn redo(&self, number: u16, image: &mut Image, step: Step) {
        match step {
            Step::Apply {
                position,
                written_at,
                writes,
            } => {
                let shape = self.sizes.shape();
                let is_over = |write: &Write| {
                    let slab = shape.and_then(|shape| shape.place(write.at));
                    slab.is_ok_and(|(slab, _)| self.durable.is_over(number, slab, written_at))
                };
                let writes = writes.iter().filter(|write| !is_over(write));
                let versions: Vec<Version> = writes.map(|w| version(w, written_at)).collect();
                for version in &versions {
                    self.note_takeover(number, image, version);
                    put(image, version);
                }
                let versions: Vec<Version> = versions
                    .into_iter()
                    .filter(|version| image.has_cell(version.pointer))
                    .collect();
                if !versions.is_empty() {
                    self.durable.push(Item::Apply { position, versions });
                }
            }
            Step::Free { position, freed } => {
                image.free_slab(freed.slab);
                self.durable.push(Item::Free { position, freed });
            }
        }
    }

    /// The note of that may have been lost with the journal's end.
    fn note_takeover(&self, region: u16, image: &Image, version: &Version) {
        let Some(slab) = image.taken_over(version.pointer) else {
            return;
        };
        let at = image.newest_in(slab);
        if (1..version.timestamp).contains(&at) {
            probe!("farm slab taken over while the disk is read");
            self.durable.free(Freed { region, slab, at });
        }
    }

    /// No timestamp of what was loaded is greater; 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.newest
    }
}
