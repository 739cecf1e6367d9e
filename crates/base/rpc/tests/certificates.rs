//! Connections that certificates protect, beside those with keys and those with nothing.

use bytes::{Bytes, BytesMut};
use plinth_core::{Error, Result, Uid, record};
use plinth_identity::Identity;
use plinth_identity::greeting::Refusal;
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_rpc::{Credentials, Interface, Transport, requests};
use plinth_runtime::sim::{KillKind, Locality, SimConfig, Simulation, control};
use plinth_runtime::{Duration, net, now, race, sleep, spawn, timeout};
use plinth_tls::testing::{Authority, Wanted, material};
use plinth_tls::{Certificates, Policy};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

record! {
    pub struct Write {
        pub ballast: Bytes,
    }

    pub struct Recruit {
        pub number: u64,
    }
}

requests! {
    Write = 60022 for Clients => Bytes;
    Recruit = 60024 for Servers => u64;
}

const ROLE: Uid = Uid(7);

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

/// Where the process in between listens.
fn between() -> SocketAddr {
    ([10, 0, 0, 2], 4501).into()
}

const IDENTITIES: [&str; 2] = ["server:S.CN=node", "client:S.CN=app"];

/// One authority, for all processes of a test.
#[derive(Clone)]
struct Place(Rc<Authority>);

impl Place {
    fn new() -> Place {
        Place(Rc::new(Authority::new("Our root")))
    }

    fn certificates(&self, name: &str) -> Certificates {
        let own = self.0.issue(&Wanted::named(name));
        let policy = Policy::parse([], IDENTITIES).expect("valid");
        Certificates::new(&material(&own, &self.0.pem), policy).expect("they fit")
    }

    /// With a certificate, and with `credentials`.
    fn with(&self, name: &str, opens: bool, credentials: Credentials) -> Credentials {
        let protected = credentials.with_certificates(self.certificates(name).handshakes());
        match opens {
            true => protected.opening_by_certificate(),
            false => protected,
        }
    }

    /// Opens by TLS, and has nothing else.
    fn opener(&self, name: &str) -> Credentials {
        self.with(name, true, Credentials::none())
    }

    /// Of a server at which nobody gets in who has neither a certificate nor a key.
    fn server(&self) -> Credentials {
        let keyed = Credentials::new(keys(), Identity::Server);
        self.with("node", true, keyed).closed_without_certificate()
    }
}

fn keys() -> Option<Keyring> {
    Some(Keyring::new(&KeyFile::new_root([1; 32])))
}

/// How often a request was executed.
type Done = Rc<Cell<u64>>;

async fn serve(credentials: Credentials, done: Done) {
    let transport = Transport::listen_with(address(), credentials).await;
    let transport = transport.expect("listens");
    let (one, other) = (done.clone(), done);
    let _serving = (
        transport.serve::<Write>(ROLE, move |write, responder| {
            one.set(one.get() + 1);
            responder.ok(write.ballast);
        }),
        transport.serve::<Recruit>(ROLE, move |_, responder| {
            other.set(other.get() + 1);
            responder.ok(other.get());
        }),
    );
    std::future::pending::<()>().await;
}

/// Runs `client` beside a server with these credentials, and beside a process in between.
fn beside<F: Future<Output = ()> + 'static>(
    credentials: impl Fn() -> Credentials + 'static,
    change: impl Fn(usize, &mut BytesMut) + 'static,
    client: impl FnOnce(Done) -> F + 'static,
) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let done = Done::default();
    let of_server = done.clone();
    simulation.start_process(machine, address(), move || {
        Box::pin(serve(credentials(), of_server.clone()))
    });
    let other = simulation.add_machine(Locality::default());
    let change = Rc::new(change);
    simulation.start_process(other, between(), move || Box::pin(carry(change.clone())));
    let running = async move {
        sleep(Duration::from_millis(10)).await;
        client(done).await;
    };
    let ended = simulation.run_until(running, Duration::from_secs(600));
    ended.expect("it comes to its end");
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

