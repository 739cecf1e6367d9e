//! Numbers with bounds, as arguments of commands: `value_parser = within::<u32>(1..=100)`.

use clap::builder::TypedValueParser;
use clap::{Arg, Command, Error};
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// A type of numbers, and the type that says its bounds.
pub trait Number: TryFrom<i128> + Clone + Send + Sync + 'static {
    type Bound: Copy + Into<i128>;
    const LEAST: i128;
    const MOST: i128;
}

macro_rules! numbers {
    ($($type:ident within $bound:ident;)*) => {$(
        impl Number for $type {
            type Bound = $bound;
            const LEAST: i128 = $type::MIN as i128;
            const MOST: i128 = $type::MAX as i128;
        }
    )*};
}

numbers! {
    u8 within i64;
    u16 within i64;
    u32 within i64;
    u64 within u64;
    i32 within i64;
    i64 within i64;
}

/// Takes a number within bounds. The library's own parser says of a number that its type cannot have that it has wrong
/// digits, or too many; this one says which numbers there are.
pub fn within<T: Number>(range: impl RangeBounds<T::Bound>) -> Within<T> {
    let least = match range.start_bound() {
        Bound::Included(least) => (*least).into(),
        Bound::Excluded(below) => (*below).into() + 1,
        Bound::Unbounded => T::LEAST,
    };
    let most = match range.end_bound() {
        Bound::Included(most) => (*most).into(),
        Bound::Excluded(above) => (*above).into() - 1,
        Bound::Unbounded => T::MOST,
    };
    Within {
        least,
        most,
        number: PhantomData,
    }
}

/// See [`within`].
#[derive(Clone, Debug)]
pub struct Within<T> {
    least: i128,
    most: i128,
    number: PhantomData<T>,
}

impl<T: Number> TypedValueParser for Within<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let (least, most) = (self.least, self.most);
        let parse = move |text: &str| parse(text, least, most);
        TypedValueParser::parse_ref(&parse, command, flag, value)
    }
}

fn parse<T: Number>(text: &str, least: i128, most: i128) -> Result<T, String> {
    let parsed = text.parse::<i128>();
    let number = parsed.as_ref().ok().copied();
    let number = number.filter(|number| (least..=most).contains(number));
    if let Some(number) = number.and_then(|number| T::try_from(number).ok()) {
        return Ok(number);
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match parsed {
        Err(error) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => {
            Err(error.to_string())
        }
        _ => Err(format!("{text} is not in {least}..={most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_bounds_is_told_which_there_are_whatever_its_length() {
        let command = |parser: Within<u64>| {
            let value = Arg::new("value").allow_negative_numbers(true);
            Command::new("a").arg(value.value_parser(parser))
        };
        let huge = "9".repeat(60);
        for text in ["-1", "0", "101", "18446744073709551616", &huge] {
            let refused = command(within(1..=100)).try_get_matches_from(["a", text]);
            let refused = refused.expect_err(text).to_string();
            let said = format!("{text} is not in 1..=100");
            assert!(refused.contains(&said), "{refused}");
        }
        for text in ["", "1.5", "x", "0x10", "-"] {
            let refused = parse::<u64>(text, 1, 100).expect_err(text);
            assert!(!refused.contains("is not in"), "{refused}");
        }
        for number in [1, 100] {
            assert_eq!(parse::<u8>(&number.to_string(), 1, 100), Ok(number));
        }
        let all = within::<u16>(1..);
        assert_eq!((all.least, all.most), (1, 65_535));
        let all = within::<i64>(..5);
        assert_eq!((all.least, all.most), (i64::MIN.into(), 4));
    }
}
