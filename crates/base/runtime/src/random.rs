//! Randomness. Each thread has one generator. The operating system seeds it on a real worker; the run's seed does
//! while a simulation is entered. Fast and well spread, but not for secrets.

pub(crate) mod entropy;

use std::cell::RefCell;
use std::ops::Range;

/// xoshiro256++ by Blackman and Vigna, its state filled from a seed by splitmix64.
#[derive(Clone, Debug)]
pub struct Generator([u64; 4]);

/// One step of splitmix64: also a good way to spread the bits of a number.
pub const fn spread(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        let mut state = [0; 4];
        for (i, word) in state.iter_mut().enumerate() {
            *word = spread(seed.wrapping_add((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
        Generator(state)
    }

    #[inline]
    pub fn u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`. The bias of the multiplication is below 2⁻⁶⁴ · n, which is negligible.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a random number below zero was asked for");
        ((u128::from(self.u64()) * u128::from(n)) >> 64) as u64
    }

    /// In [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

thread_local! {
    static GENERATOR: RefCell<Generator> = RefCell::new(Generator::new(entropy::seed()));
}

/// Replaces this thread's generator and returns the old one: for entering and leaving a simulation.
pub(crate) fn replace(generator: Generator) -> Generator {
    GENERATOR.with(|g| g.replace(generator))
}

/// Makes the numbers of this thread those of a seed, as an attacker has them who has worked out the generator's state.
/// For tests of what must not follow from them.
pub fn reseed(seed: u64) {
    replace(Generator::new(seed));
}

#[inline]
fn with<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    GENERATOR.with(|g| f(&mut g.borrow_mut()))
}

#[inline]
pub fn u64() -> u64 {
    with(Generator::u64)
}

/// A number in `0..n`; `n` must not be 0.
#[inline]
pub fn below(n: u64) -> u64 {
    with(|g| g.below(n))
}

/// A number in the range, which must not be empty.
#[inline]
pub fn range(r: Range<u64>) -> u64 {
    assert!(r.start < r.end, "an empty range {r:?} has no random number");
    r.start + below(r.end - r.start)
}

/// In [0, 1).
#[inline]
pub fn unit() -> f64 {
    with(Generator::unit)
}

/// True with probability `p`.
#[inline]
pub fn chance(p: f64) -> bool {
    p > 0.0 && unit() < p
}

/// 128 random bits: the halves of a unique identifier.
pub fn uid() -> u128 {
    u128::from(u64()) << 64 | u128::from(u64())
}

pub fn fill(bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let word = u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Fisher–Yates.
pub fn shuffle<T>(items: &mut [T]) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(i as u64 + 1) as usize);
    }
}
