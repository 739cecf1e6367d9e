//! Compressed connections and numbers of eight bytes through a gateway, and long requests of many connections.

use super::gateways::{Gateway, ask, create_with, done, get, several, sync, watching};
use bytes::{Bytes, BytesMut};
use plinth_client::testing::MemoryCluster;
use plinth_core::output::Output;
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::wire::packed::{put_packed, unpack};
use plinth_keeper::wire::{
    Answer, Code, ConnectRequest, Incoming, Protocol, Request, Xid, XidWidth, create_flags,
    decode_connect_answer, decode_incoming, encode_connect_request, encode_request, event,
    take_frame,
};
use plinth_keeper::{Options, Words};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::net::{self, Reader, Writer};
use plinth_runtime::real::block_on;
use plinth_runtime::serve::Inbox;
use plinth_runtime::{Duration, join_all, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);
async fn connect(gateway: &Gateway, protocol: Protocol) -> Result<Client, Failure> {
    Client::connect_by(gateway.keeper.address(), 30_000, None, protocol).await
}

fn set(path: &str, data: Bytes) -> Request {
    Request::SetData {
        path: path.into(),
        data: Some(data),
        version: -1,
    }
}

/// Does not compress.
fn noise(bytes: usize) -> Bytes {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn a_client_is_served_in_the_form_that_it_asks_for() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        for (number, protocol) in Protocol::FORMS.into_iter().enumerate() {
            let client = connect(&gateway, protocol).await.expect("it serves");
            let path = format!("/{number}");
            done(&client, create_with(&path, "a", create_flags::PERSISTENT)).await;
            for data in [Bytes::from(vec![7; 900_000]), noise(900_000)] {
                done(&client, watching(get(&path))).await;
                let [setting, reading] =
                    [set(&path, data.clone()), get(&path)].map(|request| client.submit(request));
                setting.await.expect("it is set");
                let Ok((_, Answer::Data(read, _))) = reading.await else {
                    panic!("data");
                };
                assert!(read == Some(data), "{protocol:?}");
                let told = timeout(PATIENCE, client.next_event()).await.flatten();
                let told = told.expect("an event");
                assert_eq!((&*told.path, told.kind), (&*path, event::DATA_CHANGED));
            }
            // An answer of more than one block, and one that is refused.
            done(&client, get("/keeper/feature_flags")).await;
            let read = several(vec![get(&path); 5]);
            let Answer::MultiRead(results) = done(&client, read).await else {
                panic!("several");
            };
            assert_eq!(results.len(), 5);
            let long = set(&path, noise(9 << 20));
            assert_eq!(ask(&client, long).await, Err(Code::CONNECTION_LOSS));
            assert_eq!(ask(&client, get("/none")).await, Err(Code::NO_NODE));
            done(&client, Request::Ping).await;
            done(&client, sync()).await;
            client.close().await.expect("closed");
        }
    });
}

#[test]
fn a_gateway_that_is_a_plain_zookeeper_has_no_other_form() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let options = Options {
            clickhouse: false,
            words: Words::all(),
            ..Options::default()
        };
        let gateway = Gateway::start_with(&cluster, options).await;
        for protocol in &Protocol::FORMS[1..] {
            let refused = connect(&gateway, *protocol).await.err();
            let broken = Failure::Broken("another form than was asked for");
            assert_eq!(refused, Some(broken));
        }
    });
}

/// A connection that sends any bytes.
struct Raw {
    inbox: Inbox,
    writer: Writer,
}

impl Raw {
    async fn connect(gateway: &Gateway, protocol: Protocol) -> Raw {
        let connected = net::connect(gateway.keeper.address()).await;
        let (reader, writer): (Reader, Writer) = connected.expect("it listens");
        let inbox = Inbox::new(reader);
        let mut raw = Raw { inbox, writer };
        let greeting = ConnectRequest {
            protocol_version: protocol.version(),
            is_packed: protocol.is_packed,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: 0,
            password: vec![0; 16].into(),
            read_only: Some(true),
        };
        raw.write(|out| encode_connect_request(out, &greeting))
            .await;
        let answer = decode_connect_answer(raw.frame().await.expect("a greeting"));
        assert_eq!(
            answer.expect("a greeting").protocol_version,
            protocol.version()
        );
        raw
    }

    async fn write(&mut self, append: impl FnOnce(&mut Output)) {
        let mut out = Output::copying();
        append(&mut out);
        self.send(out.into_bytes()).await;
    }

    async fn send(&mut self, bytes: Bytes) {
        let _ = self.writer.write_all(bytes).await; // the other side may have hung up
    }

    async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = take_frame(&mut self.inbox.buffer, 1 << 20).ok()? {
                return Some(frame);
            }
            timeout(PATIENCE, self.inbox.read()).await.flatten()?;
        }
    }
}

