//! What strangers send to a gateway: broken bytes, silence, and requests whose answers they never read. Each costs the
//! gateway little, and a client that behaves well does not notice.

use crate::common::gateways::{PATIENCE, SESSION_TIMEOUT_MS, ask, connect, start_gateway};
use crate::common::strangers::{allow_open_files, is_closed, open_files, wait_until};
use crate::common::{Cluster, free_ports};
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, create_flags};
use plinth_runtime::{Duration, Either, now, offload, race, real, sleep, timeout};
use std::cell::Cell;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

const SILENT: usize = 10_000;
/// Anonymous memory that a silent connection may cost the gateway while it is open. A quarter of them have a session.
const SILENT_BYTES_MAX: usize = 32 << 10;
/// A silent connection is closed by then: 10 s without a greeting; or the time-out of its session, and 10 s in which
/// its last bytes may be read.
const SILENT_LIMIT: Duration = Duration::from_secs(30);
/// Every answer to a client that behaves well, on a machine that does other things too: who holds memory that others
/// wait for, and sends nothing more, gives way after two seconds (`STALL_LIMIT` of the gateway).
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// The shortest time-out of a session.
const SHORT_TIMEOUT_MS: i32 = 4000;
/// Answers of this size are asked for and not read, until all together would fill the memory.
const LONG: usize = 900_000;
const UNREAD: usize = 2000;
/// Anonymous memory that all of this may cost the gateway.
const GROWTH_KIB_MAX: u64 = 200 << 10;

fn create(path: &str, bytes: usize) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some(vec![b'x'; bytes].into()),
        acl: Acl::open(),
        flags: create_flags::PERSISTENT,
        ttl: -1,
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.expect("a number").parse().expect("a number")
}

/// A frame: its length, and what is in it.
fn frame(content: &[u8]) -> Vec<u8> {
    let mut frame = (content.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(content);
    frame
}

fn greeting() -> Vec<u8> {
    greeting_with(SESSION_TIMEOUT_MS)
}

/// A greeting for a new session.
fn greeting_with(timeout_ms: i32) -> Vec<u8> {
    let mut content = Vec::new();
    content.extend_from_slice(&0i32.to_be_bytes()); // protocol version
    content.extend_from_slice(&0i64.to_be_bytes()); // last zxid seen
    content.extend_from_slice(&timeout_ms.to_be_bytes());
    content.extend_from_slice(&0i64.to_be_bytes()); // session
    content.extend_from_slice(&16i32.to_be_bytes());
    content.extend_from_slice(&[0; 16]); // password
    content.push(0); // not read-only
    frame(&content)
}

fn get_data(xid: i32, path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    content.extend_from_slice(&xid.to_be_bytes());
    content.extend_from_slice(&4i32.to_be_bytes());
    content.extend_from_slice(&(path.len() as i32).to_be_bytes());
    content.extend_from_slice(path.as_bytes());
    content.push(0); // no watch
    frame(&content)
}

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the gateway listens");
    let limit = Some(PATIENCE);
    stream.set_read_timeout(limit).expect("a time-out");
    stream.set_write_timeout(limit).expect("a time-out");
    stream
}

/// Sends the bytes; the gateway must close the connection, whatever it says before.
fn is_closed_after(address: SocketAddr, bytes: &[u8]) {
    let mut stream = open(address);
    let _ = stream.write_all(bytes); // may fail: the gateway may close before the last byte
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{bytes:?}, and it is not closed: {error}"),
    }
}

fn send_broken_bytes(address: SocketAddr) {
    let greeted = |more: &[u8]| [&greeting()[..], more].concat();
    let length = |length: u32| length.to_be_bytes().to_vec();
    for bytes in [
        length(0x7fff_ffff),
        length(0xffff_ffff),
        length(0),
        frame(b"short"),
        frame(&[0xff; 44]),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        greeted(&length(0xffff_ffff)),
        greeted(&frame(&[0; 3])),
        // An unknown kind of request.
        greeted(&frame(&[0, 0, 0, 1, 0, 0, 0x27, 0x0f])),
    ] {
        is_closed_after(address, &bytes);
    }
}

fn take_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
    let mut content = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut content).expect("an answer");
    content
}

