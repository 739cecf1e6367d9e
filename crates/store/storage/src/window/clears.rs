//! Ranges cleared in the window.
//!
//! Disjoint segments of the key space, each with the versions at which the whole of it was cleared. A clear splits
//! the segments at its two ends, adds its version to those inside and fills the gaps between them. Because
//! segments are split and never joined, the clear's own ends stay segment boundaries for as long as its version is
//! there, and dropping it touches exactly the segments it made or marked.

use bytes::Bytes;
use plinth_core::Version;
use std::collections::BTreeMap;
use std::ops::Bound;

struct Segment {
    end: Bytes,
    /// Ascending, never empty.
    versions: Vec<Version>,
}

/// Memory of a segment in addition to its keys and versions.
const SEGMENT_BYTES: usize = 160;

impl Segment {
    fn bytes(&self, begin: &[u8]) -> usize {
        begin.len() + self.end.len() + size_of::<Version>() * self.versions.len() + SEGMENT_BYTES
    }
}

/// See the module.
pub(super) struct ClearedSegments {
    segments: BTreeMap<Bytes, Segment>,
    bytes: usize,
}

fn from_to<'a>(begin: &'a [u8], end: &'a [u8]) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (Bound::Included(begin), Bound::Excluded(end))
}

impl ClearedSegments {
    pub fn new() -> Self {
        ClearedSegments {
            segments: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, begin: Bytes, end: Bytes, versions: Vec<Version>) {
        let segment = Segment { end, versions };
        self.bytes += segment.bytes(&begin);
        let replaced = self.segments.insert(begin, segment);
        assert!(replaced.is_none(), "segments overlap");
    }

    /// The segment that holds `key`, with its begin.
    fn holding(&self, key: &[u8]) -> Option<(&Bytes, &Segment)> {
        let before = (Bound::Unbounded, Bound::Included(key));
        let (begin, segment) = self.segments.range::<[u8], _>(before).next_back()?;
        (key < &segment.end[..]).then_some((begin, segment))
    }

    fn split_at(&mut self, key: &Bytes) {
        let Some((begin, segment)) = self.holding(key) else {
            return;
        };
        if begin == key {
            return;
        }
        let (begin, end, versions) = (begin.clone(), segment.end.clone(), segment.versions.clone());
        let lower = self.segments.get_mut(&begin).expect("just found");
        self.bytes -= lower.bytes(&begin);
        lower.end = key.clone();
        self.bytes += lower.bytes(&begin);
        self.insert(key.clone(), end, versions);
    }

    /// End of the last of the first `segments` segments that a clear of `[begin, end)` meets, if the clear goes on
    /// behind it.
    pub fn nth_end(&self, begin: &[u8], end: &[u8], segments: usize) -> Option<&[u8]> {
        let mut met = self.segments.range::<[u8], _>(from_to(begin, end));
        let (_, segment) = met.nth(segments.checked_sub(1)?)?;
        (segment.end < end).then_some(&segment.end[..])
    }

    pub fn clear(&mut self, version: Version, begin: &[u8], end: &[u8]) {
        let (begin, end) = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
        self.split_at(&begin);
        self.split_at(&end);
        let mut gaps = Vec::new();
        let mut at = begin.clone();
        for (start, segment) in self.segments.range_mut::<[u8], _>(from_to(&begin, &end)) {
            if at < *start {
                gaps.push((at, start.clone()));
            }
            at = segment.end.clone();
            if segment.versions.last() != Some(&version) {
                segment.versions.push(version);
                self.bytes += size_of::<Version>();
            }
        }
        if at < end {
            gaps.push((at, end));
        }
        for (begin, end) in gaps {
            self.insert(begin, end, vec![version]);
        }
    }

    /// True if some clear at or below `version` covers `key`.
    #[inline]
    pub fn is_cleared(&self, key: &[u8], version: Version) -> bool {
        !self.segments.is_empty()
            && self
                .holding(key)
                .is_some_and(|(_, segment)| segment.versions[0] <= version)
    }

    /// The first segment cleared by `version` that ends after `key`. Inside it the engine must not be asked.
    pub fn next_cleared(&self, key: &[u8], version: Version) -> Option<(&[u8], &[u8])> {
        let cleared = |s: &&Segment| s.versions[0] <= version;
        if let Some((begin, segment)) = self.holding(key).filter(|(_, segment)| cleared(segment)) {
            return Some((begin, &segment.end));
        }
        let after = (Bound::Excluded(key), Bound::Unbounded);
        let (begin, segment) = self
            .segments
            .range::<[u8], _>(after)
            .find(|(_, segment)| cleared(segment))?;
        Some((begin, &segment.end))
    }

    /// The last segment cleared by `version` that begins before `key`.
    pub fn previous_cleared(&self, key: &[u8], version: Version) -> Option<(&[u8], &[u8])> {
        let before = (Bound::Unbounded, Bound::Excluded(key));
        let mut segments = self.segments.range::<[u8], _>(before).rev();
        let (begin, segment) = segments.find(|(_, segment)| segment.versions[0] <= version)?;
        Some((begin, &segment.end))
    }

    /// Asserts that segments do not overlap, and that their versions rise and their bytes are counted.
    pub fn check(&self) {
        let (mut bytes, mut last_end) = (0, &Bytes::new());
        for (begin, segment) in &self.segments {
            assert!(
                last_end <= begin && *begin < segment.end,
                "a segment {begin:?} to {:?} behind one to {last_end:?}",
                segment.end
            );
            let versions = &segment.versions;
            assert!(
                !versions.is_empty() && versions.is_sorted_by(|a, b| a < b),
                "versions of a segment: {versions:?}"
            );
            (bytes, last_end) = (bytes + segment.bytes(begin), &segment.end);
        }
        assert_eq!(
            bytes,
            self.bytes,
            "bytes of {} segments",
            self.segments.len()
        );
    }

    /// Drops clears at or below `version` from about `segments_max` of the segments of `[begin, end)`. Returns where
    /// to go on; `None` if that was all.
    pub fn drop_up_to(
        &mut self,
        version: Version,
        (begin, end): (&[u8], &[u8]),
        segments_max: usize,
    ) -> Option<Bytes> {
        self.retain_versions((begin, end), segments_max, |versions| {
            versions.drain(..versions.partition_point(|&v| v <= version));
        })
    }

    /// As [`drop_up_to`](Self::drop_up_to), with clears above `version`.
    pub fn drop_above(
        &mut self,
        version: Version,
        (begin, end): (&[u8], &[u8]),
        segments_max: usize,
    ) -> Option<Bytes> {
        self.retain_versions((begin, end), segments_max, |versions| {
            versions.truncate(versions.partition_point(|&v| v <= version));
        })
    }

    fn retain_versions(
        &mut self,
        (begin, end): (&[u8], &[u8]),
        segments_max: usize,
        change: impl Fn(&mut Vec<Version>),
    ) -> Option<Bytes> {
        let mut emptied = Vec::new();
        let mut met = self.segments.range_mut::<[u8], _>(from_to(begin, end));
        for (start, segment) in met.by_ref().take(segments_max.max(1)) {
            self.bytes -= segment.bytes(start);
            change(&mut segment.versions);
            if segment.versions.is_empty() {
                emptied.push(start.clone());
            } else {
                self.bytes += segment.bytes(start);
            }
        }
        let next = met.next().map(|(start, _)| start.clone());
        for start in emptied {
            self.segments.remove(&start);
        }
        next
    }
}
