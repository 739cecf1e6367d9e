//! Any client of the database can clear a tree's rows: then gateways say so, and acknowledge nothing.

use super::gateways::{Gateway, create, set_to};
use plinth_client::testing::MemoryCluster;
use plinth_client::{Database, StreamOptions};
use plinth_keeper::Options;
use plinth_keeper::client::Client;
use plinth_keeper::left;
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::{Answer, Request};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, fault, race, sleep, timeout};
use std::cell::Cell;
use std::rc::Rc;

const PATIENCE: Duration = Duration::from_secs(20);
const STREAM: &str = "keeper/default";

/// Why it has stopped.
async fn stops(gateway: &Gateway) -> String {
    let stopping = gateway.keeper.until_stopped();
    timeout(PATIENCE, stopping).await.expect("it stops")
}

async fn serves_nobody(gateway: &Gateway) {
    let connecting = gateway.client_with(None);
    let refused = timeout(PATIENCE, connecting).await.expect("it is refused");
    assert!(refused.is_err());
}

fn set(path: &str) -> Request {
    set_to(path, "more")
}

async fn made(client: &Client, path: &str) {
    client.submit(create(path)).await.expect("created");
}

/// What testers and applications do that take the database for theirs alone.
async fn clear(database: &Database, begin: &[u8], end: &[u8]) {
    let clearing = database.run(async |transaction| {
        transaction.clear_range(begin, end);
        Ok(())
    });
    clearing.await.expect("cleared");
}

async fn clear_everything(cluster: &MemoryCluster) {
    clear(&cluster.database(), b"", b"\xff").await;
}

fn rows_left(cluster: &MemoryCluster) -> usize {
    let rows = cluster.rows();
    let of_trees = rows.keys().filter(|key| key.starts_with(b"keeper/"));
    of_trees.count()
}

#[test]
fn a_write_behind_a_clear_of_everything_is_not_acknowledged() {
    block_on(async {
        for others in 0..2 {
            let cluster = MemoryCluster::new();
            let gateway = Gateway::start(&cluster).await;
            let client = gateway.client().await;
            made(&client, "/a").await;
            let mut beside = Vec::new();
            for _ in 0..others {
                beside.push(Gateway::start(&cluster).await);
                made(&beside[0].client().await, "/b").await;
            }
            clear_everything(&cluster).await;
            let written = timeout(PATIENCE, client.submit(set("/a"))).await;
            assert!(written.expect("it ends").is_err());
            let why = stops(&gateway).await;
            assert!(why.contains("tree `default' is gone"), "{why}");
            assert!(why.contains("plinth keeper status"), "{why}");
            serves_nobody(&gateway).await;
            assert_eq!(rows_left(&cluster), 0);
        }
    });
}

/// Clients of two gateways write all the time. Gives how many writes were acknowledged that began after a clear.
async fn acknowledged_after_a_clear(pause: Duration) -> usize {
    let cluster = MemoryCluster::new();
    cluster.set_delay_turns(3);
    let gateways = [
        Gateway::start(&cluster).await,
        Gateway::start(&cluster).await,
    ];
    let is_cleared = Rc::new(Cell::new(false));
    let writing = gateways.iter().enumerate().map(async |(number, gateway)| {
        let client = gateway.client().await;
        let path = format!("/{number}");
        made(&client, &path).await;
        let (mut before, mut after) = (0, 0);
        loop {
            let begins_after = is_cleared.get();
            match client.submit(set(&path)).await {
                Ok(_) if begins_after => after += 1,
                Ok(_) => before += 1,
                Err(_) => break,
            }
            if after > 1000 {
                break;
            }
        }
        assert!(before > 0, "it has not written before");
        after
    });
    let clearing = async {
        sleep(pause).await;
        clear_everything(&cluster).await;
        is_cleared.set(true);
        std::future::pending::<()>().await;
    };
    let writing = plinth_runtime::join_all(writing);
    let writing = timeout(PATIENCE, race(writing, clearing)).await;
    let Some(plinth_runtime::Either::Left(after)) = writing else {
        panic!("a write has no answer");
    };
    after.iter().sum()
}

#[test]
fn two_gateways_that_write_all_the_time_acknowledge_nothing_behind_a_clear() {
    block_on(async {
        for round in 0..10 {
            let pause = Duration::from_millis(100 + 37 * round);
            assert_eq!(acknowledged_after_a_clear(pause).await, 0, "round {round}");
        }
    });
}

#[test]
fn a_gateway_that_does_not_look_for_its_trees_record_is_found() {
    fault::makes_panic("keeper_tree_cleared_unseen", "acknowledged", || {
        block_on(async {
            let after = acknowledged_after_a_clear(Duration::from_millis(100)).await;
            assert_eq!(after, 0, "acknowledged behind a clear");
        });
    });
}

