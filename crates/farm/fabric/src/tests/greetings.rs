//! Who is heard where there are keys, and what happens to bytes that somebody changes, repeats or holds back.

use super::stands::{credentials, layout};
use crate::wire::{self, Answer, Body, First, Greeting, Request, Said};
use crate::{Address, Error, Fabric, Host, Local, Machine, Streamed, serve_with};
use bytes::{Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_identity::Identity;
use plinth_identity::greeting::{ANSWER_BYTES_MAX, PROOF_BYTES};
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_rpc::Credentials;
use plinth_rpc::frame::Check;
use plinth_runtime::memory::Mapping;
use plinth_runtime::net::{self, Reader, Writer};
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, Task, fault, now, race, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

pub const SERVER: Machine = Machine(1);
const OPENER: Machine = Machine(0);
const NUMBER: u64 = 7;
const WORD: Address = Address {
    machine: SERVER,
    region: 1,
    offset: 16,
};
/// What the word has at first.
const FIRST: u64 = 0x5a5a_0001;

/// A machine that serves its memory.
pub struct Served {
    pub address: SocketAddr,
    mapping: Mapping,
    host: Rc<Host>,
    _task: Task<()>,
}

impl Served {
    async fn new() -> Served {
        Served::with(credentials(1)).await
    }

    /// With these credentials.
    pub async fn with(credentials: Credentials) -> Served {
        let mapping = Mapping::private(layout().words().expect("a layout"));
        Host::make(&mapping, &layout());
        let host = Rc::new(Host::open(mapping.clone()).expect("a host"));
        host.set_fence(OPENER, NUMBER);
        let listener = net::listen(([10, 255, 0, 0], 4501).into()).await;
        let listener = listener.expect("a listener");
        let address = listener.local_addr().expect("its own");
        let (served, keys) = (host.clone(), credentials);
        let task = async move { serve_with(listener, SERVER, served, &keys).await };
        let served = Served {
            address,
            mapping,
            host,
            _task: spawn("serve", task),
        };
        served.set(FIRST);
        served
    }

    pub fn word(&self) -> u64 {
        let mut bytes = [0; 8];
        let region = self.host.region(WORD.region).expect("it is there");
        region.read(WORD.offset, &mut bytes).expect("it is there");
        u64::from_le_bytes(bytes)
    }

    fn set(&self, word: u64) {
        let region = self.host.region(WORD.region).expect("it is there");
        let written = region.write(WORD.offset, &word.to_le_bytes());
        written.expect("it is there");
    }

    pub fn memory(&self) -> Vec<u64> {
        let words = self.mapping.words().iter();
        words.map(|word| word.load(Relaxed)).collect()
    }
}

/// A machine with these keys that takes the server to be at `at`.
pub async fn opener(at: SocketAddr, credentials: &Credentials) -> Streamed {
    let local = Local::start(Path::new("/m"), OPENER, &layout()).await;
    let streamed = Streamed::new(
        local.expect("a memory"),
        vec![at; 3],
        Duration::from_secs(3),
    );
    let streamed = streamed.with(credentials);
    let members = [OPENER, SERVER];
    let configured = streamed.configure(NUMBER, &members).await;
    configured.expect("the first");
    streamed
}

pub async fn write(fabric: &Streamed, word: u64) -> Result<(), Error> {
    fabric.write(WORD, &word.to_le_bytes()).await
}

pub async fn read(fabric: &Streamed) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    fabric.read(WORD, &mut bytes).await?;
    Ok(u64::from_le_bytes(bytes))
}

pub fn simulate<F: Future<Output = ()> + 'static>(work: F) {
    Simulation::new(1, SimConfig::default()).run(work);
}

pub fn frame(body: &impl Codec) -> Bytes {
    let mut out = Output::copying();
    wire::put_frame(Check::Sum, &mut out, body);
    out.into_bytes()
}

pub fn greeting() -> Greeting {
    Greeting {
        from: OPENER.0,
        to: SERVER.0,
    }
}

pub fn requests() -> Bytes {
    let ask = |body| {
        frame(&Request {
            configuration: NUMBER,
            body,
        })
    };
    let write = ask(Body::Write {
        region: WORD.region,
        offset: WORD.offset,
        from: Bytes::from_static(&[9; 8]),
    });
    let read = ask(Body::Read {
        region: WORD.region,
        offset: WORD.offset,
        bytes: 8,
    });
    let swap = ask(Body::Swap {
        region: WORD.region,
        offset: WORD.offset,
        expected: FIRST,
        new: 9,
    });
    let send = ask(Body::Send {
        message: Bytes::from_static(b"a message"),
    });
    [write, swap, send, read].concat().into()
}

