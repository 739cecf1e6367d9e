//! A cluster of one process in the simulator, which comes and goes.

use crate::connection::Caller;
use crate::outage::Outage;
use crate::source::{Cluster, CommitData, CommitFlags, ReadVersionFlags};
use bytes::Bytes;
use plinth_coordination::{ClusterFile, Coordinators, Look};
use plinth_core::{MutationBatch, Result, Uid, Version};
use plinth_protocol::control::{ClientInfo, GetClientInfo};
use plinth_protocol::coordination::{COORDINATOR, Candidate, GetLeader, GetLeaderReply};
use plinth_protocol::transaction::{GetReadVersion, PRIORITY_SYSTEM, ReadVersion};
use plinth_rpc::{Interface, Place, Transport};
use plinth_runtime::sim::{KillKind, Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, Task, now, sleep, timeout};
use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;

const ROLE: Uid = Uid(7);
const SECOND: Duration = Duration::from_secs(1);
/// What is not there by then does not come.
const LONG: Duration = Duration::from_secs(10);

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

/// Coordinator, controller and proxies in one.
async fn serve(limits_transactions: bool) {
    let transport = Transport::listen(address()).await.expect("listens");
    let role = Interface::new(address(), ROLE);
    let _coordinator = transport.serve::<GetLeader>(COORDINATOR, move |_, responder| {
        responder.ok(GetLeaderReply {
            leader: Some(Candidate {
                controller: role,
                priority: 0,
            }),
            is_coordinator: true,
            successor: String::new(),
            lost: None,
            database: None,
        });
    });
    let held = RefCell::new(Vec::new());
    let _controller = transport.serve::<GetClientInfo>(ROLE, move |request, responder| {
        if request.known == 1 {
            held.borrow_mut().push(responder); // a long poll: nothing changes
            return;
        }
        responder.ok(ClientInfo {
            id: 1,
            grv_proxies: vec![role],
            commit_proxies: vec![role],
        });
    });
    let held = RefCell::new(Vec::new());
    let _proxy = transport.serve::<GetReadVersion>(ROLE, move |request, responder| {
        if limits_transactions && request.priority != PRIORITY_SYSTEM {
            held.borrow_mut().push(responder);
            return;
        }
        responder.ok(ReadVersion {
            version: 1,
            locked: false,
            count: request.count,
        });
    });
    std::future::pending::<()>().await;
}

fn connect() -> Caller {
    let file = ClusterFile::parse("test:test@10.0.0.1:4500").expect("it is one");
    Caller::connect(Transport::client(), Coordinators::from(file))
}

fn request(connection: &Caller) -> Task<Result<Version>> {
    let asked = connection.get_read_version(ReadVersionFlags::default());
    plinth_runtime::spawn("request", asked)
}

/// Runs `test` with a cluster that does not run yet.
fn with_cluster<F: Future<Output = ()> + 'static>(
    limits_transactions: bool,
    test: impl Fn(ProcessId) -> F,
) {
    for seed in 0..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        let process = simulation.start_process(machine, address(), move || {
            Box::pin(serve(limits_transactions))
        });
        simulation.kill_process(process, KillKind::Kill);
        let ended = simulation.run_until(test(process), Duration::from_secs(120));
        ended.unwrap_or_else(|| panic!("seed {seed}: it waits for ever"));
    }
}

/// The outage that these requests must meet, a second or a little more after `begun`.
async fn meets(connection: &Caller) -> Outage {
    let begun = now();
    let outage = timeout(LONG, connection.outage()).await;
    let outage = outage.expect("requests wait");
    let took = begun.elapsed();
    assert!(took >= SECOND && took < 3 * SECOND, "{took:?}");
    outage
}

#[test]
fn requests_that_wait_for_a_second_are_an_outage_until_one_is_answered() {
    with_cluster(false, async |process| {
        let connection = connect();
        for _ in 0..2 {
            let requests = [request(&connection), request(&connection)];
            let outage = meets(&connection).await;
            let coordinators = [(Place::At(address()), Look::Unreached)];
            assert_eq!(outage.coordinators, coordinators);
            sleep(LONG).await;
            control().restart_process(process);
            timeout(LONG, outage.over).await.expect("it is back");
            for request in requests {
                assert_eq!(request.await, Ok(1));
            }
            control().kill_process(process, KillKind::Kill);
        }
    });
}

#[test]
fn a_cluster_that_is_there_or_that_nobody_asks_has_no_outage() {
    with_cluster(false, async |process| {
        control().restart_process(process);
        let connection = connect();
        let mut outage = connection.outage();
        assert_eq!(request(&connection).await, Ok(1));
        assert!(timeout(LONG, &mut outage).await.is_none());
        // It is away for so short a time that nobody has waited for a second.
        control().kill_process(process, KillKind::Kill);
        let waits = request(&connection);
        assert!(timeout(SECOND / 2, &mut outage).await.is_none());
        control().restart_process(process);
        assert!(timeout(LONG, &mut outage).await.is_none());
        assert_eq!(waits.await, Ok(1));
        control().kill_process(process, KillKind::Kill);
        assert!(timeout(LONG, &mut outage).await.is_none());
    });
}

#[test]
fn a_commit_that_cannot_be_sent_meets_the_outage_too() {
    with_cluster(false, async |process| {
        control().restart_process(process);
        let connection = connect();
        assert_eq!(request(&connection).await, Ok(1));
        sleep(LONG).await;
        control().kill_process(process, KillKind::Kill);
        sleep(SECOND).await;
        let committing = connection.commit(CommitData {
            read_version: 1,
            reads: Bytes::new(),
            writes: Bytes::new(),
            mutations: MutationBatch::default(),
            flags: CommitFlags::default(),
            places: 1,
            conflicts: None,
            trace: None,
        });
        let _committing = plinth_runtime::spawn("commit", committing);
        meets(&connection).await;
    });
}

#[test]
fn requests_that_the_cluster_holds_back_are_no_outage() {
    with_cluster(true, async |process| {
        control().restart_process(process);
        let connection = connect();
        let waits = request(&connection);
        assert!(timeout(LONG, connection.outage()).await.is_none());
        assert!(!waits.is_finished());
    });
}
