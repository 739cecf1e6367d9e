//! Changes of a table: where a new entry goes, and what comes back when one goes.

use super::bucket::{Bucket, BucketPage, Head, RING, Settings};
use super::table::{BROKEN_ENTRY, Found, HashTable, NOT_A_BUCKET, Place, WRONG_GUESTS};
use crate::error::{Result, damaged};
use crate::keyed::{When, keyed};
use crate::page::Kind;
use crate::value::{self, Entry, Stored};
use bytes::Bytes;
use plinth_farm_memory::{Objects, Pointer};
use plinth_runtime::{nobody_has_lied, planted, probe};

/// How far away an empty slot may be that is moved into the neighbourhood of a key. Each step is a bucket read and
/// written.
const MOVES_MAX: usize = 2;

/// A bucket or block to be changed, and where it lies.
struct Open {
    at: Pointer,
    kind: Kind,
    bucket: Bucket,
}

impl Open {
    fn new(at: Pointer, kind: Kind, page: &BucketPage) -> Result<Open> {
        let bucket = page.to_bucket().ok_or(damaged(at, BROKEN_ENTRY))?;
        Ok(Open { at, kind, bucket })
    }

    fn head(&mut self) -> &mut Head {
        &mut self.bucket.head
    }

    /// One more entry of this home lies in the next bucket, or one less.
    fn count_guest(&mut self, change: i32) -> Result<()> {
        let guests = i32::from(self.bucket.head.guests) + change;
        let guests = u16::try_from(guests).map_err(|_| damaged(self.at, WRONG_GUESTS))?;
        self.bucket.head.guests = guests;
        Ok(())
    }
}

keyed!(HashTable, Settings);

impl HashTable {
    async fn write<O: Objects>(&self, tx: &O, open: &Open) -> Result<()> {
        self.check_written(open);
        let bytes = open.bucket.encode(open.kind, self.mark);
        Ok(tx.write(open.at, bytes).await?)
    }

    /// What is written is found again. What was read may have been anything.
    fn check_written(&self, open: &Open) {
        let Open { at, kind, bucket } = open;
        let (head, entries) = (bucket.head, bucket.entries.len());
        assert!(
            *kind != Kind::Overflow || entries > 0,
            "the block at {at:?} has no entries, and stays in the chain of bucket {}",
            head.index
        );
        if !nobody_has_lied() {
            return;
        }
        assert!(
            entries <= self.settings.slots,
            "bucket {} at {at:?} has {entries} entries, and {} slots",
            head.index,
            self.settings.slots
        );
        let ring = head.index & !(RING as u32 - 1);
        let before = ring | head.index.wrapping_sub(1) & (RING as u32 - 1);
        let before = Head {
            index: before,
            ..head
        };
        let is_found = |entry: &Entry| {
            let hash = self.hash(&entry.key);
            head.is_home(hash) || (*kind == Kind::Bucket && before.is_home(hash))
        };
        let lost = bucket.entries.iter().find(|entry| !is_found(entry));
        assert!(
            lost.is_none(),
            "nobody looks for {:?} in bucket {} at {at:?}",
            lost.map(|entry| &entry.key),
            head.index
        );
    }

    fn is_full(&self, open: &Open) -> bool {
        open.bucket.entries.len() >= self.settings.slots
    }

    /// Sets the value of a key that is there to what `change` makes of it. False if the key is not there. An error of
    /// `change` changes nothing.
    pub async fn modify<O: Objects>(
        &self,
        tx: &O,
        key: &[u8],
        change: impl FnOnce(Bytes) -> Result<Vec<u8>>,
    ) -> Result<bool> {
        let found = self.find(tx, key).await?;
        let Some(place) = found.place else {
            return Ok(false);
        };
        let former = value::load(tx, self.mark, found.stored(place)?).await?;
        let value = change(former)?;
        self.settings.limits().check(key, &value)?;
        self.replace(tx, &found, place, &value).await?;
        Ok(true)
    }

