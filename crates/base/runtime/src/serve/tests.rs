//! Peers that are slow, silent or gone, in the simulator.

use super::*;
use crate::net::{connect, listen};
use crate::sim::{Locality, SimConfig, Simulation};
use crate::{TaskGroup, now, timeout};
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::output::Output;
use std::cell::RefCell;

const ANSWER_BYTES: usize = 10_000;
const UNSENT_BYTES_MAX: usize = 50_000;
const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// What the server of a test has seen.
#[derive(Default)]
struct Seen {
    requests: Cell<usize>,
    unsent_most: Cell<usize>,
    /// How long each session that has ended lasted.
    lasted: RefCell<Vec<Duration>>,
}

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

/// Answers each byte with ten thousand; the byte `q` ends the session.
async fn answer(seen: Rc<Seen>, mut inbox: Inbox, outbox: Rc<Outbox>) {
    loop {
        outbox.has_room(UNSENT_BYTES_MAX).await;
        if inbox.buffer.is_empty() && inbox.read_within(IDLE_LIMIT).await.is_none() {
            return;
        }
        let request = inbox.buffer.split_to(1);
        seen.requests.set(seen.requests.get() + 1);
        let append = |out: &mut Output| {
            out.buffer().put_bytes(request[0], ANSWER_BYTES);
            Ok::<(), ()>(())
        };
        outbox.push(append).expect("there is room");
        seen.unsent_most
            .set(seen.unsent_most.get().max(outbox.len()));
        if request[0] == b'q' {
            return;
        }
    }
}

/// Runs `client` against a server of such sessions.
fn run(client: impl AsyncFnOnce(Rc<Seen>) + 'static) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let seen = Rc::<Seen>::default();
    let of_server = seen.clone();
    simulation.start_process(machine, address(), move || {
        let seen = of_server.clone();
        Box::pin(async move {
            let listener = listen(address()).await.expect("the address is free");
            let sessions = TaskGroup::new();
            accept(listener, |connection| {
                let seen = seen.clone();
                sessions.spawn("session", async move {
                    let began = now();
                    let work = |inbox, outbox| answer(seen.clone(), inbox, outbox);
                    session(connection, work).await;
                    seen.lasted.borrow_mut().push(began.elapsed());
                });
                ControlFlow::Continue(())
            })
            .await;
        })
    });
    let ended = simulation.run_until(async move { client(seen).await }, Duration::from_secs(300));
    ended.expect("it comes to its end");
}

#[test]
fn a_peer_that_reads_no_answers_is_not_read_either() {
    run(async |seen| {
        let (mut reader, mut writer) = connect(address()).await.expect("it listens");
        let requests = Bytes::from(vec![b'a'; 100_000]);
        let writing = timeout(Duration::from_secs(60), writer.write_all(requests));
        writing
            .await
            .expect("the network takes it")
            .expect("it lives");
        sleep(Duration::from_secs(10)).await;
        let executed = seen.requests.get();
        assert!(
            executed < 100_000,
            "all were executed for a peer that reads nothing"
        );
        assert!(seen.unsent_most.get() <= UNSENT_BYTES_MAX + ANSWER_BYTES);
        // When it reads, the server goes on.
        let mut answers = BytesMut::new();
        while answers.len() < (executed + 100) * ANSWER_BYTES {
            reader.read(&mut answers).await.expect("it lives");
        }
    });
}

#[test]
fn a_peer_that_sends_nothing_is_closed_when_its_time_is_over() {
    run(async |seen| {
        let (mut reader, _writer) = connect(address()).await.expect("it listens");
        let read = reader.read(&mut BytesMut::new()).await;
        assert_eq!(read.ok(), Some(0), "the stream ends");
        let lasted = seen.lasted.borrow();
        assert_eq!(lasted.len(), 1);
        assert!(
            (IDLE_LIMIT..IDLE_LIMIT * 2).contains(&lasted[0]),
            "{lasted:?}"
        );
    });
}

#[test]
fn the_last_answers_are_written_before_a_session_ends() {
    run(async |_| {
        let (mut reader, mut writer) = connect(address()).await.expect("it listens");
        writer
            .write_all(Bytes::from("aaq"))
            .await
            .expect("it lives");
        let mut answers = BytesMut::new();
        while reader.read(&mut answers).await.is_ok_and(|bytes| bytes > 0) {}
        assert_eq!(answers.len(), 3 * ANSWER_BYTES);
        assert!(answers.ends_with(b"q"));
    });
}

#[test]
fn a_peer_that_goes_ends_its_session() {
    run(async |seen| {
        for _ in 0..3 {
            let (_reader, mut writer) = connect(address()).await.expect("it listens");
            writer.write_all(Bytes::from("a")).await.expect("it lives");
        }
        sleep(Duration::from_secs(5)).await;
        assert_eq!(seen.lasted.borrow().len(), 3);
    });
}

#[test]
fn a_peer_that_never_reads_is_cut_off_after_its_outbox_was_closed() {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let lasted = Rc::new(Cell::new(None));
    let of_server = lasted.clone();
    simulation.start_process(machine, address(), move || {
        let lasted = of_server.clone();
        Box::pin(async move {
            let listener = listen(address()).await.expect("the address is free");
            let sessions = TaskGroup::new();
            accept(listener, |connection| {
                let lasted = lasted.clone();
                sessions.spawn("session", async move {
                    let began = now();
                    session(connection, fill_and_close).await;
                    lasted.set(Some(began.elapsed()));
                });
                ControlFlow::Continue(())
            })
            .await;
        })
    });
    let deaf = async move {
        let halves = connect(address()).await.expect("it listens");
        sleep(Duration::from_secs(60)).await;
        drop(halves);
    };
    let ended = simulation.run_until(deaf, Duration::from_secs(300));
    ended.expect("it comes to its end");
    let lasted = lasted.get().expect("the session has ended");
    assert!(lasted < Duration::from_secs(20), "{lasted:?}");
}

/// Adds more than anybody takes unread, closes the outbox while it waits for room, and never ends by itself.
async fn fill_and_close(_: Inbox, outbox: Rc<Outbox>) {
    let fill = || {
        let append = |out: &mut Output| {
            out.buffer().put_bytes(b'x', 100 * UNSENT_BYTES_MAX);
            Ok::<(), ()>(())
        };
        outbox.push(append).expect("there is room");
    };
    fill();
    // The first bytes are being written from now on, the others wait.
    sleep(Duration::from_secs(1)).await;
    fill();
    let closing = async {
        sleep(Duration::from_secs(1)).await;
        outbox.close();
        std::future::pending::<()>().await;
    };
    race(outbox.has_room(1), closing).await;
    std::future::pending::<()>().await;
}
