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

/// What the number of an argument counts, and which units may stand behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counts {
    Things,
    Seconds,
    Bytes,
}

/// Units of times, in seconds.
const TIMES: [(&str, i128); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
/// Units of sizes, in bytes; in small letters.
const SIZES: [(&str, i128); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

impl Counts {
    /// The digits, and how many a unit has that stands behind them.
    fn split(self, text: &str) -> Option<(&str, i128)> {
        let at = text.find(|c: char| c.is_ascii_alphabetic());
        let (digits, unit) = text.split_at(at.unwrap_or(text.len()));
        let units: &[(&str, i128)] = match self {
            Counts::Things => &[],
            Counts::Seconds => &TIMES,
            Counts::Bytes => &SIZES,
        };
        let unit = unit.to_ascii_lowercase();
        let known = units.iter().find(|(name, _)| *name == unit);
        match unit.is_empty() {
            true => Some((text, 1)),
            false => known.map(|(_, of)| (digits, *of)),
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Counts::Things => "expected a whole number",
            Counts::Seconds => "expected seconds, or a time such as 90s, 5m or 2h",
            Counts::Bytes => "expected bytes, or a size such as 64KiB or 10MB",
        }
    }
}

/// Takes a number within bounds. The library's own parser says of a number that its type cannot have that it has wrong
/// digits, or too many; this one says which numbers there are.
pub fn within<T: Number>(range: impl RangeBounds<T::Bound>) -> Within<T> {
    Within::new(range, Counts::Things)
}

/// The same of seconds, which may be said as a time: `90`, `90s`, `5m`, `2h`, `1d`.
pub fn seconds_within(range: impl RangeBounds<u64>) -> Within<u64> {
    Within::new(range, Counts::Seconds)
}

/// The same of bytes, which may be said as a size: `1000`, `64KiB`, `10MB`.
pub fn bytes_within<T: Number>(range: impl RangeBounds<T::Bound>) -> Within<T> {
    Within::new(range, Counts::Bytes)
}

/// See [`within`].
#[derive(Clone, Debug)]
pub struct Within<T> {
    least: i128,
    most: i128,
    counts: Counts,
    number: PhantomData<T>,
}

impl<T: Number> Within<T> {
    fn new(range: impl RangeBounds<T::Bound>, counts: Counts) -> Within<T> {
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
            counts,
            number: PhantomData,
        }
    }
}

impl<T: Number> TypedValueParser for Within<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let (least, most, counts) = (self.least, self.most, self.counts);
        let parse = move |text: &str| parse(text, least, most, counts);
        TypedValueParser::parse_ref(&parse, command, flag, value)
    }
}

fn parse<T: Number>(text: &str, least: i128, most: i128, counts: Counts) -> Result<T, String> {
    let (digits, factor) = counts.split(text).ok_or(counts.wanted())?;
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return Err(counts.wanted().into());
    }
    // One that is too long for this type is out of bounds, too.
    let number = digits.parse::<i128>().ok();
    let number = number.and_then(|number| number.checked_mul(factor));
    let number = number.filter(|number| (least..=most).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{text} is not in {least}..={most}"))
}

/// A time with or without a unit, in seconds: `1.5`, `90s`, `5m`, `2h`, `1d`, `500ms`.
///
/// # Errors
/// The form.
pub fn parse_time(text: &str) -> Result<f64, String> {
    let wanted = || Counts::Seconds.wanted().to_owned();
    if let Some(ms) = text.strip_suffix("ms") {
        return ms.parse().map(|ms: f64| ms / 1000.0).map_err(|_| wanted());
    }
    let (digits, factor) = Counts::Seconds.split(text).ok_or_else(wanted)?;
    let number = digits.parse::<f64>().ok().filter(|n| n.is_finite());
    number.map(|n| n * factor as f64).ok_or_else(wanted)
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
            let refused = parse::<u64>(text, 1, 100, Counts::Things);
            assert_eq!(refused, Err("expected a whole number".into()));
        }
        for number in [1, 100] {
            let text = number.to_string();
            assert_eq!(parse::<u8>(&text, 1, 100, Counts::Things), Ok(number));
        }
        let all = within::<u16>(1..);
        assert_eq!((all.least, all.most), (1, 65_535));
        let all = within::<i64>(..5);
        assert_eq!((all.least, all.most), (i64::MIN.into(), 4));
    }

    #[test]
    fn times_and_sizes_may_have_units() {
        let seconds = |text: &str| parse::<u64>(text, 1, 86_400, Counts::Seconds);
        for (text, wanted) in [
            ("7", 7),
            ("7s", 7),
            ("5m", 300),
            ("2H", 7200),
            ("1d", 86_400),
        ] {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for text in ["1x", "s", "abc", "1.5", "500ms", ""] {
            let refused = seconds(text).expect_err(text);
            assert_eq!(refused, "expected seconds, or a time such as 90s, 5m or 2h");
        }
        assert_eq!(seconds("2d"), Err("2d is not in 1..=86400".into()));
        let bytes = |text: &str| parse::<u64>(text, 0, 1 << 40, Counts::Bytes);
        for (text, wanted) in [
            ("1000", 1000),
            ("64KiB", 65_536),
            ("1MB", 1_000_000),
            ("9B", 9),
        ] {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        assert!(bytes("1XB").expect_err("no unit").contains("64KiB or 10MB"));
        assert!(
            bytes("9999TB")
                .expect_err("too large")
                .contains("is not in")
        );
        for (text, wanted) in [("1.5", 1.5), ("90s", 90.0), ("1.5m", 90.0), ("500ms", 0.5)] {
            assert_eq!(parse_time(text), Ok(wanted), "{text}");
        }
        for text in ["", "soon", "1w", "inf", "NaN", "ms"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
