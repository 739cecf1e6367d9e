//! Unsigned LEB128 integers, the length prefix of everything packed.

use bytes::BufMut;

/// Appends `value`, 7 bits a byte, low bits first: 1 byte below 128, at most 5.
#[inline]
pub fn put_u32(out: &mut impl BufMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Length of the longest encoding in bytes.
pub const WIDEST: usize = 5;

/// Writes `value` into exactly [`WIDEST`] bytes: for a length field that is filled in after its content is written.
pub fn put_wide_u32(out: &mut [u8], value: u32) {
    for (place, byte) in out[..WIDEST].iter_mut().enumerate() {
        let goes_on = if place + 1 < WIDEST { 0x80 } else { 0 };
        *byte = (value >> (7 * place)) as u8 & 0x7f | goes_on;
    }
}

/// Reads a value at `*at` and moves `*at` behind it. `None` if the input ends or the value exceeds 32 bits.
#[inline]
pub fn get_u32(input: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let byte = *input.get(*at)?;
        *at += 1;
        if shift == 28 && byte > 0x0f {
            return None;
        }
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub const fn len_u32(value: u32) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_value_comes_back_from_between_other_bytes(
            shift in 0u32..32, bits in any::<u32>(), before in 0usize..3,
        ) {
            let value = bits >> shift;
            let mut out = vec![0xff; before];
            put_u32(&mut out, value);
            prop_assert_eq!(out.len(), before + len_u32(value));
            out.push(0xff);
            let mut at = before;
            prop_assert_eq!(get_u32(&out, &mut at), Some(value));
            prop_assert_eq!(at, out.len() - 1);
            let mut wide = [0; WIDEST];
            put_wide_u32(&mut wide, value);
            prop_assert_eq!(get_u32(&wide, &mut 0), Some(value));
        }

        #[test]
        fn hostile_bytes_are_refused_or_read_within_five(input in proptest::collection::vec(any::<u8>(), 0..8)) {
            let mut at = 0;
            if let Some(value) = get_u32(&input, &mut at) {
                prop_assert!((len_u32(value)..=5).contains(&at) && at <= input.len());
            }
        }
    }

    #[test]
    fn every_length_comes_back() {
        for value in [
            0,
            1,
            127,
            128,
            16383,
            16384,
            2_097_151,
            2_097_152,
            1 << 28,
            u32::MAX,
        ] {
            let mut out = Vec::new();
            put_u32(&mut out, value);
            assert_eq!(out.len(), len_u32(value));
            let mut at = 0;
            assert_eq!(get_u32(&out, &mut at), Some(value));
            assert_eq!(at, out.len());
            assert_eq!(get_u32(&out[..out.len() - 1], &mut 0), None);
        }
        assert_eq!(get_u32(&[0xff, 0xff, 0xff, 0xff, 0x7f], &mut 0), None);
    }
}
