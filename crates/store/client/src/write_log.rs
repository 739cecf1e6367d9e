//! A transaction's mutations, packed as they are issued, in the order of the calls.
//!
//! A set costs one append to a growing buffer: no allocation of its own, no tree. Most transactions read first and
//! write then; they commit this buffer as it is. Only a read after a write needs the effect of the writes: it replays
//! the buffer, once, into a [`WriteMap`].

use crate::conflicts::{ConflictList, SortedConflicts};
use crate::write_map::WriteMap;
use bytes::{Bytes, BytesMut};
use plinth_core::key::MUTATION_OVERHEAD_BYTES;
use plinth_core::mutation::iter_packed;
use plinth_core::{Mutation, MutationBatch, MutationKind, MutationRef, Version, atomic};
use std::rc::Rc;

#[derive(Default)]
pub(crate) struct WriteLog {
    /// Packed mutations that are in the map.
    mapped: Vec<Bytes>,
    /// Packed mutations that are not yet in the map.
    tail: BytesMut,
    /// Where the last mutation begins in `tail`, if it is a set that conflicts.
    last_set: Option<usize>,
    count: u32,
    size_bytes: usize,
    /// Numbers of the mutations that add no write conflict range; ascending.
    silent: Vec<u32>,
    /// Write conflict ranges that were added explicitly.
    explicit: ConflictList,
    /// Behind an `Rc` so that a range read under way keeps the writes as they were when it was issued.
    map: Rc<WriteMap>,
}

/// What a transaction wrote, ready to be sent.
pub(crate) struct FinishedLog {
    pub mutations: MutationBatch,
    pub writes: SortedConflicts,
    pub size_bytes: usize,
}

impl WriteLog {
    pub fn push(&mut self, mutation: MutationRef<'_>, conflicts: bool) {
        if mutation.kind == MutationKind::Set && conflicts {
            self.forget_last_set_of(mutation.first);
            self.last_set = Some(self.tail.len());
        } else {
            self.last_set = None;
            if !conflicts {
                assert!(
                    self.silent.last().is_none_or(|last| *last < self.count),
                    "numbers of mutations ascend",
                );
                self.silent.push(self.count);
            }
        }
        self.count = self
            .count
            .checked_add(1)
            .expect("four billion mutations exceed every transaction's size limit");
        self.size_bytes += cost_bytes(&mutation);
        mutation.pack(&mut self.tail);
    }

    /// Removes the last mutation if it is a set of this key: a new set takes its place.
    fn forget_last_set_of(&mut self, key: &[u8]) {
        let Some(at) = self.last_set else { return };
        let (last, _) = iter_packed(&self.tail[at..])
            .next()
            .expect("a set begins here");
        if last.first != key {
            return;
        }
        self.size_bytes -= cost_bytes(&last);
        self.count -= 1;
        self.tail.truncate(at);
    }

    pub fn add_write_conflict(&mut self, begin: Bytes, end: Bytes) {
        self.explicit.add_range(begin, end);
    }

    pub fn add_write_conflict_key(&mut self, key: Bytes) {
        self.explicit.add_key(key);
    }

    /// No mutations and no conflict ranges.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.explicit.is_empty()
    }

    pub fn has_mutations(&self) -> bool {
        self.count > 0
    }

    /// Size of the mutations alone.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The effect of the writes so far. `version_min`: no stamp of this transaction is below it.
    pub fn map(&mut self, version_min: Version) -> &Rc<WriteMap> {
        if !self.tail.is_empty() {
            self.last_set = None;
            let packed = self.tail.split().freeze();
            let batch =
                MutationBatch::parse(packed.clone()).expect("the log packs whole mutations");
            let map = Rc::make_mut(&mut self.map);
            for mutation in batch.iter_owned() {
                map.apply(mutation, version_min);
            }
            self.mapped.push(packed);
        }
        &self.map
    }

    /// The finished log. `read_version`: the stamps of this transaction are above it.
    pub fn finish(mut self, read_version: Version) -> FinishedLog {
        let packed = self.packed();
        let mutations = MutationBatch::parse(packed).expect("the log packs whole mutations");
        let explicit = std::mem::take(&mut self.explicit);
        let writes = self.conflicts_of(&mutations, explicit, read_version);
        FinishedLog {
            size_bytes: self.size_bytes + writes.size_bytes(),
            mutations,
            writes,
        }
    }

    /// The write conflict ranges so far, in order.
    pub fn write_conflicts(&mut self, read_version: Version) -> SortedConflicts {
        self.last_set = None;
        let packed = self.packed();
        self.tail = BytesMut::from(&packed[..]);
        self.map = Rc::default();
        let mutations = MutationBatch::parse(packed).expect("the log packs whole mutations");
        self.conflicts_of(&mutations, self.explicit.clone(), read_version)
    }

    fn conflicts_of(
        &self,
        mutations: &MutationBatch,
        mut writes: ConflictList,
        read_version: Version,
    ) -> SortedConflicts {
        let mut silent = self.silent.iter().copied().peekable();
        let mut seen = 0;
        for (number, mutation) in (0u32..).zip(mutations.iter_owned()) {
            seen = number + 1;
            let is_silent = silent.next_if_eq(&number).is_some();
            add_write_conflict_of(mutation, is_silent, read_version, &mut writes);
        }
        assert_eq!(seen, self.count, "the log holds every mutation it counted");
        assert_eq!(
            silent.next(),
            None,
            "every mutation without a conflict is in the log"
        );
        writes.into_sorted()
    }

    /// Takes all mutations out of the log.
    fn packed(&mut self) -> Bytes {
        let tail = self.tail.split().freeze();
        if self.mapped.is_empty() {
            return tail;
        }
        self.mapped.push(tail);
        Bytes::from(std::mem::take(&mut self.mapped).concat())
    }
}

