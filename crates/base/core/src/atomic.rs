//! The effect of each atomic operation on the existing value.
//!
//! An atomic operation travels as (key, operand) and becomes a value only where it is applied: on every storage server
//! of the team, in a client that reads its own writes, in the proxies' copy of the system keyspace. All of them call
//! [`apply`]. It is a pure function of (kind, existing value, operand), so their results are identical to the byte.
//!
//! The semantics are FoundationDB's at API version 7.3. Bitwise and numeric operations give a value of exactly
//! the operand's length: the existing value is cut to it, or extended with zero bytes at its high end (numbers
//! are unsigned and little-endian). An absent key and an empty value differ for `and` and `min`: absent gives the
//! operand, empty counts as zero.
//!
//! The two versionstamped operations do not depend on the existing value. The commit proxy turns them into plain sets
//! with [`place_versionstamp`] once the commit version is known, before any log server receives them.

use crate::key::{Key, KeyRange, VALUE_BYTES_MAX};
use crate::mutation::MutationKind;
use crate::version::{Version, Versionstamp};
use bytes::Bytes;
use std::cmp::Ordering;

/// The value of a key after `kind` with `operand`, where `existing` is its value before; `None` means absent.
///
/// # Panics
/// On a range clear, and on a versionstamped operation that no proxy has resolved. Neither has a meaning for the value
/// of one key, and their arrival here means that the commit pipeline is broken.
pub fn apply(kind: MutationKind, existing: Option<&[u8]>, operand: &[u8]) -> Option<Bytes> {
    if kind == MutationKind::CompareAndClear {
        return existing
            .filter(|value| *value != operand)
            .map(Bytes::copy_from_slice);
    }
    let Some(value) = existing else {
        assert_has_a_value(kind);
        return Some(Bytes::copy_from_slice(operand));
    };
    Some(match kind {
        MutationKind::Set => Bytes::copy_from_slice(operand),
        MutationKind::Add => add(value, operand),
        MutationKind::And => bitwise(value, operand, |old, new| old & new),
        MutationKind::Or => bitwise(value, operand, |old, new| old | new),
        MutationKind::Xor => bitwise(value, operand, |old, new| old ^ new),
        MutationKind::AppendIfFits => append_if_fits(value, operand),
        MutationKind::Max => pick_number(value, operand, Ordering::Greater),
        MutationKind::Min => pick_number(value, operand, Ordering::Less),
        MutationKind::ByteMin => Bytes::copy_from_slice(value.min(operand)),
        MutationKind::ByteMax => Bytes::copy_from_slice(value.max(operand)),
        MutationKind::CompareAndClear => unreachable!("handled above"),
        MutationKind::ClearRange
        | MutationKind::SetVersionstampedKey
        | MutationKind::SetVersionstampedValue => {
            panic!("{kind:?} has no meaning for the value of one key")
        }
    })
}

fn assert_has_a_value(kind: MutationKind) {
    assert!(
        kind != MutationKind::ClearRange && !kind.is_versionstamped(),
        "{kind:?} has no meaning for the value of one key"
    );
}

/// The byte of `value` at `at`, with zero bytes beyond its end.
#[inline]
fn byte_at(value: &[u8], at: usize) -> u8 {
    value.get(at).copied().unwrap_or(0)
}

fn add(value: &[u8], operand: &[u8]) -> Bytes {
    // Fast path: nearly all counters have eight bytes.
    if let (Ok(old), Ok(new)) = (<[u8; 8]>::try_from(value), <[u8; 8]>::try_from(operand)) {
        let sum = u64::from_le_bytes(old).wrapping_add(u64::from_le_bytes(new));
        return Bytes::copy_from_slice(&sum.to_le_bytes());
    }
    let mut out = Vec::with_capacity(operand.len());
    let mut carry = 0u16;
    for (at, &new) in operand.iter().enumerate() {
        let sum = u16::from(byte_at(value, at)) + u16::from(new) + carry;
        out.push(sum as u8);
        carry = sum >> 8;
    }
    Bytes::from(out)
}

fn bitwise(value: &[u8], operand: &[u8], op: impl Fn(u8, u8) -> u8) -> Bytes {
    let mut out = operand.to_vec();
    let both = value.len().min(out.len());
    for (new, &old) in out[..both].iter_mut().zip(value) {
        *new = op(old, *new);
    }
    for new in &mut out[both..] {
        *new = op(0, *new);
    }
    Bytes::from(out)
}

