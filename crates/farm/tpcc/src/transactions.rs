//! The five transactions (clauses 2.4.2 to 2.8.2). Each runs within a transaction that the caller begins and commits.

use crate::field::{Row, Text};
use crate::input::{
    Delivery, Input, NewOrder, NewOrderLine, OrderStatus, Payment, StockLevel, Who,
};
use crate::rows::{
    Customer, DISTRICT_INFO_BYTES, History, Item, NextOrder, Order, OrderLine, Place, Stock,
    YearToDate,
};
use crate::schema::{
    Tpcc, Warehouse, decoded, expected, history_key, item_key, key_of, line_key, name_prefix,
    number_of, order_by_customer_key, read_row, write_row,
};
use plinth_farm_memory::{Objects, Pointer};
use plinth_farm_structures::hash::HashTable;
use plinth_farm_structures::{Result, damaged};
use plinth_runtime::planted;
use std::collections::BTreeSet;

/// How a transaction ends that has met no error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Commit,
    /// An item does not exist (2.4.1.4): nothing of it may happen. It counts as done.
    GiveUp,
}

/// Does what a terminal has entered. `now` is in milliseconds since 1970.
pub async fn carry_out<O: Objects>(db: &Tpcc, tx: &O, input: &Input, now: u64) -> Result<Ending> {
    match input {
        Input::NewOrder(input) => {
            if new_order(db, tx, input, now).await? == Placed::UnusedItem {
                return Ok(Ending::GiveUp);
            }
        }
        Input::Payment(input) => {
            payment(db, tx, input, now).await?;
        }
        Input::OrderStatus(input) => {
            order_status(db, tx, input).await?;
        }
        Input::Delivery(input) => {
            delivery(db, tx, input, now).await?;
        }
        Input::StockLevel(input) => {
            stock_level(db, tx, input).await?;
        }
    }
    Ok(Ending::Commit)
}

const DATA_BYTES_MAX: usize = 500;
/// A stock level looks at so many of the newest orders.
const RECENT_ORDERS: u32 = 20;

/// What a terminal shows of a new order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placed {
    /// The order's number, and what it costs in cents.
    Order { id: u32, total: i64 },
    /// An item does not exist: the transaction must be given up.
    UnusedItem,
}

pub async fn new_order<O: Objects>(
    db: &Tpcc,
    tx: &O,
    input: &NewOrder,
    now: u64,
) -> Result<Placed> {
    let warehouse = db.warehouse(input.warehouse);
    let district = warehouse.district(input.district);
    let warehouse_tax = read_row::<O, Place>(tx, warehouse.place).await?.tax;
    let district_tax = read_row::<O, Place>(tx, district.place).await?.tax;
    let next: NextOrder = read_row(tx, district.next_order).await?;
    let id = next.id;
    let after = NextOrder { id: id + 1 };
    write_row(tx, district.next_order, &after).await?;
    let customer = read_customer(tx, warehouse, input.district, input.customer).await?;
    let is_local = |line: &NewOrderLine| line.supply_warehouse == input.warehouse;
    let order = Order {
        customer: input.customer,
        entered: now,
        carrier: 0,
        lines: input.lines.len() as u8,
        all_local: u8::from(input.lines.iter().all(is_local)),
    };
    let key = key_of(input.district, id);
    warehouse.orders.set(tx, &key, &order.encode()).await?;
    warehouse.new_orders.set(tx, &key, b"").await?;
    let by_customer = order_by_customer_key(input.district, input.customer, id);
    let tree = &warehouse.orders_by_customer;
    tree.set(tx, &by_customer, b"").await?;
    let (mut sum, mut rows) = (0, Vec::with_capacity(input.lines.len()));
    for (number, line) in (1..).zip(&input.lines) {
        let Some(row) = order_item(db, tx, input, line).await? else {
            return Ok(Placed::UnusedItem);
        };
        sum += row.amount;
        rows.push((line_key(input.district, id, number), row.encode()));
    }
    warehouse.order_lines.set_many(tx, &rows).await?;
    let taxed = sum * i64::from(10_000 + warehouse_tax + district_tax) / 10_000;
    let total = taxed * (10_000 - i64::from(customer.discount)) / 10_000;
    Ok(Placed::Order { id, total })
}

