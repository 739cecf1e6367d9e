//! What ClickHouse's clients ask for, of replicas of Zelos: each of the four forms of connections, and the operations
//! that ZooKeeper does not know. One replica is asked to write, and another one has to say the same.

use super::{PATIENCE, SESSION_MS, ask, await_event, compare, create, door, exists, node_at, run};
use bytes::Bytes;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{
    Acl, Answer, Code, CreateKind, Details, Filter, Listed, MultiResult, Protocol, Request, Stat,
    Text, create_flags, event, opcode,
};
use plinth_runtime::timeout;

/// A client that has asked for the flags, as ClickHouse's does before it asks for anything that they say.
async fn clickhouse_at(n: u8, form: Protocol) -> Client {
    let connecting = Client::connect_by(door(n), SESSION_MS, None, form);
    let connected = timeout(PATIENCE, connecting).await;
    let client = connected.expect("in time").expect("it serves");
    for (path, expected) in [
        ("/keeper/feature_flags", &b"\xff\xe0"[..]),
        ("/keeper/api_version", b"3"),
    ] {
        let Answer::Data(data, _) = done(&client, get(path, false)).await else {
            panic!("{path} has data");
        };
        assert_eq!(data.as_deref(), Some(expected), "{path}");
    }
    client
}

async fn done(client: &Client, request: Request) -> Answer {
    let asked = format!("{request:?}");
    let answered = ask(client, request).await;
    answered.unwrap_or_else(|code| panic!("{asked}: {code}"))
}

fn get(path: &str, watch: bool) -> Request {
    let path = path.into();
    Request::GetData { path, watch }
}

fn set(path: &str, data: Bytes) -> Request {
    Request::SetData {
        path: path.into(),
        data: Some(data),
        version: -1,
    }
}

fn list(path: &str, filter: Filter, details: Option<Details>) -> Request {
    Request::List {
        path: path.into(),
        watch: false,
        filter,
        details,
    }
}

fn ensure(path: &str) -> Request {
    Request::Create {
        kind: CreateKind::IfNotExists,
        path: path.into(),
        data: Some("new".into()),
        acl: Acl::open(),
        flags: create_flags::PERSISTENT,
        ttl: -1,
    }
}

fn check_not_exists(path: &str) -> Request {
    Request::CheckNotExists {
        path: path.into(),
        version: -1,
    }
}

fn delete_recursive(path: &str, most: u32) -> Request {
    Request::DeleteRecursive {
        path: path.into(),
        most,
    }
}

async fn sync(client: &Client) {
    let path = Some("/".into());
    done(client, Request::Sync { path }).await;
}

async fn stat_of(client: &Client, path: &str) -> Stat {
    match done(client, exists(path, false)).await {
        Answer::Stat(stat) => stat,
        other => panic!("{other:?}"),
    }
}

async fn results_of(client: &Client, operations: Vec<Request>) -> Vec<MultiResult> {
    match done(client, Request::Multi { operations }).await {
        Answer::Multi(results) => results,
        other => panic!("{other:?}"),
    }
}

async fn several(client: &Client, operations: Vec<Request>) -> Vec<MultiResult> {
    let breaks_off = false;
    let request = Request::MultiRead {
        operations,
        breaks_off,
    };
    match done(client, request).await {
        Answer::MultiRead(results) => results,
        other => panic!("{other:?}"),
    }
}

/// `/h`, with a child that stays and one that goes with its client's session.
async fn make(client: &Client) {
    for (path, flags) in [
        ("/h", create_flags::PERSISTENT),
        ("/h/a", create_flags::PERSISTENT),
        ("/h/e", create_flags::EPHEMERAL),
    ] {
        done(client, node_at(path, flags)).await;
    }
    done(client, set("/h/a", "x".into())).await;
}

