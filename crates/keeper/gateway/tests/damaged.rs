//! One damaged row costs the requests that need it, at every gateway, and nothing else.

use super::gateways::{
    Gateway, ask, create, create_with, delete, done, get, list, names, set_to, sync, watching,
};
use plinth_client::testing::MemoryCluster;
use plinth_core::key::KeyRange;
use plinth_keeper::Options;
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, create_flags, event};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, sleep, timeout, trace};
use std::sync::{Mutex, Once};

/// Data of this size has rows of its own.
const LONG: usize = 5000;
const BAD: Result<Answer, Code> = Err(Code::DATA_INCONSISTENCY);

/// A tree in memory.
struct Tree {
    cluster: MemoryCluster,
    rows: Rows,
}

impl Tree {
    fn new() -> Tree {
        Tree {
            cluster: MemoryCluster::new(),
            rows: Rows::new("default"),
        }
    }

    /// A gateway of the tree, and a client of it.
    async fn serve(&self) -> (Gateway, Client) {
        let options = Options {
            enforce_quota: true,
            ..Options::default()
        };
        let gateway = Gateway::start_with(&self.cluster, options).await;
        let client = gateway.client().await;
        (gateway, client)
    }

    fn damage(&self, key: Vec<u8>) {
        self.cluster.spoil(&key, Some(b"?"));
    }

    fn has_any(&self, range: &KeyRange) -> bool {
        let rows = self.cluster.rows();
        rows.keys().any(|key| range.contains(key))
    }
}

fn create_long(path: &str, flags: i32) -> Request {
    create_with(path, vec![7; LONG], flags)
}

fn create_ephemeral(path: &str) -> Request {
    create_long(path, create_flags::EPHEMERAL)
}

fn set(path: &str) -> Request {
    set_to(path, vec![8; 3])
}

fn exists(path: &str) -> Request {
    Request::Exists {
        path: path.into(),
        watch: true,
    }
}

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on the trace is kept, that of other tests too.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| trace::set_sink(|line| TOLD.lock().expect("whole").push(line.to_string())));
}

/// How many lines of the trace are of this kind and have this text.
fn told(kind: &str, text: &str) -> usize {
    let lines = TOLD.lock().expect("whole");
    let kind = format!("\"type\":\"{kind}\"");
    let is_it = |line: &&String| line.contains(&kind) && line.contains(text);
    lines.iter().filter(is_it).count()
}

/// Everything that needs the node fails, and says so. Everything else goes on.
async fn only_the_damaged_node_fails(client: &Client, bad: &str) {
    let child = format!("{bad}/child");
    let (multi, watches) = (
        Request::Multi {
            operations: vec![set("/good"), set(bad)],
        },
        Request::SetWatches {
            relative_zxid: 0,
            data: vec![bad.into()],
            exist: Vec::new(),
            child: Vec::new(),
            persistent: Vec::new(),
            recursive: Vec::new(),
            breaks_off: false,
        },
    );
    let get_acl = Request::GetAcl { path: bad.into() };
    for request in [get(bad), exists(bad), watching(list(bad)), get_acl] {
        assert_eq!(ask(client, request).await, BAD);
    }
    for request in [set(bad), delete(bad), create(bad), create(&child)] {
        assert_eq!(ask(client, request).await, BAD);
    }
    let answer = done(client, multi).await;
    assert!(
        format!("{answer:?}").contains("DataInconsistency"),
        "{answer:?}"
    );
    done(client, watches).await;
    // Reads behind a write of the same client, and more writes.
    let written = client.submit(set("/good"));
    let reads = [client.submit(get(bad)), client.submit(list(bad))];
    let again = client.submit(set("/good"));
    assert!(written.await.is_ok());
    for read in reads {
        let failed = read.await.map(|(_, answer)| answer);
        assert_eq!(failed, Err(Failure::Refused(Code::DATA_INCONSISTENCY)));
    }
    assert!(again.await.is_ok());
    assert_eq!(names(client, "/").await.len(), 3);
    let number = Request::GetAllChildrenNumber { path: "/".into() };
    assert!(matches!(done(client, number).await, Answer::Number(n) if n >= 2));
    done(client, get("/good")).await;
}

/// Flags of a node's row: everybody may do everything, and the data is elsewhere.
const OPEN: u8 = 16;
const LEFT_OUT: u8 = 8;

/// A node's row.
fn row(flags: u8, zxid: i64, data: &[u8]) -> Vec<u8> {
    let mut row = vec![0; 10];
    row.push(flags);
    row.extend([zxid.to_be_bytes(); 2].concat());
    row.extend([0; 8 + 8 + 4 + 4 + 8]);
    row.extend(data);
    row
}

