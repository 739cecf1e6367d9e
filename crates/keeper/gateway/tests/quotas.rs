//! Quotas at gateways of a database in memory.

use super::gateways::{Gateway, ask, create_with, delete, done, get, set_to, several, sync};
use bytes::Bytes;
use plinth_client::testing::MemoryCluster;
use plinth_keeper::Options;
use plinth_keeper::client::Client;
use plinth_keeper::tree::quota::{Counted, Limits, Quota, Used};
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::{Acl, Answer, Code, MultiResult, Request, Stat, Text, create_flags};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, join_all, race, random, sleep, timeout};

async fn start(cluster: &MemoryCluster, enforce_quota: bool) -> Gateway {
    let options = Options {
        enforce_quota,
        ..Options::default()
    };
    Gateway::start_with(cluster, options).await
}

fn create(path: &str) -> Request {
    create_with(path, "", create_flags::PERSISTENT)
}

fn create_data(path: &str, data: impl Into<Bytes>) -> Request {
    create_with(path, data, create_flags::PERSISTENT)
}

async fn is_refused(client: &Client, request: Request) {
    let asked = format!("{request:?}");
    let answer = ask(client, request).await;
    assert_eq!(answer, Err(Code::QUOTA_EXCEEDED), "{asked}");
}

/// Sets a quota as ZooKeeper's clients do.
async fn limit(client: &Client, path: &str, limits: &str) {
    let mut above = "/zookeeper/quota".to_string();
    for name in path.split('/').skip(1) {
        above = format!("{above}/{name}");
        let _ = ask(client, create(&above)).await;
    }
    done(
        client,
        create_data(&format!("{above}/zookeeper_limits"), limits.to_string()),
    )
    .await;
    done(client, create_data(&format!("{above}/zookeeper_stats"), "")).await;
}

async fn statistics(client: &Client, path: &str) -> String {
    let request = Request::GetData {
        path: format!("/zookeeper/quota{path}/zookeeper_stats")
            .as_str()
            .into(),
        watch: false,
    };
    match ask(client, request).await {
        Ok(Answer::Data(Some(data), _)) => String::from_utf8_lossy(&data).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hard_limit_of_nodes_lets_in_as_many_and_no_more_at_every_gateway() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateways = (start(&cluster, true).await, start(&cluster, true).await);
        let (one, two) = (gateways.0.client().await, gateways.1.client().await);
        done(&one, create("/q")).await;
        limit(
            &one,
            "/q",
            "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3",
        )
        .await;
        done(&one, create("/q/1")).await;
        done(&two, create("/q/2")).await;
        for client in [&one, &two] {
            is_refused(client, create("/q/3")).await;
            is_refused(client, create("/q/1/below")).await;
            done(client, set_to("/q/1", "data is not limited")).await;
        }
        done(&two, delete("/q/1")).await;
        // All of a multi together, or nothing of it.
        let two_more = vec![create("/q/a"), create("/q/b")];
        let answer = ask(
            &one,
            Request::Multi {
                operations: two_more,
            },
        )
        .await;
        let text = format!("{answer:?}");
        assert!(
            text.contains("QuotaExceeded") || text.contains("-125"),
            "{text}"
        );
        let replaced = vec![delete("/q/2"), create("/q/a"), create("/q/b")];
        done(
            &one,
            Request::Multi {
                operations: replaced,
            },
        )
        .await;
        is_refused(&two, create("/q/3")).await;
        assert_eq!(statistics(&two, "/q").await, "count=3,bytes=0");
        // A quota that has gone limits nothing.
        done(&two, delete("/zookeeper/quota/q/zookeeper_limits")).await;
        done(&one, create("/q/3")).await;
    });
}

