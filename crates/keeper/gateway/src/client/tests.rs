//! The client against servers that behave well or badly, in the simulator.

use super::*;
use crate::wire::{
    AnswerHeader, Dialect, Header, Stat, XidWidth, decode_connect_request, decode_request,
    encode_answer, encode_connect_answer, encode_event, event,
};
use plinth_runtime::net::listen;
use plinth_runtime::serve::{accept, session};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{TaskGroup, now};
use std::ops::ControlFlow;

const TIMEOUT_MS: i32 = 6000;
const SESSION_ID: i64 = 0x1234;
const ZXID: i64 = 77;

/// What the server of a test has seen.
#[derive(Default)]
struct Seen {
    greetings: RefCell<Vec<ConnectRequest>>,
    requests: RefCell<Vec<(Header, Request)>>,
}

impl Seen {
    fn count(&self, wanted: &Request) -> usize {
        let requests = self.requests.borrow();
        requests.iter().filter(|(_, seen)| seen == wanted).count()
    }
}

/// Answers one request, or ends the connection.
type Script = fn(&mut Output, Header, &Request) -> ControlFlow<()>;

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 2181).into()
}

fn header(xid: Xid, error: i32) -> AnswerHeader {
    AnswerHeader {
        xid,
        zxid: ZXID,
        error,
    }
}

/// Behaves well: what is read of a path is a number in its name.
fn well(out: &mut Output, request: Header, body: &Request) -> ControlFlow<()> {
    let ok = header(request.xid, 0);
    match body {
        Request::GetAllChildrenNumber { path } => {
            let number = path[1..].parse().expect("the path is a number");
            encode_answer(out, ok, &Answer::Number(number));
        }
        Request::Sync { path } => encode_answer(out, ok, &Answer::Sync(path.clone())),
        Request::Exists { path, watch: true } => {
            encode_answer(out, ok, &Answer::Stat(Stat::default()));
            let created = WatchEvent::of_a_node(event::CREATED, path.clone(), ZXID + 1);
            encode_event(out, &created, XidWidth::Four);
        }
        Request::GetData { .. } => {
            let error = header(request.xid, Code::NO_NODE.0);
            encode_answer(out, error, &Answer::Empty);
        }
        // Cut off without an answer.
        Request::Delete { .. } => return ControlFlow::Break(()),
        _ => encode_answer(out, ok, &Answer::Empty),
    }
    ControlFlow::Continue(())
}

/// Greets, then answers with `script`. A session of the past has expired.
async fn serve(seen: Rc<Seen>, script: Script, mut inbox: Inbox, outbox: Rc<Outbox>) {
    let mut is_greeted = false;
    let push = |append: &dyn Fn(&mut Output) -> ControlFlow<()>| {
        let mut flow = ControlFlow::Continue(());
        let pushed = outbox.push(|out| {
            flow = append(out);
            Ok::<(), Infallible>(())
        });
        pushed.expect("there is room");
        flow
    };
    loop {
        let Some(frame) = take_frame(&mut inbox.buffer, 1 << 20).expect("it is no long request")
        else {
            let limit = duration(TIMEOUT_MS);
            match inbox.read_within(limit).await {
                Some(_) => continue,
                None => return,
            }
        };
        if !is_greeted {
            is_greeted = true;
            let greeting = decode_connect_request(frame).expect("it is a greeting");
            let is_over = ![0, SESSION_ID].contains(&greeting.session_id);
            let answer = ConnectAnswer {
                protocol_version: 0,
                timeout_ms: if is_over { 0 } else { TIMEOUT_MS },
                session_id: if is_over { 0 } else { SESSION_ID },
                password: Bytes::from_static(b"secret"),
                read_only: greeting.read_only,
            };
            seen.greetings.borrow_mut().push(greeting);
            let _ = push(&|out| {
                encode_connect_answer(out, &answer);
                ControlFlow::Continue(())
            });
            continue;
        }
        let (header, request) =
            decode_request(frame, Dialect::ClickHouse, XidWidth::Four).expect("it has a header");
        let request = request.expect("it can be read");
        seen.requests.borrow_mut().push((header, request.clone()));
        if push(&|out| script(out, header, &request)).is_break() {
            return;
        }
    }
}

