//! Parts of the key space. The key space is divided among the workloads of a run, and a workload spreads its keys
//! over many first bytes. Shards and resolvers divide the space by first byte, so transactions within a single first
//! byte would test little.

use plinth_core::Key;
use plinth_core::key::KeyRange;

/// A range of first bytes, from `begin` up to, but not including, `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    begin: u8,
    end: u8,
}

impl Space {
    /// Everything that a user may write, except the two ends, which no workload uses.
    pub const fn whole() -> Self {
        Space {
            begin: 0x01,
            end: 0xfe,
        }
    }

    /// Part `i` of `of` parts of about the same size.
    pub fn part(&self, i: u64, of: u64) -> Space {
        assert!(i < of, "part {i} of {of}");
        let at = |i| self.first_byte(i, of);
        let part = Space {
            begin: at(i),
            end: at(i + 1),
        };
        assert!(part.begin < part.end, "{self:?} is too small for {of}");
        part
    }

    /// The range from the beginning of this space to the end of `last`.
    pub fn joined(&self, last: Space) -> Space {
        Space {
            begin: self.begin,
            end: last.end,
        }
    }

    fn first_byte(&self, i: u64, of: u64) -> u8 {
        self.begin + (u64::from(self.end - self.begin) * i / of) as u8
    }

    /// Key number `i` of `of`. Keys ascend with their numbers and are spread over the space.
    pub fn key(&self, i: u64, of: u64) -> Key {
        assert!(i < of, "key {i} of {of}");
        let mut key = vec![self.first_byte(i, of)];
        key.extend_from_slice(format!("/{i:06}").as_bytes());
        key.into()
    }

    /// A key with a name, at some place in the space.
    pub fn named(&self, name: &str) -> Key {
        let sum: u64 = name.bytes().map(u64::from).sum();
        let width = u64::from(self.end - self.begin);
        let first = self.begin + (sum % width) as u8;
        [&[first], name.as_bytes()].concat().into()
    }

    pub fn begin(&self) -> Key {
        vec![self.begin].into()
    }

    pub fn end(&self) -> Key {
        vec![self.end].into()
    }

    pub fn range(&self) -> KeyRange {
        KeyRange::new(self.begin(), self.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_meet_and_keys_are_in_order_inside_theirs() {
        let parts: Vec<Space> = (0..6).map(|i| Space::whole().part(i, 6)).collect();
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].begin));
        for part in parts {
            let keys: Vec<Key> = (0..300).map(|i| part.key(i, 300)).collect();
            assert!(keys.is_sorted());
            assert!(part.begin() <= keys[0] && keys[299] < part.end());
            let named = part.named("any");
            assert!(part.begin() <= named && named < part.end());
        }
    }
}
