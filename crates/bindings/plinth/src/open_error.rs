//! Results, and why a database was not opened.

use plinth_core::Error;
use std::fmt;

/// A result whose error is that of the database, if no other is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a database was not opened: one line that says what is wrong with which file, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError(pub(crate) String);

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}
