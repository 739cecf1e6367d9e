//! SipHash with one round a word and three at the end (Aumasson and Bernstein, *SipHash: a fast short-input PRF*).
//!
//! Where a key lies is what it says, on every machine and for as long as the table is there. The hashes for maps of
//! this workspace promise neither across their versions, so they cannot stand here. Who does not know the seed cannot
//! choose keys that collide.

use crate::page::take_u64;

const NAME: [u64; 4] = [
    u64::from_be_bytes(*b"somepseu"),
    u64::from_be_bytes(*b"dorandom"),
    u64::from_be_bytes(*b"lygenera"),
    u64::from_be_bytes(*b"tedbytes"),
];

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

/// The hash of `bytes` with the key of 128 bits `(seed, 0)`.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut v = [NAME[0] ^ seed, NAME[1], NAME[2] ^ seed, NAME[3]];
    let mut absorb = |word: u64| {
        v[3] ^= word;
        round(&mut v);
        v[0] ^= word;
    };
    let mut rest = bytes;
    while let Some((word, behind)) = take_u64(rest) {
        absorb(word);
        rest = behind;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    absorb(u64::from_le_bytes(last));
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use super::hash;
    use proptest::prelude::*;
    use std::hash::Hasher;

    proptest! {
        #[test]
        fn without_a_seed_it_is_the_hash_of_the_standard_library(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut theirs = std::collections::hash_map::DefaultHasher::new();
            theirs.write(&bytes);
            prop_assert_eq!(hash(0, &bytes), theirs.finish());
        }
    }

    #[test]
    fn it_stays_the_same() {
        assert_eq!(hash(0, b""), 0xd1fb_a762_150c_532c);
        assert_eq!(hash(7, b"a key of 18 bytes."), 289_138_729_807_956_834);
    }
}
