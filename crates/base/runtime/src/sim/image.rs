//! The content of one simulated file: its newest state, and how to undo the changes that are not durable.
//!
//! The image holds the newest content. Beside it, each change since the last sync is kept with the content that it
//! replaced. A sync drops these records. A power cut undoes all of these changes, newest first, and then redoes some
//! of them: each change is kept, lost or torn by itself, as disks with caches do (FDB §4).

use crate::random;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

const PAGE_BYTES: usize = 16 << 10;
/// Above this many unsynced bytes, the oldest changes become durable without a sync, as in a kernel's write-back.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;
/// Size limit of a file in a simulation: files are held in memory.
const FILE_BYTES_MAX: u64 = 64 << 30;

#[derive(Default)]
enum Page {
    /// No space is allocated: a write may find the disk full.
    #[default]
    Hole,
    /// Allocated, zero so far.
    Zeros,
    Data(Box<[u8]>),
}

/// The bytes of a sparse file.
#[derive(Default)]
struct Image {
    len: u64,
    pages: Vec<Page>,
}

impl Image {
    fn read(&self, offset: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let (page, within) = (at as usize / PAGE_BYTES, at as usize % PAGE_BYTES);
            let n = (PAGE_BYTES - within).min(out.len() - done);
            let target = &mut out[done..done + n];
            match self.pages.get(page) {
                Some(Page::Data(bytes)) => target.copy_from_slice(&bytes[within..within + n]),
                _ => target.fill(0),
            }
            done += n;
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.set_len(self.len.max(end));
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (page, within) = (at as usize / PAGE_BYTES, at as usize % PAGE_BYTES);
            let n = (PAGE_BYTES - within).min(data.len() - done);
            let page = &mut self.pages[page];
            if !matches!(page, Page::Data(_)) {
                *page = Page::Data(vec![0; PAGE_BYTES].into());
            }
            let Page::Data(bytes) = page else {
                unreachable!("made so above")
            };
            bytes[within..within + n].copy_from_slice(&data[done..done + n]);
            done += n;
        }
    }

    fn set_len(&mut self, len: u64) {
        let pages = len.div_ceil(PAGE_BYTES as u64) as usize;
        self.pages.truncate(pages);
        self.pages.resize_with(pages, Page::default);
        // Bytes behind the end must be zero when the file grows again.
        if len < self.len
            && let Some(Page::Data(bytes)) = self.pages.last_mut()
        {
            let within = len as usize % PAGE_BYTES;
            if within > 0 {
                bytes[within..].fill(0);
            }
        }
        self.len = len;
    }

    fn allocate_holes(&mut self) {
        for page in &mut self.pages {
            if matches!(page, Page::Hole) {
                *page = Page::Zeros;
            }
        }
    }

    /// True if a write there needs no more space on the disk.
    fn has_space(&self, offset: u64, len: usize) -> bool {
        let Some(end) = offset
            .checked_add(len as u64)
            .filter(|end| *end <= self.len)
        else {
            return false;
        };
        let pages = offset as usize / PAGE_BYTES..end.div_ceil(PAGE_BYTES as u64) as usize;
        pages.is_empty()
            || self.pages[pages]
                .iter()
                .all(|page| !matches!(page, Page::Hole))
    }
}

enum Change {
    Write {
        offset: u64,
        new: Bytes,
        old: Vec<u8>,
        old_len: u64,
    },
    SetLen {
        new_len: u64,
        old_len: u64,
        cut_off: Vec<u8>,
        allocates: bool,
    },
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Change::Write { new, .. } => new.len(),
            Change::SetLen { cut_off, .. } => cut_off.len(),
        }
    }
}

/// The destination of a stray write. Its caller gets no error.
pub(super) enum Stray {
    Nowhere,
    /// To another place of the same file.
    Here,
    Into(Arc<Mutex<FileState>>),
}

pub(super) struct FileState {
    pub id: u64,
    /// Misdirects or loses the next write.
    pub stray: Option<Stray>,
    /// The exclusive handle that is open, if there is one.
    pub held_by: Weak<Hold>,
    image: Image,
    unsynced: VecDeque<Change>,
    unsynced_bytes: usize,
    /// Number of the first unsynced change: all before it are durable.
    first_unsynced: u64,
    /// Changes before this number that are not durable reach the disk in order: the disk has lied about them.
    in_order_until: u64,
}

/// An exclusive handle of a file; the flag is true while its process lives.
pub(super) struct Hold(pub Arc<AtomicBool>);

impl FileState {
    pub fn new(id: u64) -> FileState {
        FileState {
            id,
            stray: None,
            held_by: Weak::new(),
            image: Image::default(),
            unsynced: VecDeque::new(),
            unsynced_bytes: 0,
            first_unsynced: 0,
            in_order_until: 0,
        }
    }

    /// True if a live process holds the file exclusively.
    pub fn is_held(&self) -> bool {
        let holder = self.held_by.upgrade();
        holder.is_some_and(|holder| holder.0.load(Ordering::Relaxed))
    }

