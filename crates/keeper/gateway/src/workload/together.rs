//! Nodes that are the same at any time: each transaction changes all of them, and whoever reads all of them in one
//! request sees one state, at any gateway.

use super::asking::{Asked, ask};
use crate::client::Client;
use crate::wire::{Answer, MultiResult, Request, Text};
use bytes::Bytes;

/// With so many, a transaction may have more than one entry of the stream of changes.
const NODES: usize = 6;

pub fn nodes() -> impl Iterator<Item = Text> {
    (0..NODES).map(|i| format!("/simulated/p{i}").into())
}

/// Gives all nodes the same data.
pub async fn set(client: &Client, value: &str) -> Asked {
    let set = |path| Request::SetData {
        path,
        data: Some(Bytes::from(value.to_string())),
        version: -1,
    };
    let operations = nodes().map(set).collect();
    ask(client, Request::Multi { operations }).await
}

/// Reads all nodes. Fails with a text if they are not of one state.
pub async fn get(client: &Client) -> Result<Asked, String> {
    let get = |path| Request::GetData { path, watch: false };
    let request = Request::MultiRead {
        operations: nodes().map(get).collect(),
        breaks_off: false,
    };
    let asked = ask(client, request).await;
    let Ok(Answer::MultiRead(results)) = &asked else {
        return Ok(asked);
    };
    let state = |result: &MultiResult| match result {
        // Before the first transaction each has a creation of its own.
        MultiResult::Data(_, stat) if stat.version == 0 => Ok((0, 0, None)),
        MultiResult::Data(data, stat) => Ok((stat.version, stat.mzxid, data.clone())),
        other => Err(format!("a read among several is answered with {other:?}")),
    };
    let states = results.iter().map(state).collect::<Result<Vec<_>, _>>()?;
    if states.len() != NODES || states.iter().any(|state| *state != states[0]) {
        let versions: Vec<i32> = states.iter().map(|(version, ..)| *version).collect();
        return Err(format!(
            "a read of nodes that change together sees versions {versions:?}"
        ));
    }
    Ok(asked)
}
