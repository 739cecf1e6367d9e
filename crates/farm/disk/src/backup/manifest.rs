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
use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

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

impl Record {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(self.is_whole.into());
        let layout = &self.layout;
        out.put_u64_le(layout.head_words);
        out.put_u64_le(layout.slab_words);
        out.put_u32_le(layout.subregion_slabs);
        out.put_u32_le(layout.block_bytes);
        out.put_u32_le(layout.extent_blocks);
        out.put_u32_le(layout.group_extents);
        out.put_u64_le(self.safe_point);
        out.put_u64_le(self.next_sequence);
        out.put_u32_le(self.groups.len() as u32);
        for group in &self.groups {
            out.put_u16_le(group.key.region);
            out.put_u32_le(group.key.subregion);
            out.put_u16_le(group.extents.len() as u16);
            out.put_u32_le(group.freed.len() as u32);
            for extent in &group.extents {
                out.put_u16_le(extent.local);
                out.put_u32_le(extent.place);
                out.put_u64_le(extent.sequence);
                out.put_u32_le(extent.blocks);
            }
            for (slab, timestamp) in &group.freed {
                out.put_u32_le(*slab);
                out.put_u64_le(*timestamp);
            }
        }
        out.freeze()
    }

    pub fn parse(bytes: Bytes) -> Option<Record> {
        let mut rest = bytes;
        let record = parse(&mut rest).ok()?;
        rest.is_empty().then_some(record)
    }
}

fn parse(from: &mut Bytes) -> Result<Record, TryGetError> {
    let is_whole = from.try_get_u8()? != 0;
    let layout = Layout {
        head_words: from.try_get_u64_le()?,
        slab_words: from.try_get_u64_le()?,
        subregion_slabs: from.try_get_u32_le()?,
        block_bytes: from.try_get_u32_le()?,
        extent_blocks: from.try_get_u32_le()?,
        group_extents: from.try_get_u32_le()?,
    };
    let safe_point = from.try_get_u64_le()?;
    let next_sequence = from.try_get_u64_le()?;
    let count = from.try_get_u32_le()?;
    let mut groups = Vec::new();
    for _ in 0..count {
        groups.push(parse_group(from)?);
    }
    Ok(Record {
        is_whole,
        layout,
        safe_point,
        next_sequence,
        groups,
    })
}

fn parse_group(from: &mut Bytes) -> Result<GroupRecord, TryGetError> {
    let region = from.try_get_u16_le()?;
    let subregion = from.try_get_u32_le()?;
    let (extents, freed) = (from.try_get_u16_le()?, from.try_get_u32_le()?);
    let mut group = GroupRecord {
        key: Key { region, subregion },
        extents: Vec::new(),
        freed: Vec::new(),
    };
    for _ in 0..extents {
        group.extents.push(ExtentRecord {
            local: from.try_get_u16_le()?,
            place: from.try_get_u32_le()?,
            sequence: from.try_get_u64_le()?,
            blocks: from.try_get_u32_le()?,
        });
    }
    for _ in 0..freed {
        group
            .freed
            .push((from.try_get_u32_le()?, from.try_get_u64_le()?));
    }
    Ok(group)
}
