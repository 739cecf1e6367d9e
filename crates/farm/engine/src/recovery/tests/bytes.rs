//! Letters come back from their bytes, and no bytes do harm.

use super::chance::Chance;
use crate::recovery::Letter;
use bytes::Bytes;
use plinth_core::Uid;
use plinth_core::codec::{Codec, Source};
use plinth_core::testing::fuzz;
use std::net::{Ipv4Addr, SocketAddr};

struct Draws(Chance);

impl Source for Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0.below(n as usize) as u64
    }

    fn number(&mut self) -> u128 {
        let bits = self.0.below(129);
        let number = (0..2).fold(0, |high: u128, _| {
            high << 64 | self.0.below(usize::MAX) as u128
        });
        number.checked_shr(bits as u32).unwrap_or(0)
    }

    fn bytes(&mut self) -> Bytes {
        (0..self.count()).map(|_| self.0.below(256) as u8).collect()
    }

    fn id(&mut self) -> Uid {
        Uid(self.number())
    }

    fn address(&mut self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.0.below(1 << 16) as u16).into()
    }

    fn count(&mut self) -> usize {
        self.0.below(5)
    }
}

#[test]
fn a_letter_comes_back_from_its_bytes_and_a_part_of_it_does_not() {
    for seed in 0..2000 {
        let mut source = Draws(Chance::new(seed));
        let letter = Letter::draw(&mut source);
        let bytes = letter.to_bytes();
        assert_eq!(
            Letter::from_bytes(bytes.clone()),
            Some(letter),
            "seed {seed}"
        );
        let part = bytes.slice(..source.0.below(bytes.len()));
        assert_eq!(Letter::from_bytes(part), None, "seed {seed}");
    }
}

#[test]
fn damaged_letters_do_no_harm() {
    let letters = (0..60).map(|seed| {
        Letter::draw(&mut Draws(Chance::new(seed)))
            .to_bytes()
            .to_vec()
    });
    fuzz("farm recovery letter", 1, letters, |input| {
        let letter = Letter::from_bytes(Bytes::copy_from_slice(input));
        if let Some(letter) = &letter {
            assert_eq!(Letter::from_bytes(letter.to_bytes()).as_ref(), Some(letter));
        }
        letter.is_some()
    });
}
