//! An ordered map of byte-string keys in sorted blocks.
//!
//! The memory engine keeps its rows in it, and the storage server its versioned window. The cost of a lookup in memory
//! is the number of places that it visits one after the other. In a plain balanced tree that is one for every
//! comparison; here it is about three. A leaf is one block of memory that holds at most [`LEAF_MAX`] entries and, side
//! by side, the eight bytes of each key that follow the prefix all its keys share. A search compares those words, all
//! of them at once, and touches one key's own bytes to confirm; where words are alike, it halves the keys that have
//! them. Two levels of separators lead to it: an inner node for every hundred leaves, and one root. They are small
//! enough to stay in a cache.
//!
//! ```text
//! root   | separator | separator |                never split: 10 M keys are about 2,500 separators
//! inner  | separator | separator | separator |    at most INNER_MAX
//! leaf   | prefix | head head head … | entry entry entry … |
//! ```
//!
//! What may never happen: an empty leaf or inner node (except the only one), a head that disagrees with its key,
//! keys out of order, a key below its leaf's separator. [`SortedBlocks::check`] asserts them for tests.

use std::cmp::Ordering;

const LEAF_MAX: usize = 64;
/// Heads in one line of cache.
const HEADS_GROUPED: usize = 8;
const INNER_MAX: usize = 128;
/// A node that shrinks below this share of its maximum is merged with a neighbour if they fit together.
const SPARSE_DIVISOR: usize = 4;
const PREFIX_MAX: usize = 63;

/// Something with a key. The key of an entry must not change while it is in the map.
pub trait Keyed {
    fn key(&self) -> &[u8];
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
        let mut prefix = Prefix {
            len: len as u8,
            bytes: [0; PREFIX_MAX],
        };
        prefix.bytes[..len].copy_from_slice(&bytes[..len]);
        prefix
    }
    /// The prefix that all keys between the two share.
    fn between(first: &[u8], last: &[u8]) -> Self {
        Prefix::new(&first[..Prefix::new(first).shared_with(last)])
    }
    #[inline]
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    /// Number of the prefix's bytes that `key` starts with.
    fn shared_with(&self, key: &[u8]) -> usize {
        if key.starts_with(self.as_slice()) {
            return usize::from(self.len);
        }
        self.as_slice()
            .iter()
            .zip(key)
            .take_while(|(a, b)| a == b)
            .count()
    }
    /// The place of `key`: before all keys with the prefix, behind them, or among them.
    #[inline]
    fn place(&self, key: &[u8]) -> Ordering {
        let prefix = self.as_slice();
        key[..key.len().min(prefix.len())].cmp(prefix)
    }
}

/// The eight bytes of `key` from `skip` on, as a number with the same order. Short keys are padded with zeros, so
/// equal heads do not prove equal keys.
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

/// A part of the map that can take over its right neighbour's content.
trait Block {
    fn len(&self) -> usize;
    fn absorb(&mut self, right: &mut Self);
}

struct Leaf<E> {
    prefix: Prefix,
    len: usize,
    /// The first `len` are in use. The others have the maximum, so that they count as above everything.
    heads: [u64; LEAF_MAX],
    /// The first `len` are `Some`.
    entries: [Option<E>; LEAF_MAX],
}

impl<E: Keyed> Leaf<E> {
    fn new() -> Self {
        Leaf {
            prefix: Prefix::new(b""),
            len: 0,
            heads: [u64::MAX; LEAF_MAX],
            entries: [const { None }; LEAF_MAX],
        }
    }

    #[inline]
    fn entry(&self, at: usize) -> &E {
        self.entries[at].as_ref().expect("below len")
    }

    /// Recomputes the shared prefix and with it every head.
    fn tighten(&mut self) {
        self.prefix = match self.len {
            0 => Prefix::new(b""),
            len => Prefix::between(self.entry(0).key(), self.entry(len - 1).key()),
        };
        let skip = usize::from(self.prefix.len);
        for (head, entry) in self.heads.iter_mut().zip(&self.entries) {
            *head = entry.as_ref().map_or(u64::MAX, |e| head_of(e.key(), skip));
        }
    }

