//! The image, its places, and what all parts of a backup share.

use super::blocks::{Blocks, Broken, Identity, Version, Writer};
use super::group::{Extent, Group, Tail};
use super::maps::Versions;
use crate::layout::{Key, Layout, Place};
use crate::{BACKUP_BUFFER_BYTES, Error, Journal};
use bytes::Bytes;
use plinth_runtime::disk::{File, Synced};
use plinth_runtime::sync::{Permits, oneshot};
use plinth_runtime::{probe, spawn};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

/// Free places that only the cleaner may take: without them a full disk could not be cleaned.
const RESERVED_PLACES: usize = 2;
/// Extents of a group that only the cleaner may begin.
const RESERVED_EXTENTS: usize = 1;

/// Complete blocks on their way to the image.
struct Chunk {
    key: Key,
    place: u32,
    /// The number of the first block.
    begin: u32,
    bytes: Bytes,
}

pub struct State {
    pub groups: BTreeMap<Key, Group>,
    pub versions: Versions,
    pub safe_point: u64,
    pub next_sequence: u64,
    /// Places of the image that are free. The image has all below `places`.
    pub free: BTreeSet<u32>,
    pub places: u32,
    chunks: VecDeque<Chunk>,
    /// Groups that may have complete blocks in no chunk.
    touched: BTreeSet<Key>,
    /// Bytes in memory that could be on disk.
    unwritten: usize,
    /// The end of all writing.
    pub failed: Option<Error>,
    /// Of the last sync.
    pub synced: Synced,
    /// Bytes of the manifest since it was written whole.
    pub manifest_bytes: u64,
    /// The manifest has this safe point.
    pub synced_safe_point: u64,
}

impl State {
    pub fn new(synced: Synced) -> State {
        State {
            groups: BTreeMap::new(),
            versions: Versions::default(),
            safe_point: 0,
            next_sequence: 0,
            free: BTreeSet::new(),
            places: 0,
            chunks: VecDeque::new(),
            touched: BTreeSet::new(),
            unwritten: 0,
            failed: None,
            synced,
            manifest_bytes: 0,
            synced_safe_point: 0,
        }
    }

    /// Hands the complete blocks of the touched groups over.
    fn gather(&mut self) {
        for key in std::mem::take(&mut self.touched) {
            if let Some(tail) = self.groups.get_mut(&key).and_then(|g| g.tail.as_mut()) {
                gather_from(&mut self.chunks, key, &mut tail.writer);
            }
        }
    }

    /// Completes the open block of a group.
    pub fn close_block(&mut self, key: Key) {
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        let before = group.complete_bytes();
        group.close_block();
        self.unwritten += group.complete_bytes() - before;
        self.touched.insert(key);
    }

    /// A block that is in memory.
    fn block_in_memory(
        &self,
        key: Key,
        local: usize,
        place: u32,
        number: u32,
        size: usize,
    ) -> Option<Bytes> {
        let tail = self.groups.get(&key)?.tail.as_ref();
        let tail = tail.filter(|tail| tail.local == local);
        if let Some(block) = tail.and_then(|tail| tail.writer.copy(number)) {
            return Some(block);
        }
        self.chunks.iter().find_map(|chunk| {
            let at = number.checked_sub(chunk.begin)? as usize * size;
            let is_it = chunk.place == place && chunk.key == key && at < chunk.bytes.len();
            is_it.then(|| chunk.bytes.slice(at..at + size))
        })
    }

    /// Forgets what is on its way to the extents of a group.
    pub fn forget_chunks(&mut self, key: Key) {
        let tail = self.groups.get(&key).map_or(0, Group::complete_bytes);
        let chunks = self.chunks.iter().filter(|chunk| chunk.key == key);
        let chunks: usize = chunks.map(|chunk| chunk.bytes.len()).sum();
        assert!(
            tail + chunks <= self.unwritten,
            "{tail} and {chunks} bytes of {key:?} are forgotten, of {} in all",
            self.unwritten
        );
        self.unwritten -= tail + chunks;
        self.chunks.retain(|chunk| chunk.key != key);
        self.touched.remove(&key);
    }
}

fn gather_from(chunks: &mut VecDeque<Chunk>, key: Key, writer: &mut Writer) {
    if let Some((begin, bytes)) = writer.take_complete() {
        let place = writer.identity.place;
        chunks.push_back(Chunk {
            key,
            place,
            begin,
            bytes,
        });
    }
}

