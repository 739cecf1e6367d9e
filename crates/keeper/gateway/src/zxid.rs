//! Numbers of transactions, as clients see them.
//!
//! A zxid is made of the versionstamp of the transaction that wrote: `(version - base) * 2^14 + order`, where `order`
//! is a place in the commit proxy's batch. Several operations that share a transaction take one place each
//! ([`plinth_client::Transaction::take_places`]), so every operation has a number of its own, and numbers grow in the
//! order of commits, over all gateways. 63 bits last for 17 years after `base`, the version at which the keeper's tree
//! was made.

use plinth_core::Version;
use plinth_core::version::Versionstamp;

/// Bits of a place. A batch has no more places (`plinth_protocol::transaction::BATCH_PLACES_MAX`).
pub const PLACE_BITS: u32 = 14;
/// Versions for which the other bits of a zxid last.
const SINCE_MAX: Version = 1 << (63 - PLACE_BITS);

/// Turns positions of the log into zxids and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zxids {
    /// The version at which the tree was made.
    pub base: Version,
}

impl Zxids {
    /// The zxid of the operation with the number `piece` in the transaction with this stamp.
    pub fn of(self, version: Version, order: u16, piece: u16) -> i64 {
        let place = i64::from(order) + i64::from(piece);
        assert!(place < 1 << PLACE_BITS, "place {place} at {version}");
        let since = version - self.base;
        assert!(
            (0..SINCE_MAX).contains(&since),
            "version {version} of a tree that was made at {}",
            self.base
        );
        (since << PLACE_BITS) + place
    }

    /// As [`Zxids::of`] for a stamp that was read from the database; `None` if no transaction can have had it.
    pub fn of_stamp(self, stamp: Versionstamp, piece: u16) -> Option<i64> {
        let place = i64::from(stamp.order()) + i64::from(piece);
        let since = stamp.version().checked_sub(self.base)?;
        let is_possible = place < 1 << PLACE_BITS && (0..SINCE_MAX).contains(&since);
        is_possible.then(|| (since << PLACE_BITS) + place)
    }

    /// The highest zxid that a state at `version` can contain.
    pub fn last_of(self, version: Version) -> i64 {
        ((version - self.base) << PLACE_BITS) + ((1 << PLACE_BITS) - 1)
    }

    /// The version whose transactions have this zxid.
    pub fn version_of(self, zxid: i64) -> Version {
        self.base.saturating_add(zxid >> PLACE_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zxids_grow_with_version_order_and_piece_and_name_their_version() {
        let zxids = Zxids { base: 1_000_000 };
        let all = [
            zxids.of(1_000_000, 0, 0),
            zxids.of(1_000_000, 0, 1),
            zxids.of(1_000_000, 5, 0),
            zxids.last_of(1_000_000),
            zxids.of(1_000_001, 0, 0),
            zxids.of(i64::MAX >> 16, 9, 3),
        ];
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert_eq!(zxids.version_of(all[2]), 1_000_000);
        assert_eq!(zxids.version_of(all[3]), 1_000_000);
        assert_eq!(zxids.version_of(all[4]), 1_000_001);
    }

    #[test]
    fn a_stamp_and_a_piece_make_a_zxid() {
        let zxids = Zxids { base: 0 };
        let stamp = Versionstamp::new(77, 3);
        assert_eq!(zxids.of_stamp(stamp, 2), Some(zxids.of(77, 3, 2)));
        assert_eq!(zxids.of_stamp(stamp, 1 << PLACE_BITS), None);
        assert_eq!(zxids.of_stamp(Versionstamp::new(-1, 0), 0), None);
    }
}
