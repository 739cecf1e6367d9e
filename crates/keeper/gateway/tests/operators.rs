//! What operators choose and see of a gateway of a database in memory.

use plinth_client::testing::MemoryCluster;
use plinth_core::output::Output;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Acl, Code, CreateKind, Request, create_flags};
use plinth_keeper::{Keeper, Options, Words};
use plinth_runtime::real::block_on;
use plinth_runtime::serve::Inbox;
use plinth_runtime::{Duration, Task, disk, net, sleep, spawn, timeout};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

const PATIENCE: Duration = Duration::from_secs(30);

/// What an operator chooses who asks for all words.
fn all_words() -> Options {
    Options {
        words: Words::all(),
        ..Options::default()
    }
}

async fn start(options: Options) -> (Rc<Keeper>, Task<()>) {
    let address: SocketAddr = ([127, 0, 0, 1], 0).into();
    let database = MemoryCluster::new().database();
    let keeper = Keeper::listen(database, address, options).await;
    let keeper = Rc::new(keeper.expect("a free port"));
    let serving = keeper.clone();
    (
        keeper,
        spawn("gateway", async move { serving.serve().await }),
    )
}

/// The answer to a four-letter word.
pub async fn word(address: SocketAddr, word: &str) -> String {
    let (reader, mut writer) = net::connect(address).await.expect("it listens");
    let mut out = Output::copying();
    out.buffer().extend_from_slice(word.as_bytes());
    writer.write_all(out.into_bytes()).await.expect("sent");
    let mut inbox = Inbox::new(reader);
    while inbox.read().await.is_some() {}
    String::from_utf8_lossy(&inbox.buffer).into_owned()
}

fn create(path: &str, data: &str, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some(data.to_string().into()),
        acl: Acl::open(),
        flags,
        ttl: -1,
    }
}

async fn made(client: &Client, path: &str, data: &str, flags: i32) {
    client
        .submit(create(path, data, flags))
        .await
        .expect("created");
}

#[test]
fn time_outs_are_between_the_shortest_and_the_longest_that_were_chosen() {
    block_on(async {
        let options = Options {
            min_session_timeout_ms: Some(6000),
            max_session_timeout_ms: Some(8000),
            ..all_words()
        };
        let (keeper, _serving) = start(options).await;
        for (asked, given) in [(1000, 6000), (7000, 7000), (60_000, 8000)] {
            let client = Client::connect(keeper.address(), asked.max(5000), None).await;
            let client = client.expect("it serves");
            let expected = if asked < 5000 { 6000 } else { given };
            assert_eq!(client.timeout_ms(), expected);
        }
        let said = word(keeper.address(), "conf").await;
        for line in [
            "minSessionTimeout=6000",
            "maxSessionTimeout=8000",
            "maxClientCnxns=60",
        ] {
            assert!(said.contains(line), "{said}");
        }
    });
}

#[test]
fn strangers_are_answered_the_words_that_were_chosen() {
    block_on(async {
        let (keeper, _serving) = start(Options::default()).await;
        let client = Client::connect(keeper.address(), 10_000, None).await;
        let _client = client.expect("it serves");
        let said = word(keeper.address(), "srvr").await;
        assert!(said.starts_with("Zookeeper version: "), "{said}");
        assert_eq!(word(keeper.address(), "isro").await, "rw");
        for other in ["ruok", "stat", "mntr", "crst", "hash", "rcvr", "csnp"] {
            let said = word(keeper.address(), other).await;
            let expected = format!("{other} is not executed because it is not in the whitelist.\n");
            assert_eq!(said, expected);
        }
        let chosen = Options {
            words: "ruok,apiv".parse().expect("words"),
            ..Options::default()
        };
        let (keeper, _serving) = start(chosen).await;
        let client = Client::connect(keeper.address(), 10_000, None).await;
        let _client = client.expect("it serves");
        for (asked, said) in [("ruok", "imok"), ("apiv", "3"), ("isro", "rw")] {
            assert_eq!(word(keeper.address(), asked).await, said);
        }
        let said = word(keeper.address(), "mntr").await;
        assert!(said.contains("not in the whitelist"), "{said}");
        // The pages are for operators, and say all.
        assert_eq!(
            keeper.command("mntr").await["error"],
            serde_json::Value::Null
        );
    });
}