/// Says `bytes`, and hears the other side to its end. Returns what it has said.
pub async fn say(address: SocketAddr, bytes: Bytes) -> BytesMut {
    let (mut reader, mut writer) = net::connect(address).await.expect("connected");
    let _ = writer.write_all(bytes).await;
    let mut heard = BytesMut::new();
    let reads = async { while matches!(reader.read(&mut heard).await, Ok(n) if n > 0) {} };
    let ended = timeout(Duration::from_secs(20), reads).await;
    ended.expect("a stranger is sent away");
    heard
}

#[test]
fn who_proves_no_servers_key_changes_and_reads_nothing() {
    simulate(async {
        let served = Served::new().await;
        let before = served.memory();
        let plain = [frame(&First::Greeting(greeting())), requests()].concat();
        let noise = First::Hello(Bytes::from(vec![1; 40]));
        let noise = [frame(&noise), requests()].concat();
        for bytes in [plain, noise, requests().to_vec(), vec![0xff; 5000]] {
            let heard = say(served.address, bytes.into()).await;
            // At most that it has keys.
            assert!(heard.len() <= wire::HEAD_BYTES + 2, "{heard:?}");
        }
        // A hello of somebody who has the key, and no proof behind it.
        let hello = {
            let purpose = credentials(1).for_purpose(crate::greeting::PURPOSE);
            let opener = purpose.opener(served.address).expect("it has keys");
            First::Hello(Bytes::copy_from_slice(opener.hello()))
        };
        for proof in [vec![0; PROOF_BYTES], vec![7; 3], Vec::new()] {
            let proof = frame(&Said(proof.into()));
            let behind = frame(&First::Greeting(greeting()));
            let bytes = [frame(&hello), proof, behind, requests()].concat();
            let heard = say(served.address, bytes.into()).await;
            assert!(heard.len() <= wire::HEAD_BYTES + ANSWER_BYTES_MAX);
        }
        let lower = |whom| {
            let file = KeyFile::new_root([1; 32]).for_identity(whom);
            let ring = Keyring::new(&file.expect("lower"));
            Credentials::new(Some(ring), Identity::Server)
        };
        let others = [
            Credentials::none(),
            credentials(2),
            lower(Identity::Operator),
            lower(Identity::Client),
            lower(Identity::Reader),
        ];
        for credentials in others {
            let fabric = opener(served.address, &credentials).await;
            assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
            assert_eq!(write(&fabric, 9).await, Err(Error::Unreachable));
        }
        assert_eq!(served.memory(), before);
        let fabric = opener(served.address, &credentials(1)).await;
        assert_eq!(fabric.open(SERVER).await, Ok(()));
        assert_eq!(write(&fabric, 3).await, Ok(()));
        assert_eq!((read(&fabric).await, served.word()), (Ok(3), 3));
    });
}

#[test]
fn a_proof_for_other_connections_is_no_proof_here() {
    simulate(async {
        let served = Served::new().await;
        let opener = credentials(1).opener(served.address).expect("it has keys");
        let (mut reader, mut writer) = net::connect(served.address).await.expect("connected");
        let hello = First::Hello(Bytes::copy_from_slice(opener.hello()));
        writer.write_all(frame(&hello)).await.expect("written");
        let mut heard = BytesMut::new();
        let answer = loop {
            let taken = wire::take_frame::<Said>(Check::Sum, wire::BYTES_MAX, &mut heard);
            if let Some(answer) = taken.expect("a frame") {
                break answer;
            }
            assert!(reader.read(&mut heard).await.expect("it lives") > 0);
        };
        assert!(opener.answered(&answer.0).is_err());
    });
}

#[test]
fn an_opener_with_keys_says_nothing_to_who_has_none() {
    simulate(async {
        let mut listener = net::listen(([10, 255, 0, 0], 4502).into())
            .await
            .expect("a listener");
        let address = listener.local_addr().expect("its own");
        let heard = Rc::new(RefCell::new(BytesMut::new()));
        let all = heard.clone();
        let _impostor = spawn("impostor", async move {
            loop {
                let (mut reader, mut writer, _) = listener.accept().await.expect("accepted");
                let mut bytes = BytesMut::new();
                let _ = reader.read(&mut bytes).await;
                // It has no keys, and goes on as if that were all.
                for answer in [frame(&Said(vec![1, 0].into())), frame(&Answer::Done)] {
                    let _ = writer.write_all(answer).await;
                }
                let _ = timeout(Duration::from_secs(1), reader.read(&mut bytes)).await;
                all.borrow_mut().extend_from_slice(&bytes);
            }
        });
        let fabric = opener(address, &credentials(1)).await;
        assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
        sleep(Duration::from_secs(2)).await;
        let mut heard = heard.take();
        let first = wire::take_frame::<First>(Check::Sum, wire::BYTES_MAX, &mut heard);
        assert!(matches!(first, Ok(Some(First::Hello(_)))));
        assert_eq!(heard.len(), 0, "no greeting follows");
    });
}

