//! The operations of one commit.
//!
//! A [`WriteBatch`] records sets and range clears in order, in chunks that never move; a later operation wins. An
//! engine applies its [`NetEffect`] instead: disjoint clears in key order, then the sets that survive, in key order,
//! each key once. Trees take sorted writes best, and a key that was set a hundred times is written once.

use std::collections::BinaryHeap;

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    Set(&'a [u8], &'a [u8]),
    ClearRange(&'a [u8], &'a [u8]),
}

/// A chunk that has this many bytes or operations takes no more. One buffer for a batch of 100 MB would copy half of
/// it each time that it grows, and would hold up the loop for that long.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_OPS: usize = 16 << 10;

#[derive(Clone, Copy)]
struct Span {
    at: u32,
    first_len: u32,
    second_len: u32,
    is_clear: bool,
}

/// Operations that follow each other.
#[derive(Clone, Default)]
struct Chunk {
    /// Number of operations that come before it.
    ops_before: usize,
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Chunk {
    fn with_room(ops_before: usize, bytes: usize) -> Self {
        Chunk {
            ops_before,
            bytes: Vec::with_capacity(bytes),
            spans: Vec::new(),
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.spans.len() < CHUNK_OPS && self.bytes.len() + bytes <= CHUNK_BYTES
    }

    fn push(&mut self, is_clear: bool, first: &[u8], second: [&[u8]; 2]) {
        let len = |len: usize| u32::try_from(len).expect("no key or value reaches 4 GiB");
        self.spans.push(Span {
            at: len(self.bytes.len()),
            first_len: len(first.len()),
            second_len: len(second[0].len() + second[1].len()),
            is_clear,
        });
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second[0]);
        self.bytes.extend_from_slice(second[1]);
    }

    fn parts(&self, span: Span) -> (&[u8], &[u8]) {
        let (at, first_len) = (span.at as usize, span.first_len as usize);
        self.bytes[at..at + first_len + span.second_len as usize].split_at(first_len)
    }

    /// The operations from its own number `first` on.
    fn ops_from(&self, first: usize) -> impl Iterator<Item = Op<'_>> {
        self.spans[first..].iter().map(|&span| {
            let (first, second) = self.parts(span);
            if span.is_clear {
                Op::ClearRange(first, second)
            } else {
                Op::Set(first, second)
            }
        })
    }
}

/// Sets and clears in the order in which they take effect.
#[derive(Clone, Default)]
pub struct WriteBatch {
    chunks: Vec<Chunk>,
    bytes: usize,
}

impl WriteBatch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operation. `second` is in two parts.
    fn push(&mut self, is_clear: bool, first: &[u8], second: [&[u8]; 2]) {
        let bytes = first.len() + second[0].len() + second[1].len();
        self.bytes += bytes;
        let has_room = self.chunks.last().is_some_and(|last| last.has_room(bytes));
        if !has_room {
            // The first chunk grows: most batches are small.
            let room = match self.chunks.is_empty() {
                true => bytes,
                false => bytes.max(CHUNK_BYTES),
            };
            self.chunks.push(Chunk::with_room(self.len(), room));
        }
        let last = self.chunks.last_mut().expect("made just now");
        last.push(is_clear, first, second);
    }

    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        self.push(false, key, [value, &[]]);
    }

    /// Clears `[begin, end)`; nothing if that is empty.
    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) {
        if begin < end {
            self.push(true, begin, [end, &[]]);
        }
    }

    pub fn clear(&mut self, key: &[u8]) {
        self.push(true, key, [key, &[0]]);
    }

    /// Adds everything of `other` behind what is here.
    pub fn append(&mut self, other: WriteBatch) {
        self.bytes += other.bytes;
        for mut chunk in other.chunks {
            chunk.ops_before = self.len();
            self.chunks.push(chunk);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        let last = self.chunks.last();
        last.map_or(0, |last| last.ops_before + last.spans.len())
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        self.ops_from(0)
    }

    /// The operations from number `first` on.
    pub fn ops_from(&self, first: usize) -> impl Iterator<Item = Op<'_>> {
        let begins_later = |chunk: &Chunk| chunk.ops_before > first;
        let place = self.chunks.partition_point(|chunk| !begins_later(chunk));
        let chunks = &self.chunks[place.saturating_sub(1)..];
        chunks.iter().flat_map(move |chunk| {
            let first = first.saturating_sub(chunk.ops_before);
            chunk.ops_from(first.min(chunk.spans.len()))
        })
    }

    /// The batch as clears that do not touch each other and sets that survive, both in key order.
    pub fn net_effect(&self) -> NetEffect<'_> {
        let mut sets = Vec::with_capacity(self.len());
        let mut clears = Vec::new();
        for (order, op) in self.ops().enumerate() {
            match op {
                Op::Set(key, value) => sets.push((key, value, order)),
                Op::ClearRange(begin, end) => clears.push((begin, end, order)),
            }
        }
        // Newest first among equal keys, so that one pass keeps only the newest.
        let newest_first =
            |a: &(&[u8], &[u8], usize), b: &(&[u8], &[u8], usize)| a.0.cmp(b.0).then(b.2.cmp(&a.2));
        if !sets.is_sorted_by(|a, b| newest_first(a, b).is_lt()) {
            sets.sort_unstable_by(newest_first);
        }
        sets.dedup_by(|later, kept| later.0 == kept.0);
        clears.sort_unstable_by(|a, b| a.0.cmp(b.0));
        drop_cleared(&mut sets, &clears);
        NetEffect {
            clears: union(&clears),
            sets: sets
                .into_iter()
                .map(|(key, value, _)| (key, value))
                .collect(),
        }
    }
}

