//! A client of a cluster that asks for TLS, whose only coordinator has a hiccup.

use plinth_client::Database;
use plinth_coordination::certificates::Tls;
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::{DatabaseConfig, Error};
use plinth_identity::Identity;
use plinth_rpc::Transport;
use plinth_runtime::sim::{KillKind, Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, sleep, timeout};
use plinth_server::{WorkerConfig, create_database, run_worker};
use plinth_tls::testing::{Authority, Wanted};
use plinth_tls::{Settings, Source};
use std::net::SocketAddr;
use std::rc::Rc;

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 4500).into()
}

/// The file of the cluster, for the holder of a certificate that `authority` has signed.
async fn cluster(authority: &Authority) -> ClusterFile {
    let own = authority.issue(&Wanted::named("node"));
    let bytes = |text: &str| Some(Source::Bytes(text.to_owned().into()));
    let settings = Settings {
        certificate: bytes(&own.certificate),
        key: bytes(&own.key),
        ca: bytes(&authority.pem),
        ..Settings::default()
    };
    let certificates = Tls::read(settings).await.expect("they fit");
    let file = ClusterFile::parse(&format!("test:a@{}:tls", address())).expect("valid");
    ClusterFile {
        certificates,
        ..file
    }
}

async fn server(authority: Rc<Authority>) {
    let config = WorkerConfig::new(address(), "/data", cluster(&authority).await);
    let Err(line) = run_worker(config).await;
    panic!("the worker ended: {line}");
}

/// Runs `story` beside a cluster of one server, whose authority it is given.
fn beside<F: Future<Output = ()>>(story: impl FnOnce(Rc<Authority>, ProcessId) -> F + 'static) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let authority = Rc::new(Authority::new("Our root"));
    let of_server = authority.clone();
    let server = move || Box::pin(server(of_server.clone())) as _;
    let process = simulation.start_process(machine, address(), server);
    let run = async move {
        let file = cluster(&authority).await;
        let transport = Transport::client_with(file.credentials(Identity::Server));
        let coordinators = Coordinators::from(file);
        let created = create_database(&transport, &coordinators, DatabaseConfig::default()).await;
        created.expect("it is new");
        story(authority, process).await;
    };
    let ended = simulation.run_until(run, Duration::from_secs(600));
    ended.expect("it comes to its end");
}

/// The first request of a new client.
async fn first_request(authority: &Authority) -> Option<Result<(), Error>> {
    let database: Database = plinth_client::connect(cluster(authority).await);
    let transaction = database.create_transaction();
    let asked = timeout(Duration::from_secs(30), transaction.get_read_version()).await;
    asked.map(|version| version.map(drop))
}

#[test]
fn a_first_request_waits_while_the_only_coordinator_is_stopped_or_killed() {
    beside(|authority, server| async move {
        assert_eq!(first_request(&authority).await, Some(Ok(())));
        control().pause_process(server, Duration::from_secs(3));
        assert_eq!(first_request(&authority).await, Some(Ok(())));
        // It is killed with connections in its backlog.
        control().pause_process(server, Duration::from_secs(3));
        let killing = plinth_runtime::spawn("killing", async move {
            sleep(Duration::from_secs(1)).await;
            let after = Duration::from_secs(1);
            control().kill_process(server, KillKind::RebootProcess { after });
        });
        assert_eq!(first_request(&authority).await, Some(Ok(())));
        drop(killing);
    });
}

#[test]
fn a_first_request_fails_at_once_where_the_certificate_is_not_trusted() {
    beside(|_, _| async move {
        let foreign = Authority::new("Their root");
        let denied = Err(Error::permission_denied);
        assert_eq!(first_request(&foreign).await, Some(denied));
    });
}
