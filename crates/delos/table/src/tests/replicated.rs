//! Two replicas with batches, over one log: what clients of both do at a time is one order, and the replicas agree.

use super::{column, index};
use crate::application::{Answer, Tables};
use crate::backend::{Answers, Problem, Server};
use crate::filter::Filter;
use crate::proto::{self, Comparison, Kind};
use crate::request::{Assignment, Condition, Expect, Operation, Request, To, Transaction};
use crate::value::Value;
use crate::{Code, Refused};
use plinth_core::{EngineKind, Uid};
use plinth_delos::base::Base;
use plinth_delos::engines::batching::{self, BatchingAbove, BatchingBelow};
use plinth_delos::file_log::FileLog;
use plinth_delos::stack::{Engine, Top};
use plinth_delos::store::LocalStore;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Task, join_all, race, random, spawn};
use std::path::Path;
use std::rc::Rc;

type Bottom = Rc<Base<FileLog, BatchingAbove<Top<Tables>>>>;
type Stack = Rc<BatchingBelow<Bottom, Answer, Refused>>;

struct Replica {
    base: Bottom,
    server: Server<Stack>,
    _running: Task<()>,
}

async fn replica(log: &Rc<FileLog>, name: &str) -> Replica {
    let path = Path::new("/").join(name);
    let engine = plinth_engine::open(EngineKind::Memory, &path, true, 1 << 20).await;
    let store = LocalStore::open(engine.expect("an engine")).expect("a store");
    let base = Base::new(log.clone(), store.clone(), BatchingAbove::new(Top(Tables)));
    let stack = Rc::new(BatchingBelow::new(base.clone(), store));
    let (b, s) = (base.clone(), stack.clone());
    let running = spawn("replica", async move {
        race(b.run(), s.run()).await;
    });
    Replica {
        base,
        server: Server::new(stack),
        _running: running,
    }
}

const ACCOUNTS: i64 = 10;
const MONEY: i64 = 100;

fn account(id: i64) -> Vec<(String, Value)> {
    vec![("id".into(), Value::Int(id))]
}

fn add(id: i64, amount: i64) -> Operation {
    Operation::Update {
        table: "accounts".into(),
        key: account(id),
        set: vec![Assignment {
            column: "balance".into(),
            to: To::Add(Value::Int(amount)),
        }],
    }
}

/// Moves money if it is there, and notes it under a name that only one client may use.
async fn pay(replica: &Replica, name: i64) -> Result<(), Code> {
    let (from, to) = (
        random::below(ACCOUNTS as u64),
        random::below(ACCOUNTS as u64),
    );
    let (from, to, amount) = (from as i64, to as i64, 1 + random::below(60) as i64);
    let rich = Filter::Compare(
        "balance".into(),
        Comparison::GreaterOrEqual,
        Value::Int(amount),
    );
    let note = vec![
        ("name".into(), Value::Int(name)),
        ("amount".into(), Value::Int(amount)),
    ];
    let transaction = Transaction {
        conditions: vec![Condition {
            table: "accounts".into(),
            key: account(from),
            expect: Expect::Matches(rich),
        }],
        operations: vec![
            add(from, -amount),
            add(to, amount),
            Operation::Insert {
                table: "notes".into(),
                row: note,
            },
        ],
    };
    match replica
        .server
        .execute(Request::Transaction(transaction).into())
        .await
    {
        Ok(answer) => {
            assert_eq!(answer.changed, [1, 1, 1]);
            Ok(())
        }
        Err(Problem::Refused(refused)) => Err(refused.code),
        Err(other) => panic!("{other}"),
    }
}

async fn read(replica: &Replica, table: &str) -> Vec<Vec<Value>> {
    let asked = proto::Query {
        table: table.into(),
        limit: 1000,
        ..proto::Query::default()
    };
    let page = replica.server.read(asked).await.expect("read");
    assert!(page.continuation.is_empty());
    let values = |row: proto::Row| row.values.into_iter().map(Value::from).collect();
    page.rows.into_iter().map(values).collect()
}

fn table(name: &str, key: &str, other: &str) -> proto::Request {
    let columns = vec![
        column(key, Kind::Int, false),
        column(other, Kind::Int, false),
    ];
    let table = proto::Table {
        name: name.into(),
        columns,
        key: vec![key.into()],
        indexes: vec![index("by", &[other], false)],
    };
    Request::CreateTable(table).into()
}

async fn work() {
    let log = FileLog::open(Path::new("/log"), Uid(1)).await;
    let log = Rc::new(log.expect("a log"));
    let (one, two) = (replica(&log, "one").await, replica(&log, "two").await);
    batching::GUARD
        .switch(&one.base, true)
        .await
        .expect("it runs");
    for request in [
        table("accounts", "id", "balance"),
        table("notes", "name", "amount"),
    ] {
        one.server.execute(request).await.expect("created");
    }
    let rows = (0..ACCOUNTS).map(|id| {
        let mut row = account(id);
        row.push(("balance".into(), Value::Int(MONEY)));
        let table = "accounts".into();
        Operation::Insert { table, row }
    });
    let rows = Transaction {
        conditions: Vec::new(),
        operations: rows.collect(),
    };
    let filled = one.server.execute(Request::Transaction(rows).into()).await;
    filled.expect("filled");
    let mut paid = 0;
    for round in 0..10 {
        // Each name is used on both replicas at a time.
        let names = (0..40).map(|name| round * 40 + name);
        let pays = names.flat_map(|name| [pay(&one, name), pay(&two, name)]);
        let done = join_all(pays).await;
        for pair in done.chunks(2) {
            let won = pair.iter().filter(|outcome| outcome.is_ok()).count();
            assert!(won <= 1, "a row was inserted twice");
            paid += won;
        }
        let balances = read(&two, "accounts").await;
        let sum = balances.iter().map(|row| match row[1] {
            Value::Int(balance) if balance >= 0 => balance,
            _ => panic!("{row:?}"),
        });
        assert_eq!(sum.sum::<i64>(), ACCOUNTS * MONEY);
        assert_eq!(read(&one, "notes").await.len(), paid);
    }
    assert!(paid > 100, "{paid}");
    let synced = (one.base.sync().await, two.base.sync().await);
    assert!(synced.0.is_ok() && synced.1.is_ok());
    let stores = (one.base.store(), two.base.store());
    assert_eq!(stores.0.applied(), stores.1.applied());
    assert_eq!(stores.0.checksum(), stores.1.checksum());
}

#[test]
fn what_clients_of_two_replicas_do_at_a_time_is_one_order() {
    for seed in 0..5 {
        let sim = Simulation::new(seed, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        sim.run_on(machine, work()).expect("nothing kills it");
    }
}
