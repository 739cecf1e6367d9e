//! Lists of children: what they cost a gateway's memory and the database, and how long they may be.

use super::gateways::{
    Gateway, ask, create_with, delete, done, get, list, names, set_to, several, watching,
};
use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::Client;
use plinth_keeper::setup::first_node;
use plinth_keeper::tree::node::{Counts, Data, Node};
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::{Answer, Code, MultiResult, Request, create_flags};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, Either, join_all, now, race, sleep};
use std::convert::Infallible;

/// Longest data that lies in a node's row.
const IN_ROW: usize = 1024;

fn set_knob(name: &str, value: usize) -> Knobs {
    let mut knobs = Knobs::default();
    knobs.set(name, &value.to_string()).expect("a knob");
    knobs
}

/// A tree whose nodes `/0`, `/1` … have so many children each.
async fn planted(nodes: usize, children: usize) -> MemoryCluster {
    let cluster = MemoryCluster::new();
    let gateway = Gateway::start(&cluster).await;
    let client = gateway.client().await;
    let create = |path: String, len| create_with(&path, vec![7; len], create_flags::PERSISTENT);
    for node in 0..nodes {
        let children = (0..children).map(|child| create(format!("/{node}/{child}"), IN_ROW));
        let all = [create(format!("/{node}"), 0)].into_iter().chain(children);
        let all: Vec<Request> = all.collect();
        for operations in all.chunks(200).map(<[Request]>::to_vec) {
            done(&client, Request::Multi { operations }).await;
        }
    }
    cluster
}

fn cache_bytes(gateway: &Gateway) -> usize {
    let samples = gateway.keeper.samples();
    let mut found = samples
        .iter()
        .filter(|one| one.family.name == "plinth_cached_bytes");
    found.next().expect("a metric").value as usize
}

/// The most memory of the cache while the future runs, and what comes of it.
async fn most_cached<T>(gateway: &Gateway, future: impl Future<Output = T>) -> (usize, T) {
    let mut most = 0;
    let watching = async {
        loop {
            most = most.max(cache_bytes(gateway));
            plinth_runtime::yield_now().await;
        }
    };
    let Either::Left(found) = race(future, watching).await;
    (most, found)
}

/// So much for the cache, and for an answer.
fn limit_memory(bytes: usize) {
    let mut knobs = set_knob("keeper_cache_bytes_max", bytes);
    let most = bytes.to_string();
    knobs.set("keeper_answer_bytes_max", &most).expect("a knob");
    set_knobs(knobs);
}

#[test]
fn lists_of_many_large_nodes_in_one_request_keep_the_cache_within_its_limit() {
    const LIMIT: usize = 300_000;
    limit_memory(LIMIT);
    block_on(async {
        let cluster = planted(40, 60).await;
        cluster.set_delay_turns(3);
        let gateway = Gateway::start(&cluster).await;
        let clients = [gateway.client().await, gateway.client().await];
        let read = async |client: &Client| {
            let lists = (0..40).map(|node| list(&format!("/{node}")));
            done(client, several(lists.collect())).await
        };
        let reading = join_all(clients.iter().map(read));
        let (most, found) = most_cached(&gateway, reading).await;
        for found in found {
            let Answer::MultiRead(found) = found else {
                panic!("{found:?}");
            };
            let is_whole = |result: &MultiResult| match result {
                MultiResult::Children(names) => names.len() == 60,
                _ => false,
            };
            assert!(found.len() == 40 && found.iter().all(is_whole));
        }
        assert!(most > LIMIT / 2, "it is used: {most}");
        assert!(most <= LIMIT + 100_000, "{most} of {LIMIT} bytes");
    });
}

#[test]
fn lists_of_one_request_are_read_one_after_the_other() {
    const DELAY: Duration = Duration::from_millis(50);
    block_on(async {
        let cluster = planted(10, 2).await;
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        cluster.set_delay(DELAY);
        let began = now();
        let lists = (0..10).map(|node| list(&format!("/{node}")));
        done(&client, several(lists.collect())).await;
        // Each may be as large as an answer: no two of them are on their way at the same time.
        assert!(began.elapsed() >= 10 * DELAY, "{:?}", began.elapsed());
    });
}

#[test]
fn a_list_is_as_long_as_its_names_allow_however_much_data_the_children_have() {
    set_knobs(set_knob("keeper_list_bytes_max", 100_000));
    block_on(async {
        let cluster = planted(1, 1200).await;
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        assert_eq!(names(&client, "/0").await.len(), 1200);
    });
}

