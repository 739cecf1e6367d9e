//! Keys of the keeper's rows (FDBKeeper §3.2), all behind `keeper/<name>\0`:
//!
//! ```text
//!   m                          the tree's own record
//!   c <n|e|b>                  how many nodes, ephemeral nodes and bytes there are, added to
//!   n <depth: 2> <path>        a node: its `Stat` and short data           (node.rs)
//!     … \0 c                   counts of its children, added to
//!     … \0 z                   its pzxid
//!   d <path> \0 <number: 2>    a piece of long data
//!   e <session: 8> <path>      an ephemeral node of the session
//!   t <path>                   a container, or a node with a time to live
//!   s <session: 8>             a session
//!   o <gateway: 8> <session: 8> a session of the gateway
//!   g <gateway: 8>             a gateway's lease
//!   q <path>                   a quota                                     (quota.rs)
//!     … \0 <b|n>               bytes and nodes that are used of it, added to
//!   x <lock> <hash: 8>         no row: occurs in conflict ranges only
//! ```
//! The children of a node follow one another: they have the same depth and the same path before their names. So a
//! listing is one range read, and a node with everything about it too.

use crate::paths;
use bytes::Bytes;
use plinth_core::hash::hash_bytes;
use plinth_core::key::KeyRange;
use std::borrow::Cow;

/// Most bytes of a piece of long data.
pub const PIECE_BYTES: usize = 90_000;

/// What a transaction may rely on, or change. A conflict is about one of these, so a change of a node's data does not
/// disturb who creates a child of the node (§3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Lock {
    /// The node exists, or does not, and its access list.
    Existence = b'e' as isize,
    /// Data and version.
    Data = b'd' as isize,
    /// The list of children and how many were created.
    Children = b'c' as isize,
    /// The session lives, and which gateway has it.
    Session = b's' as isize,
    /// The ephemeral nodes of the session.
    Ephemerals = b'p' as isize,
    /// The gateway's lease, which others may end.
    Gateway = b'g' as isize,
    /// What the gateway has done: written by each of its transactions.
    Beat = b'b' as isize,
    /// Anything that the gateway has changed.
    Everything = b'a' as isize,
    /// Anything that the gateway has changed without writing the locks of what it was.
    Unlisted = b'u' as isize,
    /// One of the gateway's batches.
    Batch = b'o' as isize,
    /// Which quotas there are, and how far each is counted: one lock for all.
    Quotas = b'q' as isize,
    /// What is used of the quota of a path.
    Quota = b'l' as isize,
    /// The gateway has looked whether others write to the rows (pipeline/guard.rs). Nobody relies on it.
    Guard = b'w' as isize,
}

/// The keys of one tree.
#[derive(Clone, Debug)]
pub struct Rows {
    prefix: Vec<u8>,
}

impl Rows {
    /// `name` tells the trees of a database apart. It has no NUL.
    pub fn new(name: &str) -> Rows {
        assert!(!name.contains('\0'), "a name with a NUL");
        Rows {
            prefix: [b"keeper/", name.as_bytes(), b"\0"].concat(),
        }
    }

    /// Where the rows of all trees begin and end.
    pub fn of_all_trees() -> (Vec<u8>, Vec<u8>) {
        (b"keeper/".to_vec(), b"keeper0".to_vec())
    }

    /// The name of the tree with this row, and where the next tree may begin. Whatever else lies there has no name.
    pub fn tree_of(key: &[u8]) -> (Option<String>, Vec<u8>) {
        let name = key.strip_prefix(b"keeper/").unwrap_or_default();
        let end = name.iter().position(|byte| *byte == 0);
        match end.map(|end| std::str::from_utf8(&name[..end])) {
            Some(Ok(name)) => (Some(name.to_owned()), Rows::new(name).all().end.to_vec()),
            _ => (None, [key, b"\0"].concat()),
        }
    }

