//! What a gateway stands on: the store (`stored.rs`), or something else that keeps the tree's rows and orders changes
//! of them.

use crate::replica::Replica;
use crate::store::Boxed;
use crate::writes::{Listener, Writes};
use plinth_core::Result;
use std::rc::Rc;

/// Who begins a life.
pub struct Beginning<'a> {
    /// Of the life. Positive, and no other has it.
    pub gateway: u64,
    /// Tells the trees of a database apart.
    pub tree: &'a str,
    pub listener: Rc<dyn Listener>,
}

/// What a life has: its replica, and the place that writes and moves the replica on.
pub struct Begun {
    pub replica: Rc<Replica>,
    pub writes: Rc<dyn Writes>,
}

pub trait Backing {
    /// Opens the tree for another life of the gateway; makes the tree if it is not there.
    ///
    /// # Errors
    /// It cannot be read.
    fn begin<'a>(&'a self, by: Beginning<'a>) -> Boxed<'a, Result<Begun>>;
}
