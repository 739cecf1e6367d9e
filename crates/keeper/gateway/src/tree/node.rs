//! A node, as a gateway keeps it in memory and as a row of the store has it (FDBKeeper §3.2).

use crate::wire::{Acl, Stat, Text};
use crate::zxid::Zxids;
use bytes::{Buf, BufMut, Bytes};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, Result};
use std::rc::Rc;

/// Owners that are no sessions, as ZooKeeper has them.
pub const CONTAINER_OWNER: i64 = i64::MIN;
const TTL_OWNER: i64 = 0xff << 56;
const TTL_BITS: i64 = (1 << 40) - 1;
/// Longest time to live, in milliseconds.
pub const TTL_MS_MAX: i64 = TTL_BITS;

/// What removes a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    Persistent,
    /// The end of this session.
    Ephemeral(i64),
    /// The removal of its last child.
    Container,
    /// Having had no children, and no change, for so many milliseconds.
    Ttl(i64),
}

impl Lifetime {
    pub fn of_owner(owner: i64) -> Lifetime {
        match owner {
            0 => Lifetime::Persistent,
            CONTAINER_OWNER => Lifetime::Container,
            _ if owner & TTL_OWNER == TTL_OWNER => Lifetime::Ttl(owner & TTL_BITS),
            session => Lifetime::Ephemeral(session),
        }
    }

    /// As the `Stat` shows it: the marks of containers and of times to live are the server's own.
    pub fn shown_owner(self) -> i64 {
        match self {
            Lifetime::Ephemeral(session) => session,
            Lifetime::Persistent | Lifetime::Container | Lifetime::Ttl(_) => 0,
        }
    }

    /// As the row has it.
    pub fn owner(self) -> i64 {
        match self {
            Lifetime::Persistent => 0,
            Lifetime::Container => CONTAINER_OWNER,
            Lifetime::Ttl(ms) => TTL_OWNER | ms,
            Lifetime::Ephemeral(session) => session,
        }
    }
}

/// The data of a node. ZooKeeper tells no data from empty data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    None,
    Here(Bytes),
    /// This many bytes that have not been read: in rows of their own if they are [long](Data::is_long).
    Unread(usize),
    /// There were so many in rows of their own, and these do not have them.
    Damaged(usize),
}

impl Data {
    pub fn of(data: Option<Bytes>) -> Data {
        data.map_or(Data::None, Data::Here)
    }

    pub fn len(&self) -> usize {
        match self {
            Data::None => 0,
            Data::Here(bytes) => bytes.len(),
            Data::Unread(len) | Data::Damaged(len) => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Too large for the node's own row.
    pub fn is_long(&self) -> bool {
        self.len() > INLINE_BYTES_MAX || matches!(self, Data::Damaged(_))
    }

    /// There is some, and nobody has read it.
    pub fn is_unread(&self) -> bool {
        matches!(self, Data::Unread(_))
    }

    /// It is in the node's own row, which has not been read since it was written.
    pub fn is_left_in_row(&self) -> bool {
        self.is_unread() && !self.is_long()
    }
}

/// Longest data in the node's own row. A listing of the parent's children reads these rows, and should not have to
/// read much data.
pub const INLINE_BYTES_MAX: usize = 1024;

/// Changes of a node's list of children. Rows of their own, changed by atomic operations: siblings never conflict.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Children ever created. Numbers the next sequential child.
    pub created: i32,
    pub present: i32,
}

impl Counts {
    /// The row, and the operand that adds `self` to a row.
    pub fn to_bytes(self) -> [u8; 8] {
        let (low, high) = (self.created as u32, self.present as u32);
        (u64::from(high) << 32 | u64::from(low)).to_le_bytes()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Counts> {
        let word = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(Counts {
            created: word as u32 as i32,
            present: (word >> 32) as u32 as i32,
        })
    }

    /// The operand that makes `self` out of `before`: one carry from the low half is taken back from the high one.
    pub fn since(self, before: Counts) -> [u8; 8] {
        let (new, old) = (self.to_bytes(), before.to_bytes());
        u64::from_le_bytes(new)
            .wrapping_sub(u64::from_le_bytes(old))
            .to_le_bytes()
    }
}

/// See the module. While the transaction that writes a node is being put together, its zxids are not known:
/// [`own_zxid`] stands for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub czxid: i64,
    pub mzxid: i64,
    pub pzxid: i64,
    /// Milliseconds since 1970.
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub aversion: i32,
    pub counts: Counts,
    pub lifetime: Lifetime,
    pub acl: Rc<[Acl]>,
    pub data: Data,
}

/// The zxid of operation `piece` of the transaction that is being put together.
pub fn own_zxid(piece: u16) -> i64 {
    -1 - i64::from(piece)
}

fn own_piece(zxid: i64) -> Option<u16> {
    (zxid < 0).then(|| u16::try_from(-1 - zxid).expect("pieces are 16-bit numbers"))
}

impl Node {
    /// What stands for a node whose rows are damaged, so that it, or a child of it, can go. Nobody knows how many
    /// children and how much data it had, and who might read it: whoever watches it hears of the end, because a client
    /// that waits for it in vain waits for ever, and learns no more than a path.
    pub fn stand_in(lifetime: Lifetime) -> Node {
        Node {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion: 0,
            counts: Counts {
                created: 0,
                present: i32::MAX,
            },
            lifetime,
            acl: open_acl(),
            data: Data::Damaged(0),
        }
    }

