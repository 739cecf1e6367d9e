//! What is known of objects in memory (§4.9): the redirection map, which tells the block where an object's newest
//! version begins, in one or two bytes; and the version map, which knows the timestamps of those versions that are not
//! older than the safe point. No older version can come any more, so the others need none.

use plinth_core::hash::HashMap;
use plinth_farm_memory::Class;
use std::collections::BTreeSet;

/// The blocks of a slab's objects, by cell. One more than the block's number is kept; 0: there is no such object.
enum Map {
    Narrow(Box<[u8]>),
    Wide(Box<[u16]>),
}

pub struct Slab {
    pub class: Class,
    /// No version of it was ever newer.
    pub newest: u64,
    map: Map,
}

impl Slab {
    pub fn new(class: Class, cells: usize, group_blocks: u64) -> Slab {
        let map = match group_blocks <= u64::from(u8::MAX) {
            true => Map::Narrow(vec![0; cells].into()),
            false => Map::Wide(vec![0; cells].into()),
        };
        Slab {
            class,
            newest: 0,
            map,
        }
    }

    pub fn get(&self, cell: u32) -> Option<u32> {
        let block = match &self.map {
            Map::Narrow(map) => u32::from(map[cell as usize]),
            Map::Wide(map) => u32::from(map[cell as usize]),
        };
        block.checked_sub(1)
    }

    pub fn set(&mut self, cell: u32, block: u32) {
        let most = match &self.map {
            Map::Narrow(_) => u32::from(u8::MAX),
            Map::Wide(_) => u32::from(u16::MAX),
        };
        assert!(
            block < most,
            "the map of a slab has no room for block {block}"
        );
        match &mut self.map {
            Map::Narrow(map) => map[cell as usize] = (block + 1) as u8,
            Map::Wide(map) => map[cell as usize] = (block + 1) as u16,
        }
    }

    pub fn clear(&mut self, cell: u32) {
        match &mut self.map {
            Map::Narrow(map) => map[cell as usize] = 0,
            Map::Wide(map) => map[cell as usize] = 0,
        }
    }

    pub fn cells(&self) -> u32 {
        match &self.map {
            Map::Narrow(map) => map.len() as u32,
            Map::Wide(map) => map.len() as u32,
        }
    }

    /// The blocks of all objects.
    pub fn blocks(&self) -> impl Iterator<Item = u32> {
        (0..self.cells()).filter_map(|cell| self.get(cell))
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let map = match &self.map {
            Map::Narrow(map) => map.len(),
            Map::Wide(map) => 2 * map.len(),
        };
        size_of::<Slab>() + map
    }
}

/// The newest timestamps of objects, as far as they are not below the safe point.
#[derive(Default)]
pub struct Versions {
    of: HashMap<u64, u64>,
    by_time: BTreeSet<(u64, u64)>,
}

impl Versions {
    /// By the bits of the pointer.
    pub fn get(&self, pointer: u64) -> Option<u64> {
        self.of.get(&pointer).copied()
    }

    pub fn put(&mut self, pointer: u64, timestamp: u64) {
        if let Some(former) = self.of.insert(pointer, timestamp) {
            let was_there = self.by_time.remove(&(former, pointer));
            assert!(
                was_there,
                "object {pointer:#x} has a version of {former}, and no place in time"
            );
        }
        self.by_time.insert((timestamp, pointer));
    }

    /// Forgets what is older than this.
    pub fn forget_below(&mut self, timestamp: u64) {
        while let Some(&(first, pointer)) = self.by_time.first()
            && first < timestamp
        {
            self.by_time.pop_first();
            let known = self.of.remove(&pointer);
            assert_eq!(
                known,
                Some(first),
                "the version of object {pointer:#x} that is forgotten is not the newest"
            );
        }
        if self.of.capacity() > 4 * (self.of.len() + 1024) {
            self.of.shrink_to(2 * self.of.len());
        }
    }

    /// True if one of these has a version that is newer than this.
    pub fn any_after(&self, timestamp: u64, is_one: impl Fn(u64) -> bool) -> bool {
        let later = self.by_time.range((timestamp + 1, 0)..);
        later.into_iter().any(|(_, pointer)| is_one(*pointer))
    }

    pub fn forget(&mut self, is_forgotten: impl Fn(u64) -> bool) {
        self.of.retain(|pointer, _| !is_forgotten(*pointer));
        self.by_time.retain(|(_, pointer)| !is_forgotten(*pointer));
        assert_eq!(
            self.of.len(),
            self.by_time.len(),
            "versions by object, and in time"
        );
    }

    pub fn len(&self) -> usize {
        self.of.len()
    }
}
