//! Messages that are too large, and peers that do not read: the request fails, the connection lives.

use bytes::Bytes;
use plinth_core::{Error, Uid, record};
use plinth_rpc::{Endpoint, Interface, Transport, requests};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, join_all};
use std::net::SocketAddr;

record! {
    /// Asks for a reply of this many bytes.
    pub struct Fill {
        pub bytes: u64,
        pub ballast: Bytes,
    }

    pub struct Filled {
        pub ballast: Bytes,
    }
}

requests! {
    Fill = 999 for Anybody => Filled;
}

const ROLE: Uid = Uid(7);

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

fn ballast(bytes: usize) -> Bytes {
    Bytes::from(vec![7; bytes])
}

/// Runs `client` against a process that answers [`Fill`].
fn with_server<F: Future<Output = ()> + 'static>(
    client: impl FnOnce(Transport, Endpoint) -> F + 'static,
) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    simulation.start_process(machine, address(), || {
        Box::pin(async {
            let transport = Transport::listen(address()).await.expect("listens");
            let _serving = transport.serve::<Fill>(ROLE, |fill, responder| {
                responder.ok(Filled {
                    ballast: ballast(fill.bytes as usize),
                });
            });
            std::future::pending::<()>().await;
        })
    });
    let work = async move {
        let endpoint = Interface::new(address(), ROLE).endpoint::<Fill>();
        client(Transport::client(), endpoint).await;
    };
    let ended = simulation.run_until(work, Duration::from_secs(600));
    ended.expect("it comes to its end");
}

fn fill(bytes: usize, ballast: Bytes) -> Fill {
    Fill {
        bytes: bytes as u64,
        ballast,
    }
}

#[test]
fn a_message_that_is_too_large_fails_alone() {
    with_server(|transport, endpoint| async move {
        let waiting = transport.call(&endpoint, fill(10, Bytes::new()));
        let request = transport.call(&endpoint, fill(1, ballast(65 << 20)));
        let reply = transport.call(&endpoint, fill(65 << 20, Bytes::new()));
        assert_eq!(request.await.err(), Some(Error::serialization_failed));
        assert_eq!(reply.await.err(), Some(Error::serialization_failed));
        assert_eq!(waiting.await.expect("a reply").ballast.len(), 10);
        let large = transport.call(&endpoint, fill(60 << 20, ballast(60 << 20)));
        assert_eq!(large.await.expect("a reply").ballast.len(), 60 << 20);
    });
}

#[test]
fn more_than_an_outbox_holds_is_refused_and_the_rest_comes() {
    with_server(|transport, endpoint| async move {
        // Twelve replies of 30 MiB to a client that asked for all of them at once.
        let asked = (0..12).map(|_| transport.call(&endpoint, fill(30 << 20, Bytes::new())));
        let asked: Vec<_> = asked.collect();
        let replies = join_all(asked).await;
        let refused =
            |r: &&Result<Filled, Error>| r.as_ref().err() == Some(&Error::server_overloaded);
        let whole = replies.iter().filter(|r| r.is_ok()).count();
        assert_eq!(whole + replies.iter().filter(refused).count(), 12);
        assert!(whole >= 8, "{whole}");
        // Twelve requests of the same size; none of them is sent in part.
        let asked = (0..12).map(|_| transport.call(&endpoint, fill(1, ballast(30 << 20))));
        let asked: Vec<_> = asked.collect();
        let replies = join_all(asked).await;
        let unsent =
            |r: &&Result<Filled, Error>| r.as_ref().err() == Some(&Error::connection_failed);
        let whole = replies.iter().filter(|r| r.is_ok()).count();
        assert_eq!(whole + replies.iter().filter(unsent).count(), 12);
        assert!(whole >= 8, "{whole}");
    });
}