/// Bytes of one direction, on their way through somebody in between.
type Change = Box<dyn Fn(&mut Vec<u8>)>;

/// Somebody between the opener and the server.
struct Between {
    address: SocketAddr,
    /// What the opener has said.
    recorded: Rc<RefCell<Vec<u8>>>,
    to_server: Rc<RefCell<Change>>,
    to_opener: Rc<RefCell<Change>>,
    _task: Task<()>,
}

async fn pass(
    mut from: Reader,
    mut to: Writer,
    change: Rc<RefCell<Change>>,
    recorded: Option<Rc<RefCell<Vec<u8>>>>,
) {
    let mut buffer = BytesMut::new();
    while matches!(from.read(&mut buffer).await, Ok(bytes) if bytes > 0) {
        let mut bytes = buffer.split().to_vec();
        if let Some(recorded) = &recorded {
            recorded.borrow_mut().extend_from_slice(&bytes);
        }
        (*change.borrow())(&mut bytes);
        if to.write_all(Bytes::from(bytes)).await.is_err() {
            return;
        }
    }
}

impl Between {
    async fn new(server: SocketAddr) -> Between {
        let mut listener = net::listen(([10, 255, 0, 0], 4503).into())
            .await
            .expect("a listener");
        let address = listener.local_addr().expect("its own");
        let (recorded, to_server, to_opener) = (
            Rc::<RefCell<Vec<u8>>>::default(),
            Rc::new(RefCell::new(Box::new(|_: &mut Vec<u8>| ()) as Change)),
            Rc::new(RefCell::new(Box::new(|_: &mut Vec<u8>| ()) as Change)),
        );
        let (record, there, back) = (recorded.clone(), to_server.clone(), to_opener.clone());
        let task = spawn("between", async move {
            loop {
                let (reader, writer, _) = listener.accept().await.expect("accepted");
                let onward = net::connect(server).await.expect("connected");
                let there = pass(reader, onward.1, there.clone(), Some(record.clone()));
                let back = pass(onward.0, writer, back.clone(), None);
                spawn("passing", async move {
                    race(there, back).await;
                })
                .detach();
            }
        });
        Between {
            address,
            recorded,
            to_server,
            to_opener,
            _task: task,
        }
    }
}

/// Keys of somebody who does not know that addresses are translated on the way: only proofs and seals protect it.
fn translated() -> Credentials {
    credentials(1).for_any_address()
}

/// Changes one bit of the byte at this place of all that passes. Says whether it has come.
fn flip(at: usize) -> (Change, Rc<Cell<bool>>) {
    let (passed, is_done) = (Cell::new(0), Rc::new(Cell::new(false)));
    let done = is_done.clone();
    let change = move |bytes: &mut Vec<u8>| {
        let before = passed.replace(passed.get() + bytes.len());
        if let Some(byte) = at.checked_sub(before).and_then(|at| bytes.get_mut(at)) {
            *byte ^= 1 << (at % 8);
            done.set(true);
        }
    };
    (Box::new(change), is_done)
}

#[test]
fn a_connection_that_somebody_leads_elsewhere_is_refused() {
    simulate(async {
        let served = Served::new().await;
        let between = Between::new(served.address).await;
        let fabric = opener(between.address, &credentials(1)).await;
        assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
        drop(fabric);
        let fabric = opener(between.address, &translated()).await;
        assert_eq!(fabric.open(SERVER).await, Ok(()));
        assert_eq!((write(&fabric, 3).await, served.word()), (Ok(()), 3));
    });
}

#[test]
fn an_operation_has_no_effect_if_one_bit_before_its_end_was_changed() {
    simulate(async {
        let served = Served::new().await;
        let between = Between::new(served.address).await;
        for at in 0.. {
            served.set(FIRST);
            let (change, is_done) = flip(at);
            drop(between.to_server.replace(change));
            let fabric = opener(between.address, &translated()).await;
            let (opened, written) = (fabric.open(SERVER).await, write(&fabric, 3).await);
            if !is_done.get() {
                assert_eq!((opened, written, served.word()), (Ok(()), Ok(()), 3));
                assert!(at > 200, "all bytes of a write were changed");
                return;
            }
            assert_eq!(served.word(), FIRST, "byte {at}");
            assert!(written.is_err(), "byte {at}");
        }
    });
}

