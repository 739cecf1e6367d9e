//! Fills the tables as clause 4.3.3.1 wants them, in transactions of some rows each.

use crate::choose::{Choose, last_name};
use crate::field::{Row, Text};
use crate::rows::{
    Customer, DISTRICT_INFO_BYTES, History, Item, NextOrder, Order, OrderLine, Place, Stock,
    YearToDate,
};
use crate::scale::Scale;
use crate::schema::{
    District, Tpcc, Warehouse, create_items, history_key, item_key, key_of, line_key, name_key,
    new_row, order_by_customer_key, register_scale,
};
use bytes::Bytes;
use plinth_farm_memory::{Abort, Pointer};
use plinth_farm_structures::btree::{BTree, Cache};
use plinth_farm_structures::catalog::Catalog;
use plinth_farm_structures::hash::HashTable;
use plinth_farm_structures::kv::Engine;
use plinth_farm_structures::{Error, Result};
use plinth_runtime::{Duration, sleep, yield_now};

/// What each customer has paid before the first transaction: 10.00.
const FIRST_PAYMENT: i64 = 1000;
const ROWS: usize = 64;
const ORDERS: usize = 8;
/// Entries that a bucket has on average when its table is loaded.
const ENTRIES_A_BUCKET: usize = 5;

/// Memory for old versions comes back after a while, memory for objects does not.
const FULL_PAUSE: Duration = Duration::from_millis(1);
const FULL_TIMES_MAX: u32 = 200;

/// Runs a transaction until it has committed. Gives up if the memory stays full.
pub async fn run<E: Engine, T>(
    engine: &E,
    mut body: impl AsyncFnMut(&E::Transaction) -> Result<T>,
) -> Result<T> {
    let mut full = 0;
    loop {
        let error = match engine.begin().await {
            Ok(tx) => match body(&tx).await {
                Ok(output) => match engine.commit(tx).await {
                    Ok(()) => return Ok(output),
                    Err(abort) => abort.into(),
                },
                Err(error) => error,
            },
            Err(abort) => abort.into(),
        };
        let is_full = error == Error::Abort(Abort::Full);
        full += u32::from(is_full);
        if !error.is_retryable() || full > FULL_TIMES_MAX {
            return Err(error);
        }
        match is_full {
            true => sleep(FULL_PAUSE).await,
            false => yield_now().await,
        }
    }
}

/// What is loaded, and where.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub scale: Scale,
    /// Copies of the items, which never change.
    pub copies: u32,
    /// Objects on the machines that shall have the data: warehouses and copies take turns. None: any machine.
    pub near: &'a [Pointer],
    pub seed: u64,
    /// C_SINCE, O_ENTRY_D and the like, in milliseconds since 1970.
    pub now: u64,
}

impl Plan<'_> {
    fn near(&self, number: u32) -> Pointer {
        match self.near.len() {
            0 => Pointer::NULL,
            count => self.near[number as usize % count],
        }
    }
}

/// Loads everything. `Invalid` if the sizes make no sense; `NameTaken` if something is loaded already.
pub async fn load<E: Engine>(
    engine: &E,
    catalog: &Catalog,
    cache: &Cache,
    plan: &Plan<'_>,
) -> Result<Tpcc> {
    if !plan.scale.is_legal() || plan.copies == 0 {
        return Err(Error::Invalid("sizes of TPC-C that make no sense"));
    }
    for copy in 0..plan.copies {
        load_items(engine, catalog, plan, copy).await?;
    }
    for id in 1..=plan.scale.warehouses {
        load_warehouse(engine, catalog, cache, plan, id).await?;
    }
    run(engine, async |tx| {
        register_scale(tx, catalog, &plan.scale, plan.copies).await?;
        Tpcc::open(tx, catalog, 0, cache).await
    })
    .await
}