    pub fn is_stand_in(&self) -> bool {
        self.data == Data::Damaged(0)
    }

    pub fn stat(&self) -> Stat {
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // Creations and removals.
            cversion: (self.counts.created.wrapping_mul(2)).wrapping_sub(self.counts.present),
            aversion: self.aversion,
            ephemeral_owner: self.lifetime.shown_owner(),
            data_length: i32::try_from(self.data.len()).unwrap_or(i32::MAX),
            num_children: self.counts.present,
            pzxid: self.pzxid,
        }
    }

    /// True for a container that has had children and has none, and for a node whose time was over at `now_ms` and
    /// that has no children.
    pub fn may_be_reaped(&self, now_ms: i64) -> bool {
        let is_over = match self.lifetime {
            Lifetime::Container => self.counts.created > 0,
            Lifetime::Ttl(ms) => self.mtime.saturating_add(ms) <= now_ms,
            Lifetime::Persistent | Lifetime::Ephemeral(_) => false,
        };
        is_over && self.counts.present == 0
    }

    /// Replaces own zxids by what they turned out to be; `zxid_of` gives the number of a piece.
    pub fn settle(&mut self, zxid_of: impl Fn(u16) -> i64) {
        for zxid in [&mut self.czxid, &mut self.mzxid, &mut self.pzxid] {
            if let Some(piece) = own_piece(*zxid) {
                *zxid = zxid_of(piece);
            }
        }
    }

    /// Approximate memory.
    pub fn bytes(&self) -> usize {
        let here = match &self.data {
            Data::Here(bytes) => bytes.len(),
            _ => 0,
        };
        size_of::<Node>() + here
    }

    /// The node's row: the value, and whether it is written as a versionstamped one. The counts and the pzxid have
    /// rows of their own.
    ///
    /// ```text
    ///   stamp: 10 | flags: 1 | czxid: 8 or 2 | mzxid: 8 or 2 | ctime: 8 | mtime: 8 | version: 4 | aversion: 4
    ///   | owner: 8 | access list | data
    /// ```
    /// A zxid of 2 bytes is a number in the transaction that the stamp names. Numbers are big-endian. Of long data,
    /// the row has the length.
    pub fn to_row(&self) -> (Vec<u8>, bool) {
        self.encode(INLINE_BYTES_MAX)
    }

    /// The node as the stream of changes tells of it: as its row, but data with more than `data_max` bytes stays
    /// behind. Gateways that want it read the row.
    pub fn to_news(&self, data_max: usize) -> Vec<u8> {
        self.encode(data_max.min(INLINE_BYTES_MAX)).0
    }

