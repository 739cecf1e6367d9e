//! Decisions before the simulated world exists.

/// A generator for decisions before the simulated world exists. So the same seed gives the same world, whatever the
/// world draws later.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64, purpose: u64) -> Self {
        Draw(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below((high - low + 1) as u64) as usize
    }
}
