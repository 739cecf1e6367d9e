//! Nodes of a B-tree: what they hold, and how they lie in their bytes.
//!
//! ```text
//!   leaf:    lower fence | upper fence | entry …
//!   inner:   lower fence | upper fence | child 8 | child 8, separator | child 8, separator …
//!   root:    root node 8, mark 8 | settings                its level is one above that of the root node
//! ```
//!
//! A separator is the lower fence of the child that it stands with. An upper fence is 1 and the key, or 0 if there is
//! no upper bound. Fences do not count for the size of a node: room for two of the longest is always kept, so a fence
//! can be moved in a full node.

use crate::error::{Error, Result};
use crate::page::{
    Kind, Mark, Page, PageWriter, RECORD_BYTES, page_bytes, put_numbers, take, take_numbers,
    take_pointer,
};
use crate::value::{Entry, Limits, Stored, entry_bytes, is_entry, is_inline, key_of, write_inline};
use bytes::Bytes;
use plinth_farm_memory::{Class, Pointer};

const FENCES: usize = 2;
const CHILD_BYTES: usize = 8;
/// An inner node holds at least so many of the longest separators.
const FANOUT_MIN: usize = 4;
/// No tree is higher: each inner node that splits leaves two children or more.
pub const LEVELS_MAX: u8 = 64;

/// How a tree is built. Chosen when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Bytes of a leaf; made up to the size of an object.
    pub leaf_bytes: usize,
    /// Bytes of an inner node; made up to the size of an object.
    pub inner_bytes: usize,
    pub key_bytes_max: usize,
    /// Longer values lie in objects of their own.
    pub inline_bytes_max: usize,
    /// Most entries of a leaf. 1: a read or an update of a key is one of an object (§5.1 has YCSB so).
    pub leaf_entries_max: usize,
    /// True: nodes lie on any machine. False: on the machine of the root object, if there is room.
    pub is_spread: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            leaf_bytes: 4000,
            inner_bytes: 4000,
            key_bytes_max: 256,
            inline_bytes_max: 512,
            leaf_entries_max: usize::from(u16::MAX) - FENCES,
            is_spread: false,
        }
    }
}

impl Settings {
    const RECORD_BYTES: usize = 21;

    pub(super) fn limits(&self) -> Limits {
        Limits {
            key_bytes_max: self.key_bytes_max,
            inline_bytes_max: self.inline_bytes_max,
        }
    }

    /// What is left of a node for anything but fences.
    fn room(&self, bytes: usize) -> usize {
        let fences = page_bytes(FENCES, 1 + 2 * self.key_bytes_max);
        bytes.saturating_sub(fences)
    }

    pub(super) fn leaf_room(&self) -> usize {
        self.room(self.leaf_bytes)
    }

    pub(super) fn inner_room(&self) -> usize {
        self.room(self.inner_bytes)
    }

    /// The same, with nodes as large as the objects in which they lie.
    pub(super) fn checked(mut self) -> Result<Settings> {
        for bytes in [&mut self.leaf_bytes, &mut self.inner_bytes] {
            let Some(class) = Class::of(*bytes) else {
                return Err(Error::Settings("a node is larger than an object may be"));
            };
            *bytes = class.payload_bytes();
        }
        self.leaf_entries_max = self
            .leaf_entries_max
            .min(usize::from(u16::MAX) - FENCES - 1);
        if self.leaf_entries_max == 0 {
            return Err(Error::Settings("a leaf without entries"));
        }
        let entry = RECORD_BYTES + self.limits().entry_bytes_max();
        let leaf_entries = self.leaf_entries_max.min(2);
        if self.leaf_room() < leaf_entries * entry {
            return Err(Error::Settings(
                "a leaf has no room for its fences and two of the longest entries",
            ));
        }
        let child = RECORD_BYTES + CHILD_BYTES + self.key_bytes_max;
        if self.inner_room() < FANOUT_MIN * child {
            return Err(Error::Settings(
                "an inner node has no room for its fences and four of the longest keys",
            ));
        }
        Ok(self)
    }

