//! Promises one by one: which way a query takes, how pages end, what is refused with which line.

use super::{Alone, code, column, index, insert, user, users};
use crate::filter::Filter;
use crate::language::{Statement, parse};
use crate::proto::{self, Comparison, Kind};
use crate::request::{Assignment, Condition, Expect, Operation, Request, To, Transaction};
use crate::value::Value;
use crate::{Code, limits};

fn compare(column: &str, comparison: Comparison, value: impl Into<Value>) -> Filter {
    Filter::Compare(column.into(), comparison, value.into())
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.into())
    }
}

fn query(filter: Filter, order: &[(&str, bool)]) -> proto::Query {
    let by = |(column, descending): &(&str, bool)| proto::Order {
        column: (*column).into(),
        descending: *descending,
    };
    proto::Query {
        table: "users".into(),
        filter: Some(filter.into()),
        order: order.iter().map(by).collect(),
        ..proto::Query::default()
    }
}

fn fill(alone: &Alone, count: i64) {
    alone.execute(users()).expect("created");
    for begin in (0..count).step_by(1000) {
        let rows = (begin..count.min(begin + 1000)).map(|id| {
            // Names in another order than ids.
            insert(user(id, &format!("n{}", (id * 7919) % 100_003), id % 10))
        });
        alone.operate(rows.collect()).expect("inserted");
    }
}

#[test]
fn a_query_takes_the_way_that_the_rules_say() {
    Alone::run(async |alone| {
        fill(&alone, 100);
        // What is asked for; the way, whether it sorts, how many rows it looks at, how many it finds.
        for (text, way, sorted, scanned, rows) in [
            ("where id = 3", "primary", false, 1, 1),
            ("where id < 3", "primary", false, 3, 3),
            ("where age = 3", "by_age", false, 10, 10),
            ("where age = 3 order by id desc", "by_age", false, 10, 10),
            ("where age >= 8", "by_age", true, 20, 20),
            ("where age >= 8 order by age", "by_age", false, 20, 20),
            ("where age >= 8 order by age desc", "by_age", false, 20, 20),
            (
                "where age >= 8 order by age desc, id",
                "by_age",
                true,
                20,
                20,
            ),
            ("", "primary", false, 100, 100),
            ("order by name desc", "by_name", false, 100, 100),
            ("where name starts with 'n1'", "by_name", true, 11, 11),
            ("where age = 3 and name = 'n1'", "by_age", false, 10, 0),
            ("where age > 3 and name = 'n0'", "by_name", false, 1, 0),
            ("where id = 3 and age = 3", "primary", false, 1, 1),
            ("where not age >= 8", "primary", false, 100, 80),
            ("where age = 3 or age = 4", "primary", false, 100, 20),
            ("where age = 3 using by_name", "by_name", true, 100, 10),
        ] {
            let parsed = parse(&format!("select * from users {text}"));
            let Ok([Statement::Select { query, .. }]) = parsed.as_deref() else {
                panic!("{text}: {parsed:?}")
            };
            let mut query = (**query).clone();
            query.limit = 1000;
            let found = alone.read(query).await.expect("read");
            assert_eq!((&found.index[..], found.sorted), (way, sorted), "{text}");
            assert_eq!((found.scanned, found.rows.len()), (scanned, rows), "{text}");
        }
    });
}

#[test]
fn a_page_ends_after_its_rows_its_bytes_or_what_it_looked_at() {
    Alone::run(async |alone| {
        fill(&alone, 25_000);
        let mut asked = query(compare("name", Comparison::Equal, "nobody"), &[]);
        asked.index = "primary".into();
        let page = alone.page(asked.clone()).await.expect("read");
        assert_eq!((page.rows.len(), page.scanned), (0, 20_000));
        assert!(!page.continuation.is_empty());
        let found = alone.read(asked).await.expect("read");
        assert_eq!((found.pages, found.scanned), (2, 25_000));
        // An index is read from its end, as far as the page goes.
        let mut asked = query(Filter::everything(), &[("id", true)]);
        asked.limit = 3;
        let page = alone.page(asked).await.expect("read");
        assert_eq!((page.rows.len(), page.scanned), (3, 3));
        let long = "x".repeat(limits::ROW_BYTES - 1000);
        alone
            .execute(Request::AddColumn(
                "users".into(),
                column("note", Kind::Text, true),
            ))
            .expect("added");
        for id in -10..0 {
            let mut row = user(id, &format!("m{id}"), -1);
            row.push(("note".into(), Value::Text(long.clone())));
            alone.operate(vec![insert(row)]).expect("inserted");
        }
        for order in [&[("age", false)][..], &[("age", false), ("id", true)]] {
            let found = alone
                .read(query(compare("age", Comparison::Less, 0), order))
                .await;
            let found = found.expect("read");
            assert_eq!((found.rows.len(), found.pages), (10, 3), "{order:?}");
        }
    });
}

