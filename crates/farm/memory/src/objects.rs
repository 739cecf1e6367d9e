//! What structures see of a transaction: objects, at one snapshot.

use crate::pointer::Pointer;
use bytes::Bytes;
use plinth_core::texts;
use std::future::Future;

texts! {
    /// Why a transaction ends without effect. All that it has read before was one consistent snapshot.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Abort {
        /// Another transaction has changed, or is about to change, what this one has read or wants to write.
        Conflict = "another transaction has changed what this one relies on";
        /// The version of the snapshot is gone: there is no old version (single-version mode, or a new primary; §4.7).
        TooOld = "the version of the snapshot is gone";
        /// There is no memory for another object, or for an old version (`mv-abort`; §5.3).
        Full = "the memory is full";
        /// A machine has failed meanwhile. Its effect was undone.
        Failed = "a machine has failed during the transaction, which has had no effect";
        /// Its outcome is not known, and will not be known here.
        Unknown = "it is not known whether the transaction has had an effect";
        /// No object is allocated there at the snapshot: it was freed, perhaps by this transaction, or never made.
        NotAllocated = "no object is allocated at this place";
        /// Too many bytes for an object, or for a transaction.
        TooLarge = "the object or the transaction is too large";
        /// Reads of a transaction that may not write; a use after its end; a snapshot that is older than any may be.
        NotAllowed = "the transaction may not do this";
        /// This process has left the cluster, or its clock is broken.
        Left = "this process is no member of the cluster any more";
    }
}

impl Abort {
    /// All of them. Their places are their numbers in messages, so new ones come last.
    pub const ALL: [Abort; 9] = [
        Abort::Conflict,
        Abort::TooOld,
        Abort::Full,
        Abort::Failed,
        Abort::Unknown,
        Abort::NotAllocated,
        Abort::TooLarge,
        Abort::NotAllowed,
        Abort::Left,
    ];

    /// The same transaction may succeed if it is tried again, and has had no effect.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Abort::Conflict | Abort::TooOld | Abort::Full | Abort::Failed
        )
    }
}

impl std::error::Error for Abort {}

/// A transaction on objects. Reads are of one snapshot and of the transaction's own writes; writes are visible to
/// others when it has committed. Whoever has it may use it from several places, one call at a time or several: calls
/// take `&self`.
///
/// After an error other than `NotAllocated`, the transaction can only abort.
pub trait Objects {
    /// The whole payload of the object's cell: [`payload_bytes`](crate::Class::payload_bytes) of its class. What was
    /// never written of it is zeros.
    fn read(&self, at: Pointer) -> impl Future<Output = Result<Bytes, Abort>>;

    /// Reads an object that may have ended.
    fn read_if_there(&self, at: Pointer) -> impl Future<Output = Result<Option<Bytes>, Abort>> {
        async move {
            match self.read(at).await {
                Ok(payload) => Ok(Some(payload)),
                Err(Abort::NotAllocated) => Ok(None),
                Err(abort) => Err(abort),
            }
        }
    }

    /// Replaces the payload; what is missing at the end becomes zeros. A transaction that has not read the object
    /// writes it whatever its version in the snapshot is, and conflicts all the same with those that change it later.
    fn write(&self, at: Pointer, payload: Bytes) -> impl Future<Output = Result<(), Abort>>;

    /// A new object of zeros with room for so many bytes, on the machine of `near` if there is room; otherwise, and
    /// with null, on this one or another.
    fn allocate(&self, bytes: usize, near: Pointer)
    -> impl Future<Output = Result<Pointer, Abort>>;

    /// The object ends when the transaction commits. Error: `NotAllocated` if it has ended before.
    fn free(&self, at: Pointer) -> impl Future<Output = Result<(), Abort>>;
}