fn append_if_fits(value: &[u8], operand: &[u8]) -> Bytes {
    // An append that does not fit is dropped without an error: on a storage server the transaction has committed
    // already.
    if operand.is_empty() || value.len() + operand.len() > VALUE_BYTES_MAX {
        return Bytes::copy_from_slice(value);
    }
    Bytes::from([value, operand].concat())
}

/// Keeps the existing number if it compares as `wanted` with the operand. The result always has the operand's length:
/// bytes of the existing value beyond it are ignored and dropped.
fn pick_number(value: &[u8], operand: &[u8], wanted: Ordering) -> Bytes {
    let high_to_low = (0..operand.len()).rev();
    let order = high_to_low
        .map(|at| byte_at(value, at).cmp(&operand[at]))
        .find(|order| order.is_ne());
    if order == Some(wanted) {
        Bytes::from(
            (0..operand.len())
                .map(|at| byte_at(value, at))
                .collect::<Vec<u8>>(),
        )
    } else {
        Bytes::copy_from_slice(operand)
    }
}

/// Number of bytes at the end of a versionstamped key or value that give the offset of the stamp.
const OFFSET_BYTES: usize = 4;

/// Offset of the stamp in the key or value of a versionstamped operation: the last four bytes, little-endian. `None`
/// if there are fewer, or if the ten bytes of a stamp do not fit at that offset into the bytes before them.
pub fn versionstamp_offset(param: &[u8]) -> Option<usize> {
    let (text, offset) = param.split_last_chunk::<OFFSET_BYTES>()?;
    // Signed in the public API; a negative offset is beyond any length when read as unsigned.
    let offset = u32::from_le_bytes(*offset) as usize;
    (offset.checked_add(Versionstamp::LEN)? <= text.len()).then_some(offset)
}

/// The key or value that a versionstamped operation writes: `param` without its last four bytes, with `stamp` over the
/// ten bytes at the offset that they give. `None` if it does not fit.
pub fn place_versionstamp(param: &[u8], stamp: Versionstamp) -> Option<Vec<u8>> {
    let offset = versionstamp_offset(param)?;
    let mut out = without_offset(param).to_vec();
    out[offset..offset + Versionstamp::LEN].copy_from_slice(&stamp.0);
    Some(out)
}

/// `param` without the offset at its end, which [`versionstamp_offset`] has found.
pub fn without_offset(param: &[u8]) -> &[u8] {
    &param[..param.len() - OFFSET_BYTES]
}

