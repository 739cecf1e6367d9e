//! Mutations and packed batches of them.
//!
//! A client packs the mutations of a transaction once; proxies slice and tag the same bytes, log servers store them,
//! storage servers parse them. The form of one mutation:
//!
//! ```text
//! kind: u8 | first length: varint | second length: varint | first bytes | second bytes
//! ```
//!
//! where (first, second) is (key, value) for a set, (begin, end) for a clear and (key, operand) for an
//! atomic operation.

use crate::varint;
use bytes::{BufMut, Bytes, BytesMut};

macro_rules! kinds {
    ($($kind:ident = $code:literal $name:literal,)*) => {
        /// The kind of a mutation. The numbers are those of FoundationDB's public API and are stored on disk.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum MutationKind {
            $($kind = $code,)*
        }

        impl MutationKind {
            pub const ALL: &[MutationKind] = &[$(MutationKind::$kind),*];

            pub fn from_u8(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(MutationKind::$kind),)*
                    _ => None,
                }
            }

            /// Its name in the shell and in the bindings.
            pub fn name(self) -> &'static str {
                match self {
                    $(MutationKind::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    Set = 0 "set",
    ClearRange = 1 "clear",
    Add = 2 "add",
    And = 6 "bit_and",
    Or = 7 "bit_or",
    Xor = 8 "bit_xor",
    AppendIfFits = 9 "append_if_fits",
    Max = 12 "max",
    Min = 13 "min",
    SetVersionstampedKey = 14 "set_versionstamped_key",
    SetVersionstampedValue = 15 "set_versionstamped_value",
    ByteMin = 16 "byte_min",
    ByteMax = 17 "byte_max",
    CompareAndClear = 20 "compare_and_clear",
}

impl MutationKind {
    /// True for operations that use the existing value: neither a set nor a clear.
    pub fn is_atomic(self) -> bool {
        !matches!(self, MutationKind::Set | MutationKind::ClearRange)
    }
    pub fn is_versionstamped(self) -> bool {
        matches!(
            self,
            MutationKind::SetVersionstampedKey | MutationKind::SetVersionstampedValue
        )
    }
}

/// A mutation that owns its bytes (as slices of the batch it came from).
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Mutation {
    pub kind: MutationKind,
    /// Key, or begin of a cleared range.
    pub first: Bytes,
    /// Value, operand, or end of a cleared range.
    pub second: Bytes,
}

impl Mutation {
    pub fn set(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Mutation {
            kind: MutationKind::Set,
            first: key.into(),
            second: value.into(),
        }
    }
    pub fn clear_range(begin: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Mutation {
            kind: MutationKind::ClearRange,
            first: begin.into(),
            second: end.into(),
        }
    }
    pub fn as_ref(&self) -> MutationRef<'_> {
        MutationRef::new(self.kind, &self.first, &self.second)
    }
}

/// A mutation inside a packed batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MutationRef<'a> {
    pub kind: MutationKind,
    pub first: &'a [u8],
    pub second: &'a [u8],
}

impl<'a> MutationRef<'a> {
    pub fn new(kind: MutationKind, first: &'a [u8], second: &'a [u8]) -> Self {
        MutationRef {
            kind,
            first,
            second,
        }
    }
    pub fn set(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::new(MutationKind::Set, key, value)
    }
    pub fn clear_range(begin: &'a [u8], end: &'a [u8]) -> Self {
        Self::new(MutationKind::ClearRange, begin, end)
    }
    pub fn packed_len(&self) -> usize {
        1 + varint::len_u32(self.first.len() as u32)
            + varint::len_u32(self.second.len() as u32)
            + self.first.len()
            + self.second.len()
    }
    pub fn pack(&self, out: &mut impl BufMut) {
        out.put_u8(self.kind as u8);
        varint::put_u32(out, self.first.len() as u32);
        varint::put_u32(out, self.second.len() as u32);
        out.put_slice(self.first);
        out.put_slice(self.second);
    }
}

/// Positions of the parts of one mutation in a packed batch.
struct Spans {
    kind: MutationKind,
    first: std::ops::Range<usize>,
    second: std::ops::Range<usize>,
}

#[inline]
fn parse_at(input: &[u8], at: &mut usize) -> Option<Spans> {
    let kind = MutationKind::from_u8(*input.get(*at)?)?;
    *at += 1;
    let first_len = varint::get_u32(input, at)? as usize;
    let second_len = varint::get_u32(input, at)? as usize;
    let first_end = at.checked_add(first_len)?;
    let second_end = first_end.checked_add(second_len)?;
    if second_end > input.len() {
        return None;
    }
    let spans = Spans {
        kind,
        first: *at..first_end,
        second: first_end..second_end,
    };
    *at = second_end;
    Some(spans)
}

/// Many mutations in one byte string. Building is append-only; [`MutationBatch::parse`] checks bytes from
/// outside once, after which iterating cannot fail.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MutationBatch {
    bytes: Bytes,
}

