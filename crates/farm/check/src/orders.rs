//! TPC-C: loaded and run from several machines, its conditions checked meanwhile and in the end.

use crate::Shown;
use crate::choose::machine;
use crate::insist::insist;
use crate::pairs::Told;
use crate::world::{Work, World, sizes};
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_memory::{Abort, Pointer, Sizes};
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::catalog::Catalog;
use plinth_farm_structures::kv::Engine as _;
use plinth_farm_structures::{Error, Result};
use plinth_farm_tpcc::input::Terminal;
use plinth_farm_tpcc::load::{Plan, load};
use plinth_farm_tpcc::{Ending, Scale, Tpcc, carry_out, check, check_loaded};
use plinth_runtime::{Duration, TaskGroup, random, sleep};
use std::cell::Cell;
use std::rc::Rc;

const NOW: u64 = 1_700_000_000_000;
const SCALE: Scale = Scale {
    warehouses: 2,
    items: 20,
    districts: 2,
    customers: 6,
};
/// Of a machine.
const TERMINALS: u32 = 2;
const INPUTS: usize = 8;
const COPIES: u32 = 2;

#[derive(Default)]
pub struct Orders {
    catalog: Cell<Option<Pointer>>,
    /// Terminals that still work.
    running: Cell<usize>,
    done: Cell<usize>,
    audits: Cell<usize>,
}

impl Orders {
    async fn open(&self, tx: &Transaction<Any>, cache: &Cache, copy: u32) -> Result<Tpcc> {
        let root = self.catalog.get().expect("it was loaded");
        let catalog = Catalog::open(tx, root, cache).await?;
        Tpcc::open(tx, &catalog, copy, cache).await
    }

    async fn load(&self, world: &World, engine: &Rc<Engine<Any>>) -> Option<Tpcc> {
        let cache = Cache::new(1 << 16);
        let made = insist(world, engine, Options::default(), async |tx| {
            Catalog::create(tx, Pointer::NULL, &cache).await
        });
        let catalog = made.await?;
        self.catalog.set(Some(catalog.root()));
        let plan = Plan {
            scale: SCALE,
            copies: COPIES,
            near: &[],
            seed: world.seed,
            now: NOW,
        };
        let told = Told::new(engine.clone());
        match load(&told, &catalog, &cache, &plan).await {
            Ok(db) => Some(db),
            Err(error) => {
                world.blame(format!("loading: {error}"));
                None
            }
        }
    }

    async fn terminal(&self, world: &World, engine: &Rc<Engine<Any>>, db: &Tpcc, number: u32) {
        let warehouse = number % SCALE.warehouses + 1;
        let district = (number / 2) as u8 % SCALE.districts + 1;
        let seed = world.seed * 100 + u64::from(number);
        let mut terminal = Terminal::new(SCALE, warehouse, district, seed);
        let told = Told::new(engine.clone());
        for done in 0.. {
            if !world.goes_on(done, INPUTS) || engine.has_left() {
                return;
            }
            if world.is_stormy {
                sleep(Duration::from_micros(random::below(20_000))).await;
            }
            let input = terminal.next_input();
            // Some is given up: memory may be too small for it.
            for _ in 0..20 {
                if world.is_blamed() {
                    return;
                }
                let outcome: Result<()> = async {
                    let tx = told.begin().await?;
                    if carry_out(db, &tx, &input, NOW + 1).await? == Ending::Commit {
                        told.commit(tx).await?;
                    }
                    Ok(())
                }
                .await;
                match outcome {
                    Ok(()) => {
                        self.done.set(self.done.get() + 1);
                        break;
                    }
                    Err(Error::Abort(abort)) => world.aborted(abort),
                    Err(error) => return world.blame(format!("{}: {error}", input.name())),
                }
                sleep(world.latency * random::below(8) as u32).await;
            }
        }
    }