/// More rows with data than a gateway's memory for lists, by far.
#[test]
fn a_hundred_thousand_children_with_data_are_listed_within_the_memory_of_their_names() {
    const CHILDREN: usize = 100_000;
    set_knobs(set_knob("keeper_list_bytes_max", 8 << 20));
    block_on(async {
        let cluster = planted(1, 1).await;
        let (rows, database) = (Rows::new("default"), cluster.database());
        let child = |number: usize| format!("/0/child-{number:06}");
        let node = Node {
            data: Data::Here(vec![7; IN_ROW].into()),
            ..first_node("/0", 0)
        };
        let row = node.to_row().0;
        for numbers in (0..CHILDREN).collect::<Vec<_>>().chunks(2000) {
            let planting = database.run(async |transaction| {
                for number in numbers {
                    transaction.set(rows.node(&child(*number)), row.clone());
                }
                let counts = Counts {
                    created: CHILDREN as i32 + 1,
                    present: CHILDREN as i32 + 1,
                };
                transaction.set(rows.counts("/0"), counts.to_bytes());
                Ok(())
            });
            planting.await.expect("written");
        }
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        assert_eq!(names(&client, "/0").await.len(), CHILDREN + 1);
        assert!(cache_bytes(&gateway) < 64 << 20);
    });
}

#[test]
fn a_list_that_many_ask_for_at_the_same_time_is_read_once() {
    block_on(async {
        let cluster = planted(2, 1200).await;
        let gateway = Gateway::start(&cluster).await;
        let mut clients = Vec::new();
        for _ in 0..10 {
            clients.push(gateway.client().await);
        }
        cluster.set_delay(Duration::from_millis(300));
        let reads_of_all = async |clients: &[Client], path: &str| {
            let before = cluster.reads();
            let reading = join_all(clients.iter().map(|client| names(client, path)));
            for found in reading.await {
                assert_eq!(found.len(), 1200);
            }
            cluster.reads() - before
        };
        let one = reads_of_all(&clients[..1], "/0").await;
        let all = reads_of_all(&clients, "/1").await;
        assert!(all < 4 * one, "{all} reads for all, {one} for one");
    });
}

#[test]
fn lists_behind_a_write_do_not_share_more_of_a_batch_than_the_cache_has_room_for() {
    const LIMIT: usize = 30_000;
    limit_memory(LIMIT);
    block_on(async {
        let cluster = planted(60, 60).await;
        cluster.set_delay_turns(3);
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        let read = async {
            let written = client.submit(set_to("/0", ""));
            let lists = (0..60).map(|node| client.submit(list(&format!("/{node}"))));
            let lists: Vec<_> = lists.collect();
            written.await.expect("set");
            join_all(lists).await
        };
        let (most, found) = most_cached(&gateway, read).await;
        for found in found {
            let (_, Answer::Children(names)) = found.expect("a list") else {
                panic!("no list");
            };
            assert_eq!(names.len(), 60);
        }
        assert!(most <= 2 * LIMIT, "{most} of {LIMIT} bytes");
    });
}

/// Lets the store keep no version for longer than twenty answers take.
async fn age(cluster: &MemoryCluster) -> Infallible {
    let database = cluster.database();
    loop {
        let writing = database.run(async |transaction| {
            transaction.set("other", "row");
            Ok(())
        });
        writing.await.expect("written");
        cluster.forget(10);
    }
}

#[test]
fn a_list_that_no_version_lives_long_enough_for_is_read_in_parts_and_holds_up_no_write() {
    set_knobs(set_knob("keeper_list_page_bytes", 10 * IN_ROW));
    block_on(async {
        let cluster = planted(2, 600).await;
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        cluster.set_delay(Duration::from_millis(1));
        let asking = async {
            let alone = ask(&client, list("/0")).await;
            // In the pipeline, as it stands behind a write.
            let both = join_all([ask(&client, set_to("/1", "1")), ask(&client, list("/1"))]).await;
            (alone, both)
        };
        let Either::Left((alone, both)) = race(asking, age(&cluster)).await;
        assert!(matches!(alone, Ok(Answer::Children(names)) if names.len() == 600));
        assert!(both[0].is_ok(), "{both:?}");
        // The pipeline, and with it all writes, waits for no list that takes so long.
        assert_eq!(both[1], Err(Code::CONNECTION_LOSS));
    });
}

