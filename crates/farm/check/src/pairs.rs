//! Transactions on keys and values: ranges that overlap, removals, numbers that are added to.

use crate::choose::{PAIRS, machine, some_key, some_value};
use crate::clients;
use crate::log::{COUNTER, Entry, Log, Scan, Step};
use crate::notes::{self, Notes};
use crate::world::World;
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::{Error, KeySelector, MutationKind, Result};
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_judge::{self as judge, Outcome};
use plinth_farm_memory::{Abort, Pointer};
use plinth_farm_structures::btree::BTree;
use plinth_farm_structures::kv::{self, Database, RangeOptions};
use plinth_runtime::{random, sleep};
use std::cell::Cell;
use std::rc::Rc;

const TRANSACTIONS: usize = 16;

/// The engine, and what it has told about the last transaction.
pub struct Told {
    engine: Rc<Engine<Any>>,
    read_at: Cell<Option<u64>>,
    written_at: Cell<Option<u64>>,
    /// What the next commit writes besides: the number of its transaction, into an object of the client's own.
    note: Cell<Option<(Pointer, u64)>>,
}

impl Told {
    pub fn new(engine: Rc<Engine<Any>>) -> Told {
        Told {
            engine,
            read_at: Cell::new(None),
            written_at: Cell::new(None),
            note: Cell::new(None),
        }
    }
}

impl kv::Engine for Told {
    type Transaction = Transaction<Any>;

    async fn begin(&self) -> std::result::Result<Transaction<Any>, Abort> {
        let tx = self.engine.begin(Options::default()).await?;
        self.read_at.set(Some(tx.read_at()));
        Ok(tx)
    }

    async fn commit(&self, tx: Transaction<Any>) -> std::result::Result<(), Abort> {
        if let Some((at, id)) = self.note.get() {
            notes::write(&tx, at, id).await?;
        }
        self.written_at.set(tx.commit().await?.written_at);
        Ok(())
    }
}

pub async fn client(
    (log, notes): (&Log, &Notes),
    world: &World,
    engine: &Rc<Engine<Any>>,
    tree: &BTree,
) {
    let database = Database::new(Told::new(engine.clone()), tree.clone());
    let of = (world, &**engine, notes);
    let working = clients::client(of, TRANSACTIONS, async |note| {
        one(log, world, &database, note).await;
    });
    working.await;
}

async fn one(log: &Log, world: &World, database: &Database<Told>, note: Option<Pointer>) {
    let told = database.engine();
    told.read_at.set(None);
    told.written_at.set(None);
    let mut entry = log.begin(machine(&told.engine), judge::Options::DEFAULT);
    let id = entry.id;
    let tx = database.create_transaction();
    let result = steps(world, &tx, &mut entry).await;
    entry.read_at = told.read_at.get();
    told.note
        .set(note.filter(|_| writes(&entry)).map(|at| (at, id)));
    log.commits(&entry);
    let result = match result {
        Ok(()) => tx.commit().await,
        Err(error) => Err(error),
    };
    let outcome = match (result, told.written_at.get()) {
        (Ok(()), Some(at)) => Outcome::Committed(at),
        (Ok(()), None) => Outcome::ReadOnly,
        (Err(error), _) => {
            judge_error(world, error);
            if error == Error::commit_unknown_result {
                return;
            }
            Outcome::Aborted
        }
    };
    log.settle(id, told.read_at.get(), outcome);
}

fn writes(entry: &Entry) -> bool {
    let reads = |step: &Step| matches!(step, Step::Get(..) | Step::Scan(_));
    !entry.steps.iter().all(reads)
}

fn judge_error(world: &World, error: Error) {
    match error {
        Error::not_committed => world.aborted(Abort::Conflict),
        Error::transaction_too_old => world.aborted(Abort::TooOld),
        Error::commit_proxy_memory_limit_exceeded => world.aborted(Abort::Full),
        Error::commit_unknown_result => world.aborted(Abort::Unknown),
        Error::shutdown_in_progress => world.aborted(Abort::Left),
        error => world.blame(format!("a transaction on keys and values: {error:?}")),
    }
}

fn counter() -> Bytes {
    let mut key = BytesMut::new();
    key.put_u8(COUNTER);
    key.put_u8(b'a' + random::below(3) as u8);
    key.freeze()
}

async fn steps(world: &World, tx: &kv::Transaction<Told>, entry: &mut Entry) -> Result<()> {
    for _ in 0..1 + random::below(6) {
        let key = match random::chance(0.15) {
            true => counter(),
            false => some_key(),
        };
        let is_counter = key[0] == COUNTER;
        let name = (PAIRS, key.clone());
        let step = match random::below(12) {
            0..3 => Step::Get(name, tx.get(&key).await?),
            3 | 4 => scan(tx, key).await?,
            5 if random::chance(0.4) => {
                let other = some_key();
                let (begin, end) = (key.clone().min(other.clone()), key.max(other));
                tx.clear_range(&begin, &end);
                Step::Clear((PAIRS, begin), end)
            }
            _ if is_counter => {
                tx.atomic_op(MutationKind::Add, &key, 1u64.to_le_bytes());
                Step::Add(name, 1)
            }
            5..10 => {
                let value = some_value(entry.id);
                tx.set(&key, &value);
                Step::Set(name, value, None)
            }
            _ => {
                tx.clear(&key);
                Step::Remove(name, None)
            }
        };
        entry.steps.push(step);
        if random::chance(0.2) {
            sleep(world.latency * random::below(6) as u32).await;
        }
    }
    Ok(())
}

async fn scan(tx: &kv::Transaction<Told>, begin: Bytes) -> Result<Step> {
    let limit = [1, 5, 0][random::below(3) as usize];
    let (end, reverse) = (some_key(), random::chance(0.4));
    let selector = |key: &Bytes| KeySelector::first_greater_or_equal(key.clone());
    let options = RangeOptions { limit, reverse };
    let found = tx
        .get_range(selector(&begin), selector(&end), options)
        .await?;
    Ok(Step::Scan(Scan {
        part: PAIRS,
        begin,
        end,
        limit: match limit {
            0 => usize::MAX,
            limit => limit as usize,
        },
        reverse,
        rows: found.rows,
    }))
}
