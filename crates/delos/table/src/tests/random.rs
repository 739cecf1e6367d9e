//! Random schemas, transactions and queries, each compared with the model; and the stored rows with their indexes.

use super::model::{Model, Table};
use super::{Alone, column};
use crate::filter::Filter;
use crate::keys::{INDEXES, Key, ROWS};
use crate::proto::{self, Comparison, Kind};
use crate::request::{Assignment, Cells, Condition, Expect, Operation, Request, To, Transaction};
use crate::value::Value;
use plinth_core::testing::Generator;
use proptest::prelude::*;

const TABLES: [&str; 3] = ["t", "u", "v"];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const KINDS: [Kind; 6] = [
    Kind::Bool,
    Kind::Int,
    Kind::Float,
    Kind::Text,
    Kind::Bytes,
    Kind::Timestamp,
];
const INTS: [i64; 9] = [-300, -1, 0, 1, 2, 255, 256, i64::MIN, i64::MAX];
const FLOATS: [f64; 7] = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 2.5, f64::NAN];
const TEXTS: [&str; 7] = ["", "a", "a\0", "a\0b", "ab", "b", "é"];
const BYTES: [&[u8]; 7] = [b"", &[0], &[0, 255], &[0, 1], &[255], &[255, 255], &[1]];

fn pick<T: Clone>(g: &mut Generator, all: &[T]) -> T {
    all[g.below(all.len())].clone()
}

fn value(g: &mut Generator, kind: Kind) -> Value {
    match kind {
        Kind::Bool => Value::Bool(g.below(2) == 0),
        Kind::Int => Value::Int(pick(g, &INTS)),
        Kind::Float => Value::float(pick(g, &FLOATS)),
        Kind::Text => Value::Text(pick(g, &TEXTS).into()),
        Kind::Bytes => Value::Bytes(pick(g, &BYTES).into()),
        Kind::Timestamp => Value::Timestamp(pick(g, &INTS)),
        Kind::Unknown => Value::Null,
    }
}

/// Mostly one that fits.
fn value_for(g: &mut Generator, column: &proto::Column) -> Value {
    match g.below(40) {
        0 => Value::Int(3),
        1..6 if column.nullable => Value::Null,
        6 => Value::Null,
        _ => value(g, column.kind()),
    }
}

fn some(g: &mut Generator, names: &[String], limit: usize) -> Vec<String> {
    let mut left = names.to_vec();
    let count = 1 + g.below(limit.min(left.len()));
    let take = |_| left.swap_remove(g.below(left.len()));
    (0..count).map(take).collect()
}

fn new_column(g: &mut Generator, name: &str) -> proto::Column {
    let kind = pick(g, &KINDS);
    let mut column = column(name, kind, g.below(2) == 0);
    if g.below(3) > 0 {
        column.default = Some(value(g, kind).into());
    }
    column
}

fn new_index(g: &mut Generator, columns: &[String]) -> proto::Index {
    proto::Index {
        name: format!("i{}", g.below(4)),
        columns: some(g, columns, 3),
        unique: g.below(4) == 0,
        ..proto::Index::default()
    }
}

fn new_table(g: &mut Generator) -> proto::Table {
    let count = 1 + g.below(NAMES.len());
    let columns: Vec<_> = NAMES[..count]
        .iter()
        .map(|name| new_column(g, name))
        .collect();
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let mut indexes: Vec<proto::Index> = Vec::new();
    for number in 0..g.below(3) {
        let mut index = new_index(g, &names);
        index.name = format!("i{number}");
        indexes.push(index);
    }
    proto::Table {
        name: pick(g, &TABLES).into(),
        key: some(g, &names, 2),
        columns,
        indexes,
    }
}

fn filter(g: &mut Generator, table: &Table, depth: usize) -> Filter {
    let parts = |g: &mut Generator, least: usize| {
        let count = least + g.below(3);
        (0..count).map(|_| filter(g, table, depth + 1)).collect()
    };
    match g.below(if depth < 2 { 10 } else { 6 }) {
        0..6 => {
            let column = pick(g, &table.columns);
            let comparisons = [
                Comparison::Equal,
                Comparison::NotEqual,
                Comparison::Less,
                Comparison::LessOrEqual,
                Comparison::Greater,
                Comparison::GreaterOrEqual,
                Comparison::Prefix,
            ];
            let mut comparison = pick(g, &comparisons);
            let is_text = matches!(column.kind(), Kind::Text | Kind::Bytes);
            if comparison == Comparison::Prefix && !is_text {
                comparison = Comparison::Equal;
            }
            Filter::Compare(column.name.clone(), comparison, value_for(g, &column))
        }
        6 | 7 => Filter::All(parts(g, 0)),
        8 => Filter::Any(parts(g, 1)),
        _ => Filter::Not(Box::new(filter(g, table, depth + 1))),
    }
}