#[test]
fn an_answer_is_not_believed_if_one_bit_before_its_end_was_changed() {
    simulate(async {
        let served = Served::new().await;
        let between = Between::new(served.address).await;
        for at in 0.. {
            let (change, is_done) = flip(at);
            drop(between.to_opener.replace(change));
            let fabric = opener(between.address, &translated()).await;
            let (opened, found) = (fabric.open(SERVER).await, read(&fabric).await);
            if !is_done.get() {
                assert_eq!((opened, found), (Ok(()), Ok(FIRST)));
                assert!(at > 100, "all bytes of an answer were changed");
                return;
            }
            assert!(found.is_err(), "byte {at}: {found:?}");
        }
    });
}

#[test]
fn bytes_that_were_recorded_have_no_effect_when_they_come_again() {
    simulate(async {
        let served = Served::new().await;
        let between = Between::new(served.address).await;
        let fabric = opener(between.address, &translated()).await;
        assert_eq!(fabric.open(SERVER).await, Ok(()));
        between.recorded.borrow_mut().clear();
        assert_eq!(write(&fabric, 3).await, Ok(()));
        // The same write once more, behind the next one of this connection.
        let again = between.recorded.borrow().clone();
        assert_eq!(write(&fabric, 4).await, Ok(()));
        let repeat = move |bytes: &mut Vec<u8>| bytes.extend_from_slice(&again);
        drop(between.to_server.replace(Box::new(repeat)));
        let read_back = read(&fabric).await;
        assert_eq!(served.word(), 4, "{read_back:?}");
        sleep(Duration::from_secs(1)).await;
        assert!(write(&fabric, 5).await.is_err(), "the connection has ended");
        assert_eq!(served.word(), 4);
        drop(between.to_server.replace(Box::new(|_| ())));

        // A whole connection once more.
        between.recorded.borrow_mut().clear();
        drop(fabric);
        let fabric = opener(between.address, &translated()).await;
        assert_eq!(fabric.open(SERVER).await, Ok(()));
        assert_eq!(write(&fabric, 6).await, Ok(()));
        served.set(FIRST);
        let recorded = between.recorded.borrow().clone();
        say(served.address, recorded.into()).await;
        assert_eq!(served.word(), FIRST);
    });
}

#[test]
fn who_greets_slowly_is_sent_away_however_often_a_byte_comes() {
    simulate(async {
        let served = Served::new().await;
        let (mut reader, mut writer) = net::connect(served.address).await.expect("connected");
        let begun = now();
        let hello = frame(&First::Hello(Bytes::from(vec![1; 100])));
        let drips = async {
            for byte in hello.iter() {
                let _ = writer.write_all(Bytes::copy_from_slice(&[*byte])).await;
                sleep(Duration::from_secs(2)).await;
            }
        };
        let mut heard = BytesMut::new();
        let ends = async { while matches!(reader.read(&mut heard).await, Ok(n) if n > 0) {} };
        race(drips, ends).await;
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert!(heard.is_empty());
    });
}

#[test]
fn nobodies_do_not_keep_out_who_has_a_key() {
    simulate(async {
        let served = Served::new().await;
        let mut nobodies = Vec::new();
        for _ in 0..1200 {
            nobodies.push(net::connect(served.address).await.expect("connected"));
        }
        let fabric = opener(served.address, &credentials(1)).await;
        assert_eq!(fabric.open(SERVER).await, Ok(()));
        assert_eq!((write(&fabric, 3).await, served.word()), (Ok(()), 3));
        let (mut first, _writer) = nobodies.swap_remove(0);
        let mut heard = BytesMut::new();
        let ended = timeout(Duration::from_secs(1), first.read(&mut heard)).await;
        assert!(!matches!(ended, None | Some(Ok(1..))), "it makes room");
    });
}

#[test]
fn the_fault_that_everybody_is_heard_is_found() {
    fault::plant(Some("farm_fabric_hears_everybody"));
    simulate(async {
        let served = Served::new().await;
        let fabric = opener(served.address, &Credentials::none()).await;
        assert_eq!(fabric.open(SERVER).await, Ok(()));
        assert_eq!((write(&fabric, 9).await, served.word()), (Ok(()), 9));
    });
    fault::plant(None);
    fault::found("farm_fabric_hears_everybody");
}
