//! An ordered map of byte-string keys in sorted blocks.
//!
//! The memory engine keeps its rows in it and the storage server its versioned window. A lookup in a plain
//! balanced tree follows one pointer per comparison; here each block of at most [`LEAF_MAX`] entries keeps, side by
//! side, the eight bytes of every key that follow the prefix all its keys share. A search compares those words
//! and touches a key's own bytes only to confirm. The same node type, holding separators instead of entries, makes
//! the two levels above: an inner node for every hundred leaves, and one root.
//!
//! ```text
//! root   | sep | sep |          never split: 10 M keys are about 2,000 separators
//! inner  | sep | sep | sep |    at most INNER_MAX
//! leaf   | head head head … | entry entry entry … | shared prefix
//! ```
//!
//! What may never happen: an empty leaf or inner node (except the only one), a head that disagrees with its key,
//! keys out of order. [`SortedBlocks::check`] asserts all three for tests.

use std::cmp::Ordering;

const LEAF_MAX: usize = 64;
const INNER_MAX: usize = 128;
/// A node that shrinks below this share of its maximum looks for a neighbour to merge with.
const SPARSE_DIVISOR: usize = 4;
const PREFIX_MAX: usize = 31;

/// Something with a key. The key of an entry must not change while it is in the map.
pub trait Keyed {
    fn key(&self) -> &[u8];
}

/// A child and the lower bound of what it may hold.
struct Separator<C> {
    key: Box<[u8]>,
    child: C,
}

impl<C> Keyed for Separator<C> {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Leading bytes that every key of a node shares (or the first [`PREFIX_MAX`] of them).
#[derive(Clone, Copy)]
struct Prefix {
    len: u8,
    bytes: [u8; PREFIX_MAX],
}

impl Prefix {
    fn new(bytes: &[u8]) -> Self {
        let len = bytes.len().min(PREFIX_MAX);
        let mut prefix = Prefix { len: len as u8, bytes: [0; PREFIX_MAX] };
        prefix.bytes[..len].copy_from_slice(&bytes[..len]);
        prefix
    }
    #[inline]
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    /// How many of the prefix's bytes `key` starts with.
    fn shared_with(&self, key: &[u8]) -> usize {
        self.as_slice().iter().zip(key).take_while(|(a, b)| a == b).count()
    }
}

/// The eight bytes of `key` from `skip` on, as a number that orders as they do; short keys are padded with zeros,
/// so equal heads do not prove equal keys.
#[inline]
fn head_of(key: &[u8], skip: usize) -> u64 {
    if let Some(chunk) = key.get(skip..skip + 8) {
        return u64::from_be_bytes(chunk.try_into().expect("eight bytes"));
    }
    let rest = key.get(skip..).unwrap_or_default();
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(word)
}

struct Node<E> {
    heads: Vec<u64>,
    entries: Vec<E>,
    prefix: Prefix,
}

impl<E: Keyed> Node<E> {
    fn of(entries: Vec<E>) -> Self {
        let mut node = Node { heads: Vec::new(), entries, prefix: Prefix::new(b"") };
        node.tighten();
        node
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// Recomputes the shared prefix and with it every head.
    fn tighten(&mut self) {
        self.prefix = match (self.entries.first(), self.entries.last()) {
            (Some(first), Some(last)) => {
                let whole = Prefix::new(first.key());
                Prefix::new(&first.key()[..whole.shared_with(last.key())])
            }
            _ => Prefix::new(b""),
        };
        let skip = usize::from(self.prefix.len);
        self.heads.clear();
        self.heads.reserve_exact(self.entries.len());
        self.heads.extend(self.entries.iter().map(|e| head_of(e.key(), skip)));
    }

    /// Where `key` is, or where it belongs.
    #[inline]
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix.as_slice();
        let start = &key[..key.len().min(prefix.len())];
        match start.cmp(prefix) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.entries.len()),
            Ordering::Equal => {}
        }
        let head = head_of(key, prefix.len());
        let first = self.heads.partition_point(|&h| h < head);
        let mut past = first;
        while past < self.heads.len() && self.heads[past] == head {
            past += 1;
        }
        match self.entries[first..past].binary_search_by(|e| e.key().cmp(key)) {
            Ok(at) => Ok(first + at),
            Err(at) => Err(first + at),
        }
    }

    #[inline]
    fn lower_bound(&self, key: &[u8]) -> usize {
        self.find(key).unwrap_or_else(|at| at)
    }

    /// The child that holds `key` or would.
    #[inline]
    fn route(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }

    fn insert(&mut self, at: usize, entry: E) {
        let shared = self.prefix.shared_with(entry.key());
        if self.entries.is_empty() || shared < usize::from(self.prefix.len) {
            self.entries.insert(at, entry);
            self.tighten();
        } else {
            self.heads.insert(at, head_of(entry.key(), shared));
            self.entries.insert(at, entry);
        }
    }

    fn remove(&mut self, at: usize) -> E {
        self.heads.remove(at);
        self.entries.remove(at)
    }

    /// Cuts off the upper part as a node of its own. Full nodes that grow at their end (keys arriving in order)
    /// stay full; others are halved.
    fn split(&mut self, insert_at: usize) -> Self {
        let cut = if insert_at == self.len() { self.len() - 1 } else { self.len() / 2 };
        let upper = Node::of(self.entries.split_off(cut));
        self.tighten();
        upper
    }

    fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
        self.tighten();
    }
}