/// The `Stat`s of the node by each request that has one.
async fn stats_of(client: &Client, path: &str) -> Vec<Stat> {
    let path = Text::from(path);
    let watch = false;
    let exists = Request::Exists {
        path: path.clone(),
        watch,
    };
    let children = Request::GetChildren2 {
        path: path.clone(),
        watch,
    };
    let set_acl = Request::SetAcl {
        path: path.clone(),
        acl: Acl::open(),
        version: -1,
    };
    let requests = [
        exists,
        children,
        Request::GetAcl { path: path.clone() },
        get(&path),
        several(vec![get(&path)]),
        set_acl,
    ];
    let mut stats = Vec::new();
    for request in requests {
        match done(client, request).await {
            Answer::Stat(stat)
            | Answer::ChildrenAndStat(_, stat)
            | Answer::Acl(_, stat)
            | Answer::Data(_, stat) => stats.push(stat),
            Answer::MultiRead(results) => match &results[..] {
                [MultiResult::Data(_, stat)] => stats.push(*stat),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    stats
}

#[test]
fn the_statistics_of_a_quota_are_as_long_as_they_read_whoever_asks() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = start(&cluster, false).await;
        let client = gateway.client().await;
        done(&client, create_data("/q", "12345")).await;
        limit(&client, "/q", "count=1000,bytes=-1").await;
        let path = "/zookeeper/quota/q/zookeeper_stats";
        for bytes in [10, 1000, 100_000] {
            done(&client, set_to("/q", vec![7; bytes])).await;
            let said = statistics(&client, "/q").await;
            assert_eq!(said, format!("count=1,bytes={bytes}"));
            for stat in stats_of(&client, path).await {
                assert_eq!(stat.data_length as usize, said.len(), "{said}");
            }
        }
        // A write of the client's own is counted when it asks right behind it.
        let setting = client.submit(set_to("/q", vec![7; 9]));
        let exists = Request::Exists {
            path: path.into(),
            watch: false,
        };
        let asking = client.submit(exists);
        setting.await.expect("set");
        match asking.await.expect("there").1 {
            Answer::Stat(stat) => assert_eq!(stat.data_length as usize, "count=1,bytes=9".len()),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn nobody_sets_the_statistics_of_a_quota() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let options = Options {
            super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".into()),
            ..Options::default()
        };
        let gateway = Gateway::start_with(&cluster, options).await;
        let client = gateway.client().await;
        done(&client, create_data("/q", "12345")).await;
        limit(&client, "/q", "count=1000,bytes=-1").await;
        let path = "/zookeeper/quota/q/zookeeper_stats";
        let auth = Request::Auth {
            kind: 0,
            scheme: "digest".into(),
            auth: Some("super:test".into()),
        };
        done(&client, auth).await;
        let before = stats_of(&client, path).await.remove(0);
        let set = ask(&client, set_to(path, "count=7,bytes=7")).await;
        assert_eq!(set, Err(Code::NO_AUTH));
        let operations = vec![set_to("/q", "123"), set_to(path, "count=7,bytes=7")];
        let refused = ask(&client, Request::Multi { operations }).await;
        let expected = [Code::OK, Code::NO_AUTH].map(MultiResult::Error);
        assert_eq!(refused, Ok(Answer::Multi(expected.into())));
        assert_eq!(statistics(&client, "/q").await, "count=1,bytes=5");
        let after = stats_of(&client, path).await.remove(0);
        assert_eq!((before.version, before.mzxid), (after.version, after.mzxid));
        // Of what there is not, and of what is limited, nothing else is said than before.
        let none = ask(&client, set_to("/zookeeper/quota/x/zookeeper_stats", "")).await;
        assert_eq!(none, Err(Code::NO_NODE));
        let limits = "/zookeeper/quota/q/zookeeper_limits";
        done(&client, set_to(limits, "count=5,bytes=-1")).await;
    });
}

#[test]
fn a_hard_limit_of_bytes_is_about_what_a_change_adds() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = start(&cluster, true).await;
        let client = gateway.client().await;
        done(&client, create_data("/q", "12345")).await;
        limit(
            &client,
            "/q",
            "count=1,bytes=1=;byteHardLimit=10;countHardLimit=-1",
        )
        .await;
        // The soft limits are passed all the time, and the trace says so.
        done(&client, create_data("/q/1", "12345")).await;
        is_refused(&client, create_data("/q/2", "1")).await;
        is_refused(&client, set_to("/q/1", "123456")).await;
        done(&client, create("/q/2")).await;
        done(&client, set_to("/q/1", "1234")).await;
        done(&client, set_to("/q/2", "1")).await;
        assert_eq!(statistics(&client, "/q").await, "count=3,bytes=10");
        // Another limit counts from the moment when it is set.
        let limits = "count=-1,bytes=-1=;byteHardLimit=12;countHardLimit=-1";
        done(
            &client,
            set_to("/zookeeper/quota/q/zookeeper_limits", limits),
        )
        .await;
        done(&client, set_to("/q/2", "123")).await;
        is_refused(&client, set_to("/q/2", "1234")).await;
    });
}