    /// The number of heads below `head`.
    #[inline]
    fn below(&self, head: u64) -> usize {
        // The last head of each group tells the group. These are read all at once, and each fetches its group; a
        // binary search would wait for memory three times, and counting all heads takes four times as many steps.
        let (groups, _) = self.heads.as_chunks::<HEADS_GROUPED>();
        let whole = groups
            .iter()
            .filter(|group| group[HEADS_GROUPED - 1] < head)
            .count();
        let rest = groups
            .get(whole)
            .map_or(0, |group| group.iter().filter(|&&h| h < head).count());
        (whole * HEADS_GROUPED + rest).min(self.len)
    }

    /// The index of `key`, or the index at which it belongs.
    #[inline]
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        match self.prefix.place(key) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len),
            Ordering::Equal => {}
        }
        let head = head_of(key, usize::from(self.prefix.len));
        let at = self.below(head);
        let behind = self.heads[at..self.len].iter();
        let alike = behind.take_while(|&&h| h == head).count();
        let among = &self.entries[at..at + alike];
        let key_of = |entry: &Option<E>| entry.as_ref().expect("below len").key().cmp(key);
        match among.binary_search_by(key_of) {
            Ok(place) => Ok(at + place),
            Err(place) => Err(at + place),
        }
    }

    #[inline]
    fn lower_bound(&self, key: &[u8]) -> usize {
        self.find(key).unwrap_or_else(|at| at)
    }

    fn insert(&mut self, at: usize, entry: E) {
        assert!(
            at <= self.len && self.len < LEAF_MAX,
            "insert at {at} of {}",
            self.len
        );
        let shared = self.prefix.shared_with(entry.key());
        let head = head_of(entry.key(), shared);
        self.entries[self.len] = Some(entry);
        self.entries[at..=self.len].rotate_right(1);
        self.heads.copy_within(at..self.len, at + 1);
        self.heads[at] = head;
        self.len += 1;
        if self.len == 1 || shared < usize::from(self.prefix.len) {
            self.tighten();
        }
    }

    /// Removes the entries of `range`, showing each to `removed`.
    fn remove(&mut self, range: std::ops::Range<usize>, mut removed: impl FnMut(&E)) {
        for entry in &mut self.entries[range.clone()] {
            removed(&entry.take().expect("below len"));
        }
        self.entries[range.start..self.len].rotate_left(range.len());
        self.heads.copy_within(range.end..self.len, range.start);
        let new_len = self.len - range.len();
        self.heads[new_len..self.len].fill(u64::MAX);
        self.len = new_len;
    }

    /// Moves the upper part to a leaf of its own. Full leaves that grow at their end (keys arriving in order)
    /// stay full; others are halved.
    fn split(&mut self, insert_at: usize) -> Box<Self> {
        let cut = if insert_at == self.len {
            self.len - 1
        } else {
            self.len / 2
        };
        let mut upper = Box::new(Leaf::new());
        let count = self.len - cut;
        upper.entries[..count].swap_with_slice(&mut self.entries[cut..cut + count]);
        upper.len = count;
        self.len = cut;
        upper.tighten();
        self.tighten();
        upper
    }
}

impl<E: Keyed> Block for Leaf<E> {
    fn len(&self) -> usize {
        self.len
    }
    fn absorb(&mut self, right: &mut Self) {
        let end = self.len + right.len;
        self.entries[self.len..end].swap_with_slice(&mut right.entries[..right.len]);
        self.len = end;
        right.len = 0;
        self.tighten();
    }
}

/// A child and the lower bound of its keys.
struct Separator<C> {
    key: Box<[u8]>,
    child: Box<C>,
}

/// Separators in order.
struct Node<C> {
    prefix: Prefix,
    heads: Vec<u64>,
    separators: Vec<Separator<C>>,
}

type Inner<E> = Node<Leaf<E>>;
type Root<E> = Node<Inner<E>>;

impl<C> Node<C> {
    fn of(separators: Vec<Separator<C>>) -> Self {
        let mut node = Node {
            prefix: Prefix::new(b""),
            heads: Vec::new(),
            separators,
        };
        node.tighten();
        node
    }

