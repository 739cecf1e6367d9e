//! Limits how far one commit of the engine goes. When the disk is behind, a commit of everything that waits could be
//! of any size. It is built and accounted for on the loop, where all other work would wait for it.

use plinth_core::Version;
use std::collections::VecDeque;

/// Marks are at least this many bytes apart, and at least one version.
const GRAIN: u64 = 256 << 10;

/// Total number of bytes taken in at some versions, ascending.
#[derive(Default)]
pub(super) struct Portions {
    marks: VecDeque<(Version, u64)>,
    /// Total as of the newest mark that is durable.
    written: u64,
}

impl Portions {
    /// Notes that all of `version` has been taken in. `bytes` is the total taken in since the start.
    pub fn reached(&mut self, version: Version, bytes: u64) {
        let last = self.marks.back();
        assert!(
            last.is_none_or(|mark| mark.0 < version && mark.1 <= bytes),
            "{bytes} bytes are reached at {version}, after {last:?}"
        );
        let last = last.map_or(self.written, |mark| mark.1);
        if bytes >= last + GRAIN {
            self.marks.push_back((version, bytes));
        }
    }

    /// Notes that everything above `version` was rolled back.
    pub fn undo(&mut self, version: Version) {
        while self.marks.back().is_some_and(|mark| mark.0 > version) {
            self.marks.pop_back();
        }
    }

    /// The version up to which the next commit should go to have about `bytes_max` bytes; `None` if it may go as far
    /// as it can.
    pub fn limit(&mut self, durable: Version, bytes_max: u64) -> Option<Version> {
        while let Some((_, bytes)) = self.marks.front().filter(|mark| mark.0 <= durable) {
            self.written = *bytes;
            self.marks.pop_front();
        }
        let enough = self.written + bytes_max.max(1);
        let first = self.marks.partition_point(|mark| mark.1 < enough);
        self.marks.get(first).map(|mark| mark.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_goes_as_far_as_its_bytes_and_the_next_goes_on_there() {
        let mut portions = Portions::default();
        for i in 1..=100 {
            portions.reached(i * 10, i as u64 * GRAIN);
            portions.reached(i * 10 + 1, i as u64 * GRAIN + 5);
        }
        assert_eq!(portions.limit(0, 30 * GRAIN), Some(300));
        assert_eq!(portions.limit(0, 30 * GRAIN), Some(300));
        assert_eq!(portions.limit(300, 30 * GRAIN), Some(600));
        assert_eq!(portions.limit(605, 1), Some(610));
        assert_eq!(portions.limit(605, 41 * GRAIN), None);
        portions.undo(899);
        assert_eq!(portions.limit(605, 30 * GRAIN), None);
        assert_eq!(portions.limit(605, 20 * GRAIN), Some(800));
    }
}