/// Requests that cannot be read are refused, and the connection stays.
fn send_broken_requests(address: SocketAddr) {
    let mut stream = open(address);
    stream.write_all(&greeting()).expect("sent");
    take_frame(&mut stream);
    for body in [
        // A path that is longer than its frame, and one of a negative length.
        &[0, 0, 0, 4, 0x7f, 0, 0, 0, b'/'][..],
        &[0, 0, 0, 4, 0x80, 0, 0, 0, b'/'],
        // A multi that ends within an operation.
        &[0, 0, 0, 14, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 1],
    ] {
        let request = frame(&[&7i32.to_be_bytes(), body].concat());
        stream.write_all(&request).expect("sent");
        let answer = take_frame(&mut stream);
        assert_eq!(answer[..4], 7i32.to_be_bytes(), "{body:?}");
        assert_eq!(
            answer[12..16],
            Code::MARSHALLING_ERROR.0.to_be_bytes(),
            "{body:?}"
        );
    }
}

async fn ask_for_bad_paths(client: &Client) {
    ask(client, create("/a", 1)).await.expect("created");
    for path in [
        "", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/../b", "/a\0b", "/\u{1}",
    ] {
        let refused = ask(client, create(path, 1)).await;
        // ZooKeeper looks for the parent first, whatever it is called.
        let is_refused = matches!(refused, Err(Code::BAD_ARGUMENTS | Code::NO_NODE));
        assert!(is_refused, "{path:?}: {refused:?}");
    }
}

/// A connection over which long answers are asked for and not read.
fn ask_and_never_read(address: SocketAddr) -> TcpStream {
    let mut stream = open(address);
    stream
        .write_all(&greeting_with(SHORT_TIMEOUT_MS))
        .expect("sent");
    let requests: Vec<u8> = (0..UNREAD as i32)
        .flat_map(|n| get_data(n, "/long"))
        .collect();
    // A part of it must be enough: the gateway does not read on.
    let _ = stream.set_write_timeout(Some(Duration::from_millis(300)));
    let _ = stream.write_all(&requests);
    stream
}

/// Must be answered all the time, and soon.
async fn ask_on_and_on(client: &Client, slowest: &Cell<Duration>) -> Infallible {
    loop {
        let asked = now();
        let request = Request::Exists {
            path: "/long".into(),
            watch: false,
        };
        ask(client, request)
            .await
            .expect("it is answered beside strangers");
        slowest.set(slowest.get().max(asked.elapsed()));
        sleep(Duration::from_millis(10)).await;
    }
}

async fn stay_well(cluster: &Cluster) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let gateway = start_gateway(cluster, address, &["--max-connections-per-address", "0"]);
    let client = connect(address, None).await;
    ask(&client, create("/long", LONG)).await.expect("created");
    let before = resident_kib(gateway.0.id());
    let files = open_files(gateway.0.id());
    let strangers = offload(move || {
        let deaf: Vec<TcpStream> = (0..20).map(|_| ask_and_never_read(address)).collect();
        send_broken_bytes(address);
        send_broken_requests(address);
        deaf
    });
    let slowest = Cell::new(Duration::ZERO);
    let Either::Left(deaf) = race(strangers, ask_on_and_on(&client, &slowest)).await;
    ask_for_bad_paths(&client).await;
    for n in 0..100 {
        ask(&client, create(&format!("/n{n}"), 10))
            .await
            .expect("created");
    }
    let after = resident_kib(gateway.0.id());
    assert!(
        after < before + GROWTH_KIB_MAX,
        "{before} KiB became {after} KiB"
    );
    // They are still there. Their sessions have ended, and nobody waits for them to read.
    let few = || open_files(gateway.0.id()) < files + 10;
    let waiting = wait_until("who never reads is sent away", SILENT_LIMIT, few);
    let Either::Left(_) = race(waiting, ask_on_and_on(&client, &slowest)).await;
    drop(deaf);
    let slowest = slowest.get();
    assert!(slowest < ANSWER_LIMIT, "an answer took {slowest:?}");
    let found = ask(
        &client,
        Request::Exists {
            path: "/n99".into(),
            watch: false,
        },
    )
    .await;
    assert!(matches!(found, Ok(Answer::Stat(_))), "{found:?}");
}

#[test]
fn strangers_cost_a_gateway_little_and_its_clients_nothing() {
    let cluster = Cluster::start("keeper-strangers", 1, &[]);
    real::block_on(stay_well(&cluster));
}

