//! The manifest: which extents there are, and how much of them is on disk. It is a journal with one record for each
//! sync, which has all groups that have changed, and now and then one with all there are.
//!
//! ```text
//! record   whole u8 | layout 2·u64 4·u32 | safe point u64 | next sequence u64 | groups u32 | groups
//! group    region u16 | subregion u32 | extents u16 | freed slabs u32 | extents | freed slabs
//! extent   number u16 | place u32 | sequence u64 | blocks u32
//! freed    slab u32 | timestamp u64
//! ```
//!
//! All integers are little-endian. A group with nothing in it is none any more.

use crate::layout::{Key, Layout};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::codec_for;
use plinth_core::output::Output;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtentRecord {
    /// Of the group.
    pub local: u16,
    pub place: u32,
    pub sequence: u64,
    pub blocks: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRecord {
    pub key: Key,
    pub extents: Vec<ExtentRecord>,
    pub freed: Vec<(u32, u64)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Groups that are not in it are none.
    pub is_whole: bool,
    pub layout: Layout,
    pub safe_point: u64,
    pub next_sequence: u64,
    pub groups: Vec<GroupRecord>,
}

codec_for!(Layout {
    head_words: u64,
    slab_words: u64,
    subregion_slabs: u32,
    block_bytes: u32,
    extent_blocks: u32,
    group_extents: u32,
});
codec_for!(Key {
    region: u16,
    subregion: u32,
});
codec_for!(ExtentRecord {
    local: u16,
    place: u32,
    sequence: u64,
    blocks: u32,
});

fn put_all<T: Codec>(all: &[T], out: &mut Output) {
    all.iter().for_each(|one| one.put(out));
}

fn take_all<T: Codec>(count: u32, from: &mut Bytes) -> Option<Vec<T>> {
    (0..count).map(|_| T::take(from)).collect()
}

/// How many there are of extents and of freed slabs stands before both.
impl Codec for GroupRecord {
    fn put(&self, out: &mut Output) {
        self.key.put(out);
        (self.extents.len() as u16).put(out);
        (self.freed.len() as u32).put(out);
        put_all(&self.extents, out);
        put_all(&self.freed, out);
    }
    fn take(from: &mut Bytes) -> Option<GroupRecord> {
        let key = Key::take(from)?;
        let (extents, freed) = (u16::take(from)?, u32::take(from)?);
        Some(GroupRecord {
            key,
            extents: take_all(extents.into(), from)?,
            freed: take_all(freed, from)?,
        })
    }
}

impl Codec for Record {
    fn put(&self, out: &mut Output) {
        self.is_whole.put(out);
        self.layout.put(out);
        self.safe_point.put(out);
        self.next_sequence.put(out);
        (self.groups.len() as u32).put(out);
        put_all(&self.groups, out);
    }
    fn take(from: &mut Bytes) -> Option<Record> {
        Some(Record {
            is_whole: bool::take(from)?,
            layout: Layout::take(from)?,
            safe_point: u64::take(from)?,
            next_sequence: u64::take(from)?,
            groups: u32::take(from).and_then(|count| take_all(count, from))?,
        })
    }
}