#[test]
fn nothing_is_refused_without_the_flag_and_everything_is_counted() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = start(&cluster, false).await;
        let client = gateway.client().await;
        done(&client, create("/q")).await;
        limit(
            &client,
            "/q",
            "count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=1",
        )
        .await;
        done(&client, create_data("/q/1", "12345")).await;
        assert_eq!(statistics(&client, "/q").await, "count=2,bytes=5");
        // A gateway that comes later knows it from the rows.
        let later = start(&cluster, true).await;
        let client = later.client().await;
        is_refused(&client, create("/q/2")).await;
    });
}

#[test]
fn the_quota_that_is_nearest_decides() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = start(&cluster, true).await;
        let client = gateway.client().await;
        for path in ["/q", "/q/inner"] {
            done(&client, create(path)).await;
        }
        limit(&client, "/q", "countHardLimit=2").await;
        limit(&client, "/q/inner", "countHardLimit=2").await;
        is_refused(&client, create("/q/1")).await;
        done(&client, create("/q/inner/1")).await;
        is_refused(&client, create("/q/inner/2")).await;
        done(&client, create("/quite-another")).await;
        assert_eq!(statistics(&client, "/q").await, "count=3,bytes=0");
        assert_eq!(statistics(&client, "/q/inner").await, "count=2,bytes=0");
    });
}

/// Creates, changes and deletes nodes below `/q` until the time is over.
async fn write_on(client: &Client, turns: usize) {
    for _ in 0..turns {
        let (a, b) = (random::below(20), random::below(20));
        let path = match random::chance(0.3) {
            true => format!("/q/{a}"),
            false => format!("/q/{a}/{b}"),
        };
        let data = "x".repeat(random::below(30) as usize);
        let request = match random::below(3) {
            0 => create_data(&path, data),
            1 => set_to(&path, data),
            _ => delete(&path),
        };
        let _ = ask(client, request).await;
    }
}

/// What there is below a node, counted node by node.
async fn counted(client: &Client, path: &str) -> (i64, i64) {
    let (mut nodes, mut bytes, mut left) = (0, 0, vec![path.to_string()]);
    while let Some(path) = left.pop() {
        let request = Request::GetChildren2 {
            path: path.as_str().into(),
            watch: false,
        };
        match ask(client, request).await {
            Ok(Answer::ChildrenAndStat(names, stat)) => {
                nodes += 1;
                bytes += i64::from(stat.data_length);
                left.extend(names.iter().map(|name| format!("{path}/{name}")));
            }
            other => panic!("{other:?}"),
        }
    }
    (nodes, bytes)
}

/// The quota is counted, as its row says.
fn is_counted(cluster: &MemoryCluster, path: &str) -> bool {
    let rows = Rows::new("default");
    let row = cluster.rows().get(&rows.quota(path)[..]).cloned();
    let quota = row.and_then(|row| Quota::from_row(&row));
    quota.is_some_and(|quota| quota.counted == Counted::All)
}

#[test]
fn what_is_used_is_what_there_is_after_writes_at_two_gateways_while_it_was_counted() {
    let mut knobs = Knobs::default();
    knobs.set("keeper_quota_piece_rows", "7").expect("a knob");
    knobs.set("keeper_reap_ms", "200").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let cluster = MemoryCluster::new();
        cluster.set_chunk_rows_max(5);
        let gateways = [start(&cluster, true).await, start(&cluster, false).await];
        let client = gateways[1].client().await;
        done(&client, create("/q")).await;
        write_on(&client, 600).await;
        let writing = gateways.iter().map(|gateway| async {
            write_on(&gateway.client().await, 500).await;
        });
        let writing = join_all(writing);
        let limiting = async {
            sleep(Duration::from_millis(20)).await;
            limit(&client, "/q", "count=1,bytes=1").await;
            assert!(!is_counted(&cluster, "/q"), "there is little to count");
            sleep(Duration::from_secs(3600)).await;
        };
        race(writing, limiting).await;
        let counting = async {
            while !is_counted(&cluster, "/q") {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(30), counting)
            .await
            .expect("it is counted");
        // Lists are of what the gateway has heard; what is used is of all that has happened.
        done(&client, sync()).await;
        let (nodes, bytes) = counted(&client, "/q").await;
        assert!(nodes > 20, "{nodes}");
        let used = format!("count={nodes},bytes={bytes}");
        assert_eq!(statistics(&client, "/q").await, used);
        // The rows say the same.
        let later = start(&cluster, true).await;
        assert_eq!(statistics(&later.client().await, "/q").await, used);
    });
}