/// Nothing, half a greeting, a greeting, or the length of a long one; and then nothing.
fn open_silently(address: SocketAddr, number: usize) -> TcpStream {
    let mut stream = open(address);
    let greeting = greeting_with(SHORT_TIMEOUT_MS);
    let said = match number % 4 {
        0 => &[][..],
        1 => &greeting[..greeting.len() / 2],
        2 => &greeting[..],
        _ => &[0, 0, 1, 0],
    };
    stream.write_all(said).expect("sent");
    stream
}

/// Notes the most files that the process has open.
async fn count_open(pid: u32, most: &Cell<usize>) -> Infallible {
    loop {
        most.set(most.get().max(open_files(pid)));
        sleep(Duration::from_millis(100)).await;
    }
}

async fn stay_well_beside_silence(cluster: &Cluster) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let gateway = start_gateway(cluster, address, &["--max-connections-per-address", "0"]);
    let client = connect(address, None).await;
    ask(&client, create("/long", 1)).await.expect("created");
    let pid = gateway.0.id();
    let (before, files) = (resident_kib(pid), open_files(pid));
    let slowest = Cell::new(Duration::ZERO);
    let most = Cell::new(0);
    let opening = offload(move || {
        let silent = (0..SILENT).map(|number| open_silently(address, number));
        silent.collect::<Vec<TcpStream>>()
    });
    let others = race(ask_on_and_on(&client, &slowest), count_open(pid, &most));
    let Either::Left(mut silent) = race(opening, others).await;
    let grown = resident_kib(pid).saturating_sub(before);
    // On a slow machine many are closed by then. What they cost may be kept for those who come next.
    let open = most.get().max(open_files(pid)) - files;
    let each = (grown << 10) as usize / open.max(1);
    eprintln!("of {SILENT} silent connections {open} are open; they cost {each} bytes each");
    assert!(each < SILENT_BYTES_MAX, "{each} bytes each");

    // All of them each time: who was greeted has something to read first.
    let all_closed = || {
        let closed = silent.iter_mut().map(is_closed);
        closed.filter(|is_closed| *is_closed).count() == SILENT
    };
    let waiting = wait_until("silent connections are closed", SILENT_LIMIT, all_closed);
    let Either::Left(waited) = race(waiting, ask_on_and_on(&client, &slowest)).await;
    eprintln!("the last was closed {waited:?} after the last had come");
    let few = || open_files(pid) < files + 20;
    wait_until("the gateway forgets them", SILENT_LIMIT, few).await;
    let slowest = slowest.get();
    eprintln!("the slowest answer beside them took {slowest:?}");
    assert!(slowest < ANSWER_LIMIT, "an answer took {slowest:?}");
}

#[test]
fn ten_thousand_silent_connections_cost_little_and_are_closed() {
    allow_open_files(SILENT as u64 + 2000);
    let cluster = Cluster::start("keeper-silence", 1, &[]);
    real::block_on(stay_well_beside_silence(&cluster));
}

async fn come_when_all_places_are_taken(cluster: &Cluster) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let limit = ["--max-connections-per-address", "3"];
    let _gateway = start_gateway(cluster, address, &limit);
    let client = connect(address, None).await;
    let [mut oldest, mut younger] = [open(address), open(address)];
    let next = connect(address, None).await;
    let is_over = || is_closed(&mut oldest);
    wait_until("the oldest silent one makes room", PATIENCE, is_over).await;
    assert!(!is_closed(&mut younger));
    let last = connect(address, None).await;
    let is_over = || is_closed(&mut younger);
    wait_until("the other one makes room", PATIENCE, is_over).await;
    let mut fourth = open(address);
    wait_until("the fourth is refused", PATIENCE, || is_closed(&mut fourth)).await;
    for (client, path) in [(&client, "/a"), (&next, "/b"), (&last, "/c")] {
        ask(client, create(path, 1)).await.expect("created");
    }
    drop(next);
    let later = timeout(PATIENCE, connect(address, None)).await;
    assert!(later.is_some(), "there is room again");
}

#[test]
fn an_address_has_no_more_connections_than_it_may_have() {
    let cluster = Cluster::start("keeper-addresses", 1, &[]);
    real::block_on(come_when_all_places_are_taken(&cluster));
}