/// The order leaves out a column that the filter sets equal to a value. Rows with other values of it lie in between,
/// and a page may end behind one of them.
#[test]
fn a_page_that_ends_behind_a_row_of_another_value_goes_on_there() {
    Alone::run(async |alone| {
        let things = proto::Table {
            name: "things".into(),
            columns: ["kind", "number", "size"]
                .map(|name| column(name, Kind::Int, false))
                .into(),
            key: vec!["number".into(), "kind".into()],
            indexes: vec![index("by_size", &["size"], false)],
        };
        alone
            .execute(Request::CreateTable(things))
            .expect("created");
        let thing = |kind: i64, number: i64| Operation::Insert {
            table: "things".into(),
            row: [("kind", kind), ("number", number), ("size", 0)]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
        };
        let scanned = limits::ROWS_SCANNED as i64;
        // The last one that a page looks at has the number of the next one, which is of the kind that is asked for.
        for begin in (0..scanned).step_by(1000) {
            let some = (begin..begin + 1000).map(|number| thing(1, number));
            alone.operate(some.collect()).expect("inserted");
        }
        alone
            .operate(vec![thing(2, scanned - 1)])
            .expect("inserted");
        let mut asked = query(compare("kind", Comparison::Equal, 2), &[("size", false)]);
        asked.table = "things".into();
        let found = alone.read(asked).await.expect("read");
        assert_eq!((found.rows.len(), found.pages), (1, 2));
    });
}

#[test]
fn a_continuation_is_for_its_query_only() {
    Alone::run(async |alone| {
        fill(&alone, 10);
        let mut asked = query(Filter::everything(), &[]);
        asked.limit = 3;
        let page = alone.page(asked.clone()).await.expect("read");
        let mut other = query(compare("age", Comparison::Less, 5), &[]);
        other.continuation = page.continuation.clone();
        assert_eq!(code(alone.page(other).await), Code::BadRequest);
        for bytes in [&b"x"[..], &page.continuation[1..], &[0; 100]] {
            asked.continuation = bytes::Bytes::copy_from_slice(bytes);
            assert_eq!(code(alone.page(asked.clone()).await), Code::BadRequest);
        }
        // Also after the table was made anew.
        alone
            .execute(Request::DropTable("users".into()))
            .expect("dropped");
        alone.execute(users()).expect("created");
        asked.continuation = page.continuation;
        assert_eq!(code(alone.page(asked).await), Code::BadRequest);
    });
}

#[test]
fn a_column_that_was_added_is_there_in_rows_that_are_older() {
    Alone::run(async |alone| {
        fill(&alone, 2);
        let mut level = column("level", Kind::Int, false);
        let add = |column| Request::AddColumn("users".into(), column);
        assert_eq!(code(alone.execute(add(level.clone()))), Code::BadRequest);
        level.default = Some(Value::Int(5).into());
        alone.execute(add(level.clone())).expect("added");
        alone
            .execute(Request::CreateIndex(
                "users".into(),
                index("by_level", &["level"], false),
            ))
            .expect("created");
        let found = alone
            .read(query(compare("level", Comparison::Equal, 5), &[]))
            .await;
        let found = found.expect("read");
        assert_eq!((&found.index[..], found.rows.len()), ("by_level", 2));
        let drop = || Request::DropColumn("users".into(), "level".into());
        assert_eq!(code(alone.execute(drop())), Code::BadRequest);
        alone
            .execute(Request::DropIndex("users".into(), "by_level".into()))
            .expect("dropped");
        alone.execute(drop()).expect("dropped");
        // Another column of the same name has nothing of the first.
        level.default = Some(Value::Int(6).into());
        alone.execute(add(level)).expect("added");
        let found = alone
            .read(query(compare("level", Comparison::Equal, 6), &[]))
            .await;
        assert_eq!(found.expect("read").rows.len(), 2);
    });
}

