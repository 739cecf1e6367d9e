//! What transactions are of: an engine, and a tree in it.

use crate::btree::BTree;
use crate::error::Error as StructureError;
use plinth_core::Error;
use plinth_farm_memory::{Abort, Objects};
use plinth_runtime::trace_warn;
use std::future::Future;
use std::rc::Rc;

/// Who begins and ends transactions on objects.
pub trait Engine: 'static {
    type Transaction: Objects;

    /// A transaction at a snapshot that has everything that was committed before the call.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, Abort>>;

    /// Makes all of its writes visible to others, or none.
    fn commit(&self, tx: Self::Transaction) -> impl Future<Output = Result<(), Abort>>;
}

/// Keys and values in a tree. Clones are the same database.
pub struct Database<E: Engine> {
    pub(super) inner: Rc<Parts<E>>,
}

pub(super) struct Parts<E> {
    pub engine: E,
    pub tree: BTree,
}

impl<E: Engine> Clone for Database<E> {
    fn clone(&self) -> Self {
        Database {
            inner: Rc::clone(&self.inner),
        }
    }
}

impl<E: Engine> Database<E> {
    pub fn new(engine: E, tree: BTree) -> Self {
        Database {
            inner: Rc::new(Parts { engine, tree }),
        }
    }

    pub fn engine(&self) -> &E {
        &self.inner.engine
    }

    pub fn tree(&self) -> &BTree {
        &self.inner.tree
    }
}

/// The store's error for the same thing.
pub(super) fn error_of(error: StructureError) -> Error {
    match error {
        StructureError::Abort(abort) => match abort {
            Abort::Conflict | Abort::Failed => Error::not_committed,
            Abort::TooOld => Error::transaction_too_old,
            Abort::Full => Error::commit_proxy_memory_limit_exceeded,
            Abort::Unknown => Error::commit_unknown_result,
            Abort::TooLarge => Error::transaction_too_large,
            Abort::NotAllowed => Error::client_invalid_operation,
            Abort::Left => Error::shutdown_in_progress,
            // The tree itself has ended, or is damaged: everything else expects objects to be gone.
            Abort::NotAllocated => Error::file_corrupt,
        },
        StructureError::Damaged { at, what } => {
            trace_warn!("FarmObjectDamaged", "at" => format!("{at:?}"), "what" => what);
            Error::file_corrupt
        }
        StructureError::KeyTooLong { .. } => Error::key_too_large,
        StructureError::ValueTooLong { .. } => Error::value_too_large,
        StructureError::Settings(_) | StructureError::NameTaken | StructureError::Invalid(_) => {
            Error::client_invalid_operation
        }
    }
}