type Leaf<E> = Node<E>;
type Inner<E> = Node<Separator<Box<Leaf<E>>>>;
type Root<E> = Node<Separator<Box<Inner<E>>>>;

/// Removes child `at`. The separator of the first stays, because it is the lower bound of the whole node.
fn remove_child<C>(parent: &mut Node<Separator<C>>, at: usize) {
    if at == 0 {
        let (first, rest) = parent.entries.split_at_mut(1);
        std::mem::swap(&mut first[0].child, &mut rest[0].child);
    }
    parent.remove(at.max(1));
}

/// Merges child `at` of `parent` with its right or left neighbour where the two fit in `max` together.
fn merge_sparse<E: Keyed>(parent: &mut Node<Separator<Box<Node<E>>>>, at: usize, max: usize) {
    let len = parent.entries[at].child.len();
    if len >= max / SPARSE_DIVISOR {
        return;
    }
    // Three quarters: a merged node must not be split again by the next few inserts.
    let fits = |other: usize| other + len <= max * 3 / 4;
    let left = if at + 1 < parent.len() && fits(parent.entries[at + 1].child.len()) {
        at
    } else if at > 0 && fits(parent.entries[at - 1].child.len()) {
        at - 1
    } else {
        return;
    };
    let right = parent.remove(left + 1);
    parent.entries[left].child.append(*right.child);
}

/// An ordered map whose entries carry their own keys. See the module.
pub struct SortedBlocks<E> {
    root: Root<E>,
    len: usize,
}

