//! Hash maps with a fixed seed, so that iteration order is the same in every run.
//!
//! The standard library seeds its maps at random, which a simulation cannot repeat. The keys hashed here are
//! identifiers that the cluster generates itself (tokens, request ids, uids), never bytes from a client.

use std::hash::{BuildHasherDefault, Hasher};

/// Multiply-rotate hasher for short keys. Not for hostile input.
#[derive(Default, Clone, Copy)]
pub struct FixedHasher(u64);

const K: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(K);
    }
}

impl Hasher for FixedHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }
    #[inline]
    fn write_u32(&mut self, v: u32) {
        self.mix(u64::from(v));
    }
    #[inline]
    fn write_u64(&mut self, v: u64) {
        self.mix(v);
    }
    #[inline]
    fn write_usize(&mut self, v: usize) {
        self.mix(v as u64);
    }
}

/// A 64-bit hash of `bytes`, well spread over all bits and the same in every run.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = FixedHasher::default();
    hasher.write(bytes);
    let mut x = hasher.0;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

pub type BuildFixed = BuildHasherDefault<FixedHasher>;
#[allow(clippy::disallowed_types)] // the one place where the hasher is chosen
pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildFixed>;
#[allow(clippy::disallowed_types)]
pub type HashSet<K> = std::collections::HashSet<K, BuildFixed>;
