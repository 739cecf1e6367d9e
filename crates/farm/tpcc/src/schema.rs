//! Where the tables are: partitioned by warehouse, and the items in as many copies as are wanted (§5.1).
//!
//! ```text
//!   catalogue:   tpcc/scale             object   sizes
//!                tpcc/items/0 …         table    item
//!                tpcc/warehouse/1 …     object   places of all that a warehouse has
//!
//!   a warehouse: objects  W, W_YTD, and of each district D, D_YTD, D_NEXT_O_ID
//!                tables   customer, stock
//!                trees    customer by name, order, order by customer, order line, new order, history
//! ```

use crate::field::{Row, Text, rows};
use crate::scale::Scale;
use bytes::Bytes;
use plinth_farm_memory::{Objects, Pointer};
use plinth_farm_structures::btree::{self, BTree, Cache};
use plinth_farm_structures::catalog::{Catalog, Kind, Named};
use plinth_farm_structures::hash::{self, HashTable};
use plinth_farm_structures::{Error, Result, damaged};

rows! {
    /// The sizes, as they are kept.
    KeptScale {
        warehouses: u32,
        items: u32,
        districts: u8,
        customers: u32,
        copies: u32,
    }
}

/// A row that is an object of its own.
pub async fn read_row<O: Objects, R: Row>(tx: &O, at: Pointer) -> Result<R> {
    decoded(tx.read(at).await?, at)
}

pub async fn write_row<O: Objects, R: Row>(tx: &O, at: Pointer, row: &R) -> Result<()> {
    Ok(tx.write(at, row.encode().into()).await?)
}

pub async fn new_row<O: Objects, R: Row>(tx: &O, near: Pointer, row: &R) -> Result<Pointer> {
    let bytes = row.encode();
    let at = tx.allocate(bytes.len(), near).await?;
    tx.write(at, bytes.into()).await?;
    Ok(at)
}

pub fn decoded<R: Row>(bytes: Bytes, at: Pointer) -> Result<R> {
    R::decode(bytes).ok_or(damaged(at, R::NAME))
}

/// The row of a table that must be there.
pub fn expected<R: Row>(bytes: Option<Bytes>, at: Pointer) -> Result<R> {
    let missing = damaged(at, "a row that another one names is missing");
    decoded(bytes.ok_or(missing)?, at)
}

/// A district's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct District {
    pub place: Pointer,
    pub year_to_date: Pointer,
    pub next_order: Pointer,
}

/// A warehouse's objects, tables and trees.
#[derive(Clone)]
pub struct Warehouse {
    pub id: u32,
    pub place: Pointer,
    pub year_to_date: Pointer,
    pub districts: Vec<District>,
    pub customers: HashTable,
    pub stock: HashTable,
    pub customers_by_name: BTree,
    pub orders: BTree,
    pub orders_by_customer: BTree,
    pub order_lines: BTree,
    pub new_orders: BTree,
    pub history: BTree,
}

/// Rows of their own objects, behind small buckets: a change of a row is a change of its object alone.
fn table_of_objects() -> hash::Settings {
    hash::Settings {
        buckets: 64,
        slots: 8,
        key_bytes_max: 8,
        inline_bytes_max: 8,
        ..hash::Settings::default()
    }
}

/// Rows that never change lie in the buckets.
fn table_of_rows() -> hash::Settings {
    hash::Settings {
        inline_bytes_max: 104,
        ..table_of_objects()
    }
}

fn tree_of(key_bytes_max: usize, inline_bytes_max: usize) -> btree::Settings {
    btree::Settings {
        leaf_bytes: 2000,
        inner_bytes: 2000,
        key_bytes_max,
        inline_bytes_max,
        ..btree::Settings::default()
    }
}

fn pack(pointers: &[Pointer]) -> Vec<u8> {
    let words = pointers.iter().flat_map(|p| p.bits().to_le_bytes());
    words.collect()
}

fn unpack(bytes: &[u8], count: usize, at: Pointer) -> Result<Vec<Pointer>> {
    let words = bytes.chunks_exact(8).take(count);
    let pointer = |word: &[u8]| Pointer::from_bits(u64::from_le_bytes(word.try_into().ok()?));
    let pointers: Option<Vec<Pointer>> = words.map(pointer).collect();
    let whole = pointers.filter(|pointers| pointers.len() == count);
    whole.ok_or(damaged(at, "it is not the list of what a warehouse has"))
}