async fn load_items<E: Engine>(
    engine: &E,
    catalog: &Catalog,
    plan: &Plan<'_>,
    copy: u32,
) -> Result<()> {
    let near = plan.near(copy);
    let items = run(engine, async |tx| {
        create_items(tx, catalog, copy, near).await
    })
    .await?;
    // All copies are the same.
    let mut choose = Choose::new(plan.seed);
    let rows = (1..=plan.scale.items).map(|id| {
        let row = Item {
            image: choose.within(1, 10_000),
            name: choose.text(14, 24),
            price: i64::from(choose.within(100, 10_000)),
            data: choose.data(),
        };
        (item_key(id).to_vec(), row.encode())
    });
    fill_table(engine, &items, plan.scale.items, rows).await
}

type Pair = (Vec<u8>, Vec<u8>);

/// Makes the table large enough, and fills it.
async fn fill_table<E: Engine>(
    engine: &E,
    table: &HashTable,
    count: u32,
    mut rows: impl Iterator<Item = Pair>,
) -> Result<()> {
    let buckets = count as usize / ENTRIES_A_BUCKET;
    let mut now = table.settings().buckets;
    while now < buckets {
        let grown = run(engine, async |tx| table.grow(tx, 2).await).await?;
        if grown == now {
            break;
        }
        now = grown;
    }
    loop {
        let batch: Vec<Pair> = rows.by_ref().take(ROWS).collect();
        if batch.is_empty() {
            return Ok(());
        }
        run(engine, async |tx| {
            for (key, row) in &batch {
                table.set(tx, key, row).await?;
            }
            Ok(())
        })
        .await?;
    }
}

