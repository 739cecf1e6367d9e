//! What ClickHouse asks a keeper for besides ZooKeeper's requests.

use super::gateways::{
    Gateway, ask, create, create_with, delete, done, get, list, names, set_to, several, sync,
    watching,
};
use super::operators::word;
use bytes::Bytes;
use plinth_client::testing::MemoryCluster;
use plinth_keeper::Options;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{
    Acl, Answer, Code, CreateKind, Details, Filter, Listed, MultiResult, Request, Stat,
    create_flags, event, opcode, permission,
};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, timeout};

/// Two gateways of one tree, and a client of each.
struct Two {
    clients: [Client; 2],
    _gateways: [Gateway; 2],
}

impl Two {
    async fn start(options: Options) -> Two {
        let cluster = MemoryCluster::new();
        let gateways = [
            Gateway::start_with(&cluster, options.clone()).await,
            Gateway::start_with(&cluster, options).await,
        ];
        Two {
            clients: [
                clickhouse_of(&gateways[0]).await,
                clickhouse_of(&gateways[1]).await,
            ],
            _gateways: gateways,
        }
    }
}

/// A client that has asked for the flags, as ClickHouse's does before it asks for anything that they say.
async fn clickhouse_of(gateway: &Gateway) -> Client {
    let client = gateway.client().await;
    // There may be none.
    let _ = ask(&client, get("/keeper/feature_flags")).await;
    client
}

fn exists(path: &str) -> Request {
    Request::Exists {
        path: path.into(),
        watch: false,
    }
}

fn list_of(path: &str, filter: Filter, details: Option<(bool, bool)>) -> Request {
    Request::List {
        path: path.into(),
        watch: false,
        filter,
        details: details.map(|(stat, data)| Details { stat, data }),
    }
}

fn list_recursive(path: &str, most: u32) -> Request {
    Request::ListRecursive {
        path: path.into(),
        most,
    }
}

fn ensure(path: &str, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::IfNotExists,
        path: path.into(),
        data: Some("new".into()),
        acl: Acl::open(),
        flags,
        ttl: -1,
    }
}

fn check_not_exists(path: &str) -> Request {
    Request::CheckNotExists {
        path: path.into(),
        version: -1,
    }
}

fn check_stat(path: &str, stat: Stat) -> Request {
    Request::CheckStat {
        path: path.into(),
        version: -1,
        stat,
    }
}

fn try_delete(path: &str, version: i32) -> Request {
    Request::TryDelete {
        path: path.into(),
        version,
    }
}

fn delete_recursive(path: &str, most: u32) -> Request {
    Request::DeleteRecursive {
        path: path.into(),
        most,
    }
}

fn multi(operations: Vec<Request>) -> Request {
    Request::Multi { operations }
}

/// An access list that withholds something from everybody.
fn withhold(path: &str, permissions: i32) -> Request {
    let mut acl = Acl::open();
    acl[0].perms = permission::ALL & !permissions;
    Request::SetAcl {
        path: path.into(),
        acl,
        version: -1,
    }
}

async fn make(client: &Client, paths: &[&str]) {
    for path in paths {
        done(client, create(path)).await;
    }
}

async fn stat_of(client: &Client, path: &str) -> Stat {
    match done(client, exists(path)).await {
        Answer::Stat(stat) => stat,
        other => panic!("{other:?}"),
    }
}

