//! The handle of a table, and the way to a key.

use super::bucket::{
    Bucket, BucketPage, Head, RING, ROOT_BYTES, Root, Settings, directory_bytes, encode_directory,
    parse_directory,
};
use super::sip;
use crate::error::{Error, Result, damaged};
use crate::page::{Kind, Mark};
use crate::value::{self, Stored};
use bytes::Bytes;
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_runtime::probe;
use std::cell::RefCell;
use std::rc::Rc;

/// A hash table of keys and values. A handle is cheap to clone and belongs to no transaction: each operation names the
/// one that it is part of. Clones share what they know of where buckets are.
#[derive(Clone)]
pub struct HashTable {
    pub(super) root: Pointer,
    pub(super) mark: Mark,
    pub(super) settings: Settings,
    directory: Rc<RefCell<Directory>>,
}

/// Where buckets are, as somebody has seen it.
#[derive(Default)]
struct Directory {
    buckets: usize,
    /// None: not read yet.
    segments: Vec<Option<Vec<Pointer>>>,
}

pub(super) const NOT_A_BUCKET: &str = "it is not the bucket of the table that lies there";
pub(super) const BROKEN_ENTRY: &str = "an entry of a bucket cannot be read";
pub(super) const NOT_ITS_OWN: &str = "an entry lies in a bucket that is not its own";
pub(super) const WRONG_GUESTS: &str = "its guests are counted wrong";

/// The bucket of a hash among so many, of which the first ones may have been split already.
pub(super) fn index_of(hash: u64, buckets: usize) -> usize {
    let bits = buckets.ilog2();
    let wide = (hash & ((2 << bits) - 1)) as usize;
    if wide < buckets {
        wide
    } else {
        wide & ((1 << bits) - 1)
    }
}

impl Directory {
    fn locate(&self, hash: u64, segment_buckets: usize) -> Option<Pointer> {
        if self.buckets == 0 {
            return None;
        }
        let index = index_of(hash, self.buckets);
        let segment = self.segments.get(index / segment_buckets)?.as_ref()?;
        segment.get(index % segment_buckets).copied()
    }
}

/// Buckets of a new ring, whose entries are not there yet.
pub(super) fn new_ring(places: &[Pointer], first: usize, bits: u8) -> Vec<Bucket> {
    let bucket = |i: usize| Bucket {
        head: Head {
            index: (first + i) as u32,
            bits,
            guests: 0,
            next: places[(i + 1) % RING],
            overflow: Pointer::NULL,
        },
        entries: Vec::new(),
    };
    (0..RING).map(bucket).collect()
}

/// What a block of a chain is, and where.
pub(super) struct Block {
    pub at: Pointer,
    pub page: BucketPage,
}

/// All that was read on the search for a key.
pub(super) struct Found {
    pub home_at: Pointer,
    pub home: BucketPage,
    pub next: Option<BucketPage>,
    pub chain: Vec<Block>,
    pub place: Option<Place>,
}

impl Found {
    /// The object with the entry, and which of its entries it is.
    pub fn object_of(&self, place: Place) -> (Pointer, Kind, &BucketPage, usize) {
        match (place, &self.next, self.chain.last()) {
            (Place::Next(i), Some(next), _) => (self.home.head.next, Kind::Bucket, next, i),
            (Place::Chain(i), _, Some(block)) => (block.at, Kind::Overflow, &block.page, i),
            (Place::Home(i) | Place::Next(i) | Place::Chain(i), ..) => {
                (self.home_at, Kind::Bucket, &self.home, i)
            }
        }
    }

    /// The value of the entry.
    pub fn stored(&self, place: Place) -> Result<Stored> {
        let (at, _, page, i) = self.object_of(place);
        page.stored(i).ok_or(damaged(at, BROKEN_ENTRY))
    }
}

/// Where a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Home(usize),
    Next(usize),
    /// In the last block of the chain that was read.
    Chain(usize),
}

impl HashTable {
    /// A new table without entries. Whoever keeps [`root`](HashTable::root) finds it again.
    pub async fn create<O: Objects>(
        tx: &O,
        settings: Settings,
        near: Pointer,
    ) -> Result<HashTable> {
        settings.check()?;
        let root = tx.allocate(ROOT_BYTES, near).await?;
        let table = HashTable {
            root,
            mark: Mark::random(),
            settings,
            directory: Rc::default(),
        };
        let mut places = Vec::with_capacity(settings.buckets);
        for _ in 0..settings.buckets {
            let bytes = settings.bucket_bytes();
            places.push(tx.allocate(bytes, table.near()).await?);
        }
        let bits = settings.buckets.ilog2() as u8;
        for (i, ring) in places.chunks_exact(RING).enumerate() {
            for (bucket, at) in new_ring(ring, i * RING, bits).iter().zip(ring) {
                tx.write(*at, bucket.encode(Kind::Bucket, table.mark))
                    .await?;
            }
        }
        let bytes = directory_bytes(settings.buckets);
        let segment = tx.allocate(bytes, table.near()).await?;
        tx.write(segment, encode_directory(&places, table.mark))
            .await?;
        let made = Root {
            settings,
            mark: table.mark,
            buckets: settings.buckets,
            segments: vec![segment],
        };
        tx.write(root, made.encode(root)).await?;
        Ok(table)
    }

