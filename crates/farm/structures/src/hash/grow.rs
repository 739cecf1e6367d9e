//! Growth by a ring of buckets at a time (linear hashing: Litwin, 1980), and the end of a table.

use super::bucket::{Bucket, Head, RING, Root, SEGMENTS_MAX, directory_bytes, encode_directory};
use super::table::{HashTable, NOT_A_BUCKET, NOT_ITS_OWN, new_ring};
use crate::error::{Result, damaged};
use crate::page::Kind;
use crate::value::Entry;
use plinth_farm_memory::{Objects, Pointer};

impl HashTable {
    /// How many buckets there are.
    pub async fn buckets<O: Objects>(&self, tx: &O) -> Result<usize> {
        Ok(self.read_root(tx).await?.buckets)
    }

    /// Splits up to `rings` rings of eight buckets, each into two: about 30 objects of the transaction each. Returns
    /// the number of buckets then. A table that has 1024 times as many buckets as it began with stays as it is.
    ///
    /// It doubles when it was called for as many buckets as there were. Meanwhile everybody else goes on: who meets a
    /// bucket that is being split conflicts, and finds the new one by reading the root object.
    pub async fn grow<O: Objects>(&self, tx: &O, rings: usize) -> Result<usize> {
        let mut root = self.read_root(tx).await?;
        for _ in 0..rings {
            if root.buckets == SEGMENTS_MAX * self.settings.buckets {
                break;
            }
            self.split_ring(tx, &mut root).await?;
        }
        Ok(root.buckets)
    }

    async fn split_ring<O: Objects>(&self, tx: &O, root: &mut Root) -> Result<()> {
        let bits = root.buckets.ilog2() as u8;
        let (to, from) = (root.buckets, root.buckets - (1 << bits));
        let per_segment = self.settings.buckets;
        let segment = self.read_segment(tx, root, from / per_segment).await?;
        let old_places = &segment[from % per_segment..][..RING];
        let mut entries = Vec::new();
        for (i, at) in old_places.iter().enumerate() {
            self.empty_bucket(tx, *at, (from + i) as u32, &mut entries)
                .await?;
        }
        let mut new_places = Vec::with_capacity(RING);
        for _ in 0..RING {
            let bytes = self.settings.bucket_bytes();
            new_places.push(tx.allocate(bytes, self.near()).await?);
        }
        let (high, low): (Vec<Entry>, Vec<Entry>) = entries
            .into_iter()
            .partition(|entry| self.hash(&entry.key) >> bits & 1 == 1);
        self.fill_ring(tx, old_places, from, bits + 1, low).await?;
        self.fill_ring(tx, &new_places, to, bits + 1, high).await?;
        self.extend_directory(tx, root, &new_places).await
    }

    async fn extend_directory<O: Objects>(
        &self,
        tx: &O,
        root: &mut Root,
        new: &[Pointer],
    ) -> Result<()> {
        let per_segment = self.settings.buckets;
        let mut segment = Vec::new();
        if root.buckets.is_multiple_of(per_segment) {
            let bytes = directory_bytes(per_segment);
            root.segments.push(tx.allocate(bytes, self.near()).await?);
        } else {
            segment = self
                .read_segment(tx, root, root.buckets / per_segment)
                .await?;
        }
        segment.extend_from_slice(new);
        let at = root.segments[root.buckets / per_segment];
        tx.write(at, encode_directory(&segment, self.mark)).await?;
        root.buckets += RING;
        Ok(tx.write(self.root, root.encode(self.root)).await?)
    }

    /// Takes what is in the bucket, and in its chain, which ends.
    async fn empty_bucket<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
        index: u32,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let (mut at, mut kind) = (at, Kind::Bucket);
        while !at.is_null() {
            let page = self.read_bucket(tx, at, kind).await?;
            let bucket = page.and_then(|page| page.to_bucket());
            let bucket = bucket
                .filter(|bucket| bucket.head.index == index)
                .ok_or(damaged(at, NOT_A_BUCKET))?;
            entries.extend(bucket.entries);
            if kind == Kind::Overflow {
                tx.free(at).await?;
            }
            (at, kind) = (bucket.head.overflow, Kind::Overflow);
        }
        Ok(())
    }

    /// Writes a ring with these entries: each at home, else next to it, else in the home's chain.
    async fn fill_ring<O: Objects>(
        &self,
        tx: &O,
        places: &[Pointer],
        first: usize,
        bits: u8,
        entries: Vec<Entry>,
    ) -> Result<()> {
        let (slots, count) = (self.settings.slots, entries.len());
        let mut ring = new_ring(places, first, bits);
        let mut left: Vec<(usize, Entry)> = Vec::new();
        for entry in entries {
            let hash = self.hash(&entry.key);
            match ring.iter().position(|bucket| bucket.head.is_home(hash)) {
                Some(i) if ring[i].entries.len() < slots => ring[i].entries.push(entry),
                Some(i) => left.push((i, entry)),
                None => return Err(damaged(places[0], NOT_ITS_OWN)),
            }
        }
        let mut chains: Vec<Vec<Bucket>> = vec![Vec::new(); RING];
        for (i, entry) in left {
            let next = (i + 1) % RING;
            if ring[next].entries.len() < slots {
                ring[next].entries.push(entry);
                ring[i].head.guests += 1;
                continue;
            }
            match chains[i].last_mut() {
                Some(block) if block.entries.len() < slots => block.entries.push(entry),
                _ => chains[i].push(Bucket {
                    head: Head {
                        next: Pointer::NULL,
                        ..ring[i].head
                    },
                    entries: vec![entry],
                }),
            }
        }
        let blocks = ring.iter().chain(chains.iter().flatten());
        let placed: usize = blocks.map(|block| block.entries.len()).sum();
        assert_eq!(placed, count, "entries of the ring from bucket {first} on");
        for (i, chain) in chains.into_iter().enumerate() {
            for mut block in chain {
                let bytes = self.settings.bucket_bytes();
                let at = tx.allocate(bytes, places[i]).await?;
                block.head.guests = 0;
                block.head.overflow = std::mem::replace(&mut ring[i].head.overflow, at);
                tx.write(at, block.encode(Kind::Overflow, self.mark))
                    .await?;
            }
        }
        for (bucket, at) in ring.iter().zip(places) {
            tx.write(*at, bucket.encode(Kind::Bucket, self.mark))
                .await?;
        }
        Ok(())
    }
}