fn places(districts: u8) -> usize {
    2 + 3 * usize::from(districts) + 8
}

impl Warehouse {
    /// Structures without rows, and the objects that `place`, `year_to_date` and `districts` are.
    pub async fn create<O: Objects>(
        tx: &O,
        id: u32,
        objects: (Pointer, Pointer, Vec<District>),
        cache: &Cache,
    ) -> Result<Warehouse> {
        let (place, year_to_date, districts) = objects;
        let near = place;
        let tree = async |key, inline| BTree::create(tx, tree_of(key, inline), near, cache).await;
        Ok(Warehouse {
            id,
            place,
            year_to_date,
            districts,
            customers: HashTable::create(tx, table_of_objects(), near).await?,
            stock: HashTable::create(tx, table_of_objects(), near).await?,
            customers_by_name: tree(48, 8).await?,
            orders: tree(8, 32).await?,
            orders_by_customer: tree(16, 8).await?,
            order_lines: tree(8, 64).await?,
            new_orders: tree(8, 8).await?,
            history: tree(16, 64).await?,
        })
    }

    fn pack(&self) -> Vec<u8> {
        let mut all = vec![self.place, self.year_to_date];
        for district in &self.districts {
            all.extend([district.place, district.year_to_date, district.next_order]);
        }
        all.extend([self.customers.root(), self.stock.root()]);
        all.extend(self.trees().map(|(_, tree)| tree.root()));
        pack(&all)
    }

    pub fn trees(&self) -> [(&str, &BTree); 6] {
        [
            ("customers by name", &self.customers_by_name),
            ("orders", &self.orders),
            ("orders by customer", &self.orders_by_customer),
            ("order lines", &self.order_lines),
            ("new orders", &self.new_orders),
            ("history", &self.history),
        ]
    }

    pub async fn register<O: Objects>(&self, tx: &O, catalog: &Catalog) -> Result<()> {
        let packed = self.pack();
        let root = tx.allocate(packed.len(), self.place).await?;
        tx.write(root, packed.into()).await?;
        let kind = Kind::Object;
        let name = warehouse_name(self.id);
        catalog.add(tx, &name, Named { kind, root }).await
    }

    async fn open<O: Objects>(
        tx: &O,
        id: u32,
        at: Pointer,
        districts: u8,
        cache: &Cache,
    ) -> Result<Warehouse> {
        let all = unpack(&tx.read(at).await?, places(districts), at)?;
        let (objects, structures) = all.split_at(2 + 3 * usize::from(districts));
        let district = |objects: &[Pointer]| District {
            place: objects[0],
            year_to_date: objects[1],
            next_order: objects[2],
        };
        let tree = async |i: usize| BTree::open(tx, structures[i], cache).await;
        Ok(Warehouse {
            id,
            place: objects[0],
            year_to_date: objects[1],
            districts: objects[2..].chunks_exact(3).map(district).collect(),
            customers: HashTable::open(tx, structures[0]).await?,
            stock: HashTable::open(tx, structures[1]).await?,
            customers_by_name: tree(2).await?,
            orders: tree(3).await?,
            orders_by_customer: tree(4).await?,
            order_lines: tree(5).await?,
            new_orders: tree(6).await?,
            history: tree(7).await?,
        })
    }
}

const SCALE: &str = "tpcc/scale";

fn items_name(copy: u32) -> String {
    format!("tpcc/items/{copy}")
}

fn warehouse_name(id: u32) -> String {
    format!("tpcc/warehouse/{id}")
}

/// A new table of items, which the catalogue has from now on.
pub async fn create_items<O: Objects>(
    tx: &O,
    catalog: &Catalog,
    copy: u32,
    near: Pointer,
) -> Result<HashTable> {
    let items = HashTable::create(tx, table_of_rows(), near).await?;
    let root = items.root();
    let kind = Kind::Table;
    catalog
        .add(tx, &items_name(copy), Named { kind, root })
        .await?;
    Ok(items)
}

