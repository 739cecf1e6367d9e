//! Which keys the operations of a commit change, in blocks of them; and what the last commits have changed, which the
//! next record says once more.

use super::lost::{class_end, coarsen, kept_twice};
use crate::KEPT_TWICE;
use crate::batch::WriteBatch;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::mutation::iter_packed;
use plinth_core::{MutationBatch, MutationKind, MutationRef};
use std::collections::VecDeque;

/// A block of operations has about this many bytes.
pub(super) const BLOCK_BYTES: usize = 8 << 10;
/// Of a large commit larger ones, so that there are no more than about this many.
const BLOCKS_MAX: usize = 1 << 10;
/// Ranges that the directory has of a block, at most.
const RANGES_A_BLOCK: usize = 8;
/// A record says once more what was changed by those that begin in this many bytes before it: damage of a whole
/// sector may take several of them.
const SAID_AGAIN_BYTES: u64 = 8 << 10;
/// Ranges that are said once more, at most.
const RANGES_AGAIN: usize = 64;

/// A run of operations: their bytes, and ranges that have all their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub len: usize,
    pub ranges: Vec<KeyRange>,
}

fn keys_of(mutation: &MutationRef<'_>) -> KeyRange {
    match mutation.kind {
        MutationKind::ClearRange => {
            let [begin, end] = [mutation.first, mutation.second].map(Bytes::copy_from_slice);
            KeyRange { begin, end }
        }
        _ => KeyRange::single(mutation.first),
    }
}

/// Cuts packed operations, which were checked, into runs of keys that ascend and are of one kind.
pub(super) fn runs(packed: &[u8]) -> Vec<Run> {
    let bytes_max = BLOCK_BYTES.max(packed.len() / BLOCKS_MAX);
    let mut runs: Vec<Run> = Vec::new();
    let (mut from, mut last): (usize, &[u8]) = (0, b"");
    let mut ranges: Vec<KeyRange> = Vec::new();
    let mut close = |ranges: &mut Vec<KeyRange>, len| {
        coarsen(ranges, RANGES_A_BLOCK);
        let ranges = std::mem::take(ranges);
        runs.push(Run { len, ranges });
    };
    let mut at = 0;
    for (mutation, end) in iter_packed(packed) {
        let is_other = mutation.first < last || class_end(mutation.first) != class_end(last);
        if at > from && (is_other || at - from >= bytes_max) {
            close(&mut ranges, at - from);
            from = at;
        }
        ranges.push(keys_of(&mutation));
        (last, at) = (mutation.first, end);
    }
    if at > from {
        close(&mut ranges, at - from);
    }
    runs
}

/// What operations do to the rows that are kept twice.
pub(super) fn own_part<'a>(operations: impl Iterator<Item = MutationRef<'a>>) -> WriteBatch {
    let mut own = WriteBatch::new();
    for mutation in operations {
        match mutation.kind {
            MutationKind::ClearRange => {
                if let Some((begin, end)) = kept_twice(mutation.first, mutation.second) {
                    own.clear_range(begin, end);
                }
            }
            _ if KEPT_TWICE.0 <= mutation.first && mutation.first < KEPT_TWICE.1 => {
                own.set(mutation.first, mutation.second);
            }
            _ => {}
        }
    }
    own
}

struct Said {
    sequence: u64,
    bytes: u64,
    ranges: Vec<KeyRange>,
    own: WriteBatch,
}

/// The last records.
#[derive(Default)]
pub(super) struct Recent(VecDeque<Said>);

impl Recent {
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// A record of this length follows the others.
    pub fn push(&mut self, sequence: u64, bytes: u64, mut ranges: Vec<KeyRange>, own: WriteBatch) {
        coarsen(&mut ranges, RANGES_AGAIN);
        self.0.push_back(Said {
            sequence,
            bytes,
            ranges,
            own,
        });
        let mut behind: u64 = self.0.iter().map(|said| said.bytes).sum();
        while let Some(first) = self.0.front() {
            behind -= first.bytes;
            if behind < SAID_AGAIN_BYTES {
                return;
            }
            self.0.pop_front();
        }
    }

    /// Number of the first of them; of the next record if there are none.
    pub fn since(&self, next: u64) -> u64 {
        self.0.front().map_or(next, |said| said.sequence)
    }

    pub fn ranges(&self) -> Vec<KeyRange> {
        let ranges = self.0.iter().flat_map(|said| said.ranges.iter().cloned());
        let mut ranges: Vec<KeyRange> = ranges.collect();
        coarsen(&mut ranges, RANGES_AGAIN);
        ranges
    }

    /// What they have done, taken together, to the rows that are kept twice.
    pub fn own(&self) -> MutationBatch {
        let mut all = WriteBatch::new();
        let owns = self.0.iter().map(|said| said.own.clone());
        owns.for_each(|own| all.append(own));
        super::pack_net(&all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::key::key_after;

    fn packed(operations: &[MutationRef<'_>]) -> Bytes {
        MutationBatch::from_mutations(operations.iter().copied()).into_bytes()
    }

    #[test]
    fn each_key_of_a_run_is_in_its_ranges_and_the_servers_own_rows_have_a_run() {
        let keys: Vec<String> = (0..2000).map(|i| format!("key{i:05}")).collect();
        let mut operations = vec![MutationRef::clear_range(b"c", b"key00500")];
        operations.extend(
            keys.iter()
                .map(|key| MutationRef::set(key.as_bytes(), &[7; 40])),
        );
        operations.push(MutationRef::set(b"\xff\xff/durable", b"12345678"));
        operations.push(MutationRef::set(b"\xff\xff/sample/a", b"1234"));
        let bytes = packed(&operations);
        let runs = runs(&bytes);
        assert_eq!(runs.iter().map(|run| run.len).sum::<usize>(), bytes.len());
        assert!(runs.len() > 10, "{}", runs.len());
        let mut left = operations.iter().peekable();
        for run in &runs {
            assert!(run.ranges.len() <= RANGES_A_BLOCK);
            let mut len = 0;
            while len < run.len {
                let operation = left.next().expect("there are more");
                len += operation.packed_len();
                let keys = keys_of(operation);
                let has = |range: &KeyRange| range.begin <= keys.begin && range.end >= keys.end;
                assert!(run.ranges.iter().any(has), "{operation:?}");
            }
            assert_eq!(len, run.len);
        }
        let own: Vec<&Run> = runs[runs.len() - 2..].iter().collect();
        assert_eq!(&own[0].ranges[0].begin[..], b"\xff\xff/durable");
        assert_eq!(&own[1].ranges[0].begin[..], b"\xff\xff/sample/a");
    }

    #[test]
    fn the_last_records_are_said_again_as_far_back_as_a_sector_reaches() {
        let mut recent = Recent::default();
        assert_eq!(recent.since(5), 5);
        for sequence in 5..30 {
            let own =
                own_part([MutationRef::set(b"\xff\xff/durable", &[sequence as u8])].into_iter());
            let key = Bytes::from(format!("k{sequence:02}"));
            let ranges = vec![KeyRange::new(key.clone(), key_after(&key))];
            recent.push(sequence, 1000, ranges, own);
        }
        // The nine that reach into the last 8 KiB, and not the one before them.
        assert_eq!(recent.since(30), 21);
        assert_eq!(recent.ranges().len(), 9);
        let own: Vec<Vec<u8>> = recent.own().iter().map(|set| set.second.to_vec()).collect();
        assert_eq!(own, [vec![29]]);
        recent.push(30, 1 << 20, vec![], WriteBatch::new());
        assert_eq!(recent.since(31), 30);
    }
}
