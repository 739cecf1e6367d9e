//! What lies in the objects of a hash table.
//!
//! ```text
//!   bucket, overflow block:   index 4 | bits 1 | guests 2 | next 8 | overflow 8   then entries
//!   directory page:           place of each bucket 8 …
//!   root:                     settings | mark 8 | buckets 4 | place of each directory page 8 …
//! ```

use crate::error::{Error, Result};
use crate::page::{
    Kind, Mark, Page, PageWriter, RECORD_BYTES, page_bytes, put_numbers, take, take_link,
    take_numbers, take_pointer, take_u16, take_u32, take_u64,
};
use crate::value::{Entry, Limits, Stored, key_of};
use bytes::Bytes;
use plinth_farm_memory::{OBJECT_BYTES_MAX, Pointer};

/// A bucket's neighbour is the next one of its ring of so many.
pub const RING: usize = 8;
/// Most directory pages of a table.
pub const SEGMENTS_MAX: usize = 1024;
const SEGMENT_BUCKETS_MAX: usize = 8192;
const HEAD_BYTES: usize = 23;
const HEAD: usize = 1;

/// How a table is built. Chosen when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Buckets to begin with: a power of two from 8 to 8192. The table can grow to 1024 times as many.
    pub buckets: usize,
    /// Entries of a bucket.
    pub slots: usize,
    pub key_bytes_max: usize,
    /// Longer values lie in objects of their own.
    pub inline_bytes_max: usize,
    /// Of the hash. If others choose the keys, it should be random.
    pub seed: u64,
    /// True: buckets lie on any machine. False: on the machine of the root object, if there is room.
    pub is_spread: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            buckets: 256,
            slots: 8,
            key_bytes_max: 32,
            inline_bytes_max: 64,
            seed: 0,
            is_spread: false,
        }
    }
}

impl Settings {
    const RECORD_BYTES: usize = 25;

    pub fn limits(&self) -> Limits {
        Limits {
            key_bytes_max: self.key_bytes_max,
            inline_bytes_max: self.inline_bytes_max,
        }
    }

    /// Bytes of a bucket.
    pub fn bucket_bytes(&self) -> usize {
        let entries = self.slots * self.limits().entry_bytes_max();
        page_bytes(HEAD + self.slots, HEAD_BYTES + entries)
    }

    pub fn check(&self) -> Result<()> {
        let is_legal =
            self.buckets.is_power_of_two() && (RING..=SEGMENT_BUCKETS_MAX).contains(&self.buckets);
        if !is_legal {
            return Err(Error::Settings(
                "the buckets of a new table are a power of two from 8 to 8192",
            ));
        }
        let most = OBJECT_BYTES_MAX;
        let is_small = self.slots <= most && self.limits().entry_bytes_max() <= most;
        if self.slots == 0 || !is_small || self.bucket_bytes() > most {
            return Err(Error::Settings(
                "a bucket of so many of the longest entries is no object",
            ));
        }
        Ok(())
    }

    fn pack(&self) -> [u8; Self::RECORD_BYTES] {
        let numbers = [
            self.buckets,
            self.slots,
            self.key_bytes_max,
            self.inline_bytes_max,
        ];
        let mut packed = [0; Self::RECORD_BYTES];
        put_numbers(&mut packed, &numbers);
        packed[16..24].copy_from_slice(&self.seed.to_le_bytes());
        packed[24] = u8::from(self.is_spread);
        packed
    }

    fn unpack(bytes: &[u8]) -> Option<Settings> {
        let (numbers, rest) = take_numbers(bytes)?;
        let [buckets, slots, key_bytes_max, inline_bytes_max] = numbers;
        let (seed, rest) = take_u64(rest)?;
        let ([is_spread], rest) = take::<1>(rest)?;
        let settings = Settings {
            buckets,
            slots,
            key_bytes_max,
            inline_bytes_max,
            seed,
            is_spread: is_spread == 1,
        };
        let is_sound = rest.is_empty() && is_spread <= 1 && settings.check().is_ok();
        is_sound.then_some(settings)
    }
}

/// What a bucket says beside its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub index: u32,
    /// A key is at home here if so many low bits of its hash are the index.
    pub bits: u8,
    /// Entries that are at home here and lie in the next bucket.
    pub guests: u16,
    /// The next bucket of the ring. Null in an overflow block.
    pub next: Pointer,
    /// The first block of entries that are at home here and lie nowhere else, or the block behind this one.
    pub overflow: Pointer,
}

impl Head {
    pub fn is_home(&self, hash: u64) -> bool {
        hash & ((1 << self.bits) - 1) == u64::from(self.index)
    }

    fn read(page: &Page) -> Option<Head> {
        let (index, rest) = take_u32(page.record(0)?)?;
        let ([bits], rest) = take::<1>(rest)?;
        let (guests, rest) = take_u16(rest)?;
        let (next, rest) = take_link(rest)?;
        let (overflow, rest) = take_link(rest)?;
        (rest.is_empty() && bits < 32).then_some(Head {
            index,
            bits,
            guests,
            next,
            overflow,
        })
    }
}

