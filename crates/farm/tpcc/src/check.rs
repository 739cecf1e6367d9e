//! The consistency conditions of clause 3.3.2, at one snapshot.

use crate::field::Row;
use crate::rows::{Customer, History, NextOrder, Order, OrderLine, YearToDate};
use crate::schema::{Tpcc, Warehouse, decoded, number_of, read_row};
use bytes::Bytes;
use plinth_farm_memory::Objects;
use plinth_farm_structures::Result;
use plinth_farm_structures::btree::BTree;
use plinth_runtime::Pace;
use std::collections::{BTreeMap, BTreeSet};

/// A customer: warehouse, district, number.
type Who = (u32, u8, u32);

/// What was paid and delivered, by customer.
#[derive(Default)]
struct Sums {
    paid: BTreeMap<Who, i64>,
    delivered: BTreeMap<Who, i64>,
    customers: BTreeMap<Who, Customer>,
}

/// What is wrong, by condition.
#[derive(Default)]
struct Broken(Vec<String>);

impl Broken {
    fn expect(&mut self, condition: u32, is_kept: bool, what: impl FnOnce() -> String) {
        if !is_kept {
            self.0.push(format!("condition {condition}: {}", what()));
        }
    }
}

async fn rows<O: Objects>(tx: &O, tree: &BTree) -> Result<Vec<(Bytes, Bytes)>> {
    Ok(tree.range(tx, b"", None, usize::MAX, false).await?.rows)
}

async fn decoded_rows<O: Objects, R: Row>(tx: &O, tree: &BTree) -> Result<Vec<(Bytes, R)>> {
    let rows = rows(tx, tree).await?;
    let (mut all, mut pace) = (Vec::with_capacity(rows.len()), Pace::new());
    for (key, row) in rows {
        // Millions of rows take seconds, and the machine must renew its lease meanwhile.
        pace.rest_if_over().await;
        all.push((key, decoded(row, tree.root())?));
    }
    Ok(all)
}

/// Checks conditions 1 to 10 and 12. The eleventh holds for a database that was only loaded; see [`check_loaded`].
/// Returns a line for each that is broken. It holds orders and lines of a warehouse in memory at a time, and sums and
/// rows of all customers.
pub async fn check<O: Objects>(db: &Tpcc, tx: &O) -> Result<Vec<String>> {
    let (mut broken, mut sums) = (Broken::default(), Sums::default());
    for warehouse in db.warehouses() {
        check_payments(tx, warehouse, &mut broken, &mut sums).await?;
        let orders = check_orders(tx, warehouse, &mut broken).await?;
        check_lines(tx, warehouse, &orders, &mut broken, &mut sums).await?;
        for (key, row) in warehouse.customers.entries(tx).await? {
            let row: Customer = decoded(row, warehouse.customers.root())?;
            let id = number_of(&key, warehouse.customers.root())?;
            sums.customers.insert((warehouse.id, key[0], id), row);
        }
    }
    for (who, customer) in &sums.customers {
        let of = |sums: &BTreeMap<Who, i64>| sums.get(who).copied().unwrap_or_default();
        let (paid, delivered) = (of(&sums.paid), of(&sums.delivered));
        let balance = customer.balance;
        broken.expect(10, balance == delivered - paid, || {
            format!("customer {who:?} has {balance}, got {delivered} and paid {paid}")
        });
        broken.expect(12, balance + customer.paid == delivered, || {
            format!(
                "customer {who:?} has {balance}, got {delivered} and paid {}",
                customer.paid
            )
        });
    }
    Ok(broken.0)
}

/// Conditions 1, 8 and 9: sums of payments.
async fn check_payments<O: Objects>(
    tx: &O,
    warehouse: &Warehouse,
    broken: &mut Broken,
    sums: &mut Sums,
) -> Result<()> {
    let mut by_district: BTreeMap<u8, i64> = BTreeMap::new();
    let (mut sum, mut pace) = (0, Pace::new());
    for (key, row) in decoded_rows::<O, History>(tx, &warehouse.history).await? {
        pace.rest_if_over().await;
        sum += row.amount;
        *by_district.entry(row.district).or_default() += row.amount;
        let at = warehouse.history.root();
        let who = (number_of(&key[..4], at)?, key[4], number_of(&key[..9], at)?);
        *sums.paid.entry(who).or_default() += row.amount;
    }
    let id = warehouse.id;
    let year: YearToDate = read_row(tx, warehouse.year_to_date).await?;
    let mut districts = 0;
    for (number, district) in (1..).zip(&warehouse.districts) {
        let year: YearToDate = read_row(tx, district.year_to_date).await?;
        districts += year.cents;
        let paid = by_district.get(&number).copied().unwrap_or_default();
        broken.expect(9, year.cents == paid, || {
            format!(
                "district {number} of {id} has {}, its history {paid}",
                year.cents
            )
        });
    }
    broken.expect(1, year.cents == districts, || {
        format!(
            "warehouse {id} has {}, its districts {districts}",
            year.cents
        )
    });
    broken.expect(8, year.cents == sum, || {
        format!("warehouse {id} has {}, its history {sum}", year.cents)
    });
    Ok(())
}

/// District and number.
type OrderId = (u8, u32);

