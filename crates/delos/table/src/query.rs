//! Queries: one page of rows of a snapshot, in a whole order, so that the next page goes on where this one ends.
//!
//! If the way to the rows ([`crate::plan`]) gives them in order, a page ends after its limit of rows or bytes, or
//! after [`limits::ROWS_SCANNED`] rows that were looked at: a page may be short, or empty, and not be the last one. If
//! it does not, all rows of the way are looked at, up to [`limits::ROWS_SORTED`], and the first of them kept.
//!
//! A continuation is a tuple `(version, what was asked, value…)` with the values that order the last row. Pages are
//! read at the position of their time: rows that change between them may come twice or not at all.

use crate::filter::{Bound, Filter};
use crate::plan::{self, Order};
use crate::rows::{Row, Table};
use crate::scan::Scan;
use crate::schema::State;
use crate::value::Value;
use crate::{Ended, Refused, alter, limits, proto, schema};
use bytes::Bytes;
use plinth_core::hash::hash_bytes;
use plinth_core::tuple::{Element, pack, unpack};
use plinth_delos::store::{Reads, RoTx};
use plinth_runtime::Pace;
use prost::Message;

const VERSION: i64 = 1;
const DEFAULT_LIMIT: usize = 100;
const ORDER_MAX: usize = limits::KEY_COLUMNS;

/// A query that fits its table.
struct Plan {
    table: Table,
    /// Places of the columns that are shown.
    shown: Vec<usize>,
    filter: Bound,
    order: Order,
    /// The columns of a place: those of the order, and others.
    places: Order,
    limit: usize,
    /// The place of the row before the page.
    after: Option<Vec<Value>>,
    /// What was asked, but for the page.
    asked: i64,
    hint: Option<Option<usize>>,
}

/// The rows of a page, and what it took.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    /// Where the last row is that was dealt with, if there may be more.
    last: Option<Vec<Value>>,
    scanned: usize,
}

impl Plan {
    fn new(rows: &impl Reads, asked: proto::Query) -> Result<Plan, Ended> {
        let table = Table::load(rows, &asked.table)?;
        let filter = Filter::understand(asked.filter.clone())?;
        let identity = proto::Query {
            filter: Some(filter.clone().into()),
            order: asked.order.clone(),
            limit: table.schema.id,
            ..proto::Query::default()
        };
        let identity = hash_bytes(&identity.encode_to_vec()) as i64;
        let filter = filter.bind(&table.schema)?;
        let order = order(&table, &asked.order)?;
        let order = plan::whole_order(&table, &order, &filter);
        let places = plan::whole_place(&order, &filter);
        let after = match asked.continuation.is_empty() {
            true => None,
            false => Some(parse(&table, &places, identity, &asked.continuation)?),
        };
        let shown = match asked.columns.is_empty() {
            true => (0..table.schema.columns.len()).collect(),
            false => columns(&table, &asked.columns)?,
        };
        Ok(Plan {
            shown,
            filter,
            order,
            places,
            limit: match asked.limit as usize {
                0 => DEFAULT_LIMIT,
                limit => limit.min(limits::PAGE_ROWS),
            },
            after,
            asked: identity,
            hint: hint(&table, &asked.index)?,
            table,
        })
    }

    fn continuation(&self, last: &[Value]) -> Bytes {
        let mut elements = vec![Element::Int(VERSION), Element::Int(self.asked)];
        elements.extend(last.iter().map(Value::to_element));
        pack(&elements).expect("a value is no versionstamp")
    }

    fn show(&self, row: &Row) -> proto::Row {
        let values = self.shown.iter().map(|at| row[*at].clone().into());
        proto::Row {
            values: values.collect(),
        }
    }
}

fn order(table: &Table, asked: &[proto::Order]) -> Result<Order, Refused> {
    if asked.len() > ORDER_MAX {
        return refuse!(TooLarge, "rows are ordered by at most {ORDER_MAX} columns");
    }
    let column = |by: &proto::Order| Ok((table.schema.column(&by.column)?, by.descending));
    asked.iter().map(column).collect()
}

fn columns(table: &Table, asked: &[String]) -> Result<Vec<usize>, Refused> {
    if asked.len() > limits::COLUMNS {
        return refuse!(
            TooLarge,
            "a query shows at most {} columns",
            limits::COLUMNS
        );
    }
    let columns = asked.iter().map(|name| table.schema.column(name));
    columns.collect()
}

fn hint(table: &Table, asked: &str) -> Result<Option<Option<usize>>, Refused> {
    match asked {
        "" => Ok(None),
        alter::PRIMARY => Ok(Some(None)),
        _ => {
            let at = table.schema.index(asked)?;
            let index = &table.schema.indexes[at];
            match index.state() {
                State::Ready => Ok(Some(Some(at))),
                State::Building => refuse!(BadRequest, "index {asked:?} is still being built"),
                State::Failed => {
                    refuse!(BadRequest, "index {asked:?} has failed: {}", index.failed)
                }
            }
        }
    }
}

fn parse(
    table: &Table,
    order: &Order,
    asked: i64,
    continuation: &Bytes,
) -> Result<Vec<Value>, Refused> {
    let parsed = || {
        let mut elements = unpack(continuation).ok()?.into_iter();
        let is_same = elements.next()? == Element::Int(VERSION)
            && elements.next()? == Element::Int(asked)
            && elements.len() == order.len();
        let value = |(element, (at, _)): (Element, &(usize, bool))| {
            Value::from_element(element, table.schema.columns[*at].kind()).ok()
        };
        match is_same {
            true => elements.zip(order).map(value).collect(),
            false => None,
        }
    };
    match parsed() {
        Some(after) => Ok(after),
        None => refuse!(
            BadRequest,
            "the continuation is not of this query: begin again without one"
        ),
    }
}