/// As ClickHouse's client reads: the socket is looked at before each answer, so each answer has a block of its own.
#[test]
fn each_answer_and_each_event_ends_a_block_and_large_numbers_come_back() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let mut raw = Raw::connect(&gateway, Protocol::of(true, XidWidth::Eight)).await;
        let first = 1_i64 << 40;
        let asked = 20;
        raw.write(|out| {
            for number in 0..asked {
                let request = watching(get("/"));
                let append = |out: &mut Output| {
                    encode_request(out, Xid::wide(first + number), &request);
                };
                put_packed(out, append);
            }
        })
        .await;
        for number in 0..asked {
            let mut plain = BytesMut::new();
            while !unpack(&mut raw.inbox.buffer, &mut plain).expect("a block") {
                raw.inbox.read().await.expect("it serves");
            }
            let frame = take_frame(&mut plain, 1 << 20).expect("a frame");
            assert!(plain.is_empty(), "a frame for each block");
            let incoming = decode_incoming(frame.expect("a whole frame"), XidWidth::Eight);
            let Ok(Incoming::Answer(header, _)) = incoming else {
                panic!("{incoming:?}");
            };
            assert_eq!(header.xid, Xid::wide(first + number));
        }
    });
}

#[test]
fn a_damaged_block_ends_its_connection_and_no_other() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let other = connect(&gateway, Protocol::FORMS[1])
            .await
            .expect("it serves");
        let mut out = Output::copying();
        let append = |out: &mut Output| encode_request(out, 1, &get("/"));
        put_packed(&mut out, append);
        let whole = out.into_bytes();
        for place in [0, 16, 17, 21, 25, whole.len() - 1] {
            let mut raw = Raw::connect(&gateway, Protocol::FORMS[1]).await;
            let mut damaged = BytesMut::from(&whole[..]);
            damaged[place] ^= 0x40;
            raw.send(damaged.freeze()).await;
            assert_eq!(raw.frame().await, None, "byte {place}");
        }
        done(&other, sync()).await;
    });
}

fn begin_of(bytes: usize) -> Bytes {
    let mut out = Output::copying();
    encode_request(&mut out, 1, &set("/", vec![7; bytes].into()));
    out.into_bytes()
}

fn with_frames_bytes_max(bytes: usize) {
    let mut knobs = Knobs::default();
    let max = bytes.to_string();
    knobs.set("keeper_frames_bytes_max", &max).expect("a knob");
    set_knobs(knobs);
}

fn arrived_bytes(gateway: &Gateway) -> usize {
    let samples = gateway.keeper.samples();
    let mut found = samples
        .iter()
        .filter(|one| one.family.name == "plinth_keeper_arrived_bytes");
    found.next().expect("a metric").value as usize
}

const LONG: usize = 900_000;
const MANY: usize = 40;

/// What a gateway keeps of many requests that lack their last byte, and whether others are served then.
async fn arrived_of_many(gateway: &Gateway) -> usize {
    let whole = begin_of(LONG);
    let all_but_one = whole.slice(..whole.len() - 1);
    let mut raws = Vec::new();
    for _ in 0..MANY {
        raws.push(Raw::connect(gateway, Protocol::FORMS[0]).await);
    }
    let sending = raws.iter_mut().map(|raw| {
        let bytes = all_but_one.clone();
        async move { timeout(Duration::from_secs(2), raw.send(bytes)).await }
    });
    join_all(sending).await;
    sleep(Duration::from_secs(1)).await;
    let arrived = arrived_bytes(gateway);
    drop(raws.split_off(1));
    let client = gateway.client().await;
    let one = set("/", vec![1; LONG].into());
    let set = timeout(PATIENCE, ask(&client, one)).await;
    set.expect("its turn comes").expect("it is set");
    arrived
}

#[test]
fn many_long_requests_that_are_not_whole_take_no_more_memory_than_they_may() {
    for (most, expected) in [
        (MANY * 2 * LONG, MANY * LONG..MANY * 2 * LONG),
        // Of each of the others no more is read than of any client.
        (4 * LONG, 2 * LONG..4 * LONG + MANY * (256 << 10)),
    ] {
        with_frames_bytes_max(most);
        block_on(async {
            let cluster = MemoryCluster::new();
            let gateway = Gateway::start(&cluster).await;
            let arrived = arrived_of_many(&gateway).await;
            assert!(expected.contains(&arrived), "{arrived} bytes");
        });
    }
}

