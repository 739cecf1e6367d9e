//! Random values as clause 4.3.2 and 2.1.6 want them.

use crate::field::Text;
use plinth_runtime::random::Generator;

/// C of clause 2.1.6 for each use. Those for last names differ by 70 between the loader and the terminals (2.1.6.1).
const C_LAST_LOADED: u64 = 157;
const C_LAST_RUN: u64 = 227;
const C_CUSTOMER: u64 = 711;
const C_ITEM: u64 = 4093;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// The last name with this number, below 1000 (4.3.2.3).
pub fn last_name(number: u32) -> Text {
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    Text::from(digits.map(|d| SYLLABLES[d as usize]).concat())
}

pub struct Choose(Generator);

impl Choose {
    pub fn new(seed: u64) -> Choose {
        Choose(Generator::new(seed))
    }

    /// Uniform, both ends included.
    pub fn within(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.below(u64::from(high - low) + 1) as u32
    }

    pub fn percent(&mut self, percent: u32) -> bool {
        self.within(1, 100) <= percent
    }

    /// NURand(a, low, high).
    fn skewed(&mut self, a: u64, c: u64, low: u32, high: u32) -> u32 {
        let span = u64::from(high - low) + 1;
        let mixed = self.0.below(a + 1) | u64::from(self.within(low, high));
        low + ((mixed + c) % span) as u32
    }

    pub fn customer(&mut self, customers: u32) -> u32 {
        self.skewed(1023, C_CUSTOMER, 1, customers)
    }

    pub fn item(&mut self, items: u32) -> u32 {
        self.skewed(8191, C_ITEM, 1, items)
    }

    /// A last name that some customer has, for a terminal.
    pub fn last_name(&mut self, customers: u32) -> Text {
        let number = self.skewed(255, C_LAST_RUN, 0, 999);
        last_name(number % customers.min(1000))
    }

    pub fn loaded_last_name(&mut self) -> Text {
        let number = self.skewed(255, C_LAST_LOADED, 0, 999);
        last_name(number)
    }

    /// A text of random letters and digits, of a random length.
    pub fn text(&mut self, least: u32, most: u32) -> Text {
        let length = self.within(least, most);
        let letter = |_| LETTERS[self.0.below(LETTERS.len() as u64) as usize];
        (0..length).map(letter).collect()
    }

    pub fn digits(&mut self, length: u32) -> Text {
        (0..length)
            .map(|_| b'0' + self.within(0, 9) as u8)
            .collect()
    }

    pub fn zip(&mut self) -> Text {
        [&self.digits(4)[..], b"11111"].concat().into()
    }

    /// I_DATA or S_DATA: a tenth of them says ORIGINAL somewhere (4.3.3.1).
    pub fn data(&mut self) -> Text {
        let mut text = self.text(26, 50).to_vec();
        if self.percent(10) {
            let at = self.within(0, text.len() as u32 - 8) as usize;
            text[at..at + 8].copy_from_slice(b"ORIGINAL");
        }
        text.into()
    }

    /// A random order of the numbers from 1.
    pub fn permutation(&mut self, numbers: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (1..=numbers).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, self.within(0, i as u32) as usize);
        }
        all
    }
}