    fn pack(&self) -> [u8; Self::RECORD_BYTES] {
        let numbers = [
            self.leaf_bytes,
            self.inner_bytes,
            self.key_bytes_max,
            self.inline_bytes_max,
            self.leaf_entries_max,
        ];
        let mut packed = [0; Self::RECORD_BYTES];
        put_numbers(&mut packed, &numbers);
        packed[Self::RECORD_BYTES - 1] = u8::from(self.is_spread);
        packed
    }

    fn unpack(bytes: &[u8]) -> Option<Settings> {
        let (numbers, rest) = take_numbers(bytes)?;
        let ([is_spread], rest) = take::<1>(rest)?;
        let [
            leaf_bytes,
            inner_bytes,
            key_bytes_max,
            inline_bytes_max,
            leaf_entries_max,
        ] = numbers;
        let settings = Settings {
            leaf_bytes,
            inner_bytes,
            key_bytes_max,
            inline_bytes_max,
            leaf_entries_max,
            is_spread: is_spread == 1,
        };
        let is_sound = settings.checked() == Ok(settings);
        (rest.is_empty() && is_spread <= 1 && is_sound).then_some(settings)
    }
}

/// Which leaf is looked for.
#[derive(Clone, Copy, Debug)]
pub enum Seek<'a> {
    /// The one that the key is in, or would be in.
    At(&'a [u8]),
    /// The one with the last keys below this one, which is not empty.
    Before(&'a [u8]),
    Last,
}

/// The keys of a node: from `lower`, below `upper`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fences {
    pub lower: Bytes,
    pub upper: Option<Bytes>,
}

fn covers(lower: &[u8], upper: Option<&[u8]>, seek: Seek<'_>) -> bool {
    match seek {
        Seek::At(key) => lower <= key && upper.is_none_or(|upper| key < upper),
        Seek::Before(key) => lower < key && upper.is_none_or(|upper| key <= upper),
        Seek::Last => upper.is_none(),
    }
}

impl Fences {
    pub fn covers(&self, seek: Seek<'_>) -> bool {
        covers(&self.lower, self.upper.as_deref(), seek)
    }

    fn write(&self, writer: &mut PageWriter) {
        writer.record(&[&self.lower]);
        match &self.upper {
            Some(upper) => writer.record(&[&[1], upper]),
            None => writer.record(&[&[0]]),
        }
    }

    fn read(page: &Page) -> Option<Fences> {
        let upper = page.record(1)?;
        let upper = match upper.first()? {
            1 => Some(page.part(1, 1..upper.len())?),
            0 if upper.len() == 1 => None,
            _ => return None,
        };
        let lower = page.whole(0)?;
        Some(Fences { lower, upper })
    }

    fn bytes(&self) -> usize {
        self.lower.len() + 1 + self.upper.as_ref().map_or(0, Bytes::len)
    }
}

/// An inner node. One with a single child may occur, except at the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inner {
    /// Steps to the leaves, from 1.
    pub level: u8,
    pub fences: Fences,
    pub children: Vec<Pointer>,
    /// One less than children: `separators[i]` is the lower fence of `children[i + 1]`.
    pub separators: Vec<Bytes>,
}

impl Inner {
    pub fn parse(bytes: Bytes, mark: Mark) -> Option<Inner> {
        let page = Page::parse(bytes, Kind::Inner, mark)?;
        let count = page.count().checked_sub(FENCES)?;
        if count == 0 || page.level() == 0 || page.level() > LEVELS_MAX {
            return None;
        }
        let (mut children, mut separators) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for i in FENCES..FENCES + count {
            let (child, separator) = take_pointer(page.record(i)?)?;
            children.push(child);
            if i > FENCES {
                separators.push(page.part(i, CHILD_BYTES..CHILD_BYTES + separator.len())?);
            }
        }
        Some(Inner {
            level: page.level(),
            fences: Fences::read(&page)?,
            children,
            separators,
        })
    }