fn key(g: &mut Generator, table: &Table) -> Cells {
    // Mostly that of a row that is there.
    let rows: Vec<_> = table.rows.keys().collect();
    if !rows.is_empty() && g.below(4) > 0 {
        let key = pick(g, &rows).iter().cloned();
        return table.key.iter().cloned().zip(key).collect();
    }
    let cell = |name: &String| {
        let column = table.column(name).expect("it is there");
        (name.clone(), value(g, column.kind()))
    };
    table.key.iter().map(cell).collect()
}

fn row(g: &mut Generator, table: &Table) -> Cells {
    let mut row = Cells::new();
    for column in &table.columns {
        if g.below(6) > 0 {
            row.push((column.name.clone(), value_for(g, column)));
        }
    }
    row
}

fn set(g: &mut Generator, table: &Table) -> Vec<Assignment> {
    let mut set = Vec::new();
    for column in &table.columns {
        let is_key = table.key.contains(&column.name);
        if g.below(if is_key { 40 } else { 2 }) > 0 {
            continue;
        }
        let is_number = matches!(column.kind(), Kind::Int | Kind::Float);
        let to = match is_number && g.below(2) == 0 {
            true => To::Add(Value::Int(1)),
            false => To::Value(value_for(g, column)),
        };
        set.push(Assignment {
            column: column.name.clone(),
            to,
        });
    }
    set
}

fn operation(g: &mut Generator, model: &Model) -> Operation {
    let tables: Vec<_> = model.tables.iter().collect();
    let (name, table) = pick(g, &tables);
    let name = name.clone();
    match g.below(12) {
        0..4 => Operation::Insert {
            table: name,
            row: row(g, table),
        },
        4..7 => Operation::Upsert {
            table: name,
            row: row(g, table),
        },
        7 | 8 => Operation::Update {
            table: name,
            key: key(g, table),
            set: set(g, table),
        },
        9 => Operation::UpdateWhere {
            table: name,
            filter: filter(g, table, 0),
            set: set(g, table),
        },
        10 => Operation::Delete {
            table: name,
            key: key(g, table),
        },
        _ => Operation::DeleteWhere {
            table: name,
            filter: filter(g, table, 0),
        },
    }
}

fn condition(g: &mut Generator, model: &Model) -> Condition {
    let tables: Vec<_> = model.tables.iter().collect();
    let (name, table) = pick(g, &tables);
    Condition {
        table: name.clone(),
        key: key(g, table),
        expect: match g.below(3) {
            0 => Expect::Exists,
            1 => Expect::Missing,
            _ => Expect::Matches(filter(g, table, 0)),
        },
    }
}

fn request(g: &mut Generator, model: &Model) -> Request {
    if model.tables.is_empty() {
        return Request::CreateTable(new_table(g));
    }
    let tables: Vec<_> = model.tables.iter().collect();
    let (name, table) = pick(g, &tables);
    let columns: Vec<String> = table
        .columns
        .iter()
        .map(|column| column.name.clone())
        .collect();
    match g.below(40) {
        0 | 1 => Request::CreateTable(new_table(g)),
        2 => Request::DropTable(pick(g, &TABLES).into()),
        3 | 4 => {
            let added = pick(g, &NAMES);
            Request::AddColumn(name.clone(), new_column(g, added))
        }
        5 => Request::DropColumn(name.clone(), pick(g, &NAMES).into()),
        6 | 7 => Request::CreateIndex(name.clone(), new_index(g, &columns)),
        8 => Request::DropIndex(name.clone(), format!("i{}", g.below(4))),
        9 => Request::Step,
        _ => {
            let conditions = g.below(6).saturating_sub(4);
            let operations = 1 + g.below(4);
            Request::Transaction(Transaction {
                conditions: (0..conditions).map(|_| condition(g, model)).collect(),
                operations: (0..operations).map(|_| operation(g, model)).collect(),
            })
        }
    }
}