#[test]
fn a_damaged_node_fails_what_needs_it_and_every_gateway_goes_on() {
    listen();
    type Key = fn(&Rows, &str) -> Vec<u8>;
    let rows: [(&str, Key, Vec<u8>); 6] = [
        ("/damaged-row", Rows::node, vec![7]),
        ("/damaged-counts", Rows::counts, vec![7]),
        ("/damaged-pzxid", Rows::pzxid, vec![7]),
        ("/negative-zxid", Rows::node, row(OPEN, -1, b"")),
        ("/negative-pzxid", Rows::pzxid, vec![0xff; 18]),
        (
            "/left-out",
            Rows::node,
            row(OPEN | LEFT_OUT, 1, &[0, 0, 0, 5]),
        ),
    ];
    for (bad, key, row) in rows {
        block_on(async {
            let tree = Tree::new();
            let (first, client) = tree.serve().await;
            done(&client, create(bad)).await;
            done(&client, create("/good")).await;
            tree.cluster.spoil(&key(&tree.rows, bad), Some(&row));
            drop((first, client));
            let [(_one, a), (_other, b)] = [tree.serve().await, tree.serve().await];
            for client in [&a, &b, &a] {
                only_the_damaged_node_fails(client, bad).await;
            }
            // Once at each gateway.
            assert_eq!(told("KeeperNodeDamaged", bad), 2);
            assert_eq!(
                told("KeeperStoreError", bad) + told("KeeperReadFailed", bad),
                0
            );
        });
    }
}

#[test]
fn damaged_children_are_listed_before_anybody_asks_for_them() {
    block_on(async {
        let tree = Tree::new();
        let (first, client) = tree.serve().await;
        for path in ["/p", "/p/a", "/p/b", "/p/c"] {
            done(&client, create(path)).await;
        }
        tree.damage(tree.rows.node("/p/b"));
        // These are of no node.
        tree.damage(tree.rows.counts("/p/"));
        tree.damage(tree.rows.counts("/p/d"));
        tree.damage([&tree.rows.node("/p/e")[..], b"\xff"].concat());
        drop((first, client));
        let (_gateway, client) = tree.serve().await;
        assert_eq!(names(&client, "/p").await, ["a", "b", "c"]);
        assert_eq!(ask(&client, get("/p/b")).await, BAD);
        done(&client, get("/p/c")).await;
    });
}

#[test]
fn long_data_that_is_damaged_is_not_read_and_may_be_set() {
    listen();
    block_on(async {
        let tree = Tree::new();
        let (first, client) = tree.serve().await;
        done(&client, create_long("/long-gone", create_flags::PERSISTENT)).await;
        tree.cluster
            .spoil(&tree.rows.data_piece("/long-gone", 0), None);
        drop((first, client));
        let [(_one, a), (_other, b)] = [tree.serve().await, tree.serve().await];
        for client in [&a, &b] {
            let written = client.submit(create("/own"));
            let read = client.submit(get("/long-gone"));
            let _ = written.await;
            let failed = read.await.map(|(_, answer)| answer);
            assert_eq!(failed, Err(Failure::Refused(Code::DATA_INCONSISTENCY)));
            assert_eq!(ask(client, get("/long-gone")).await, BAD);
            done(client, exists("/long-gone")).await;
        }
        assert_eq!(told("KeeperDataDamaged", "/long-gone"), 2);
        done(&a, set("/long-gone")).await;
        done(&b, sync()).await;
        for client in [&a, &b] {
            let Answer::Data(data, _) = done(client, get("/long-gone")).await else {
                panic!("no data");
            };
            assert_eq!(data.as_deref(), Some(&[8; 3][..]));
        }
    });
}

#[test]
fn a_session_ends_with_its_nodes_whatever_is_damaged_of_them() {
    listen();
    let mut knobs = Knobs::default();
    knobs.set("keeper_end_nodes_max", "1").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let tree = Tree::new();
        let (first, client) = tree.serve().await;
        for path in ["/p", "/q", "/r", "/s"] {
            done(&client, create(path)).await;
        }
        let nodes = [
            "/p/damaged",
            "/p/whole",
            "/q/below-damage",
            "/r/below-nothing",
            "/s/below-damaged-counts",
        ];
        for path in nodes {
            done(&client, create_ephemeral(path)).await;
        }
        let session = client.session();
        let id = client.session_id();
        tree.damage(tree.rows.node("/p/damaged"));
        tree.damage(tree.rows.node("/q"));
        tree.cluster.spoil(&tree.rows.node("/r"), None);
        tree.damage(tree.rows.counts("/s"));
        drop((first, client));
        let (gateway, other) = tree.serve().await;
        let taken = gateway.client_with(Some(session)).await.expect("it lives");
        let closed = timeout(Duration::from_secs(5), taken.close()).await;
        assert_eq!(closed, Some(Ok(())));
        for path in nodes {
            assert!(!tree.has_any(&tree.rows.around_node(path)), "{path}");
            assert!(!tree.has_any(&tree.rows.data(path)), "{path}");
        }
        assert!(!tree.has_any(&tree.rows.ephemerals(id)));
        assert_eq!(told("KeeperNodeWithoutParent", "/r/below-nothing"), 1);
        // Damage stays damage: a sum would be whole, and wrong.
        let counts = tree.cluster.row(&tree.rows.counts("/s"));
        assert_eq!(counts.as_deref(), Some(&b"?"[..]));
        assert_eq!(names(&other, "/p").await.len(), 0);
        done(&other, create("/p/damaged")).await;
        done(&other, get("/p/damaged")).await;
    });
}

