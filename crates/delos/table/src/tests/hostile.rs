//! Bytes of strangers: requests, queries and continuations never do more than being refused.

use super::{Alone, column, insert, user, users};
use crate::filter::Filter;
use crate::proto::{self, Comparison, Kind};
use crate::request::{Assignment, Condition, Expect, Operation, Request, To, Transaction};
use crate::value::Value;
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::testing::fuzz;
use plinth_delos::stack::Failure;
use prost::Message;

fn requests() -> Vec<Request> {
    let filter = Filter::Not(Box::new(Filter::Any(vec![
        Filter::Compare("age".into(), Comparison::Less, Value::Int(5)),
        Filter::All(vec![Filter::Compare(
            "name".into(),
            Comparison::Prefix,
            Value::Text("a".into()),
        )]),
    ])));
    let table = || "users".to_owned();
    let key = || vec![("id".to_owned(), Value::Int(1))];
    let set = |to| {
        vec![Assignment {
            column: "age".into(),
            to,
        }]
    };
    let condition = |expect| Condition {
        table: table(),
        key: key(),
        expect,
    };
    vec![
        users(),
        Request::AddColumn(table(), column("more", Kind::Bytes, true)),
        Request::DropColumn(table(), "more".into()),
        Request::CreateIndex(table(), super::index("i", &["age", "name"], true)),
        Request::DropIndex(table(), "i".into()),
        Request::Step,
        Request::Transaction(Transaction {
            conditions: vec![
                condition(Expect::Missing),
                condition(Expect::Exists),
                condition(Expect::Matches(filter.clone())),
            ],
            operations: vec![
                insert(user(1, "a", 1)),
                Operation::Upsert {
                    table: table(),
                    row: user(2, "b", 2),
                },
                Operation::Update {
                    table: table(),
                    key: key(),
                    set: set(To::Add(Value::Int(1))),
                },
                Operation::UpdateWhere {
                    table: table(),
                    filter: filter.clone(),
                    set: set(To::Value(Value::Null)),
                },
                Operation::Delete {
                    table: table(),
                    key: key(),
                },
                Operation::DeleteWhere {
                    table: table(),
                    filter,
                },
            ],
        }),
        Request::DropTable(table()),
    ]
}

#[test]
fn damaged_requests_are_refused_and_never_stop_a_replica() {
    Alone::run(async |alone| {
        alone.execute(users()).expect("created");
        let corpus = requests()
            .into_iter()
            .map(|request| request.payload().to_vec());
        let corpus: Vec<Vec<u8>> = corpus.collect();
        fuzz("request", 1, corpus, |input| {
            let payload = Bytes::copy_from_slice(input);
            // Of a later release.
            if let Err(Failure::Stop(error)) = alone.execute_payload(&payload) {
                assert_eq!(error, Error::incompatible_software_version);
                assert!(input[0] > 1);
            }
            Request::parse(&payload).is_ok()
        });
    });
}

#[test]
fn damaged_requests_are_understood_the_same_again() {
    let corpus = requests().into_iter().map(|request| {
        let asked: proto::Request = request.into();
        asked.encode_to_vec()
    });
    fuzz("request of a client", 2, corpus, |input| {
        let asked = proto::Request::decode(input);
        let Some(understood) = asked.ok().and_then(|asked| Request::understand(asked).ok()) else {
            return false;
        };
        let payload = understood.payload();
        let again = Request::parse(&payload).expect("it is well-formed");
        assert_eq!(again.payload(), payload);
        true
    });
}

#[test]
fn damaged_queries_and_continuations_are_refused() {
    Alone::run(async |alone| {
        alone.execute(users()).expect("created");
        let rows = (0..20).map(|id| insert(user(id, &format!("n{id}"), id % 3)));
        alone.operate(rows.collect()).expect("inserted");
        let filter = Filter::Compare("age".into(), Comparison::Greater, Value::Int(0));
        let mut asked = proto::Query {
            table: "users".into(),
            columns: vec!["id".into(), "age".into()],
            filter: Some(filter.into()),
            order: vec![proto::Order {
                column: "age".into(),
                descending: true,
            }],
            limit: 2,
            index: "by_age".into(),
            ..proto::Query::default()
        };
        let mut corpus = vec![asked.encode_to_vec()];
        asked.continuation = alone.page(asked.clone()).await.expect("read").continuation;
        corpus.push(asked.encode_to_vec());
        let snapshot = alone.store.snapshot();
        fuzz("query", 3, corpus, |input| {
            let Ok(asked) = proto::Query::decode(input) else {
                return false;
            };
            let page = std::pin::pin!(crate::query::page(&snapshot, asked));
            // So few rows are read in one turn.
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            match page.poll(&mut context) {
                std::task::Poll::Ready(Ok(_)) => true,
                std::task::Poll::Ready(Err(crate::Ended::Refused(_))) => false,
                std::task::Poll::Ready(Err(crate::Ended::Failed(error))) => panic!("{error}"),
                std::task::Poll::Pending => true,
            }
        });
    });
}
