//! Whoever reads at another gateway sees all that a transaction has changed, or nothing of it.

use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Acl, Answer, CreateKind, Request, create_flags};
use plinth_keeper::{Keeper, Options};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, Either, Task, race, sleep, spawn};
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
    // All of it is one busy loop: nobody is cut off.
    knobs.set("keeper_isolation_ms", "10000").expect("a knob");
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
