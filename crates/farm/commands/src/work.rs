//! TPC-C on a machine of a cluster, as a parent says on standard input. For `plinth farm demo`.
//!
//! ```text
//!   in    load           fill the tables                         out   loaded
//!         run            clients begin                                 order WAREHOUSE DISTRICT NUMBER TIME
//!                                                                      clock FROM UNTIL
//!         stop           clients end                                   stopped COMMITTED ABORTED UNKNOWN
//!         check          look at everything, at one snapshot           district WAREHOUSE DISTRICT COUNT NEWEST
//!                                                                      broken LINE
//!                                                                      checked
//! ```
//! An order is told when its transaction is reported as committed, and not before. Times are in microseconds of the
//! host's clock; `clock` tells of a time in which this machine did not know the time.

use plinth_farm_engine::Options;
use plinth_farm_memory::{Abort, Class, Objects, Pointer, Sizes};
use plinth_farm_server::{Access, Joined, root};
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::catalog::Catalog;
use plinth_farm_structures::kv::Engine;
use plinth_farm_structures::{Error, Result};
use plinth_farm_tpcc::input::{Input, Terminal};
use plinth_farm_tpcc::{Ending, Placed, Scale, Tpcc, carry_out, check, load, new_order};
use plinth_runtime::{
    Duration, TaskGroup, host_clock_origin, now, random, sleep, trace, unix_time_ms, yield_now,
};
use plinth_terminal::Outcome;
use plinth_terminal::shell::runner::read_line;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;

/// Small enough to be loaded in seconds.
const SCALE: Scale = Scale {
    warehouses: 6,
    items: 2000,
    districts: 10,
    customers: 120,
};
const CLIENTS_A_WAREHOUSE: u32 = 2;
/// Of inner nodes.
const CACHE_BYTES: usize = 64 << 20;
const SEED: u64 = 1;
const RETRY: Duration = Duration::from_millis(1);
const FLUSH: Duration = Duration::from_millis(10);

/// The warehouses of this machine.
#[derive(Clone, Copy)]
struct Share {
    machine: u32,
    machines: u32,
}

/// What the clients of this machine share.
struct Work {
    access: Access,
    db: Tpcc,
    stops: Cell<bool>,
    running: Cell<u32>,
    committed: Cell<u64>,
    aborted: Cell<u64>,
    unknown: Cell<u64>,
    said: RefCell<Vec<String>>,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// Whoever reads it is the parent. Without one, this process ends as well.
fn say(lines: &[String]) -> Outcome {
    let mut out = std::io::stdout().lock();
    let said = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
    let said = said.and_then(|()| out.flush());
    said.map_err(|error| format!("standard output: {error}"))
}

/// Microseconds of the clock that all processes of the host have.
pub fn host_us() -> u64 {
    (now().0 + host_clock_origin().unwrap_or_default()) / 1000
}

/// Follows the orders of the parent until it says nothing more. `machines` share the warehouses. Errors: a line for
/// the user.
pub async fn run(joined: Rc<Joined>, sizes: Sizes, machines: u32) -> Outcome {
    let access = joined.access.clone();
    let cache = Cache::new(CACHE_BYTES);
    let failed = |what: &str, error: Error| format!("{what}: {error}");
    let catalog = root::open(&access, &sizes, &cache).await;
    let catalog = catalog.map_err(|error| failed("the catalogue", error))?;
    let share = Share {
        machine: u32::from(joined.local().machine().0) % machines,
        machines,
    };
    let (tasks, mut work) = (TaskGroup::new(), None);
    while let Some(line) = read_line().await? {
        match line.trim() {
            "load" => {
                let loaded = fill(&access, &catalog, &sizes, machines, &cache).await;
                loaded.map_err(|error| failed("loading", error))?;
                say(&["loaded".into()])?;
            }
            "run" => {
                let db = open(&access, &catalog, share.machine, &cache).await;
                let db = db.map_err(|error| failed("opening", error))?;
                let begun = begin(access.clone(), db, share, &tasks);
                let (own, joined) = (begun.clone(), joined.clone());
                tasks.spawn("tpcc clock", async move { own.watch_clock(&joined).await });
                work = Some(begun);
            }
            "stop" => {
                if let Some(work) = &work {
                    end(work).await?;
                }
            }
            "check" => {
                let db = open(&access, &catalog, share.machine, &cache).await;
                let db = db.map_err(|error| failed("opening", error))?;
                let lines = look(&access, &db).await;
                say(&lines.map_err(|error| failed("checking", error))?)?;
            }
            other => return Err(format!("there is no work {other:?}")),
        }
    }
    Ok(())
}

/// Loads the tables. The warehouses take turns on the regions.
async fn fill(
    access: &Access,
    catalog: &Catalog,
    sizes: &Sizes,
    machines: u32,
    cache: &Cache,
) -> Result<()> {
    let shape = sizes
        .shape()
        .map_err(|_| Error::Invalid("there is no such region"))?;
    let class = Class::of(8).ok_or(Error::Invalid("there is no such object"))?;
    let regions = 0..SCALE.warehouses as u16;
    let near: Vec<Pointer> = regions
        .map(|region| shape.pointer(region, class, 0, 0))
        .collect();
    let plan = load::Plan {
        scale: SCALE,
        copies: machines,
        near: &near,
        seed: SEED,
        now: unix_time_ms(),
    };
    load::load(access, catalog, cache, &plan).await.map(drop)
}

async fn open(access: &Access, catalog: &Catalog, machine: u32, cache: &Cache) -> Result<Tpcc> {
    load::run(access, async |tx| {
        Tpcc::open(tx, catalog, machine, cache).await
    })
    .await
}

fn begin(access: Access, db: Tpcc, share: Share, tasks: &TaskGroup) -> Rc<Work> {
    let work = Rc::new(Work {
        access,
        db,
        stops: Cell::new(false),
        running: Cell::new(0),
        committed: Cell::new(0),
        aborted: Cell::new(0),
        unknown: Cell::new(0),
        said: RefCell::default(),
    });
    for warehouse in (1..=SCALE.warehouses).filter(|w| w % share.machines == share.machine) {
        for client in 0..CLIENTS_A_WAREHOUSE {
            let district = (client % u32::from(SCALE.districts) + 1) as u8;
            let terminal = Terminal::new(SCALE, warehouse, district, random::u64());
            work.running.set(work.running.get() + 1);
            let own = work.clone();
            tasks.spawn("tpcc client", async move { own.serve(terminal).await });
        }
    }
    let own = work.clone();
    tasks.spawn("tpcc tell", async move {
        loop {
            sleep(FLUSH).await;
            if own.tell().is_err() {
                return; // the parent has gone, and this process follows
            }
        }
    });
    work
}

async fn end(work: &Work) -> Outcome {
    work.stops.set(true);
    while work.running.get() > 0 {
        sleep(FLUSH).await;
    }
    work.tell()?;
    let (committed, aborted) = (work.committed.get(), work.aborted.get());
    say(&[format!(
        "stopped {committed} {aborted} {}",
        work.unknown.get()
    )])
}

impl Work {
    fn tell(&self) -> Outcome {
        let lines = self.said.take();
        if lines.is_empty() {
            return Ok(());
        }
        say(&lines)
    }