    pub fn encode(&self, mark: Mark) -> Bytes {
        let records = FENCES + self.children.len();
        let bytes = page_bytes(FENCES, self.fences.bytes()) + self.content_bytes();
        let mut writer = PageWriter::new(Kind::Inner, self.level, mark, records, bytes);
        self.fences.write(&mut writer);
        for (i, child) in self.children.iter().enumerate() {
            let separator = i.checked_sub(1).map_or(&[][..], |i| &self.separators[i]);
            writer.record(&[&child.bits().to_le_bytes(), separator]);
        }
        writer.finish()
    }

    /// What counts for its size.
    pub fn content_bytes(&self) -> usize {
        let separators: usize = self.separators.iter().map(Bytes::len).sum();
        self.children.len() * (RECORD_BYTES + CHILD_BYTES) + separators
    }

    /// Bytes that it takes in memory, about.
    pub fn footprint_bytes(&self) -> usize {
        self.content_bytes() + self.children.len() * size_of::<Bytes>() + size_of::<Inner>()
    }

    /// Which child the leaf is below, if it is below this node.
    pub fn child(&self, seek: Seek<'_>) -> usize {
        match seek {
            Seek::At(key) => self.separators.partition_point(|s| &s[..] <= key),
            Seek::Before(key) => self.separators.partition_point(|s| &s[..] < key),
            Seek::Last => self.separators.len(),
        }
    }

    /// The fences that child `i` must have.
    pub fn child_fences(&self, i: usize) -> Fences {
        let lower = match i.checked_sub(1) {
            Some(i) => self.separators[i].clone(),
            None => self.fences.lower.clone(),
        };
        let upper = self.separators.get(i).cloned();
        Fences {
            lower,
            upper: upper.or_else(|| self.fences.upper.clone()),
        }
    }

    /// Keeps about half of the bytes, and gives the rest as the node behind it.
    pub fn split(&mut self) -> Inner {
        let sizes = self.separators.iter().map(Bytes::len);
        let kept = middle(
            std::iter::once(0)
                .chain(sizes)
                .map(|s| s + RECORD_BYTES + CHILD_BYTES),
        );
        let separators = self.separators.split_off(kept);
        let middle = self.separators.pop().expect("one before the child");
        let upper = self.fences.upper.replace(middle.clone());
        Inner {
            level: self.level,
            fences: Fences {
                lower: middle,
                upper,
            },
            children: self.children.split_off(kept),
            separators,
        }
    }
}

/// A leaf as it lies in its bytes, for reading.
#[derive(Clone, Debug)]
pub struct LeafPage(Page);

impl LeafPage {
    pub fn parse(bytes: Bytes, mark: Mark) -> Option<LeafPage> {
        let page = Page::parse(bytes, Kind::Leaf, mark)?;
        (page.count() >= FENCES && page.level() == 0).then_some(LeafPage(page))
    }

    /// False also if the fences are damaged.
    pub fn covers(&self, seek: Seek<'_>) -> bool {
        let (Some(lower), Some(upper)) = (self.0.record(0), self.0.record(1)) else {
            return false;
        };
        match upper {
            [0] => covers(lower, None, seek),
            [1, upper @ ..] => covers(lower, Some(upper), seek),
            _ => false,
        }
    }

    pub fn fences(&self) -> Option<Fences> {
        Fences::read(&self.0)
    }

    pub fn len(&self) -> usize {
        self.0.count() - FENCES
    }

    pub fn key(&self, i: usize) -> Option<&[u8]> {
        key_of(self.0.record(FENCES + i)?)
    }

    pub fn entry(&self, i: usize) -> Option<Entry> {
        Entry::read(&self.0, FENCES + i)
    }