fn size(row: &Row) -> usize {
    row.iter().map(Value::size).sum()
}

/// Rows that come in order.
async fn in_order(plan: &Plan, path: plan::Path, rows: &RoTx) -> Result<Found, Ended> {
    let mut scan = Scan::new(&plan.table, path);
    let mut found = Found::default();
    let (mut bytes, mut pace) = (0, Pace::new());
    loop {
        let chunk = scan.next(rows)?;
        if chunk.is_empty() {
            found.last = None;
            return Ok(found);
        }
        for (_, row) in chunk {
            let is_full = found.rows.len() == plan.limit || found.scanned >= limits::ROWS_SCANNED;
            let matches = plan.filter.matches(&row);
            let more = if matches { size(&row) } else { 0 };
            if is_full || (bytes + more > limits::PAGE_BYTES && !found.rows.is_empty()) {
                return Ok(found);
            }
            found.scanned += 1;
            found.last = Some(plan::place(&row, &plan.places));
            if matches {
                // Others may be anywhere in the order: it leaves out what the filter sets equal to a value.
                let last = found.rows.last();
                let is_behind = |last: &Row| {
                    let (last, place) = (
                        plan::place(last, &plan.order),
                        plan::place(&row, &plan.order),
                    );
                    plan::compare(&last, &place, &plan.order).is_lt()
                };
                assert!(
                    last.is_none_or(is_behind),
                    "row {row:?} comes behind {last:?}"
                );
                bytes += more;
                found.rows.push(row);
            }
        }
        pace.rest_if_over().await;
    }
}

/// The first rows of all that are there.
async fn sorted(plan: &Plan, path: plan::Path, rows: &RoTx) -> Result<Found, Ended> {
    let mut scan = Scan::new(&plan.table, path);
    let mut best: Vec<(Vec<Value>, Row)> = Vec::new();
    let (mut bytes, mut scanned, mut is_more) = (0, 0, false);
    let mut pace = Pace::new();
    loop {
        let chunk = scan.next(rows)?;
        if chunk.is_empty() {
            break;
        }
        scanned += chunk.len();
        if scanned > limits::ROWS_SORTED {
            return refuse!(
                TooLarge,
                "more than {} rows would have to be sorted: narrow the filter, or add an index in this order",
                limits::ROWS_SORTED
            );
        }
        let compare = |a: &[Value], b: &[Value]| plan::compare(a, b, &plan.order);
        for (_, row) in chunk {
            let place = plan::place(&row, &plan.places);
            let is_before = |after: &Vec<Value>| compare(&place, after).is_le();
            if !plan.filter.matches(&row) || plan.after.as_ref().is_some_and(is_before) {
                continue;
            }
            let at = best.partition_point(|(other, _)| compare(other, &place).is_lt());
            assert!(
                best.get(at)
                    .is_none_or(|(other, _)| compare(other, &place).is_gt()),
                "a query shows the row at {place:?} twice"
            );
            bytes += size(&row);
            best.insert(at, (place, row));
            while best.len() > plan.limit || (bytes > limits::PAGE_BYTES && best.len() > 1) {
                let (_, row) = best.pop().expect("there are several");
                bytes -= size(&row);
                is_more = true;
            }
        }
        pace.rest_if_over().await;
    }
    let last = best.last().map(|(place, _)| place.clone());
    Ok(Found {
        rows: best.into_iter().map(|(_, row)| row).collect(),
        last: last.filter(|_| is_more),
        scanned,
    })
}

/// One page of a query.
///
/// # Errors
/// It is refused; the disk fails; or the snapshot is too old.
pub async fn page(rows: &RoTx, asked: proto::Query) -> Result<proto::Page, Ended> {
    let plan = Plan::new(rows, asked)?;
    let mut path = plan::choose(&plan.table, &plan.filter, &plan.order, plan.hint);
    let index = plan::name(&plan.table, &path);
    let is_sorted = !path.is_ordered;
    let found = match is_sorted {
        true => sorted(&plan, path, rows).await?,
        false => {
            if let Some(after) = &plan.after {
                plan::resume(&plan.table, &mut path, &plan.places, after);
            }
            in_order(&plan, path, rows).await?
        }
    };
    // Whoever asks for the next page comes further.
    assert!(
        found.last.is_none() || found.scanned > 0,
        "a page goes on at {:?}, and has looked at nothing",
        found.last
    );
    let names = plan.shown.iter().map(|at| &plan.table.schema.columns[*at]);
    Ok(proto::Page {
        columns: names.map(|column| column.name.clone()).collect(),
        rows: found.rows.iter().map(|row| plan.show(row)).collect(),
        continuation: match &found.last {
            Some(last) => plan.continuation(last),
            None => Bytes::new(),
        },
        index,
        sorted: is_sorted,
        scanned: found.scanned as u64,
        position: rows.pos(),
    })
}

/// What the tables look like, a page of them.
///
/// # Errors
/// There is no such table; or as [`page`].
pub fn describe(rows: &RoTx, asked: &proto::Description) -> Result<proto::Described, Ended> {
    let (tables, more) = match &asked.table[..] {
        "" => schema::all(rows, &asked.after)?,
        name => (vec![schema::load(rows, name)?.describe()], false),
    };
    Ok(proto::Described {
        tables,
        more,
        position: rows.pos(),
    })
}
