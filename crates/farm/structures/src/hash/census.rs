//! A walk over a whole table that proves it sound.

use super::bucket::{Bucket, RING};
use super::change::long_value;
use super::table::{HashTable, NOT_A_BUCKET, NOT_ITS_OWN, WRONG_GUESTS};
use crate::census::Census;
use crate::error::{Result, damaged};
use crate::page::Kind;
use crate::value::{self, Entry};
use bytes::Bytes;
use plinth_farm_memory::{Objects, Pointer};
use std::collections::BTreeSet;

impl HashTable {
    /// Reads the whole table. Error: `Damaged` at the first thing that is wrong: an entry where no lookup finds it, a
    /// key twice, guests that are counted wrong, rings and chains that are broken, a chain beside an empty slot,
    /// values that are not there.
    pub async fn check<O: Objects>(&self, tx: &O) -> Result<Census> {
        let mut keys = Vec::new();
        self.walk(tx, |entry, _| keys.push(entry.key.clone())).await
    }

    /// All entries, in no order that means anything.
    pub async fn entries<O: Objects>(&self, tx: &O) -> Result<Vec<(Bytes, Bytes)>> {
        let mut entries = Vec::new();
        self.walk(tx, |entry, value| entries.push((entry.key.clone(), value)))
            .await?;
        Ok(entries)
    }

    /// The entries of one ring of buckets, in no order that means anything; None behind the last ring. A scan ring by
    /// ring misses no key that is there from its first transaction to its last: growth moves entries only to rings
    /// behind all others. It may meet a key twice.
    pub async fn ring<O: Objects>(&self, tx: &O, ring: u64) -> Result<Option<Vec<(Bytes, Bytes)>>> {
        let root = self.read_root(tx).await?;
        let rings = (root.buckets / RING) as u64;
        if ring >= rings {
            return Ok(None);
        }
        let first = ring as usize * RING;
        let segment = first / self.settings.buckets;
        let places = self.read_segment(tx, &root, segment).await?;
        let places = places[first % self.settings.buckets..]
            .get(..RING)
            .ok_or(damaged(self.root, "a ring of a table has too few buckets"))?;
        let mut census = Census::default();
        let walked = self.walk_ring(tx, places, first, root.buckets, &mut census);
        let mut entries = Vec::new();
        for (_, entry) in walked.await? {
            let value = value::load(tx, self.mark, entry.stored).await?;
            entries.push((entry.key, value));
        }
        Ok(Some(entries))
    }

    async fn walk<O: Objects>(
        &self,
        tx: &O,
        mut each: impl FnMut(&Entry, Bytes),
    ) -> Result<Census> {
        let root = self.read_root(tx).await?;
        let mut census = Census {
            objects: vec![self.root],
            ..Census::default()
        };
        let mut keys = BTreeSet::new();
        for segment in 0..root.segments.len() {
            census.objects.push(root.segments[segment]);
            let places = self.read_segment(tx, &root, segment).await?;
            for (r, ring) in places.chunks_exact(RING).enumerate() {
                let first = segment * self.settings.buckets + r * RING;
                let entries = self
                    .walk_ring(tx, ring, first, root.buckets, &mut census)
                    .await?;
                for (at, entry) in entries {
                    census.objects.extend(long_value(&entry));
                    census.values += usize::from(long_value(&entry).is_some());
                    census.entries += 1;
                    let value = value::load(tx, self.mark, entry.stored.clone()).await?;
                    each(&entry, value);
                    if !keys.insert(entry.key) {
                        return Err(damaged(at, "a key lies in two places"));
                    }
                }
            }
        }
        Ok(census)
    }

    async fn walk_ring<O: Objects>(
        &self,
        tx: &O,
        places: &[Pointer],
        first: usize,
        buckets: usize,
        census: &mut Census,
    ) -> Result<Vec<(Pointer, Entry)>> {
        let mut ring: Vec<Bucket> = Vec::with_capacity(RING);
        for (i, at) in places.iter().enumerate() {
            census.objects.push(*at);
            let page = self.read_bucket(tx, *at, Kind::Bucket).await?;
            let bucket = page.and_then(|page| page.to_bucket());
            let index = first + i;
            let split = buckets - (1 << buckets.ilog2());
            let is_split = index < split || index >= 1 << buckets.ilog2();
            let bits = buckets.ilog2() as u8 + u8::from(is_split);
            let is_sound = |b: &Bucket| {
                b.head.index as usize == index
                    && b.head.bits == bits
                    && b.head.next == places[(i + 1) % RING]
                    && b.entries.len() <= self.settings.slots
            };
            ring.push(bucket.filter(is_sound).ok_or(damaged(*at, NOT_A_BUCKET))?);
        }
        let mut entries = Vec::new();
        for (i, at) in places.iter().enumerate() {
            let before = &ring[(i + RING - 1) % RING];
            let mut guests = 0;
            for entry in &ring[i].entries {
                let hash = self.hash(&entry.key);
                if before.head.is_home(hash) {
                    guests += 1;
                } else if !ring[i].head.is_home(hash) {
                    return Err(damaged(*at, NOT_ITS_OWN));
                }
                entries.push((*at, entry.clone()));
            }
            if guests != before.head.guests {
                return Err(damaged(*at, WRONG_GUESTS));
            }
            self.walk_chain(tx, *at, &ring[i], census, &mut entries)
                .await?;
        }
        Ok(entries)
    }

    async fn walk_chain<O: Objects>(
        &self,
        tx: &O,
        bucket_at: Pointer,
        bucket: &Bucket,
        census: &mut Census,
        entries: &mut Vec<(Pointer, Entry)>,
    ) -> Result<()> {
        let mut at = bucket.head.overflow;
        if !at.is_null() && bucket.entries.len() < self.settings.slots {
            return Err(damaged(bucket_at, "a chain beside an empty slot"));
        }
        let mut seen = BTreeSet::new();
        while !at.is_null() {
            let page = self.read_bucket(tx, at, Kind::Overflow).await?;
            let block = page.and_then(|page| page.to_bucket());
            let is_sound = |b: &Bucket| {
                b.head.index == bucket.head.index
                    && !b.entries.is_empty()
                    && b.entries.len() <= self.settings.slots
                    && b.entries
                        .iter()
                        .all(|e| bucket.head.is_home(self.hash(&e.key)))
            };
            let block = block
                .filter(is_sound)
                .filter(|_| seen.insert(at))
                .ok_or(damaged(at, NOT_A_BUCKET))?;
            census.objects.push(at);
            census.overflow += 1;
            entries.extend(block.entries.into_iter().map(|entry| (at, entry)));
            at = block.head.overflow;
        }
        Ok(())
    }
}