async fn codes_of(client: &Client, operations: Vec<Request>) -> Vec<Code> {
    match done(client, multi(operations)).await {
        Answer::Multi(results) => {
            let code = |result: &MultiResult| match result {
                MultiResult::Error(code) => *code,
                _ => Code::OK,
            };
            results.iter().map(code).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_of_all_kinds_share_a_request_and_each_sets_its_watch() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, other] = &two.clients;
        make(one, &["/a", "/a/b", "/c"]).await;
        done(one, create_with("/a/e", "x", create_flags::EPHEMERAL)).await;
        done(other, sync()).await;
        let read = several(vec![
            watching(exists("/a")),
            watching(exists("/none")),
            watching(get("/c")),
            Request::GetChildren2 {
                path: "/a".into(),
                watch: true,
            },
            list_of("/a", Filter::Ephemeral, None),
            list_of("/a", Filter::All, None),
            list_recursive("/a", 10),
            list("/nobody"),
        ]);
        let Answer::MultiRead(results) = done(other, read).await else {
            panic!("several reads are answered with as many");
        };
        let of_a = stat_of(other, "/a").await;
        let of_c = stat_of(other, "/c").await;
        assert_eq!(
            results,
            [
                MultiResult::Exists(of_a),
                MultiResult::Failed(opcode::EXISTS, Code::NO_NODE),
                MultiResult::Data(Some("abc".into()), of_c),
                MultiResult::ChildrenAndStat(vec!["b".into(), "e".into()], of_a),
                MultiResult::ChildrenAndStat(vec!["e".into()], of_a),
                MultiResult::ChildrenAndStat(vec!["b".into(), "e".into()], of_a),
                MultiResult::Paths(vec!["/a/b".into(), "/a/e".into()]),
                MultiResult::Failed(opcode::GET_CHILDREN, Code::NO_NODE),
            ]
        );
        for (change, path, kind) in [
            (set_to("/a", "y"), "/a", event::DATA_CHANGED),
            (create("/none"), "/none", event::CREATED),
            (delete("/c"), "/c", event::DELETED),
            (delete("/a/b"), "/a", event::CHILDREN_CHANGED),
        ] {
            done(one, change).await;
            let told = timeout(Duration::from_secs(20), other.next_event()).await;
            let told = told.flatten().expect("an event");
            assert_eq!((&*told.path, told.kind), (path, kind));
        }
    });
}

#[test]
fn a_read_that_fails_among_others_looks_as_the_client_expects_it() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        let code = Code::NO_NODE;
        // ZooKeeper's clients find an error in the place of the result.
        let read = || several(vec![watching(get("/")), get("/none")]);
        let Answer::MultiRead(results) = done(&client, read()).await else {
            panic!("several reads");
        };
        assert_eq!(results[1], MultiResult::Error(code));
        // To them this is a ZooKeeper in all, without watches among several reads.
        let check = || Request::CheckWatches {
            path: "/".into(),
            kind: 2,
        };
        assert_eq!(ask(&client, check()).await, Err(Code::NO_WATCHER));
        let wide = several(vec![exists("/")]);
        assert_eq!(ask(&client, wide).await, Err(Code::MARSHALLING_ERROR));
        // ClickHouse's clients ask for the flags first.
        done(&client, get("/keeper/feature_flags")).await;
        let Answer::MultiRead(results) = done(&client, read()).await else {
            panic!("several reads");
        };
        assert_eq!(results[1], MultiResult::Failed(opcode::GET_DATA, code));
        done(&client, check()).await;
        let wide = several(vec![
            exists("/none"),
            list_of("/none", Filter::Ephemeral, None),
        ]);
        let results = vec![
            MultiResult::Failed(opcode::EXISTS, code),
            MultiResult::Failed(opcode::GET_CHILDREN_2, code),
        ];
        assert_eq!(done(&client, wide).await, Answer::MultiRead(results));
    });
}