    fn single(child: C) -> Self {
        Node::of(vec![Separator {
            key: Box::default(),
            child: Box::new(child),
        }])
    }

    fn tighten(&mut self) {
        let (first, last) = (
            &self.separators[0].key,
            &self.separators[self.separators.len() - 1].key,
        );
        self.prefix = Prefix::between(first, last);
        let skip = usize::from(self.prefix.len);
        self.heads.clear();
        self.heads
            .extend(self.separators.iter().map(|s| head_of(&s.key, skip)));
    }

    #[inline]
    fn child(&self, at: usize) -> &C {
        &self.separators[at].child
    }

    /// The child that holds `key`, or would hold it.
    #[inline]
    fn route(&self, key: &[u8]) -> usize {
        match self.prefix.place(key) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.heads.len() - 1,
            Ordering::Equal => {}
        }
        let head = head_of(key, usize::from(self.prefix.len));
        let from = self.heads.partition_point(|&h| h < head);
        let alike = self.heads[from..].partition_point(|&h| h == head);
        let among = &self.separators[from..from + alike];
        let past = from + among.partition_point(|separator| *separator.key <= *key);
        past.saturating_sub(1)
    }

    fn insert(&mut self, at: usize, separator: Separator<C>) {
        self.separators.insert(at, separator);
        self.tighten();
    }

    /// Removes child `at`. The separator of the first child stays, because it is the lower bound of the whole node.
    fn remove(&mut self, at: usize) -> Separator<C> {
        if at == 0 {
            let (first, rest) = self.separators.split_at_mut(1);
            std::mem::swap(&mut first[0].child, &mut rest[0].child);
        }
        let removed = self.separators.remove(at.max(1));
        self.tighten();
        removed
    }

    fn split(&mut self, insert_at: usize) -> Box<Self> {
        let len = self.separators.len();
        let cut = if insert_at == len { len - 1 } else { len / 2 };
        let upper = Node::of(self.separators.split_off(cut));
        self.tighten();
        Box::new(upper)
    }
}

impl<C: Block> Node<C> {
    /// Merges child `at` with its right or left neighbour, if it is sparse and the two fit together.
    fn merge_sparse(&mut self, at: usize, max: usize) {
        let len = self.child(at).len();
        if len >= max / SPARSE_DIVISOR {
            return;
        }
        // Three quarters: the next few inserts must not split a merged node again.
        let fits = |other: usize| other + len <= max * 3 / 4;
        let left = if at + 1 < self.separators.len() && fits(self.child(at + 1).len()) {
            at
        } else if at > 0 && fits(self.child(at - 1).len()) {
            at - 1
        } else {
            return;
        };
        let mut right = self.remove(left + 1);
        self.separators[left].child.absorb(&mut right.child);
    }
}

