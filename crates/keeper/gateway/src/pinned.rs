//! Nodes of which something is needed later: what is known of them stays in the cache until then.

use crate::replica::Replica;
use crate::wire::Text;
use std::cell::RefCell;
use std::rc::Rc;

/// See the module. Lets go of them when it is dropped.
pub struct Pinned {
    replica: Rc<Replica>,
    paths: RefCell<Vec<Text>>,
}

impl Pinned {
    pub fn new(replica: Rc<Replica>, paths: Vec<Text>) -> Pinned {
        paths.iter().for_each(|path| replica.pin(path));
        Pinned {
            replica,
            paths: RefCell::new(paths),
        }
    }

    /// One node more.
    pub fn add(&self, path: &Text) {
        self.replica.pin(path);
        self.paths.borrow_mut().push(path.clone());
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let paths = self.paths.borrow();
        paths.iter().for_each(|path| self.replica.unpin(path));
    }
}