    fn encode(&self, data_max: usize) -> (Vec<u8>, bool) {
        let leaves_data_out = self.data.len() > data_max;
        let (created, modified) = (own_piece(self.czxid), own_piece(self.mzxid));
        let mut flags = 0;
        let mut set = |flag: u8, is: bool| flags |= if is { flag } else { 0 };
        set(CZXID_STAMPED, created.is_some());
        set(MZXID_STAMPED, modified.is_some());
        set(DATA_NONE, self.data == Data::None);
        set(DATA_LEFT_OUT, leaves_data_out);
        set(ACL_OPEN, is_open(&self.acl));
        let mut out = Vec::with_capacity(64 + self.data.len().min(data_max));
        out.put_bytes(0, Versionstamp::LEN);
        out.put_u8(flags);
        for (zxid, piece) in [(self.czxid, created), (self.mzxid, modified)] {
            match piece {
                Some(piece) => out.put_u16(piece),
                None => out.put_i64(zxid),
            }
        }
        out.put_i64(self.ctime);
        out.put_i64(self.mtime);
        out.put_i32(self.version);
        out.put_i32(self.aversion);
        out.put_i64(self.lifetime.owner());
        if flags & ACL_OPEN == 0 {
            put_acl(&mut out, &self.acl);
        }
        match &self.data {
            Data::None => {}
            data if leaves_data_out => out.put_u32(data.len() as u32),
            Data::Here(bytes) => out.put_slice(bytes),
            Data::Unread(_) | Data::Damaged(_) => {
                unreachable!("data is read before its row is written anew")
            }
        }
        (out, created.is_some() || modified.is_some())
    }

    /// Reads the row; `None` if it is damaged. The counts are zero and the pzxid is the czxid: if there are rows for
    /// them, they follow.
    pub fn from_row(row: &[u8], zxids: Zxids) -> Option<Node> {
        let (stamp, mut input) = row.split_at_checked(Versionstamp::LEN)?;
        let stamp = read_stamp(stamp)?;
        let flags = input.try_get_u8().ok()?;
        if flags & !ALL_FLAGS != 0 {
            return None;
        }
        let mut zxid = |stamped: u8| match flags & stamped != 0 {
            true => zxids.of_stamp(stamp, input.try_get_u16().ok()?),
            false => input.try_get_i64().ok(),
        };
        let (czxid, mzxid) = (zxid(CZXID_STAMPED)?, zxid(MZXID_STAMPED)?);
        if czxid < 0 || mzxid < 0 {
            // Those stand for zxids that are not known yet: no row has them.
            return None;
        }
        let ctime = input.try_get_i64().ok()?;
        let mtime = input.try_get_i64().ok()?;
        let version = input.try_get_i32().ok()?;
        let aversion = input.try_get_i32().ok()?;
        let lifetime = Lifetime::of_owner(input.try_get_i64().ok()?);
        let acl = match flags & ACL_OPEN != 0 {
            true => open_acl(),
            false => take_acl(&mut input)?,
        };
        let data = match flags & (DATA_NONE | DATA_LEFT_OUT) {
            0 => Data::Here(Bytes::copy_from_slice(input)),
            DATA_NONE => Data::None,
            DATA_LEFT_OUT => Data::Unread(input.try_get_u32().ok()? as usize),
            _ => return None,
        };
        Some(Node {
            czxid,
            mzxid,
            pzxid: czxid,
            ctime,
            mtime,
            version,
            aversion,
            counts: Counts::default(),
            lifetime,
            acl,
            data,
        })
    }
}

