//! The status document: the controller's report on the cluster, and this client's own view of it.

use super::Inner;
use plinth_coordination::ClusterFile;
use plinth_core::Value;
use plinth_protocol::coordination::{GetLeader, coordinator};
use plinth_protocol::status::GetStatus;
use plinth_runtime::Duration;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;

/// A process that has not answered within this time is reported as silent.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Makes the document. It always answers, within a few seconds.
pub async fn document(inner: &Inner) -> Value {
    let file = inner.coordinators.file();
    let reached = file
        .coordinators
        .iter()
        .map(|address| reach(inner, &file, *address));
    let reached = plinth_runtime::join_all(reached).await;
    let cluster = cluster(inner).await;
    let quorum = reached.iter().filter(|reached| **reached).count() >= file.majority();
    let coordinators: Vec<Json> = file
        .coordinators
        .iter()
        .zip(&reached)
        .map(|(address, reachable)| json!({"address": address.to_string(), "reachable": reachable}))
        .collect();
    let available = cluster
        .as_ref()
        .is_some_and(|cluster| cluster["database_available"] == json!(true));
    let mut messages = Vec::new();
    if !quorum {
        messages.push(json!({
            "name": "quorum_not_reachable", "description": "Unable to reach a quorum of coordinators.",
        }));
    } else if cluster.is_none() {
        messages.push(json!({
            "name": "unreachable_cluster_controller",
            "description": "No response received from the cluster controller.",
        }));
    }
    let mut document = json!({
        "client": {
            "cluster_file": {"up_to_date": true},
            "coordinators": {"coordinators": coordinators, "quorum_reachable": quorum},
            "database_status": {"available": available, "healthy": available},
            "messages": messages,
        }
    });
    if let Some(cluster) = cluster {
        document["cluster"] = cluster;
    }
    document.to_string().into()
}

async fn cluster(inner: &Inner) -> Option<Json> {
    let asking = async {
        inner.leader.wait_until(Option::is_some).await;
        let leader = inner.leader.get()?;
        let endpoint = leader.controller.endpoint::<GetStatus>();
        let reply = inner.transport.call(&endpoint, GetStatus {}).await.ok()?;
        let mut document: Json = serde_json::from_str(&reply.json).ok()?;
        Some(document["cluster"].take())
    };
    plinth_runtime::timeout(ANSWER_LIMIT, asking)
        .await
        .flatten()
}

async fn reach(inner: &Inner, file: &ClusterFile, address: SocketAddr) -> bool {
    let endpoint = coordinator(address).endpoint::<GetLeader>();
    let register = file.register();
    let call = inner.transport.call(&endpoint, GetLeader { register });
    let answered = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
    matches!(answered, Some(Ok(reply)) if reply.lost.is_none())
}
