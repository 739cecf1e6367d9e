//! How vertices and edges lie in objects.
//!
//! ```text
//!   vertex:      mark 8 | 'V' | type 2 | outgoing list | incoming list | properties
//!   edge:        mark 8 | 'E' | type 2 | from 8 | to 8 | properties
//!   properties:  0 | length 4 | bytes      or   1 | place of an object: mark 8 | 'P' | length 4 | bytes
//!   progress:    mark 8 | 'I' | ring 8 | last key of the ring that was entered: 0, or 1 | length 4 | bytes
//!   list:        0 | count 4 | entry 18 …  or   1 | root of a tree of entries 8
//!   entry:       type of the edge 2 | other end 8 | edge 8                         big-endian, in this order
//! ```
//!
//! The mark is a random number of the graph. Whoever follows a pointer finds by it that the object is the graph's.

use crate::codec::{Reader, put_bytes, put_count, put_option, put_pointer, put_u16, put_u64};
use plinth_farm_memory::Pointer;

/// Most edges of a list that lie in the vertex itself.
pub const INLINE_EDGES_MAX: usize = 6;
/// Longer properties lie in an object of their own from the beginning.
pub const INLINE_BYTES_MAX: usize = 1024;
/// Most bytes of the properties of a vertex or an edge.
pub const ROW_BYTES_MAX: usize = 64 << 10;
pub const ENTRY_BYTES: usize = 18;
const LIST_BYTES_MAX: usize = 5 + INLINE_EDGES_MAX * ENTRY_BYTES;
pub const VERTEX_HEAD_BYTES: usize = 11 + 2 * LIST_BYTES_MAX;
pub const EDGE_HEAD_BYTES: usize = 27;
/// What properties take beside their bytes, and at least.
pub const STORED_BYTES: usize = 9;

/// An edge in the list of one of its ends. The order is that of the lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    pub edge_type: u16,
    pub other: Pointer,
    pub edge: Pointer,
}

impl Entry {
    pub fn pack(self) -> [u8; ENTRY_BYTES] {
        let mut packed = [0; ENTRY_BYTES];
        packed[..2].copy_from_slice(&self.edge_type.to_be_bytes());
        packed[2..10].copy_from_slice(&self.other.bits().to_be_bytes());
        packed[10..].copy_from_slice(&self.edge.bits().to_be_bytes());
        packed
    }

