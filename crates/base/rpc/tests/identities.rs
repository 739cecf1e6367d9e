//! Who may send what, and what happens to bytes that somebody changes or repeats on the way.

use bytes::{Bytes, BytesMut};
use plinth_core::{Error, Result, Uid, record};
use plinth_identity::Identity;
use plinth_identity::greeting::Refusal;
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_rpc::{
    Credentials, Endpoint, Interface, Registration, Request, Responder, Transport, requests,
};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, fault, join_all, net, race, sleep, spawn};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

record! {
    pub struct Look {
        pub number: u64,
    }

    pub struct Read {
        pub number: u64,
    }

    pub struct Write {
        pub ballast: Bytes,
    }

    pub struct Configure {
        pub number: u64,
    }

    pub struct Recruit {
        pub number: u64,
    }

    /// Asks who the caller is; refused if `only` is more.
    pub struct WhoAmI {
        pub only: u8,
    }
}

requests! {
    Look = 60010 for Anybody => u64;
    Read = 60011 for Readers => u64;
    Write = 60012 for Clients => Bytes;
    Configure = 60013 for Operators => u64;
    Recruit = 60014 for Servers => u64;
    WhoAmI = 60015 for Anybody => u8;
}

const ROLE: Uid = Uid(7);

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

fn keys(root: u8) -> KeyFile {
    KeyFile::new_root([root; 32])
}

fn ring(file: &KeyFile) -> Option<Keyring> {
    Some(Keyring::new(file))
}

fn server() -> Credentials {
    Credentials::new(ring(&keys(1)), Identity::Server)
}

/// Somebody who has only the key of this identity.
fn holder(identity: Identity) -> Credentials {
    let file = keys(1).for_identity(identity).expect("lower");
    Credentials::new(ring(&file), identity)
}

/// How often each request was executed.
type Done = Rc<Cell<u64>>;

async fn serve(credentials: Credentials, done: Done) {
    let transport = Transport::listen_with(address(), credentials).await;
    let transport = transport.expect("listens");
    let count = {
        let done = done.clone();
        move || {
            done.set(done.get() + 1);
            done.get()
        }
    };
    let (a, b, c, d, e) = (
        count.clone(),
        count.clone(),
        count.clone(),
        count.clone(),
        count,
    );
    let _serving = (
        transport.serve::<Look>(ROLE, move |_, responder| responder.ok(a())),
        transport.serve::<Read>(ROLE, move |_, responder| responder.ok(b())),
        transport.serve::<Write>(ROLE, move |write, responder| {
            c();
            responder.ok(write.ballast);
        }),
        transport.serve::<Configure>(ROLE, move |_, responder| responder.ok(d())),
        transport.serve::<Recruit>(ROLE, move |_, responder| responder.ok(e())),
        serve_who_am_i(&transport),
    );
    std::future::pending::<()>().await;
}

fn serve_who_am_i(transport: &Transport) -> Registration {
    transport.serve::<WhoAmI>(ROLE, |asked, responder| match responder.caller() as u8 {
        caller if caller < asked.only => responder.deny("it asks for more than it is"),
        caller => responder.ok(caller),
    })
}

/// Runs `client` beside a process with these credentials.
fn with_server<F: Future<Output = ()> + 'static>(
    credentials: fn() -> Credentials,
    client: impl FnOnce(Done) -> F + 'static,
) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let done = Done::default();
    let of_server = done.clone();
    simulation.start_process(machine, address(), move || {
        Box::pin(serve(credentials(), of_server.clone()))
    });
    let ended = simulation.run_until(client(done), Duration::from_secs(600));
    ended.expect("it comes to its end");
}

fn endpoint<R: Request>(at: SocketAddr) -> Endpoint {
    Interface::new(at, ROLE).endpoint::<R>()
}

/// Which of the five requests are done, from the lowest audience to the highest.
async fn allowed(transport: &Transport) -> [Result<()>; 5] {
    let (at, number) = (address(), 1);
    let ballast = Bytes::from_static(b"row");
    [
        transport
            .call(&endpoint::<Look>(at), Look { number })
            .await
            .map(drop),
        transport
            .call(&endpoint::<Read>(at), Read { number })
            .await
            .map(drop),
        transport
            .call(&endpoint::<Write>(at), Write { ballast })
            .await
            .map(drop),
        transport
            .call(&endpoint::<Configure>(at), Configure { number })
            .await
            .map(drop),
        transport
            .call(&endpoint::<Recruit>(at), Recruit { number })
            .await
            .map(drop),
    ]
}

fn only_the_first(count: usize) -> [Result<()>; 5] {
    let of = |at| {
        if at < count {
            Ok(())
        } else {
            Err(Error::permission_denied)
        }
    };
    std::array::from_fn(of)
}