    /// Sets the value of an entry.
    async fn replace<O: Objects>(
        &self,
        tx: &O,
        found: &Found,
        place: Place,
        value: &[u8],
    ) -> Result<()> {
        let (former, near) = (found.stored(place)?, found.home_at);
        let limits = self.settings.limits();
        let stored = value::store(tx, self.mark, near, limits, value, Some(former.clone())).await?;
        // The bucket is not touched by a value that stays in its object.
        if stored != former {
            let (mut open, i) = opened(found, place)?;
            open.bucket.entries[i].stored = stored;
            self.write(tx, &open).await?;
        }
        Ok(())
    }

    /// Returns whether the key was there.
    async fn put<O: Objects>(&self, tx: &O, key: &[u8], value: &[u8], when: When) -> Result<bool> {
        let limits = self.settings.limits();
        limits.check(key, value)?;
        let found = self.find(tx, key).await?;
        let near = found.home_at;
        let Some(place) = found.place else {
            if when == When::Present {
                return Ok(false);
            }
            let stored = value::store(tx, self.mark, near, limits, value, None).await?;
            let key = Bytes::copy_from_slice(key);
            self.add(tx, found, Entry { key, stored }).await?;
            return Ok(false);
        };
        if when == When::Absent {
            return Ok(true);
        }
        self.replace(tx, &found, place, value).await?;
        Ok(true)
    }

    /// Puts a new entry where there is room: at home, in the next bucket, in an empty slot that can be moved there,
    /// else in the home's chain.
    async fn add<O: Objects>(&self, tx: &O, found: Found, entry: Entry) -> Result<()> {
        let mut home = Open::new(found.home_at, Kind::Bucket, &found.home)?;
        if !self.is_full(&home) {
            home.bucket.entries.push(entry);
            return self.write(tx, &home).await;
        }
        let (next_at, index) = (found.home.head.next, found.home.head.index);
        let next = match &found.next {
            Some(next) => Open::new(next_at, Kind::Bucket, next)?,
            None => Open::new(next_at, Kind::Bucket, &self.next(tx, next_at, index).await?)?,
        };
        let mut moved = self.move_room(tx, home.at, next).await?;
        if let Some(next) = moved.first_mut() {
            assert!(
                !self.is_full(next),
                "room was made in bucket {} at {:?}, which is full",
                next.bucket.head.index,
                next.at
            );
            next.bucket.entries.push(entry);
            home.count_guest(1)?;
            for open in moved.iter().chain([&home]) {
                self.write(tx, open).await?;
            }
            return Ok(());
        }
        probe!("hash_overflow");
        let with_room = |b: &&super::table::Block| b.page.len() < self.settings.slots;
        if let Some(block) = found.chain.iter().find(with_room) {
            let mut block = Open::new(block.at, Kind::Overflow, &block.page)?;
            block.bucket.entries.push(entry);
            return self.write(tx, &block).await;
        }
        let at = tx.allocate(self.settings.bucket_bytes(), home.at).await?;
        let head = Head {
            guests: 0,
            next: Pointer::NULL,
            ..home.bucket.head
        };
        let bucket = Bucket {
            head,
            entries: vec![entry],
        };
        let kind = Kind::Overflow;
        self.write(tx, &Open { at, kind, bucket }).await?;
        home.head().overflow = at;
        self.write(tx, &home).await
    }

    /// Buckets from `next` on, of which the first has room after the others took entries that are at home before
    /// them. None if there is no room within reach.
    async fn move_room<O: Objects>(
        &self,
        tx: &O,
        home_at: Pointer,
        next: Open,
    ) -> Result<Vec<Open>> {
        let mut open = vec![next];
        while let Some(last) = open.last()
            && self.is_full(last)
        {
            let head = last.bucket.head;
            let has_own = self.own_entry(last).is_some();
            if open.len() > MOVES_MAX || !has_own || head.next == home_at {
                return Ok(Vec::new());
            }
            let page = self.next(tx, head.next, head.index).await?;
            open.push(Open::new(head.next, Kind::Bucket, &page)?);
        }
        for i in (1..open.len()).rev() {
            probe!("hash_room_is_moved");
            let own = self
                .own_entry(&open[i - 1])
                .ok_or(damaged(open[i - 1].at, NOT_A_BUCKET))?;
            let entry = open[i - 1].bucket.entries.swap_remove(own);
            open[i].bucket.entries.push(entry);
            open[i - 1].count_guest(1)?;
        }
        Ok(open)
    }