    fn key(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut key =
            Vec::with_capacity(self.prefix.len() + 24 + parts.last().map_or(0, |p| p.len()));
        key.extend_from_slice(&self.prefix);
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    pub fn all(&self) -> KeyRange {
        let mut end = self.prefix.clone();
        *end.last_mut().expect("not empty") += 1;
        KeyRange::new(self.prefix.clone(), end)
    }

    pub fn meta(&self) -> Vec<u8> {
        self.key(&[b"m"])
    }

    pub fn node(&self, path: &str) -> Vec<u8> {
        let depth = paths::depth(path) as u16;
        self.key(&[b"n", &depth.to_be_bytes(), path.as_bytes()])
    }

    /// The row of one of the tree's [`Totals`](super::totals::Totals).
    pub fn total(&self, of: u8) -> Vec<u8> {
        self.key(&[b"c", &[of]])
    }

    pub fn totals(&self) -> KeyRange {
        KeyRange::new(self.key(&[b"c"]), self.key(&[b"d"]))
    }

    pub fn counts(&self, path: &str) -> Vec<u8> {
        let mut key = self.node(path);
        key.extend_from_slice(b"\0c");
        key
    }

    pub fn pzxid(&self, path: &str) -> Vec<u8> {
        let mut key = self.node(path);
        key.extend_from_slice(b"\0z");
        key
    }

    /// The node's row with its counts and pzxid.
    pub fn around_node(&self, path: &str) -> KeyRange {
        let begin = self.node(path);
        let mut end = begin.clone();
        end.push(1);
        KeyRange::new(begin, end)
    }

    /// Rows of the nodes below a node that have this depth.
    pub fn below(&self, path: &str, depth: usize) -> KeyRange {
        let before = if path == "/" { "" } else { path };
        let mut begin = self.key(&[b"n", &(depth as u16).to_be_bytes(), before.as_bytes()]);
        let mut end = begin.clone();
        begin.push(b'/');
        end.push(b'/' + 1);
        KeyRange::new(begin, end)
    }

    /// The rows of all nodes, with their counts and pzxids.
    pub fn all_nodes(&self) -> KeyRange {
        KeyRange::new(self.key(&[b"n"]), self.key(&[b"o"]))
    }

    /// All rows but the record; without those of nodes, if `with_nodes` is false. The locks are not among them.
    pub fn but_the_record(&self, with_nodes: bool) -> Vec<KeyRange> {
        let (record, nodes) = (self.meta(), self.all_nodes());
        let (behind, end) = (self.key(&[b"m\0"]), self.key(&[b"x"]));
        let before = KeyRange::new(self.prefix.clone(), record);
        if with_nodes {
            return vec![before, KeyRange::new(behind, end)];
        }
        let to_nodes = KeyRange::new(behind, nodes.begin);
        vec![before, to_nodes, KeyRange::new(nodes.end, end)]
    }

    /// The path in the key of a node's row.
    pub fn node_path<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key.get(self.prefix.len() + 3..)?).ok()
    }

    /// What is in the place of the path, for whoever is told of a row that is damaged.
    pub fn shown_path<'a>(&self, key: &'a [u8]) -> Cow<'a, str> {
        String::from_utf8_lossy(key.get(self.prefix.len() + 3..).unwrap_or(key))
    }

    /// False for the counts and the pzxid of a node.
    pub fn is_node(key: &[u8]) -> bool {
        !matches!(key, [.., 0, b'c' | b'z'])
    }

    /// Rows of all children. Counts and pzxids of the children are among them.
    pub fn children(&self, path: &str) -> KeyRange {
        self.below(path, paths::depth(path) + 1)
    }

    /// The name of the child whose row has `key`, in the range of the children of `path`; `None` for other rows.
    pub fn child_of<'a>(&self, path: &str, key: &'a [u8]) -> Option<&'a str> {
        let before = if path == "/" { 0 } else { path.len() };
        let name = key.get(self.prefix.len() + 3 + before + 1..)?;
        std::str::from_utf8(name)
            .ok()
            .filter(|name| !name.is_empty() && !name.contains(['\0', '/']))
    }

    pub fn data(&self, path: &str) -> KeyRange {
        let begin = self.key(&[b"d", path.as_bytes(), b"\0"]);
        let end = self.key(&[b"d", path.as_bytes(), b"\x01"]);
        KeyRange::new(begin, end)
    }

    pub fn data_piece(&self, path: &str, number: u16) -> Vec<u8> {
        self.key(&[b"d", path.as_bytes(), b"\0", &number.to_be_bytes()])
    }

    pub fn ephemeral(&self, session: i64, path: &str) -> Vec<u8> {
        self.key(&[b"e", &session.to_be_bytes(), path.as_bytes()])
    }

    pub fn ephemerals(&self, session: i64) -> KeyRange {
        let begin = self.key(&[b"e", &session.to_be_bytes()]);
        let mut end = begin.clone();
        end.push(0xff);
        KeyRange::new(begin, end)
    }

    /// The ephemeral nodes of all sessions.
    pub fn all_ephemerals(&self) -> KeyRange {
        KeyRange::new(self.key(&[b"e"]), self.key(&[b"f"]))
    }

    /// The session in the key of an ephemeral node.
    pub fn ephemeral_session(&self, key: &[u8]) -> Option<i64> {
        let session = key.get(self.prefix.len() + 1..)?.first_chunk::<8>()?;
        Some(i64::from_be_bytes(*session))
    }

    /// The path in the key of an ephemeral node.
    pub fn ephemeral_path<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key.get(self.prefix.len() + 9..)?).ok()
    }

    pub fn timed(&self, path: &str) -> Vec<u8> {
        self.key(&[b"t", path.as_bytes()])
    }

    pub fn all_timed(&self) -> KeyRange {
        KeyRange::new(self.key(&[b"t"]), self.key(&[b"u"]))
    }

    pub fn timed_path<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key.get(self.prefix.len() + 1..)?).ok()
    }

    pub fn session(&self, session: i64) -> Vec<u8> {
        self.key(&[b"s", &session.to_be_bytes()])
    }

    pub fn all_sessions(&self) -> KeyRange {
        KeyRange::new(self.key(&[b"s"]), self.key(&[b"t"]))
    }

    pub fn owned(&self, gateway: u64, session: i64) -> Vec<u8> {
        self.key(&[b"o", &gateway.to_be_bytes(), &session.to_be_bytes()])
    }

    pub fn all_owned(&self, gateway: u64) -> KeyRange {
        let begin = self.key(&[b"o", &gateway.to_be_bytes()]);
        let mut end = begin.clone();
        end.extend_from_slice(&[0xff; 9]);
        KeyRange::new(begin, end)
    }

    pub fn gateway(&self, gateway: u64) -> Vec<u8> {
        self.key(&[b"g", &gateway.to_be_bytes()])
    }

    pub fn all_gateways(&self) -> KeyRange {
        KeyRange::new(self.key(&[b"g"]), self.key(&[b"h"]))
    }

    pub fn quota(&self, path: &str) -> Vec<u8> {
        self.key(&[b"q", path.as_bytes()])
    }

    /// How many nodes, or bytes, are used of a quota.
    pub fn quota_used(&self, path: &str, of: u8) -> Vec<u8> {
        self.key(&[b"q", path.as_bytes(), &[0, of]])
    }

    /// The quota's row, and those of what is used.
    pub fn around_quota(&self, path: &str) -> KeyRange {
        let begin = self.quota(path);
        let end = self.key(&[b"q", path.as_bytes(), &[1]]);
        KeyRange::new(begin, end)
    }

    pub fn all_quotas(&self) -> KeyRange {
        KeyRange::new(self.key(&[b"q"]), self.key(&[b"r"]))
    }

    /// The path in the key of a quota, and which row of it this is: none, or the last byte.
    pub fn quota_path<'a>(&self, key: &'a [u8]) -> Option<(&'a str, Option<u8>)> {
        let (path, of) = match key.get(self.prefix.len() + 1..)? {
            [path @ .., 0, of] => (path, Some(*of)),
            path => (path, None),
        };
        Some((std::str::from_utf8(path).ok()?, of))
    }

    /// The number at the end of the key of a gateway or a session.
    pub fn last_number(key: &[u8]) -> Option<u64> {
        key.last_chunk::<8>()
            .map(|bytes| u64::from_be_bytes(*bytes))
    }

    pub fn lock(&self, lock: Lock, hash: u64) -> Vec<u8> {
        self.key(&[b"x", &[lock as u8], &hash.to_be_bytes()])
    }

    /// The keys of many locks, in one piece of memory.
    pub fn locks<L>(&self, locks: L) -> impl Iterator<Item = Bytes> + use<L>
    where
        L: ExactSizeIterator<Item = (Lock, u64)>,
    {
        let (each, count) = (self.lock(Lock::Existence, 0).len(), locks.len());
        let mut keys = Vec::with_capacity(each * count);
        for (lock, hash) in locks {
            keys.extend_from_slice(&self.prefix);
            keys.extend_from_slice(&[b'x', lock as u8]);
            keys.extend_from_slice(&hash.to_be_bytes());
        }
        let keys = Bytes::from(keys);
        (0..count).map(move |at| keys.slice(at * each..(at + 1) * each))
    }

    /// This lock of all gateways but one.
    pub fn lock_of_others(&self, lock: Lock, gateway: u64) -> [KeyRange; 2] {
        let own = self.lock(lock, gateway);
        let after = [&own[..], &[0]].concat();
        let first = self.lock(lock, 0);
        let end = self.key(&[b"x", &[lock as u8 + 1]]);
        [KeyRange::new(first, own), KeyRange::new(after, end)]
    }

    /// The lock of one batch of a gateway.
    pub fn batch(&self, gateway: u64, number: u64) -> Vec<u8> {
        let mut lock = self.lock(Lock::Batch, gateway);
        lock.extend_from_slice(&number.to_be_bytes());
        lock
    }

    /// The locks of the gateway's batches after one.
    pub fn later_batches(&self, gateway: u64, number: u64) -> KeyRange {
        KeyRange::new(
            self.batch(gateway, number + 1),
            self.batch(gateway, u64::MAX),
        )
    }

    /// Two paths that share a hash cost a needless conflict now and then, nothing else.
    pub fn path_hash(path: &str) -> u64 {
        hash_bytes(path.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_the_children_of_a_node_and_nobody_else() {
        let rows = Rows::new("test");
        for (parent, children, others) in [
            ("/", vec!["/a", "/zookeeper"], vec!["/", "/a/b"]),
            (
                "/a",
                vec!["/a/b", "/a/0", "/a/ü"],
                vec!["/a", "/ab/c", "/a0", "/a/b/c", "/b/a"],
            ),
        ] {
            let range = rows.children(parent);
            for child in children {
                let key = rows.node(child);
                assert!(range.contains(&key), "{child}");
                assert_eq!(rows.child_of(parent, &key), Some(paths::name(child)));
                assert!(range.contains(&rows.counts(child)));
                assert_eq!(rows.child_of(parent, &rows.counts(child)), None);
            }
            for other in others {
                assert!(!range.contains(&rows.node(other)), "{other}");
            }
        }
    }

    #[test]
    fn the_rows_around_a_node_are_its_own() {
        let rows = Rows::new("test");
        let around = rows.around_node("/a");
        for own in [rows.node("/a"), rows.counts("/a"), rows.pzxid("/a")] {
            assert!(around.contains(&own));
        }
        for other in [
            rows.node("/a0"),
            rows.node("/a/b"),
            rows.node("/"),
            rows.counts("/a "),
        ] {
            assert!(!around.contains(&other));
        }
    }

    #[test]
    fn neither_the_record_nor_a_lock_is_among_the_other_rows() {
        let rows = Rows::new("test");
        let is_among = |key: &[u8], with_nodes| {
            let ranges = rows.but_the_record(with_nodes);
            ranges.iter().any(|range| range.contains(key))
        };
        for key in [rows.session(1), rows.timed("/a"), rows.total(b'n')] {
            assert!(is_among(&key, true) && is_among(&key, false));
        }
        for key in [rows.node("/a"), rows.counts("/a")] {
            assert!(is_among(&key, true) && !is_among(&key, false));
        }
        for key in [
            rows.meta(),
            rows.lock(Lock::Beat, 1),
            rows.batch(u64::MAX, 1),
        ] {
            assert!(!is_among(&key, true) && !is_among(&key, false));
        }
    }

    #[test]
    fn the_changes_of_others_are_those_of_every_other_gateway() {
        let rows = Rows::new("test");
        let others = rows.lock_of_others(Lock::Everything, 7);
        let is_there = |gateway| {
            let key = rows.lock(Lock::Everything, gateway);
            others.iter().any(|range| range.contains(&key))
        };
        assert!([1, 6, 8, u64::MAX].into_iter().all(is_there));
        assert!(!is_there(7));
        assert!(
            !others
                .iter()
                .any(|range| range.contains(&rows.lock(Lock::Beat, 1)))
        );
    }

    #[test]
    fn many_locks_have_the_keys_that_each_has_alone() {
        let rows = Rows::new("test");
        let all = [
            (Lock::Data, 7),
            (Lock::Existence, u64::MAX),
            (Lock::Session, 0),
        ];
        let alone = all.map(|(lock, hash)| rows.lock(lock, hash));
        assert!(rows.locks(all.into_iter()).eq(alone));
        assert_eq!(rows.locks([].into_iter()).next(), None);
    }

    #[test]
    fn keys_give_back_what_they_were_made_of() {
        let rows = Rows::new("test");
        let key = rows.ephemeral(-5, "/a/b");
        assert!(rows.ephemerals(-5).contains(&key) && !rows.ephemerals(-4).contains(&key));
        assert_eq!(rows.ephemeral_path(&key), Some("/a/b"));
        assert_eq!(rows.ephemeral_session(&key), Some(-5));
        assert!(rows.all_ephemerals().contains(&key));
        assert_eq!(rows.timed_path(&rows.timed("/c")), Some("/c"));
        assert_eq!(Rows::last_number(&rows.gateway(9)), Some(9));
        assert!(rows.all_owned(7).contains(&rows.owned(7, -1)));
        assert!(!rows.all_owned(7).contains(&rows.owned(8, 0)));
        assert_eq!(rows.quota_path(&rows.quota("/a")), Some(("/a", None)));
        let used = rows.quota_used("/a", b'n');
        assert_eq!(rows.quota_path(&used), Some(("/a", Some(b'n'))));
        assert!(rows.around_quota("/a").contains(&used));
        assert!(!rows.around_quota("/a").contains(&rows.quota("/a/b")));
        assert!(
            rows.all().contains(&rows.meta()) && rows.all().contains(&rows.lock(Lock::Data, 1))
        );
    }
}
