//! Memory of a connection after a large message: it is freed soon, even if small messages follow.

use bytes::Bytes;
use plinth_core::{Uid, record};
use plinth_rpc::{Interface, Transport, requests};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, probe, sleep};
use std::net::SocketAddr;

const ROLE: Uid = Uid(7);
const LARGE: usize = 9_000_000;

record! {
    pub struct Echo {
        pub bytes: Bytes,
    }
}

requests! { Echo = 60001 for Anybody => Bytes; }

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

#[test]
fn buffers_of_a_large_message_are_given_back_although_small_ones_go_on() {
    for seed in 1..10 {
        probe::reset();
        let simulation = Simulation::new(seed, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        simulation.start_process(machine, address(), || {
            Box::pin(async {
                let transport = Transport::listen(address()).await.expect("listens");
                let _serving = transport.serve::<Echo>(ROLE, |echo, reply| reply.ok(echo.bytes));
                std::future::pending::<()>().await;
            })
        });
        let talking = async {
            let transport = Transport::client();
            let endpoint = Interface::new(address(), ROLE).endpoint::<Echo>();
            let say = async |bytes: Bytes| {
                let said = transport
                    .call(
                        &endpoint,
                        Echo {
                            bytes: bytes.clone(),
                        },
                    )
                    .await;
                assert_eq!(said, Ok(bytes), "it comes back whole");
            };
            say(Bytes::from(vec![1; LARGE])).await;
            // Small messages, without a pause of a whole second.
            for i in 0..30 {
                say(Bytes::from(vec![2; i])).await;
                sleep(Duration::from_millis(100)).await;
            }
            // The connection still works.
            say(Bytes::from(vec![3; LARGE])).await;
            say(Bytes::from_static(b"small")).await;
        };
        let ended = simulation.run_until(talking, Duration::from_secs(60));
        ended.expect("it comes to its end");
        let hits = probe::hits();
        for name in ["gives_back_large_buffer", "gives_back_large_outbox"] {
            // One at each end after the first large message; the time after the second has not passed yet.
            assert_eq!(hits.get(name), Some(&2), "seed {seed}: {name}");
        }
    }
}