/// Takes what is ordered from the stock. None if there is no such item.
async fn order_item<O: Objects>(
    db: &Tpcc,
    tx: &O,
    input: &NewOrder,
    line: &NewOrderLine,
) -> Result<Option<OrderLine>> {
    let key = item_key(line.item);
    let Some(item) = db.items.get(tx, &key).await? else {
        return Ok(None);
    };
    let item: Item = expected(Some(item), db.items.root())?;
    let supply = db.warehouse(line.supply_warehouse);
    let is_remote = line.supply_warehouse != input.warehouse;
    let at = (usize::from(input.district) - 1) * DISTRICT_INFO_BYTES;
    let mut info = None;
    let take = |stock: &mut Stock| {
        take_from(stock, line.quantity, is_remote);
        let all = &stock.district_infos;
        info = all
            .get(at..at + DISTRICT_INFO_BYTES)
            .map(Text::copy_from_slice);
    };
    change_row(tx, &supply.stock, &key, take).await?;
    Ok(Some(OrderLine {
        item: line.item,
        supply_warehouse: line.supply_warehouse,
        delivered: 0,
        quantity: line.quantity,
        amount: i64::from(line.quantity) * item.price,
        district_info: info.ok_or(damaged(supply.stock.root(), Stock::NAME))?,
    }))
}

fn take_from(stock: &mut Stock, quantity: u8, is_remote: bool) {
    let quantity = u32::from(quantity);
    stock.quantity = if stock.quantity >= quantity + 10 {
        stock.quantity - quantity
    } else {
        stock.quantity + 91 - quantity
    };
    stock.year_to_date = stock.year_to_date.wrapping_add(quantity);
    stock.orders += 1;
    stock.remote += u32::from(is_remote);
}

/// Changes a row that must be there.
async fn change_row<O: Objects, R: Row>(
    tx: &O,
    table: &HashTable,
    key: &[u8],
    change: impl FnOnce(&mut R),
) -> Result<()> {
    let at = table.root();
    let encoded = |bytes| {
        let mut row: R = decoded(bytes, at)?;
        change(&mut row);
        Ok(row.encode())
    };
    if table.modify(tx, key, encoded).await? {
        Ok(())
    } else {
        expected::<R>(None, at).map(|_| ())
    }
}

async fn read_customer<O: Objects>(
    tx: &O,
    warehouse: &Warehouse,
    district: u8,
    id: u32,
) -> Result<Customer> {
    let table = &warehouse.customers;
    expected(table.get(tx, &key_of(district, id)).await?, table.root())
}

/// The number of the customer; of those with a name, the one in the middle by first names, rounded up (2.5.2.2).
async fn find_customer<O: Objects>(
    tx: &O,
    warehouse: &Warehouse,
    district: u8,
    who: &Who,
) -> Result<u32> {
    let last = match who {
        Who::Id(id) => return Ok(*id),
        Who::LastName(last) => last,
    };
    let begin = name_prefix(district, last);
    let mut end = begin.clone();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    let tree = &warehouse.customers_by_name;
    let found = tree
        .range(tx, &begin, Some(&end), usize::MAX, false)
        .await?;
    let middle = found.rows.len().div_ceil(2);
    let nobody = damaged(tree.root(), "no customer has a name that was given out");
    let row = middle.checked_sub(1).and_then(|i| found.rows.get(i));
    number_of(&row.ok_or(nobody)?.0, tree.root())
}

async fn add_to<O: Objects>(tx: &O, at: Pointer, amount: i64) -> Result<()> {
    let mut sum: YearToDate = read_row(tx, at).await?;
    sum.cents += amount;
    write_row(tx, at, &sum).await
}

/// Returns the customer's balance, in cents.
pub async fn payment<O: Objects>(db: &Tpcc, tx: &O, input: &Payment, now: u64) -> Result<i64> {
    let warehouse = db.warehouse(input.warehouse);
    let district = warehouse.district(input.district);
    let place: Place = read_row(tx, warehouse.place).await?;
    let district_place: Place = read_row(tx, district.place).await?;
    add_to(tx, warehouse.year_to_date, input.amount).await?;
    let is_forgotten = planted!(
        "tpcc_payment_forgets_district",
        "a payment is not added to the sum of its district"
    );
    if !is_forgotten {
        add_to(tx, district.year_to_date, input.amount).await?;
    }
    let home = db.warehouse(input.customer_warehouse);
    let home_district = input.customer_district;
    let id = find_customer(tx, home, home_district, &input.who).await?;
    let (mut balance, mut payments) = (0, 0);
    let pay = |customer: &mut Customer| {
        customer.balance -= input.amount;
        customer.paid += input.amount;
        customer.payments += 1;
        if &customer.credit[..] == b"BC" {
            customer.data = bad_credit(customer, input, id);
        }
        (balance, payments) = (customer.balance, customer.payments);
    };
    change_row(tx, &home.customers, &key_of(home_district, id), pay).await?;
    let history = History {
        district: input.district,
        date: now,
        amount: input.amount,
        data: [&place.name[..], b"    ", &district_place.name]
            .concat()
            .into(),
    };
    let key = history_key(home.id, home_district, id, payments);
    warehouse.history.set(tx, &key, &history.encode()).await?;
    Ok(balance)
}

