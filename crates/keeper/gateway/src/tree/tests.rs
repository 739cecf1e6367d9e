//! What operations do and answer, on a state in memory.

use super::change::Change;
use super::execute::{Caller, Executed, FoundSession, Operation, Owner, Shape, execute};
use super::node::{Counts, Data, Lifetime, Node, open_acl};
use super::plan::{Known, Names, Plan, SessionChange, View};
use super::quota::{Exceeded, Quotas};
use crate::acl::Identity;
use crate::sessions::SessionRow;
use crate::wire::{Acl, Code, CreateKind, Request, Text, create_flags};
use bytes::Bytes;
use plinth_runtime::sim::{SimConfig, Simulation};
use std::collections::BTreeMap;
use std::rc::Rc;

const OWN: u64 = 1;
const SESSION: i64 = 7;

struct State(BTreeMap<&'static str, Rc<Node>>, Rc<Quotas>);

impl View for State {
    fn node(&self, path: &str) -> Known {
        let node = self.0.get(path).cloned();
        node.map_or(Known::Absent, Known::Here)
    }
    fn children(&self, path: &str) -> Names {
        let of = |child: &&&str| crate::paths::parent(child) == Some(path);
        let names = self
            .0
            .keys()
            .filter(of)
            .map(|child| crate::paths::name(child));
        Names::All(names.map(Text::from).collect())
    }
    fn owns(&self, session: i64) -> bool {
        session == SESSION
    }
    fn is_silent(&self, _: i64) -> bool {
        true
    }
    fn quotas(&self) -> Rc<Quotas> {
        self.1.clone()
    }
    fn enforces_quotas(&self) -> bool {
        true
    }
    fn exceeds(&self, _: &Exceeded, _: &str) {}
}

fn node(lifetime: Lifetime, children: i32, acl: Rc<[Acl]>) -> Rc<Node> {
    let counts = Counts {
        created: children,
        present: children,
    };
    Rc::new(Node {
        counts,
        lifetime,
        acl,
        ..Node::new(1, Data::None)
    })
}

fn state() -> State {
    let nobody: Rc<[Acl]> = [Acl {
        perms: 0,
        scheme: "world".into(),
        id: "anyone".into(),
    }]
    .into();
    let nodes = BTreeMap::from([
        ("/", node(Lifetime::Persistent, 1, open_acl())),
        ("/a", node(Lifetime::Persistent, 2, nobody.clone())),
        ("/a/plain", node(Lifetime::Persistent, 0, nobody.clone())),
        ("/a/mine", node(Lifetime::Ephemeral(SESSION), 0, nobody)),
    ]);
    State(nodes, Rc::default())
}

/// The outcome of an operation, and what it changes.
fn outcome(operation: &Operation) -> (Executed, Vec<Change>) {
    let state = state();
    let mut plan = Plan::new(&state, 5, 1);
    let executed = execute(&mut plan, operation, OWN);
    let changes = plan.changes.into_iter().map(|(_, change)| change).collect();
    (executed, changes)
}

fn asked(request: Request) -> Operation {
    let caller = Caller {
        session: SESSION,
        identities: [Identity::new("ip", "10.0.0.1")].into(),
    };
    Operation::Request(caller, request)
}

fn request(request: Request) -> (Executed, Vec<Change>) {
    outcome(&asked(request))
}

fn refused(code: Code) -> (Executed, Vec<Change>) {
    (Executed::One(Err(code)), vec![])
}

#[test]
fn a_client_that_deletes_a_container_may_delete_any_node_without_children() {
    let delete = |path: &str| request(Request::DeleteContainer { path: path.into() });
    let done = Executed::One(Ok(Shape::Deleted));
    let (executed, changes) = delete("/a/plain");
    assert_eq!(executed, done);
    assert_eq!(changes.last(), Some(&Change::Deleted("/a/plain".into())));
    assert_eq!(delete("/a"), refused(Code::NOT_EMPTY));
    assert_eq!(delete("/a/mine"), refused(Code::BAD_VERSION));
    assert_eq!(delete("/a/none"), refused(Code::NO_NODE));
    for bad in ["", "a", "/", "/zookeeper", "/a\0"] {
        assert_eq!(delete(bad), refused(Code::BAD_ARGUMENTS), "{bad:?}");
    }
}

fn create(path: &str, acl: Vec<Acl>, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: None,
        acl,
        flags,
        ttl: -1,
    }
}

#[test]
fn of_two_errors_a_create_has_zookeepers() {
    let create = |path, acl, flags| request(create(path, acl, flags));
    assert_eq!(create("a", vec![], 99), refused(Code::BAD_ARGUMENTS));
    assert_eq!(create("a", vec![], 0), refused(Code::BAD_ARGUMENTS));
    assert_eq!(create("/none/b", vec![], 0), refused(Code::INVALID_ACL));
    assert_eq!(create("/a/b", Acl::open(), 0), refused(Code::NO_AUTH));
}

#[test]
fn a_path_that_is_null_is_noticed_after_the_flags() {
    let no_path = |inner| request(Request::NoPath(Box::new(inner)));
    let of_flags = |flags| no_path(create("", Acl::open(), flags));
    assert_eq!(of_flags(0), refused(Code::MARSHALLING_ERROR));
    assert_eq!(of_flags(-1), refused(Code::BAD_ARGUMENTS));
    let (path, version) = ("".into(), -1);
    let delete = no_path(Request::Delete { path, version });
    assert_eq!(delete, refused(Code::MARSHALLING_ERROR));
}

