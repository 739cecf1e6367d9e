//! Transactions on a tree and a table that all machines share, and on a database of keys and values.

use crate::Shown;
use crate::choose::{PAIRS, TABLE, TREE, machine, some_key, some_value};
use crate::clients::{self, Snapshots, side_by_side};
use crate::insist::insist;
use crate::log::{Entry, Log, Map, Scan, Step};
use crate::notes::{self, Notes};
use crate::pairs;
use crate::twice::free_twice;
use crate::world::{Work, World, sizes};
use bytes::Bytes;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_judge::{self as judge, Isolation, Outcome};
use plinth_farm_memory::{Abort, Pointer, Sizes};
use plinth_farm_structures::btree::{self, BTree, Cache};
use plinth_farm_structures::hash::{self, HashTable};
use plinth_farm_structures::{Error, Result};
use plinth_runtime::{random, sleep};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Of a machine.
const CLIENTS: usize = 3;
const TRANSACTIONS: usize = 16;

/// Which transactions run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    TreeAndTable,
    Pairs,
}

pub struct Keys {
    pub kind: Kind,
    pub log: Log,
    /// Tree, table, tree of the database.
    pub roots: Cell<[Pointer; 3]>,
    snapshots: Snapshots,
    /// What is in the structures in the end.
    found: RefCell<Map>,
    /// What clients have written about themselves.
    notes: Notes,
}

/// The structures as a machine sees them.
pub struct Handles {
    pub tree: BTree,
    /// Its root is a large object, so it is not there where slabs are small.
    pub table: Option<HashTable>,
    pub pairs: BTree,
}

pub fn tree_settings() -> btree::Settings {
    btree::Settings {
        leaf_bytes: 150,
        inner_bytes: 200,
        key_bytes_max: 12,
        inline_bytes_max: 16,
        is_spread: random::chance(0.5),
        ..btree::Settings::default()
    }
}

fn table_settings() -> hash::Settings {
    hash::Settings {
        buckets: 8,
        slots: 3,
        key_bytes_max: 12,
        inline_bytes_max: 16,
        seed: 1,
        is_spread: random::chance(0.5),
    }
}

impl Keys {
    pub fn new(kind: Kind) -> Keys {
        Keys {
            kind,
            log: Log::default(),
            roots: Cell::new([Pointer::NULL; 3]),
            snapshots: Snapshots::default(),
            found: RefCell::default(),
            notes: Notes::default(),
        }
    }

    fn has_table(&self, world: &World) -> bool {
        self.kind == Kind::TreeAndTable && world.seed.is_multiple_of(2)
    }

    async fn create(&self, tx: &Transaction<Any>, has_table: bool) -> Result<[Pointer; 3]> {
        let cache = Cache::new(0);
        let tree = BTree::create(tx, tree_settings(), Pointer::NULL, &cache).await?;
        let table = match has_table {
            true => HashTable::create(tx, table_settings(), Pointer::NULL)
                .await?
                .root(),
            false => Pointer::NULL,
        };
        let pairs = BTree::create(tx, tree_settings(), Pointer::NULL, &cache).await?;
        Ok([tree.root(), table, pairs.root()])
    }

    async fn open(&self, tx: &Transaction<Any>, cache: &Cache) -> Result<Handles> {
        let [tree, table, pairs] = self.roots.get();
        Ok(Handles {
            tree: BTree::open(tx, tree, cache).await?,
            table: match table.is_null() {
                true => None,
                false => Some(HashTable::open(tx, table).await?),
            },
            pairs: BTree::open(tx, pairs, cache).await?,
        })
    }

    /// All structures are sound, and this is in them.
    async fn census(&self, tx: &Transaction<Any>) -> Result<Map> {
        let handles = self.open(tx, &Cache::new(0)).await?;
        handles.tree.check(tx).await?;
        handles.pairs.check(tx).await?;
        let mut map = Map::new();
        for (part, tree) in [(TREE, &handles.tree), (PAIRS, &handles.pairs)] {
            let rows = tree.range(tx, b"", None, usize::MAX, false).await?.rows;
            map.extend(rows.into_iter().map(|(key, value)| ((part, key), value)));
        }
        if let Some(table) = &handles.table {
            table.check(tx).await?;
            let rows = table.entries(tx).await?;
            map.extend(rows.into_iter().map(|(key, value)| ((TABLE, key), value)));
        }
        Ok(map)
    }

    async fn client(&self, world: &World, engine: &Engine<Any>, handles: &Handles) {
        let of = (world, engine, &self.notes);
        let working = clients::client(of, TRANSACTIONS, async |note| {
            if random::chance(0.03) {
                free_twice(world, engine).await;
            }
            self.one(world, engine, handles, note).await;
        });
        working.await;
    }

    async fn one(
        &self,
        world: &World,
        engine: &Engine<Any>,
        handles: &Handles,
        note: Option<Pointer>,
    ) {
        let options = self.snapshots.some_options(|| random::chance(0.3), 0.4);
        let mut entry = self.log.begin(machine(engine), recorded(&options));
        let Some(tx) = self.snapshots.begin(world, engine, options).await else {
            return;
        };
        entry.read_at = Some(tx.read_at());
        let (id, read_at) = (entry.id, entry.read_at);
        let outcome = match steps(world, handles, &tx, &mut entry, options.is_read_only).await {
            Ok(()) if random::chance(0.05) => return self.log.end(entry, Outcome::Aborted),
            Ok(()) => {
                let noted = match note.filter(|_| !options.is_read_only) {
                    Some(note) => notes::write(&tx, note, id).await,
                    None => Ok(()),
                };
                self.log.commits(&entry);
                match noted {
                    Ok(()) => tx.commit().await.map_err(Error::Abort),
                    Err(abort) => Err(Error::Abort(abort)),
                }
            }
            Err(error) => {
                self.log.commits(&entry);
                Err(error)
            }
        };
        let outcome = match outcome {
            Ok(committed) => match committed.written_at {
                Some(at) => Outcome::Committed(at),
                None => Outcome::ReadOnly,
            },
            Err(Error::Abort(abort)) => {
                world.aborted(abort);
                if abort == Abort::Unknown {
                    return;
                }
                Outcome::Aborted
            }
            Err(error) => {
                world.blame(format!(
                    "transaction {} reading at {:?}: {error}",
                    entry.id, entry.read_at
                ));
                Outcome::Aborted
            }
        };
        self.log.settle(id, read_at, outcome);
    }
}

