//! Sorts the endpoints of a batch. Defines the *head* of a key, which makes most comparisons comparisons of integers.
//!
//! Keys that lie close together share a prefix. What follows a shared prefix is squeezed into 64 bits:
//!
//! ```text
//! | seven bytes, zeros where the key is shorter | how many bytes there are, 8 = eight or more |
//! ```
//!
//! Heads behind the same prefix are ordered as their keys. Only two equal heads that end in 8 do not decide the order;
//! then the bytes after the seven decide it.

use plinth_core::conflict_ranges::Endpoint;

/// Bytes of a key that its head holds.
pub(super) const HEAD_BYTES: usize = 7;
const LONG: u64 = 8;

/// The head of `key` behind its first `skip` bytes. The last of these may be the final zero that is not stored.
#[inline]
pub(super) fn head_of(key: Endpoint<'_>, skip: usize) -> u64 {
    let Some(bytes) = key.bytes.get(skip..) else {
        assert!(
            key.key_len() == skip,
            "a key of {} bytes has no {skip}",
            key.key_len()
        );
        return 0;
    };
    let rest = bytes.len();
    let word = if let Some(chunk) = bytes.first_chunk::<8>() {
        u64::from_be_bytes(*chunk)
    } else if let Some(chunk) = key.bytes.last_chunk::<8>() {
        u64::from_be_bytes(*chunk)
            .checked_shl(64 - 8 * rest as u32)
            .unwrap_or(0)
    } else {
        let mut chunk = [0; 8];
        chunk[..rest].copy_from_slice(bytes);
        u64::from_be_bytes(chunk)
    };
    (word & !0xff) | ((rest + usize::from(key.then_zero)) as u64).min(LONG)
}

/// True if two keys with this head may differ after it.
#[inline]
pub(super) fn is_long(head: u64) -> bool {
    head & 0xff == LONG
}

/// The head of the same key `further` bytes on; `None` if `head` does not hold the whole rest of its key.
#[inline]
pub(super) fn head_further_on(head: u64, further: usize) -> Option<u64> {
    if is_long(head) {
        return None;
    }
    assert!(
        further as u64 <= head & 0xff,
        "head {head:#x} has no {further} bytes"
    );
    Some(((head & !0xff) << (8 * further)) | ((head & 0xff) - further as u64))
}

/// Number of leading bytes that two keys share.
pub(super) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let mut shared = 0;
    for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let x = u64::from_be_bytes(x.try_into().expect("eight bytes"));
        let y = u64::from_be_bytes(y.try_into().expect("eight bytes"));
        if x != y {
            return shared + ((x ^ y).leading_zeros() / 8) as usize;
        }
        shared += 8;
    }
    shared
        + a[shared..]
            .iter()
            .zip(&b[shared..])
            .take_while(|(x, y)| x == y)
            .count()
}

/// An endpoint that is being sorted.
#[derive(Clone, Copy, Default)]
pub(super) struct Point {
    /// Head behind the prefix that the whole batch shares.
    pub(super) head: u64,
    /// Index into the endpoints.
    pub(super) endpoint: u32,
    /// True if its key is greater than that of the point before it, and not equal.
    pub(super) is_new: bool,
}

/// Points that are equal in the bytes compared so far.
struct Tie {
    from: usize,
    to: usize,
    /// Number of bytes in which they are known to agree.
    shared: usize,
}

/// Sorts points by key. Keeps its buffers between batches.
#[derive(Default)]
pub(super) struct Sorter {
    scratch: Vec<Point>,
    starts: Vec<u32>,
}