#[test]
fn a_list_has_the_children_that_are_asked_for_with_what_is_in_them() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, other] = &two.clients;
        let long = Bytes::from(vec![7; 5000]);
        make(one, &["/l", "/l/a"]).await;
        done(
            one,
            create_with("/l/b", long.clone(), create_flags::PERSISTENT),
        )
        .await;
        done(one, create_with("/l/e", "x", create_flags::EPHEMERAL)).await;
        done(other, sync()).await;
        let stats = [
            stat_of(other, "/l/a").await,
            stat_of(other, "/l/b").await,
            stat_of(other, "/l/e").await,
        ];
        let stat = stat_of(other, "/l").await;
        let data = [Some("abc".into()), Some(long), Some("x".into())];
        // The other gateway reads what it does not know yet, and each of them what has changed since.
        for client in [other, one] {
            let all = done(client, list_of("/l", Filter::All, Some((true, true)))).await;
            let names = vec!["a".into(), "b".into(), "e".into()];
            let listed = Listed {
                names,
                stat,
                stats: stats.to_vec(),
                data: data.to_vec(),
            };
            assert_eq!(all, Answer::Listed(listed));
        }
        let some = done(
            other,
            list_of("/l", Filter::Persistent, Some((true, false))),
        )
        .await;
        let listed = Listed {
            names: vec!["a".into(), "b".into()],
            stat,
            stats: stats[..2].to_vec(),
            data: Vec::new(),
        };
        assert_eq!(some, Answer::Listed(listed));
        let some = done(other, list_of("/l", Filter::Ephemeral, None)).await;
        assert_eq!(some, Answer::ChildrenAndStat(vec!["e".into()], stat));
        assert_eq!(
            ask(other, list_of("/none", Filter::All, None)).await,
            Err(Code::NO_NODE)
        );

        // What kind a node is, and what it has, is for who may read it. Its name is not secret.
        done(one, withhold("/l/b", permission::READ)).await;
        done(other, sync()).await;
        let refused = ask(other, list_of("/l", Filter::Persistent, None)).await;
        assert_eq!(refused, Err(Code::NO_AUTH));
        let all = done(other, list_of("/l", Filter::All, None)).await;
        assert!(matches!(all, Answer::ChildrenAndStat(names, _) if names.len() == 3));
    });
}

#[test]
fn a_recursive_list_has_what_is_less_deep_first_and_ends_where_it_is_told_to() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, other] = &two.clients;
        make(
            one,
            &[
                "/t", "/t/a", "/t/b", "/t/a/x", "/t/a/y", "/t/b/z", "/t/a/x/1",
            ],
        )
        .await;
        done(other, sync()).await;
        let paths = async |client, most| match done(client, list_recursive("/t", most)).await {
            Answer::Children(paths) => paths
                .iter()
                .map(|path| path.to_string())
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let all = ["/t/a", "/t/b", "/t/a/x", "/t/a/y", "/t/b/z", "/t/a/x/1"];
        assert_eq!(paths(other, u32::MAX).await, all);
        assert_eq!(paths(one, 3).await, all[..3]);
        assert_eq!(paths(one, 0).await, [""; 0]);
        done(one, withhold("/t/a", permission::READ)).await;
        done(other, sync()).await;
        assert_eq!(paths(other, 100).await, ["/t/b", "/t/b/z"]);
    });
}

#[test]
fn a_create_of_what_is_there_changes_nothing_and_says_its_path() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, other] = &two.clients;
        let path = || Answer::Path("/a".into());
        assert_eq!(done(one, ensure("/a", 0)).await, path());
        let before = stat_of(one, "/a").await;
        done(other, sync()).await;
        assert_eq!(done(other, ensure("/a", 1)).await, path());
        assert_eq!(stat_of(other, "/a").await, before);
        // In a multi beside what changes something.
        let operations = vec![ensure("/a", 0), ensure("/b", 0), set_to("/b", "later")];
        let Answer::Multi(results) = done(other, multi(operations)).await else {
            panic!("a multi");
        };
        let of_b = stat_of(other, "/b").await;
        assert_eq!(
            results,
            [
                MultiResult::Ensured("/a".into()),
                MultiResult::Ensured("/b".into()),
                MultiResult::Stat(of_b),
            ]
        );
        assert_eq!(ask(one, ensure("/none/a", 0)).await, Err(Code::NO_NODE));
        for flags in [2, 3, 4, 5] {
            assert_eq!(
                ask(one, ensure("/n", flags)).await,
                Err(Code::BAD_ARGUMENTS)
            );
        }
    });
}

