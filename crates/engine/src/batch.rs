//! What one commit writes.
//!
//! A [`WriteBatch`] records sets and range clears in order, later ones winning, in one buffer. An engine
//! applies its [`NetEffect`] instead: disjoint clears in key order, then the sets that survive, in key order, each key once.
//! Trees like their writes sorted, and a key that was set a hundred times is written once.

use std::collections::BinaryHeap;

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    Set(&'a [u8], &'a [u8]),
    ClearRange(&'a [u8], &'a [u8]),
}

#[derive(Clone, Copy)]
struct Span {
    at: usize,
    first_len: u32,
    second_len: u32,
    is_clear: bool,
}

/// Sets and clears in the order in which they take effect.
#[derive(Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl WriteBatch {
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, is_clear: bool, first: &[u8], second: &[u8]) {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("no key or value reaches 4 GiB");
        let span = Span {
            at: self.bytes.len(),
            first_len: len(first),
            second_len: len(second),
            is_clear,
        };
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second);
        self.spans.push(span);
    }

    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        self.push(false, key, value);
    }

    /// Clears `[begin, end)`; nothing if that is empty.
    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) {
        if begin < end {
            self.push(true, begin, end);
        }
    }

    pub fn clear(&mut self, key: &[u8]) {
        let begin = self.bytes.len();
        let len = u32::try_from(key.len()).expect("no key reaches 4 GiB");
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(key);
        self.bytes.push(0);
        self.spans.push(Span {
            at: begin,
            first_len: len,
            second_len: len + 1,
            is_clear: true,
        });
    }

    /// Everything of `other`, behind what is here.
    pub fn append(&mut self, other: &WriteBatch) {
        let moved = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let spans = other.spans.iter().map(|span| Span {
            at: span.at + moved,
            ..*span
        });
        self.spans.extend(spans);
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn parts(&self, span: Span) -> (&[u8], &[u8]) {
        let middle = span.at + span.first_len as usize;
        (
            &self.bytes[span.at..middle],
            &self.bytes[middle..middle + span.second_len as usize],
        )
    }

    pub fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        self.ops_from(0)
    }

    /// From operation number `first` on.
    pub fn ops_from(&self, first: usize) -> impl Iterator<Item = Op<'_>> {
        self.spans[first..].iter().map(|&span| {
            let (first, second) = self.parts(span);
            if span.is_clear {
                Op::ClearRange(first, second)
            } else {
                Op::Set(first, second)
            }
        })
    }

    /// The batch as clears that do not touch each other and sets that survive, both in key order.
    pub fn net_effect(&self) -> NetEffect<'_> {
        let mut sets = Vec::with_capacity(self.spans.len());
        let mut clears = Vec::new();
        for (order, &span) in self.spans.iter().enumerate() {
            let (first, second) = self.parts(span);
            if span.is_clear {
                &mut clears
            } else {
                &mut sets
            }
            .push((first, second, order));
        }
        // Newest first among equal keys, so that one pass keeps the one that counts.
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

/// Removes the sets that a later clear covers. A sweep over keys; the heap's top is the newest clear that may be open.
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
    }
}
