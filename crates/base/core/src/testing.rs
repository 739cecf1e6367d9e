//! Test support: a small deterministic fuzzer for parsers of hostile bytes. Not used outside tests.
//!
//! [`Mutator`] takes well-formed inputs and damages them as networks, disks and attackers do: flipped bits,
//! truncation, bytes removed or repeated, halves of two inputs joined, false length fields. The same seed and corpus
//! give the same inputs in the same order on every machine, so every failure can be reproduced.
//!
//! [`fuzz`] is the loop around it. It keeps damaged inputs that the parser still accepted, because repeated damage
//! reaches deeper than a single one. On a panic it prints the input that caused it.
//!
//! ```
//! let corpus = [b"3:abc".to_vec(), b"3:\0\0\0".to_vec()];
//! plinth_core::testing::fuzz("netstring", 1, corpus, |input| input.starts_with(b"3:"));
//! ```

use crate::key::printable;

/// Length limit of an input.
pub const INPUT_BYTES_MAX: usize = 4096;
/// Size limit of the corpus.
const CORPUS_MAX: usize = 512;

/// The SplitMix64 generator: small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Generator(u64);

impl Generator {
    pub fn new(seed: u64) -> Self {
        Generator(seed)
    }
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
    /// Uniform below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }
}

/// Makes damaged inputs from a corpus of good ones.
pub struct Mutator {
    random: Generator,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// `corpus` holds well-formed inputs. If it is empty, the inputs are noise.
    pub fn new(seed: u64, corpus: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut corpus: Vec<Vec<u8>> = corpus.into_iter().collect();
        if corpus.is_empty() {
            corpus.push(Vec::new());
        }
        Mutator {
            random: Generator::new(seed),
            corpus,
        }
    }

    /// The next input: one of the corpus, damaged one to four times.
    pub fn next_input(&mut self) -> Vec<u8> {
        let chosen = self.random.below(self.corpus.len());
        let mut input = self.corpus[chosen].clone();
        for _ in 0..=self.random.below(4) {
            self.damage(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    /// Adds an input to the corpus; in a full corpus it replaces another one.
    pub fn keep(&mut self, input: Vec<u8>) {
        if self.corpus.len() < CORPUS_MAX {
            self.corpus.push(input);
        } else {
            let replaced = self.random.below(CORPUS_MAX);
            self.corpus[replaced] = input;
        }
    }

    fn damage(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(input.len());
        match self.random.below(8) {
            0 if !input.is_empty() => input[at] ^= 1 << self.random.below(8),
            1 if !input.is_empty() => input[at] = self.telling_byte(),
            2 => input.truncate(at),
            3 => {
                let end = (at + 1 + self.random.below(8)).min(input.len());
                input.drain(at..end);
            }
            4 => {
                let end = (at + self.random.below(16)).min(input.len());
                let doubled = input[at..end].to_vec();
                input.splice(at..at, doubled);
            }
            5 => {
                let other = self.random.below(self.corpus.len());
                let from = self.random.below(self.corpus[other].len());
                input.truncate(at);
                input.extend_from_slice(&self.corpus[other][from..]);
            }
            6 => {
                let field = self.length_field(input.len());
                let end = (at + field.len()).min(input.len());
                input.splice(at..end, field);
            }
            _ => {
                let noise: Vec<u8> = (0..=self.random.below(8))
                    .map(|_| self.random.next_u64() as u8)
                    .collect();
                input.splice(at..at, noise);
            }
        }
    }

    fn telling_byte(&mut self) -> u8 {
        const BYTES: [u8; 10] = [0x00, 0x01, 0x05, 0x14, 0x7f, 0x80, 0x81, 0xfe, 0xff, b'\\'];
        BYTES[self.random.below(BYTES.len())]
    }

    /// A length that is nearly right or absurd, in one of the usual encodings of lengths.
    fn length_field(&mut self, len: usize) -> Vec<u8> {
        let len = len as u64;
        let lengths = [
            0,
            1,
            len,
            len.wrapping_sub(1),
            len + 1,
            1 << 31,
            u64::from(u32::MAX),
            u64::MAX,
            1 << 63,
        ];
        let value = lengths[self.random.below(lengths.len())];
        match self.random.below(5) {
            0 => (value as u16).to_be_bytes().to_vec(),
            1 => (value as u32).to_le_bytes().to_vec(),
            2 => (value as u32).to_be_bytes().to_vec(),
            3 => value.to_le_bytes().to_vec(),
            _ => {
                let mut field = Vec::new();
                crate::varint::put_u32(&mut field, value as u32);
                field
            }
        }
    }
}

/// Tests run at their full length, because `PLINTH_NIGHTLY` is set. Otherwise they are as long as pays in each change.
pub fn is_nightly() -> bool {
    std::env::var_os("PLINTH_NIGHTLY").is_some_and(|value| !value.is_empty())
}

/// Number of inputs that [`fuzz`] tries: `PLINTH_FUZZ_ITERATIONS`, or 200,000.
pub fn iterations() -> u64 {
    std::env::var("PLINTH_FUZZ_ITERATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200_000)
}

/// Prints the current input if its check panics.
struct Witness<'a> {
    name: &'a str,
    iteration: u64,
    input: &'a [u8],
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}: input {} fails: \"{}\"",
                self.name,
                self.iteration,
                printable(self.input)
            );
        }
    }
}

/// Calls `check` with each good input, which it must accept, then with [`iterations`] damaged ones. `check` panics on
/// a bug and returns whether the parser accepted the input. Returns the number of damaged inputs that were accepted.
pub fn fuzz(
    name: &str,
    seed: u64,
    corpus: impl IntoIterator<Item = Vec<u8>>,
    check: impl FnMut(&[u8]) -> bool,
) -> u64 {
    fuzz_for(iterations(), name, seed, corpus, check)
}

fn fuzz_for(
    iterations: u64,
    name: &str,
    seed: u64,
    corpus: impl IntoIterator<Item = Vec<u8>>,
    mut check: impl FnMut(&[u8]) -> bool,
) -> u64 {
    let mut mutator = Mutator::new(seed, corpus);
    for input in &mutator.corpus {
        let _witness = Witness {
            name,
            iteration: 0,
            input,
        };
        // A corpus that the parser refuses would test only the parser's first check.
        assert!(check(input), "{name}: a good input was refused");
    }
    let mut taken = 0;
    for iteration in 1..=iterations {
        let input = mutator.next_input();
        let accepted = {
            let _witness = Witness {
                name,
                iteration,
                input: &input,
            };
            check(&input)
        };
        if accepted {
            taken += 1;
            mutator.keep(input);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_another_does_not() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, [b"0123456789".to_vec(), b"abcdef".to_vec()]);
            (0..100).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    fn a_parser_that_trusts_its_length_field_is_caught() {
        let trusting = |input: &[u8]| match input {
            [] => false,
            [len, rest @ ..] => rest[..usize::from(*len)].len() < 256,
        };
        let found = std::panic::catch_unwind(|| {
            fuzz_for(10_000, "planted fault", 3, [b"\x03abc".to_vec()], trusting)
        });
        assert!(found.is_err(), "the fuzzer missed a planted fault");
    }

    #[test]
    fn an_empty_corpus_and_endless_growth_are_survived() {
        let mut mutator = Mutator::new(7, []);
        for _ in 0..20_000 {
            let input = mutator.next_input();
            assert!(input.len() <= INPUT_BYTES_MAX);
            mutator.keep(input);
        }
        assert_eq!(mutator.corpus.len(), CORPUS_MAX);
    }
}
