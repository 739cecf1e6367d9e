//! Gateways of a database in memory, and what the tests ask them.

use bytes::Bytes;
use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, create_flags};
use plinth_keeper::{Keeper, Options, Words};
use plinth_runtime::{Duration, Task, spawn, timeout};
use std::net::SocketAddr;
use std::rc::Rc;

const TIMEOUT_MS: i32 = 30_000;
/// An answer comes at once, whatever it says.
const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway, and what runs it.
pub struct Gateway {
    pub keeper: Rc<Keeper>,
    /// It ends when this is dropped.
    pub serving: Task<()>,
}

impl Gateway {
    pub async fn start(cluster: &MemoryCluster) -> Gateway {
        let options = Options {
            max_connections_per_address: 0,
            words: Words::all(),
            ..Options::default()
        };
        Gateway::start_with(cluster, options).await
    }

    pub async fn start_with(cluster: &MemoryCluster, options: Options) -> Gateway {
        let address: SocketAddr = ([127, 0, 0, 1], 0).into();
        let keeper = Keeper::listen(cluster.database(), address, options).await;
        let keeper = Rc::new(keeper.expect("a free port"));
        let serving = keeper.clone();
        Gateway {
            keeper,
            serving: spawn("gateway", async move { serving.serve().await }),
        }
    }

    pub async fn client(&self) -> Client {
        self.client_with(None).await.expect("it serves")
    }

    /// A client that goes on with a session.
    pub async fn client_with(&self, session: Option<(i64, Bytes, i64)>) -> Result<Client, Failure> {
        Client::connect(self.keeper.address(), TIMEOUT_MS, session).await
    }
}

pub fn create_with(path: &str, data: impl Into<Bytes>, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some(data.into()),
        acl: Acl::open(),
        flags,
        ttl: -1,
    }
}

pub fn create(path: &str) -> Request {
    create_with(path, "abc", create_flags::PERSISTENT)
}

pub fn set_to(path: &str, data: impl Into<Bytes>) -> Request {
    Request::SetData {
        path: path.into(),
        data: Some(data.into()),
        version: -1,
    }
}

pub fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.into(),
        version: -1,
    }
}

pub fn get(path: &str) -> Request {
    Request::GetData {
        path: path.into(),
        watch: false,
    }
}

pub fn list(path: &str) -> Request {
    Request::GetChildren {
        path: path.into(),
        watch: false,
    }
}

/// The request, which also sets a watch.
pub fn watching(mut request: Request) -> Request {
    let (Request::Exists { watch, .. }
    | Request::GetData { watch, .. }
    | Request::GetChildren { watch, .. }) = &mut request
    else {
        panic!("{request:?} watches nothing");
    };
    *watch = true;
    request
}

pub fn sync() -> Request {
    Request::Sync {
        path: Some("/".into()),
    }
}

pub fn several(operations: Vec<Request>) -> Request {
    Request::MultiRead {
        operations,
        breaks_off: false,
    }
}

pub async fn ask(client: &Client, request: Request) -> Result<Answer, Code> {
    let asked = format!("{request:?}");
    let answer = timeout(PATIENCE, client.submit(request)).await;
    match answer.unwrap_or_else(|| panic!("no answer to {asked}")) {
        Ok((_, answer)) => Ok(answer),
        Err(Failure::Refused(code)) => Err(code),
        Err(failure) => panic!("{asked}: {failure}"),
    }
}

pub async fn done(client: &Client, request: Request) -> Answer {
    let asked = format!("{request:?}");
    let answer = ask(client, request).await;
    answer.unwrap_or_else(|code| panic!("{asked}: {code}"))
}

/// The names of the children, in order.
pub async fn names(client: &Client, path: &str) -> Vec<String> {
    match done(client, list(path)).await {
        Answer::Children(names) => names.iter().map(|name| name.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}
