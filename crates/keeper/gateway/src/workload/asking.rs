//! Requests of the simulated workload.

use crate::client::{Client, Failure};
use crate::wire::{Acl, Answer, Code, CreateKind, Request, Text};
use bytes::Bytes;
use plinth_runtime::{Duration, timeout};

/// An answer that has not come by then will not be waited for.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(5);

pub fn create(path: Text, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::WithStat,
        path,
        data: Some(Bytes::new()),
        acl: Acl::open(),
        flags,
        ttl: -1,
    }
}

pub fn sync(path: Text) -> Request {
    Request::Sync { path: Some(path) }
}

/// What a keeper can besides ZooKeeper's requests.
pub fn flags() -> Request {
    Request::GetData {
        path: "/keeper/feature_flags".into(),
        watch: false,
    }
}

/// `Err(None)`: the connection is of no use any more.
pub type Asked = Result<Answer, Option<Code>>;

pub async fn ask(client: &Client, request: Request) -> Asked {
    settle(timeout(ANSWER_LIMIT, client.submit(request)).await)
}

pub fn settle(answered: Option<Result<(i64, Answer), Failure>>) -> Asked {
    match answered {
        Some(Ok((_, answer))) => Ok(answer),
        Some(Err(Failure::Refused(code))) => Err(Some(code)),
        Some(Err(_)) | None => Err(None),
    }
}