impl Node {
    /// The node whose own row has the key `own`, in that row and those of its counts and pzxid; `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::file_corrupt`] if a row is damaged.
    pub fn from_rows(own: &[u8], found: &[(Bytes, Bytes)], zxids: Zxids) -> Result<Option<Node>> {
        let Some((_, row)) = found.iter().find(|(key, _)| *key == own) else {
            return Ok(None);
        };
        let node = Node::from_row(row, zxids);
        // Its own row has short data: it was not left out.
        let node = node.filter(|node| !node.data.is_left_in_row());
        let mut node = node.ok_or(Error::file_corrupt)?;
        for (key, row) in found {
            // Others may be of a node that is not there.
            match key.strip_prefix(own) {
                Some([0, b'c']) => {
                    node.counts = Counts::from_bytes(row).ok_or(Error::file_corrupt)?
                }
                Some([0, b'z']) => {
                    node.pzxid = pzxid_from_row(row, zxids).ok_or(Error::file_corrupt)?;
                }
                _ => {}
            }
        }
        Ok(Some(node))
    }
}

const CZXID_STAMPED: u8 = 1;
const MZXID_STAMPED: u8 = 2;
const DATA_NONE: u8 = 4;
const DATA_LEFT_OUT: u8 = 8;
const ACL_OPEN: u8 = 16;
const ALL_FLAGS: u8 = 31;

/// The row of a pzxid, to be written as a versionstamped value, or plainly if the zxid is known.
pub fn pzxid_row(pzxid: i64) -> (Vec<u8>, bool) {
    let mut out = vec![0; Versionstamp::LEN];
    match own_piece(pzxid) {
        Some(piece) => out.put_u16(piece),
        None => out.put_i64(pzxid),
    }
    (out, own_piece(pzxid).is_some())
}

pub fn pzxid_from_row(row: &[u8], zxids: Zxids) -> Option<i64> {
    let (stamp, mut rest) = row.split_at_checked(Versionstamp::LEN)?;
    match rest.len() {
        2 => zxids.of_stamp(read_stamp(stamp)?, rest.get_u16()),
        8 => Some(rest.get_i64()).filter(|zxid| *zxid >= 0),
        _ => None,
    }
}

fn read_stamp(bytes: &[u8]) -> Option<Versionstamp> {
    let (version, order) = bytes.split_at_checked(8)?;
    let version = i64::from_be_bytes(version.try_into().ok()?);
    Some(Versionstamp::new(
        version,
        u16::from_be_bytes(order.try_into().ok()?),
    ))
}

thread_local! {
    static OPEN_ACL: Rc<[Acl]> = Acl::open().into();
}

/// All permissions for everyone: what most nodes have, shared by them.
pub fn open_acl() -> Rc<[Acl]> {
    OPEN_ACL.with(Clone::clone)
}

pub fn is_open(acl: &[Acl]) -> bool {
    OPEN_ACL.with(|open| **open == *acl)
}

/// `count: 2 | (perms: 4 | scheme | id)*`, a text being `length: 4 | bytes`.
pub fn put_acl(out: &mut Vec<u8>, acl: &[Acl]) {
    out.put_u16(u16::try_from(acl.len()).expect("checked when the request came"));
    for entry in acl {
        out.put_i32(entry.perms);
        put_text(out, &entry.scheme);
        put_text(out, &entry.id);
    }
}

pub fn take_acl(input: &mut &[u8]) -> Option<Rc<[Acl]>> {
    let count = input.try_get_u16().ok()?;
    let mut take = || {
        Some(Acl {
            perms: input.try_get_i32().ok()?,
            scheme: take_text(input)?,
            id: take_text(input)?,
        })
    };
    (0..count).map(|_| take()).collect()
}

pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub fn take_text(input: &mut &[u8]) -> Option<Text> {
    let bytes = take_bytes(input)?;
    Some(Text::from(std::str::from_utf8(bytes).ok()?))
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("no request reaches 4 GiB"));
    out.put_slice(bytes);
}

pub fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = input.try_get_u32().ok()? as usize;
    let (bytes, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(bytes)
}