#[test]
fn each_identity_may_send_what_is_for_it_and_all_lower_ones() {
    for (may, identity) in (1..).zip(Identity::ALL) {
        with_server(server, move |done| async move {
            let credentials = match identity {
                Identity::Nobody => Credentials::none(),
                identity => holder(identity),
            };
            let transport = Transport::client_with(credentials);
            assert_eq!(allowed(&transport).await, only_the_first(may), "{identity}");
            assert_eq!(done.get(), may as u64, "what is refused has no effect");
        });
    }
}

#[test]
fn a_handler_learns_who_asks_and_may_refuse() {
    let ask = async |credentials: Credentials| {
        let transport = Transport::client_with(credentials);
        let asked = |only| transport.call(&endpoint::<WhoAmI>(address()), WhoAmI { only });
        (asked(0).await, asked(Identity::Operator as u8).await)
    };
    for identity in Identity::ALL {
        with_server(server, move |_| async move {
            let credentials = match identity {
                Identity::Nobody => Credentials::none(),
                identity => holder(identity),
            };
            let is_enough = identity >= Identity::Operator;
            let second = is_enough.then_some(identity as u8);
            let second = second.ok_or(Error::permission_denied);
            assert_eq!(ask(credentials).await, (Ok(identity as u8), second));
        });
    }
    let all = Identity::Server as u8;
    with_server(Credentials::none, move |_| async move {
        assert_eq!(ask(Credentials::none()).await, (Ok(all), Ok(all)));
    });
    // In the same worker there is no connection that could have another key.
    Simulation::new(1, SimConfig::default()).run(async move {
        let transport = Transport::local(address());
        let _serving = serve_who_am_i(&transport);
        let asked = transport.call(&endpoint::<WhoAmI>(address()), WhoAmI { only: all });
        assert_eq!(asked.await, Ok(all));
    });
}

#[test]
fn whoever_wants_more_than_their_keys_give_is_what_they_give() {
    with_server(server, |_| async move {
        let file = keys(1).for_identity(Identity::Client).expect("lower");
        let transport = Transport::client_with(Credentials::new(ring(&file), Identity::Server));
        assert_eq!(allowed(&transport).await, only_the_first(3));
        let all = Transport::client_with(Credentials::new(ring(&keys(1)), Identity::Reader));
        assert_eq!(allowed(&all).await, only_the_first(2));
    });
}

#[test]
fn a_cluster_that_is_open_takes_strangers_for_clients_and_never_for_servers() {
    let open = || {
        let mut file = keys(1);
        file.set_open_to(Identity::Server);
        Credentials::new(ring(&file), Identity::Server)
    };
    with_server(open, |_| async move {
        assert_eq!(allowed(&Transport::client()).await, only_the_first(3));
    });
}

#[test]
fn without_keys_everybody_is_trusted() {
    with_server(Credentials::none, |_| async move {
        assert_eq!(allowed(&Transport::client()).await, only_the_first(5));
        let strict = Transport::client_with(holder(Identity::Client));
        assert_eq!(allowed(&strict).await, [Err(Error::connection_failed); 5]);
        let refusal = strict.ungreeted(&address().into());
        assert!(matches!(refusal, Some(Refusal::PeerHasNoKeys(ids)) if ids.len() == 1));
        let tolerant = Transport::client_with(holder(Identity::Client).tolerating_strangers());
        assert_eq!(allowed(&tolerant).await, only_the_first(5));
    });
}

#[test]
fn keys_of_another_cluster_lead_nowhere() {
    with_server(server, |done| async move {
        let other = Credentials::new(ring(&keys(2)), Identity::Server);
        let transport = Transport::client_with(other.clone());
        assert_eq!(
            allowed(&transport).await,
            [Err(Error::connection_failed); 5]
        );
        let refusal = transport.ungreeted(&address().into());
        assert!(
            matches!(refusal, Some(Refusal::KeysUnknownToPeer(_))),
            "{refusal:?}"
        );
        assert_eq!(done.get(), 0);
        // The right key comes while the process runs.
        other.set_keys(ring(&keys(1)));
        assert_eq!(allowed(&transport).await, only_the_first(5));
        assert_eq!(transport.ungreeted(&address().into()), None);
    });
}

#[test]
fn requests_that_were_sent_before_the_greeting_come_once_and_in_order() {
    with_server(server, |done| async move {
        let transport = Transport::client_with(holder(Identity::Client));
        let sizes = [0, 1, 100, 70_000, 3 << 20, 5];
        let write = |bytes: usize| {
            let ballast = Bytes::from(vec![bytes as u8; bytes]);
            transport.call(&endpoint::<Write>(address()), Write { ballast })
        };
        for _ in 0..2 {
            let answers = join_all(sizes.map(write)).await;
            let answers: Vec<usize> = answers
                .into_iter()
                .map(|a| a.expect("done").len())
                .collect();
            assert_eq!(answers, sizes);
        }
        assert_eq!(done.get(), 12);
    });
}

