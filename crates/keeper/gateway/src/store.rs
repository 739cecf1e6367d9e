//! The rows behind a replica, at a version. What keeps them is not the front end's concern.

use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Result, Version};

pub use plinth_runtime::Boxed;

/// False for an error that comes again however often the same is read.
pub fn may_pass(error: Error) -> bool {
    !matches!(
        error,
        Error::file_corrupt
            | Error::key_too_large
            | Error::key_outside_legal_range
            | Error::inverted_range
    )
}

/// Where a read of a range may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Most {
    pub rows: usize,
    /// Of keys and values. The row that reaches them is the last one or near to it.
    pub bytes: usize,
}

impl Most {
    pub const ALL: Most = Most {
        rows: usize::MAX,
        bytes: usize::MAX,
    };

    pub fn bytes(bytes: usize) -> Most {
        Most { bytes, ..Most::ALL }
    }
}

/// Rows of a range, in order and without a gap from its begin.
#[derive(Default, Debug)]
pub struct Page {
    pub rows: Vec<(Bytes, Bytes)>,
    /// There are rows behind them.
    pub more: bool,
}

/// See the module. A version that is too old fails with
/// [`Error::transaction_too_old`](plinth_core::Error::transaction_too_old): the reader catches up and tries again.
pub trait Store {
    /// The value of a row.
    ///
    /// # Errors
    /// The store cannot be read, or not at this version.
    fn row<'a>(&'a self, version: Version, key: &'a [u8]) -> Boxed<'a, Result<Option<Bytes>>>;

    /// The first rows of a range: at least one, if there are any.
    ///
    /// # Errors
    /// As [`row`](Self::row).
    fn page(&self, version: Version, range: KeyRange, most: Most) -> Boxed<'_, Result<Page>>;
}