fn names(names: &[&'static str]) -> Vec<Text> {
    names.iter().map(|name| Text::from(*name)).collect()
}

/// Reads in one request, and lists with more than names; then the watches that they have set.
async fn read(writer: &Client, reader: &Client) {
    let [of_h, of_a, of_e] = [
        stat_of(reader, "/h").await,
        stat_of(reader, "/h/a").await,
        stat_of(reader, "/h/e").await,
    ];
    let read = several(
        reader,
        vec![
            exists("/h", true),
            exists("/none", true),
            get("/h/a", true),
            list("/h", Filter::Persistent, None),
            list("/h", Filter::Ephemeral, None),
            get("/nobody", false),
        ],
    );
    let expected = [
        MultiResult::Exists(of_h),
        MultiResult::Failed(opcode::EXISTS, Code::NO_NODE),
        MultiResult::Data(Some("x".into()), of_a),
        MultiResult::ChildrenAndStat(names(&["a"]), of_h),
        MultiResult::ChildrenAndStat(names(&["e"]), of_h),
        MultiResult::Failed(opcode::GET_DATA, Code::NO_NODE),
    ];
    assert_eq!(read.await, expected);
    let details = Details {
        stat: true,
        data: true,
    };
    let listed = Listed {
        names: names(&["a", "e"]),
        stat: of_h,
        stats: vec![of_a, of_e],
        data: vec![Some("x".into()), None],
    };
    let all = done(reader, list("/h", Filter::All, Some(details))).await;
    assert_eq!(all, Answer::Listed(listed));
    for (change, path, kind) in [
        (set("/h", "y".into()), "/h", event::DATA_CHANGED),
        (ensure("/none"), "/none", event::CREATED),
        (set("/h/a", "z".into()), "/h/a", event::DATA_CHANGED),
    ] {
        done(writer, change).await;
        assert_eq!(await_event(reader).await, (kind, path.into()));
    }
    let path = "/none".into();
    let version = -1;
    done(writer, Request::Delete { path, version }).await;
}

/// Writes with conditions that ZooKeeper does not know, alone and in a transaction.
async fn write(writer: &Client, reader: &Client) {
    for (request, expected) in [
        (check_not_exists("/none"), Ok(Answer::Empty)),
        (check_not_exists("/h/a"), Err(Code::NODE_EXISTS)),
        (ensure("/h/a"), Ok(Answer::Path("/h/a".into()))),
    ] {
        assert_eq!(ask(writer, request).await, expected);
    }
    let both = vec![check_not_exists("/h/a"), set("/h", "never".into())];
    let refused = [
        MultiResult::Error(Code::NODE_EXISTS),
        MultiResult::Error(Code::RUNTIME_INCONSISTENCY),
    ];
    assert_eq!(results_of(writer, both).await, refused);
    let made = results_of(
        writer,
        vec![
            check_not_exists("/h/b"),
            ensure("/h/a"),
            ensure("/h/b"),
            ensure("/h/b/c"),
        ],
    );
    let expected = [
        MultiResult::Done(opcode::CHECK_NOT_EXISTS),
        MultiResult::Ensured("/h/a".into()),
        MultiResult::Ensured("/h/b".into()),
        MultiResult::Ensured("/h/b/c".into()),
    ];
    assert_eq!(made.await, expected);
    // All or nothing goes: the node with its four below it.
    let too_few = ask(writer, delete_recursive("/h", 4)).await;
    assert_eq!(too_few, Err(Code::NOT_EMPTY));
    sync(reader).await;
    let paths = done(
        reader,
        Request::ListRecursive {
            path: "/h".into(),
            most: 10,
        },
    );
    let all = names(&["/h/a", "/h/b", "/h/e", "/h/b/c"]);
    assert_eq!(paths.await, Answer::Children(all));
    done(writer, delete_recursive("/h", 5)).await;
    sync(reader).await;
    assert_eq!(ask(reader, exists("/h", false)).await, Err(Code::NO_NODE));
}

#[test]
fn clickhouse_finds_at_each_replica_what_it_is_told_of_in_each_form() {
    run(5, |_| async {
        create().await;
        for (number, form) in (0..).zip(Protocol::FORMS) {
            let writer = clickhouse_at(number % 3, form).await;
            let reader = clickhouse_at((number + 1) % 3, form).await;
            make(&writer).await;
            sync(&reader).await;
            read(&writer, &reader).await;
            write(&writer, &reader).await;
            for client in [&writer, &reader] {
                assert_eq!(client.failure(), None, "{form:?}");
            }
        }
        compare().await;
    });
}

#[test]
fn data_of_many_blocks_goes_and_comes_whole_in_each_form() {
    run(6, |_| async {
        create().await;
        for (number, form) in (0..).zip(Protocol::FORMS) {
            let client = clickhouse_at(number % 3, form).await;
            done(&client, node_at("/long", create_flags::PERSISTENT)).await;
            for byte in 0..2 {
                let data = Bytes::from(vec![byte; 900_000]);
                let setting = client.submit(set("/long", data.clone()));
                let reads = [(); 3].map(|()| client.submit(get("/long", false)));
                setting.await.expect("it is set");
                for read in reads {
                    let Ok((_, Answer::Data(read, _))) = read.await else {
                        panic!("data");
                    };
                    assert!(read.as_ref() == Some(&data), "{form:?}");
                }
            }
            done(&client, delete_recursive("/long", 1)).await;
        }
        compare().await;
    });
}
