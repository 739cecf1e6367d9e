//! How far one commit of the engine goes. A commit of everything that waits may be of any size when the disk is behind: it is
//! built and taken note of on the loop, where everybody else would wait for it.

use plinth_core::Version;
use std::collections::VecDeque;

/// Marks are this many bytes apart, or a version.
const GRAIN: u64 = 256 << 10;

/// How many bytes had come at some versions, ascending.
#[derive(Default)]
pub(super) struct Portions {
    marks: VecDeque<(Version, u64)>,
    /// As of the newest mark that is durable.
    written: u64,
}

impl Portions {
    /// All of `version` has been taken in; so many bytes have come so far, ever.
    pub fn reached(&mut self, version: Version, bytes: u64) {
        let last = self.marks.back().map_or(self.written, |mark| mark.1);
        if bytes >= last + GRAIN {
            self.marks.push_back((version, bytes));
        }
    }

    /// Everything above `version` was taken back.
    pub fn undo(&mut self, version: Version) {
        while self.marks.back().is_some_and(|mark| mark.0 > version) {
            self.marks.pop_back();
        }
    }

    /// Up to which version the next commit should go if it is to be of about so many bytes; `None`: as far as it may.
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