fn unchanged(_: usize, _: &mut BytesMut) {}

async fn write(transport: &Transport, to: SocketAddr, bytes: usize) -> Result<usize> {
    let ballast = Bytes::from(vec![bytes as u8; bytes]);
    let endpoint = Interface::new(to, ROLE).endpoint::<Write>();
    let reply = transport.call(&endpoint, Write { ballast }).await?;
    Ok(reply.len())
}

async fn recruit(transport: &Transport) -> Result<()> {
    let endpoint = Interface::new(address(), ROLE).endpoint::<Recruit>();
    let call = transport.call(&endpoint, Recruit { number: 1 });
    call.await.map(drop)
}

const DENIED: Error = Error::permission_denied;

#[test]
fn a_certificate_gives_what_it_stands_for_and_keys_go_on_beside_it() {
    let place = Place::new();
    let of_server = place.clone();
    beside(
        move || of_server.server(),
        unchanged,
        |_| async move {
            let of = Transport::client_with;
            let (app, node) = (of(place.opener("app")), of(place.opener("node")));
            for bytes in [0, 100, 70_000, 3 << 20] {
                assert_eq!(write(&app, address(), bytes).await, Ok(bytes));
            }
            assert_eq!(recruit(&app).await, Err(DENIED));
            assert_eq!(recruit(&node).await, Ok(()));
            let keyed = of(Credentials::new(keys(), Identity::Server));
            assert_eq!(recruit(&keyed).await, Ok(()));
            let bare = Transport::client();
            assert_eq!(write(&bare, address(), 1).await, Err(DENIED));
            assert_eq!(recruit(&bare).await, Err(DENIED));
        },
    );
}

#[test]
fn who_has_certificates_and_is_not_closed_takes_everybody_while_a_cluster_moves() {
    let place = Place::new();
    let of_server = place.clone();
    beside(
        move || of_server.with("node", false, Credentials::none()),
        unchanged,
        |_| async move {
            assert_eq!(recruit(&Transport::client()).await, Ok(()));
            // A process that has certificates and was not told to use them.
            let quiet = place.with("node", false, Credentials::none());
            assert_eq!(recruit(&Transport::client_with(quiet)).await, Ok(()));
            let node = Transport::client_with(place.opener("node"));
            assert_eq!(recruit(&node).await, Ok(()));
            // By TLS it is what its certificate says, also here.
            let app = Transport::client_with(place.opener("app"));
            assert_eq!(recruit(&app).await, Err(DENIED));
        },
    );
}

#[test]
fn who_is_told_to_use_tls_never_speaks_without() {
    let place = Place::new();
    beside(Credentials::none, unchanged, |done| async move {
        let node = Transport::client_with(place.opener("node"));
        assert_eq!(recruit(&node).await, Err(Error::connection_failed));
        let Some(Refusal::Certificate(line)) = node.ungreeted(&address().into()) else {
            panic!("it says why");
        };
        assert!(line.contains("--tls-certificate-file"), "{line}");
        let without = Credentials::none().opening_by_certificate();
        let without = Transport::client_with(without);
        assert_eq!(recruit(&without).await, Err(Error::connection_failed));
        assert_eq!(done.get(), 0);
    });
}