    pub fn unpack(bytes: &[u8]) -> Option<Entry> {
        let packed: &[u8; ENTRY_BYTES] = bytes.try_into().ok()?;
        let word = |i: usize| {
            let bytes = packed[i..i + 8].try_into().ok()?;
            Pointer::from_bits(u64::from_be_bytes(bytes))
        };
        Some(Entry {
            edge_type: u16::from_be_bytes([packed[0], packed[1]]),
            other: word(2)?,
            edge: word(10)?,
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum List {
    Inline(Vec<Entry>),
    Tree(Pointer),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    Inline(Vec<u8>),
    Long(Pointer),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VertexObject {
    pub vertex_type: u16,
    /// Outgoing, incoming.
    pub lists: [List; 2],
    pub stored: Stored,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeObject {
    pub edge_type: u16,
    pub from: Pointer,
    pub to: Pointer,
    pub stored: Stored,
}

fn head(mark: u64, tag: u8) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, mark);
    out.push(tag);
    out
}

fn is_head(reader: &mut Reader<'_>, mark: u64, tag: u8) -> Option<()> {
    (reader.u64()? == mark && reader.u8()? == tag).then_some(())
}

fn put_stored(out: &mut Vec<u8>, stored: &Stored) {
    match stored {
        Stored::Inline(bytes) => {
            out.push(0);
            put_bytes(out, bytes);
        }
        Stored::Long(at) => {
            out.push(1);
            put_pointer(out, *at);
        }
    }
}

fn take_stored(reader: &mut Reader<'_>) -> Option<Stored> {
    Some(match reader.flag()? {
        false => Stored::Inline(reader.bytes()?.to_vec()),
        true => Stored::Long(reader.pointer()?),
    })
}

fn put_list(out: &mut Vec<u8>, list: &List) {
    match list {
        List::Inline(entries) => {
            out.push(0);
            put_count(out, entries.len());
            for entry in entries {
                out.extend_from_slice(&entry.pack());
            }
        }
        List::Tree(root) => {
            out.push(1);
            put_pointer(out, *root);
        }
    }
}

fn take_list(reader: &mut Reader<'_>) -> Option<List> {
    Some(match reader.flag()? {
        false => {
            List::Inline(reader.list(INLINE_EDGES_MAX, |r| Entry::unpack(r.take(ENTRY_BYTES)?))?)
        }
        true => List::Tree(reader.pointer()?),
    })
}

impl VertexObject {
    pub fn encode(&self, mark: u64) -> Vec<u8> {
        let mut out = head(mark, b'V');
        put_u16(&mut out, self.vertex_type);
        put_list(&mut out, &self.lists[0]);
        put_list(&mut out, &self.lists[1]);
        put_stored(&mut out, &self.stored);
        out
    }

    pub fn decode(bytes: &[u8], mark: u64) -> Option<VertexObject> {
        let mut reader = Reader(bytes);
        is_head(&mut reader, mark, b'V')?;
        Some(VertexObject {
            vertex_type: reader.u16()?,
            lists: [take_list(&mut reader)?, take_list(&mut reader)?],
            stored: take_stored(&mut reader)?,
        })
    }
}

impl EdgeObject {
    pub fn encode(&self, mark: u64) -> Vec<u8> {
        let mut out = head(mark, b'E');
        put_u16(&mut out, self.edge_type);
        put_pointer(&mut out, self.from);
        put_pointer(&mut out, self.to);
        put_stored(&mut out, &self.stored);
        out
    }

    pub fn decode(bytes: &[u8], mark: u64) -> Option<EdgeObject> {
        let mut reader = Reader(bytes);
        is_head(&mut reader, mark, b'E')?;
        Some(EdgeObject {
            edge_type: reader.u16()?,
            from: reader.pointer()?,
            to: reader.pointer()?,
            stored: take_stored(&mut reader)?,
        })
    }
}

pub fn encode_long(mark: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = head(mark, b'P');
    put_bytes(&mut out, bytes);
    out
}

pub fn decode_long(bytes: &[u8], mark: u64) -> Option<Vec<u8>> {
    let mut reader = Reader(bytes);
    is_head(&mut reader, mark, b'P')?;
    Some(reader.bytes()?.to_vec())
}

/// The root of a graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootObject {
    pub mark: u64,
    /// Another one for each schema.
    pub stamp: u64,
    pub schema: Pointer,
}

impl RootObject {
    pub const BYTES: usize = 25;

    pub fn encode(&self) -> Vec<u8> {
        let mut out = head(self.mark, b'G');
        put_u64(&mut out, self.stamp);
        put_pointer(&mut out, self.schema);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<RootObject> {
        let mut reader = Reader(bytes);
        let mark = reader.u64()?;
        (reader.u8()? == b'G').then_some(())?;
        Some(RootObject {
            mark,
            stamp: reader.u64()?,
            schema: reader.pointer()?,
        })
    }
}

/// How far an index is built: all rings of the table of vertices before this one are entered, and of this one what is
/// not above the key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    pub ring: u64,
    pub after: Option<Vec<u8>>,
}

impl Progress {
    pub fn encode(&self, mark: u64) -> Vec<u8> {
        let mut out = head(mark, b'I');
        put_u64(&mut out, self.ring);
        put_option(&mut out, &self.after, |out, key| put_bytes(out, key));
        out
    }

    pub fn decode(bytes: &[u8], mark: u64) -> Option<Progress> {
        let mut reader = Reader(bytes);
        is_head(&mut reader, mark, b'I')?;
        Some(Progress {
            ring: reader.u64()?,
            after: reader.option(|r| Some(r.bytes()?.to_vec()))?,
        })
    }
}