impl Sorter {
    /// Fills `points` with every endpoint, in key order; returns how many leading bytes all of them share.
    ///
    /// Work is bounded by the bytes of the keys, whatever they are: a tie is sorted again behind the longer
    /// prefix that its members share, which is at least [`HEAD_BYTES`] longer.
    pub(super) fn sort(&mut self, endpoints: &[Endpoint<'_>], points: &mut Vec<Point>) -> usize {
        points.clear();
        points.extend((0..endpoints.len()).map(|i| Point {
            head: 0,
            endpoint: i as u32,
            is_new: true,
        }));
        let shared = shared_by_all(endpoints, points, 0);
        for (point, endpoint) in points.iter_mut().zip(endpoints) {
            point.head = head_of(*endpoint, shared);
        }
        self.sort_by_head(points);
        let mut ties = Vec::new();
        find_ties(points, 0, shared, &mut ties);
        let mut group = Vec::new();
        while let Some(tie) = ties.pop() {
            group.clear();
            group.extend_from_slice(&points[tie.from..tie.to]);
            let shared = shared_by_all(endpoints, &group, tie.shared);
            for point in &mut group {
                point.head = head_of(endpoints[point.endpoint as usize], shared);
            }
            group.sort_unstable_by_key(|point| point.head);
            find_ties(&mut group, tie.from, shared, &mut ties);
            let is_new = points[tie.from].is_new;
            for (point, sorted) in points[tie.from..tie.to].iter_mut().zip(&group) {
                point.endpoint = sorted.endpoint;
                point.is_new = sorted.is_new;
            }
            points[tie.from].is_new = is_new;
        }
        shared
    }

    /// One pass spreads the points over as many buckets as there are points, by the first bits in which they differ.
    /// Points that share a bucket are then sorted by comparison.
    fn sort_by_head(&mut self, points: &mut [Point]) {
        const SMALL: usize = 64;
        let Some(first) = points.first().map(|point| point.head) else {
            return;
        };
        if points.len() < SMALL {
            points.sort_unstable_by_key(|point| point.head);
            return;
        }
        let differing = points
            .iter()
            .fold(0, |bits, point| bits | (point.head ^ first));
        let bucket_bits = (points.len().ilog2() + 1).min(14);
        let shift = (64 - differing.leading_zeros()).saturating_sub(bucket_bits);
        let mask = (1usize << bucket_bits) - 1;
        let bucket_of = |point: &Point| (point.head >> shift) as usize & mask;
        self.starts.clear();
        self.starts.resize(mask + 2, 0);
        for point in &*points {
            self.starts[bucket_of(point) + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        self.scratch.clear();
        self.scratch.resize(points.len(), Point::default());
        for point in &*points {
            let start = &mut self.starts[bucket_of(point)];
            self.scratch[*start as usize] = *point;
            *start += 1;
        }
        points.copy_from_slice(&self.scratch);
        // Each start has moved to the end of its bucket.
        let mut from = 0;
        for &to in &self.starts[..=mask] {
            let to = to as usize;
            if to - from > 1 {
                sort_bucket(&mut points[from..to]);
            }
            from = to;
        }
    }
}

#[inline]
fn sort_bucket(bucket: &mut [Point]) {
    if let [a, b] = bucket {
        if a.head > b.head {
            std::mem::swap(a, b);
        }
        return;
    }
    bucket.sort_unstable_by_key(|point| point.head);
}

/// Number of leading bytes that the endpoints of `points` share; at least `known`.
fn shared_by_all(endpoints: &[Endpoint<'_>], points: &[Point], known: usize) -> usize {
    let Some(first) = points.first() else {
        return 0;
    };
    let first = endpoints[first.endpoint as usize].bytes;
    let mut shared = first.len();
    for point in points {
        let bytes = endpoints[point.endpoint as usize].bytes;
        if bytes.get(known..shared) != first.get(known..shared) {
            shared = known + shared_len(&first[known..shared], &bytes[known..]);
        }
    }
    shared
}

/// Marks equal neighbours. Collects the runs whose heads do not decide whether their keys are equal.
fn find_ties(points: &mut [Point], offset: usize, shared: usize, ties: &mut Vec<Tie>) {
    let mut from = 0;
    for i in 1..=points.len() {
        let head = points[from].head;
        if points.get(i).is_some_and(|point| point.head == head) {
            points[i].is_new = is_long(head);
            continue;
        }
        if i - from > 1 && is_long(head) {
            ties.push(Tie {
                from: offset + from,
                to: offset + i,
                shared: shared + HEAD_BYTES,
            });
        }
        from = i;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xff)];
        (0usize..3, prop::collection::vec(byte, 0..12)).prop_map(|(prefix, tail)| {
            let mut key = b"a common prefix".repeat(prefix);
            key.extend(tail);
            key
        })
    }

    proptest! {
        #[test]
        fn heads_are_ordered_as_keys_behind_the_same_prefix(a in key(), b in key(), zeros in any::<[bool; 2]>()) {
            let (a, b) = (Endpoint { bytes: &a, then_zero: zeros[0] }, Endpoint { bytes: &b, then_zero: zeros[1] });
            for skip in 0..=shared_len(a.bytes, b.bytes) {
                let (x, y) = (head_of(a, skip), head_of(b, skip));
                if x == y && is_long(x) {
                    continue;
                }
                prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            }
        }

        #[test]
        fn a_head_further_on_is_that_of_the_key(key in key(), then_zero in any::<bool>()) {
            let key = Endpoint { bytes: &key, then_zero };
            for skip in 0..=key.key_len() {
                for further in 0..=key.key_len() - skip {
                    if let Some(head) = head_further_on(head_of(key, skip), further) {
                        prop_assert_eq!(head, head_of(key, skip + further));
                    }
                }
            }
        }

        #[test]
        fn points_come_out_in_key_order_with_equal_keys_marked(
            keys in prop::collection::vec((key(), any::<bool>()), 0..300),
        ) {
            let endpoints: Vec<_> =
                keys.iter().map(|(bytes, then_zero)| Endpoint { bytes, then_zero: *then_zero }).collect();
            let mut points = Vec::new();
            Sorter::default().sort(&endpoints, &mut points);
            let mut seen: Vec<_> = points.iter().map(|point| point.endpoint).collect();
            for pair in points.windows(2) {
                let order = endpoints[pair[0].endpoint as usize].cmp(&endpoints[pair[1].endpoint as usize]);
                prop_assert!(order.is_le());
                prop_assert_eq!(pair[1].is_new, order.is_lt());
            }
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..endpoints.len() as u32));
        }
    }
}
