//! Why an operation on a structure fails.

use plinth_core::texts;
use plinth_farm_memory::{Abort, Pointer};

texts! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Error {
        /// The transaction is over.
        Abort(abort: Abort) = "{abort}";
        /// What lies at `at` is not what the structure has put there. `what` says what is wrong.
        Damaged { at: Pointer, what: &'static str } = "the object at {at:?} is damaged: {what}";
        /// A key has `bytes` bytes; the structure takes keys of up to `most`.
        KeyTooLong { bytes: usize, most: usize } = "a key of {bytes} bytes, where {most} is the limit";
        /// A value has `bytes` bytes; the structure takes values of up to `most`.
        ValueTooLong { bytes: usize, most: usize } = "a value of {bytes} bytes, where {most} is the limit";
        /// Settings of a structure that cannot work; the text says which, and why.
        Settings(what: &'static str) = "settings that cannot work: {what}";
        /// The catalogue has this name already.
        NameTaken = "the catalogue has something of this name";
        /// Numbers below 0, ends of a range in the wrong order, or another call that makes no sense.
        Invalid(what: &'static str) = "{what}";
    }
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

impl std::error::Error for Error {}

#[inline]
pub fn damaged(at: Pointer, what: &'static str) -> Error {
    Error::Damaged { at, what }
}