impl<E: Keyed> Default for SortedBlocks<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Keyed> SortedBlocks<E> {
    pub fn new() -> Self {
        let leaf = Separator { key: Box::default(), child: Box::new(Leaf::of(Vec::new())) };
        let inner = Separator { key: Box::default(), child: Box::new(Inner::of(vec![leaf])) };
        SortedBlocks { root: Root::of(vec![inner]), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn leaf(&self, key: &[u8]) -> &Leaf<E> {
        let inner = &self.root.entries[self.root.route(key)].child;
        &inner.entries[inner.route(key)].child
    }

    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&E> {
        let leaf = self.leaf(key);
        leaf.find(key).ok().map(|at| &leaf.entries[at])
    }

    /// `update` sees the entry of `key`, or nothing and then gives the entry to insert (or none).
    #[inline]
    pub fn upsert(&mut self, key: &[u8], update: impl FnOnce(Option<&mut E>) -> Option<E>) {
        let r = self.root.route(key);
        let inner = &mut self.root.entries[r].child;
        let i = inner.route(key);
        let leaf = &mut inner.entries[i].child;
        match leaf.find(key) {
            Ok(at) => {
                let replacement = update(Some(&mut leaf.entries[at]));
                assert!(replacement.is_none(), "an entry that exists is updated in place");
            }
            Err(at) => {
                let Some(entry) = update(None) else { return };
                debug_assert_eq!(entry.key(), key);
                self.len += 1;
                if leaf.len() < LEAF_MAX {
                    leaf.insert(at, entry);
                } else {
                    self.insert_splitting(r, i, at, entry);
                }
            }
        }
    }

    #[cold]
    fn insert_splitting(&mut self, r: usize, i: usize, at: usize, entry: E) {
        let inner = &mut self.root.entries[r].child;
        let lower = &mut inner.entries[i].child;
        let mut upper = Box::new(lower.split(at));
        let cut = lower.len();
        if at <= cut && at < LEAF_MAX {
            lower.insert(at, entry);
        } else {
            upper.insert(at - cut, entry);
        }
        let key = upper.entries[0].key().into();
        inner.insert(i + 1, Separator { key, child: upper });
        if inner.len() > INNER_MAX {
            let upper = Box::new(inner.split(i + 2));
            let key = upper.entries[0].key.clone();
            self.root.insert(r + 1, Separator { key, child: upper });
        }
    }

    /// `keep` may change the entry of `key`; if it answers false the entry is removed.
    pub fn update_or_remove(&mut self, key: &[u8], keep: impl FnOnce(&mut E) -> bool) {
        let r = self.root.route(key);
        let inner = &mut self.root.entries[r].child;
        let i = inner.route(key);
        let leaf = &mut inner.entries[i].child;
        let Ok(at) = leaf.find(key) else { return };
        if !keep(&mut leaf.entries[at]) {
            leaf.remove(at);
            self.len -= 1;
            if leaf.len() < LEAF_MAX / SPARSE_DIVISOR {
                self.tidy(r, i);
            }
        }
    }

    /// Removes the child if it is empty and not the only one; merges it if it is sparse; then the same one level up.
    fn tidy(&mut self, r: usize, i: usize) {
        let inner = &mut self.root.entries[r].child;
        if inner.entries[i].child.len() == 0 {
            if inner.len() > 1 {
                remove_child(inner, i);
            } else if self.root.len() > 1 {
                remove_child(&mut self.root, r);
                return;
            }
        } else {
            merge_sparse(inner, i, LEAF_MAX);
        }
        merge_sparse(&mut self.root, r, INNER_MAX);
    }

    /// Removes the entries of `[begin, end)`, showing each to `removed`.
    pub fn remove_range(&mut self, begin: &[u8], end: &[u8], mut removed: impl FnMut(&E)) {
        if begin >= end {
            return;
        }
        while let Some((r, i, low)) = self.seek(begin) {
            let leaf = &mut self.root.entries[r].child.entries[i].child;
            let high = leaf.lower_bound(end);
            if low >= high {
                return;
            }
            let more = high == leaf.len();
            leaf.heads.drain(low..high);
            leaf.entries.drain(low..high).for_each(|entry| removed(&entry));
            self.len -= high - low;
            self.tidy(r, i);
            if !more {
                return;
            }
        }
    }

    /// Place of the first entry at or after `key`.
    fn seek(&self, key: &[u8]) -> Option<(usize, usize, usize)> {
        let mut r = self.root.route(key);
        let inner = &self.root.entries[r].child;
        let mut i = inner.route(key);
        let mut at = inner.entries[i].child.lower_bound(key);
        // Only the leaf that the key routes to can end before it; what follows is not empty.
        while at == self.root.entries[r].child.entries[i].child.len() {
            at = 0;
            i += 1;
            if i == self.root.entries[r].child.len() {
                i = 0;
                r += 1;
                if r == self.root.len() {
                    return None;
                }
            }
        }
        Some((r, i, at))
    }

    /// Entries of `[begin, end)` in order, or in reverse order.
    pub fn range<'a>(&'a self, begin: &'a [u8], end: &'a [u8], reverse: bool) -> Range<'a, E> {
        let mut range = Range { map: self, begin, end, reverse, r: 0, i: 0, run: [].iter(), last: begin >= end };
        if range.last {
            return range;
        }
        // Backwards the walk starts at the leaf that `end` routes to: what lies before `end` is there or before it.
        let start = if reverse { end } else { begin };
        range.r = self.root.route(start);
        range.i = self.root.entries[range.r].child.route(start);
        range.load();
        range
    }

