//! Tables on a store of their own, without a log: compared with a model, and one by one.

mod cases;
mod hostile;
mod language;
mod model;
mod random;
mod replicated;
mod steps;

use crate::application::{Answer, Tables};
use crate::proto::{self, Kind};
use crate::request::{Cells, Operation, Request, Transaction};
use crate::value::Value;
use crate::{Code, Ended, Refused, query};
use bytes::Bytes;
use plinth_core::EngineKind;
use plinth_delos::stack::{Application, Failure};
use plinth_delos::store::{LocalStore, Reads};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use std::future::Future;
use std::path::Path;
use std::rc::Rc;

/// Tables without a log.
pub struct Alone {
    store: Rc<LocalStore>,
}

/// What a query has found, page by page.
#[derive(Debug, Default)]
pub struct Read {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
    pub index: String,
    pub sorted: bool,
    pub scanned: u64,
    pub pages: usize,
}

impl Alone {
    pub fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(Alone) -> F + 'static) {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let ran = sim.run_on(machine, async move {
            let engine = plinth_engine::open(EngineKind::Memory, Path::new("/a"), true, 1 << 20);
            let store = LocalStore::open(engine.await.expect("an engine"));
            let store = store.expect("a store");
            test(Alone { store }).await;
        });
        ran.expect("nothing kills it");
    }

    pub fn execute_payload(&self, payload: &Bytes) -> Result<Answer, Failure<Refused>> {
        let pos = self.store.applied() + 1;
        let mut tx = self.store.begin(pos);
        let answer = tx.nested(|tx| Tables.execute(tx, payload, pos));
        tx.commit().expect("it is in order");
        answer
    }

    pub fn execute(&self, request: Request) -> Result<Answer, Refused> {
        let payload = request.clone().payload();
        let again = Request::parse(&payload).expect("it is well-formed");
        assert_eq!(
            again.payload(),
            payload,
            "{request:?} comes out as it went in"
        );
        self.execute_payload(&payload)
            .map_err(|failure| match failure {
                Failure::Refused(refused) => refused,
                Failure::Stop(error) => panic!("{error}"),
            })
    }

    pub fn operate(&self, operations: Vec<Operation>) -> Result<Answer, Refused> {
        self.execute(Request::Transaction(Transaction {
            conditions: Vec::new(),
            operations,
        }))
    }

    pub async fn page(&self, asked: proto::Query) -> Result<proto::Page, Refused> {
        let page = query::page(&self.store.snapshot(), asked).await;
        page.map_err(|ended| match ended {
            Ended::Refused(refused) => refused,
            Ended::Failed(error) => panic!("{error}"),
        })
    }

    pub async fn read(&self, mut asked: proto::Query) -> Result<Read, Refused> {
        let mut read = Read::default();
        loop {
            let page = self.page(asked.clone()).await?;
            read.pages += 1;
            assert!(asked.limit == 0 || page.rows.len() <= asked.limit as usize);
            read.scanned += page.scanned;
            (read.columns, read.index, read.sorted) = (page.columns, page.index, page.sorted);
            let values = |row: proto::Row| row.values.into_iter().map(Value::from).collect();
            read.rows.extend(page.rows.into_iter().map(values));
            if page.continuation.is_empty() {
                return Ok(read);
            }
            assert_ne!(asked.continuation, page.continuation, "pages go on");
            asked.continuation = page.continuation;
        }
    }

    pub fn describe(&self) -> Vec<proto::Table> {
        let all = query::describe(&self.store.snapshot(), &proto::Description::default());
        all.expect("they are told").tables
    }

    /// All keys with a prefix.
    pub fn keys(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let end = [prefix, &[0xff][..]].concat();
        let rows = Reads::range(&self.store.snapshot(), (prefix, &end), usize::MAX, false);
        let rows = rows.expect("they are read").into_iter();
        rows.map(|(key, _)| key.to_vec()).collect()
    }
}

pub fn column(name: &str, kind: Kind, nullable: bool) -> proto::Column {
    proto::Column {
        name: name.into(),
        kind: kind.into(),
        nullable,
        default: None,
    }
}

pub fn index(name: &str, columns: &[&str], unique: bool) -> proto::Index {
    proto::Index {
        name: name.into(),
        columns: columns.iter().map(|name| (*name).into()).collect(),
        unique,
        ..proto::Index::default()
    }
}

/// `users (id int, name text, age int null) key (id)`, an index on `age` and a unique one on `name`.
pub fn users() -> Request {
    Request::CreateTable(proto::Table {
        name: "users".into(),
        columns: vec![
            column("id", Kind::Int, false),
            column("name", Kind::Text, false),
            column("age", Kind::Int, true),
        ],
        key: vec!["id".into()],
        indexes: vec![
            index("by_age", &["age"], false),
            index("by_name", &["name"], true),
        ],
    })
}

pub fn user(id: i64, name: &str, age: i64) -> Cells {
    vec![
        ("id".into(), Value::Int(id)),
        ("name".into(), Value::Text(name.into())),
        ("age".into(), Value::Int(age)),
    ]
}

pub fn insert(row: Cells) -> Operation {
    Operation::Insert {
        table: "users".into(),
        row,
    }
}

pub fn code<T: std::fmt::Debug>(outcome: Result<T, Refused>) -> Code {
    outcome.expect_err("it is refused").code
}
