//! Quotas in the simulated workload: what they let in, and what is kept of their use.

use crate::client::Client;
use crate::store::Most;
use crate::stored::read_page;
use crate::tree::node::Node;
use crate::tree::quota::{Counted, Quota, Used};
use crate::tree::rows::Rows;
use crate::wire::{Acl, Answer, Code, CreateKind, Request, Text, create_flags};
use crate::workload::asking::{Asked, ask, create};
use crate::zxid::Zxids;
use bytes::Bytes;
use plinth_client::{Database, Transaction};
use plinth_core::{Error, Result};
use plinth_runtime::random::{below, chance};

/// A node with a hard limit all the time: itself, and three children.
const LIMITED: &str = "/simulated/q";
const CHILDREN_MAX: usize = 3;
/// Nodes whose quotas come and go. They limit nothing: what is used of them is kept.
const WATCHED: [&str; 3] = ["/simulated", "/simulated/e", "/simulated/s"];

/// Nodes that must be there before the quotas are made.
pub fn nodes() -> impl Iterator<Item = String> {
    let quotas = ["/simulated", "/simulated/e", "/simulated/s", "/simulated/q"];
    let quotas = quotas.into_iter().map(|of| format!("/zookeeper/quota{of}"));
    [LIMITED.to_string()].into_iter().chain(quotas)
}

pub fn create_limits(of: &str, limits: &str) -> Request {
    Request::Create {
        kind: CreateKind::WithStat,
        path: format!("/zookeeper/quota{of}/zookeeper_limits").into(),
        data: Some(Bytes::copy_from_slice(limits.as_bytes())),
        acl: Acl::open(),
        flags: create_flags::PERSISTENT,
        ttl: -1,
    }
}

/// The limit of [`LIMITED`].
pub fn limit() -> Request {
    create_limits(
        LIMITED,
        "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4",
    )
}

/// True if the limits of both nodes hold from now on: of [`LIMITED`], and of another one.
pub async fn are_counted(database: &Database, other: &str) -> bool {
    is_counted(database, LIMITED).await && is_counted(database, other).await
}

async fn is_counted(database: &Database, of: &str) -> bool {
    let rows = Rows::new("default");
    let read = database.run(async |transaction| transaction.get(rows.quota(of), true).await);
    let quota = read
        .await
        .ok()
        .flatten()
        .and_then(|row| Quota::from_row(&row));
    quota.is_some_and(|quota| quota.counted == Counted::All)
}

/// Makes or removes a quota.
pub async fn come_and_go(client: &Client) -> Asked {
    let of = WATCHED[below(WATCHED.len() as u64) as usize];
    let request = match chance(0.5) {
        true => create_limits(of, "count=1,bytes=1"),
        false => Request::Delete {
            path: format!("/zookeeper/quota{of}/zookeeper_limits").into(),
            version: -1,
        },
    };
    ask(client, request).await
}

/// Creates or deletes a node where there may be few. Fails with a text if there are more than the limit allows.
pub async fn press(client: &Client) -> std::result::Result<Asked, String> {
    let path: Text = format!("{LIMITED}/{}", below(8)).into();
    let asked = match chance(0.7) {
        true => ask(client, create(path, create_flags::PERSISTENT)).await,
        false => ask(client, Request::Delete { path, version: -1 }).await,
    };
    if !matches!(asked, Ok(_) | Err(Some(Code::QUOTA_EXCEEDED))) {
        return Ok(asked);
    }
    let request = Request::GetChildren {
        path: LIMITED.into(),
        watch: false,
    };
    match ask(client, request).await {
        Ok(Answer::Children(names)) if names.len() > CHILDREN_MAX => Err(format!(
            "a limit of {CHILDREN_MAX} nodes has let in {names:?}"
        )),
        other => Ok(other),
    }
}

/// What is kept of the use of every quota must be what its nodes use, as far as they are counted.
pub async fn check(
    transaction: &Transaction,
    rows: &Rows,
) -> Result<std::result::Result<(), String>> {
    let found = read_page(transaction, rows.all_quotas(), Most::ALL)
        .await?
        .rows;
    let nodes = read_page(transaction, rows.all_nodes(), Most::ALL)
        .await?
        .rows;
    let number = |key: Vec<u8>| {
        let row = found.iter().find(|(found, _)| *found == key);
        let row = row.and_then(|(_, row)| row.first_chunk::<8>());
        row.map_or(0, |row| i64::from_le_bytes(*row))
    };
    for (key, row) in &found {
        let (path, of) = rows.quota_path(key).ok_or(Error::file_corrupt)?;
        if of.is_some() {
            continue;
        }
        let quota = Quota::from_row(row).ok_or(Error::file_corrupt)?;
        let kept = Used {
            nodes: number(rows.quota_used(path, b'n')),
            bytes: number(rows.quota_used(path, b'b')),
        };
        let below = format!("{path}/");
        let mut used = Used::default();
        for (key, row) in nodes.iter().filter(|(key, _)| Rows::is_node(key)) {
            let node = Node::from_row(row, Zxids { base: 0 }).ok_or(Error::file_corrupt)?;
            let at = rows.node_path(key).ok_or(Error::file_corrupt)?;
            if (at == path || at.starts_with(&below)) && quota.counted.has(at) {
                used = used.plus(Used::of(Some(&node)));
            }
        }
        if used != kept {
            let counted = &quota.counted;
            return Ok(Err(format!(
                "the quota of {path} has {kept:?} used, its nodes {used:?}, counted: {counted:?}"
            )));
        }
    }
    Ok(Ok(()))
}