    pub fn len(&self) -> u64 {
        self.image.len
    }

    /// Up to `len` bytes; fewer at the end of the file.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let available = self.image.len.saturating_sub(offset).min(len as u64);
        let mut out = vec![0; available as usize];
        self.image.read(offset, &mut out);
        out
    }

    pub fn read_exact(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.image.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.image.read(offset, out);
        Ok(())
    }

    pub fn has_space(&self, offset: u64, len: usize) -> bool {
        self.image.has_space(offset, len)
    }

    pub fn write(&mut self, offset: u64, new: Bytes) -> io::Result<()> {
        let end = offset
            .checked_add(new.len() as u64)
            .filter(|end| *end <= FILE_BYTES_MAX);
        if end.is_none() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if new.is_empty() {
            return Ok(());
        }
        let old_len = self.image.len;
        let old = self.read(offset, new.len());
        self.image.write(offset, &new);
        self.push(Change::Write {
            offset,
            new,
            old,
            old_len,
        });
        Ok(())
    }

    /// A misdirected write: it lands on random sectors of the file, cut off at the file's end.
    pub fn write_anywhere(&mut self, data: &[Bytes]) -> io::Result<()> {
        let sector = 512 * random::below(self.len() / 512 + 1);
        let mut room = (self.len() - sector) as usize;
        let mut at = sector;
        for slice in data {
            let part = slice.slice(..slice.len().min(room));
            room -= part.len();
            let end = at + part.len() as u64;
            self.write(at, part)?;
            at = end;
        }
        Ok(())
    }

    /// Sets the length. With `allocates`, space is allocated for new and old holes, too.
    pub fn set_len(&mut self, new_len: u64, allocates: bool) -> io::Result<()> {
        if new_len > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let old_len = self.image.len;
        let cut_off = self.read(new_len, old_len.saturating_sub(new_len) as usize);
        self.image.set_len(new_len);
        if allocates {
            self.image.allocate_holes();
        }
        self.push(Change::SetLen {
            new_len,
            old_len,
            cut_off,
            allocates,
        });
        Ok(())
    }

    fn push(&mut self, change: Change) {
        self.unsynced_bytes += change.bytes();
        self.unsynced.push_back(change);
        while self.unsynced_bytes > UNSYNCED_BYTES_MAX {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.unsynced.pop_front() {
            self.unsynced_bytes -= first.bytes();
            self.first_unsynced += 1;
        }
    }

    /// A number that covers every change made so far; see [`mark_synced`](Self::mark_synced).
    pub fn changes(&self) -> u64 {
        self.first_unsynced + self.unsynced.len() as u64
    }

    /// True if changes that are not durable may lack space: the file has grown since its last sync.
    pub fn has_grown(&self) -> bool {
        self.unsynced.iter().any(|change| match change {
            Change::Write {
                offset,
                new,
                old_len,
                ..
            } => offset + new.len() as u64 > *old_len,
            Change::SetLen {
                new_len,
                old_len,
                allocates,
                ..
            } => !allocates && new_len > old_len,
        })
    }

    /// The changes before `changes` are durable.
    pub fn mark_synced(&mut self, changes: u64) {
        while self.first_unsynced < changes && !self.unsynced.is_empty() {
            self.forget_first();
        }
    }

    /// A sync that lies: nothing becomes durable. With `in_order`, the changes reach the disk in order.
    pub fn lie(&mut self, in_order: bool) {
        if in_order {
            self.in_order_until = self.changes();
        }
    }

    /// Applies a power cut to the changes that are not durable.
    pub fn power_cut(&mut self) {
        let in_order = self.in_order_until.saturating_sub(self.first_unsynced) as usize;
        let mut changes = self.take_unsynced_back();
        if in_order > 0 {
            let kept = random::below(in_order as u64 + 1) as usize;
            changes.drain(..kept).for_each(|change| self.redo(change));
            if kept < in_order {
                return;
            }
        }
        // The share of changes that are kept differs for every file and power cut.
        let keep = random::unit();
        for change in &changes {
            match change {
                Change::Write { offset, new, .. } if random::chance(keep) => {
                    self.image.write(*offset, new)
                }
                Change::Write { offset, new, .. } if random::chance(0.6) => self.tear(*offset, new),
                Change::Write { .. } => {}
                Change::SetLen {
                    new_len, allocates, ..
                } => {
                    if random::chance(keep) {
                        self.image.set_len(*new_len);
                        if *allocates {
                            self.image.allocate_holes();
                        }
                    }
                }
            }
        }
    }

    fn redo(&mut self, change: Change) {
        match change {
            Change::Write { offset, new, .. } => self.image.write(offset, &new),
            Change::SetLen {
                new_len, allocates, ..
            } => {
                self.image.set_len(new_len);
                if allocates {
                    self.image.allocate_holes();
                }
            }
        }
    }

    /// Restores the durable content; returns the changes that were undone.
    fn take_unsynced_back(&mut self) -> VecDeque<Change> {
        let changes = std::mem::take(&mut self.unsynced);
        self.first_unsynced += changes.len() as u64;
        self.unsynced_bytes = 0;
        for change in changes.iter().rev() {
            self.undo(change);
        }
        changes
    }

    fn undo(&mut self, change: &Change) {
        match change {
            Change::Write {
                offset,
                old,
                old_len,
                ..
            } => {
                if !old.is_empty() {
                    self.image.write(*offset, old);
                }
                self.image.set_len(*old_len);
            }
            Change::SetLen {
                new_len,
                old_len,
                cut_off,
                ..
            } => {
                self.image.set_len(*old_len);
                if !cut_off.is_empty() {
                    self.image.write(*new_len, cut_off);
                }
            }
        }
    }

    /// Writes some sectors and not others; one sector may get garbage.
    fn tear(&mut self, offset: u64, new: &[u8]) {
        let sector = if random::chance(0.5) { 512 } else { 4096 };
        // Sectors are aligned to the disk: the first one may begin before the write does.
        let first_end = sector - (offset % sector as u64) as usize;
        let ends: Vec<usize> = (0..)
            .map(|i| first_end + i * sector)
            .take_while(|end| *end < new.len())
            .collect();
        let whole = random::below(ends.len() as u64 + 1) as usize;
        let out_of_order = random::chance(0.25);
        let garbage = random::chance(0.2);
        let mut start = 0;
        for (i, end) in ends.into_iter().chain([new.len()]).enumerate() {
            let is_kept = if out_of_order {
                random::chance(0.5)
            } else {
                i < whole
            };
            if is_kept {
                self.image.write(offset + start as u64, &new[start..end]);
            } else if garbage && i == whole {
                let mut noise = vec![0; end - start];
                random::fill(&mut noise);
                self.image.write(offset + start as u64, &noise);
            }
            start = end;
        }
    }

    /// Flips one bit of the content for good, as decay does.
    pub fn flip_bit(&mut self, offset: u64, bit: u32) {
        let mut byte = [0];
        self.image.read(offset, &mut byte);
        byte[0] ^= 1 << bit;
        self.image.write(offset, &byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One random change, to the file and to plain bytes.
    fn change_both(file: &mut FileState, plain: &mut Vec<u8>) {
        const OFFSET_MAX: u64 = 3 * PAGE_BYTES as u64;
        let at = random::below(OFFSET_MAX);
        if random::chance(0.2) {
            file.set_len(at, false).unwrap();
            plain.resize(at as usize, 0);
        } else if random::chance(0.1) {
            file.set_len(at.max(file.len()), true).unwrap();
            plain.resize(plain.len().max(at as usize), 0);
        } else {
            let mut data = vec![0; 1 + random::below(2 * PAGE_BYTES as u64) as usize];
            random::fill(&mut data);
            let end = at as usize + data.len();
            plain.resize(plain.len().max(end), 0);
            plain[at as usize..end].copy_from_slice(&data);
            file.write(at, data.into()).unwrap();
        }
    }

    #[test]
    fn a_file_reads_as_plain_bytes_do_and_goes_back_to_its_last_sync() {
        for _ in 0..300 {
            let mut file = FileState::new(1);
            let (mut plain, mut durable) = (Vec::new(), Vec::new());
            for _ in 0..random::below(20) {
                change_both(&mut file, &mut plain);
                assert_eq!(file.read(0, usize::MAX), plain);
                if random::chance(0.2) {
                    file.mark_synced(file.changes());
                    durable = plain.clone();
                }
            }
            file.take_unsynced_back();
            assert_eq!(file.read(0, usize::MAX), durable);
        }
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_began_and_no_more() {
        let mut file = FileState::new(1);
        file.write(0, Bytes::from("first")).unwrap();
        let began = file.changes();
        file.write(5, Bytes::from(" second")).unwrap();
        file.mark_synced(began);
        file.take_unsynced_back();
        assert_eq!(file.read(0, 100), b"first");
    }

    #[test]
    fn a_torn_write_leaves_old_sectors_new_sectors_and_at_most_one_of_garbage() {
        let mut mixed = 0;
        for _ in 0..300 {
            let mut file = FileState::new(1);
            file.write(0, vec![1; 20_000].into()).unwrap();
            file.mark_synced(file.changes());
            file.tear(700, &[2; 15_000]);
            let content = file.read(0, 20_000);
            assert_eq!(content.len(), 20_000);
            assert!(
                content[..700]
                    .iter()
                    .chain(&content[15_700..])
                    .all(|b| *b == 1)
            );
            let garbage = content.iter().filter(|b| **b > 2).count();
            assert!(garbage <= 4096, "{garbage} bytes of garbage");
            let new = content.iter().filter(|b| **b == 2).count();
            mixed += u32::from(new > 0 && new < 15_000);
        }
        assert!(mixed > 100, "{mixed} of 300");
    }
}
