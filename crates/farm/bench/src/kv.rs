//! Transactions of one machine, as loaders and the interface of keys and values want them.

use crate::values::key;
use bytes::Bytes;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_fabric::Shared;
use plinth_farm_memory::{Abort, Pointer};
use plinth_farm_structures::btree::{BTree, Cache, Settings};
use plinth_farm_structures::kv;
use plinth_farm_structures::{Error as StructureError, Result as StructureResult};
use plinth_farm_tpcc::load;
use plinth_runtime::yield_now;
use std::rc::Rc;

/// Of inner nodes.
const CACHE_BYTES: usize = 256 << 20;
const LOADED_AT_ONCE: u64 = 50;
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

/// Makes a tree that has a value for each of the rows.
pub async fn load_tree(
    access: &Access,
    settings: Settings,
    rows: u64,
    value: impl Fn(u64) -> Bytes,
) -> StructureResult<BTree> {
    let cache = Cache::new(CACHE_BYTES);
    let tree = load::run(access, async |tx| {
        BTree::create(tx, settings, Pointer::NULL, &cache).await
    });
    let tree = tree.await?;
    for first in (0..rows).step_by(LOADED_AT_ONCE as usize) {
        let some = first..rows.min(first + LOADED_AT_ONCE);
        let some: Vec<_> = some.map(|row| (key(row), value(row))).collect();
        load::run(access, async |tx| tree.set_many(tx, &some).await).await?;
    }
    Ok(tree)
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