/// The session 9 of the gateway 3 comes with a client that wants a time-out of 8 s.
fn take() -> (Operation, SessionRow) {
    let password = Bytes::from_static(b"secret");
    let found = SessionRow {
        owner: 3,
        timeout_ms: 4000,
        password: password.clone(),
    };
    let operation = Operation::TakeSession {
        session: 9,
        timeout_ms: 8000,
        password: password.to_vec(),
        found: Some(found.clone()),
    };
    (operation, found)
}

#[test]
fn a_session_that_moves_gets_the_time_out_that_its_client_asks_for_now() {
    let state = state();
    let mut plan = Plan::new(&state, 5, 1);
    let done = Executed::One(Ok(Shape::Taken { from: 3 }));
    assert_eq!(execute(&mut plan, &take().0, OWN), done);
    let taken = SessionChange::Taken {
        from: 3,
        timeout_ms: 8000,
        password: b"secret".to_vec(),
    };
    assert_eq!(plan.sessions.get(&9), Some(&taken));
}

#[test]
fn a_session_that_comes_back_does_not_end_because_its_client_was_silent_before() {
    let state = state();
    let mut plan = Plan::new(&state, 5, 1);
    let (operation, row) = take();
    execute(&mut plan, &operation, OWN);
    let close = |owner| Operation::CloseSession {
        session: 9,
        owner,
        found: FoundSession {
            row: Some(row.clone()),
            is_all: true,
            ..FoundSession::default()
        },
    };
    let refused = Executed::One(Err(Code::BAD_VERSION));
    assert_eq!(execute(&mut plan, &close(Owner::Silent), OWN), refused);
    // Its client may close it at once.
    let done = Executed::One(Ok(Shape::Empty));
    assert_eq!(execute(&mut plan, &close(Owner::Own), OWN), done);
}

#[test]
fn what_waits_counts_as_much_memory_as_the_client_sent() {
    let long: crate::wire::Text = "x".repeat(10_000).as_str().into();
    let path = long.clone();
    let exists = Request::Exists {
        path: path.clone(),
        watch: false,
    };
    let delete = Request::Delete {
        path: path.clone(),
        version: -1,
    };
    let acl = vec![Acl {
        perms: 31,
        scheme: "digest".into(),
        id: long,
    }];
    let set_acl = Request::SetAcl {
        path,
        acl,
        version: -1,
    };
    let look = Operation::Look {
        session: SESSION,
        request: exists,
        most: usize::MAX,
    };
    assert!(look.held_bytes() > 10_000);
    let multi = Request::Multi {
        operations: vec![delete, set_acl],
    };
    assert!(asked(multi).held_bytes() > 30_000);
}

/// A state in which one node is not known.
struct Forgetful(State, &'static str);

impl View for Forgetful {
    fn node(&self, path: &str) -> Known {
        match path == self.1 {
            true => Known::Unknown,
            false => self.0.node(path),
        }
    }
    fn children(&self, path: &str) -> Names {
        self.0.children(path)
    }
    fn owns(&self, session: i64) -> bool {
        self.0.owns(session)
    }
    fn is_silent(&self, session: i64) -> bool {
        self.0.is_silent(session)
    }
    fn quotas(&self) -> Rc<Quotas> {
        self.0.quotas()
    }
    fn enforces_quotas(&self) -> bool {
        true
    }
    fn exceeds(&self, _: &Exceeded, _: &str) {}
}

#[test]
fn a_child_of_a_node_that_is_not_known_and_is_made_before_it_goes_is_no_contradiction() {
    // What can never be ends a simulation.
    let simulation = Simulation::new(1, SimConfig::default());
    simulation.run(async {
        let state = Forgetful(state(), "/a");
        let mut plan = Plan::new(&state, 5, 1);
        let made = create("/a", Acl::open(), create_flags::PERSISTENT);
        let gone = Request::DeleteContainer {
            path: "/a/plain".into(),
        };
        for (piece, request) in [(0, made), (1, gone)] {
            plan.begin(piece);
            execute(&mut plan, &asked(request), OWN);
        }
        assert_eq!(
            plan.missing,
            [crate::wire::Text::from("/a")],
            "it is read, and all is executed again"
        );
    });
}

/// As ZooKeeper: until the multi is over, the flags of the request count there.
#[test]
fn a_container_whose_flags_say_ephemeral_gets_no_children_in_its_own_multi() {
    let create = |path: &str, kind: CreateKind, flags: i32| Request::Create {
        kind,
        path: path.into(),
        data: None,
        acl: open_acl().to_vec(),
        flags,
        ttl: -1,
    };
    let container = CreateKind::Container;
    let multi = |operations: Vec<Request>| request(Request::Multi { operations });
    let plain = create("/c/x", CreateKind::Plain, create_flags::PERSISTENT);
    let (executed, changes) = multi(vec![
        create("/c", container, create_flags::EPHEMERAL),
        plain.clone(),
    ]);
    let codes = vec![Code::OK, Code::NO_CHILDREN_FOR_EPHEMERALS];
    assert_eq!((executed, changes), (Executed::Multi(Err(codes)), vec![]));
    // Made anew by other flags, it does.
    for flags in [create_flags::CONTAINER, create_flags::PERSISTENT] {
        let (executed, _) = multi(vec![
            create("/c", container, create_flags::EPHEMERAL),
            Request::Delete {
                path: "/c".into(),
                version: -1,
            },
            create("/c", container, flags),
            plain.clone(),
        ]);
        assert!(matches!(executed, Executed::Multi(Ok(_))), "{executed:?}");
    }
}
