//! The way to the rows of a filter: the primary key, or one of the indexes.
//!
//! The rules, in this order; the first that tells two ways apart decides:
//! 1. the primary key, if the filter sets all of it;
//! 2. the way with more leading columns that the filter sets equal to a value;
//! 3. the way whose next column the filter bounds from below, from above, or by a prefix;
//! 4. the way that gives the rows in the order that is asked for;
//! 5. the primary key, then the index that is older.
//!
//! The order of rows is that of the columns that are asked for, then that of the primary key in the direction of the
//! last of them. Columns that the filter sets equal to a value do not matter to it.

use crate::filter::Bound;
use crate::keys::{Key, LAST};
use crate::proto::Comparison;
use crate::rows::Table;
use crate::schema::State;
use crate::value::Value;

/// Columns to sort by, each with whether it descends.
pub type Order = Vec<(usize, bool)>;

/// A range of keys.
pub struct Path {
    /// None: the primary key.
    pub index: Option<usize>,
    pub begin: Vec<u8>,
    pub end: Vec<u8>,
    pub reverse: bool,
    /// The rows come in the order that is asked for.
    pub is_ordered: bool,
}

/// The whole order of a query's rows: no two are equal in it.
pub fn whole_order(table: &Table, order: &Order, filter: &Bound) -> Order {
    let descending = order.last().is_some_and(|(_, descending)| *descending);
    let rest = table.key.iter().map(|at| (*at, descending));
    distinguishing(table, order.iter().copied().chain(rest), filter)
}

/// The columns whose values tell how far a query has come. An order leaves out what the filter sets equal to a value;
/// rows with other values may lie in between on the way, and a page may end behind one of them.
pub fn whole_place(order: &Order, filter: &Bound) -> Order {
    let mut all = order.clone();
    let others = pins(filter).into_iter().map(|(at, _)| (at, false));
    all.extend(others.filter(|(at, _)| order.iter().all(|(known, _)| known != at)));
    all
}

/// Leaves out what does not tell two rows of the filter apart.
fn distinguishing(
    table: &Table,
    columns: impl Iterator<Item = (usize, bool)>,
    filter: &Bound,
) -> Order {
    let pinned = pins(filter);
    let mut kept = Order::new();
    for (at, descending) in columns {
        let is_known = |at: &usize| {
            pinned.iter().any(|(pin, _)| pin == at) || kept.iter().any(|(known, _)| known == at)
        };
        if table.key.iter().all(is_known) {
            break;
        }
        if !is_known(&at) {
            kept.push((at, descending));
        }
    }
    kept
}

/// Columns that the filter sets equal to a value, each once.
fn pins(filter: &Bound) -> Vec<(usize, &Value)> {
    let mut pins: Vec<(usize, &Value)> = Vec::new();
    for (at, comparison, value) in filter.needs() {
        if comparison == Comparison::Equal && pins.iter().all(|(pin, _)| *pin != at) {
            pins.push((at, value));
        }
    }
    pins
}

/// Packed, without what ends it: all longer ones begin with it.
fn open_ended(mut key: Key) -> Vec<u8> {
    key.0.pop();
    key.0
}

/// After all keys that begin with `prefix`, some of which may go on with any byte.
fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < LAST {
            prefix.push(last + 1);
            break;
        }
    }
    prefix
}

/// A way with its merits.
struct Way {
    path: Path,
    pinned: usize,
    is_bounded: bool,
}

fn columns_of(table: &Table, index: Option<usize>) -> Vec<usize> {
    let own = index.map_or(&[][..], |index| &table.indexes[index]);
    own.iter().chain(&table.key).copied().collect()
}

fn start_of(table: &Table, index: Option<usize>) -> Key {
    match index {
        None => Key::rows(table.schema.id),
        Some(index) => Key::index(table.schema.id, table.schema.indexes[index].id),
    }
}