#[cfg(test)]
impl Node {
    /// What tests begin with: an open node that was made with this zxid, and has not changed since.
    pub fn new(zxid: i64, data: Data) -> Node {
        Node {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion: 0,
            counts: Counts::default(),
            lifetime: Lifetime::Persistent,
            acl: open_acl(),
            data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZXIDS: Zxids = Zxids { base: 100 };

    fn node(data: Data) -> Node {
        Node {
            czxid: own_zxid(3),
            mzxid: own_zxid(5),
            pzxid: own_zxid(3),
            ctime: 1_700_000_000_000,
            mtime: 1_700_000_000_001,
            version: 7,
            aversion: 2,
            counts: Counts::default(),
            lifetime: Lifetime::Ephemeral(0x1234),
            acl: open_acl(),
            data,
        }
    }

    /// What the store makes of a versionstamped row.
    fn stamped(row: (Vec<u8>, bool), version: i64, order: u16) -> Vec<u8> {
        let (mut row, is_stamped) = row;
        if is_stamped {
            row[..8].copy_from_slice(&version.to_be_bytes());
            row[8..10].copy_from_slice(&order.to_be_bytes());
        }
        row
    }

    #[test]
    fn a_row_gives_back_the_node_with_the_zxids_of_its_commit() {
        let closed: Rc<[Acl]> = [Acl {
            perms: 1,
            scheme: "digest".into(),
            id: "u:x".into(),
        }]
        .into();
        for data in [
            Data::None,
            Data::Here(Bytes::new()),
            Data::Here(Bytes::from_static(b"data")),
        ] {
            for acl in [open_acl(), closed.clone()] {
                let mut node = Node {
                    acl,
                    ..node(data.clone())
                };
                let row = stamped(node.to_row(), 500, 9);
                node.settle(|piece| ZXIDS.of(500, 9, piece));
                assert_eq!(Node::from_row(&row, ZXIDS), Some(node.clone()));
                let (again, is_stamped) = node.to_row();
                assert!(!is_stamped);
                assert_eq!(Node::from_row(&again, ZXIDS), Some(node));
            }
        }
    }

    #[test]
    fn long_data_is_left_out_of_the_row() {
        let long = node(Data::Here(Bytes::from(vec![7; INLINE_BYTES_MAX + 1])));
        let row = stamped(long.to_row(), 500, 9);
        assert!(row.len() < 100);
        let read = Node::from_row(&row, ZXIDS).expect("a row");
        assert_eq!(read.data, Data::Unread(INLINE_BYTES_MAX + 1));
        assert_eq!(read.stat().data_length, INLINE_BYTES_MAX as i32 + 1);
    }

    #[test]
    fn counts_are_changed_by_addition_alone() {
        let mut row = Counts::default().to_bytes();
        let mut counts = Counts::default();
        for (created, present) in [(1, 1), (3, 3), (0, -4), (1, 1), (0, -1)] {
            let next = Counts {
                created: counts.created + created,
                present: counts.present + present,
            };
            let sum = u64::from_le_bytes(row).wrapping_add(u64::from_le_bytes(next.since(counts)));
            row = sum.to_le_bytes();
            assert_eq!(Counts::from_bytes(&row), Some(next));
            counts = next;
        }
    }

    #[test]
    fn owners_are_numbers_as_zookeeper_shows_them() {
        for lifetime in [
            Lifetime::Persistent,
            Lifetime::Container,
            Lifetime::Ttl(5000),
            Lifetime::Ephemeral(77),
        ] {
            assert_eq!(Lifetime::of_owner(lifetime.owner()), lifetime);
        }
        assert_eq!(Lifetime::Ttl(1).owner() as u64, 0xff00_0000_0000_0001);
    }

    #[test]
    fn damaged_rows_are_refused_or_read() {
        let corpus = [
            stamped(node(Data::None).to_row(), 500, 9),
            stamped(node(Data::Here(Bytes::from_static(b"x"))).to_row(), 501, 9),
        ];
        plinth_core::testing::fuzz("keeper rows", 1, corpus, |input| {
            Node::from_row(input, ZXIDS).is_some()
        });
    }
}