    /// Changes the entries of `[begin, end)` in place; their keys must stay.
    pub fn for_each_mut(&mut self, begin: &[u8], end: &[u8], mut change: impl FnMut(&mut E)) {
        if begin >= end {
            return;
        }
        let Some((mut r, mut i, mut low)) = self.seek(begin) else { return };
        loop {
            let inner = &mut self.root.entries[r].child;
            let leaf = &mut inner.entries[i].child;
            let high = leaf.lower_bound(end);
            let whole = high == leaf.len();
            leaf.entries[low..high.max(low)].iter_mut().for_each(&mut change);
            if !whole {
                return;
            }
            low = 0;
            i += 1;
            if i == inner.len() {
                i = 0;
                r += 1;
                if r == self.root.len() {
                    return;
                }
            }
        }
    }

    /// Asserts what the module promises. For tests: walks everything.
    pub fn check(&self) {
        let mut previous: Option<&[u8]> = None;
        let mut count = 0;
        let leaves = self.root.entries.iter().map(|e| e.child.len()).sum::<usize>();
        assert_eq!(self.root.heads.len(), self.root.len());
        for inner in &self.root.entries {
            assert!(inner.child.len() > 0 && inner.child.heads.len() == inner.child.len());
            assert!(inner.key <= inner.child.entries[0].key);
            for leaf in &inner.child.entries {
                assert!(leaf.child.entries.first().is_none_or(|entry| *leaf.key <= *entry.key()));
                let leaf = &leaf.child;
                assert!(leaf.len() > 0 || leaves == 1, "an empty leaf among {leaves}");
                assert!(leaf.len() <= LEAF_MAX && leaf.heads.len() == leaf.len());
                for (entry, &head) in leaf.entries.iter().zip(&leaf.heads) {
                    let key = entry.key();
                    assert!(key.starts_with(leaf.prefix.as_slice()));
                    assert_eq!(head, head_of(key, usize::from(leaf.prefix.len)));
                    assert!(previous.is_none_or(|p| p < key), "keys out of order");
                    previous = Some(key);
                    count += 1;
                }
            }
        }
        assert_eq!(count, self.len);
    }
}

/// Entries of a range, see [`SortedBlocks::range`].
pub struct Range<'a, E> {
    map: &'a SortedBlocks<E>,
    begin: &'a [u8],
    end: &'a [u8],
    reverse: bool,
    r: usize,
    i: usize,
    /// What is left of the current leaf.
    run: std::slice::Iter<'a, E>,
    /// The current leaf holds the far end of the range.
    last: bool,
}

impl<'a, E: Keyed> Range<'a, E> {
    /// Takes the part of the current leaf that is inside the range.
    fn load(&mut self) {
        let leaf = &self.map.root.entries[self.r].child.entries[self.i].child;
        let low = leaf.lower_bound(self.begin);
        let high = leaf.lower_bound(self.end).max(low);
        self.last = if self.reverse { low > 0 } else { high < leaf.len() };
        self.run = leaf.entries[low..high].iter();
    }

    /// Goes on to the next leaf; false at the end of the map.
    fn step(&mut self) -> bool {
        let root = &self.map.root.entries;
        if self.reverse {
            if self.i > 0 {
                self.i -= 1;
            } else if self.r > 0 {
                self.r -= 1;
                self.i = root[self.r].child.len() - 1;
            } else {
                return false;
            }
        } else if self.i + 1 < root[self.r].child.len() {
            self.i += 1;
        } else if self.r + 1 < root.len() {
            self.r += 1;
            self.i = 0;
        } else {
            return false;
        }
        self.load();
        true
    }
}

impl<'a, E: Keyed> Iterator for Range<'a, E> {
    type Item = &'a E;

