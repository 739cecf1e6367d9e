//! Whoever reads at another gateway sees all that a transaction has changed, or nothing of it.

use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Acl, Answer, CreateKind, MultiResult, Request, create_flags};
use plinth_keeper::{Keeper, Options};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, Either, Task, fault, race, sleep, spawn};
use std::rc::Rc;

/// Changes of so many nodes take several entries of the stream, more than one read of it has.
const NODES: usize = 8000;
const ROUNDS: usize = 3;

/// Two gateways of one tree, and a client of each.
struct Two {
    clients: [Client; 2],
    _serving: [Task<()>; 2],
}

impl Two {
    /// The database lets others run so often before it answers.
    async fn start(turns: u32) -> Two {
        let cluster = MemoryCluster::new();
        cluster.set_delay_turns(turns);
        let start = async || {
            let address: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
            let keeper = Keeper::listen(cluster.database(), address, Options::default()).await;
            let keeper = Rc::new(keeper.expect("a free port"));
            let serving = keeper.clone();
            let serving = spawn("gateway", async move { serving.serve().await });
            let client = Client::connect(keeper.address(), 30_000, None).await;
            (client.expect("it serves"), serving)
        };
        let [(first, one), (second, other)] = [start().await, start().await];
        Two {
            clients: [first, second],
            _serving: [one, other],
        }
    }
}

fn create(path: &str, data: &'static [u8]) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some(data.into()),
        acl: Acl::open(),
        flags: create_flags::PERSISTENT,
        ttl: -1,
    }
}

fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.into(),
        version: -1,
    }
}

fn get_data(path: &str) -> Request {
    Request::GetData {
        path: path.into(),
        watch: false,
    }
}

fn get_children(path: &str) -> Request {
    Request::GetChildren {
        path: path.into(),
        watch: false,
    }
}

async fn done(client: &Client, request: Request) -> Answer {
    client.submit(request).await.expect("done").1
}

async fn multi(client: &Client, operations: Vec<Request>) {
    done(client, Request::Multi { operations }).await;
}

#[test]
fn another_gateway_shows_all_of_a_long_multi_or_nothing() {
    let mut knobs = Knobs::default();
    let most = (4 << 20).to_string();
    knobs.set("keeper_frame_bytes_max", &most).expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let two = Two::start(20).await;
        let [writer, reader] = &two.clients;
        done(writer, create("/m", b"")).await;
        let heard = Request::Sync {
            path: Some("/m".into()),
        };
        done(reader, heard).await;
        let path = |i: usize| format!("/m/{i:0>150}");
        let write = async {
            for _ in 0..ROUNDS {
                multi(writer, (0..NODES).map(|i| create(&path(i), b"")).collect()).await;
                sleep(Duration::from_millis(50)).await;
                multi(writer, (0..NODES).map(|i| delete(&path(i))).collect()).await;
            }
        };
        let read = async {
            loop {
                let found = done(reader, get_children("/m")).await;
                let Answer::Children(names) = found else {
                    panic!("{found:?}");
                };
                assert!(
                    [0, NODES].contains(&names.len()),
                    "{} of {NODES}",
                    names.len()
                );
            }
        };
        let Either::Left(()) = race(write, read).await;
    });
}

/// Two nodes have the same data at any time. They are long, so another gateway reads them from the store. How often it
/// answers a read of both with two states.
async fn torn_reads() -> usize {
    const LONG: [&[u8]; 2] = [&[b'a'; 5000], &[b'b'; 5000]];
    let two = Two::start(30).await;
    let [writer, reader] = &two.clients;
    multi(writer, vec![create("/a", LONG[0]), create("/b", LONG[0])]).await;
    let heard = Request::Sync {
        path: Some("/a".into()),
    };
    done(reader, heard).await;
    let set = |path: &str, data: &'static [u8]| Request::SetData {
        path: path.into(),
        data: Some(data.into()),
        version: -1,
    };
    let write = async {
        for round in 0..400 {
            let data = LONG[round % 2];
            multi(writer, vec![set("/a", data), set("/b", data)]).await;
        }
    };
    let (mut reads, mut torn) = (0, 0);
    let read = async {
        loop {
            let operations = vec![get_data("/a"), get_children("/"), get_data("/b")];
            let request = Request::MultiRead {
                operations,
                breaks_off: false,
            };
            let found = done(reader, request).await;
            let Answer::MultiRead(found) = found else {
                panic!("{found:?}");
            };
            let [
                MultiResult::Data(a, of_a),
                MultiResult::Children(_),
                MultiResult::Data(b, of_b),
            ] = &found[..]
            else {
                panic!("{found:?}");
            };
            reads += 1;
            torn += usize::from(a != b || of_a.mzxid != of_b.mzxid);
        }
    };
    let Either::Left(()) = race(write, read).await;
    assert!(reads > 10, "{reads} reads");
    torn
}

#[test]
fn several_reads_in_one_request_are_of_one_state() {
    block_on(async {
        assert_eq!(torn_reads().await, 0);
        // As if others changed them faster than they are loaded.
        let mut knobs = Knobs::default();
        knobs.set("keeper_multi_read_tries", "0").expect("a knob");
        set_knobs(knobs);
        assert_eq!(torn_reads().await, 0);
        fault::plant(Some("keeper_multi_read_torn"));
        let mut torn = 0;
        for _ in 0..20 {
            torn += torn_reads().await;
            if torn > 0 {
                break;
            }
        }
        assert_ne!(torn, 0, "the fault shows here");
        fault::plant(None);
    });
}
