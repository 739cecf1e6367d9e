//! The checksums of the frames that were written since the file was opened. A read must find the same.

use std::collections::{BTreeMap, VecDeque};

/// Number of blocks in a group: a page of memory.
const GROUP: usize = 1024;
/// Groups that are kept: 16 MiB of memory for 16 GiB of the file. Beyond that, the oldest group is forgotten.
const GROUPS_MAX: usize = 4096;
/// The checksum is not known. A frame with this very checksum is not checked: one in four billion.
const UNKNOWN: u32 = 0;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    groups: BTreeMap<u64, Box<[u32]>>,
    /// Numbers of the groups, in the order in which they were added.
    order: VecDeque<u64>,
}

fn place(block: u64) -> (u64, usize) {
    (block / GROUP as u64, (block % GROUP as u64) as usize)
}

impl Written {
    pub fn remember(&mut self, first: u64, crcs: &[u32]) {
        for (block, crc) in (first..).zip(crcs) {
            let (group, at) = place(block);
            if !self.groups.contains_key(&group) {
                self.make_room();
                self.order.push_back(group);
            }
            let group = self.groups.entry(group);
            group.or_insert_with(|| vec![UNKNOWN; GROUP].into())[at] = *crc;
        }
    }

    fn make_room(&mut self) {
        while self.groups.len() >= GROUPS_MAX {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            self.groups.remove(&oldest);
        }
    }

    pub fn forget(&mut self, first: u64, count: usize) {
        for block in first..first + count as u64 {
            let (group, at) = place(block);
            if let Some(group) = self.groups.get_mut(&group) {
                group[at] = UNKNOWN;
            }
        }
    }

    /// Forgets `block` and all blocks behind it.
    pub fn forget_from(&mut self, block: u64) {
        let (group, at) = place(block);
        let beyond = self.groups.split_off(&group);
        self.order.retain(|number| *number < group);
        if let Some(mut kept) = beyond.into_iter().find(|(number, _)| *number == group) {
            kept.1[at..].fill(UNKNOWN);
            self.groups.insert(group, kept.1);
            self.order.push_back(group);
        }
    }

    /// The checksum that each of `count` blocks must have, where it is known.
    pub fn of(&self, first: u64, count: usize) -> Vec<Option<u32>> {
        let known = |block: u64| {
            let (group, at) = place(block);
            let crc = self.groups.get(&group)?[at];
            (crc != UNKNOWN).then_some(crc)
        };
        (first..first + count as u64).map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_known_until_it_is_forgotten() {
        let mut written = Written::default();
        written.remember(GROUP as u64 - 1, &[7, 8, 9]);
        let three = |written: &Written| written.of(GROUP as u64 - 1, 3);
        assert_eq!(three(&written), [Some(7), Some(8), Some(9)]);
        written.forget(GROUP as u64, 1);
        assert_eq!(three(&written), [Some(7), None, Some(9)]);
        written.forget_from(GROUP as u64 + 1);
        assert_eq!(three(&written), [Some(7), None, None]);
        written.forget_from(0);
        assert_eq!(three(&written), [None, None, None]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut written = Written::default();
        let block = |group: usize| (group * GROUP) as u64;
        (0..GROUPS_MAX + 10).for_each(|group| written.remember(block(group), &[1]));
        assert_eq!(written.groups.len(), GROUPS_MAX);
        assert_eq!(written.order.len(), GROUPS_MAX);
        assert_eq!(written.of(block(9), 1), [None]);
        assert_eq!(written.of(block(10), 1), [Some(1)]);
    }
}