#[test]
fn an_address_has_at_most_sixty_connections_unless_an_operator_says_otherwise() {
    block_on(async {
        let (keeper, _serving) = start(Options::default()).await;
        let mut clients = Vec::new();
        for _ in 0..60 {
            let client = Client::connect(keeper.address(), 10_000, None).await;
            clients.push(client.expect("there is room"));
        }
        let refused = Client::connect(keeper.address(), 10_000, None).await;
        assert!(refused.is_err(), "one more");
        let any_number = Options {
            max_connections_per_address: 0,
            ..Options::default()
        };
        let (keeper, _serving) = start(any_number).await;
        for _ in 0..70 {
            let client = Client::connect(keeper.address(), 10_000, None).await;
            clients.push(client.expect("there is room"));
        }
    });
}

#[test]
fn a_session_may_be_shorter_than_four_seconds_if_that_is_asked_for() {
    block_on(async {
        let options = Options {
            min_session_timeout_ms: Some(500),
            ..Options::default()
        };
        let (keeper, _serving) = start(options).await;
        for (asked, given) in [(100, 500), (1500, 1500), (60_000, 40_000)] {
            let client = Client::connect(keeper.address(), asked, None).await;
            assert_eq!(client.expect("it serves").timeout_ms(), given);
        }
    });
}

/// The lines of a log of operations, without their times.
async fn operations(keeper: &Keeper, file: &Path) -> Vec<String> {
    keeper.log_stop().await;
    let text = disk::read_file(file).await.expect("it is there");
    let text = String::from_utf8(text.to_vec()).expect("text");
    let fields = text.lines().map(|line| {
        let (at, fields) = line
            .split_once(" INFO audit.Slf4jAuditLogger: ")
            .expect("a line");
        assert_eq!(at.len(), "2026-11-28 13:15:10,123".len(), "{line}");
        fields.replace('\t', " ")
    });
    fields.collect()
}

/// A client that has changed something by each kind of request.
async fn change_all(keeper: &Keeper) -> Client {
    let client = Client::connect(keeper.address(), 10_000, None).await;
    let client = client.expect("it serves");
    let auth = Request::Auth {
        kind: 0,
        scheme: "digest".into(),
        auth: Some("bob\n:secret".into()),
    };
    client.submit(auth).await.expect("a user");
    made(&client, "/a", "", create_flags::PERSISTENT).await;
    made(&client, "/a/n-", "", create_flags::PERSISTENT_SEQUENTIAL).await;
    made(&client, "/e", "", create_flags::EPHEMERAL).await;
    let set = |path: &str| Request::SetData {
        path: path.into(),
        data: Some("secret data".into()),
        version: -1,
    };
    let delete = |path: &str| Request::Delete {
        path: path.into(),
        version: -1,
    };
    client.submit(set("/a")).await.expect("set");
    assert!(client.submit(set("/a\n/b")).await.is_err());
    let set_acl = Request::SetAcl {
        path: "/a".into(),
        acl: Acl::open(),
        version: -1,
    };
    client.submit(set_acl).await.expect("set");
    let multi = |operations| client.submit(Request::Multi { operations });
    let check = Request::Check {
        path: "/a".into(),
        version: -1,
    };
    let several = vec![create("/b", "", 0), check, delete("/b")];
    multi(several).await.expect("an answer");
    multi(vec![delete("/b"), set("/a")])
        .await
        .expect("an answer");
    let read = Request::GetData {
        path: "/a".into(),
        watch: false,
    };
    client.submit(read).await.expect("read");
    client
}

#[test]
fn the_log_of_operations_says_who_has_changed_what() {
    let file = std::env::temp_dir().join(format!("plinth-operations-{}.log", std::process::id()));
    block_on(async {
        let options = Options {
            operations_log: Some(file.clone()),
            ..Options::default()
        };
        let (keeper, _serving) = start(options).await;
        let client = change_all(&keeper).await;
        let session = client.session_id();
        client.close().await.expect("closed");
        let who = format!("session={session:#x} user=127.0.0.1,bob\\u000a ip=127.0.0.1");
        let other = format!("session={session:#x} user=bob\\u000a,127.0.0.1 ip=127.0.0.1");
        let found = operations(&keeper, &file).await;
        let found: Vec<String> = found
            .iter()
            .map(|line| line.replace(&other, &who))
            .collect();
        let by_client = [
            "create znode=/a znode_type=persistent result=success",
            "create znode=/a/n-0000000000 znode_type=persistent_sequential result=success",
            "create znode=/e znode_type=ephemeral result=success",
            "setData znode=/a result=success",
            "setData znode=/a\\u000a/b result=failure",
            "setAcl znode=/a acl=world:anyone:cdrwa result=success",
            "create znode=/b znode_type=persistent result=success",
            "delete znode=/b result=success",
            "multiOperation result=failure",
        ];
        let mut expected = vec!["user=plinth operation=serverStart result=success".to_string()];
        expected.extend(
            by_client
                .iter()
                .map(|line| format!("{who} operation={line}")),
        );
        expected.push(format!(
            "session={session:#x} user=plinth operation=ephemeralZNodeDeletionOnSessionCloseOrExpire znode=/e \
             result=success"
        ));
        expected.push("user=plinth operation=serverStop result=invoked".into());
        assert_eq!(found, expected);
        let text = found.join("\n");
        assert!(!text.contains("secret"), "{text}");
        disk::remove(&file).await.expect("removed");
    });
}

