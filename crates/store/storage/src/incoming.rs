//! Ranges that are being copied to this server, in parts, from servers that hold them (pitfall 19).
//!
//! The life of a part: it *begins* when its rows are asked for, at a version not yet chosen. From then on mutations of
//! its keys queue here. It *arrives* with the rows of a committed version. The rows contain the mutations up to that
//! version, so these leave the queue. It is *stored* when the rows are in the engine. At the next version that the
//! server takes in, the queue is applied to the window, and the range is held.
//!
//! Mutations of a range for which no part has begun are dropped: its rows will be of a later version.

use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::{Mutation, MutationKind, MutationRef, Value, Version};
use std::collections::BTreeMap;

#[derive(PartialEq, Eq, Debug)]
enum Stage {
    Asked,
    Arrived(Vec<(Bytes, Value)>),
    Stored,
}

pub struct Part {
    id: u64,
    pub range: KeyRange,
    stage: Stage,
    /// Version of the rows. The server may not have reached it yet.
    as_of: Version,
    /// Mutations above the version of the rows, in order, clipped to the range.
    pub queue: Vec<(Version, Mutation)>,
}

#[derive(Default)]
pub struct Incoming {
    /// By the key they begin with. Parts do not overlap.
    parts: BTreeMap<Bytes, Part>,
    last_id: u64,
}

impl Incoming {
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The first piece of `ranges` for which no part has begun.
    pub fn gap_in(&self, ranges: &[KeyRange]) -> Option<KeyRange> {
        for range in ranges {
            let mut begin = range.begin.clone();
            for part in self.parts.values() {
                if part.range.end <= begin || part.range.begin >= range.end {
                    continue;
                }
                if begin < part.range.begin {
                    return Some(KeyRange::new(begin, part.range.begin.clone()));
                }
                begin = part.range.end.clone();
            }
            if begin < range.end {
                return Some(KeyRange::new(begin, range.end.clone()));
            }
        }
        None
    }

    /// Begins a part: from now on mutations of the range queue. Returns the part's id.
    pub fn begin(&mut self, range: KeyRange) -> u64 {
        let before = self.parts.range::<Bytes, _>(..&range.end).next_back();
        assert!(
            before.is_none_or(|(_, part)| part.range.end <= range.begin),
            "a part of {range:?} begins beside that of {:?}",
            before.map(|(_, part)| &part.range)
        );
        self.last_id += 1;
        let part = Part {
            id: self.last_id,
            range: range.clone(),
            stage: Stage::Asked,
            as_of: Version::MIN,
            queue: Vec::new(),
        };
        self.parts.insert(range.begin, part);
        self.last_id
    }

    /// Takes the rows of the part from its begin to `end`, as of `version`. What lies behind `end` needs a part of its
    /// own. False if the part has been given up meanwhile.
    pub fn arrived(
        &mut self,
        id: u64,
        version: Version,
        end: Bytes,
        rows: Vec<(Bytes, Value)>,
    ) -> bool {
        let Some(part) = self.parts.values_mut().find(|part| part.id == id) else {
            return false;
        };
        assert!(
            part.stage == Stage::Asked && part.range.begin < end && end <= part.range.end,
            "the part {:?} arrives up to {end:?}",
            part.range
        );
        part.range.end = end;
        let range = part.range.clone();
        let queued = std::mem::take(&mut part.queue).into_iter();
        part.queue = queued
            .filter(|(at, _)| *at > version)
            .filter_map(|(at, mutation)| Some((at, clip(&mutation.as_ref(), &range)?)))
            .collect();
        part.stage = Stage::Arrived(rows);
        part.as_of = version;
        true
    }

    /// Gives up the part, because its rows cannot be had now.
    pub fn give_up(&mut self, id: u64) {
        self.parts.retain(|_, part| part.id != id);
    }

    /// Gives up every part that reaches into `range`. True if there was one.
    pub fn cancel(&mut self, range: &KeyRange) -> bool {
        let before = self.parts.len();
        self.parts.retain(|_, part| !part.range.intersects(range));
        self.parts.len() < before
    }

    /// Drops mutations above `to`, and the parts of ranges that are no longer wanted.
    pub fn rollback(&mut self, to: Version, wanted: impl Fn(&KeyRange) -> bool) {
        self.parts.retain(|_, part| wanted(&part.range));
        for part in self.parts.values_mut() {
            part.queue.retain(|(version, _)| *version <= to);
        }
    }

    /// Queues the mutation for every part that it concerns.
    pub fn queue(&mut self, version: Version, mutation: &MutationRef<'_>) {
        // There are few parts at a time. A server that lags also gets mutations that the rows already contain; these
        // are skipped.
        for part in self.parts.values_mut().filter(|p| p.as_of < version) {
            let clipped = clip(mutation, &part.range);
            let last = part.queue.last().map(|(last, _)| *last);
            assert!(
                last.is_none_or(|last| last <= version),
                "a mutation of {version} queues behind one of {last:?}"
            );
            part.queue.extend(clipped.map(|clipped| (version, clipped)));
        }
    }