    pub fn stored(&self, i: usize) -> Option<Stored> {
        Entry::read_stored(&self.0, FENCES + i)
    }

    /// Where the key is, or would be. None if the leaf is damaged.
    pub fn search(&self, key: &[u8]) -> Option<std::result::Result<usize, usize>> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle)?.cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(Ok(middle)),
            }
        }
        Some(Err(low))
    }

    /// The leaf with one entry set, put in or removed: what [`Leaf::encode`] gives after the same change, for part of
    /// the work. `None` if that is too large or empty, or if the leaf is damaged; [`LeafPage::to_leaf`] tells.
    pub fn changed(&self, change: &Splice<'_>, mark: Mark, settings: &Settings) -> Option<Bytes> {
        Fences::read(&self.0)?;
        let (at, gone, new) = match *change {
            Splice::Set(i, entry) => (i, 1, Some(entry)),
            Splice::Insert(i, entry) => (i, 0, Some(entry)),
            Splice::Remove(i) => (i, 1, None),
        };
        let mut content = new.map_or(0, |entry| RECORD_BYTES + entry.bytes());
        for i in 0..self.len() {
            let record = self.0.record(FENCES + i)?;
            if !is_entry(record) {
                return None;
            }
            if i < at || i >= at + gone {
                content += RECORD_BYTES + record.len();
            }
        }
        let entries = (self.len() + usize::from(new.is_some())).checked_sub(gone)?;
        let fits = content <= settings.leaf_room() && entries <= settings.leaf_entries_max;
        if !fits || entries == 0 || at + gone > self.len() {
            return None;
        }
        let fences = self.0.record(0)?.len() + self.0.record(1)?.len();
        let bytes = page_bytes(FENCES, fences) + content;
        let mut writer = PageWriter::new(Kind::Leaf, 0, mark, FENCES + entries, bytes);
        for i in 0..FENCES + at {
            writer.record(&[self.0.record(i)?]);
        }
        if let Some(entry) = new {
            entry.write(&mut writer);
        }
        for i in FENCES + at + gone..self.0.count() {
            writer.record(&[self.0.record(i)?]);
        }
        Some(writer.finish())
    }

    /// How many of the rows can be [`merged`](LeafPage::merged) into this leaf: those of its keys, each behind the one
    /// before, with values that lie beside their keys.
    pub fn mergeable(&self, rows: &[(&[u8], &[u8])], settings: &Settings) -> usize {
        let is_next = |i: usize| {
            let (key, value) = rows[i];
            let is_behind = i == 0 || rows[i - 1].0 < key;
            let is_inline = value.len() <= settings.inline_bytes_max;
            is_behind && is_inline && self.covers(Seek::At(key))
        };
        (0..rows.len()).take_while(|i| is_next(*i)).count()
    }

    /// The leaf with all these rows set, which are [`mergeable`](LeafPage::mergeable): what [`Leaf::encode`] gives
    /// after the same changes, for part of the work. `None` if that is too large, if a value is replaced that has an
    /// object of its own, or if the leaf is damaged; [`LeafPage::to_leaf`] tells.
    pub fn merged(
        &self,
        rows: &[(&[u8], &[u8])],
        mark: Mark,
        settings: &Settings,
    ) -> Option<Bytes> {
        Fences::read(&self.0)?;
        let mut merged = Vec::with_capacity(self.len() + rows.len());
        let mut rows = rows.iter().copied().peekable();
        for i in 0..self.len() {
            let record = self.0.record(FENCES + i)?;
            let key = key_of(record).filter(|_| is_entry(record))?;
            while let Some((new, value)) = rows.next_if(|(new, _)| *new < key) {
                merged.push(Merged::New(new, value));
            }
            match rows.next_if(|(new, _)| *new == key) {
                Some(_) if !is_inline(record) => return None,
                Some((new, value)) => merged.push(Merged::New(new, value)),
                None => merged.push(Merged::Old(record)),
            }
        }
        merged.extend(rows.map(|(new, value)| Merged::New(new, value)));
        let content = merged.iter().map(|one| RECORD_BYTES + one.bytes());
        let content: usize = content.sum();
        if content > settings.leaf_room() || merged.len() > settings.leaf_entries_max {
            return None;
        }
        let fences = self.0.record(0)?.len() + self.0.record(1)?.len();
        let bytes = page_bytes(FENCES, fences) + content;
        let mut writer = PageWriter::new(Kind::Leaf, 0, mark, FENCES + merged.len(), bytes);
        for fence in 0..FENCES {
            writer.record(&[self.0.record(fence)?]);
        }
        for one in merged {
            match one {
                Merged::Old(record) => writer.record(&[record]),
                Merged::New(key, value) => write_inline(key, value, &mut writer),
            }
        }
        Some(writer.finish())
    }

    pub fn to_leaf(&self) -> Option<Leaf> {
        let entries: Option<Vec<Entry>> = (0..self.len()).map(|i| self.entry(i)).collect();
        Some(Leaf {
            fences: self.fences()?,
            entries: entries?,
        })
    }
}