/// The server does not answer, and then it does.
async fn is_no_refusal(transport: &Transport, hint: &str) {
    let outcome = recruit(transport).await;
    assert_eq!(outcome, Err(Error::connection_failed));
    assert!(
        !transport.is_denied(&address().into()),
        "it has refused nobody"
    );
    let Some(Refusal::Certificate(line)) = transport.ungreeted(&address().into()) else {
        panic!("people hear what is known");
    };
    assert!(line.contains(hint), "{line}");
    let until_done = async {
        while recruit(transport).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let done = timeout(Duration::from_secs(10), until_done).await;
    assert!(done.is_some(), "it answers again");
    assert_eq!(transport.denials().get(), 0);
    assert_eq!(transport.ungreeted(&address().into()), None);
}

#[test]
fn a_server_that_stops_within_a_handshake_has_refused_nobody() {
    let place = Place::new();
    let of_server = place.clone();
    beside(
        move || of_server.server(),
        unchanged,
        |_| async move {
            let server = control()
                .processes()
                .into_iter()
                .find(|process| process.address == address());
            let server = server.expect("it runs").id;
            let node = || Transport::client_with(place.opener("node"));
            control().pause_process(server, Duration::from_secs(3));
            is_no_refusal(&node(), "does not answer the TLS handshake").await;
            // It is killed with connections in its backlog.
            let transport = node();
            let killing = async {
                sleep(Duration::from_secs(1)).await;
                let after = Duration::from_secs(1);
                control().kill_process(server, KillKind::RebootProcess { after });
                std::future::pending::<()>().await;
            };
            control().pause_process(server, Duration::from_secs(2));
            let asking = is_no_refusal(&transport, "has ended the connection");
            race(killing, asking).await;
        },
    );
}

#[test]
fn who_cuts_every_handshake_does_not_speak_tls_until_nobody_is_there() {
    let place = Place::new();
    beside(Credentials::none, unchanged, |_| async move {
        let transport = Transport::client_with(place.opener("node"));
        for cuts in 1..=10 {
            assert!(
                !transport.is_denied(&address().into()),
                "after {cuts} attempts"
            );
            let outcome = recruit(&transport).await;
            assert_eq!(outcome, Err(Error::connection_failed));
        }
        assert!(transport.is_denied(&address().into()));
        assert_eq!(transport.denials().get(), 1);
        let all = control().processes();
        let server = all.iter().find(|process| process.address == address());
        control().kill_process(server.expect("it runs").id, KillKind::Kill);
        let outcome = recruit(&transport).await;
        assert_eq!(outcome, Err(Error::connection_failed));
        assert!(
            !transport.is_denied(&address().into()),
            "another one may come"
        );
        assert_eq!(transport.ungreeted(&address().into()), None);
    });
}

#[test]
fn a_refused_opener_learns_why_and_its_request_was_certainly_not_sent() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let of_server = place.clone();
    beside(
        move || of_server.server(),
        unchanged,
        |done| async move {
            let own = elsewhere.0.issue(&Wanted::named("app"));
            let policy = Policy::parse([], IDENTITIES).expect("valid");
            let foreign = Certificates::new(&material(&own, &place.0.pem), policy);
            let handshakes = foreign.expect("they fit").handshakes();
            let foreign = Credentials::none()
                .with_certificates(handshakes)
                .opening_by_certificate();
            let transport = Transport::client_with(foreign);
            let outcome = write(&transport, address(), 9).await;
            assert_eq!(outcome, Err(Error::connection_failed));
            let Some(Refusal::Certificate(line)) = transport.ungreeted(&address().into()) else {
                panic!("it says why");
            };
            assert!(line.contains("compare the CA files"), "{line}");
            assert_eq!(done.get(), 0);
        },
    );
}

#[test]
fn a_connection_that_is_led_to_another_process_is_refused() {
    let place = Place::new();
    let of_server = place.clone();
    beside(
        move || of_server.server(),
        unchanged,
        |done| async move {
            let app = Transport::client_with(place.opener("app"));
            let outcome = write(&app, between(), 1).await;
            assert_eq!(outcome, Err(Error::connection_failed));
            let refusal = app.ungreeted(&between().into());
            assert!(
                matches!(refusal, Some(Refusal::Misdirected { .. })),
                "{refusal:?}"
            );
            let any = place.opener("app").for_any_address();
            let any = Transport::client_with(any);
            assert_eq!(write(&any, between(), 1).await, Ok(1));
            assert_eq!(done.get(), 1);
        },
    );
}

