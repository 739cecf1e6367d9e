//! Rows and headers that are a few numbers, one after the other.

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub fn words(words: &[u64]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 * words.len());
    words.iter().for_each(|word| out.put_u64_le(*word));
    out.freeze()
}

/// The first words of `bytes`.
pub fn parse<const N: usize>(mut bytes: &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        *word = bytes.try_get_u64_le().ok()?;
    }
    Some(words)
}