    /// Parts whose rows have arrived and are not yet stored in the engine.
    pub fn to_store(&self) -> impl Iterator<Item = (u64, &KeyRange, &[(Bytes, Value)])> {
        self.parts.values().filter_map(|part| match &part.stage {
            Stage::Arrived(rows) => Some((part.id, &part.range, &rows[..])),
            _ => None,
        })
    }

    /// Marks the part as stored in the engine, unless it was given up.
    pub fn stored(&mut self, id: u64) {
        if let Some(part) = self.parts.values_mut().find(|part| part.id == id) {
            part.stage = Stage::Stored;
        }
    }

    /// True if a stored part has rows older than `version`.
    pub fn has_stored(&self, version: Version) -> bool {
        let mut parts = self.parts.values();
        parts.any(|part| part.stage == Stage::Stored && part.as_of < version)
    }

    /// Takes out the stored parts with rows older than `version`, in key order.
    pub fn take_stored(&mut self, version: Version) -> Vec<Part> {
        let stored =
            |_: &Bytes, part: &mut Part| part.stage == Stage::Stored && part.as_of < version;
        self.parts.extract_if(.., stored).map(|(_, p)| p).collect()
    }
}

/// The portion of the mutation that lies in the range. Copied: it outlives the frame that it came in.
fn clip(mutation: &MutationRef<'_>, range: &KeyRange) -> Option<Mutation> {
    let (first, second) = (mutation.first, mutation.second);
    let (first, second) = if mutation.kind == MutationKind::ClearRange {
        let (begin, end) = (first.max(&range.begin), second.min(&range.end));
        (begin < end).then_some((begin, end))?
    } else {
        range.contains(first).then_some((first, second))?
    };
    Some(Mutation {
        kind: mutation.kind,
        first: Bytes::copy_from_slice(first),
        second: Bytes::copy_from_slice(second),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(begin, end)
    }

    #[test]
    fn a_part_takes_along_what_happened_since_its_rows_and_only_in_its_range() {
        let mut incoming = Incoming::default();
        let whole = [range("b", "m")];
        assert_eq!(incoming.gap_in(&whole), Some(range("b", "m")));
        let id = incoming.begin(range("b", "m"));
        assert_eq!(incoming.gap_in(&whole), None);
        let steps = [
            (10, Mutation::set("c", "old")),
            (20, Mutation::set("c", "new")),
            (20, Mutation::set("k", "behind the end")),
            (21, Mutation::set("a", "somebody else's")),
            (30, Mutation::clear_range("a", "z")),
        ];
        for (version, mutation) in &steps {
            incoming.queue(*version, &mutation.as_ref());
        }
        assert!(incoming.arrived(id, 10, "f".into(), vec![]));
        assert_eq!(incoming.gap_in(&whole), Some(range("f", "m")));
        assert!(!incoming.has_stored(31));
        incoming.stored(id);
        let parts = incoming.take_stored(31);
        assert_eq!(parts[0].range, range("b", "f"));
        let expected = [
            (20, Mutation::set("c", "new")),
            (30, Mutation::clear_range("b", "f")),
        ];
        assert_eq!(parts[0].queue, expected);
    }

    #[test]
    fn a_part_that_was_given_up_comes_to_nothing() {
        let mut incoming = Incoming::default();
        let id = incoming.begin(range("b", "d"));
        assert!(!incoming.cancel(&range("d", "e")));
        assert!(incoming.cancel(&range("c", "e")));
        assert!(!incoming.arrived(id, 10, "d".into(), vec![]));
        incoming.stored(id);
        assert!(!incoming.has_stored(20));
    }

    #[test]
    fn a_server_that_lags_does_not_do_again_what_the_rows_have() {
        let mut incoming = Incoming::default();
        let id = incoming.begin(range("a", "z"));
        incoming.arrived(id, 100, "z".into(), vec![]);
        incoming.stored(id);
        for version in [90, 100, 110] {
            incoming.queue(version, &Mutation::set("b", "1").as_ref());
        }
        assert!(!incoming.has_stored(100) && incoming.take_stored(100).is_empty());
        let part = incoming.take_stored(101).remove(0);
        let queued: Vec<Version> = part.queue.iter().map(|(version, _)| *version).collect();
        assert_eq!(queued, [110]);
    }

    #[test]
    fn versions_that_were_undone_leave_the_queue() {
        let mut incoming = Incoming::default();
        let id = incoming.begin(range("a", "z"));
        incoming.queue(10, &Mutation::set("b", "1").as_ref());
        incoming.queue(20, &Mutation::set("b", "2").as_ref());
        incoming.rollback(15, |_| true);
        incoming.arrived(id, 5, "z".into(), vec![]);
        incoming.stored(id);
        assert_eq!(incoming.take_stored(20)[0].queue.len(), 1);
    }
}