#[test]
fn silent_nobodies_keep_nobody_out_who_has_a_key() {
    with_server(server, |_| async move {
        let mut silent = Vec::new();
        for _ in 0..1200 {
            silent.push(net::connect(address()).await.expect("there is room"));
        }
        let transport = Transport::client_with(holder(Identity::Client));
        assert_eq!(allowed(&transport).await, only_the_first(3));
        // The oldest have made room, and the newest are still heard.
        let is_over = async |reader: &mut net::Reader| {
            let mut bytes = BytesMut::new();
            let limit = Duration::from_millis(100);
            let heard = plinth_runtime::timeout(limit, reader.read(&mut bytes)).await;
            matches!(heard, Some(Ok(0) | Err(_)))
        };
        assert!(is_over(&mut silent[0].0).await);
        assert!(!is_over(&mut silent[1199].0).await);
    });
}

#[test]
fn a_nobody_is_heard_a_hundred_times() {
    with_server(server, |done| async move {
        let transport = Transport::client();
        let at = address();
        let ask = |number: u8| transport.call(&endpoint::<Write>(at), write_of(number));
        let answers = join_all((0..300).map(|number| ask(number as u8))).await;
        let denied = answers
            .iter()
            .take_while(|answer| **answer == Err(Error::permission_denied));
        assert_eq!(denied.count(), 100);
        assert_eq!(answers[100], Err(Error::request_maybe_delivered));
        assert_eq!(done.get(), 0);
    });
}

#[test]
fn a_client_has_a_quarter_of_a_million_requests_under_way_and_the_next_are_refused() {
    const MOST: usize = 1 << 18;
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    simulation.start_process(machine, address(), || {
        Box::pin(async {
            let transport = Transport::listen_with(address(), server()).await;
            let transport = transport.expect("listens");
            let kept: Rc<RefCell<Vec<Responder<Read>>>> = Rc::default();
            let answered = kept.clone();
            let _serving = (
                transport.serve::<Read>(ROLE, move |_, to| kept.borrow_mut().push(to)),
                transport.serve::<Write>(ROLE, move |write, to| {
                    answered.take().into_iter().for_each(|of| of.ok(7));
                    to.ok(write.ballast);
                }),
            );
            std::future::pending::<()>().await;
        })
    });
    let work = async {
        let transport = Transport::client_with(holder(Identity::Client));
        let read = |number| transport.call(&endpoint::<Read>(address()), Read { number });
        let asked: Vec<_> = (0..MOST as u64 + 1000).map(read).collect();
        sleep(Duration::from_secs(60)).await;
        let write = async |by: &Transport| {
            let asked = by.call(&endpoint::<Write>(address()), write_of(1));
            asked.await.err()
        };
        assert_eq!(write(&transport).await, Some(Error::server_overloaded));
        // Each connection has its own, and this one lets the first requests of the other be answered.
        let other = Transport::client_with(holder(Identity::Client));
        assert_eq!(write(&other).await, None);
        let answers = join_all(asked).await;
        let answered = answers
            .iter()
            .take_while(|answer| **answer == Ok(7))
            .count();
        assert!((MOST - 20..MOST).contains(&answered), "{answered}");
        let refused = |answer: &Result<u64>| *answer == Err(Error::server_overloaded);
        assert!(answers[answered..].iter().all(refused));
        assert_eq!(write(&transport).await, None);
    };
    let ended = simulation.run_until(work, Duration::from_secs(600));
    ended.expect("it comes to its end");
}

fn write_of(number: u8) -> Write {
    let ballast = Bytes::from(vec![number; 10]);
    Write { ballast }
}

/// Where the process in between listens.
fn between() -> SocketAddr {
    ([10, 0, 0, 2], 4501).into()
}

/// Carries bytes of connections to the server, as `change` wants them: it is given each piece of the direction to the
/// server, with its number.
async fn carry(change: Rc<dyn Fn(usize, &mut BytesMut)>) {
    let mut listener = net::listen(between()).await.expect("listens");
    loop {
        let Ok((mut from, mut back, _)) = listener.accept().await else {
            return;
        };
        let change = change.clone();
        spawn("between", async move {
            let Ok((mut server, mut to)) = net::connect(address()).await else {
                return;
            };
            let there = async {
                for number in 0.. {
                    let mut piece = BytesMut::new();
                    if !matches!(from.read(&mut piece).await, Ok(bytes) if bytes > 0) {
                        return;
                    }
                    change(number, &mut piece);
                    if to.write_all(piece.freeze()).await.is_err() {
                        return;
                    }
                }
            };
            let and_back = async {
                loop {
                    let mut piece = BytesMut::new();
                    if !matches!(server.read(&mut piece).await, Ok(bytes) if bytes > 0) {
                        return;
                    }
                    if back.write_all(piece.freeze()).await.is_err() {
                        return;
                    }
                }
            };
            race(there, and_back).await;
        })
        .detach();
    }
}