impl<C> Block for Node<C> {
    fn len(&self) -> usize {
        self.separators.len()
    }
    fn absorb(&mut self, right: &mut Self) {
        self.separators.append(&mut right.separators);
        self.tighten();
    }
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
        SortedBlocks {
            root: Node::single(Node::single(Leaf::new())),
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn leaf_at(&self, r: usize, i: usize) -> &Leaf<E> {
        self.root.child(r).child(i)
    }

    #[inline]
    fn leaf_at_mut(&mut self, r: usize, i: usize) -> &mut Leaf<E> {
        &mut self.root.separators[r].child.separators[i].child
    }

    #[inline]
    fn route(&self, key: &[u8]) -> (usize, usize) {
        let r = self.root.route(key);
        (r, self.root.child(r).route(key))
    }

    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&E> {
        let (r, i) = self.route(key);
        let leaf = self.leaf_at(r, i);
        leaf.find(key).ok().map(|at| leaf.entry(at))
    }

    /// `update` gets the entry of `key`. If there is none, it gets `None` and may return the entry to insert.
    #[inline]
    pub fn upsert(&mut self, key: &[u8], update: impl FnOnce(Option<&mut E>) -> Option<E>) {
        let (r, i) = self.route(key);
        let leaf = self.leaf_at_mut(r, i);
        match leaf.find(key) {
            Ok(at) => {
                let replacement = update(leaf.entries[at].as_mut());
                assert!(
                    replacement.is_none(),
                    "an entry that exists is updated in place"
                );
            }
            Err(at) => {
                let Some(entry) = update(None) else { return };
                debug_assert_eq!(entry.key(), key);
                if leaf.len < LEAF_MAX {
                    leaf.insert(at, entry);
                } else {
                    self.insert_splitting(r, i, at, entry);
                }
                self.len += 1;
            }
        }
    }

    #[cold]
    fn insert_splitting(&mut self, r: usize, i: usize, at: usize, entry: E) {
        let inner = &mut self.root.separators[r].child;
        let lower = &mut inner.separators[i].child;
        let mut upper = lower.split(at);
        let cut = lower.len;
        if at <= cut {
            lower.insert(at, entry);
        } else {
            upper.insert(at - cut, entry);
        }
        let key = upper.entry(0).key().into();
        inner.insert(i + 1, Separator { key, child: upper });
        if inner.len() > INNER_MAX {
            let upper = inner.split(i + 2);
            let key = upper.separators[0].key.clone();
            self.root.insert(r + 1, Separator { key, child: upper });
        }
    }

    /// `keep` may change the entry of `key`. If it returns false, the entry is removed.
    pub fn update_or_remove(&mut self, key: &[u8], keep: impl FnOnce(&mut E) -> bool) {
        let (r, i) = self.route(key);
        let leaf = self.leaf_at_mut(r, i);
        let Ok(at) = leaf.find(key) else { return };
        if !keep(leaf.entries[at].as_mut().expect("found")) {
            leaf.remove(at..at + 1, |_| ());
            let is_sparse = leaf.len < LEAF_MAX / SPARSE_DIVISOR;
            self.len -= 1;
            if is_sparse {
                self.tidy(r, i);
            }
        }
    }

    /// Removes the leaf if it is empty and not the only one, and merges it if it is sparse. Then does the same one
    /// level up.
    fn tidy(&mut self, r: usize, i: usize) {
        let inner = &mut self.root.separators[r].child;
        if inner.child(i).len > 0 {
            inner.merge_sparse(i, LEAF_MAX);
        } else if inner.len() > 1 {
            inner.remove(i);
        } else if self.root.len() > 1 {
            self.root.remove(r);
            if r == 0 {
                // The next node is the first now and takes keys from the very beginning. Its first separator must
                // cover them, or these keys would lie below it.
                let first = &mut self.root.separators[0];
                first.child.separators[0].key = first.key.clone();
                first.child.tighten();
            }
            return;
        }
        self.root.merge_sparse(r, INNER_MAX);
    }

    /// Removes the entries of `[begin, end)`, showing each to `removed`.
    pub fn remove_range(&mut self, begin: &[u8], end: &[u8], mut removed: impl FnMut(&E)) {
        if begin >= end {
            return;
        }
        while let Some((r, i, low)) = self.seek(begin) {
            let leaf = self.leaf_at_mut(r, i);
            let high = leaf.lower_bound(end);
            if low >= high {
                return;
            }
            let goes_on = high == leaf.len;
            leaf.remove(low..high, &mut removed);
            self.len -= high - low;
            self.tidy(r, i);
            if !goes_on {
                return;
            }
        }
    }

    /// The leaf behind the one at (r, i).
    fn next_leaf(&self, r: usize, i: usize) -> Option<(usize, usize)> {
        if i + 1 < self.root.child(r).len() {
            Some((r, i + 1))
        } else {
            (r + 1 < self.root.len()).then_some((r + 1, 0))
        }
    }

    fn previous_leaf(&self, r: usize, i: usize) -> Option<(usize, usize)> {
        if i > 0 {
            return Some((r, i - 1));
        }
        let r = r.checked_sub(1)?;
        Some((r, self.root.child(r).len() - 1))
    }

    /// Place of the first entry at or after `key`.
    fn seek(&self, key: &[u8]) -> Option<(usize, usize, usize)> {
        let (mut r, mut i) = self.route(key);
        let mut at = self.leaf_at(r, i).lower_bound(key);
        // Only the leaf that the key routes to can end before the key. Later leaves are not empty.
        while at == self.leaf_at(r, i).len {
            (r, i) = self.next_leaf(r, i)?;
            at = 0;
        }
        Some((r, i, at))
    }

    /// Entries of `[begin, end)` in order, or in reverse order.
    pub fn range<'a>(&'a self, begin: &'a [u8], end: &'a [u8], reverse: bool) -> Range<'a, E> {
        let mut range = Range {
            map: self,
            begin,
            end,
            reverse,
            r: 0,
            i: 0,
            run: [].iter(),
            last: begin >= end,
        };
        if !range.last {
            // Backwards the walk starts at the leaf that `end` routes to: the entries below `end` are in it or before
            // it.
            (range.r, range.i) = self.route(if reverse { end } else { begin });
            range.load();
        }
        range
    }

    /// Changes the entries of `[begin, end)` in place; their keys must stay.
    pub fn for_each_mut(&mut self, begin: &[u8], end: &[u8], mut change: impl FnMut(&mut E)) {
        if begin >= end {
            return;
        }
        let mut place = self.seek(begin);
        while let Some((r, i, low)) = place {
            let leaf = self.leaf_at_mut(r, i);
            let high = leaf.lower_bound(end).max(low);
            let goes_on = high == leaf.len;
            leaf.entries[low..high]
                .iter_mut()
                .flatten()
                .for_each(&mut change);
            place = if goes_on {
                self.next_leaf(r, i).map(|(r, i)| (r, i, 0))
            } else {
                None
            };
        }
    }

    /// Asserts the promises of the module. For tests: walks everything.
    pub fn check(&self) {
        let mut previous: Option<&[u8]> = None;
        let mut count = 0;
        let leaves = self
            .root
            .separators
            .iter()
            .map(|s| s.child.len())
            .sum::<usize>();
        assert_eq!(self.root.heads.len(), self.root.len());
        for inner in &self.root.separators {
            assert!(inner.child.len() > 0 && inner.child.heads.len() == inner.child.len());
            assert!(inner.key <= inner.child.separators[0].key);
            for Separator {
                key: lower,
                child: leaf,
            } in &inner.child.separators
            {
                assert!(leaf.len > 0 || leaves == 1, "an empty leaf among {leaves}");
                assert!(leaf.entries[leaf.len..].iter().all(Option::is_none));
                assert!(leaf.heads[leaf.len..].iter().all(|&head| head == u64::MAX));
                for (entry, &head) in leaf.entries.iter().flatten().zip(&leaf.heads) {
                    let key = entry.key();
                    assert!(key.starts_with(leaf.prefix.as_slice()) && key >= &lower[..]);
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
    /// The rest of the current leaf.
    run: std::slice::Iter<'a, Option<E>>,
    /// True if the current leaf holds the far end of the range.
    last: bool,
}

impl<'a, E: Keyed> Range<'a, E> {
    /// Takes the part of the current leaf that is inside the range.
    fn load(&mut self) {
        let leaf = self.map.leaf_at(self.r, self.i);
        let low = leaf.lower_bound(self.begin);
        let high = leaf.lower_bound(self.end).max(low);
        self.last = if self.reverse {
            low > 0
        } else {
            high < leaf.len
        };
        self.run = leaf.entries[low..high].iter();
    }

    /// Goes on to the next leaf; false at the end of the range.
    fn step(&mut self) -> bool {
        if self.last {
            return false;
        }
        let (map, r, i) = (self.map, self.r, self.i);
        match if self.reverse {
            map.previous_leaf(r, i)
        } else {
            map.next_leaf(r, i)
        } {
            Some(place) => {
                (self.r, self.i) = place;
                self.load();
            }
            None => self.last = true,
        }
        true
    }
}

impl<'a, E: Keyed> Iterator for Range<'a, E> {
    type Item = &'a E;

    #[inline]
    fn next(&mut self) -> Option<&'a E> {
        loop {
            let entry = if self.reverse {
                self.run.next_back()
            } else {
                self.run.next()
            };
            if let Some(entry) = entry {
                return entry.as_ref();
            }
            if !self.step() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