    /// An entry that is at home in the bucket where it lies.
    fn own_entry(&self, open: &Open) -> Option<usize> {
        let is_own = |entry: &Entry| open.bucket.head.is_home(self.hash(&entry.key));
        open.bucket.entries.iter().position(is_own)
    }

    /// Removes a key. True if it was there.
    pub async fn remove<O: Objects>(&self, tx: &O, key: &[u8]) -> Result<bool> {
        let found = self.find(tx, key).await?;
        let Some(place) = found.place else {
            return Ok(false);
        };
        let (mut open, i) = opened(&found, place)?;
        let gone = open.bucket.entries.swap_remove(i);
        value::drop_stored(tx, Some(gone.stored)).await?;
        let mut home = Open::new(found.home_at, Kind::Bucket, &found.home)?;
        match place {
            Place::Home(_) => {
                if let Some(back) = self.pull(tx, &mut open).await? {
                    open.bucket.entries.push(back);
                }
                self.write(tx, &open).await?;
            }
            Place::Next(_) => {
                home.count_guest(-1)?;
                if let Some(back) = self.pull(tx, &mut home).await? {
                    open.bucket.entries.push(back);
                    home.count_guest(1)?;
                } else if let Some(back) = self.pull(tx, &mut open).await? {
                    open.bucket.entries.push(back);
                }
                self.write(tx, &home).await?;
                self.write(tx, &open).await?;
            }
            Place::Chain(_) if !open.bucket.entries.is_empty() => self.write(tx, &open).await?,
            Place::Chain(_) => {
                let mut before = match found.chain.iter().rev().nth(1) {
                    Some(block) => Open::new(block.at, Kind::Overflow, &block.page)?,
                    None => home,
                };
                before.head().overflow = open.bucket.head.overflow;
                self.write(tx, &before).await?;
                tx.free(open.at).await?;
            }
        }
        Ok(true)
    }

    /// Takes an entry out of the first block of the bucket's chain. The block goes with its last entry; the bucket is
    /// for the caller to write.
    async fn pull<O: Objects>(&self, tx: &O, bucket: &mut Open) -> Result<Option<Entry>> {
        let at = bucket.bucket.head.overflow;
        if at.is_null() {
            return Ok(None);
        }
        if planted!(
            "hash_chain_is_left",
            "what is in the chain of a bucket stays there although the bucket has room"
        ) {
            return Ok(None);
        }
        let page = self.read_bucket(tx, at, Kind::Overflow).await?;
        let page = page
            .filter(|page| page.head.index == bucket.bucket.head.index)
            .ok_or(damaged(at, NOT_A_BUCKET))?;
        let mut block = Open::new(at, Kind::Overflow, &page)?;
        let entry = block
            .bucket
            .entries
            .pop()
            .ok_or(damaged(at, "an overflow block without entries"))?;
        if block.bucket.entries.is_empty() {
            bucket.head().overflow = block.bucket.head.overflow;
            tx.free(at).await?;
        } else {
            self.write(tx, &block).await?;
        }
        Ok(Some(entry))
    }
}

/// The object with the entry, to be changed.
fn opened(found: &Found, place: Place) -> Result<(Open, usize)> {
    let (at, kind, page, i) = found.object_of(place);
    let open = Open::new(at, kind, page)?;
    if i >= open.bucket.entries.len() {
        return Err(damaged(at, BROKEN_ENTRY));
    }
    Ok((open, i))
}

/// Where the value of an entry lies, if in an object of its own.
pub(super) fn long_value(entry: &Entry) -> Option<Pointer> {
    match entry.stored {
        Stored::Long(at) => Some(at),
        Stored::Inline(_) => None,
    }
}