/// A bucket as it lies in its bytes, for reading.
pub struct BucketPage {
    page: Page,
    pub head: Head,
}

impl BucketPage {
    pub fn parse(bytes: Bytes, kind: Kind, mark: Mark) -> Option<BucketPage> {
        let page = Page::parse(bytes, kind, mark)?;
        let head = Head::read(&page)?;
        Some(BucketPage { page, head })
    }

    pub fn len(&self) -> usize {
        self.page.count() - HEAD
    }

    /// Where the key is. An entry that cannot be read is not the one.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        (0..self.len()).find(|i| self.page.record(HEAD + i).and_then(key_of) == Some(key))
    }

    pub fn entry(&self, i: usize) -> Option<Entry> {
        Entry::read(&self.page, HEAD + i)
    }

    pub fn stored(&self, i: usize) -> Option<Stored> {
        Entry::read_stored(&self.page, HEAD + i)
    }

    pub fn to_bucket(&self) -> Option<Bucket> {
        let entries: Option<Vec<Entry>> = (0..self.len()).map(|i| self.entry(i)).collect();
        Some(Bucket {
            head: self.head,
            entries: entries?,
        })
    }
}

/// A bucket or an overflow block to be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    pub head: Head,
    pub entries: Vec<Entry>,
}

impl Bucket {
    pub fn encode(&self, kind: Kind, mark: Mark) -> Bytes {
        let entries: usize = self.entries.iter().map(|e| RECORD_BYTES + e.bytes()).sum();
        let bytes = page_bytes(HEAD, HEAD_BYTES) + entries;
        let mut writer = PageWriter::new(kind, 0, mark, HEAD + self.entries.len(), bytes);
        writer.record(&[
            &self.head.index.to_le_bytes(),
            &[self.head.bits],
            &self.head.guests.to_le_bytes(),
            &self.head.next.bits().to_le_bytes(),
            &self.head.overflow.bits().to_le_bytes(),
        ]);
        for entry in &self.entries {
            entry.write(&mut writer);
        }
        writer.finish()
    }
}

/// The root object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    pub settings: Settings,
    /// Of all other objects of the table.
    pub mark: Mark,
    /// How many there are by now: a multiple of the ring.
    pub buckets: usize,
    pub segments: Vec<Pointer>,
}

/// Bytes of the root object.
pub const ROOT_BYTES: usize = page_bytes(
    2,
    Settings::RECORD_BYTES + Mark::BYTES + 4 + 8 * SEGMENTS_MAX,
);

impl Root {
    /// The root object that lies at `at`.
    pub fn parse(bytes: Bytes, at: Pointer) -> Option<Root> {
        let page = Page::parse(bytes, Kind::TableRoot, Mark::of_root(at))?;
        let settings = Settings::unpack(page.record(0)?)?;
        let (mark, rest) = Mark::take(page.record(1)?)?;
        let (buckets, rest) = take_u32(rest)?;
        let buckets = buckets as usize;
        let segments = read_pointers(rest)?;
        let is_sound = buckets >= settings.buckets
            && buckets.is_multiple_of(RING)
            && segments.len() == buckets.div_ceil(settings.buckets)
            && segments.len() <= SEGMENTS_MAX;
        is_sound.then_some(Root {
            settings,
            mark,
            buckets,
            segments,
        })
    }

    pub fn encode(&self, at: Pointer) -> Bytes {
        let mark = Mark::of_root(at);
        let mut writer = PageWriter::new(Kind::TableRoot, 0, mark, 2, ROOT_BYTES);
        writer.record(&[&self.settings.pack()]);
        let segments = pack_pointers(&self.segments);
        let buckets = (self.buckets as u32).to_le_bytes();
        writer.record(&[&self.mark.pack(), &buckets, &segments]);
        writer.finish()
    }
}

fn pack_pointers(pointers: &[Pointer]) -> Vec<u8> {
    pointers
        .iter()
        .flat_map(|p| p.bits().to_le_bytes())
        .collect()
}

fn read_pointers(mut bytes: &[u8]) -> Option<Vec<Pointer>> {
    let mut pointers = Vec::with_capacity(bytes.len() / 8);
    while !bytes.is_empty() {
        let (pointer, rest) = take_pointer(bytes)?;
        pointers.push(pointer);
        bytes = rest;
    }
    Some(pointers)
}

/// Bytes of a directory page for so many buckets.
pub fn directory_bytes(buckets: usize) -> usize {
    page_bytes(1, 8 * buckets)
}

pub fn encode_directory(buckets: &[Pointer], mark: Mark) -> Bytes {
    let bytes = directory_bytes(buckets.len());
    let mut writer = PageWriter::new(Kind::Directory, 0, mark, 1, bytes);
    writer.record(&[&pack_pointers(buckets)]);
    writer.finish()
}

pub fn parse_directory(bytes: Bytes, mark: Mark) -> Option<Vec<Pointer>> {
    let page = Page::parse(bytes, Kind::Directory, mark)?;
    read_pointers(page.record(0)?)
}