/// C_DATA of a customer with bad credit says what was paid, newest first.
fn bad_credit(customer: &Customer, input: &Payment, id: u32) -> Text {
    let mut data = format!(
        "{id} {} {} {} {} {}.{:02} ",
        input.customer_district,
        input.customer_warehouse,
        input.district,
        input.warehouse,
        input.amount / 100,
        input.amount % 100
    )
    .into_bytes();
    data.extend_from_slice(&customer.data);
    data.truncate(DATA_BYTES_MAX);
    data.into()
}

/// What a terminal shows of a customer's last order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub balance: i64,
    pub order: u32,
    pub carrier: u8,
    pub lines: Vec<OrderLine>,
}

pub async fn order_status<O: Objects>(db: &Tpcc, tx: &O, input: &OrderStatus) -> Result<Status> {
    let warehouse = db.warehouse(input.warehouse);
    let id = find_customer(tx, warehouse, input.district, &input.who).await?;
    let customer = read_customer(tx, warehouse, input.district, id).await?;
    let tree = &warehouse.orders_by_customer;
    let begin = order_by_customer_key(input.district, id, 0);
    let end = order_by_customer_key(input.district, id, u32::MAX);
    let newest = tree.range(tx, &begin, Some(&end), 1, true).await?;
    let without = damaged(tree.root(), "a customer without an order");
    let (key, _) = newest.rows.first().ok_or(without)?;
    let order = number_of(key, tree.root())?;
    let tree = &warehouse.orders;
    let row = tree.get(tx, &key_of(input.district, order)).await?;
    let row: Order = expected(row, tree.root())?;
    Ok(Status {
        balance: customer.balance,
        order,
        carrier: row.carrier,
        lines: lines_of(tx, warehouse, input.district, order, order + 1).await?,
    })
}

/// Order lines of orders from `first`, below `end`.
async fn lines_of<O: Objects>(
    tx: &O,
    warehouse: &Warehouse,
    district: u8,
    first: u32,
    end: u32,
) -> Result<Vec<OrderLine>> {
    let (begin, end) = (key_of(district, first), key_of(district, end));
    let tree = &warehouse.order_lines;
    let found = tree
        .range(tx, &begin, Some(&end), usize::MAX, false)
        .await?;
    let row = |(_, row)| expected(Some(row), tree.root());
    found.rows.into_iter().map(row).collect()
}

/// Delivers the oldest order of each district. Returns how many there were.
pub async fn delivery<O: Objects>(db: &Tpcc, tx: &O, input: &Delivery, now: u64) -> Result<usize> {
    let warehouse = db.warehouse(input.warehouse);
    let mut delivered = 0;
    for district in 1..=db.scale.districts {
        if deliver(tx, warehouse, district, input.carrier, now).await? {
            delivered += 1;
        }
    }
    Ok(delivered)
}

async fn deliver<O: Objects>(
    tx: &O,
    warehouse: &Warehouse,
    district: u8,
    carrier: u8,
    now: u64,
) -> Result<bool> {
    let tree = &warehouse.new_orders;
    let (begin, end) = (key_of(district, 0), key_of(district, u32::MAX));
    let oldest = tree.range(tx, &begin, Some(&end), 1, false).await?;
    let Some((key, _)) = oldest.rows.first() else {
        return Ok(false);
    };
    let id = number_of(key, tree.root())?;
    tree.remove(tx, key).await?;
    let tree = &warehouse.orders;
    let mut order: Order = expected(tree.get(tx, key).await?, tree.root())?;
    order.carrier = carrier;
    tree.set(tx, key, &order.encode()).await?;
    let lines = lines_of(tx, warehouse, district, id, id + 1).await?;
    let (mut sum, mut rows) = (0, Vec::with_capacity(lines.len()));
    for (number, mut line) in (1..).zip(lines) {
        sum += line.amount;
        line.delivered = now;
        rows.push((line_key(district, id, number), line.encode()));
    }
    warehouse.order_lines.set_many(tx, &rows).await?;
    let get = |customer: &mut Customer| {
        customer.balance += sum;
        customer.deliveries += 1;
    };
    change_row(
        tx,
        &warehouse.customers,
        &key_of(district, order.customer),
        get,
    )
    .await?;
    Ok(true)
}

/// How many items of the district's newest orders are below the threshold.
pub async fn stock_level<O: Objects>(db: &Tpcc, tx: &O, input: &StockLevel) -> Result<usize> {
    let warehouse = db.warehouse(input.warehouse);
    let district = warehouse.district(input.district);
    let next: NextOrder = read_row(tx, district.next_order).await?;
    let first = next.id.saturating_sub(RECENT_ORDERS);
    let lines = lines_of(tx, warehouse, input.district, first, next.id).await?;
    let items: BTreeSet<u32> = lines.iter().map(|line| line.item).collect();
    let mut low = 0;
    for item in items {
        let table = &warehouse.stock;
        let stock: Stock = expected(table.get(tx, &item_key(item)).await?, table.root())?;
        low += usize::from(stock.quantity < input.threshold);
    }
    Ok(low)
}