#[test]
fn who_is_slow_with_a_long_request_gives_way_to_those_who_wait() {
    with_frames_bytes_max(LONG);
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let mut slow = Raw::connect(&gateway, Protocol::FORMS[0]).await;
        slow.send(begin_of(LONG).slice(..100_000)).await;
        sleep(Duration::from_millis(200)).await;
        let client = gateway.client().await;
        let (waiting, short) = (
            client.submit(set("/", vec![1; LONG].into())),
            gateway.client().await,
        );
        // Short requests do not wait, and nobody's session ends because it waits.
        done(&short, create_with("/short", "", create_flags::EPHEMERAL)).await;
        timeout(PATIENCE, waiting)
            .await
            .expect("its turn comes")
            .expect("set");
        assert_eq!(slow.frame().await, None);
        // A long request that is whole does not wait for a slow one that is alone.
        let mut alone = Raw::connect(&gateway, Protocol::FORMS[0]).await;
        let whole = begin_of(LONG);
        alone.send(whole.slice(..100_000)).await;
        sleep(Duration::from_secs(1)).await;
        alone.send(whole.slice(100_000..)).await;
        let frame = alone.frame().await.expect("an answer");
        let answered = decode_incoming(frame, XidWidth::Four);
        assert!(matches!(answered, Ok(Incoming::Answer(header, _)) if header.error == 0));
    });
}

#[test]
fn who_stops_within_a_block_of_a_request_that_is_too_long_gives_way_to_those_who_wait() {
    with_frames_bytes_max(LONG);
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let mut slow = Raw::connect(&gateway, Protocol::FORMS[1]).await;
        let mut blocks = Output::new();
        put_packed(&mut blocks, |out| {
            let too_long = 1_u32 << 30;
            out.buffer().extend_from_slice(&too_long.to_be_bytes());
            out.buffer().extend_from_slice(&noise((2 << 20) - 4)); // two whole blocks
        });
        let sent = blocks.into_bytes();
        slow.send(sent.slice(..sent.len() - 10)).await;
        sleep(Duration::from_millis(500)).await;
        let client = gateway.client().await;
        let waiting = client.submit(set("/", vec![1; LONG].into()));
        let waited = timeout(PATIENCE, waiting).await;
        waited.expect("its turn comes").expect("set");
        let ended = timeout(PATIENCE, slow.inbox.read()).await;
        assert_eq!(ended, Some(None), "its room was wanted");
        // Alone it is heard to the end, and its connection lives.
        let mut alone = Raw::connect(&gateway, Protocol::FORMS[1]).await;
        let mut blocks = Output::new();
        put_packed(&mut blocks, |out| {
            encode_request(out, 1, &set("/", noise(12 << 20)));
        });
        alone.send(blocks.into_bytes()).await;
        let mut plain = BytesMut::new();
        while !unpack(&mut alone.inbox.buffer, &mut plain).expect("a block") {
            alone.inbox.read().await.expect("it serves");
        }
        let frame = take_frame(&mut plain, 1 << 20).expect("a frame");
        let answered = decode_incoming(frame.expect("a whole frame"), XidWidth::Four);
        assert!(matches!(answered, Ok(Incoming::Answer(header, _)) if header.error != 0));
    });
}

#[test]
fn who_reads_no_answers_of_a_long_block_gives_way_to_those_who_wait() {
    with_frames_bytes_max(1 << 20);
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        done(&client, create_with("/long", "", create_flags::PERSISTENT)).await;
        done(&client, set("/long", noise(LONG))).await;
        let mut slow = Raw::connect(&gateway, Protocol::FORMS[1]).await;
        let mut many = Output::new();
        put_packed(&mut many, |out| {
            (1..5000).for_each(|xid| encode_request(out, xid, &get("/long")));
        });
        slow.send(many.into_bytes()).await;
        sleep(Duration::from_millis(500)).await;
        let waiting = client.submit(set("/", vec![1; LONG].into()));
        let waited = timeout(PATIENCE, waiting).await;
        waited.expect("its turn comes").expect("set");
    });
}

#[test]
fn long_requests_in_blocks_take_their_turns_too() {
    with_frames_bytes_max(2 << 20);
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let mut clients = Vec::new();
        for number in 0..8 {
            let client = connect(&gateway, Protocol::FORMS[1 + number % 3])
                .await
                .expect("it serves");
            let path = format!("/{number}");
            done(&client, create_with(&path, "", create_flags::PERSISTENT)).await;
            clients.push((client, path));
        }
        for data in [noise(800_000), Bytes::from(vec![1; 800_000])] {
            let writes = clients.iter().map(|(client, path)| {
                let both = [set(path, data.clone()), set(path, data.clone())];
                both.map(|request| client.submit(request))
            });
            let writes: Vec<_> = writes.flatten().collect();
            for written in timeout(PATIENCE, join_all(writes))
                .await
                .expect("all are done")
            {
                written.expect("written");
            }
        }
    });
}