    /// The table with this root object. Its settings are read; they never change.
    pub async fn open<O: Objects>(tx: &O, root: Pointer) -> Result<HashTable> {
        let found = Root::parse(tx.read(root).await?, root);
        let found = found.ok_or(damaged(root, "it is not the root of a table"))?;
        Ok(HashTable {
            root,
            mark: found.mark,
            settings: found.settings,
            directory: Rc::default(),
        })
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        sip::hash(self.settings.seed, key)
    }

    pub(super) async fn read_root<O: Objects>(&self, tx: &O) -> Result<Root> {
        let root = Root::parse(tx.read(self.root).await?, self.root);
        root.filter(|root| root.settings == self.settings && root.mark == self.mark)
            .ok_or(damaged(self.root, "it is not the root of a table"))
    }

    pub(super) async fn read_segment<O: Objects>(
        &self,
        tx: &O,
        root: &Root,
        segment: usize,
    ) -> Result<Vec<Pointer>> {
        let at = root
            .segments
            .get(segment)
            .copied()
            .ok_or(damaged(self.root, "a table without a directory"))?;
        let places = parse_directory(tx.read(at).await?, self.mark);
        let there = (root.buckets - segment * self.settings.buckets).min(self.settings.buckets);
        places
            .filter(|places| places.len() == there)
            .ok_or(damaged(at, "it is not the directory of the table"))
    }

    /// Bucket or block that lies there and is for the hash; None if there is no such thing at the snapshot.
    pub(super) async fn read_bucket<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
        kind: Kind,
    ) -> Result<Option<BucketPage>> {
        let bytes = tx.read_if_there(at).await?;
        Ok(bytes.and_then(|bytes| BucketPage::parse(bytes, kind, self.mark)))
    }

    /// The home of a hash. At every snapshot the buckets of a table share out all hashes, so a bucket that says that
    /// it is for this one is the right one, however it was found.
    async fn home<O: Objects>(&self, tx: &O, hash: u64) -> Result<(Pointer, BucketPage)> {
        let known = self.directory.borrow().locate(hash, self.settings.buckets);
        if let Some(at) = known {
            let read = self.read_bucket(tx, at, Kind::Bucket).await;
            if let Err(Error::Abort(Abort::TooOld)) = read {
                // A place that has gone to other objects may look like one whose old version is lost.
                self.directory.take();
            }
            if let Some(home) = read?
                && home.head.is_home(hash)
            {
                return Ok((at, home));
            }
        }
        probe!("hash_directory_is_stale");
        let root = self.read_root(tx).await?;
        let index = index_of(hash, root.buckets);
        let segment = index / self.settings.buckets;
        let places = self.read_segment(tx, &root, segment).await?;
        let at = places[index % self.settings.buckets];
        {
            let mut directory = self.directory.borrow_mut();
            directory.buckets = root.buckets;
            directory.segments.resize(root.segments.len(), None);
            directory.segments[segment] = Some(places);
        }
        let home = self.read_bucket(tx, at, Kind::Bucket).await?;
        let home = home.filter(|home| home.head.is_home(hash));
        Ok((at, home.ok_or(damaged(at, NOT_A_BUCKET))?))
    }

    pub(super) async fn find<O: Objects>(&self, tx: &O, key: &[u8]) -> Result<Found> {
        self.settings.limits().check_key(key)?;
        let (home_at, home) = self.home(tx, self.hash(key)).await?;
        let place = home.find(key).map(Place::Home);
        let (index, next_at, mut overflow) = (home.head.index, home.head.next, home.head.overflow);
        let has_guests = home.head.guests > 0;
        let mut found = Found {
            home_at,
            home,
            next: None,
            chain: Vec::new(),
            place,
        };
        if found.place.is_none() && has_guests {
            let next = self.next(tx, next_at, index).await?;
            found.place = next.find(key).map(Place::Next);
            found.next = Some(next);
        }
        while found.place.is_none() && !overflow.is_null() {
            let page = self
                .read_bucket(tx, overflow, Kind::Overflow)
                .await?
                .ok_or(damaged(overflow, NOT_A_BUCKET))?;
            // A chain of damaged memory may be a circle.
            let is_again = found.chain.iter().any(|block| block.at == overflow);
            if page.head.index != index || page.len() == 0 || is_again {
                return Err(damaged(overflow, NOT_A_BUCKET));
            }
            found.place = page.find(key).map(Place::Chain);
            let at = std::mem::replace(&mut overflow, page.head.overflow);
            found.chain.push(Block { at, page });
        }
        Ok(found)
    }

    /// The bucket behind the one with this index.
    pub(super) async fn next<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
        index: u32,
    ) -> Result<BucketPage> {
        let ring = index & !(RING as u32 - 1);
        let expected = ring | (index + 1) & (RING as u32 - 1);
        let next = self.read_bucket(tx, at, Kind::Bucket).await?;
        next.filter(|next| next.head.index == expected)
            .ok_or(damaged(at, NOT_A_BUCKET))
    }

    pub async fn get<O: Objects>(&self, tx: &O, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.find(tx, key).await?;
        match found.place {
            None => Ok(None),
            Some(place) => Ok(Some(
                value::load(tx, self.mark, found.stored(place)?).await?,
            )),
        }
    }

    pub async fn contains<O: Objects>(&self, tx: &O, key: &[u8]) -> Result<bool> {
        Ok(self.find(tx, key).await?.place.is_some())
    }
}