pub fn recorded(options: &Options) -> judge::Options {
    judge::Options {
        isolation: Isolation::Serializable,
        strict: options.is_strict,
        read_only: options.is_read_only,
        stale: options.at.is_some(),
    }
}

async fn steps(
    world: &World,
    handles: &Handles,
    tx: &Transaction<Any>,
    entry: &mut Entry,
    is_read_only: bool,
) -> Result<()> {
    for _ in 0..1 + random::below(6) {
        let key = some_key();
        let table = handles.table.as_ref().filter(|_| random::chance(0.5));
        let name = (table.map_or(TREE, |_| TABLE), key);
        let step = match random::below(if is_read_only { 5 } else { 12 }) {
            0..3 => {
                let value = match table {
                    None => handles.tree.get(tx, &name.1).await?,
                    Some(table) => table.get(tx, &name.1).await?,
                };
                Step::Get(name, value)
            }
            3 | 4 => scan(handles, tx, name.1).await?,
            5..9 => {
                let value = some_value(entry.id);
                let is_new = match table {
                    None => handles.tree.set(tx, &name.1, &value).await?,
                    Some(table) => table.set(tx, &name.1, &value).await?,
                };
                Step::Set(name, value, Some(is_new))
            }
            _ => {
                let was_there = match table {
                    None => handles.tree.remove(tx, &name.1).await?,
                    Some(table) => table.remove(tx, &name.1).await?,
                };
                Step::Remove(name, Some(was_there))
            }
        };
        entry.steps.push(step);
        if random::chance(0.2) {
            sleep(world.latency * random::below(6) as u32).await;
        }
    }
    if let Some(table) = &handles.table
        && !is_read_only
        && random::chance(0.03)
    {
        table.grow(tx, 1).await?;
    }
    Ok(())
}

async fn scan(handles: &Handles, tx: &Transaction<Any>, begin: Bytes) -> Result<Step> {
    let scan = Scan {
        part: TREE,
        begin,
        end: some_key(),
        limit: [1, 5, 1000][random::below(3) as usize],
        reverse: random::chance(0.4),
        rows: Vec::new(),
    };
    let found = handles
        .tree
        .range(tx, &scan.begin, Some(&scan.end), scan.limit, scan.reverse)
        .await?;
    let rows = found.rows;
    Ok(Step::Scan(Scan { rows, ..scan }))
}

impl Work for Keys {
    fn sizes(&self, world: &World) -> Sizes {
        let words = if self.has_table(world) { 2048 } else { 64 };
        let slabs = match (self.has_table(world), world.is_small) {
            (true, true) => 12,
            (true, false) => 40,
            (false, true) => 25,
            (false, false) => 60,
        };
        sizes(words, slabs, if world.is_small { 6 } else { 40 })
    }

    fn ring_words(&self) -> u64 {
        3000
    }

    async fn prepare(&self, world: &World, engine: &Rc<Engine<Any>>) {
        let options = Options::default();
        let made = insist(world, engine, options, async |tx| {
            self.create(tx, self.has_table(world)).await
        });
        match made.await {
            Some(roots) => self.roots.set(roots),
            None => world.blame("the structures cannot be made".to_owned()),
        }
    }

    async fn work(self: Rc<Self>, world: Rc<World>, engine: Rc<Engine<Any>>) {
        let cache = Cache::new([0, 2000, 1 << 20][random::below(3) as usize]);
        let options = Options::read_only();
        let open = insist(&world, &engine, options, async |tx| {
            self.open(tx, &cache).await
        });
        let Some(handles) = open.await else { return };
        let handles = Rc::new(handles);
        let client = || {
            let (keys, world) = (self.clone(), world.clone());
            let (engine, handles) = (engine.clone(), handles.clone());
            async move {
                match keys.kind {
                    Kind::TreeAndTable => keys.client(&world, &engine, &handles).await,
                    Kind::Pairs => {
                        let of = (&keys.log, &keys.notes);
                        pairs::client(of, &world, &engine, &handles.pairs).await;
                    }
                }
            }
        };
        side_by_side(&world, CLIENTS, client).await;
    }

    async fn finish(&self, world: &World, engine: &Rc<Engine<Any>>) {
        let options = Options::read_only();
        let found = insist(world, engine, options, async |tx| self.census(tx).await);
        if let Some(found) = found.await {
            self.found.replace(found);
        }
    }

    fn resolve(&self, object: impl Fn(Pointer) -> Option<(u64, Vec<u8>)>) -> usize {
        self.log.resolve(|id| self.notes.find(id, &object))
    }

    fn judge(&self) -> std::result::Result<Shown, String> {
        let (summary, map) = self.log.judge()?;
        let found = self.found.borrow();
        match *found == map {
            true => Ok(Shown {
                committed: summary.committed,
                judged: summary.reads,
                ..Shown::default()
            }),
            false => Err(format!("in the end there is {found:?}, and not {map:?}")),
        }
    }
}
