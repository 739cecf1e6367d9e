//! What a gateway stands on: the store (`stored.rs`), or something else that keeps the tree's rows and orders changes
//! of them.

use crate::replica::Replica;
use crate::store::Boxed;
use crate::writes::{Listener, Writes};
use plinth_core::Error;
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

/// Why a life cannot begin.
#[derive(PartialEq, Eq, Debug)]
pub enum NoLife {
    /// Another attempt may succeed.
    Failed(Error),
    /// The tree is not there any more, or not whole. The line is for the operator, who has to do something about it.
    Gone(String),
}

impl From<Error> for NoLife {
    fn from(error: Error) -> Self {
        NoLife::Failed(error)
    }
}

pub trait Backing {
    /// Opens the tree for another life of the gateway; makes the tree if there is nothing of it.
    ///
    /// # Errors
    /// It cannot be read, or is gone.
    fn begin<'a>(&'a self, by: Beginning<'a>) -> Boxed<'a, Result<Begun, NoLife>>;
}