#[test]
fn a_transaction_whose_condition_fails_changes_nothing() {
    Alone::run(async |alone| {
        fill(&alone, 2);
        let key = vec![("id".into(), Value::Int(1))];
        let asked = |expect| {
            Request::Transaction(Transaction {
                conditions: vec![Condition {
                    table: "users".into(),
                    key: key.clone(),
                    expect,
                }],
                operations: vec![Operation::Delete {
                    table: "users".into(),
                    key: key.clone(),
                }],
            })
        };
        let older = Expect::Matches(compare("age", Comparison::Greater, 1));
        for expect in [Expect::Missing, older] {
            let refused = alone.execute(asked(expect)).expect_err("it does not hold");
            assert_eq!(refused.code, Code::ConditionFailed);
            assert!(
                refused.why.starts_with("condition 1 does not hold"),
                "{refused}"
            );
        }
        let done = alone.execute(asked(Expect::Exists)).expect("it holds");
        assert_eq!(done.changed, [1]);
        assert_eq!(
            code(alone.execute(asked(Expect::Exists))),
            Code::ConditionFailed
        );
    });
}

#[test]
fn rows_of_a_filter_are_changed_in_the_order_of_their_keys_whichever_way_they_are_found() {
    Alone::run(async |alone| {
        let table = proto::Table {
            name: "users".into(),
            columns: vec![
                column("id", Kind::Int, false),
                column("n", Kind::Int, false),
            ],
            key: vec!["id".into()],
            indexes: vec![index("by_n", &["n"], true)],
        };
        alone.execute(Request::CreateTable(table)).expect("created");
        let row = |id: i64, n: i64| vec![("id".into(), id.into()), ("n".into(), n.into())];
        alone
            .operate(vec![insert(row(1, 2)), insert(row(2, 1))])
            .expect("inserted");
        // By the index, the row with 1 would come first, and meet the other one.
        let changed = alone.operate(vec![Operation::UpdateWhere {
            table: "users".into(),
            filter: compare("n", Comparison::Greater, 0),
            set: vec![Assignment {
                column: "n".into(),
                to: To::Add(Value::Int(1)),
            }],
        }]);
        assert_eq!(changed.expect("one after the other").changed, [2]);
    });
}

#[test]
fn bad_requests_are_refused_with_a_line_that_helps() {
    Alone::run(async |alone| {
        fill(&alone, 2);
        let with = |name: &str, value: Value| {
            let mut row = user(9, "nine", 9);
            row.retain(|(column, _)| column != name);
            row.push((name.into(), value));
            vec![insert(row)]
        };
        let delete = |key| {
            vec![Operation::Delete {
                table: "users".into(),
                key,
            }]
        };
        let mut other = vec![insert(user(9, "nine", 9))];
        let Operation::Insert { table, .. } = &mut other[0] else {
            unreachable!()
        };
        *table = "nobody".into();
        let long = "x".repeat(limits::ROW_BYTES);
        for (operations, code, says) in [
            (other, Code::Unknown, "there is no table \"nobody\""),
            (
                with("size", Value::Int(1)),
                Code::BadRequest,
                "table \"users\" has no column \"size\"; it has id, name, age",
            ),
            (
                with("nam", Value::Int(1)),
                Code::BadRequest,
                "table \"users\" has no column \"nam\"; did you mean `name'? it has id, name, age",
            ),
            (
                with("name", Value::Null),
                Code::BadRequest,
                "column \"name\" of table \"users\" needs a value",
            ),
            (
                with("age", Value::Bool(true)),
                Code::BadRequest,
                "column \"age\" is int, and the value is bool",
            ),
            (
                with("id", Value::Int(1)),
                Code::RowExists,
                "table \"users\" has a row with this key already",
            ),
            (
                with("name", "n0".into()),
                Code::Duplicate,
                "another row of table \"users\" has the same values in the unique index \"by_name\"",
            ),
            (with("name", long[..].into()), Code::TooLarge, "a row has "),
            (
                delete(vec![("name".into(), "n0".into())]),
                Code::BadRequest,
                "a row of table \"users\" is named by id, and nothing else",
            ),
        ] {
            let refused = alone.operate(operations).expect_err(says);
            assert_eq!(refused.code, code, "{refused}");
            assert!(refused.why.starts_with(says), "{refused}");
        }
        let pages = alone.read(query(Filter::everything(), &[])).await;
        assert_eq!(pages.expect("read").rows.len(), 2);
    });
}

