//! A connection, and the gateway that it is of.

use crate::connection::Connection;
use crate::life::{Gateway, Life};
use std::ops::Deref;
use std::rc::Rc;

pub struct Talk {
    pub connection: Rc<Connection>,
    pub life: Rc<Life>,
    pub gateway: Rc<Gateway>,
}

impl Deref for Talk {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        &self.connection
    }
}