/// Says that everything is loaded.
pub async fn register_scale<O: Objects>(
    tx: &O,
    catalog: &Catalog,
    scale: &Scale,
    copies: u32,
) -> Result<()> {
    let kept = KeptScale {
        warehouses: scale.warehouses,
        items: scale.items,
        districts: scale.districts,
        customers: scale.customers,
        copies,
    };
    let root = new_row(tx, catalog.root(), &kept).await?;
    let kind = Kind::Object;
    catalog.add(tx, SCALE, Named { kind, root }).await
}

/// The whole database, as one machine uses it.
#[derive(Clone)]
pub struct Tpcc {
    pub scale: Scale,
    /// The copy that this machine reads.
    pub items: HashTable,
    warehouses: Vec<Warehouse>,
}

impl Tpcc {
    /// Opens what was loaded. `machine` chooses the copy of the items.
    pub async fn open<O: Objects>(
        tx: &O,
        catalog: &Catalog,
        machine: u32,
        cache: &Cache,
    ) -> Result<Tpcc> {
        let find = async |name: String| match catalog.find(tx, &name).await? {
            Some(named) => Ok(named.root),
            None => Err(Error::Invalid("the tables of TPC-C have not been loaded")),
        };
        let kept: KeptScale = read_row(tx, find(SCALE.to_string()).await?).await?;
        let scale = Scale {
            warehouses: kept.warehouses,
            items: kept.items,
            districts: kept.districts,
            customers: kept.customers,
        };
        if !scale.is_legal() || kept.copies == 0 {
            return Err(Error::Invalid("the sizes of TPC-C's tables are damaged"));
        }
        let items = find(items_name(machine % kept.copies)).await?;
        let items = HashTable::open(tx, items).await?;
        let mut warehouses = Vec::new();
        for id in 1..=scale.warehouses {
            let at = find(warehouse_name(id)).await?;
            warehouses.push(Warehouse::open(tx, id, at, scale.districts, cache).await?);
        }
        Ok(Tpcc {
            scale,
            items,
            warehouses,
        })
    }

    /// # Panics
    /// If there is no such warehouse: numbers are from 1 to [`Scale::warehouses`].
    pub fn warehouse(&self, id: u32) -> &Warehouse {
        &self.warehouses[id as usize - 1]
    }

    pub fn warehouses(&self) -> &[Warehouse] {
        &self.warehouses
    }
}

impl Warehouse {
    /// # Panics
    /// If there is no such district: numbers are from 1.
    pub fn district(&self, id: u8) -> &District {
        &self.districts[usize::from(id) - 1]
    }
}

pub fn item_key(item: u32) -> [u8; 4] {
    item.to_be_bytes()
}

/// District and a number within it: customers, orders, new orders.
pub fn key_of(district: u8, id: u32) -> [u8; 5] {
    let mut key = [district; 5];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

pub fn line_key(district: u8, order: u32, line: u8) -> [u8; 6] {
    let mut key = [line; 6];
    key[..5].copy_from_slice(&key_of(district, order));
    key
}

pub fn order_by_customer_key(district: u8, customer: u32, order: u32) -> [u8; 9] {
    let mut key = [0; 9];
    key[..5].copy_from_slice(&key_of(district, customer));
    key[5..].copy_from_slice(&order.to_be_bytes());
    key
}

/// The number of the customer's payment makes it unique, so payments of different customers touch different leaves.
pub fn history_key(warehouse: u32, district: u8, customer: u32, payment: u32) -> [u8; 13] {
    let mut key = [0; 13];
    key[..4].copy_from_slice(&warehouse.to_be_bytes());
    key[4..9].copy_from_slice(&key_of(district, customer));
    key[9..].copy_from_slice(&payment.to_be_bytes());
    key
}

/// Customers of a name in the order of their first names.
pub fn name_prefix(district: u8, last: &Text) -> Vec<u8> {
    let mut key = vec![district];
    key.extend_from_slice(last);
    key.push(0);
    key
}

pub fn name_key(district: u8, last: &Text, first: &Text, customer: u32) -> Vec<u8> {
    let mut key = name_prefix(district, last);
    key.extend_from_slice(first);
    key.push(0);
    key.extend_from_slice(&customer.to_be_bytes());
    key
}

/// The number at the end of a key.
pub fn number_of(key: &[u8], at: Pointer) -> Result<u32> {
    let word = key.last_chunk().ok_or(damaged(at, "a key is too short"))?;
    Ok(u32::from_be_bytes(*word))
}