#[test]
fn a_session_ends_where_its_index_leads_to_no_node_and_takes_the_index_along() {
    listen();
    let mut knobs = Knobs::default();
    knobs.set("keeper_end_nodes_max", "1").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let tree = Tree::new();
        let (first, client) = tree.serve().await;
        done(&client, create("/p")).await;
        for path in ["/p/gone", "/p/there"] {
            done(&client, create_ephemeral(path)).await;
        }
        let (session, id) = (client.session(), client.session_id());
        tree.cluster.spoil(&tree.rows.node("/p/gone"), None);
        // What is no path, a path of no node, and one of a node that lives on.
        let no_path = [&tree.rows.ephemeral(id, "")[..], b"/\xfe"].concat();
        let others = ["", "nowhere", "/nowhere", "/p"].map(|path| tree.rows.ephemeral(id, path));
        for key in others.iter().chain([&no_path]) {
            tree.cluster.spoil(key, Some(b""));
        }
        drop((first, client));
        let (gateway, other) = tree.serve().await;
        let taken = gateway.client_with(Some(session)).await.expect("it lives");
        let closed = timeout(Duration::from_secs(5), taken.close()).await;
        assert_eq!(closed, Some(Ok(())));
        assert!(!tree.has_any(&tree.rows.ephemerals(id)));
        assert!(!tree.has_any(&tree.rows.around_node("/p/there")));
        done(&other, get("/p")).await;
    });
}

#[test]
fn who_watches_a_damaged_node_hears_that_it_goes() {
    for damaged in [&["/p/own"][..], &["/p/own", "/p"]] {
        block_on(async {
            let tree = Tree::new();
            let (first, client) = tree.serve().await;
            done(&client, create("/p")).await;
            done(&client, create_ephemeral("/p/own")).await;
            let session = client.session();
            drop((first, client));
            for path in damaged {
                tree.damage(tree.rows.node(path));
            }
            let [(gateway, near), (_other, far)] = [tree.serve().await, tree.serve().await];
            let watches = Request::SetWatches {
                relative_zxid: i64::MAX,
                data: vec!["/p/own".into()],
                exist: Vec::new(),
                child: vec!["/p".into()],
                persistent: Vec::new(),
                recursive: Vec::new(),
                breaks_off: false,
            };
            for client in [&near, &far] {
                done(client, watches.clone()).await;
            }
            let taken = gateway.client_with(Some(session)).await.expect("it lives");
            assert_eq!(taken.close().await, Ok(()));
            for client in [&near, &far] {
                for (kind, path) in [(event::DELETED, "/p/own"), (event::CHILDREN_CHANGED, "/p")] {
                    let told = timeout(Duration::from_secs(5), client.next_event()).await;
                    let told = told.flatten().expect("it hears of it");
                    assert_eq!((told.kind, &*told.path), (kind, path));
                }
            }
        });
    }
}

#[test]
fn a_session_whose_row_is_damaged_is_over_and_takes_its_nodes_along() {
    listen();
    let mut knobs = Knobs::default();
    knobs.set("keeper_beat_ms", "100").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let tree = Tree::new();
        let (gateway, client) = tree.serve().await;
        let short = Client::connect(gateway.keeper.address(), 4000, None).await;
        let short = short.expect("it serves");
        done(&short, create_ephemeral("/own")).await;
        tree.damage(tree.rows.session(short.session_id()));
        // It has its session here.
        done(&short, create_ephemeral("/another")).await;
        let (other, client_of_other) = tree.serve().await;
        let taken = other.client_with(Some(short.session())).await;
        assert!(matches!(
            taken,
            Err(Failure::Refused(Code::SESSION_EXPIRED))
        ));
        drop(short);
        for _ in 0..6 {
            sleep(Duration::from_secs(1)).await;
            done(&client, sync()).await; // these two are not silent
            done(&client_of_other, sync()).await;
        }
        for client in [&client, &client_of_other] {
            assert_eq!(names(client, "/").await, ["zookeeper"]);
        }
    });
}