/// Sends a request through somebody in between. Returns its outcome, and how often it was executed.
fn through(change: Rc<dyn Fn(usize, &mut BytesMut)>) -> (Result<u64>, u64) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let done = Done::default();
    let of_server = done.clone();
    // Addresses are translated on the way, as far as both know.
    simulation.start_process(machine, address(), move || {
        Box::pin(serve(server(), of_server.clone()))
    });
    let other = simulation.add_machine(Locality::default());
    simulation.start_process(other, between(), move || Box::pin(carry(change.clone())));
    let work = async move {
        sleep(Duration::from_millis(10)).await;
        let credentials = holder(Identity::Reader).for_any_address();
        let transport = Transport::client_with(credentials);
        let read = transport.call(&endpoint::<Read>(between()), Read { number: 5 });
        read.await
    };
    let outcome = simulation.run_until(work, Duration::from_secs(60));
    (outcome.expect("it comes to its end"), done.get())
}

#[test]
fn what_is_changed_on_the_way_ends_the_connection_without_effect() {
    assert_eq!(through(Rc::new(|_, _| ())), (Ok(1), 1));
    // The hello, the proof, and the request: each bit of them.
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let noted = lengths.clone();
    let _ = through(Rc::new(move |_, piece| {
        noted.borrow_mut().push(piece.len())
    }));
    let lengths = lengths.borrow().clone();
    assert!(lengths.len() >= 3, "{lengths:?}");
    for (number, length) in lengths.into_iter().enumerate().take(3) {
        for at in (0..length).step_by(3) {
            let flips = Cell::new(1);
            let (outcome, done) = through(Rc::new(move |now, piece: &mut BytesMut| {
                if now == number && flips.replace(0) > 0 {
                    piece[at] ^= 1;
                }
            }));
            // It is sent again on a new connection only if it was certainly not executed.
            assert!(
                done <= 1 && (outcome.is_ok() || done == 0),
                "{number} {at} {outcome:?} {done}"
            );
        }
    }
}

#[test]
fn what_is_repeated_on_the_way_is_not_executed_twice() {
    let (outcome, done) = through(Rc::new(|number, piece| {
        if number >= 2 {
            let again = piece.clone();
            piece.extend_from_slice(&again);
        }
    }));
    assert_eq!(done, 1, "{outcome:?}");
}

/// A recorded connection of an operator, sent again: what was said by the opener, in order.
fn replayed() -> u64 {
    let recorded = Rc::new(RefCell::new(Vec::new()));
    let to = recorded.clone();
    let note = Rc::new(move |_: usize, piece: &mut BytesMut| to.borrow_mut().push(piece.clone()));
    let (outcome, _) = through(note);
    assert!(outcome.is_ok());
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let done = Done::default();
    let of_server = done.clone();
    simulation.start_process(machine, address(), move || {
        Box::pin(serve(server(), of_server.clone()))
    });
    let pieces = recorded.borrow().clone();
    let work = async move {
        sleep(Duration::from_millis(10)).await;
        let (mut reader, mut writer) = net::connect(address()).await.expect("it listens");
        for piece in pieces {
            if writer.write_all(piece.freeze()).await.is_err() {
                return;
            }
            let mut answer = BytesMut::new();
            let _ = plinth_runtime::timeout(Duration::from_secs(1), reader.read(&mut answer)).await;
        }
    };
    simulation
        .run_until(work, Duration::from_secs(60))
        .expect("it comes to its end");
    done.get()
}

#[test]
fn a_recorded_connection_that_is_sent_again_has_no_effect() {
    assert_eq!(replayed(), 0);
    fault::plant(Some("rpc_nonce_is_used_twice"));
    let with_fault = replayed();
    fault::plant(None);
    assert_eq!(with_fault, 1, "the planted fault is not found");
    fault::found("rpc_nonce_is_used_twice");
}

#[test]
fn an_audience_that_is_not_checked_is_found() {
    fault::makes_panic("rpc_audience_is_not_checked", "left == right", || {
        with_server(server, |_| async move {
            assert_eq!(allowed(&Transport::client()).await, only_the_first(1));
        });
    });
}