pub struct Store {
    pub layout: Layout,
    pub id: u64,
    pub path: PathBuf,
    pub image: File,
    pub manifest: Journal,
    pub state: RefCell<State>,
    /// One at a time writes to the image, makes it longer, syncs, or cleans.
    pub writing: Permits,
    pub growing: Permits,
    pub syncing: Permits,
    pub cleaning: Permits,
}

/// Why a version cannot be written now.
enum NoRoom {
    /// The image has no free place.
    Image,
    /// The group has all the extents that it may have.
    Group,
}

/// What an append does with a version, which is decided when there is room for it.
pub enum Wish {
    Append,
    Leave,
}

/// Runs work on the image to its end, even if its caller is dropped: a write that is under way then must not happen
/// after later ones.
async fn to_its_end(
    name: &'static str,
    work: impl Future<Output = Result<(), Error>> + 'static,
) -> Result<(), Error> {
    let (done, ended) = oneshot();
    let work = async move {
        let result = work.await;
        let _ = done.send(result); // nobody may wait any more
    };
    spawn(name, work).detach();
    let stopped = |_| Err(Error::refused("the process is ending"));
    ended.await.unwrap_or_else(stopped)
}

impl Store {
    pub fn fail<T>(&self, error: Error) -> Result<T, Error> {
        if !error.is_full() {
            self.state.borrow_mut().failed = Some(error.clone());
        }
        Err(error)
    }

    pub fn check_failed(&self) -> Result<(), Error> {
        let failed = self.state.borrow().failed.clone();
        failed.map_or(Ok(()), Err)
    }

    fn offset(&self, place: u32, block: u32) -> u64 {
        let block = u64::from(block) * u64::from(self.layout.block_bytes);
        u64::from(place) * self.layout.extent_bytes() + block
    }

    /// Damage of a block.
    pub fn damaged(&self, place: u32, Broken(block): Broken) -> Error {
        Error::damaged(&self.path, self.offset(place, block), "a block of versions")
    }

    fn full(&self) -> Error {
        Error::Full {
            path: self.path.clone(),
        }
    }

    /// Makes the image one extent longer.
    async fn grow(self: &Rc<Self>) -> Result<(), Error> {
        let store = self.clone();
        to_its_end("farm backup grow", async move { store.grow_once().await }).await
    }

    async fn grow_once(&self) -> Result<(), Error> {
        let _permit = self.growing.take().await;
        let place = {
            let state = self.state.borrow();
            if state.free.len() > RESERVED_PLACES {
                return Ok(()); // somebody else has
            }
            state.places
        };
        let grown = self.image.allocate(self.offset(place + 1, 0)).await;
        match grown.map_err(|e| Error::of(&self.path, &e)) {
            Ok(()) => {
                let state = &mut *self.state.borrow_mut();
                let (before, is_new) = (state.places, state.free.insert(place));
                assert!(
                    before == place && is_new,
                    "the image had {before} places, and gets place {place}"
                );
                state.places = place + 1;
                Ok(())
            }
            Err(error) => self.fail(error),
        }
    }

    /// Sees to it that the group's tail has room for a version.
    fn make_tail(
        &self,
        state: &mut State,
        version: &Version,
        key: Key,
        cleans: bool,
    ) -> Result<(), NoRoom> {
        let (extents, places) = match cleans {
            true => (0, 0),
            false => (RESERVED_EXTENTS, RESERVED_PLACES),
        };
        let group = state.groups.entry(key);
        let group = group.or_insert_with(|| Group::new(key, &self.layout));
        if let Some(tail) = &group.tail
            && tail.writer.has_room(version)
        {
            return Ok(());
        }
        let local = group.free_number(&self.layout, extents);
        let local = local.ok_or(NoRoom::Group)?;
        if state.free.len() <= places {
            return Err(NoRoom::Image);
        }
        let free = state.free.pop_first().expect("there are some");
        state.close_block(key);
        let group = state.groups.get_mut(&key).expect("made above");
        if let Some(mut former) = group.tail.take() {
            gather_from(&mut state.chunks, key, &mut former.writer);
        }
        let extent = Extent::new(free, state.next_sequence);
        state.next_sequence += 1;
        let (size, blocks) = (self.layout.block_bytes, self.layout.extent_blocks);
        let writer = Writer::new(extent.identity(self.id), size, blocks);
        group.tail = Some(Tail { local, writer });
        if local == group.extents.len() {
            group.extents.push(None);
        }
        let before = group.extents[local].replace(extent);
        assert!(
            before.is_none(),
            "extent {local} of {key:?} is begun again: {before:?}"
        );
        Ok(())
    }