async fn data(gateway: &Gateway, path: &str) -> String {
    let request = Request::GetData {
        path: path.into(),
        watch: false,
    };
    loop {
        // It may be between two lives.
        let client = Client::connect(gateway.keeper.address(), 30_000, None).await;
        let Ok(client) = client else { continue };
        if let Ok((_, Answer::Data(Some(data), _))) = client.submit(request.clone()).await {
            return String::from_utf8_lossy(&data).into_owned();
        }
    }
}

/// Gives what each of two gateways shows of a node, some time after somebody else has changed its row.
async fn shown_after_a_foreign_write() -> Vec<String> {
    let cluster = MemoryCluster::new();
    let gateways = [
        Gateway::start(&cluster).await,
        Gateway::start(&cluster).await,
    ];
    let client = gateways[0].client().await;
    for path in ["/a", "/b"] {
        made(&client, path).await;
    }
    client.submit(set("/b")).await.expect("set");
    for gateway in &gateways {
        assert_eq!(data(gateway, "/a").await, "abc");
    }
    let rows = Rows::new("default");
    let row = cluster.rows()[&rows.node("/b")[..]].clone();
    let database = cluster.database();
    let writing = database.run(async |transaction| {
        transaction.set(rows.node("/a"), row.clone());
        Ok(())
    });
    writing.await.expect("set");
    sleep(Duration::from_millis(2500)).await;
    let mut shown = Vec::new();
    for gateway in &gateways {
        shown.push(data(gateway, "/a").await);
        assert_eq!(gateway.keeper.stopped(), None);
    }
    shown
}

#[test]
fn gateways_show_what_the_rows_say_when_somebody_else_has_changed_one() {
    block_on(async {
        assert_eq!(shown_after_a_foreign_write().await, ["more", "more"]);
    });
}

#[test]
fn a_gateway_that_does_not_ask_for_foreign_writes_is_found() {
    fault::makes_panic("keeper_foreign_write_unseen", "more", || {
        block_on(async {
            let shown = shown_after_a_foreign_write().await;
            assert!(shown == ["more", "more"], "{shown:?} and not more");
        });
    });
}

/// While a quota is counted, gateways do conflict by nodes' rows.
#[test]
fn gateways_take_nothing_of_their_own_for_a_foreign_write() {
    let mut knobs = Knobs::default();
    knobs.set("keeper_quota_piece_rows", "1").expect("a knob");
    knobs.set("keeper_beat_ms", "50").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateways = [
            Gateway::start(&cluster).await,
            Gateway::start(&cluster).await,
        ];
        let clients = [gateways[0].client().await, gateways[1].client().await];
        let quota = "/zookeeper/quota/app";
        let limits = format!("{quota}/zookeeper_limits");
        made(&clients[0], "/app").await;
        made(&clients[0], quota).await;
        for i in 0..200 {
            made(&clients[0], &format!("/app/old-{i}")).await;
        }
        let writing = async {
            for i in 0.. {
                made(&clients[0], &format!("/app/{i}")).await;
            }
        };
        let with_quotas = async {
            for _ in 0..12 {
                let mut limit = create(&limits);
                if let Request::Create { data, .. } = &mut limit {
                    *data = Some("count=100000,bytes=-1".into());
                }
                clients[1].submit(limit).await.expect("created");
                sleep(Duration::from_millis(230)).await;
                let path = limits.as_str().into();
                let delete = Request::Delete { path, version: -1 };
                clients[1].submit(delete).await.expect("deleted");
                sleep(Duration::from_millis(60)).await;
            }
        };
        race(with_quotas, writing).await;
    });
}

#[test]
fn idle_gateways_stop_by_themselves() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateways = [
            Gateway::start(&cluster).await,
            Gateway::start(&cluster).await,
        ];
        for gateway in &gateways {
            made(
                &gateway.client().await,
                &format!("/{}", gateway.keeper.address()),
            )
            .await;
        }
        clear_everything(&cluster).await;
        for gateway in &gateways {
            stops(gateway).await;
            serves_nobody(gateway).await;
            let said = gateway.keeper.command("srvr").await;
            let error = said["error"].as_str().expect("an error");
            assert!(error.contains("tree `default' is gone"), "{error}");
            let samples = gateway.keeper.samples();
            let serving = samples
                .iter()
                .find(|one| one.family.name == "plinth_keeper_serving");
            assert_eq!(serving.map(|one| one.value), Some(0.0));
        }
        assert_eq!(rows_left(&cluster), 0);
    });
}

#[test]
fn a_new_gateway_ends_with_a_line_while_anything_is_left_of_a_tree() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let rows = Rows::new("default");
        let first = Gateway::start(&cluster).await;
        made(&first.client().await, "/a").await;
        // All but some rows.
        clear(&cluster.database(), b"", &rows.node("/")).await;
        for _ in 0..2 {
            let Gateway { keeper, serving } = Gateway::start(&cluster).await;
            timeout(PATIENCE, serving).await.expect("it ends");
            let why = keeper.stopped().expect("it says why");
            assert!(why.contains("tree `default' is gone"), "{why}");
            // And then all rows: the stream is left.
            clear_everything(&cluster).await;
        }
        let dropping =
            async |transaction: plinth_client::Transaction| transaction.drop_stream(STREAM).await;
        cluster.database().run(dropping).await.expect("dropped");
        // Now nothing is left: whoever begins makes a tree, and who had another one does not join.
        let anew = Gateway::start(&cluster).await;
        made(&anew.client().await, "/new").await;
        stops(&first).await;
        serves_nobody(&first).await;
    });
}

