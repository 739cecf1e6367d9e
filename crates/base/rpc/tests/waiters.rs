//! Requests that wait end with their caller, in the simulator.

use plinth_core::{Error, Uid, record};
use plinth_rpc::{Interface, Transport, Waiters, requests};
use plinth_runtime::sim::{Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, gauge, sleep};
use std::net::SocketAddr;
use std::rc::Rc;

record! {
    /// Answered when a higher number comes.
    pub struct Await {
        pub number: u64,
    }

    /// Brings a number.
    pub struct Come {
        pub number: u64,
    }
}

requests! {
    Await = 901 for Anybody => u64;
    Come = 902 for Anybody => ();
}

const ROLE: Uid = Uid(7);

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

fn role() -> Interface {
    Interface::new(address(), ROLE)
}

/// A world with one process that has a list of waiting requests.
fn world(seed: u64) -> (Simulation, ProcessId) {
    let simulation = Simulation::new(seed, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let process = simulation.start_process(machine, address(), || {
        Box::pin(async {
            let transport = Transport::listen(address()).await.expect("listens");
            let list = Rc::new(Waiters::<Await, u64>::new("awaited"));
            let waiting = list.clone();
            let _awaits = transport.serve::<Await>(ROLE, move |request, responder| {
                waiting.add(request.number, responder);
            });
            let _come = transport.serve::<Come>(ROLE, move |request, responder| {
                for (number, waiting) in list.take() {
                    match number < request.number {
                        true => waiting.ok(request.number),
                        false => list.add(number, waiting),
                    }
                }
                responder.ok(());
            });
            // Callers in the same worker are treated alike.
            let local = transport.call(&role().endpoint::<Await>(), Await { number: 0 });
            plinth_runtime::timeout(Duration::from_millis(500), local).await;
            std::future::pending::<()>().await;
        })
    });
    (simulation, process)
}

fn run(seed: u64, work: impl AsyncFnOnce(Transport, ProcessId) + 'static) {
    let (simulation, process) = world(seed);
    let ended = simulation.run_until(
        async move {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(waiting(), 0, "the local caller has given up");
            work(Transport::client(), process).await;
        },
        Duration::from_secs(100),
    );
    ended.expect("it comes to its end");
}

fn waiting() -> usize {
    gauge::read().get("awaited").copied().unwrap_or(0)
}

fn wait_for(transport: &Transport, number: u64) -> plinth_rpc::Call<Await> {
    transport.call(&role().endpoint::<Await>(), Await { number })
}

async fn settle() {
    sleep(Duration::from_secs(1)).await;
}

#[test]
fn whoever_gives_up_waits_no_more_and_nobody_else_is_told() {
    run(1, async |transport, _| {
        let staying = wait_for(&transport, 5);
        for round in 0..100 {
            let limit = Duration::from_millis(1 + round);
            let given_up = plinth_runtime::timeout(limit, wait_for(&transport, 5)).await;
            assert_eq!(given_up, None);
        }
        settle().await;
        assert_eq!(waiting(), 1);
        let come = Come { number: 6 };
        transport
            .call(&role().endpoint::<Come>(), come)
            .await
            .expect("it lives");
        assert_eq!(staying.await, Ok(6));
        assert_eq!(waiting(), 0);
    });
}

#[test]
fn whoever_loses_its_connection_waits_no_more() {
    run(2, async |transport, process| {
        let call = wait_for(&transport, 5);
        let other = Transport::client();
        let others: Vec<_> = (0..50).map(|_| wait_for(&other, 5)).collect();
        settle().await;
        assert_eq!(waiting(), 51);
        drop(other); // the process ends
        settle().await;
        assert_eq!(waiting(), 1);
        drop(others);
        let control = control();
        let machine = control.processes()[process.0 as usize - 1].machine;
        control.cut_connections(plinth_runtime::sim::MachineId(0), machine);
        assert_eq!(call.await, Err(Error::request_maybe_delivered));
        settle().await;
        assert_eq!(waiting(), 0);
    });
}

#[test]
fn what_is_taken_out_and_put_back_still_goes_with_its_caller() {
    run(3, async |transport, _| {
        let calls: Vec<_> = (0..10).map(|number| wait_for(&transport, number)).collect();
        settle().await;
        let come = Come { number: 5 };
        transport
            .call(&role().endpoint::<Come>(), come)
            .await
            .expect("it lives");
        assert_eq!(waiting(), 5);
        drop(calls);
        settle().await;
        assert_eq!(waiting(), 0);
    });
}
