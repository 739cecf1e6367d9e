//! A client that sends the requests of servers and operators to every role of a real cluster: each is refused, is on
//! record, and has no effect.

use crate::common::{Cluster, text};
use bytes::Bytes;
use plinth_coordination::ClusterFile;
use plinth_core::codec::Source;
use plinth_core::{Error, Uid};
use plinth_identity::Identity;
use plinth_protocol::control::{GetWorkers, WORKER};
use plinth_protocol::coordination::COORDINATOR;
use plinth_rpc::{Interface, REQUESTS, RequestKind, Transport};
use plinth_runtime::real::block_on;
use plinth_runtime::timeout;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// What ends a cluster for good, or takes it over, if a client may send it.
const NAMED: [&str; 20] = [
    "ReadRegister",
    "WriteRegister",
    "Nominate",
    "Pop",
    "Push",
    "Seal",
    "ReportDurable",
    "RegisterWorker",
    "KillRole",
    "RecruitSequencer",
    "RecruitGrvProxy",
    "RecruitCommitProxy",
    "RecruitResolver",
    "RecruitLog",
    "RecruitStorage",
    "RecruitRatekeeper",
    "RecruitDistributor",
    "GetCommitVersion",
    "ReportCommitted",
    "ChangeCoordinators",
];
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Of more refusals than about five a second the record tells only how many there were.
const RECORD_PAUSE: Duration = Duration::from_millis(250);

/// Fields with the largest numbers, which do the most harm.
struct Extreme(SocketAddr);

impl Source for Extreme {
    fn below(&mut self, n: u64) -> u64 {
        n - 1
    }

    fn number(&mut self) -> u128 {
        u128::MAX
    }

    fn bytes(&mut self) -> Bytes {
        Bytes::from_static(&[0; 16])
    }

    fn id(&mut self) -> Uid {
        Uid(7)
    }

    fn address(&mut self) -> SocketAddr {
        self.0
    }

    fn count(&mut self) -> usize {
        1
    }
}

fn status(cluster: &Cluster) -> Value {
    let said = cluster.plinth(&["status", "--json"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    serde_json::from_slice(&said.stdout).expect("JSON")
}

/// Every role that the status tells of, and what each process has beside.
async fn roles(status: &Value, operator: &Transport) -> Vec<Interface> {
    let processes = status["cluster"]["processes"].as_object();
    let of_process = |process: &Value| {
        let address = process["address"].as_str().expect("text");
        let address: SocketAddr = address.parse().expect("an address");
        let roles = process["roles"].as_array().expect("roles").iter();
        let ids = roles.filter_map(|role| u128::from_str_radix(role["id"].as_str()?, 16).ok());
        let ids: Vec<Uid> = ids.map(Uid).chain([WORKER, COORDINATOR]).collect();
        ids.into_iter().map(move |id| Interface::new(address, id))
    };
    let processes = processes.expect("processes").values();
    let mut roles: Vec<Interface> = processes.flat_map(of_process).collect();
    for role in roles.clone() {
        let asked = operator.call(&role.endpoint::<GetWorkers>(), GetWorkers {});
        if let Ok(listed) = asked.await {
            roles.extend(listed.workers.iter().map(|listed| listed.worker));
        }
    }
    roles
}

/// What becomes of one request at one role.
async fn ask(kind: &RequestKind, by: &Transport, role: &Interface) -> Result<(), Error> {
    let asked = (kind.ask)(by, role, &mut Extreme(role.address));
    let answer = timeout(ANSWER_LIMIT, asked).await;
    answer.unwrap_or_else(|| panic!("{} at {}: no answer", kind.name, role.address))
}

/// Each request that is for others, to each role. All fail.
async fn send_all(client: &Transport, roles: &[Interface]) {
    let others = REQUESTS
        .iter()
        .filter(|kind| !kind.audience.admits(Identity::Client));
    let (named, rest): (Vec<_>, Vec<_>) = others.partition(|kind| NAMED.contains(&kind.name));
    assert_eq!(
        named.len(),
        NAMED.len(),
        "one of them has another name, or other senders"
    );
    for kind in named {
        let mut is_refused = false;
        for role in roles {
            // A role that does not know the request drops it.
            match ask(kind, client, role).await {
                Err(Error::permission_denied) => {
                    std::thread::sleep(RECORD_PAUSE);
                    is_refused = true;
                    break;
                }
                Err(Error::broken_promise) => (),
                other => panic!("{} at {}: {other:?}", kind.name, role.address),
            }
        }
        assert!(is_refused, "{}: no role has it", kind.name);
    }
    for kind in rest {
        for role in roles {
            let answer = ask(kind, client, role).await;
            let is_in_vain = matches!(
                answer,
                Err(Error::permission_denied | Error::broken_promise)
            );
            assert!(is_in_vain, "{} at {}: {answer:?}", kind.name, role.address);
        }
    }
}

/// What the servers have put on record.
fn check_record(cluster: &Cluster) {
    let audits = cluster.addresses().into_iter().map(|address| {
        let directory = cluster.directory.file(&address.port().to_string());
        std::fs::read_to_string(directory.join("audit.jsonl")).expect("a record")
    });
    let audit: String = audits.collect();
    for name in NAMED {
        let what = format!("\"request\":\"{name}\"");
        let is_told = |line: &str| line.contains("RequestRefused") && line.contains(&what);
        assert!(
            audit.lines().any(is_told),
            "{name} is not on record: {audit}"
        );
    }
}

#[test]
fn a_client_sends_the_requests_of_servers_and_operators_in_vain() {
    let mut cluster = Cluster::start(
        "refused-requests",
        3,
        &["--engine", "memory", "--replication", "double"],
    );
    cluster.cli("writemode on; set a 1");
    let before = status(&cluster);
    block_on(async {
        let file = ClusterFile::load(&cluster.cluster_file())
            .await
            .expect("a cluster file");
        let operator = Transport::client_with(file.credentials(Identity::Operator));
        let roles = roles(&before, &operator).await;
        assert!(roles.len() > 15, "{roles:?}");
        let client = Transport::client_with(file.credentials(Identity::Client));
        send_all(&client, &roles).await;
    });
    check_record(&cluster);
    let generation = |status: &Value| status["cluster"]["generation"].as_u64();
    assert_eq!(generation(&status(&cluster)), generation(&before));
    assert!(
        cluster
            .cli("get a; writemode on; set b 2; get b")
            .contains("`2'")
    );
    // The coordinators have forgotten nothing, and are not ahead of everybody.
    cluster.stop();
    cluster.resume();
    assert!(cluster.cli("get a; get b").contains("`2'"));
}
