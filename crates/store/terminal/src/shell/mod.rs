//! What shells have in common, whatever their statements are.
//!
//! - [`runner`]: reads lines and prints answers. [`editor`] is how a person writes lines, [`input`] how they come from
//!   elsewhere, and [`lines`] which of them make up a statement.
//! - [`words`]: splits a line into statements and words.
//! - [`answer`]: formats answers as text, in the form of FoundationDB's shell, as JSON, or for `cut` and `awk`.
//! - [`help`]: what `help` shows.
//! - [`complete`]: finds where in a line words are completed.

mod ahead;
pub mod answer;
pub mod complete;
mod editor;
pub mod help;
mod input;
mod lines;
mod pager;
pub mod runner;
mod session;
pub mod words;