    #[inline]
    fn next(&mut self) -> Option<&'a E> {
        loop {
            let entry = if self.reverse { self.run.next_back() } else { self.run.next() };
            if entry.is_some() {
                return entry;
            }
            if self.last || !self.step() {
                self.last = true;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq)]
    struct Row(Vec<u8>, u32);

    impl Keyed for Row {
        fn key(&self) -> &[u8] {
            &self.0
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(Vec<u8>, u32),
        Remove(Vec<u8>),
        RemoveRange(Vec<u8>, Vec<u8>),
        Bump(Vec<u8>, Vec<u8>),
        Read(Vec<u8>, Vec<u8>),
    }

    /// Keys that share prefixes, differ by trailing zeros and fall on both sides of the eight-byte heads.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(0u8..3, 0..4),
            (0u32..4000).prop_map(|n| format!("a-rather-long-shared-prefix-of-forty-bytes-{n:05}").into_bytes()),
            (0u32..4000).prop_map(|n| format!("p{n:04}").into_bytes()),
            (0u8..3, prop::collection::vec(0u8..2, 0..12)).prop_map(|(n, mut tail)| {
                tail.insert(0, n);
                tail
            }),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (key(), any::<u32>()).prop_map(|(k, v)| Step::Put(k, v)),
            8 => key().prop_map(Step::Remove),
            1 => (key(), key()).prop_map(|(a, b)| Step::RemoveRange(a, b)),
            1 => (key(), key()).prop_map(|(a, b)| Step::Bump(a, b)),
            2 => (key(), key()).prop_map(|(a, b)| Step::Read(a, b)),
        ]
    }

    fn put(map: &mut SortedBlocks<Row>, key: &[u8], value: u32) {
        map.upsert(key, |found| match found {
            Some(row) => {
                row.1 = value;
                None
            }
            None => Some(Row(key.to_vec(), value)),
        });
    }

    fn check_range(map: &SortedBlocks<Row>, model: &BTreeMap<Vec<u8>, u32>, a: &[u8], b: &[u8]) {
        let mut expected: Vec<Row> = Vec::new();
        if a < b {
            expected = model.range(a.to_vec()..b.to_vec()).map(|(k, v)| Row(k.clone(), *v)).collect();
        }
        assert!(map.range(a, b, false).eq(expected.iter()));
        assert!(map.range(a, b, true).eq(expected.iter().rev()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn it_answers_as_a_tree_map_does(steps in prop::collection::vec(step(), 1..1500)) {
            let mut map = SortedBlocks::new();
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Put(k, v) => {
                        put(&mut map, &k, v);
                        model.insert(k, v);
                    }
                    Step::Remove(k) => {
                        map.update_or_remove(&k, |_| false);
                        model.remove(&k);
                    }
                    Step::RemoveRange(a, b) => {
                        map.remove_range(&a, &b, |row| assert_eq!(model.remove(&row.0), Some(row.1)));
                        assert!(a >= b || model.range(a..b).next().is_none());
                    }
                    Step::Bump(a, b) => {
                        map.for_each_mut(&a, &b, |row| row.1 ^= 1);
                        if a < b {
                            model.range_mut(a..b).for_each(|(_, v)| *v ^= 1);
                        }
                    }
                    Step::Read(a, b) => {
                        assert_eq!(map.get(&a).map(|row| row.1), model.get(&a).copied());
                        check_range(&map, &model, &a, &b);
                    }
                }
            }
            map.check();
            check_range(&map, &model, b"", b"\xff");
        }
    }

    #[test]
    fn a_hundred_thousand_keys_in_and_out_leave_nothing_behind() {
        let mut map = SortedBlocks::new();
        let key = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes();
        for n in 0..100_000 {
            put(&mut map, &key(n), n);
        }
        map.check();
        for n in 0..100_000 {
            assert_eq!(map.get(&key(n)).map(|row| row.1), Some(n));
        }
        for n in 0..100_000 {
            map.update_or_remove(&key(n), |_| false);
        }
        map.check();
        assert!(map.is_empty() && map.range(b"", b"\xff\xff\xff\xff\xff", false).next().is_none());
    }
}
