//! Values that tell which row they are of, and whether they are whole.

use bytes::Bytes;

/// The least that a value has: row, serial number, sum.
pub const VALUE_BYTES_MIN: usize = 24;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(MIX);
    word ^ (word >> 29)
}

fn sum(row: u64, serial: u64, bytes: usize) -> u64 {
    mixed(row.wrapping_add(MIX) ^ mixed(serial ^ mixed(bytes as u64)))
}

/// A value of `bytes`, at least [`VALUE_BYTES_MIN`]. Its filler is a byte that the sum decides.
pub fn value(row: u64, serial: u64, bytes: usize) -> Bytes {
    let sum = sum(row, serial, bytes);
    let mut value = vec![sum as u8; bytes.max(VALUE_BYTES_MIN)];
    for (place, word) in value.chunks_exact_mut(8).zip([row, serial, sum]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    value.into()
}

fn word(value: &[u8], at: usize) -> Option<u64> {
    let bytes = value.get(8 * at..8 * at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The serial number; `None` if it is not a whole value of this row.
pub fn serial_of(value: &[u8], row: u64) -> Option<u64> {
    let (of, serial, said) = (word(value, 0)?, word(value, 1)?, word(value, 2)?);
    let is_whole = of == row && said == sum(row, serial, value.len());
    let filler = value.get(VALUE_BYTES_MIN..)?;
    (is_whole && filler.iter().all(|byte| *byte == said as u8)).then_some(serial)
}

/// A row's key: 16 bytes (§5.1), in the order of rows.
pub fn key(row: u64) -> [u8; 16] {
    let mut key = *b"user....????????";
    key[8..].copy_from_slice(&row.to_be_bytes());
    key
}

/// The row of a key.
pub fn row_of(key: &[u8]) -> Option<u64> {
    let row = u64::from_be_bytes(key.last_chunk().copied()?);
    (self::key(row)[..] == *key).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_by_its_row_and_no_byte_of_it_may_change() {
        for bytes in [24, 25, 100] {
            let whole = value(7, 9, bytes);
            assert_eq!(whole.len(), bytes);
            assert_eq!(serial_of(&whole, 7), Some(9));
            assert_eq!(serial_of(&whole, 8), None);
            assert_eq!(serial_of(&whole[..bytes - 1], 7), None);
            for at in 0..bytes {
                let mut damaged = whole.to_vec();
                damaged[at] ^= 1;
                assert_eq!(serial_of(&damaged, 7), None, "byte {at}");
            }
        }
    }

    #[test]
    fn a_key_leads_back_to_its_row() {
        for row in [0, 1, u64::MAX] {
            assert_eq!(row_of(&key(row)), Some(row));
        }
        assert_eq!(row_of(b"user"), None);
        assert_eq!(row_of(b"xser....????????"), None);
    }
}
