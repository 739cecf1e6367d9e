//! The shell's language: a small part of SQL, with conditions for transactions.
//!
//! ```text
//! create table T (A int, B text null default 'x', primary key (A), [unique] index I (B))
//! drop table T | alter table T add column C bool null | alter table T drop column C
//! create [unique] index I on T (A, B) | drop index I on T
//! insert into T (A, B) values (1, 'a'), (2, 'b') | upsert into …
//! update T set A = 1, B = B + 1 [where …] | delete from T [where …]
//! select * | A, B from T [where …] [order by A [desc], …] [limit N] [using I]
//! begin | require [missing] T (A = 1) [where …] | commit | rollback
//! tables | describe T | help [STATEMENT] | exit
//!
//! where: A = 1, !=, <, <=, >, >=, is [not] null, in (1, 2), starts with 'x'; not, and, or, parentheses
//! values: null, true, false, 12, -1.5, nan, infinity, 'text', x'00ff', timestamp '2026-01-31 12:00:00.5'
//! ```
//! Words are in any case; names with other characters are in double quotes. A quote in quotes is written twice.

mod parse;
mod statement;
pub mod time;
mod words;

use crate::filter::Filter;
pub use statement::Statement;

/// The statements in `text`, which are separated by `;`.
///
/// # Errors
/// A line that says what was expected, and where.
pub fn parse(text: &str) -> Result<Vec<Statement>, String> {
    parse::all(text)
}

/// Whether `text` is the begin of statements, and none yet: more lines are to come. It is not so of a text that no
/// words could make right.
pub fn is_cut_off(text: &str) -> bool {
    parse::is_cut_off(text)
}

/// A filter alone, as after `where`.
///
/// # Errors
/// As [`parse`].
pub fn parse_filter(text: &str) -> Result<Filter, String> {
    parse::filter_alone(text)
}