fn cost_bytes(mutation: &MutationRef<'_>) -> usize {
    MUTATION_OVERHEAD_BYTES + mutation.first.len() + mutation.second.len()
}

fn add_write_conflict_of(
    mutation: Mutation,
    silent: bool,
    read_version: Version,
    writes: &mut ConflictList,
) {
    match mutation.kind {
        // The key is not known yet, so all the keys that it may become count as written. This conflict range cannot
        // be suppressed, or a reader of the new key could miss the write.
        MutationKind::SetVersionstampedKey => {
            let range = atomic::versionstamped_key_range(&mutation.first, read_version)
                .expect("the offset was checked when the operation was issued");
            writes.add_range(range.begin, range.end);
        }
        _ if silent => {}
        MutationKind::ClearRange => writes.add_range(mutation.first, mutation.second),
        _ => writes.add_key(mutation.first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_map::Lookup;
    use plinth_core::conflict_ranges::ConflictRanges;

    fn set<'a>(key: &'a str, value: &'a str) -> MutationRef<'a> {
        MutationRef {
            kind: MutationKind::Set,
            first: key.as_bytes(),
            second: value.as_bytes(),
        }
    }
    fn written(log: WriteLog) -> (Vec<String>, Vec<Vec<u8>>) {
        let done = log.finish(0);
        let text = |m: MutationRef<'_>| {
            String::from_utf8_lossy(&[m.first, b"=", m.second].concat()).into_owned()
        };
        let ranges = ConflictRanges::parse(done.writes.pack()).expect("well formed");
        (
            done.mutations.iter().map(text).collect(),
            ranges.iter().map(|r| r.begin.to_vec()).collect(),
        )
    }

    #[test]
    fn mutations_go_out_in_the_order_of_the_calls_whether_or_not_they_were_read_between() {
        for read_between in [false, true] {
            let mut log = WriteLog::default();
            for (key, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
                log.push(set(key, value), true);
                if read_between {
                    assert!(
                        matches!(log.map(0).lookup(key.as_bytes()), Lookup::Known(Some(v)) if v == value)
                    );
                }
            }
            let (mutations, conflicts) = written(log);
            assert_eq!(mutations, ["b=1", "a=2", "b=3"]);
            assert_eq!(conflicts, [b"a".to_vec(), b"b".to_vec()]);
        }
    }

    #[test]
    fn a_set_right_after_a_set_of_the_same_key_takes_its_place() {
        let mut log = WriteLog::default();
        for value in ["1", "22", "333"] {
            log.push(set("k", value), true);
        }
        assert_eq!(log.size_bytes(), MUTATION_OVERHEAD_BYTES + 4);
        assert_eq!(written(log).0, ["k=333"]);
    }

    #[test]
    fn a_silent_write_adds_no_conflict_and_hides_no_other() {
        let mut log = WriteLog::default();
        log.push(set("a", "1"), false);
        log.push(set("b", "1"), true);
        log.push(set("b", "2"), false);
        log.push(set("c", "1"), false);
        let (mutations, conflicts) = written(log);
        assert_eq!(mutations, ["a=1", "b=1", "b=2", "c=1"]);
        assert_eq!(conflicts, [b"b".to_vec()]);
    }

    #[test]
    fn a_map_handed_out_stays_as_it_was() {
        let mut log = WriteLog::default();
        log.push(set("a", "1"), true);
        let before = log.map(0).clone();
        log.push(set("a", "2"), true);
        assert!(matches!(log.map(0).lookup(b"a"), Lookup::Known(Some(value)) if value == "2"));
        assert!(matches!(before.lookup(b"a"), Lookup::Known(Some(value)) if value == "1"));
    }
}
