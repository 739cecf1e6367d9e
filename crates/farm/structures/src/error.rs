//! Why an operation on a structure fails.

use plinth_farm_memory::{Abort, Pointer};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The transaction is over.
    Abort(Abort),
    /// What lies at `at` is not what the structure has put there. `what` says what is wrong.
    Damaged { at: Pointer, what: &'static str },
    /// A key has `bytes` bytes; the structure takes keys of up to `most`.
    KeyTooLong { bytes: usize, most: usize },
    /// A value has `bytes` bytes; the structure takes values of up to `most`.
    ValueTooLong { bytes: usize, most: usize },
    /// Settings of a structure that cannot work; the text says which, and why.
    Settings(&'static str),
    /// The catalogue has this name already.
    NameTaken,
    /// Numbers below 0, ends of a range in the wrong order, or another call that makes no sense.
    Invalid(&'static str),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The same transaction may succeed if it is tried again, and has had no effect.
    pub fn is_retryable(self) -> bool {
        matches!(self, Error::Abort(abort) if abort.is_retryable())
    }
}

impl From<Abort> for Error {
    fn from(abort: Abort) -> Self {
        Error::Abort(abort)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Abort(abort) => abort.fmt(f),
            Error::Damaged { at, what } => write!(f, "the object at {at:?} is damaged: {what}"),
            Error::KeyTooLong { bytes, most } => {
                write!(f, "a key of {bytes} bytes, where {most} is the limit")
            }
            Error::ValueTooLong { bytes, most } => {
                write!(f, "a value of {bytes} bytes, where {most} is the limit")
            }
            Error::Settings(what) => write!(f, "settings that cannot work: {what}"),
            Error::NameTaken => f.write_str("the catalogue has something of this name"),
            Error::Invalid(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

#[inline]
pub(crate) fn damaged<T>(at: Pointer, what: &'static str) -> Result<T> {
    Err(Error::Damaged { at, what })
}