#[test]
fn checks_hold_as_they_stand_alone_and_in_a_multi() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, _] = &two.clients;
        make(one, &["/a", "/a/b"]).await;
        let stat = stat_of(one, "/a").await;
        let later = Stat {
            num_children: 2,
            ..Stat::ANY
        };
        for (check, expected) in [
            (check_not_exists("/none"), Ok(Answer::Empty)),
            (check_not_exists("/a"), Err(Code::NODE_EXISTS)),
            (check_not_exists("a"), Err(Code::BAD_ARGUMENTS)),
            (check_stat("/a", stat), Ok(Answer::Empty)),
            (check_stat("/a", Stat::ANY), Ok(Answer::Empty)),
            (check_stat("/a", later), Err(Code::BAD_VERSION)),
            (check_stat("/none", Stat::ANY), Err(Code::NO_NODE)),
        ] {
            let in_multi = codes_of(one, vec![set_to("/a/b", "x"), check.clone()]).await;
            assert_eq!(
                in_multi[1],
                expected.clone().err().unwrap_or(Code::OK),
                "{check:?}"
            );
            assert_eq!(ask(one, check.clone()).await, expected, "{check:?}");
        }
        // A node of another version is none.
        let other_version = Request::CheckNotExists {
            path: "/a".into(),
            version: 7,
        };
        assert_eq!(codes_of(one, vec![other_version]).await, [Code::OK]);
        // What an operation of the same multi has done counts, and no number of it is known before.
        let expected = Stat {
            num_children: 2,
            pzxid: -2,
            ..Stat::ANY
        };
        let codes = codes_of(one, vec![create("/a/c"), check_stat("/a", later)]).await;
        assert_eq!(codes, [Code::OK, Code::OK]);
        let codes = codes_of(
            one,
            vec![delete("/a/c"), create("/a/c"), check_stat("/a", expected)],
        );
        assert_eq!(codes.await[2], Code::BAD_VERSION);
    });
}

#[test]
fn a_deletion_that_minds_nothing_leaves_what_may_not_go() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, _] = &two.clients;
        make(one, &["/a", "/a/b"]).await;
        for request in [
            try_delete("/none", -1),
            try_delete("/none/b", -1),
            try_delete("/a", -1),
            try_delete("/a/b", 5),
        ] {
            assert_eq!(done(one, request).await, Answer::Empty);
        }
        assert_eq!(names(one, "/a").await, ["b"]);
        let operations = vec![try_delete("/none", -1), try_delete("/a/b", 0), delete("/a")];
        let Answer::Multi(results) = done(one, multi(operations)).await else {
            panic!("a multi");
        };
        let tried = MultiResult::Done(opcode::TRY_REMOVE);
        assert_eq!(results, [tried.clone(), tried, MultiResult::Deleted]);
        assert_eq!(
            ask(one, try_delete("/zookeeper", -1)).await,
            Err(Code::BAD_ARGUMENTS)
        );
        make(one, &["/w", "/w/x"]).await;
        done(one, withhold("/w", permission::DELETE)).await;
        assert_eq!(ask(one, try_delete("/w/x", -1)).await, Err(Code::NO_AUTH));
    });
}

#[test]
fn a_tree_goes_as_a_whole_or_not_at_all() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, other] = &two.clients;
        let all = ["/t", "/t/a", "/t/b", "/t/a/x", "/t/a/y", "/t/a/x/1"];
        make(one, &all).await;
        done(one, create_with("/t/e", "x", create_flags::EPHEMERAL)).await;
        let root = stat_of(one, "/").await;
        done(other, sync()).await;
        // The other gateway knows nothing of the tree.
        assert_eq!(
            ask(other, delete_recursive("/t", 6)).await,
            Err(Code::NOT_EMPTY)
        );
        done(one, withhold("/t/a/y", permission::DELETE)).await;
        done(other, sync()).await;
        assert_eq!(
            ask(other, delete_recursive("/t", 100)).await,
            Err(Code::NO_AUTH)
        );
        assert_eq!(names(one, "/t/a").await, ["x", "y"]);
        done(one, withhold("/t/a/y", 0)).await;
        done(other, sync()).await;
        done(other, watching(get("/t/a/x"))).await;
        // Also what an operation before it has made goes, and what fails behind it brings all back.
        let operations = || vec![create("/t/new"), delete("/t/b"), delete_recursive("/t", 8)];
        let failing = [operations(), vec![create("/t")], vec![delete("/none")]].concat();
        let codes = codes_of(other, failing).await;
        assert_eq!(codes[3..], [Code::OK, Code::NO_NODE]);
        assert_eq!(names(other, "/t").await, ["a", "b", "e"]);
        let codes = codes_of(other, operations()).await;
        assert_eq!(codes, [Code::OK; 3]);
        let told = timeout(Duration::from_secs(20), other.next_event()).await;
        let told = told.flatten().expect("an event");
        assert_eq!((&*told.path, told.kind), ("/t/a/x", event::DELETED));
        done(one, sync()).await;
        for client in [one, other] {
            assert_eq!(ask(client, exists("/t")).await, Err(Code::NO_NODE));
            let now = stat_of(client, "/").await;
            assert_eq!(
                (now.cversion, now.num_children),
                (root.cversion + 1, root.num_children - 1)
            );
        }
        assert_eq!(
            done(one, Request::GetEphemerals { prefix: "".into() }).await,
            Answer::Ephemerals(vec![])
        );
        assert_eq!(done(one, delete_recursive("/t", 0)).await, Answer::Empty);
        for special in ["/", "/zookeeper", "/zookeeper/quota"] {
            let refused = ask(one, delete_recursive(special, 100)).await;
            assert_eq!(refused, Err(Code::BAD_ARGUMENTS));
        }
    });
}

