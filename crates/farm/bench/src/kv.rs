//! Transactions of one machine, as loaders and the interface of keys and values want them.

use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_fabric::Shared;
use plinth_farm_memory::Abort;
use plinth_farm_structures::Error as StructureError;
use plinth_farm_structures::kv;
use plinth_runtime::yield_now;
use std::rc::Rc;

/// How many rows are looked at before others have a turn.
const ROWS_A_TURN: usize = 64;

/// Transactions of one machine, all with the same options.
#[derive(Clone)]
pub struct Access {
    pub engine: Rc<Engine<Shared>>,
    pub options: Options,
}

impl kv::Engine for Access {
    type Transaction = Transaction<Shared>;

    async fn begin(&self) -> Result<Self::Transaction, Abort> {
        self.engine.begin(self.options).await
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), Abort> {
        tx.commit().await.map(|_| ())
    }
}

/// A line for the user.
pub fn failed(what: &str, error: StructureError) -> String {
    match error {
        StructureError::Abort(Abort::Full) => {
            format!("{what}: the machines' memory is full; give them more with --region-mib")
        }
        error => format!("{what}: {error}"),
    }
}

/// Lets others run now and then: reads of the own memory never wait.
pub async fn breathe(n: usize) {
    if n.is_multiple_of(ROWS_A_TURN) {
        yield_now().await;
    }
}
