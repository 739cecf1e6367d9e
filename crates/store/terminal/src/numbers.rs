//! Numbers with bounds, as arguments of commands: `value_parser = within::<u32>(1..=100)`.

use clap::builder::{RangedI64ValueParser, RangedU64ValueParser, ValueParserFactory};
use std::ops::RangeBounds;

/// A type of numbers, the type that says its bounds, and its parser.
pub trait Number {
    type Bound;
    type Parser;

    fn within(range: impl RangeBounds<Self::Bound>) -> Self::Parser;
}

macro_rules! numbers {
    ($($type:ident within $bound:ident: $parser:ident;)*) => {$(
        impl Number for $type {
            type Bound = $bound;
            type Parser = $parser<$type>;

            fn within(range: impl RangeBounds<$bound>) -> $parser<$type> {
                $type::value_parser().range(range)
            }
        }
    )*};
}

numbers! {
    u8 within i64: RangedI64ValueParser;
    u16 within i64: RangedI64ValueParser;
    u32 within i64: RangedI64ValueParser;
    u64 within u64: RangedU64ValueParser;
    i32 within i64: RangedI64ValueParser;
    i64 within i64: RangedI64ValueParser;
}

/// Takes a number within bounds.
pub fn within<T: Number>(range: impl RangeBounds<T::Bound>) -> T::Parser {
    T::within(range)
}
