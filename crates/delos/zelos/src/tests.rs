//! Entries executed without a log: whatever a replica has in memory, its rows become the same.

use crate::application::{Refused, Zelos};
use crate::entry::{Head, Writing};
use bytes::Bytes;
use plinth_core::EngineKind;
use plinth_delos::stack::{Application, Failure};
use plinth_delos::store::LocalStore;
use plinth_keeper::acl::Identity;
use plinth_keeper::tree::execute::{Caller, FoundSession, Operation, Owner};
use plinth_keeper::wire::{Acl, CreateKind, Request, Text, create_flags};
use plinth_runtime::random::{below, chance};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use std::path::Path;
use std::rc::Rc;

fn in_simulator<W: Future<Output = ()> + 'static>(seed: u64, work: W) {
    let sim = Simulation::new(seed, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    sim.run_on(machine, work).expect("nothing kills it");
}

/// A store, and the application on it.
struct Replica {
    store: Rc<LocalStore>,
    zelos: Zelos,
}

impl Replica {
    async fn new(path: &str) -> Replica {
        let engine = plinth_engine::open(EngineKind::Memory, Path::new(path), true, 1 << 20);
        let store = LocalStore::open(engine.await.expect("an engine"));
        Replica {
            store: store.expect("a store"),
            zelos: Zelos::new(None),
        }
    }

    /// All that is in memory goes.
    fn forget(&mut self) {
        self.zelos = Zelos::new(None);
    }

    /// Executes the payloads at one position, as a batch of the engine below does.
    fn execute(&self, payloads: &[Bytes]) -> Vec<Result<(), Refused>> {
        let pos = self.store.applied() + 1;
        let mut tx = self.store.begin(pos);
        let mut said = Vec::new();
        for payload in payloads {
            let done = tx.nested(|tx| self.zelos.execute(tx, payload, pos));
            said.push(done.map_err(|failure| match failure {
                Failure::Refused(refused) => refused,
                Failure::Stop(error) => panic!("{error}"),
            }));
        }
        tx.commit().expect("it is in order");
        let executed = payloads.iter().zip(&said).filter(|(_, said)| said.is_ok());
        executed.for_each(|(payload, _)| self.zelos.executed(payload, pos));
        said
    }
}

fn batch(gateway: u64, number: u64, operations: &[Operation]) -> Bytes {
    let mut writing = Writing::begin(Head {
        gateway,
        number,
        now_ms: 1_700_000_000_000 + number as i64,
        enforces_quotas: true,
    });
    operations
        .iter()
        .for_each(|operation| writing.put(operation));
    writing.end()
}

fn some_path() -> Text {
    let names = ["a", "b", "c"];
    let mut path = String::new();
    for _ in 0..=below(3) {
        path.push('/');
        path.push_str(names[below(3) as usize]);
    }
    path.into()
}

fn some_request() -> Request {
    let path = match chance(0.05) {
        true => "/zookeeper/quota/a/zookeeper_limits".into(),
        false => some_path(),
    };
    let version = if chance(0.8) { -1 } else { below(3) as i32 };
    // Long data has rows of its own.
    let len = if chance(0.1) {
        5000
    } else {
        below(20) as usize
    };
    let data = Some(Bytes::from(vec![b'x'; len]));
    match below(10) {
        0..4 => Request::Create {
            kind: CreateKind::WithStat,
            path,
            data: match chance(0.1) {
                true => Some(Bytes::from_static(b"count=4,bytes=-1")),
                false => data,
            },
            acl: Acl::open(),
            flags: [
                create_flags::PERSISTENT,
                create_flags::EPHEMERAL,
                create_flags::PERSISTENT_SEQUENTIAL,
            ][below(3) as usize],
            ttl: -1,
        },
        4..7 => Request::SetData {
            path,
            data,
            version,
        },
        7..9 => Request::Delete { path, version },
        _ => Request::Multi {
            operations: vec![
                Request::SetData {
                    path: path.clone(),
                    data,
                    version: -1,
                },
                Request::Delete { path, version },
            ],
        },
    }
}

fn close(session: i64) -> Operation {
    Operation::CloseSession {
        session,
        owner: Owner::Own,
        found: FoundSession::default(),
    }
}

fn some_operation() -> Operation {
    let session = 1 + below(4) as i64;
    match below(20) {
        0 => Operation::OpenSession {
            session,
            timeout_ms: 4000,
            password: b"secret".to_vec(),
        },
        1 => Operation::TakeSession {
            session,
            timeout_ms: 4000,
            password: b"secret".to_vec(),
            found: None,
        },
        2 => close(session),
        3 => Operation::CountQuota {
            path: "/a".into(),
            found: None,
        },
        4 => Operation::Beat {
            row: below(100).to_string().into_bytes(),
        },
        _ => {
            let identities = [Identity::new("ip", "10.0.0.1")].into();
            let caller = Caller {
                session,
                identities,
            };
            Operation::Request(caller, some_request())
        }
    }
}