/// An entry of a leaf into which rows are merged.
enum Merged<'a> {
    /// Its record.
    Old(&'a [u8]),
    New(&'a [u8], &'a [u8]),
}

impl Merged<'_> {
    /// Of its record.
    fn bytes(&self) -> usize {
        match self {
            Merged::Old(record) => record.len(),
            Merged::New(key, value) => entry_bytes(key.len(), value.len()),
        }
    }
}

/// A change of one entry of a leaf, by its index.
#[derive(Clone, Copy, Debug)]
pub enum Splice<'a> {
    Set(usize, &'a Entry),
    Insert(usize, &'a Entry),
    Remove(usize),
}

/// A leaf to be changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaf {
    pub fences: Fences,
    pub entries: Vec<Entry>,
}

impl Leaf {
    pub fn encode(&self, mark: Mark) -> Bytes {
        let records = FENCES + self.entries.len();
        let bytes = page_bytes(FENCES, self.fences.bytes()) + self.content_bytes();
        let mut writer = PageWriter::new(Kind::Leaf, 0, mark, records, bytes);
        self.fences.write(&mut writer);
        for entry in &self.entries {
            entry.write(&mut writer);
        }
        writer.finish()
    }

    /// What counts for its size.
    pub fn content_bytes(&self) -> usize {
        let entries = self.entries.iter().map(|e| RECORD_BYTES + e.bytes());
        entries.sum()
    }

    pub fn fits(&self, settings: &Settings) -> bool {
        self.content_bytes() <= settings.leaf_room()
            && self.entries.len() <= settings.leaf_entries_max
    }

    /// Keeps about half of the bytes, and gives the rest as the leaf behind it. If `appended`, the last entry alone
    /// goes there, so that leaves are full behind one who writes keys in their order.
    pub fn split(&mut self, appended: bool) -> Leaf {
        let kept = if appended {
            self.entries.len() - 1
        } else {
            middle(self.entries.iter().map(|e| RECORD_BYTES + e.bytes()))
        };
        let entries = self.entries.split_off(kept);
        let fence = separator(&self.entries[kept - 1].key, &entries[0].key);
        let upper = self.fences.upper.replace(fence.clone());
        Leaf {
            fences: Fences {
                lower: fence,
                upper,
            },
            entries,
        }
    }
}

/// How many of two or more items to keep, so that the larger half is as small as can be.
fn middle(sizes: impl Iterator<Item = usize> + Clone) -> usize {
    let all: usize = sizes.clone().sum();
    let (mut kept, mut least) = (1, usize::MAX);
    let mut before = 0;
    for (i, size) in sizes.enumerate() {
        let larger = before.max(all - before);
        if i > 0 && larger < least {
            (kept, least) = (i, larger);
        }
        before += size;
    }
    kept
}

