//! Clients that send pings behind a request that takes long.

use super::*;
use plinth_core::output::Output;
use plinth_keeper::wire::{
    ConnectRequest, Incoming, XidWidth, decode_connect_answer, decode_incoming,
    encode_connect_request, encode_request, take_frame, xid,
};
use plinth_runtime::net::{self, Reader, Writer};
use plinth_runtime::serve::Inbox;

/// Levels of the tree. Each is counted with a read of its own.
const DEPTH: usize = 60;
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A client that does not mind how late it is answered.
struct Patient {
    session: i64,
    inbox: Inbox,
    writer: Writer,
}

impl Patient {
    async fn connect(timeout_ms: i32) -> Patient {
        let (reader, mut writer): (Reader, Writer) =
            net::connect(address(0)).await.expect("it listens");
        let mut out = Output::copying();
        let request = ConnectRequest {
            protocol_version: 0,
            is_packed: false,
            last_zxid_seen: 0,
            timeout_ms,
            session_id: 0,
            password: Bytes::from_static(&[0; 16]),
            read_only: Some(false),
        };
        encode_connect_request(&mut out, &request);
        writer.write_all(out.into_bytes()).await.expect("sent");
        let mut inbox = Inbox::new(reader);
        let frame = next_frame(&mut inbox).await.expect("it greets");
        let session = decode_connect_answer(frame).expect("a greeting").session_id;
        Patient {
            session,
            inbox,
            writer,
        }
    }

    async fn send(&mut self, xid: i32, request: &Request) {
        let mut out = Output::copying();
        encode_request(&mut out, xid, request);
        let _ = self.writer.write_all(out.into_bytes()).await; // the other side may have hung up
    }

    /// The `xid` of the next answer; `None` if the connection has ended.
    async fn next_answer(&mut self) -> Option<i64> {
        loop {
            match decode_incoming(next_frame(&mut self.inbox).await?, XidWidth::Four) {
                Ok(Incoming::Answer(header, _)) => return Some(header.xid.number()),
                Ok(Incoming::Event(_)) => {}
                Err(_) => return None,
            }
        }
    }
}

async fn next_frame(inbox: &mut Inbox) -> Option<Bytes> {
    loop {
        if let Some(frame) = take_frame(&mut inbox.buffer, ANSWER_BYTES_MAX).ok()? {
            return Some(frame);
        }
        inbox.read().await?;
    }
}

/// A chain of nodes below `/0`.
async fn plant_a_chain() {
    let client = Client::connect(address(0), 30_000, None).await;
    let client = client.expect("it serves");
    let paths = (1..=DEPTH).map(|depth| "/0".repeat(depth));
    let node = |path: String| Request::Create {
        kind: CreateKind::Plain,
        path: path.as_str().into(),
        data: None,
        acl: Acl::open(),
        flags: 0,
        ttl: -1,
    };
    let operations = paths.map(node).collect();
    let made = client.submit(Request::Multi { operations }).await;
    made.expect("created");
    client.close().await.expect("closed");
}

/// One request takes more than twice the time-out, on a store that answers each read late.
async fn ping_behind_a_slow_request(pings: usize) -> Rc<World> {
    let world = World::with(1, ms(150)).await;
    plant_a_chain().await;
    let mut client = Patient::connect(4000).await;
    let count = Request::GetAllChildrenNumber { path: "/0".into() };
    client.send(1, &count).await;
    let sent = now();
    for _ in 0..pings {
        sleep(ms(1300)).await;
        client.send(xid::PING, &Request::Ping).await;
        if !world.lives(client.session) {
            let after = sent.elapsed();
            world.complain(format!(
                "a session ends {after:?} after a slow request, in spite of pings"
            ));
            return world;
        }
    }
    let last_heard = now();
    if pings == 0 {
        let ended = world.end_of(client.session, sent + ms(7000)).await;
        if ended.is_none() {
            world.complain("who is silent behind a slow request keeps his session".into());
        }
        return world;
    }
    let mut answered = Vec::new();
    while answered.len() <= pings
        && let Some(Some(xid)) = timeout(ms(10_000), client.next_answer()).await
    {
        answered.push(xid);
    }
    if answered.first() != Some(&1) || answered.len() != 1 + pings {
        world.complain(format!("answered: {answered:?}"));
    }
    if sent.elapsed() < ms(8000) {
        world.complain("the request was quick".into());
    }
    let due = last_heard + ms(4000);
    match world.end_of(client.session, due + ms(3000)).await {
        None => world.complain("the session does not end".into()),
        Some(ended) if ended < due => world.complain("the session ends early".into()),
        Some(_) => {}
    }
    world
}

#[test]
fn a_client_whose_pings_come_behind_a_request_that_takes_longer_than_its_time_out_keeps_its_session()
 {
    holds(3, || ping_behind_a_slow_request(7));
}

#[test]
fn a_client_that_is_silent_behind_a_slow_request_loses_its_session() {
    holds(3, || ping_behind_a_slow_request(0));
}