fn open(session: i64) -> Operation {
    Operation::OpenSession {
        session,
        timeout_ms: 4000,
        password: b"secret".to_vec(),
    }
}

#[test]
fn replicas_that_have_other_things_in_memory_make_the_same_rows() {
    for seed in 0..30 {
        in_simulator(seed, async {
            let steady = Replica::new("/steady").await;
            let mut forgetful = Replica::new("/forgetful").await;
            let quota = ["/zookeeper/quota/a", "/a"].map(|path| {
                let request = Request::Create {
                    kind: CreateKind::Plain,
                    path: path.into(),
                    data: None,
                    acl: Acl::open(),
                    flags: create_flags::PERSISTENT,
                    ttl: -1,
                };
                let identities = [].into();
                let session = 1;
                let caller = Caller {
                    session,
                    identities,
                };
                Operation::Request(caller, request)
            });
            let first = [&[open(1), Operation::Beat { row: Vec::new() }], &quota[..]].concat();
            let mut numbers = [1, 0];
            let mut payloads = vec![batch(1, 1, &first)];
            for _ in 0..200 {
                let said = steady.execute(&payloads);
                assert_eq!(said, forgetful.execute(&payloads));
                assert_eq!(steady.store.checksum(), forgetful.store.checksum());
                if chance(0.3) {
                    forgetful.forget();
                }
                payloads.clear();
                for _ in 0..=below(3) {
                    let gateway = below(2) as usize;
                    numbers[gateway] += 1;
                    let mut operations: Vec<Operation> =
                        (0..=below(5)).map(|_| some_operation()).collect();
                    if numbers[gateway] == 1 {
                        operations.push(Operation::Beat { row: Vec::new() });
                    }
                    payloads.push(batch(1 + gateway as u64, numbers[gateway], &operations));
                }
            }
        });
    }
}

#[test]
fn an_operation_of_a_session_that_has_moved_is_not_executed() {
    in_simulator(1, async {
        let replica = Replica::new("/a").await;
        let beat = || Operation::Beat { row: vec![1] };
        let take = Operation::TakeSession {
            session: 5,
            timeout_ms: 4000,
            password: b"secret".to_vec(),
            found: None,
        };
        let create = |path: &str| {
            let request = Request::Create {
                kind: CreateKind::Plain,
                path: path.into(),
                data: None,
                acl: Acl::open(),
                flags: create_flags::EPHEMERAL,
                ttl: -1,
            };
            let caller = Caller {
                session: 5,
                identities: [].into(),
            };
            Operation::Request(caller, request)
        };
        let changes = |gateway, number, operation| {
            let before = replica.store.checksum();
            let done = replica.execute(&[batch(gateway, number, &[operation])]);
            assert_eq!(done, [Ok(())]);
            replica.store.checksum() != before
        };
        assert!(changes(1, 1, beat()) && changes(2, 1, beat()));
        assert!(changes(1, 2, open(5)));
        assert!(changes(1, 3, create("/before")));
        assert!(changes(2, 2, take));
        // The first gateway proposed these before it knew.
        assert!(!changes(1, 4, create("/after")));
        assert!(!changes(1, 5, close(5)));
        assert!(changes(2, 3, create("/after")));
        assert!(changes(2, 4, close(5)));
        assert!(!changes(2, 5, create("/later")));
    });
}

#[test]
fn nothing_of_a_gateway_without_a_lease_is_executed() {
    in_simulator(1, async {
        let replica = Replica::new("/a").await;
        let beat = Operation::Beat { row: vec![1] };
        assert_eq!(replica.execute(&[batch(7, 1, &[beat])]), [Ok(())]);
        let remove = |lease: u8| Operation::RemoveGateway {
            gateway: 7,
            lease: vec![lease],
            found: None,
            has_sessions: true,
        };
        let beat = Operation::Beat { row: vec![1] };
        assert_eq!(
            replica.execute(&[batch(8, 1, &[beat, remove(2)])]),
            [Ok(())]
        );
        assert_eq!(
            replica.execute(&[batch(7, 2, &[])]),
            [Ok(())],
            "its lease has changed"
        );
        assert_eq!(replica.execute(&[batch(8, 2, &[remove(1)])]), [Ok(())]);
        let before = replica.store.checksum();
        let late = batch(7, 3, &[open(5)]);
        assert_eq!(replica.execute(&[late]), [Err(Refused::Gone)]);
        let damaged = Bytes::from_static(b"\x01damaged");
        assert_eq!(replica.execute(&[damaged]), [Err(Refused::Malformed)]);
        assert_eq!(replica.store.checksum(), before);
    });
}