/// The shortest key above `below` and not above `key`.
fn separator(below: &[u8], key: &Bytes) -> Bytes {
    let common = below.iter().zip(key).take_while(|(a, b)| a == b).count();
    key.slice(..key.len().min(common + 1))
}

/// The root object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    pub node: Pointer,
    /// Of the root node.
    pub level: u8,
    /// Of all other objects of the tree.
    pub mark: Mark,
    pub settings: Settings,
}

/// Bytes of the root object.
pub const ROOT_BYTES: usize = page_bytes(2, CHILD_BYTES + Mark::BYTES + Settings::RECORD_BYTES);

impl Root {
    /// The root object that lies at `at`.
    pub fn parse(bytes: Bytes, at: Pointer) -> Option<Root> {
        let page = Page::parse(bytes, Kind::TreeRoot, Mark::of_root(at))?;
        let (node, rest) = take_pointer(page.record(0)?)?;
        let (mark, rest) = Mark::take(rest)?;
        let settings = Settings::unpack(page.record(1)?)?;
        let level = page
            .level()
            .checked_sub(1)
            .filter(|level| *level <= LEVELS_MAX)?;
        rest.is_empty().then_some(Root {
            node,
            level,
            mark,
            settings,
        })
    }

    pub fn encode(&self, at: Pointer) -> Bytes {
        let mark = Mark::of_root(at);
        let mut writer = PageWriter::new(Kind::TreeRoot, self.level + 1, mark, 2, ROOT_BYTES);
        writer.record(&[&self.node.bits().to_le_bytes(), &self.mark.pack()]);
        writer.record(&[&self.settings.pack()]);
        writer.finish()
    }

