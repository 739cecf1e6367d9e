//! A shared log: entries in one order, which any number of replicas append and read (§3.2).

use bytes::Bytes;
use plinth_core::Error;
use plinth_core::texts;
use std::rc::Rc;

/// The place of an entry. The first is 1, and each is larger by one than the one before.
pub type LogPos = u64;

texts! {
    /// Why a log does not do what was asked.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum LogError {
        /// It takes no more entries.
        Sealed = "the log is sealed";
        /// Entries before this position are gone.
        Trimmed(pos: LogPos) = "log entries before {pos} are gone";
        /// The entry may be in the log, now or later, or not.
        Unknown = "nobody knows whether the entry is in the log";
        /// The entry has so many bytes: too many.
        TooLong(bytes: usize) = "an entry of {bytes} bytes is too long";
        /// The map has so many parts, and may have no more until some are trimmed. The log goes on as it is.
        ManyParts(parts: usize) = "the log has {parts} parts: trim it first";
        /// Nobody can say any more what is sealed and what was trimmed. Nothing is appended or read.
        Cleared = "somebody has removed rows of the log from its database, which can say no more what it holds: \
            begin anew under another name";
        /// The log cannot be used any more.
        Failed(error: Error) = "the log failed: {error}";
    }
}

/// Where a log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Position of the next entry. All before it are durable, and readable unless they were trimmed.
    pub next: LogPos,
    pub is_sealed: bool,
}

impl Tail {
    /// Of a log that takes more.
    pub fn open(next: LogPos) -> Tail {
        let is_sealed = false;
        Tail { next, is_sealed }
    }

    pub fn sealed(next: LogPos) -> Tail {
        let is_sealed = true;
        Tail { next, is_sealed }
    }
}

/// See the module. Everything that was appended before a call began is seen by it.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait SharedLog {
    /// Adds an entry; its position when it is durable.
    ///
    /// # Errors
    /// After [`LogError::Sealed`] and [`LogError::TooLong`] the entry is not in the log.
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError>;

    /// # Errors
    /// The log cannot be reached.
    async fn check_tail(&self) -> Result<Tail, LogError>;

    /// The entries from `from` on, in order and without a gap: as many as have about `bytes_max` bytes, and at least
    /// one unless `from` is at or behind the tail.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] if `from` is gone.
    async fn read_next(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, LogError>;

    /// Nobody needs the entries before `before` any more. They may stay for a while.
    ///
    /// # Errors
    /// The log cannot be reached.
    async fn prefix_trim(&self, before: LogPos) -> Result<(), LogError>;

    /// Lets no more entries in, for good. The tail is final when this resolves.
    ///
    /// # Errors
    /// The log cannot be reached; it may be sealed all the same.
    async fn seal(&self) -> Result<Tail, LogError>;
}

impl<L: SharedLog> SharedLog for Rc<L> {
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError> {
        (**self).append(entry).await
    }

    async fn check_tail(&self) -> Result<Tail, LogError> {
        (**self).check_tail().await
    }

    async fn read_next(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        (**self).read_next(from, bytes_max).await
    }

    async fn prefix_trim(&self, before: LogPos) -> Result<(), LogError> {
        (**self).prefix_trim(before).await
    }

    async fn seal(&self) -> Result<Tail, LogError> {
        (**self).seal().await
    }
}