    /// Checks the conditions at one snapshot after the other, while others go on.
    async fn audit(&self, world: &World, engine: &Engine<Any>, db: &Tpcc) {
        while self.running.get() > 0 && !world.is_calm.get() && !world.is_blamed() {
            let tx = match engine.begin(Options::read_only()).await {
                Ok(tx) => tx,
                Err(abort) if world.is_excused(abort) => return,
                Err(abort) => return world.blame(format!("an audit does not begin: {abort}")),
            };
            match check(db, &tx).await {
                Ok(broken) if broken.is_empty() => self.audits.set(self.audits.get() + 1),
                Ok(broken) => {
                    world.blame(format!("during the run at {}: {broken:?}", tx.read_at()))
                }
                Err(Error::Abort(abort @ (Abort::TooOld | Abort::Left))) => world.aborted(abort),
                Err(error) => world.blame(format!("an audit at {}: {error}", tx.read_at())),
            }
            drop(tx);
            sleep(world.latency * 8).await;
        }
    }

    async fn is_sound(&self, world: &World, tx: &Transaction<Any>) -> Result<()> {
        let db = self.open(tx, &Cache::new(0), 0).await?;
        let broken = check(&db, tx).await?;
        if !broken.is_empty() {
            world.blame(format!("in the end: {broken:?}"));
        }
        db.items.check(tx).await?;
        for warehouse in db.warehouses() {
            for (_, tree) in warehouse.trees() {
                tree.check(tx).await?;
            }
            warehouse.customers.check(tx).await?;
            warehouse.stock.check(tx).await?;
        }
        Ok(())
    }
}

impl Work for Orders {
    fn sizes(&self, world: &World) -> Sizes {
        sizes(2048, 80, if world.is_small { 6 } else { 40 })
    }

    fn ring_words(&self) -> u64 {
        32_000
    }

    async fn prepare(&self, world: &World, engine: &Rc<Engine<Any>>) {
        self.running.set(world.machines * TERMINALS as usize);
        let Some(db) = self.load(world, engine).await else {
            return;
        };
        let checked = insist(world, engine, Options::read_only(), async |tx| {
            let mut broken = check(&db, tx).await?;
            broken.extend(check_loaded(&db, tx).await?);
            Ok(broken)
        });
        match checked.await {
            Some(broken) if !broken.is_empty() => world.blame(format!("loaded: {broken:?}")),
            _ => {}
        }
    }

    async fn work(self: Rc<Self>, world: Rc<World>, engine: Rc<Engine<Any>>) {
        let own = machine(&engine);
        let cache = Cache::new([5000, 1 << 20][random::below(2) as usize]);
        let options = Options::read_only();
        let open = insist(&world, &engine, options, async |tx| {
            self.open(tx, &cache, own).await
        });
        let Some(db) = open.await else { return };
        let (db, group) = (Rc::new(db), TaskGroup::new());
        for number in own * TERMINALS..(own + 1) * TERMINALS {
            let (orders, world) = (self.clone(), world.clone());
            let (engine, db) = (engine.clone(), db.clone());
            group.spawn("terminal", async move {
                orders.terminal(&world, &engine, &db, number).await;
                orders.running.set(orders.running.get() - 1);
            });
        }
        if own == 1 {
            self.audit(&world, &engine, &db).await;
        }
        // Terminals of machines that have failed do not come to their ends.
        while self.running.get() > 0 && !world.is_calm.get() && !world.is_blamed() {
            sleep(world.latency).await;
        }
    }

    async fn finish(&self, world: &World, engine: &Rc<Engine<Any>>) {
        let options = Options::read_only();
        insist(world, engine, options, async |tx| {
            self.is_sound(world, tx).await
        })
        .await;
    }

    /// It is no matter for whom the conditions hold.
    fn resolve(&self, _: impl Fn(Pointer) -> Option<(u64, Vec<u8>)>) -> usize {
        0
    }

    fn judge(&self) -> std::result::Result<Shown, String> {
        Ok(Shown {
            committed: self.done.get(),
            judged: self.audits.get(),
            ..Shown::default()
        })
    }
}