/// Has a client of another gateway change `/0` and its children all the time, while a client of a gateway that knows
/// nothing of them asks. What it says.
async fn ask_while_it_changes(change: impl AsyncFn(&Client, usize), asked: Request) -> Answer {
    let cluster = planted(1, 600).await;
    let gateways = [
        Gateway::start(&cluster).await,
        Gateway::start(&cluster).await,
    ];
    let clients = [gateways[0].client().await, gateways[1].client().await];
    cluster.set_delay(Duration::from_millis(1));
    let changing = async {
        for number in 0.. {
            change(&clients[0], number).await;
        }
    };
    let asking = async {
        sleep(Duration::from_millis(50)).await;
        done(&clients[1], asked).await
    };
    match race(asking, changing).await {
        Either::Left(answer) => answer,
        Either::Right(()) => unreachable!("it goes on for ever"),
    }
}

async fn change_the_list(client: &Client, number: usize) {
    let path = format!("/0/new{number}");
    done(client, create_with(&path, "", create_flags::PERSISTENT)).await;
    done(client, delete(&path)).await;
}

async fn change_the_data(client: &Client, number: usize) {
    done(client, set_to("/0", vec![number as u8; IN_ROW])).await;
}

#[test]
fn a_list_that_changes_faster_than_it_is_read_is_answered() {
    set_knobs(set_knob("keeper_list_page_bytes", 10 * IN_ROW));
    block_on(async {
        let found = ask_while_it_changes(change_the_list, list("/0")).await;
        let Answer::Children(names) = found else {
            panic!("{found:?}");
        };
        assert!((600..=601).contains(&names.len()), "{}", names.len());
    });
}

#[test]
fn lists_of_one_request_that_change_faster_than_they_are_read_are_answered() {
    set_knobs(set_knob("keeper_list_page_bytes", 10 * IN_ROW));
    block_on(async {
        let asked = several(vec![list("/0"), get("/0")]);
        let found = ask_while_it_changes(change_the_list, asked).await;
        let Answer::MultiRead(found) = found else {
            panic!("{found:?}");
        };
        assert!(matches!(&found[0], MultiResult::Children(names) if names.len() >= 600));
        assert!(matches!(&found[1], MultiResult::Data(..)));
    });
}

#[test]
fn data_that_changes_while_it_is_read_is_answered() {
    // As if it changed faster each time.
    set_knobs(set_knob("keeper_read_tries", 0));
    block_on(async {
        for asked in [get("/0"), several(vec![get("/0")])] {
            let is_one = matches!(asked, Request::GetData { .. });
            let found = ask_while_it_changes(change_the_data, asked).await;
            match found {
                Answer::Data(Some(data), _) => assert!(is_one && data.len() == IN_ROW),
                Answer::MultiRead(found) => {
                    assert!(matches!(&found[..], [MultiResult::Data(Some(_), _)]));
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn what_several_reads_take_is_counted_once_and_lists_only_where_they_are_asked_for() {
    const LIMIT: usize = 200_000;
    limit_memory(LIMIT);
    block_on(async {
        // The names of `/0` take half of the memory.
        let cluster = planted(2, 1800).await;
        cluster.set_delay_turns(3);
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        let data = [get("/0"), get("/0"), get("/0"), get("/1")];
        let lists = [list("/1"), list("/1"), list("/1"), get("/0/7")];
        for (known, asked) in [(list("/0"), data), (get("/0"), lists)] {
            done(&client, known).await;
            let found = done(&client, several(asked.to_vec())).await;
            let Answer::MultiRead(found) = found else {
                panic!("{found:?}");
            };
            let is_there = |result: &MultiResult| !matches!(result, MultiResult::Error(_));
            assert!(found.iter().all(is_there), "{found:?}");
        }
    });
}

#[test]
fn a_read_whose_answer_is_too_long_sets_no_watch() {
    limit_memory(100_000);
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        done(
            &client,
            create_with("/long", vec![7; 60_000], create_flags::PERSISTENT),
        )
        .await;
        for number in 0..300 {
            let path = format!("/long/{number:0400}");
            done(&client, create_with(&path, "", create_flags::PERSISTENT)).await;
        }
        set_knobs(set_knob("keeper_answer_bytes_max", 30_000));
        let reads = [
            watching(get("/long")),
            watching(list("/long")),
            several(vec![watching(get("/long")), watching(list("/long"))]),
        ];
        for read in reads {
            assert_eq!(ask(&client, read).await, Err(Code::CONNECTION_LOSS));
        }
        done(&client, delete(&format!("/long/{:0400}", 0))).await;
        done(&client, set_to("/long", "short")).await;
        let told = plinth_runtime::timeout(Duration::ZERO, client.next_event()).await;
        assert_eq!(told, None);
        // One that fits does.
        done(&client, watching(get("/long"))).await;
        done(&client, set_to("/long", "again")).await;
        assert!(client.next_event().await.is_some());
    });
}
