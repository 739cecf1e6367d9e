//! Transactions of this machine, as structures and keys and values want them, counted by how they end.

use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_fabric::Mixed;
use plinth_farm_memory::Abort;
use plinth_farm_structures::kv;
use std::cell::Cell;
use std::rc::Rc;

/// How transactions have ended since the process began.
#[derive(Default)]
pub struct Counts {
    pub committed: Cell<u64>,
    /// Commits that had no effect, or whose effect is not known.
    pub aborted: Cell<u64>,
}

/// Transactions with the same options. Clones share the engine and the counts.
#[derive(Clone)]
pub struct Access {
    engine: Rc<Engine<Mixed>>,
    options: Options,
    counts: Rc<Counts>,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Access {
    pub(crate) fn new(engine: Rc<Engine<Mixed>>, options: Options) -> Access {
        Access {
            engine,
            options,
            counts: Rc::default(),
        }
    }

    /// The same with other options.
    pub fn with(&self, options: Options) -> Access {
        Access {
            options,
            ..self.clone()
        }
    }

    pub fn engine(&self) -> &Engine<Mixed> {
        &self.engine
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl kv::Engine for Access {
    type Transaction = Transaction<Mixed>;

    async fn begin(&self) -> Result<Self::Transaction, Abort> {
        self.engine.begin(self.options).await
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), Abort> {
        let committed = tx.commit().await;
        match committed {
            Ok(_) => count(&self.counts.committed),
            Err(_) => count(&self.counts.aborted),
        }
        committed.map(|_| ())
    }
}