impl MutationBatch {
    /// Checks that `bytes` is a whole number of well-formed mutations. `None` if not.
    pub fn parse(bytes: Bytes) -> Option<Self> {
        let mut at = 0;
        while at < bytes.len() {
            parse_at(&bytes, &mut at)?;
        }
        Some(MutationBatch { bytes })
    }
    pub fn from_mutations<'a>(mutations: impl IntoIterator<Item = MutationRef<'a>>) -> Self {
        let mut out = BytesMut::new();
        for mutation in mutations {
            mutation.pack(&mut out);
        }
        MutationBatch {
            bytes: out.freeze(),
        }
    }
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Borrowed mutations, in order; allocates nothing.
    pub fn iter(&self) -> impl Iterator<Item = MutationRef<'_>> {
        iter_packed(&self.bytes).map(|(mutation, _)| mutation)
    }
    /// Mutations whose keys and values are slices that keep this batch alive.
    pub fn iter_owned(&self) -> impl Iterator<Item = Mutation> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= self.bytes.len() {
                return None;
            }
            let s = parse_at(&self.bytes, &mut at).expect("batch was checked when parsed");
            Some(Mutation {
                kind: s.kind,
                first: self.bytes.slice(s.first),
                second: self.bytes.slice(s.second),
            })
        })
    }
}

/// Iterates over packed bytes that were checked before, giving each mutation and the offset of its end.
///
/// # Panics
/// If the bytes are malformed: check them first with [`MutationBatch::parse`].
pub fn iter_packed(bytes: &[u8]) -> impl Iterator<Item = (MutationRef<'_>, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        let s = parse_at(bytes, &mut at).expect("batch was checked when parsed");
        let mutation = MutationRef::new(s.kind, &bytes[s.first], &bytes[s.second]);
        Some((mutation, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_mutation() -> impl Strategy<Value = Mutation> {
        let kind = (0u8..=20).prop_filter_map("a known kind", MutationKind::from_u8);
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        (kind, bytes(), bytes()).prop_map(|(kind, first, second)| Mutation {
            kind,
            first,
            second,
        })
    }

    proptest! {
        #[test]
        fn any_batch_comes_back_as_slices_of_itself(mutations in proptest::collection::vec(any_mutation(), 0..8)) {
            let batch = MutationBatch::from_mutations(mutations.iter().map(Mutation::as_ref));
            let parsed = MutationBatch::parse(batch.bytes().clone()).expect("well formed");
            prop_assert_eq!(parsed.iter_owned().collect::<Vec<_>>(), &mutations[..]);
            let mut end = 0;
            for ((packed, after), mutation) in iter_packed(batch.bytes()).zip(&mutations) {
                end += packed.packed_len();
                prop_assert_eq!((packed, after), (mutation.as_ref(), end));
            }
            prop_assert_eq!(end, batch.bytes().len());
        }

        #[test]
        fn hostile_bytes_are_refused_or_iterate_to_their_end(
            bytes in proptest::collection::vec(prop_oneof![0u8..=20, any::<u8>()], 0..80),
        ) {
            if let Some(batch) = MutationBatch::parse(Bytes::from(bytes.clone())) {
                let end = iter_packed(&bytes).last().map_or(0, |(_, end)| end);
                prop_assert_eq!(end, bytes.len());
                prop_assert_eq!(batch.iter().count(), batch.iter_owned().count());
            }
        }
    }

    #[test]
    fn every_kind_keeps_its_number() {
        let kinds: Vec<MutationKind> = (0..=u8::MAX).filter_map(MutationKind::from_u8).collect();
        assert_eq!(kinds.len(), 14);
        assert!(
            kinds
                .iter()
                .all(|&kind| MutationKind::from_u8(kind as u8) == Some(kind))
        );
    }

    #[test]
    fn a_packed_batch_gives_back_its_mutations() {
        let mutations = [
            Mutation::set(&b"k"[..], vec![7u8; 300]),
            Mutation::clear_range(&b"a"[..], &b"b"[..]),
            Mutation {
                kind: MutationKind::Add,
                first: Bytes::new(),
                second: Bytes::from_static(b"\x01"),
            },
        ];
        let batch = MutationBatch::from_mutations(mutations.iter().map(Mutation::as_ref));
        let parsed = MutationBatch::parse(batch.bytes().clone()).expect("well formed");
        assert_eq!(parsed.iter_owned().collect::<Vec<_>>(), mutations);
        assert_eq!(
            batch.bytes().len(),
            mutations
                .iter()
                .map(|m| m.as_ref().packed_len())
                .sum::<usize>()
        );
        assert!(MutationBatch::parse(batch.bytes().slice(..batch.bytes().len() - 1)).is_none());
        assert!(
            MutationBatch::parse(Bytes::from_static(&[3, 0, 0])).is_none(),
            "unknown kind"
        );
    }
}