    /// Tells when this machine did not know the time, to within a millisecond or two.
    async fn watch_clock(&self, joined: &Joined) {
        let mut since = None;
        while !self.stops.get() {
            let at = host_us();
            match (joined.node.member().clock().time(), since) {
                (Ok(_), Some(from)) => {
                    since = None;
                    self.said.borrow_mut().push(format!("clock {from} {at}"));
                }
                (Err(_), None) => since = Some(at),
                _ => (),
            }
            sleep(RETRY).await;
        }
    }

    async fn serve(&self, mut terminal: Terminal) {
        while !self.stops.get() {
            let input = terminal.next_input();
            if let Err(error) = self.carry_out(&input).await {
                trace!("FarmWorkFails", "error" => error);
                self.said
                    .borrow_mut()
                    .push(format!("broken {}: {error}", input.name()));
                break;
            }
            yield_now().await;
        }
        self.running.set(self.running.get() - 1);
    }

    /// Tries until it is done, or until nobody knows whether it is.
    async fn carry_out(&self, input: &Input) -> Result<()> {
        loop {
            match self.attempt(input).await {
                Ok(()) => {
                    count(&self.committed);
                    return Ok(());
                }
                Err(Error::Abort(Abort::Unknown)) => {
                    count(&self.unknown);
                    return Ok(());
                }
                Err(Error::Abort(abort)) if abort.is_retryable() => {
                    count(&self.aborted);
                    if abort != Abort::Conflict {
                        sleep(RETRY).await;
                    }
                }
                Err(error) => return Err(error),
            }
            if self.stops.get() {
                return Ok(());
            }
            yield_now().await;
        }
    }

    async fn attempt(&self, input: &Input) -> Result<()> {
        let reads = matches!(input, Input::OrderStatus(_) | Input::StockLevel(_));
        let options = match reads {
            true => Options::read_only(),
            false => Options {
                will_write: true,
                ..Options::default()
            },
        };
        let access = self.access.with(options);
        let (tx, now) = (access.begin().await?, unix_time_ms());
        let Input::NewOrder(order) = input else {
            if carry_out(&self.db, &tx, input, now).await? == Ending::Commit {
                access.commit(tx).await?;
            }
            return Ok(());
        };
        if let Placed::Order { id, .. } = new_order(&self.db, &tx, order, now).await? {
            access.commit(tx).await?;
            let (warehouse, district) = (order.warehouse, order.district);
            let line = format!("order {warehouse} {district} {id} {}", host_us());
            self.said.borrow_mut().push(line);
        }
        Ok(())
    }
}

/// The lines of a check: what every district has, and what is wrong.
async fn look(access: &Access, db: &Tpcc) -> Result<Vec<String>> {
    let reader = access.with(Options::read_only());
    loop {
        let tx = reader.begin().await?;
        match look_at(db, &tx).await {
            Err(error) if error.is_retryable() => sleep(RETRY).await,
            outcome => return outcome,
        }
    }
}

async fn look_at<O: Objects>(db: &Tpcc, tx: &O) -> Result<Vec<String>> {
    let broken = check(db, tx).await?;
    let mut lines: Vec<String> = broken.iter().map(|line| format!("broken {line}")).collect();
    for warehouse in db.warehouses() {
        let rows = warehouse
            .orders
            .range(tx, b"", None, usize::MAX, false)
            .await?
            .rows;
        let mut districts: BTreeMap<u8, (u32, u32)> = BTreeMap::new();
        for (key, _) in rows {
            let (Some(district), Some(id)) = (key.first(), key.last_chunk()) else {
                continue;
            };
            let (count, newest) = districts.entry(*district).or_default();
            *count += 1;
            *newest = (*newest).max(u32::from_be_bytes(*id));
        }
        for (district, (count, newest)) in districts {
            lines.push(format!(
                "district {} {district} {count} {newest}",
                warehouse.id
            ));
        }
        for (name, tree) in warehouse.trees() {
            if let Err(error) = tree.check(tx).await {
                if error.is_retryable() {
                    return Err(error);
                }
                lines.push(format!(
                    "broken {name} of warehouse {}: {error}",
                    warehouse.id
                ));
            }
        }
    }
    lines.push("checked".into());
    Ok(lines)
}