/// Sends one request through somebody in between.
fn through(change: impl Fn(usize, &mut BytesMut) + 'static) {
    let place = Place::new();
    let of_server = place.clone();
    beside(
        move || of_server.server(),
        change,
        |done| async move {
            let app = place.opener("app").for_any_address();
            let app = Transport::client_with(app);
            let outcome = write(&app, between(), 50_000).await;
            // It is sent again on a new connection only if it was certainly not executed.
            assert!(done.get() <= 1, "{outcome:?} {}", done.get());
            assert!(outcome.is_ok() || done.get() == 0, "{outcome:?}");
            // And the next one is not harmed.
            sleep(Duration::from_secs(1)).await;
            assert_eq!(write(&app, between(), 7).await, Ok(7));
        },
    );
}

#[test]
fn what_somebody_in_between_changes_cuts_or_swaps_has_no_effect() {
    type Change = fn(&mut BytesMut);
    let changes: [Change; 4] = [
        |piece| {
            let at = piece.len() / 2;
            piece[at] ^= 1;
        },
        |piece| piece.truncate(piece.len() / 2),
        |piece| {
            let half = piece.split_to(piece.len() / 2);
            piece.unsplit(half);
        },
        |piece| piece.fill(0x16),
    ];
    for change in changes {
        for touched in 0..4 {
            let is_done = Cell::new(false);
            through(move |number, piece| {
                if number == touched && !is_done.replace(true) && piece.len() > 1 {
                    change(piece);
                }
            });
        }
    }
}

#[test]
fn what_somebody_in_between_repeats_is_not_executed_twice() {
    for touched in 0..4 {
        let is_done = Cell::new(false);
        through(move |number, piece| {
            if number == touched && !is_done.replace(true) {
                let again = piece.clone();
                piece.unsplit(again);
            }
        });
    }
}

#[test]
fn who_does_not_finish_the_handshake_in_time_is_dropped() {
    let place = Place::new();
    let of_server = place.clone();
    beside(
        move || of_server.server(),
        unchanged,
        |_| async move {
            let hello = {
                let (mut layer, _) = place
                    .certificates("app")
                    .begin(plinth_identity::Side::Opener);
                let mut hello = BytesMut::new();
                let (mut none, mut plain) = (BytesMut::new(), BytesMut::new());
                let said = layer.receive(&mut none, &mut plain, &mut hello);
                said.expect("the first word");
                hello
            };
            for said in [
                &[][..],
                &[0x16],
                &[0x16, 3],
                &hello[..hello.len() - 1],
                &hello,
            ] {
                let (mut reader, mut writer) = net::connect(address()).await.expect("connects");
                let (began, mut heard) = (now(), BytesMut::new());
                let said = Bytes::copy_from_slice(said);
                writer.write_all(said).await.expect("writes");
                let until_end =
                    async { while reader.read(&mut heard).await.is_ok_and(|bytes| bytes > 0) {} };
                let ended = timeout(Duration::from_secs(30), until_end).await;
                assert!(ended.is_some(), "it is dropped");
                let after = began.elapsed();
                assert!(
                    after >= Duration::from_secs(9) && after < Duration::from_secs(12),
                    "{after:?}"
                );
            }
        },
    );
}

#[test]
fn what_keeps_certificates_current_ends_with_the_last_clone_of_the_credentials() {
    beside(Credentials::none, unchanged, |_| async move {
        let looks = Rc::new(Cell::new(0));
        let counted = looks.clone();
        let follower = spawn("follower", async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                counted.set(counted.get() + 1);
            }
        });
        let credentials = Credentials::none().kept_current_by(follower);
        let clone = credentials.for_purpose("something else");
        drop(credentials);
        sleep(Duration::from_millis(2500)).await;
        assert_eq!(looks.get(), 2);
        drop(clone);
        sleep(Duration::from_secs(5)).await;
        assert_eq!((looks.get(), Rc::strong_count(&looks)), (2, 1));
    });
}