#[test]
fn no_client_takes_more_with_one_request_than_a_transaction_holds() {
    block_on(async {
        let two = Two::start(Options::default()).await;
        let [one, other] = &two.clients;
        make(one, &["/t"]).await;
        let child = |i: usize| create(&format!("/t/{i:0>100}"));
        for begin in [0, 500] {
            done(one, multi((begin..begin + 500).map(child).collect())).await;
        }
        done(other, sync()).await;
        let refused = ask(other, delete_recursive("/t", u32::MAX)).await;
        assert_eq!(refused, Err(Code::NOT_EMPTY));
        done(one, delete(&format!("/t/{:0>100}", 7))).await;
        done(other, sync()).await;
        done(other, delete_recursive("/t", u32::MAX)).await;
        assert_eq!(ask(other, exists("/t")).await, Err(Code::NO_NODE));
    });
}

#[test]
fn the_keeper_says_of_itself_what_it_can() {
    block_on(async {
        let options = Options {
            zone: Some("east".into()),
            ..Options::default()
        };
        let two = Two::start(options).await;
        let [one, other] = &two.clients;
        for client in [one, other] {
            for (path, expected) in [
                ("/keeper/feature_flags", &b"\xff\xe0"[..]),
                ("/keeper/api_version", b"3"),
                ("/keeper/availability_zone", b"east"),
            ] {
                let Answer::Data(data, stat) = done(client, get(path)).await else {
                    panic!("{path} has data");
                };
                assert_eq!(data.as_deref(), Some(expected));
                assert_eq!(stat.data_length as usize, expected.len());
            }
            let below = ["api_version", "feature_flags", "availability_zone"];
            assert_eq!(names(client, "/keeper").await, below);
            assert_eq!(names(client, "/").await, ["zookeeper"]);
            stat_of(client, "/keeper/api_version").await;
            assert_eq!(ask(client, get("/keeper/config")).await, Err(Code::NO_NODE));
            // Nobody changes it.
            for (request, code) in [
                (create("/keeper"), Code::BAD_ARGUMENTS),
                (create("/keeper/mine"), Code::NO_NODE),
                (set_to("/keeper/api_version", "9"), Code::NO_NODE),
                (delete("/keeper/api_version"), Code::NO_NODE),
                (withhold("/keeper", 0), Code::NO_NODE),
            ] {
                assert_eq!(ask(client, request.clone()).await, Err(code), "{request:?}");
            }
            let codes = codes_of(client, vec![check_not_exists("/n"), create("/keeper")]).await;
            assert_eq!(codes, [Code::OK, Code::BAD_ARGUMENTS]);
            let read = several(vec![get("/keeper/api_version"), exists("/keeper")]);
            let Answer::MultiRead(results) = done(client, read).await else {
                panic!("several reads");
            };
            assert!(matches!(results[0], MultiResult::Data(..)));
            assert!(matches!(results[1], MultiResult::Exists(_)));
        }
    });
}