/// Fills trees with rows that were made together.
async fn fill_trees<E: Engine>(engine: &E, rows: &[(&BTree, Pair)]) -> Result<()> {
    for batch in rows.chunks(ROWS) {
        run(engine, async |tx| {
            for (tree, (key, row)) in batch {
                tree.set(tx, key, row).await?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn load_warehouse<E: Engine>(
    engine: &E,
    catalog: &Catalog,
    cache: &Cache,
    plan: &Plan<'_>,
    id: u32,
) -> Result<()> {
    let mut choose = Choose::new(plan.seed ^ (u64::from(id) << 32));
    let scale = plan.scale;
    let place = place(&mut choose);
    let district_places: Vec<Place> = (0..scale.districts)
        .map(|_| self::place(&mut choose))
        .collect();
    let of_district = i64::from(scale.customers) * FIRST_PAYMENT;
    let near = plan.near(id);
    let warehouse = run(engine, async |tx| {
        let at = new_row(tx, near, &place).await?;
        let cents = of_district * i64::from(scale.districts);
        let year_to_date = new_row(tx, at, &YearToDate { cents }).await?;
        let mut districts = Vec::new();
        for place in &district_places {
            let id = scale.customers + 1;
            let cents = of_district;
            districts.push(District {
                place: new_row(tx, at, place).await?,
                year_to_date: new_row(tx, at, &YearToDate { cents }).await?,
                next_order: new_row(tx, at, &NextOrder { id }).await?,
            });
        }
        let objects = (at, year_to_date, districts);
        let warehouse = Warehouse::create(tx, id, objects, cache).await?;
        warehouse.register(tx, catalog).await?;
        Ok(warehouse)
    })
    .await?;
    let stock =
        (1..=scale.items).map(|item| (item_key(item).to_vec(), stock(&mut choose).encode()));
    fill_table(engine, &warehouse.stock, scale.items, stock).await?;
    let customers = scale.customers * u32::from(scale.districts);
    let mut names = Vec::new();
    let rows = (0..customers).map(|i| {
        let (district, id) = ((i / scale.customers) as u8 + 1, i % scale.customers + 1);
        let row = customer(&mut choose, id, plan.now);
        names.push((district, id, row.last.clone(), row.first.clone()));
        (key_of(district, id).to_vec(), row.encode())
    });
    fill_table(engine, &warehouse.customers, customers, rows).await?;
    for batch in names.chunks(ROWS / 2) {
        let mut rows = Vec::new();
        for (district, customer, last, first) in batch {
            let key = name_key(*district, last, first, *customer);
            rows.push((&warehouse.customers_by_name, (key, Vec::new())));
            let key = history_key(id, *district, *customer, 1).to_vec();
            let row = history(&mut choose, *district, plan.now).encode();
            rows.push((&warehouse.history, (key, row)));
        }
        fill_trees(engine, &rows).await?;
    }
    for district in 1..=scale.districts {
        load_orders(engine, &warehouse, district, plan, &mut choose).await?;
    }
    Ok(())
}

async fn load_orders<E: Engine>(
    engine: &E,
    warehouse: &Warehouse,
    district: u8,
    plan: &Plan<'_>,
    choose: &mut Choose,
) -> Result<()> {
    let customers = choose.permutation(plan.scale.customers);
    let ids: Vec<u32> = (1..=plan.scale.customers).collect();
    for batch in ids.chunks(ORDERS) {
        let mut rows = Vec::new();
        for id in batch.iter().copied() {
            let customer = customers[id as usize - 1];
            let is_delivered = id <= plan.scale.delivered();
            let lines = choose.within(5, 15) as u8;
            let order = Order {
                customer,
                entered: plan.now,
                carrier: if is_delivered {
                    choose.within(1, 10) as u8
                } else {
                    0
                },
                lines,
                all_local: 1,
            };
            let key = key_of(district, id).to_vec();
            rows.push((&warehouse.orders, (key.clone(), order.encode())));
            let by_customer = order_by_customer_key(district, customer, id).to_vec();
            rows.push((&warehouse.orders_by_customer, (by_customer, Vec::new())));
            for line in 1..=lines {
                let row = OrderLine {
                    item: choose.within(1, plan.scale.items),
                    supply_warehouse: warehouse.id,
                    delivered: if is_delivered { plan.now } else { 0 },
                    quantity: 5,
                    amount: if is_delivered {
                        0
                    } else {
                        i64::from(choose.within(1, 999_999))
                    },
                    district_info: choose.text(24, 24),
                };
                let key = line_key(district, id, line).to_vec();
                rows.push((&warehouse.order_lines, (key, row.encode())));
            }
            if !is_delivered {
                rows.push((&warehouse.new_orders, (key, Vec::new())));
            }
        }
        fill_trees(engine, &rows).await?;
    }
    Ok(())
}

fn place(choose: &mut Choose) -> Place {
    Place {
        name: choose.text(6, 10),
        street_1: choose.text(10, 20),
        street_2: choose.text(10, 20),
        city: choose.text(10, 20),
        state: choose.text(2, 2),
        zip: choose.zip(),
        tax: choose.within(0, 2000),
    }
}

fn stock(choose: &mut Choose) -> Stock {
    let infos = DISTRICT_INFO_BYTES as u32 * 10;
    Stock {
        quantity: choose.within(10, 100),
        year_to_date: 0,
        orders: 0,
        remote: 0,
        district_infos: choose.text(infos, infos),
        data: choose.data(),
    }
}

fn customer(choose: &mut Choose, id: u32, now: u64) -> Customer {
    let last = if id <= 1000 {
        last_name(id - 1)
    } else {
        choose.loaded_last_name()
    };
    Customer {
        first: choose.text(8, 16),
        middle: Text::from_static(b"OE"),
        last,
        street_1: choose.text(10, 20),
        street_2: choose.text(10, 20),
        city: choose.text(10, 20),
        state: choose.text(2, 2),
        zip: choose.zip(),
        phone: choose.digits(16),
        since: now,
        credit: Bytes::from_static(if choose.percent(10) { b"BC" } else { b"GC" }),
        credit_limit: 5_000_000,
        discount: choose.within(0, 5000),
        balance: -FIRST_PAYMENT,
        paid: FIRST_PAYMENT,
        payments: 1,
        deliveries: 0,
        data: choose.text(300, 500),
    }
}

fn history(choose: &mut Choose, district: u8, now: u64) -> History {
    History {
        district,
        date: now,
        amount: FIRST_PAYMENT,
        data: choose.text(12, 24),
    }
}