/// All keys that a `SetVersionstampedKey` may write if it commits at `version_min` or above. A transaction must treat
/// this range as written, and as unreadable, while its stamp is unknown. `None` as for [`place_versionstamp`].
pub fn versionstamped_key_range(param: &[u8], version_min: Version) -> Option<KeyRange> {
    let begin = place_versionstamp(param, Versionstamp::new(version_min, 0))?;
    let mut end = place_versionstamp(param, Versionstamp([0xff; Versionstamp::LEN]))?;
    end.push(0);
    Some(KeyRange {
        begin: Key::from(begin),
        end: Key::from(end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use MutationKind::*;
    use proptest::prelude::*;

    /// (kind, existing, operand, result): `None` is an absent key.
    type Vector = (
        MutationKind,
        Option<&'static [u8]>,
        &'static [u8],
        Option<&'static [u8]>,
    );

    fn check(vectors: &[Vector]) {
        for &(kind, existing, operand, want) in vectors {
            let got = apply(kind, existing, operand);
            assert_eq!(
                got.as_deref(),
                want,
                "{kind:?} of {existing:?} with {operand:?}"
            );
        }
    }

    #[test]
    fn add_is_little_endian_and_as_long_as_the_operand() {
        check(&[
            (Add, None, b"\x05\x00", Some(b"\x05\x00")),
            (Add, Some(b""), b"\x05\x00", Some(b"\x05\x00")),
            (Add, Some(b"\x01"), b"", Some(b"")),
            (Add, Some(b"\xff\x00"), b"\x01\x00", Some(b"\x00\x01")),
            (Add, Some(b"\xff"), b"\x01\x00\x00", Some(b"\x00\x01\x00")),
            (Add, Some(b"\xff\xff\x07"), b"\x02\x00", Some(b"\x01\x00")), // the third byte is cut off, the carry lost
            (
                Add,
                Some(&[0xff; 8]),
                &[1, 0, 0, 0, 0, 0, 0, 0],
                Some(&[0; 8]),
            ),
            (
                Add,
                Some(&[5, 0, 0, 0, 0, 0, 0, 0]),
                &[0xff; 8],
                Some(&[4, 0, 0, 0, 0, 0, 0, 0]),
            ), // plus -1
        ]);
    }

    #[test]
    fn and_of_an_absent_key_is_the_operand_and_of_an_empty_value_is_zero() {
        check(&[
            (And, None, b"\x0f\xf0", Some(b"\x0f\xf0")),
            (And, Some(b""), b"\x0f\xf0", Some(b"\x00\x00")),
            (And, Some(b"\x3c"), b"\x0f\xf0", Some(b"\x0c\x00")),
            (And, Some(b"\x3c\xff\xff"), b"\x0f", Some(b"\x0c")),
            (And, Some(b"\x3c"), b"", Some(b"")),
        ]);
    }

    #[test]
    fn or_and_xor_extend_with_zeros_and_cut_to_the_operand() {
        check(&[
            (Or, None, b"\x0f", Some(b"\x0f")),
            (Or, Some(b""), b"\x0f", Some(b"\x0f")),
            (Or, Some(b"\x30"), b"\x0f\xf0", Some(b"\x3f\xf0")),
            (Or, Some(b"\x30\xff"), b"\x0f", Some(b"\x3f")),
            (Or, Some(b"\x30"), b"", Some(b"")),
            (Xor, None, b"\x0f", Some(b"\x0f")),
            (Xor, Some(b""), b"\x0f", Some(b"\x0f")),
            (Xor, Some(b"\x3c"), b"\x0f\xf0", Some(b"\x33\xf0")),
            (Xor, Some(b"\x3c\xff"), b"\x0f", Some(b"\x33")),
            (Xor, Some(b"\x3c"), b"", Some(b"")),
        ]);
    }

    #[test]
    fn max_and_min_compare_little_endian_numbers_of_the_operands_length() {
        check(&[
            (Max, None, b"\x01", Some(b"\x01")),
            (Max, Some(b""), b"\x00\x00", Some(b"\x00\x00")),
            (Max, Some(b"\x05"), b"", Some(b"")),
            (Max, Some(b"\x01\x02"), b"\xff\x01", Some(b"\x01\x02")),
            (Max, Some(b"\xff\x01"), b"\x01\x02", Some(b"\x01\x02")),
            (Max, Some(b"\x09"), b"\x05\x00", Some(b"\x09\x00")),
            (Max, Some(b"\x09"), b"\x05\x01", Some(b"\x05\x01")),
            (Max, Some(b"\x04\xff"), b"\x05", Some(b"\x05")), // the high byte is cut off before comparing
            (Max, Some(b"\x06\xff"), b"\x05", Some(b"\x06")),
            (Min, None, b"\x05", Some(b"\x05")),
            (Min, Some(b""), b"\x05\x01", Some(b"\x00\x00")),
            (Min, Some(b"\x05"), b"", Some(b"")),
            (Min, Some(b"\xff\x01"), b"\x01\x02", Some(b"\xff\x01")),
            (Min, Some(b"\x01\x02"), b"\xff\x01", Some(b"\xff\x01")),
            (Min, Some(b"\x09"), b"\x05\x01", Some(b"\x09\x00")),
            (Min, Some(b"\x09"), b"\x05\x00", Some(b"\x05\x00")),
            (Min, Some(b"\x04\xff"), b"\x05", Some(b"\x04")),
            (Min, Some(b"\x05"), b"\x05", Some(b"\x05")),
        ]);
    }

    #[test]
    fn byte_min_and_byte_max_compare_whole_strings_and_keep_their_lengths() {
        check(&[
            (ByteMin, None, b"b", Some(b"b")),
            (ByteMin, Some(b""), b"b", Some(b"")),
            (ByteMin, Some(b"a\xff"), b"b", Some(b"a\xff")),
            (ByteMin, Some(b"bb"), b"b", Some(b"b")),
            (ByteMin, Some(b"b"), b"", Some(b"")),
            (ByteMax, None, b"b", Some(b"b")),
            (ByteMax, Some(b""), b"b", Some(b"b")),
            (ByteMax, Some(b"bb"), b"b", Some(b"bb")),
            (ByteMax, Some(b"a\xff"), b"b", Some(b"b")),
            (ByteMax, Some(b"b"), b"", Some(b"b")),
        ]);
    }

    #[test]
    fn compare_and_clear_removes_only_an_equal_value() {
        check(&[
            (CompareAndClear, None, b"a", None),
            (CompareAndClear, None, b"", None),
            (CompareAndClear, Some(b"a"), b"a", None),
            (CompareAndClear, Some(b""), b"", None),
            (CompareAndClear, Some(b"ab"), b"a", Some(b"ab")),
            (CompareAndClear, Some(b""), b"a", Some(b"")),
        ]);
    }

    #[test]
    fn an_append_that_would_pass_the_limit_leaves_the_value_as_it_was() {
        check(&[
            (AppendIfFits, None, b"a", Some(b"a")),
            (AppendIfFits, None, b"", Some(b"")),
            (AppendIfFits, Some(b""), b"a", Some(b"a")),
            (AppendIfFits, Some(b"a"), b"", Some(b"a")),
            (AppendIfFits, Some(b"a"), b"bc", Some(b"abc")),
        ]);
        let nearly = vec![7u8; VALUE_BYTES_MAX - 2];
        assert_eq!(
            apply(AppendIfFits, Some(&nearly), b"ab").map(|v| v.len()),
            Some(VALUE_BYTES_MAX)
        );
        assert_eq!(
            apply(AppendIfFits, Some(&nearly), b"abc").as_deref(),
            Some(&nearly[..])
        );
    }

    #[test]
    #[should_panic(expected = "no meaning")]
    fn an_unresolved_versionstamp_never_becomes_a_value() {
        apply(SetVersionstampedValue, None, &[0; 14]);
    }

    #[test]
    fn a_versionstamp_goes_where_the_last_four_bytes_say() {
        let stamp = Versionstamp::new(0x0102_0304_0506_0708, 0x090a);
        let stamp_bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let param = [&b"ab"[..], &[0xee; 10], b"z", &2u32.to_le_bytes()].concat();
        assert_eq!(
            place_versionstamp(&param, stamp),
            Some([&b"ab"[..], &stamp_bytes, b"z"].concat())
        );
        let exact = [&[0; 10][..], &0u32.to_le_bytes()].concat();
        assert_eq!(
            place_versionstamp(&exact, stamp),
            Some(stamp_bytes.to_vec())
        );
    }

    #[test]
    fn a_versionstamp_that_does_not_fit_is_refused() {
        let stamp = Versionstamp::new(1, 0);
        for offset in [1u32, 2, 0x7fff_ffff, 0x8000_0000, u32::MAX, u32::MAX - 9] {
            let param = [&[0; 10][..], &offset.to_le_bytes()].concat();
            assert_eq!(place_versionstamp(&param, stamp), None, "offset {offset}");
        }
        for len in 0..14 {
            assert_eq!(
                place_versionstamp(&vec![0; len], stamp),
                None,
                "{len} bytes"
            );
        }
    }

    #[test]
    fn the_range_of_a_versionstamped_key_holds_every_key_it_may_become() {
        let param = [&b"log/"[..], &[0; 10], b"!", &4u32.to_le_bytes()].concat();
        let range = versionstamped_key_range(&param, 500).expect("well formed");
        for stamp in [
            Versionstamp::new(500, 0),
            Versionstamp::new(9_999, 7),
            Versionstamp([0xff; 10]),
        ] {
            assert!(range.contains(&place_versionstamp(&param, stamp).expect("well formed")));
        }
        assert!(!range.contains(
            &place_versionstamp(&param, Versionstamp::new(499, u16::MAX)).expect("well formed")
        ));
        assert_eq!(versionstamped_key_range(b"short", 0), None);
    }

    /// The first eight bytes as a number, zero-extended.
    fn number(bytes: &[u8]) -> u64 {
        (0..8)
            .map(|at| u64::from(byte_at(bytes, at)) << (8 * at))
            .sum()
    }

    proptest! {
        #[test]
        fn numeric_operations_agree_with_integers(
            value in proptest::collection::vec(any::<u8>(), 0..=8),
            operand in proptest::collection::vec(any::<u8>(), 1..=8),
        ) {
            let mask = u64::MAX >> (64 - 8 * operand.len());
            let (old, new) = (number(&value) & mask, number(&operand));
            let models = [
                (Add, old.wrapping_add(new) & mask),
                (And, old & new),
                (Or, old | new),
                (Xor, old ^ new),
                (Max, old.max(new)),
                (Min, old.min(new)),
            ];
            for (kind, want) in models {
                let got = apply(kind, Some(&value), &operand).expect("a value");
                prop_assert_eq!(got.len(), operand.len(), "{:?}", kind);
                prop_assert_eq!(number(&got), want, "{:?}", kind);
            }
        }

        #[test]
        fn no_versionstamp_parameter_panics(param in proptest::collection::vec(any::<u8>(), 0..40)) {
            let placed = place_versionstamp(&param, Versionstamp::new(7, 7));
            prop_assert_eq!(placed.is_some(), versionstamp_offset(&param).is_some());
            if let Some(placed) = placed {
                prop_assert_eq!(placed.len(), param.len() - OFFSET_BYTES);
            }
        }
    }
}
