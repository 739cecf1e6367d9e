//! Processes that are called by their names. A name may stand for a former address, another process, or nothing.

use plinth_core::{Error, Uid, record};
use plinth_rpc::{Place, Transport, requests};
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, sleep};
use std::net::{IpAddr, SocketAddr};

record! {
    pub struct WhoAreYou {}
}

requests! {
    WhoAreYou = 60031 for Readers => u64;
}

/// Every process serves as this role, and at the id of its name.
const ANYBODY: Uid = Uid(7);

fn ip(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

fn named(number: u8) -> Place {
    format!("host-{number}:4500").parse().expect("a name")
}

fn id_of(number: u8) -> Uid {
    Uid(100 + u128::from(number))
}

/// A process that says its number to those who ask for its name, and to those who ask anybody.
async fn answer(number: u8) {
    let everywhere = SocketAddr::from(([0; 4], 4500));
    let transport = Transport::listen(everywhere).await.expect("it listens");
    transport.set_name(named(number));
    let serve = |id| transport.serve::<WhoAreYou>(id, move |_, it| it.ok(number.into()));
    let _serving = [serve(ANYBODY), serve(id_of(number))];
    std::future::pending::<()>().await;
}

/// Two processes at their addresses; nobody has a name.
fn start(simulation: &Simulation) -> [(MachineId, ProcessId); 2] {
    [1, 2].map(|number| {
        let machine = simulation.add_machine(Locality::default());
        let address = SocketAddr::new(ip(number), 4500);
        let process = simulation.start_process(machine, address, move || Box::pin(answer(number)));
        (machine, process)
    })
}

/// What the process says that has the name of this number, asked until it answers; the first error otherwise.
async fn ask(transport: &Transport, number: u8) -> (u64, Option<Error>) {
    let mut failed = None;
    for _ in 0..200 {
        match transport
            .call_at(&named(number), id_of(number), WhoAreYou {})
            .await
        {
            Ok(said) => return (said, failed),
            Err(error) => failed = failed.or(Some(error)),
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("nobody has the name {number}: {failed:?}");
}

fn simulated<F: Future<Output = ()> + 'static>(test: impl Fn([(MachineId, ProcessId); 2]) -> F) {
    for seed in 0..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let processes = start(&simulation);
        simulation.run(test(processes));
    }
}

#[test]
fn a_name_that_is_not_resolved_yet_is_waited_for() {
    simulated(async |_| {
        let transport = Transport::client();
        let call = transport.call_at(&named(1), id_of(1), WhoAreYou {}).await;
        assert_eq!(call, Err(Error::connection_failed));
        assert!(transport.is_unresolved(&named(1)));
        assert_eq!(transport.unreachable(), [], "nobody knows who is silent");
        control().name("host-1", Some(ip(1)));
        assert_eq!(ask(&transport, 1).await.0, 1);
        assert!(!transport.is_unresolved(&named(1)));
    });
}

#[test]
fn a_process_that_comes_back_at_another_address_is_found_by_its_name() {
    simulated(async |[(machine, process), _]| {
        let (transport, control) = (Transport::client(), control());
        control.name("host-1", Some(ip(1)));
        assert_eq!(ask(&transport, 1).await, (1, None));
        control.kill_process(process, KillKind::Kill);
        control.move_machine(machine, ip(77));
        control.restart_process(process);
        // The name is behind for a while.
        let call = transport.call_at(&named(1), id_of(1), WhoAreYou {});
        assert_eq!(
            plinth_runtime::timeout(Duration::from_secs(9), call)
                .await
                .and_then(Result::ok),
            None
        );
        control.name("host-1", Some(ip(77)));
        assert_eq!(ask(&transport, 1).await.0, 1);
    });
}

#[test]
fn whoever_is_found_at_the_address_of_another_name_is_not_believed() {
    simulated(async |_| {
        let (transport, control) = (Transport::client(), control());
        control.name("host-1", Some(ip(2)));
        control.name("host-2", Some(ip(2)));
        assert_eq!(ask(&transport, 2).await, (2, None));
        let asked = transport.call_at(&named(1), id_of(1), WhoAreYou {}).await;
        assert_eq!(asked, Err(Error::broken_promise));
        let anybody = transport.call_at(&named(1), ANYBODY, WhoAreYou {}).await;
        assert_eq!(anybody, Ok(2), "it is the process that was meant to answer");
        // The connection to the wrong process is not kept, although it works.
        let _ = transport.call_at(&named(1), id_of(1), WhoAreYou {}).await;
        control.name("host-1", Some(ip(1)));
        assert_eq!(ask(&transport, 1).await.0, 1);
    });
}

#[test]
fn a_process_that_calls_its_own_name_calls_itself() {
    simulated(async |_| {
        let transport = Transport::local(SocketAddr::new(ip(9), 4500));
        transport.set_name(named(9));
        let _serving = transport.serve::<WhoAreYou>(id_of(9), |_, it| it.ok(9));
        control().name("host-9", Some(ip(1)));
        assert_eq!(
            ask(&transport, 9).await,
            (9, None),
            "without a look at its name"
        );
    });
}
