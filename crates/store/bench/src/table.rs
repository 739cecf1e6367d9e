//! The table that the workloads use: rows numbered from 0, with 16-byte keys and values of 8 to 100 bytes.
//!
//! ```text
//! key of row i:  bench/ | i · stride, 8 bytes big-endian | 2 bytes mixed from i
//! ```
//!
//! Keys ascend with the row number and are spread evenly over everything below the prefix, so rows with neighbouring
//! numbers are neighbours in key order. The mark of the table ([`lodging`](crate::lodging)) has the prefix as its key.

use bytes::Bytes;
use plinth_runtime::random;

pub const KEY_BYTES: usize = 16;
const PREFIX: &[u8] = b"bench/";
/// All keys of the table and of its mark lie between these.
pub const KEYS: [&[u8]; 2] = [PREFIX, b"bench0"];
pub const MARK: &[u8] = PREFIX;
/// Where the mixed bytes of a key begin.
const MIXED: usize = PREFIX.len() + 8;
const VALUE_BYTES_MIN: usize = 8;
const VALUE_BYTES_MAX: usize = 100;
/// Values are slices of a pool of random bytes of this size: drawing each byte would cost more than sending it.
const POOL_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Table {
    rows: u64,
    stride: u64,
}

impl Table {
    /// # Panics
    /// If `rows` is 0.
    pub fn new(rows: u64) -> Self {
        assert!(rows > 0, "a table of {rows} rows has nothing to read");
        Table {
            rows,
            stride: u64::MAX / rows,
        }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn key(&self, row: u64) -> [u8; KEY_BYTES] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let mut key = [0; KEY_BYTES];
        key[..PREFIX.len()].copy_from_slice(PREFIX);
        key[PREFIX.len()..MIXED].copy_from_slice(&(row * self.stride).to_be_bytes());
        key[MIXED..].copy_from_slice(&random::spread(row).to_be_bytes()[..KEY_BYTES - MIXED]);
        key
    }

    /// The end key of a range of rows up to, but not including, `row`.
    pub fn end_key(&self, row: u64) -> Bytes {
        if row >= self.rows {
            Bytes::from_static(KEYS[1])
        } else {
            Bytes::copy_from_slice(&self.key(row))
        }
    }

    pub fn random_row(&self) -> u64 {
        random::below(self.rows)
    }

    pub fn random_key(&self) -> Bytes {
        Bytes::copy_from_slice(&self.key(self.random_row()))
    }

    /// The first row of a random range of `count` neighbouring rows.
    pub fn random_start(&self, count: u64) -> u64 {
        random::below(self.rows.saturating_sub(count) + 1)
    }
}

/// Source of random values.
pub struct Values(Bytes);

impl Default for Values {
    fn default() -> Self {
        let mut pool = vec![0; POOL_BYTES];
        random::fill(&mut pool);
        Values(pool.into())
    }
}

impl Values {
    /// A random value of 8 to 100 bytes.
    pub fn random(&self) -> &[u8] {
        let len = random::range(VALUE_BYTES_MIN as u64..VALUE_BYTES_MAX as u64 + 1) as usize;
        let at = random::below((POOL_BYTES - VALUE_BYTES_MAX) as u64) as usize;
        &self.0[at..at + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_with_their_rows_and_reach_over_all_below_their_prefix() {
        for rows in [1, 2, 1000, 123_457] {
            let table = Table::new(rows);
            let keys: Vec<_> = (0..rows).map(|row| table.key(row)).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
            let [begin, end] = KEYS;
            assert!(keys.iter().all(|key| key[..] > *begin && key[..] < *end));
            assert!(rows < 1000 || keys[keys.len() - 1][PREFIX.len()] > 0xf0);
        }
    }

    #[test]
    fn a_range_of_neighbours_ends_inside_the_table_or_at_its_end() {
        let table = Table::new(100);
        for _ in 0..1000 {
            let start = table.random_start(63);
            assert!(start + 63 <= 100, "{start}");
            assert!(table.key(start)[..] < table.end_key(start + 63)[..]);
        }
        assert_eq!(table.random_start(1000), 0);
    }

    #[test]
    fn values_have_8_to_100_bytes() {
        let values = Values::default();
        let lens: Vec<usize> = (0..5000).map(|_| values.random().len()).collect();
        assert_eq!(
            (lens.iter().min(), lens.iter().max()),
            (Some(&8), Some(&100))
        );
    }
}