    /// Appends a version if `decide` says so at the moment when there is room for it. False if it did not.
    pub async fn append(
        self: &Rc<Self>,
        version: &Version,
        place: &Place,
        cleans: bool,
        mut decide: impl FnMut(&mut State) -> Result<Wish, Error>,
    ) -> Result<bool, Error> {
        loop {
            self.check_failed()?;
            let no_room = {
                let state = &mut *self.state.borrow_mut();
                if let Wish::Leave = decide(state)? {
                    return Ok(false);
                }
                match self.make_tail(state, version, place.key, cleans) {
                    Ok(()) => {
                        let group = state.groups.get_mut(&place.key).expect("made above");
                        let before = group.complete_bytes();
                        group.push(&self.layout, place, version);
                        state.unwritten += group.complete_bytes() - before;
                        state.touched.insert(place.key);
                        if !cleans {
                            let pointer = version.pointer.bits();
                            state.versions.put(pointer, version.timestamp);
                        }
                        return Ok(true);
                    }
                    Err(no_room) => no_room,
                }
            };
            match no_room {
                NoRoom::Image => self.grow().await?,
                NoRoom::Group => {
                    probe!("farm_disk_group_full");
                    return Err(self.full());
                }
            }
        }
    }

    /// Writes what is complete, if so much has gathered that memory should not hold more.
    pub async fn flush_if_much(self: &Rc<Self>) -> Result<(), Error> {
        if self.state.borrow().unwritten < BACKUP_BUFFER_BYTES.get() {
            return Ok(());
        }
        self.flush().await
    }

    /// Writes everything that is complete now.
    pub async fn flush(self: &Rc<Self>) -> Result<(), Error> {
        let store = self.clone();
        to_its_end("farm backup write", async move { store.flush_now().await }).await
    }

    async fn flush_now(&self) -> Result<(), Error> {
        let _permit = self.writing.take().await;
        self.state.borrow_mut().gather();
        let mut left = self.state.borrow().chunks.len();
        while left > 0 {
            self.check_failed()?;
            let (offset, bytes) = {
                let state = self.state.borrow();
                let Some(chunk) = state.chunks.front() else {
                    return Ok(());
                };
                (self.offset(chunk.place, chunk.begin), chunk.bytes.clone())
            };
            let written = self.image.write_at(offset, bytes.clone()).await;
            if let Err(error) = written {
                return self.fail(Error::of(&self.path, &error));
            }
            let state = &mut *self.state.borrow_mut();
            // Its group may have been dropped meanwhile.
            let is_it = |chunk: &Chunk| chunk.bytes.as_ptr() == bytes.as_ptr();
            if state.chunks.front().is_some_and(is_it) {
                state.chunks.pop_front();
                assert!(
                    bytes.len() <= state.unwritten,
                    "{} bytes are written, of {}",
                    bytes.len(),
                    state.unwritten
                );
                state.unwritten -= bytes.len();
            }
            left -= 1;
        }
        Ok(())
    }

    /// Adds blocks of an extent to those that were read before: up to this number, from memory or from the disk.
    pub async fn load(
        &self,
        key: Key,
        local: usize,
        extent: &Extent,
        blocks: &mut Blocks,
        end: u32,
    ) -> Result<(), Error> {
        let size = self.layout.block_bytes as usize;
        let in_memory = |number: u32| {
            let state = self.state.borrow();
            state.block_in_memory(key, local, extent.place, number, size)
        };
        while blocks.end() < end {
            let number = blocks.end();
            let failed = |broken| self.damaged(extent.place, broken);
            if let Some(block) = in_memory(number) {
                blocks.add(block, None).map_err(failed)?;
                continue;
            }
            let behind = (number + 1..end).find(|number| in_memory(*number).is_some());
            let count = (behind.unwrap_or(end) - number) as usize;
            let offset = self.offset(extent.place, number);
            let bytes = self.image.read_at(offset, count * size).await;
            let bytes = bytes.map_err(|e| Error::of(&self.path, &e))?;
            if bytes.len() < count * size {
                let what = "the file was cut short";
                return Err(Error::damaged(
                    &self.path,
                    offset + bytes.len() as u64,
                    what,
                ));
            }
            let identity: Identity = extent.identity(self.id);
            blocks.add(bytes, Some(identity)).map_err(failed)?;
        }
        Ok(())
    }
}
