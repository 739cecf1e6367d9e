//! A database, or a tenant, as its handles see it: the same one on every loop.

use crate::{loops, state};
use plinth_core::Result;
use plinth_runtime::real::Remote;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A database on each loop, under the same number. It is closed when the last handle is gone.
pub struct Connection {
    id: u64,
    loops: Vec<Remote>,
}

impl Connection {
    /// `open` makes the database of that number on a loop.
    pub fn open(open: impl FnOnce(u64) + Clone + Send + 'static) -> Result<Arc<Self>> {
        Ok(Self::on(loops::all()?, open))
    }

    /// A connection on the same loops.
    pub fn open_beside(&self, open: impl FnOnce(u64) + Clone + Send + 'static) -> Arc<Self> {
        Self::on(self.loops.clone(), open)
    }

    fn on(loops: Vec<Remote>, open: impl FnOnce(u64) + Clone + Send + 'static) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let connection = Connection { id, loops };
        connection.on_each_loop(open);
        Arc::new(connection)
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Calls `act` with the number of the database on each loop.
    pub fn on_each_loop(&self, act: impl FnOnce(u64) + Clone + Send + 'static) {
        for home in &self.loops {
            let (id, act) = (self.id, act.clone());
            loops::post(home, move || act(id));
        }
    }

    /// The loop for the next transaction.
    pub fn next_loop(&self) -> &Remote {
        &self.loops[loops::next(self.loops.len())]
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.on_each_loop(state::close_database);
    }
}
