//! Whoever reads at another gateway sees all that a transaction has changed, or nothing of it.

use super::gateways::{Gateway, create_with, delete, done, get, list, set_to, several, sync};
use bytes::Bytes;
use plinth_client::testing::MemoryCluster;
use plinth_core::output::Output;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{
    Answer, ConnectRequest, Incoming, MultiResult, Request, XidWidth, create_flags, decode_answer,
    decode_incoming, encode_connect_request, encode_request, opcode, take_frame,
};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::net::{self, Writer};
use plinth_runtime::real::block_on;
use plinth_runtime::serve::Inbox;
use plinth_runtime::{Duration, Either, fault, join_all, race, sleep};

/// Changes of so many nodes take several entries of the stream, more than one read of it has.
const NODES: usize = 8000;
const ROUNDS: usize = 3;

/// Two gateways of one tree, and a client of each.
struct Two {
    clients: [Client; 2],
    _gateways: [Gateway; 2],
}

impl Two {
    /// The database lets others run so often before it answers.
    async fn start(turns: u32) -> Two {
        let cluster = MemoryCluster::new();
        cluster.set_delay_turns(turns);
        let gateways = [
            Gateway::start(&cluster).await,
            Gateway::start(&cluster).await,
        ];
        Two {
            clients: [gateways[0].client().await, gateways[1].client().await],
            _gateways: gateways,
        }
    }
}

fn create(path: &str, data: &'static [u8]) -> Request {
    create_with(path, data, create_flags::PERSISTENT)
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
        done(reader, sync()).await;
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
                let found = done(reader, list("/m")).await;
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
    done(reader, sync()).await;
    let write = async {
        for round in 0..400 {
            let data = LONG[round % 2];
            multi(writer, vec![set_to("/a", data), set_to("/b", data)]).await;
        }
    };
    let (mut reads, mut torn) = (0, 0);
    let read = async {
        loop {
            let operations = vec![get("/a"), list("/"), get("/b")];
            let found = done(reader, several(operations)).await;
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
        // The reader's gateway sees each change, so that most fall between two reads.
        let mut knobs = Knobs::default();
        knobs.set("keeper_follow_ms", "0").expect("a knob");
        set_knobs(knobs.clone());
        assert_eq!(torn_reads().await, 0);
        // As if others changed them faster than they are loaded.
        knobs.set("keeper_read_tries", "0").expect("a knob");
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

/// A connection that shows frames in the order in which they come.
struct Frames {
    inbox: Inbox,
    writer: Writer,
    sent: i32,
}

impl Frames {
    async fn connect(gateway: &Gateway) -> Frames {
        let connecting = net::connect(gateway.keeper.address()).await;
        let (reader, writer) = connecting.expect("it listens");
        let mut frames = Frames {
            inbox: Inbox::new(reader),
            writer,
            sent: 0,
        };
        let greeting = ConnectRequest {
            protocol_version: 0,
            is_packed: false,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: 0,
            password: vec![0; 16].into(),
            read_only: None,
        };
        let mut out = Output::copying();
        encode_connect_request(&mut out, &greeting);
        frames.write(out).await;
        frames.frame().await;
        frames
    }

    async fn write(&mut self, out: Output) {
        let writing = self.writer.write_all(out.into_bytes());
        writing.await.expect("it reads");
    }

    async fn send(&mut self, request: &Request) {
        self.sent += 1;
        let mut out = Output::copying();
        encode_request(&mut out, self.sent, request);
        self.write(out).await;
    }

    async fn frame(&mut self) -> Bytes {
        loop {
            let frame = take_frame(&mut self.inbox.buffer, 1 << 20);
            if let Some(frame) = frame.expect("a frame") {
                return frame;
            }
            self.inbox.read().await.expect("it serves");
        }
    }

    async fn next(&mut self) -> Incoming {
        decode_incoming(self.frame().await, XidWidth::Four).expect("an answer or an event")
    }
}

#[test]
fn an_answer_from_the_pipeline_never_comes_behind_an_event_of_what_it_does_not_show() {
    const READS: usize = 200;
    // As if others changed what is read faster than it is loaded.
    let mut knobs = Knobs::default();
    knobs.set("keeper_read_tries", "0").expect("a knob");
    set_knobs(knobs);
    block_on(async {
        let cluster = MemoryCluster::new();
        let before = Gateway::start(&cluster).await;
        let client = before.client().await;
        done(&client, create("/a", b"")).await;
        for i in 0..READS {
            done(&client, create(&format!("/{i}"), b"")).await;
        }
        // One that has not seen them come looks at each in the pipeline.
        let gateway = Gateway::start(&cluster).await;
        let writer = gateway.client().await;
        let mut reader = Frames::connect(&gateway).await;
        reader
            .send(&Request::AddWatch {
                path: "/a".into(),
                mode: 0,
            })
            .await;
        let Incoming::Answer(begun, _) = reader.next().await else {
            panic!("an event of nothing");
        };
        let write = async {
            loop {
                let sets = (0..20).map(|_| writer.submit(set_to("/a", "")));
                join_all(sets.collect::<Vec<_>>()).await;
            }
        };
        let read = async {
            let (mut heard, mut events) = (0, 0);
            for i in 0..READS {
                let both = several(vec![get("/a"), get(&format!("/{i}"))]);
                reader.send(&both).await;
                let (header, body) = loop {
                    match reader.next().await {
                        Incoming::Answer(header, body) => break (header, body),
                        Incoming::Event(event) => {
                            heard = event.zxid;
                            events += 1;
                        }
                    }
                };
                let answer = decode_answer(opcode::MULTI_READ, body).expect("an answer");
                let Answer::MultiRead(found) = answer else {
                    panic!("{answer:?}");
                };
                let MultiResult::Data(_, of_a) = &found[0] else {
                    panic!("{found:?}");
                };
                assert!(
                    of_a.mzxid >= heard,
                    "read {i} shows {:#x} behind the event of {heard:#x}",
                    of_a.mzxid
                );
                // Nothing else changes.
                assert_eq!(header.zxid, of_a.mzxid.max(begun.zxid));
            }
            assert!(events > READS, "{events} events");
        };
        let Either::Right(()) = race(write, read).await;
    });
}
