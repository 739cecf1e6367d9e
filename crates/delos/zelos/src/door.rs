//! Where ZooKeeper's clients come in.

use plinth_keeper::store::Boxed;
use plinth_keeper::{Doors, Keeper, Options};
use std::rc::Rc;

/// What a process does beside a gateway, for ever: it may show pages about it.
pub type Beside = Rc<dyn Fn(Rc<Keeper>) -> Boxed<'static, ()>>;

/// A setting of a process.
#[derive(Clone)]
pub struct Door {
    pub listen: Doors,
    pub options: Options,
    pub beside: Option<Beside>,
}
