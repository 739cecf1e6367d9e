//! Results, and why a database was not opened.

use crate::log;
use plinth_core::Error;
use std::fmt;

/// A result whose error is that of the database, if no other is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a database was not opened: one line that says what is wrong with which file, and what to do.
///
/// `?` makes an [`Error`] of it, so a function that returns [`Result`] may both open a database and use it. An
/// [`Error`] has no room for the line, which then goes to standard error, or to what [`set_log`](crate::set_log) says.
///
/// ```
/// use plinth::{Database, Error, Result};
///
/// async fn greet() -> Result<()> {
///     let db = Database::open("/nowhere/plinth.cluster").await?;
///     db.run(async |tr| {
///         tr.set("hello", "world");
///         Ok(())
///     })
///     .await
/// }
///
/// # plinth::doc_test(async |_| {
/// assert_eq!(greet().await, Err(Error::no_cluster_file_found));
/// # Ok(())
/// # });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError {
    line: String,
    error: Error,
}

impl OpenError {
    pub(crate) fn new(error: Error, line: impl Into<String>) -> Self {
        OpenError {
            line: line.into(),
            error,
        }
    }

    /// The error without the line, for example [`Error::no_cluster_file_found`],
    /// [`Error::connection_string_invalid`] or [`Error::tls_error`].
    pub fn error(&self) -> Error {
        self.error
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for OpenError {}

impl From<OpenError> for Error {
    /// Writes the line to the log.
    fn from(error: OpenError) -> Self {
        log::tell(&error.line);
        error.error
    }
}