/// Conditions 2, 3 and 5: numbers of orders, and which are new. Returns the orders.
async fn check_orders<O: Objects>(
    tx: &O,
    warehouse: &Warehouse,
    broken: &mut Broken,
) -> Result<BTreeMap<OrderId, Order>> {
    let (mut orders, mut pace) = (BTreeMap::new(), Pace::new());
    for (key, row) in decoded_rows::<O, Order>(tx, &warehouse.orders).await? {
        pace.rest_if_over().await;
        orders.insert((key[0], number_of(&key, warehouse.orders.root())?), row);
    }
    let mut new = BTreeSet::new();
    for (key, _) in rows(tx, &warehouse.new_orders).await? {
        pace.rest_if_over().await;
        new.insert((key[0], number_of(&key, warehouse.new_orders.root())?));
    }
    let of = warehouse.id;
    for (number, district) in (1..).zip(&warehouse.districts) {
        let next: NextOrder = read_row(tx, district.next_order).await?;
        let of_district = (number, 0)..=(number, u32::MAX);
        let newest = orders.range(of_district.clone()).next_back();
        let newest = newest.map_or(0, |((_, id), _)| *id);
        broken.expect(2, next.id == newest + 1, || {
            format!(
                "district {number} of {of} has {} next, its newest order is {newest}",
                next.id
            )
        });
        let mut ids = new.range(of_district).map(|(_, id)| *id);
        if let Some(first) = ids.next() {
            let count = 1 + ids.clone().count() as u32;
            let last = ids.next_back().unwrap_or(first);
            broken.expect(2, last == newest, || {
                format!(
                    "district {number} of {of} has {last} as its newest new order, not {newest}"
                )
            });
            broken.expect(3, last - first + 1 == count, || {
                format!("district {number} of {of} has {count} new orders from {first} to {last}")
            });
        }
    }
    for (id, order) in &orders {
        pace.rest_if_over().await;
        broken.expect(5, (order.carrier == 0) == new.contains(id), || {
            format!("order {id:?} of {of} has carrier {}", order.carrier)
        });
    }
    broken.expect(5, new.iter().all(|id| orders.contains_key(id)), || {
        format!("warehouse {of} has new orders that are no orders")
    });
    let mut by_customer = BTreeSet::new();
    for (key, _) in rows(tx, &warehouse.orders_by_customer).await? {
        pace.rest_if_over().await;
        by_customer.insert((
            key[0],
            number_of(&key, warehouse.orders_by_customer.root())?,
        ));
    }
    broken.expect(5, by_customer.iter().eq(orders.keys()), || {
        format!("warehouse {of} has an index of orders that is not that of its orders")
    });
    Ok(orders)
}

/// Conditions 4, 6 and 7: lines of orders.
async fn check_lines<O: Objects>(
    tx: &O,
    warehouse: &Warehouse,
    orders: &BTreeMap<OrderId, Order>,
    broken: &mut Broken,
    sums: &mut Sums,
) -> Result<()> {
    let mut counts: BTreeMap<OrderId, u32> = BTreeMap::new();
    let (of, mut pace) = (warehouse.id, Pace::new());
    for (key, line) in decoded_rows::<O, OrderLine>(tx, &warehouse.order_lines).await? {
        pace.rest_if_over().await;
        let id = (key[0], number_of(&key[..5], warehouse.order_lines.root())?);
        *counts.entry(id).or_default() += 1;
        let Some(order) = orders.get(&id) else {
            broken.expect(6, false, || format!("a line of {of} has no order {id:?}"));
            continue;
        };
        broken.expect(7, (line.delivered == 0) == (order.carrier == 0), || {
            format!(
                "a line of order {id:?} of {of} is delivered at {}",
                line.delivered
            )
        });
        if line.delivered != 0 {
            let who = (of, id.0, order.customer);
            *sums.delivered.entry(who).or_default() += line.amount;
        }
    }
    let mut by_district: BTreeMap<u8, (u32, u32)> = BTreeMap::new();
    for (id, order) in orders {
        pace.rest_if_over().await;
        let lines = counts.get(id).copied().unwrap_or_default();
        let sums = by_district.entry(id.0).or_default();
        *sums = (sums.0 + u32::from(order.lines), sums.1 + lines);
        broken.expect(6, u32::from(order.lines) == lines, || {
            format!(
                "order {id:?} of {of} has {lines} lines, not {}",
                order.lines
            )
        });
    }
    for (district, (said, lines)) in by_district {
        broken.expect(4, said == lines, || {
            format!("district {district} of {of} has {lines} lines, its orders say {said}")
        });
    }
    Ok(())
}

/// Condition 11, and that all rows are there that the loader makes.
pub async fn check_loaded<O: Objects>(db: &Tpcc, tx: &O) -> Result<Vec<String>> {
    let mut broken = Broken::default();
    let (scale, customers) = (
        &db.scale,
        db.scale.customers * u32::from(db.scale.districts),
    );
    for warehouse in db.warehouses() {
        let count = async |tree: &BTree| {
            Ok::<u32, plinth_farm_structures::Error>(rows(tx, tree).await?.len() as u32)
        };
        let orders = count(&warehouse.orders).await?;
        let new = count(&warehouse.new_orders).await?;
        let delivered = scale.delivered() * u32::from(scale.districts);
        broken.expect(11, orders - new == delivered, || {
            format!(
                "warehouse {} has {orders} orders and {new} new ones",
                warehouse.id
            )
        });
        let names = count(&warehouse.customers_by_name).await?;
        let stock = warehouse.stock.check(tx).await?.entries as u32;
        let rows = (orders, names, stock);
        broken.expect(11, rows == (customers, customers, scale.items), || {
            format!("warehouse {} has {rows:?} rows", warehouse.id)
        });
    }
    let items = db.items.check(tx).await?.entries as u32;
    broken.expect(11, items == scale.items, || format!("{items} items"));
    Ok(broken.0)
}
