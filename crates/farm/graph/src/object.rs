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

use crate::codec::{Code, Reader, code_for, listed, put_bytes};
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

/// How far an index is built: all rings of the table of vertices before this one are entered, and of this one what is
/// not above the key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    pub ring: u64,
    pub after: Option<Vec<u8>>,
}

listed!(INLINE_EDGES_MAX; Entry);

code_for!(enum List {
    Inline(entries: Vec<Entry>) = 0,
    Tree(root: Pointer) = 1,
});
code_for!(enum Stored {
    Inline(bytes: Vec<u8>) = 0,
    Long(at: Pointer) = 1,
});
code_for!(EdgeObject {
    edge_type,
    from,
    to,
    stored,
});
code_for!(Progress { ring, after });

impl Code for Entry {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pack());
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Entry::unpack(reader.take(ENTRY_BYTES)?)
    }
}

impl Code for VertexObject {
    fn put(&self, out: &mut Vec<u8>) {
        self.vertex_type.put(out);
        self.lists[0].put(out);
        self.lists[1].put(out);
        self.stored.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some(VertexObject {
            vertex_type: reader.get()?,
            lists: [reader.get()?, reader.get()?],
            stored: reader.get()?,
        })
    }
}

fn head(mark: u64, tag: u8) -> Vec<u8> {
    let mut out = mark.encode();
    out.push(tag);
    out
}

/// What is behind the head of an object.
fn behind_head(bytes: &[u8], mark: u64, tag: u8) -> Option<Reader<'_>> {
    let mut reader = Reader(bytes);
    (reader.get() == Some(mark) && reader.get() == Some(tag)).then_some(reader)
}

/// What fills an object of a graph, which may be longer.
pub trait Object: Code {
    const TAG: u8;

    fn to_object(&self, mark: u64) -> Vec<u8> {
        let mut out = head(mark, Self::TAG);
        self.put(&mut out);
        out
    }

    fn from_object(bytes: &[u8], mark: u64) -> Option<Self> {
        behind_head(bytes, mark, Self::TAG)?.get()
    }
}

impl Object for VertexObject {
    const TAG: u8 = b'V';
}

impl Object for EdgeObject {
    const TAG: u8 = b'E';
}

impl Object for Progress {
    const TAG: u8 = b'I';
}

pub fn encode_long(mark: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = head(mark, b'P');
    put_bytes(&mut out, bytes);
    out
}

pub fn decode_long(bytes: &[u8], mark: u64) -> Option<Vec<u8>> {
    behind_head(bytes, mark, b'P')?.get()
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
        self.stamp.put(&mut out);
        self.schema.put(&mut out);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<RootObject> {
        let mark = Reader(bytes).get()?;
        let mut reader = behind_head(bytes, mark, b'G')?;
        Some(RootObject {
            mark,
            stamp: reader.get()?,
            schema: reader.get()?,
        })
    }
}