#[test]
fn a_tree_that_has_a_node_of_that_name_keeps_it() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let plain = Options {
            clickhouse: false,
            ..Options::default()
        };
        let plain = Gateway::start_with(&cluster, plain).await;
        let before = plain.client().await;
        make(&before, &["/keeper", "/keeper/mine"]).await;
        let gateway = Gateway::start(&cluster).await;
        let client = clickhouse_of(&gateway).await;
        done(&client, sync()).await;
        assert_eq!(names(&client, "/keeper").await, ["mine"]);
        assert_eq!(
            ask(&client, get("/keeper/feature_flags")).await,
            Err(Code::NO_NODE)
        );
        assert_eq!(
            ask(&client, create("/keeper")).await,
            Err(Code::NODE_EXISTS)
        );
        done(&client, delete_recursive("/keeper", 2)).await;
        assert_eq!(
            names(&client, "/keeper").await,
            ["api_version", "feature_flags"]
        );
    });
}

#[test]
fn a_gateway_that_is_told_so_knows_nothing_of_clickhouse() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let options = Options {
            clickhouse: false,
            ..Options::default()
        };
        let gateway = Gateway::start_with(&cluster, options).await;
        for request in [
            list_of("/", Filter::All, None),
            list_of("/", Filter::All, Some((true, true))),
            list_recursive("/", 1),
            ensure("/a", 0),
            check_not_exists("/a"),
            check_stat("/", Stat::ANY),
            try_delete("/a", -1),
            delete_recursive("/a", 1),
        ] {
            // The connection ends with the answer.
            let client = clickhouse_of(&gateway).await;
            let refused = ask(&client, request.clone()).await;
            assert_eq!(refused, Err(Code::UNIMPLEMENTED), "{request:?}");
        }
        let client = clickhouse_of(&gateway).await;
        for request in [
            several(vec![exists("/")]),
            multi(vec![check_not_exists("/a")]),
        ] {
            assert_eq!(ask(&client, request).await, Err(Code::MARSHALLING_ERROR));
        }
        // The watches of several reads are ZooKeeper's: there are none.
        done(&client, several(vec![watching(get("/"))])).await;
        let check = Request::CheckWatches {
            path: "/".into(),
            kind: 2,
        };
        assert_eq!(ask(&client, check).await, Err(Code::NO_WATCHER));
        assert_eq!(
            ask(&client, get("/keeper/api_version")).await,
            Err(Code::NO_NODE)
        );
        done(&client, create("/keeper")).await;
    });
}

#[test]
fn operators_ask_in_the_words_of_clickhouses_keeper() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let _client = gateway.client().await;
        let at = gateway.keeper.address();
        assert!(gateway.keeper.serves());
        let flags = word(at, "ftfl").await;
        let flags: Vec<&str> = flags.lines().collect();
        assert_eq!((flags.len(), flags[0]), (11, "filtered_list\t1"));
        assert!(flags.iter().all(|flag| flag.ends_with("\t1")), "{flags:?}");
        let log = word(at, "lgif").await;
        assert!(
            log.lines()
                .any(|line| line.starts_with("last_committed_log_idx\t")),
            "{log}"
        );
        for (asked, said) in [
            ("apiv", "3"),
            ("rcvr", "ok"),
            ("rclc", "ok"),
            ("clrs", "ok"),
            ("csnp", "Failed to schedule snapshot creation task."),
            ("rqld", "Failed to send leadership request to leader."),
            ("ydld", "Failed to send leadership request to leader."),
        ] {
            assert_eq!(word(at, asked).await, said, "{asked}");
        }
        let options = Options {
            clickhouse: false,
            ..Options::default()
        };
        let plain = Gateway::start_with(&cluster, options).await;
        let _client = plain.client().await;
        assert_eq!(word(plain.keeper.address(), "ftfl").await, "");
    });
}

#[test]
fn clickhouse_may_ask_for_more_in_one_request_than_others() {
    block_on(async {
        let gateway = Gateway::start(&MemoryCluster::new()).await;
        let path = format!("/{}", "a".repeat(100));
        let many = || several(vec![get(&path); 12_000]);
        let plain = gateway.client().await;
        assert_eq!(ask(&plain, many()).await, Err(Code::CONNECTION_LOSS));
        let clickhouse = clickhouse_of(&gateway).await;
        let Answer::MultiRead(found) = done(&clickhouse, many()).await else {
            panic!("another answer");
        };
        assert_eq!(found.len(), 12_000);
    });
}