/// Runs `client` against a server of such connections.
fn run(script: Script, client: impl AsyncFnOnce(Rc<Seen>) + 'static) {
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
                let work = move |inbox, outbox| serve(seen, script, inbox, outbox);
                sessions.spawn("session", session(connection, work));
                ControlFlow::Continue(())
            })
            .await;
        })
    });
    let ended = simulation.run_until(async move { client(seen).await }, Duration::from_secs(300));
    ended.expect("it comes to its end");
}

async fn connected() -> Client {
    let client = Client::connect(address(), TIMEOUT_MS, None).await;
    client.expect("the server lives")
}

fn number(number: usize) -> Request {
    Request::GetAllChildrenNumber {
        path: format!("/{number}").into(),
    }
}

fn sync() -> Request {
    let path = Some("/".into());
    Request::Sync { path }
}

#[test]
fn many_requests_are_in_flight_and_each_gets_its_own_answer() {
    run(well, async |_| {
        let client = connected().await;
        let answers: Vec<_> = (0..2000).map(|n| client.submit(number(n))).collect();
        assert_eq!(client.in_flight(), 2000);
        // In any order: each future has its own answer.
        for (n, answer) in answers.into_iter().enumerate().rev() {
            assert_eq!(answer.await, Ok((ZXID, Answer::Number(n as i32))));
        }
        assert_eq!((client.in_flight(), client.last_zxid()), (0, ZXID));
    });
}

#[test]
fn an_answer_that_nobody_waits_for_is_dropped_and_the_next_one_is_right() {
    run(well, async |seen| {
        let client = connected().await;
        drop(client.submit(number(1)));
        let second = client.submit(number(2)).await;
        assert_eq!(second, Ok((ZXID, Answer::Number(2))));
        assert_eq!(seen.count(&number(1)), 1);
    });
}

#[test]
fn a_refusal_is_the_failure_of_its_request_only() {
    run(well, async |_| {
        let client = connected().await;
        let get = Request::GetData {
            path: "/a".into(),
            watch: false,
        };
        let refused = client.submit(get).await;
        assert_eq!(refused, Err(Failure::Refused(Code::NO_NODE)));
        assert!(client.submit(sync()).await.is_ok());
        assert_eq!(client.failure(), None);
    });
}

#[test]
fn answers_out_of_order_fail_all_requests_loudly() {
    let swapped: Script = |out, _, _| {
        encode_answer(out, header(XidWidth::Four.of(2), 0), &Answer::Empty);
        ControlFlow::Continue(())
    };
    run(swapped, async |_| {
        let client = connected().await;
        let broken = Err(Failure::Broken("an answer out of order"));
        let (first, second) = (client.submit(sync()), client.submit(sync()));
        assert_eq!(
            (first.await, second.await),
            (broken.clone(), broken.clone())
        );
        assert_eq!(client.submit(sync()).await, broken);
        assert_eq!(client.next_event().await, None);
    });
}

#[test]
fn an_answer_to_no_request_or_with_a_false_body_ends_the_connection_loudly() {
    let twice: Script = |out, request, body| {
        let _ = well(out, request, body);
        well(out, request, body)
    };
    run(twice, async |_| {
        let client = connected().await;
        assert!(client.submit(sync()).await.is_ok());
        assert_eq!(client.next_event().await, None);
        let failure = Failure::Broken("an answer to no request");
        assert_eq!(client.failure(), Some(failure));
    });
    let empty: Script = |out, request, _| {
        encode_answer(out, header(request.xid, 0), &Answer::Empty);
        ControlFlow::Continue(())
    };
    run(empty, async |_| {
        let client = connected().await;
        let failure = Failure::Broken("an answer that cannot be read");
        assert_eq!(client.submit(sync()).await, Err(failure));
        assert_eq!(client.submit(sync()).await, Err(failure));
    });
}

#[test]
fn an_idle_client_keeps_its_session_alive() {
    // The server cuts a connection on which nothing comes for the session's timeout.
    run(well, async |seen| {
        let client = connected().await;
        sleep(duration(TIMEOUT_MS) * 10).await;
        assert!(client.submit(sync()).await.is_ok());
        let pings = seen.count(&Request::Ping);
        assert!((20..=31).contains(&pings), "{pings} pings");
    });
}

#[test]
fn a_busy_client_sends_no_pings() {
    run(well, async |seen| {
        let client = connected().await;
        for _ in 0..100 {
            assert!(client.submit(sync()).await.is_ok());
            sleep(Duration::from_millis(300)).await;
        }
        assert_eq!(seen.count(&Request::Ping), 0);
    });
}