fn way(table: &Table, index: Option<usize>, filter: &Bound, order: &Order) -> Way {
    let columns = columns_of(table, index);
    let pins = pins(filter);
    let mut key = start_of(table, index);
    let mut pinned = 0;
    for at in &columns {
        let Some((_, value)) = pins.iter().find(|(pin, _)| pin == at) else {
            break;
        };
        key = key.then(value);
        pinned += 1;
    }
    let (mut begin, mut end) = (key.0.clone(), Key(key.0.clone()).end().0);
    let mut is_bounded = false;
    let next = columns.get(pinned);
    for (_, comparison, value) in filter.needs().into_iter().filter(|n| Some(&n.0) == next) {
        let at = |value: &Value| Key(key.0.clone()).then(value);
        let after_null = || at(&Value::Null).end().0;
        let (from, to) = match comparison {
            Comparison::Less => (after_null(), at(value).0),
            Comparison::LessOrEqual => (after_null(), at(value).end().0),
            Comparison::Greater => (at(value).end().0, end.clone()),
            Comparison::GreaterOrEqual => (at(value).0, end.clone()),
            Comparison::Prefix => {
                let prefix = open_ended(at(value));
                (prefix.clone(), after_prefix(prefix))
            }
            _ => continue,
        };
        is_bounded = true;
        begin = begin.max(from);
        end = end.min(to);
    }
    let given = columns.iter().map(|at| (*at, false));
    let given = distinguishing(table, given, filter);
    let reverse = order.first().is_some_and(|(_, descending)| *descending);
    let is_ordered = order.iter().all(|(_, descending)| *descending == reverse)
        && order
            .iter()
            .map(|(at, _)| at)
            .eq(given.iter().map(|(at, _)| at));
    let path = Path {
        index,
        begin,
        end,
        reverse: reverse && is_ordered,
        is_ordered,
    };
    Way {
        path,
        pinned,
        is_bounded,
    }
}

/// The best way to the rows of `filter` in an order made by [`whole_order`]; a `hint` is taken as it is.
pub fn choose(table: &Table, filter: &Bound, order: &Order, hint: Option<Option<usize>>) -> Path {
    if let Some(index) = hint {
        return way(table, index, filter, order).path;
    }
    let indexes = 0..table.schema.indexes.len();
    let ready = indexes.filter(|at| table.schema.indexes[*at].state() == State::Ready);
    let mut best = way(table, None, filter, order);
    if best.pinned == table.key.len() {
        return best.path;
    }
    for index in ready {
        let other = way(table, Some(index), filter, order);
        let merits = |way: &Way| (way.pinned, way.is_bounded, way.path.is_ordered);
        if merits(&other) > merits(&best) {
            best = other;
        }
    }
    best.path
}

/// Narrows an ordered path to what comes after the row with these values of the columns of [`whole_place`].
pub fn resume(table: &Table, path: &mut Path, places: &Order, after: &[Value]) {
    let mut key = start_of(table, path.index);
    for at in columns_of(table, path.index) {
        // An ordered path has nothing else before its row is told from all others.
        match places.iter().position(|(column, _)| *column == at) {
            Some(place) => key = key.then(&after[place]),
            None => break,
        }
    }
    match path.reverse {
        false => path.begin = key.end().0.max(std::mem::take(&mut path.begin)),
        true => path.end = key.0.min(std::mem::take(&mut path.end)),
    }
}

/// Where a row is in an order.
pub fn place(row: &[Value], order: &Order) -> Vec<Value> {
    order.iter().map(|(at, _)| row[*at].clone()).collect()
}

/// How two places in an order compare.
pub fn compare(a: &[Value], b: &[Value], order: &Order) -> std::cmp::Ordering {
    let each = a.iter().zip(b).zip(order);
    let each = each.map(|((a, b), (_, descending))| match descending {
        false => a.cmp(b),
        true => b.cmp(a),
    });
    each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
}

/// The name of the way that was taken.
pub fn name(table: &Table, path: &Path) -> String {
    match path.index {
        None => crate::alter::PRIMARY.to_owned(),
        Some(index) => table.schema.indexes[index].name.clone(),
    }
}