#[test]
fn a_damaged_quota_does_not_keep_a_gateway_from_beginning() {
    listen();
    block_on(async {
        let tree = Tree::new();
        let (first, client) = tree.serve().await;
        for path in ["/q1", "/q2", "/zookeeper/quota/q1", "/zookeeper/quota/q2"] {
            done(&client, create(path)).await;
        }
        for path in ["/q1", "/q2"] {
            let limits = Request::Create {
                kind: CreateKind::Plain,
                path: format!("/zookeeper/quota{path}/zookeeper_limits")
                    .as_str()
                    .into(),
                data: Some("countHardLimit=2".into()),
                acl: Acl::open(),
                flags: 0,
                ttl: -1,
            };
            done(&client, limits).await;
            done(&client, create(&format!("{path}/a"))).await;
        }
        tree.damage(tree.rows.quota("/q1"));
        tree.damage(tree.rows.quota_used("/q2", b'n'));
        // Nodes that cannot be read are counted all the same.
        tree.damage(tree.rows.node("/q1/a"));
        drop((first, client));
        let (_gateway, client) = tree.serve().await;
        assert_eq!(told("KeeperQuotaDamaged", "/q1"), 1);
        assert_eq!(told("KeeperQuotaDamaged", "/q2"), 1);
        // They are counted anew.
        let mut refused = false;
        for i in 0..60 {
            sleep(Duration::from_millis(250)).await;
            refused = true;
            for path in ["/q1", "/q2"] {
                let path = format!("{path}/{i}");
                match ask(&client, create(&path)).await {
                    Err(Code::QUOTA_EXCEEDED) => {}
                    Ok(_) => {
                        done(&client, delete(&path)).await;
                        refused = false;
                    }
                    other => panic!("{other:?}"),
                }
            }
            if refused {
                break;
            }
        }
        assert!(refused, "limits are limits again");
    });
}

#[test]
fn a_damaged_container_does_not_keep_the_others_from_going() {
    let mut knobs = Knobs::default();
    knobs.set("keeper_reap_ms", "100").expect("a knob");
    knobs.set("keeper_beat_ms", "100").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let tree = Tree::new();
        let (first, client) = tree.serve().await;
        for path in ["/a", "/b", "/c"] {
            let container = Request::Create {
                kind: CreateKind::Container,
                path: path.into(),
                data: None,
                acl: Acl::open(),
                flags: create_flags::CONTAINER,
                ttl: -1,
            };
            done(&client, container).await;
            done(&client, create(&format!("{path}/child"))).await;
        }
        tree.damage(tree.rows.node("/a"));
        drop((first, client));
        let (_gateway, client) = tree.serve().await;
        for path in ["/b", "/c"] {
            done(&client, delete(&format!("{path}/child"))).await;
        }
        let gone = async {
            while names(&client, "/").await != ["a", "zookeeper"] {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let gone = timeout(Duration::from_secs(10), gone).await;
        assert!(gone.is_some(), "{:?}", names(&client, "/").await);
    });
}

#[test]
fn gateways_begin_anew_behind_an_entry_of_the_stream_that_is_damaged() {
    listen();
    block_on(async {
        let tree = Tree::new();
        let [(one, a), (other, b)] = [tree.serve().await, tree.serve().await];
        done(&a, create("/n")).await;
        done(&b, sync()).await;
        done(&b, get("/n")).await;
        let database = tree.cluster.database();
        let appended = database.run(async |transaction| {
            let stream = transaction.open_stream("keeper/default").await?;
            stream.append(&transaction, b"no entry of a gateway").await
        });
        appended.await.expect("appended");
        let again = async {
            // Both are disconnected, and keep their sessions.
            while a.failure().is_none() || b.failure().is_none() {
                sleep(Duration::from_millis(20)).await;
            }
            let mut clients = Vec::new();
            for (gateway, client) in [(&one, &a), (&other, &b)] {
                clients.push(loop {
                    match gateway.client_with(Some(client.session())).await {
                        Ok(again) => break again,
                        Err(Failure::Refused(code)) => panic!("{code}"),
                        Err(_) => sleep(Duration::from_millis(50)).await,
                    }
                });
            }
            clients
        };
        let clients = timeout(Duration::from_secs(10), again).await;
        let clients = clients.expect("the gateways are there again");
        assert_eq!(told("KeeperEntryDamaged", "keeper/default"), 2);
        for i in 0..10 {
            let (writer, reader) = (&clients[i % 2], &clients[(i + 1) % 2]);
            done(writer, set("/n")).await;
            done(reader, sync()).await;
            let Answer::Data(_, stat) = done(reader, get("/n")).await else {
                panic!("no data");
            };
            assert_eq!(stat.version, i as i32 + 1);
        }
    });
}
