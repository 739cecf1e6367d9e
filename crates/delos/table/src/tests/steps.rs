//! What takes several steps: a large index, a large table that is dropped.

use super::{Alone, code, index, insert, user, users};
use crate::Code;
use crate::keys::{INDEXES, ROWS};
use crate::proto;
use crate::request::{Assignment, Operation, Request, To};
use crate::value::Value;

const ROWS_COUNT: i64 = 5000;

/// Users whose names are all different and whose ages are not.
fn fill(alone: &Alone) {
    alone.execute(users()).expect("created");
    alone
        .execute(Request::DropIndex("users".into(), "by_age".into()))
        .expect("dropped");
    for begin in (0..ROWS_COUNT).step_by(1000) {
        let rows = (begin..begin + 1000).map(|id| insert(user(id, &format!("n{id}"), id % 7)));
        alone.operate(rows.collect()).expect("inserted");
    }
}

fn state(alone: &Alone, name: &str) -> proto::Index {
    let tables = alone.describe();
    let indexes = tables[0].indexes.iter();
    let found = indexes.clone().find(|index| index.name == name);
    found.expect("it is there").clone()
}

fn finish(alone: &Alone) -> usize {
    let mut steps = 1;
    while alone.execute(Request::Step).expect("a step").is_working {
        steps += 1;
        assert!(steps < 100, "it ends");
    }
    steps
}

fn by_age(age: i64, index: &str) -> proto::Query {
    let filter =
        crate::filter::Filter::Compare("age".into(), proto::Comparison::Equal, Value::Int(age));
    proto::Query {
        table: "users".into(),
        filter: Some(filter.into()),
        index: index.into(),
        limit: 1000,
        ..proto::Query::default()
    }
}

#[test]
fn a_large_index_is_filled_in_steps_while_rows_change() {
    Alone::run(async |alone| {
        fill(&alone);
        let asked = index("by_age", &["age"], false);
        let created = alone.execute(Request::CreateIndex("users".into(), asked));
        assert!(created.expect("created").is_working);
        assert!(state(&alone, "by_age").building);
        let found = alone.read(by_age(3, "")).await.expect("read");
        assert_eq!((&found.index[..], found.rows.len()), ("primary", 714));
        let hinted = alone.read(by_age(3, "by_age")).await;
        assert_eq!(code(hinted), Code::BadRequest);
        // Rows on both sides of what is filled already.
        for id in [1, ROWS_COUNT - 1] {
            let set = vec![Assignment {
                column: "age".into(),
                to: To::Value(Value::Int(100)),
            }];
            let key = vec![("id".into(), Value::Int(id))];
            let table = "users".into();
            let changed = alone.operate(vec![Operation::Update { table, key, set }]);
            changed.expect("updated");
        }
        let key = vec![("id".into(), Value::Int(ROWS_COUNT - 2))];
        let table = "users".into();
        let deleted = alone.operate(vec![Operation::Delete { table, key }]);
        deleted.expect("deleted");
        alone
            .operate(vec![insert(user(-1, "new", 100))])
            .expect("inserted");
        finish(&alone);
        assert!(!state(&alone, "by_age").building);
        let found = alone.read(by_age(100, "")).await.expect("read");
        assert_eq!((&found.index[..], found.scanned), ("by_age", 3));
        let ids: Vec<&Value> = found.rows.iter().map(|row| &row[0]).collect();
        assert_eq!(
            ids,
            [&Value::Int(-1), &Value::Int(1), &Value::Int(ROWS_COUNT - 1)]
        );
        // One entry of each row in each of the two indexes.
        assert_eq!(alone.keys(INDEXES).len(), 2 * alone.keys(ROWS).len());
    });
}

#[test]
fn a_unique_index_over_rows_that_are_alike_fails_and_is_kept_by_nobody() {
    Alone::run(async |alone| {
        fill(&alone);
        let few = index("few", &["age"], true);
        let refused = alone.execute(Request::CreateIndex("users".into(), few));
        assert_eq!(code(refused), Code::Duplicate);
        // The first rows are all different, the last one is not.
        let last = user(ROWS_COUNT, "same", 0);
        let first = user(-1, "other", 0);
        let column = super::column("tag", proto::Kind::Text, true);
        alone
            .execute(Request::AddColumn("users".into(), column))
            .expect("added");
        let tagged = |mut row: crate::request::Cells| {
            row.push(("tag".into(), Value::Text("x".into())));
            insert(row)
        };
        alone
            .operate(vec![tagged(first), tagged(last)])
            .expect("inserted");
        let tags = index("tags", &["tag"], true);
        let created = alone.execute(Request::CreateIndex("users".into(), tags));
        assert!(created.expect("nothing is wrong yet").is_working);
        // A new row that is like one which is in the index already is refused; the steps go on.
        let refused = alone.operate(vec![tagged(user(-2, "third", 0))]);
        assert_eq!(code(refused), Code::Duplicate);
        finish(&alone);
        let failed = state(&alone, "tags");
        assert!(failed.failed.contains("the same values"), "{failed:?}");
        alone
            .operate(vec![tagged(user(-2, "third", 0))])
            .expect("nobody minds");
        let rows = alone.keys(ROWS).len();
        assert_eq!(alone.keys(INDEXES).len(), rows, "those of `by_name` only");
        alone
            .execute(Request::DropIndex("users".into(), "tags".into()))
            .expect("dropped");
    });
}

#[test]
fn what_a_dropped_table_leaves_is_removed_in_steps() {
    Alone::run(async |alone| {
        fill(&alone);
        let dropped = alone.execute(Request::DropTable("users".into()));
        assert!(dropped.expect("dropped").is_working);
        assert_eq!(code(alone.read(by_age(3, "")).await), Code::Unknown);
        // One of the same name is another table.
        alone.execute(users()).expect("created");
        alone
            .operate(vec![insert(user(1, "a", 3))])
            .expect("inserted");
        assert_eq!(alone.read(by_age(3, "")).await.expect("read").rows.len(), 1);
        finish(&alone);
        assert_eq!((alone.keys(ROWS).len(), alone.keys(INDEXES).len()), (1, 2));
    });
}

#[test]
fn an_index_whose_table_is_dropped_while_it_is_filled_is_forgotten() {
    Alone::run(async |alone| {
        fill(&alone);
        let asked = index("by_age", &["age"], false);
        alone
            .execute(Request::CreateIndex("users".into(), asked))
            .expect("created");
        alone
            .execute(Request::DropTable("users".into()))
            .expect("dropped");
        alone.execute(users()).expect("created");
        alone
            .operate(vec![insert(user(1, "a", 3))])
            .expect("inserted");
        finish(&alone);
        assert_eq!((alone.keys(ROWS).len(), alone.keys(INDEXES).len()), (1, 2));
    });
}