fn query(g: &mut Generator, model: &Model) -> (proto::Query, Filter) {
    let tables: Vec<_> = model.tables.iter().collect();
    let (name, table) = pick(g, &tables);
    let filter = match g.below(4) {
        0 => Filter::everything(),
        _ => filter(g, table, 0),
    };
    let (ordered, one_way) = (g.below(3), g.below(2) == 0);
    let order = (0..ordered).map(|_| proto::Order {
        column: pick(g, &table.columns).name,
        descending: g.below(2) == 0 || one_way,
    });
    let order = order.collect();
    let index = match g.below(4) {
        0 => format!("i{}", g.below(4)),
        1 => "primary".to_owned(),
        _ => String::new(),
    };
    let asked = proto::Query {
        table: name.clone(),
        filter: Some(filter.clone().into()),
        order,
        limit: 1 + g.below(5) as u32,
        index,
        ..proto::Query::default()
    };
    (asked, filter)
}

async fn compare(alone: &Alone, model: &Model, g: &mut Generator) {
    if model.tables.is_empty() {
        return;
    }
    let (asked, filter) = query(g, model);
    let expected = model.read(&asked, &filter);
    let found = alone.read(asked.clone()).await;
    match (expected, found) {
        (Ok(expected), Ok(found)) => {
            assert_eq!(found.rows, expected, "{asked:?} by {:?}", found.index);
            assert!(asked.index.is_empty() || asked.index == found.index);
        }
        (Err(expected), Err(found)) => assert_eq!(found.code, expected, "{asked:?}: {found}"),
        (expected, found) => panic!("{asked:?}: {found:?}, expected {expected:?}"),
    }
}

/// The rows in the store are those of the model, and each has its entries, and there are no others.
fn check_stored(alone: &Alone, model: &Model) {
    let (mut rows, mut entries) = (Vec::new(), Vec::new());
    for (name, table) in &model.tables {
        let schema = crate::schema::find(&alone.store.snapshot(), name);
        let schema = schema.expect("it is read").expect("it is there");
        for (key, row) in &table.rows {
            rows.push(Key::rows(schema.id).then_all(key).0);
            for index in &table.indexes {
                let at = schema.index(&index.name).expect("it is there");
                assert_eq!(schema.indexes[at].state(), crate::schema::State::Ready);
                let values = index.columns.iter().map(|name| &row[name]);
                let entry = Key::index(schema.id, schema.indexes[at].id);
                entries.push(entry.then_all(values.chain(key)).0);
            }
        }
    }
    rows.sort();
    entries.sort();
    assert_eq!(alone.keys(ROWS), rows);
    assert_eq!(alone.keys(INDEXES), entries);
}

async fn run(alone: Alone, seeds: Vec<u64>) {
    let mut model = Model::default();
    for seed in seeds {
        let mut g = Generator::new(seed);
        let request = request(&mut g, &model);
        let expected = model.execute(&request);
        match (alone.execute(request.clone()), expected) {
            (Ok(answer), Ok(changed)) => {
                assert_eq!(answer.changed, changed, "{request:?}");
                assert!(!answer.is_working, "so few rows are no work");
            }
            (Err(refused), Err(code)) => assert_eq!(refused.code, code, "{request:?}: {refused}"),
            (answer, expected) => panic!("{request:?}: {answer:?}, expected {expected:?}"),
        }
        check_stored(&alone, &model);
        for _ in 0..3 {
            compare(&alone, &model, &mut g).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn tables_do_what_the_model_does(seeds in prop::collection::vec(any::<u64>(), 1..120)) {
        Alone::run(|alone| run(alone, seeds));
    }

    #[test]
    fn the_order_of_values_is_that_of_their_keys(seed in any::<u64>()) {
        let mut g = Generator::new(seed);
        let kind = pick(&mut g, &KINDS);
        let mut values: Vec<Value> = (0..8).map(|_| value(&mut g, kind)).collect();
        values.push(Value::Null);
        let key = |value: &Value| Key(Vec::new()).then(value).0;
        for a in &values {
            for b in &values {
                prop_assert_eq!(a.cmp(b), key(a).cmp(&key(b)), "{:?} and {:?}", a, b);
            }
        }
    }
}