/// See [`WriteBatch::net_effect`]. Clears come first, then sets.
pub struct NetEffect<'a> {
    /// Disjoint, not adjacent, ascending.
    pub clears: Vec<(&'a [u8], &'a [u8])>,
    /// Ascending, each key once.
    pub sets: Vec<(&'a [u8], &'a [u8])>,
}

/// Removes the sets that a later clear covers, in a sweep over the keys. The heap's top is the newest clear that may
/// be open.
fn drop_cleared(sets: &mut Vec<(&[u8], &[u8], usize)>, clears: &[(&[u8], &[u8], usize)]) {
    if clears.is_empty() {
        return;
    }
    let mut open: BinaryHeap<(usize, &[u8])> = BinaryHeap::new();
    let mut waiting = clears.iter().peekable();
    sets.retain(|&(key, _, order)| {
        while let Some(&(_, end, order)) = waiting.next_if(|clear| clear.0 <= key) {
            open.push((order, end));
        }
        while open.peek().is_some_and(|top| top.1 <= key) {
            open.pop();
        }
        open.peek().is_none_or(|top| top.0 < order)
    });
}

fn union<'a>(clears: &[(&'a [u8], &'a [u8], usize)]) -> Vec<(&'a [u8], &'a [u8])> {
    let mut out: Vec<(&[u8], &[u8])> = Vec::new();
    for &(begin, end, _) in clears {
        match out.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => out.push((begin, end)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn apply_in_order(batch: &WriteBatch, state: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        for op in batch.ops() {
            match op {
                Op::Set(k, v) => {
                    state.insert(k.to_vec(), v.to_vec());
                }
                Op::ClearRange(b, e) => state.retain(|k, _| &k[..] < b || &k[..] >= e),
            }
        }
    }

    proptest! {
        #[test]
        fn the_net_effect_is_the_effect(
            ops in prop::collection::vec((any::<bool>(), 0u8..40, 0u8..40, any::<u8>()), 0..80),
            before in prop::collection::btree_map(0u8..40, any::<u8>(), 0..40),
        ) {
            let mut batch = WriteBatch::new();
            for (is_clear, a, b, value) in ops {
                match (is_clear, a == b) {
                    (false, _) => batch.set(&[a], &[value]),
                    (true, false) => batch.clear_range(&[a], &[b]),
                    (true, true) => batch.clear(&[a]),
                }
            }
            let mut expected: BTreeMap<_, _> = before.into_iter().map(|(k, v)| (vec![k], vec![v])).collect();
            let mut state = expected.clone();
            apply_in_order(&batch, &mut expected);
            let net = batch.net_effect();
            prop_assert!(net.clears.windows(2).all(|w| w[0].1 < w[1].0));
            prop_assert!(net.sets.windows(2).all(|w| w[0].0 < w[1].0));
            for (b, e) in net.clears {
                state.retain(|k, _| &k[..] < b || &k[..] >= e);
            }
            state.extend(net.sets.iter().map(|(k, v)| (k.to_vec(), v.to_vec())));
            prop_assert_eq!(state, expected);
        }

        #[test]
        fn operations_stay_in_order_over_chunks_and_batches(
            lengths in prop::collection::vec(prop_oneof![0usize..40, CHUNK_BYTES / 3..CHUNK_BYTES + 2], 0..12),
            cut in 0usize..12, first in 0usize..14,
        ) {
            let value = |number: usize| vec![number as u8; lengths[number]];
            let cut = cut.min(lengths.len());
            let mut batches = [WriteBatch::new(), WriteBatch::new()];
            for number in 0..lengths.len() {
                batches[usize::from(number >= cut)].set(&[number as u8], &value(number));
            }
            let [mut batch, other] = batches;
            batch.append(other);
            prop_assert_eq!(batch.len(), lengths.len());
            prop_assert_eq!(batch.is_empty(), lengths.is_empty());
            prop_assert_eq!(batch.bytes(), lengths.iter().sum::<usize>() + lengths.len());
            let first = first.min(lengths.len());
            let mut expected = first..lengths.len();
            for op in batch.ops_from(first) {
                let number = expected.next().expect("no more than were put");
                prop_assert!(op == Op::Set(&[number as u8], &value(number)));
            }
            prop_assert_eq!(expected.next(), None);
        }
    }

    #[test]
    fn nothing_moves_when_a_large_batch_grows() {
        let key = |number: u32| number.to_be_bytes();
        let mut batch = WriteBatch::new();
        let mut places = Vec::new();
        for number in 0..200_000 {
            batch.set(&key(number), &[7; 100]);
            let chunks = batch.chunks.len();
            if chunks > 1 && chunks > places.len() + 1 {
                let full = &batch.chunks[chunks - 2];
                places.push((full.bytes.as_ptr(), full.spans.as_ptr()));
            }
        }
        assert!(places.len() > 10);
        let now = |chunk: &Chunk| (chunk.bytes.as_ptr(), chunk.spans.as_ptr());
        let now: Vec<_> = batch.chunks[..places.len()].iter().map(now).collect();
        assert_eq!(places, now);
    }
}