#[test]
fn a_silent_server_is_given_up_before_the_session_ends() {
    let silent: Script = |_, _, _| ControlFlow::Continue(());
    run(silent, async |_| {
        let client = connected().await;
        let began = now();
        assert_eq!(client.submit(sync()).await, Err(Failure::Lost));
        let lasted = began.elapsed();
        assert!(lasted < duration(TIMEOUT_MS) * 7 / 10, "{lasted:?}");
        assert_eq!(client.failure(), Some(Failure::Lost));
    });
}

#[test]
fn events_wait_until_they_are_taken_and_end_with_the_connection() {
    run(well, async |_| {
        let client = connected().await;
        for path in ["/a", "/b"] {
            let exists = Request::Exists {
                path: path.into(),
                watch: true,
            };
            assert!(client.submit(exists).await.is_ok());
        }
        let delete = Request::Delete {
            path: "/a".into(),
            version: -1,
        };
        let (lost, after) = (client.submit(delete), client.submit(sync()));
        assert_eq!(
            (lost.await, after.await),
            (Err(Failure::Lost), Err(Failure::Lost))
        );
        for path in ["/a", "/b"] {
            let created = WatchEvent::of_a_node(event::CREATED, path.into(), ZXID + 1);
            assert_eq!(client.next_event().await, Some(created));
        }
        assert_eq!(client.next_event().await, None);
    });
}

#[test]
fn a_session_is_taken_along_to_another_connection_unless_it_has_expired() {
    run(well, async |seen| {
        let first = connected().await;
        assert_eq!(first.session(), (SESSION_ID, "secret".into(), 0));
        assert!(first.submit(sync()).await.is_ok());
        let session = first.session();
        drop(first);
        let second = Client::connect(address(), TIMEOUT_MS, Some(session)).await;
        assert_eq!(second.expect("it lives").session_id(), SESSION_ID);
        let expired = Client::connect(address(), TIMEOUT_MS, Some((9, Bytes::new(), 0))).await;
        assert_eq!(expired.err(), Some(Failure::Refused(Code::SESSION_EXPIRED)));
        let greetings = seen.greetings.borrow();
        assert_eq!(
            (greetings[0].session_id, &greetings[0].password),
            (0, &NO_PASSWORD)
        );
        assert_eq!(greetings[1].session_id, SESSION_ID);
        assert_eq!(
            (&greetings[1].password[..], greetings[1].last_zxid_seen),
            (&b"secret"[..], ZXID)
        );
    });
}

#[test]
fn a_connection_that_cannot_be_had_is_lost_in_time() {
    run(well, async |_| {
        let nobody = ([10, 0, 0, 99], 2181).into();
        let client = Client::connect(nobody, TIMEOUT_MS, None).await;
        assert_eq!(client.err(), Some(Failure::Lost));
    });
}

#[test]
fn closing_ends_the_session_after_all_earlier_requests() {
    run(well, async |seen| {
        let client = connected().await;
        let earlier = client.submit(sync());
        assert_eq!(client.close().await, Ok(()));
        assert!(earlier.await.is_ok());
        let requests = seen.requests.borrow();
        let requests: Vec<&Request> = requests.iter().map(|(_, request)| request).collect();
        assert_eq!(requests, [&sync(), &Request::CloseSession]);
    });
}

#[test]
fn authentication_pings_and_watches_have_numbers_of_their_own() {
    run(well, async |seen| {
        let client = connected().await;
        let auth = Request::Auth {
            kind: 0,
            scheme: "digest".into(),
            auth: Some("u:p".into()),
        };
        let watches = Request::SetWatches {
            relative_zxid: 1,
            data: vec!["/a".into()],
            exist: vec![],
            child: vec![],
            persistent: vec![],
            recursive: vec![],
            breaks_off: false,
        };
        let requests = [auth, Request::Ping, sync(), watches];
        let answers = requests.map(|request| client.submit(request));
        for answer in answers {
            assert!(answer.await.is_ok());
        }
        let seen = seen.requests.borrow();
        let xids: Vec<Xid> = seen.iter().map(|(header, _)| header.xid).collect();
        let expected = [xid::AUTH, xid::PING, 1, xid::SET_WATCHES];
        assert_eq!(xids, expected.map(Xid::from));
    });
}