#[test]
fn a_tree_without_its_root_its_stream_or_its_own_record_is_not_opened() {
    block_on(async {
        for (what, word) in [
            ("root", "root node"),
            ("stream", "stream of changes"),
            ("record", "another cluster"),
            ("copied", "another cluster"),
        ] {
            let cluster = MemoryCluster::new();
            let Gateway { keeper, serving } = Gateway::start(&cluster).await;
            made(&Gateway { keeper, serving }.client().await, "/a").await;
            let database = cluster.database();
            let rows = Rows::new("default");
            let changing = async |transaction: plinth_client::Transaction| {
                match what {
                    "root" => transaction.clear(rows.node("/")),
                    "stream" => transaction.drop_stream(STREAM).await?,
                    // Rows of a cluster with higher versions, and a stream that was made by hand.
                    "copied" => {
                        transaction.drop_stream(STREAM).await?;
                        let options = StreamOptions::append();
                        transaction.create_stream(STREAM, &options).await?;
                        let zxid = [&[0; 10][..], &(1i64 << 62).to_be_bytes()].concat();
                        transaction.set(rows.pzxid("/"), zxid);
                    }
                    _ => {
                        let record = transaction.get(rows.meta(), false).await?;
                        let record = record.expect("a record");
                        transaction.set(rows.meta(), [&[7], &record[1..]].concat());
                    }
                }
                Ok(())
            };
            database.run(changing).await.expect("changed");
            let Gateway { keeper, serving } = Gateway::start(&cluster).await;
            timeout(PATIENCE, serving).await.expect("it ends");
            let why = keeper.stopped().expect("it says why");
            assert!(why.contains(word), "{why}");
            if word == "another cluster" {
                let found = left::look(&database, "default").await.expect("read");
                assert_eq!(
                    found.state,
                    left::State::Gone(plinth_keeper::gone::Gone::Foreign)
                );
            }
        }
    });
}

#[test]
fn a_gateway_does_not_go_on_with_another_tree_in_the_place_of_its_own() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        made(&client, "/a").await;
        let other = MemoryCluster::new();
        let elsewhere = Gateway::start(&other).await;
        made(&elsewhere.client().await, "/a").await;
        // The record of another tree.
        let record = Rows::new("default").meta();
        let theirs = other.rows()[&record[..]].clone();
        let replacing = cluster.database();
        let replacing = replacing.run(async |transaction| {
            transaction.set(record.clone(), [&[7], &theirs[1..]].concat());
            Ok(())
        });
        replacing.await.expect("set");
        let written = timeout(PATIENCE, client.submit(set("/a"))).await;
        assert!(written.expect("it ends").is_err());
        let why = stops(&gateway).await;
        assert!(why.contains("another tree"), "{why}");
    });
}

#[test]
fn each_tree_of_which_something_is_there_is_listed_and_the_one_that_was_meant_is_named() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let trees = async || left::trees(&database).await.expect("read");
        assert!(trees().await.is_empty());
        let gateway = Gateway::start(&cluster).await;
        made(&gateway.client().await, "/a").await;
        let writing = database.run(async |transaction| {
            transaction.set(Rows::new("importing").meta(), "x");
            transaction.set("keeper/no tree", "x");
            Ok(())
        });
        writing.await.expect("written");
        assert_eq!(trees().await, ["default", "importing"]);
        let line = left::none_such(&database, "defaul").await;
        assert!(line.contains("did you mean `default'?"), "{line}");
        clear_everything(&cluster).await;
        assert_eq!(trees().await, ["default"], "its stream is left");
    });
}

#[test]
fn who_serves_a_tree_is_known_by_leases_that_change() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let serving = async || left::serving(&database, "default").await.expect("read");
        assert!(serving().await.is_empty(), "there is no tree");
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        made(&client, "/a").await;
        let address = gateway.keeper.address().to_string();
        assert_eq!(serving().await, [&address[..]]);
        // As one that was killed and started again leaves it.
        let range = Rows::new("default").all_gateways();
        let lease = [&[0; 8][..], address.as_bytes()].concat();
        let leaving = database.run(async |transaction| {
            let former = [&range.begin[..], &[0; 8]].concat();
            transaction.set(&former, &lease);
            Ok(())
        });
        leaving.await.expect("written");
        let look = left::look(&database, "default").await.expect("read");
        assert_eq!(look.gateways, [&address[..]], "it is listed once");
        let alive = left::alive(&database, "default").await.expect("read");
        let in_common = Options::default().in_common();
        assert_eq!(
            alive.into_iter().collect::<Vec<_>>(),
            [(address.clone(), in_common)]
        );
        assert_eq!(serving().await, [&address[..]]);
    });
}