#[test]
fn a_quota_that_was_imported_is_counted_by_the_first_gateway() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let before = start(&cluster, true).await;
        let client = before.client().await;
        for path in ["/q", "/q/1"] {
            done(&client, create_data(path, "12")).await;
        }
        limit(&client, "/q", "countHardLimit=2").await;
        drop((client, before));
        // As an import leaves it: with the node of limits, and without what gateways keep about it.
        let around = Rows::new("default").around_quota("/q");
        let database = cluster.database();
        let cleared = database.run(async |transaction| {
            transaction.clear_range(around.begin.clone(), around.end.clone());
            Ok(())
        });
        cleared.await.expect("cleared");
        let gateway = start(&cluster, true).await;
        let client = gateway.client().await;
        let counting = async {
            while !is_counted(&cluster, "/q") {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(30), counting)
            .await
            .expect("it is counted");
        is_refused(&client, create("/q/2")).await;
        assert_eq!(statistics(&client, "/q").await, "count=2,bytes=4");
    });
}

/// What a quota of `/q` with four nodes says in the end, whose row says that it is counted through this path so far,
/// and others that so much was found.
async fn counted_on(through: &str, used: Used) -> String {
    let cluster = MemoryCluster::new();
    let before = start(&cluster, true).await;
    let client = before.client().await;
    for path in [
        "/a",
        "/q",
        "/q/1",
        "/q/2",
        "/q/1/below",
        "/quite",
        "/quite/1",
    ] {
        done(&client, create_data(path, "12")).await;
    }
    limit(&client, "/q", "countHardLimit=100").await;
    drop((client, before));
    let rows = Rows::new("default");
    let quota = Quota {
        limits: Limits::parse(b"countHardLimit=100"),
        counted: Counted::Through(through.into()),
    };
    cluster.spoil(&rows.quota("/q"), Some(&quota.to_row()));
    for (of, number) in [(b'n', used.nodes), (b'b', used.bytes)] {
        cluster.spoil(&rows.quota_used("/q", of), Some(&number.to_le_bytes()));
    }
    let gateway = start(&cluster, true).await;
    let client = gateway.client().await;
    let counting = async {
        while !is_counted(&cluster, "/q") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let counting = timeout(Duration::from_secs(20), counting).await;
    counting.unwrap_or_else(|| panic!("it is not counted behind {through}"));
    statistics(&client, "/q").await
}

#[test]
fn a_quota_is_counted_on_behind_one_of_its_nodes_and_anew_behind_any_other() {
    let mut knobs = Knobs::default();
    knobs.set("keeper_reap_ms", "200").expect("a knob");
    knobs.set("keeper_quota_piece_rows", "1").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let used = |nodes| Used {
            nodes,
            bytes: 2 * nodes,
        };
        // In the order of their rows: by depth, and then by name.
        for (through, nodes) in [("/q", 1), ("/q/1", 2), ("/q/2", 3), ("/q/1/below", 4)] {
            assert_eq!(counted_on(through, used(nodes)).await, "count=4,bytes=8");
        }
        // What is said to be used so far is not believed then.
        for through in [
            "/a",
            "/quite",
            "/quite/1",
            "/q1",
            "/",
            "/zzz/deeper/than/all",
        ] {
            assert_eq!(counted_on(through, used(50)).await, "count=4,bytes=8");
        }
    });
}

#[test]
fn who_asks_for_all_changes_has_those_of_what_is_used_too() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateways = (start(&cluster, true).await, start(&cluster, true).await);
        let (one, two) = (gateways.0.client().await, gateways.1.client().await);
        done(&one, create("/q")).await;
        limit(&one, "/q", "countHardLimit=9").await;
        cluster.set_delay_turns(3);
        // They share a transaction behind the first. Its last operation changes nothing, and has the change of what is
        // used.
        let asked = [set_to("/q", ""), create("/q/1"), delete("/none")];
        let told = join_all(asked.map(|request| one.submit_for_all(request))).await;
        let last = told[2].as_ref().expect("it is answered").0;
        done(&two, sync()).await;
        assert!(two.last_zxid() >= last, "{:#x} {last:#x}", two.last_zxid());
    });
}