#[test]
fn a_dump_has_the_ephemeral_nodes_of_each_session() {
    block_on(async {
        let (keeper, _serving) = start(all_words()).await;
        let one = Client::connect(keeper.address(), 10_000, None)
            .await
            .expect("it serves");
        let two = Client::connect(keeper.address(), 10_000, None)
            .await
            .expect("it serves");
        made(&one, "/plain", "", create_flags::PERSISTENT).await;
        made(&one, "/b", "", create_flags::EPHEMERAL).await;
        made(&one, "/a", "", create_flags::EPHEMERAL).await;
        let said = word(keeper.address(), "dump").await;
        let (_, ephemerals) = said.split_once("ephemeral nodes dump:\n").expect("a part");
        let session = one.session_id();
        let expected = format!("Sessions with Ephemerals (1):\n{session:#x}:\n\t/a\n\t/b\n");
        assert_eq!(ephemerals, expected);
        assert!(
            said.contains(&format!("\t{:#x}\t10000ms\n", two.session_id())),
            "{said}"
        );
        let said = keeper.command("dump").await;
        let paths = &said["session_id_to_ephemeral_paths"][session.to_string()];
        assert_eq!(*paths, serde_json::json!(["/a", "/b"]));
    });
}

#[test]
fn numbers_of_open_files_and_quotas_stand_under_zookeepers_names() {
    block_on(async {
        let options = Options {
            enforce_quota: true,
            ..all_words()
        };
        let (keeper, _serving) = start(options).await;
        let client = Client::connect(keeper.address(), 10_000, None)
            .await
            .expect("it serves");
        for path in ["/app", "/zookeeper/quota/app"] {
            made(&client, path, "12345", create_flags::PERSISTENT).await;
        }
        let limits = "/zookeeper/quota/app/zookeeper_limits";
        made(
            &client,
            limits,
            "count=9,bytes=7=;countHardLimit=1",
            create_flags::PERSISTENT,
        )
        .await;
        let refused = client.submit(create("/app/x", "", 0)).await;
        assert_eq!(
            refused.err().map(|e| e.to_string()),
            Some(format!("the server refuses: {}", Code::QUOTA_EXCEEDED))
        );
        let said = word(keeper.address(), "mntr").await;
        for line in [
            "zk_app_quota_count_limit_per_namespace\t1",
            "zk_app_quota_bytes_limit_per_namespace\t7",
            "zk_app_quota_count_usage_per_namespace\t1",
            "zk_app_quota_bytes_usage_per_namespace\t5",
            "zk_app_quota_exceeded_error_per_namespace\t1",
            "zk_connection_rejected\t0",
        ] {
            assert!(
                said.lines().any(|said| said == line),
                "{line} is not in\n{said}"
            );
        }
        let number = |name: &str| {
            let mut words = said.split_whitespace().skip_while(|word| *word != name);
            words
                .nth(1)
                .and_then(|number| number.parse::<u64>().ok())
                .expect("a number")
        };
        let (open, most) = (
            number("zk_open_file_descriptor_count"),
            number("zk_max_file_descriptor_count"),
        );
        assert!(3 < open && open < most, "{open} of {most}");
    });
}

#[test]
fn a_silent_client_is_disconnected_when_its_session_has_ended() {
    block_on(async {
        let (keeper, _serving) = start(all_words()).await;
        let (reader, mut writer) = net::connect(keeper.address()).await.expect("it listens");
        let greeting = plinth_keeper::wire::ConnectRequest {
            protocol_version: 0,
            is_packed: false,
            last_zxid_seen: 0,
            timeout_ms: 4000,
            session_id: 0,
            password: vec![0; 16].into(),
            read_only: Some(false),
        };
        let mut out = Output::copying();
        plinth_keeper::wire::encode_connect_request(&mut out, &greeting);
        writer.write_all(out.into_bytes()).await.expect("sent");
        let mut inbox = Inbox::new(reader);
        let until_closed = async { while inbox.read().await.is_some() {} };
        timeout(PATIENCE, until_closed).await.expect("it is closed");
        sleep(Duration::from_millis(100)).await;
        let said = word(keeper.address(), "dump").await;
        assert!(said.contains("Session Sets (0)"), "{said}");
    });
}