#[test]
fn a_change_of_a_schema_that_is_refused_says_what_to_do() {
    Alone::run(async |alone| {
        fill(&alone, 1);
        let bare = proto::Table {
            name: "t".into(),
            columns: vec![column("a", Kind::Int, false)],
            ..proto::Table::default()
        };
        let drop = |name: &str| Request::DropColumn("users".into(), name.into());
        for (asked, says) in [
            (
                drop("id"),
                "column \"id\" is part of the primary key, which never changes: make another table",
            ),
            (
                drop("name"),
                "column \"name\" is part of index \"by_name\": drop that first",
            ),
            (
                Request::DropTable("USERS".into()),
                "there is no table \"USERS\"; did you mean `users'?",
            ),
            (
                Request::CreateTable(bare),
                "a primary key has 1 to 8 columns: add `primary key (…)'",
            ),
        ] {
            let refused = alone.execute(asked).expect_err(says);
            assert_eq!(refused.why, says);
        }
    });
}

#[test]
fn schemas_have_limits() {
    Alone::run(async |alone| {
        let table = |name: &str, count: usize| {
            let names = (0..count).map(|number| column(&format!("c{number}"), Kind::Int, false));
            Request::CreateTable(proto::Table {
                name: name.into(),
                columns: names.collect(),
                key: vec!["c0".into()],
                indexes: Vec::new(),
            })
        };
        assert_eq!(code(alone.execute(table("t", 101))), Code::TooLarge);
        assert_eq!(code(alone.execute(table("", 1))), Code::BadRequest);
        assert_eq!(code(alone.execute(table("t", 0))), Code::BadRequest);
        alone.execute(table("t", 100)).expect("created");
        assert_eq!(code(alone.execute(table("t", 1))), Code::Exists);
        for number in 0..limits::INDEXES {
            let asked = index(&format!("i{number}"), &["c1"], false);
            let created = alone.execute(Request::CreateIndex("t".into(), asked));
            created.expect("created");
        }
        let one_more = index("more", &["c1"], false);
        let refused = alone.execute(Request::CreateIndex("t".into(), one_more));
        assert_eq!(code(refused), Code::TooLarge);
        for number in 1..limits::TABLES {
            alone
                .execute(table(&format!("t{number}"), 1))
                .expect("created");
        }
        assert_eq!(code(alone.execute(table("more", 1))), Code::TooLarge);
        alone
            .execute(Request::DropTable("t7".into()))
            .expect("dropped");
        alone
            .execute(table("more", 1))
            .expect("there is room again");
        assert_eq!(alone.describe().len(), limits::TABLES);
    });
}

#[test]
fn a_transaction_has_limits() {
    Alone::run(async |alone| {
        fill(&alone, 10_500);
        let all = |filter: Filter| {
            vec![Operation::DeleteWhere {
                table: "users".into(),
                filter,
            }]
        };
        assert_eq!(
            code(alone.operate(all(Filter::everything()))),
            Code::TooLarge
        );
        let half = alone.operate(all(compare("id", Comparison::Less, 5000)));
        assert_eq!(half.expect("deleted").changed, [5000]);
        let rest = alone.operate(all(Filter::everything()));
        assert_eq!(rest.expect("deleted").changed, [5500]);
        let many = vec![insert(user(1, "a", 1)); limits::OPERATIONS + 1];
        let asked = Request::Transaction(Transaction {
            conditions: Vec::new(),
            operations: many,
        });
        let refused = Request::parse(&asked.payload()).expect_err("too many");
        assert!(
            format!("{refused:?}").contains("there are 1001 operations"),
            "{refused:?}"
        );
    });
}