    /// As a node above the root node.
    pub fn as_inner(&self) -> Inner {
        Inner {
            level: self.level + 1,
            fences: Fences::default(),
            children: vec![self.node],
            separators: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> Settings {
        let settings = Settings {
            leaf_bytes: 300,
            inner_bytes: 300,
            key_bytes_max: 12,
            inline_bytes_max: 20,
            leaf_entries_max: 9,
            ..Settings::default()
        };
        settings.checked().expect("they can work")
    }

    fn entry(key: u8, value: Option<usize>) -> Entry {
        let stored = match value {
            Some(bytes) => Stored::Inline(vec![key; bytes].into()),
            None => Stored::Long(Pointer::from_bits(1 << 40 | 64).expect("a pointer")),
        };
        let key = Bytes::copy_from_slice(&[key, key]);
        Entry { key, stored }
    }

    fn leaf(keys: &[(u8, Option<usize>)], upper: bool) -> Leaf {
        let mut entries: Vec<Entry> = keys
            .iter()
            .map(|(key, value)| entry(*key, *value))
            .collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries.dedup_by(|a, b| a.key == b.key);
        Leaf {
            fences: Fences {
                lower: Bytes::new(),
                upper: upper.then_some(Bytes::from_static(b"\xff\xff")),
            },
            entries,
        }
    }

    /// What the leaf becomes by way of its entries.
    fn by_entries(leaf: &Leaf, change: &Splice<'_>) -> Leaf {
        let mut leaf = leaf.clone();
        match change {
            Splice::Set(i, entry) => leaf.entries[*i] = (*entry).clone(),
            Splice::Insert(i, entry) => leaf.entries.insert(*i, (*entry).clone()),
            Splice::Remove(i) => {
                leaf.entries.remove(*i);
            }
        }
        leaf
    }

    proptest! {
        #[test]
        fn a_leaf_changed_in_its_bytes_is_the_leaf_changed_by_its_entries(
            keys in prop::collection::vec((0..200u8, prop::option::of(0..30usize)), 1..10),
            upper: bool,
            new in (0..200u8, prop::option::of(0..30usize)),
            removes: bool,
            damage in prop::option::of((0..300usize, any::<u8>())),
            fence in 0..8u8,
        ) {
            let (settings, mark) = (settings(), Mark::random());
            let leaf = leaf(&keys, upper);
            let mut bytes = leaf.encode(mark).to_vec();
            if let Some((at, with)) = damage && at >= 16 && at < bytes.len() {
                bytes[at] = with;
            }
            if fence == 7 {
                // The lower fence is empty, so the upper one is what is behind the table.
                bytes[page_bytes(FENCES + leaf.entries.len(), 0)] = fence;
            }
            let Some(page) = LeafPage::parse(bytes.into(), mark) else {
                return Ok(());
            };
            let new = entry(new.0, new.1);
            let change = match page.search(&new.key) {
                Some(Ok(i)) if removes => Splice::Remove(i),
                Some(Ok(i)) => Splice::Set(i, &new),
                Some(Err(i)) => Splice::Insert(i, &new),
                None => return Ok(()),
            };
            let changed = page.changed(&change, mark, &settings);
            let expected = page.to_leaf().map(|leaf| by_entries(&leaf, &change));
            let expected = expected.filter(|leaf| leaf.fits(&settings) && !leaf.entries.is_empty());
            prop_assert_eq!(changed, expected.map(|leaf| leaf.encode(mark)));
        }

        #[test]
        fn rows_merged_into_a_leaf_make_it_the_leaf_with_its_entries_set(
            keys in prop::collection::vec((0..40u8, prop::option::of(0..30usize)), 1..10),
            upper: bool,
            rows in prop::collection::vec((0..40u8, 0..50usize), 0..8),
            is_sorted: bool,
            damage in prop::option::of((0..300usize, any::<u8>())),
        ) {
            let (settings, mark) = (settings(), Mark::random());
            let leaf = leaf(&keys, upper);
            let mut rows: Vec<(Vec<u8>, Vec<u8>)> = rows
                .iter()
                .map(|(key, bytes)| (vec![*key, *key], vec![1; *bytes]))
                .collect();
            if is_sorted {
                rows.sort_by(|a, b| a.0.cmp(&b.0));
            }
            let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(k, v)| (&k[..], &v[..])).collect();
            let bytes = leaf.encode(mark);
            if let Some((at, with)) = damage && at >= 16 && at < bytes.len() {
                let mut bytes = bytes.to_vec();
                bytes[at] = with;
                let Some(page) = LeafPage::parse(bytes.into(), mark) else {
                    return Ok(());
                };
                let (some, _) = rows.split_at(page.mergeable(&rows, &settings));
                let merged = page.merged(some, mark, &settings);
                prop_assert!(merged.is_none() || page.to_leaf().is_some());
                return Ok(());
            }
            let page = LeafPage::parse(bytes, mark).expect("a leaf");
            let (some, rest) = rows.split_at(page.mergeable(&rows, &settings));
            // It ends where it must.
            if let (Some(next), last) = (rest.first(), some.last()) {
                let is_behind = last.is_none_or(|last| last.0 < next.0);
                prop_assert!(!is_behind || next.1.len() > settings.inline_bytes_max);
            }
            let mut expected = leaf.clone();
            let mut replaces_long = false;
            for (key, value) in some {
                let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                let found = expected.entries.binary_search_by(|e| e.key.cmp(&key));
                let entry = Entry { key, stored: Stored::Inline(value) };
                match found {
                    Ok(i) => {
                        replaces_long |= matches!(expected.entries[i].stored, Stored::Long(_));
                        expected.entries[i] = entry;
                    }
                    Err(i) => expected.entries.insert(i, entry),
                }
            }
            let expected = (expected.fits(&settings) && !replaces_long).then_some(expected);
            let merged = page.merged(some, mark, &settings);
            prop_assert_eq!(merged, expected.map(|leaf| leaf.encode(mark)));
        }
    }
}
