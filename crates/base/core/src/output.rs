//! The target of encoding: a buffer, and long byte strings that are shared instead of copied.
//!
//! A body of 9 MB that goes to three log servers is one string in three messages. Each copy of it would hold up the
//! event loop for as long as the copy takes.

use bytes::{Bytes, BytesMut};

/// A shorter string is copied: that costs less than a system call of its own.
const SHARED_FROM: usize = 128 << 10;

/// Encoded bytes in order, some of them [shared](Output::put_shared).
#[derive(Default)]
pub struct Output {
    copied: BytesMut,
    /// Strings that were not copied, each with the length of `copied` at that time.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
    copies_all: bool,
}

/// A position in an [`Output`]: the end of its content when [`Output::mark`] was called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    copied: usize,
    shared: usize,
    shared_bytes: usize,
}

impl Mark {
    /// The position after so many bytes that were copied next.
    pub fn after_copied(self, bytes: usize) -> Mark {
        Mark {
            copied: self.copied + bytes,
            ..self
        }
    }
}

impl Output {
    pub fn new() -> Self {
        Self::default()
    }

    /// An output that shares nothing: for bytes that must be contiguous.
    pub fn copying() -> Self {
        Output {
            copies_all: true,
            ..Self::default()
        }
    }

    /// The buffer for bytes that are copied.
    #[inline]
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.copied
    }

    /// Appends `bytes`, without a copy if they are long. Shared bytes stay in memory until they are written.
    #[inline]
    pub fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_FROM || self.copies_all {
            self.copied.extend_from_slice(bytes);
        } else {
            self.shared.push((self.copied.len(), bytes.clone()));
            self.shared_bytes += bytes.len();
        }
    }

    pub fn len(&self) -> usize {
        self.copied.len() + self.shared_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.shared.is_empty()
    }

    pub fn mark(&self) -> Mark {
        Mark {
            copied: self.copied.len(),
            shared: self.shared.len(),
            shared_bytes: self.shared_bytes,
        }
    }

    /// How many bytes came after `mark`.
    pub fn len_from(&self, mark: Mark) -> usize {
        self.len() - mark.copied - mark.shared_bytes
    }

    /// Removes everything after `mark`. Frees the memory if no copied bytes remain.
    pub fn truncate(&mut self, mark: Mark) {
        self.shared.truncate(mark.shared);
        self.shared_bytes = mark.shared_bytes;
        if mark.copied == 0 {
            self.copied = BytesMut::new();
        } else {
            self.copied.truncate(mark.copied);
        }
    }

    /// The bytes after `mark`, in order, in pieces.
    pub fn pieces_from(&self, mark: Mark) -> impl Iterator<Item = &[u8]> {
        let (copied, shared) = (&self.copied, &self.shared[mark.shared..]);
        let begins = std::iter::once(mark.copied).chain(shared.iter().map(|(at, _)| *at));
        let ends = shared.iter().map(|(at, _)| *at).chain([copied.len()]);
        let strings = shared.iter().map(|(_, bytes)| &bytes[..]).chain([&[][..]]);
        let runs = begins
            .zip(ends)
            .map(move |(begin, end)| &copied[begin..end]);
        runs.zip(strings).flat_map(|(run, string)| [run, string])
    }

    /// Overwrites the first copied bytes after `mark`: for a header that is known only when the rest is encoded.
    ///
    /// Panics if fewer bytes were copied, or if shared bytes lie before their end.
    pub fn patch(&mut self, mark: Mark, bytes: &[u8]) {
        let end = mark.copied + bytes.len();
        let after = self.shared.get(mark.shared);
        assert!(
            after.is_none_or(|(at, _)| *at >= end),
            "shared bytes are patched"
        );
        self.copied[mark.copied..end].copy_from_slice(bytes);
    }

    /// Takes everything, in order. The buffer keeps its spare capacity.
    pub fn take(&mut self) -> Vec<Bytes> {
        let mut copied = self.copied.split().freeze();
        self.shared_bytes = 0;
        let mut pieces = Vec::with_capacity(2 * self.shared.len() + 1);
        let mut before = 0;
        for (at, string) in self.shared.drain(..) {
            if at > before {
                pieces.push(copied.split_to(at - before));
                before = at;
            }
            pieces.push(string);
        }
        if !copied.is_empty() {
            pieces.push(copied);
        }
        pieces
    }

    /// Everything in one piece; copied into one buffer if some of it is shared.
    pub fn into_bytes(mut self) -> Bytes {
        if self.shared.is_empty() {
            return self.copied.freeze();
        }
        let mut whole = BytesMut::with_capacity(self.len());
        for piece in self.take() {
            whole.extend_from_slice(&piece);
        }
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn string(number: usize, bytes: usize) -> Bytes {
        Bytes::from(vec![number as u8; bytes])
    }

    proptest! {
        #[test]
        fn shared_and_copied_strings_come_out_in_order(
            lengths in proptest::collection::vec(prop_oneof![0usize..40, SHARED_FROM - 1..SHARED_FROM + 3], 0..12),
            cut in 0usize..12,
        ) {
            let (mut out, mut copying) = (Output::new(), Output::copying());
            let (mut model, mut mark, mut cut_at) = (Vec::new(), out.mark(), 0);
            for (number, bytes) in lengths.iter().enumerate() {
                if number == cut {
                    (mark, cut_at) = (out.mark(), model.len());
                }
                let string = string(number, *bytes);
                out.put_shared(&string);
                copying.put_shared(&string);
                model.extend_from_slice(&string);
            }
            prop_assert_eq!(out.len(), model.len());
            prop_assert_eq!(out.len_from(mark), model.len() - cut_at);
            let pieces: Vec<&[u8]> = out.pieces_from(mark).collect();
            prop_assert_eq!(pieces.concat(), &model[cut_at..]);
            prop_assert!(copying.shared.is_empty());
            prop_assert_eq!(&copying.into_bytes()[..], &model[..]);
            out.truncate(mark);
            prop_assert_eq!(out.len(), cut_at);
            let taken = out.take().concat();
            prop_assert_eq!(&taken[..], &model[..cut_at]);
            prop_assert!(out.is_empty());
        }
    }

    #[test]
    fn a_long_string_is_the_same_memory_and_what_stands_before_it_can_be_patched() {
        let long = string(7, SHARED_FROM);
        let mut out = Output::new();
        out.buffer().extend_from_slice(b"before");
        let mark = out.mark();
        out.buffer().extend_from_slice(b"????");
        out.put_shared(&long);
        out.patch(mark, b"size");
        let taken = out.take();
        assert_eq!(&taken[0][..], b"beforesize");
        assert_eq!(taken[1].as_ptr(), long.as_ptr());
    }
}
