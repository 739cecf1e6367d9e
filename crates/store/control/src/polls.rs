//! Long polls: workers and clients that have the current description wait here for the next one.

use plinth_identity::Identity;
use plinth_protocol::control::{ClusterInfo, GetClientInfo, GetClusterInfo};
use plinth_rpc::{PROTOCOL_VERSION, Responder, Waiters};
use plinth_runtime::Duration;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A poll that has waited for this long is answered with the current description.
pub(crate) const POLL_LIMIT: Duration = Duration::from_secs(60);

/// The waiting polls. All of them have the current description, so the next change answers all of them.
pub(crate) struct Polls {
    cluster: Waiters<GetClusterInfo>,
    client: Waiters<GetClientInfo>,
}

impl Polls {
    pub fn new() -> Self {
        Polls {
            cluster: Waiters::new("controller_polls"),
            client: Waiters::new("controller_polls"),
        }
    }

    pub fn cluster(
        &self,
        info: &ClusterInfo,
        request: GetClusterInfo,
        responder: Responder<GetClusterInfo>,
    ) {
        if request.known == info.id {
            self.cluster.add((), responder);
        } else {
            responder.ok(info.clone());
        }
    }

    pub fn client(
        &self,
        info: &ClusterInfo,
        request: GetClientInfo,
        responder: Responder<GetClientInfo>,
    ) {
        if request.known == info.client.id {
            self.client.add((), responder);
        } else {
            responder.ok(info.client.clone());
        }
    }

    /// The clients that are connected, in FoundationDB's form. Servers ask as clients, too. Where there are no keys,
    /// they cannot be told from others, and `servers` says how many of them there are.
    pub fn clients(&self, servers: usize) -> Value {
        let mut all = Vec::new();
        self.client
            .each(|responder| all.push((responder.peer(), responder.caller())));
        let is_client = |(peer, caller): &(Option<SocketAddr>, Identity)| {
            (*caller < Identity::Server).then_some(*peer).flatten()
        };
        let listed: Vec<SocketAddr> = all.iter().filter_map(is_client).collect();
        let count = match listed.is_empty() {
            true => all.len().saturating_sub(servers),
            false => listed.len(),
        };
        let connected = listed
            .iter()
            .map(|peer| json!({"address": peer.to_string(), "log_group": "default"}));
        let connected: Vec<Value> = connected.collect();
        json!({
            "count": count,
            "supported_versions": [{
                "client_version": "Unknown",
                "connected_clients": &connected,
                "count": count,
                "max_protocol_clients": &connected,
                "max_protocol_count": count,
                "protocol_version": format!("{PROTOCOL_VERSION:x}"),
                "source_version": "Unknown",
            }],
        })
    }

    /// Answers the polls after a change of the description; those of clients only if their part has changed.
    pub fn answer(&self, info: &ClusterInfo, client_changed: bool) {
        for ((), responder) in self.cluster.take() {
            responder.ok(info.clone());
        }
        if client_changed {
            for ((), responder) in self.client.take() {
                responder.ok(info.client.clone());
            }
        }
    }

    /// Answers the polls that have waited for [`POLL_LIMIT`].
    pub fn answer_old(&self, info: &ClusterInfo) {
        while let Some(((), responder)) = self.cluster.take_older(POLL_LIMIT) {
            responder.ok(info.clone());
        }
        while let Some(((), responder)) = self.client.take_older(POLL_LIMIT) {
            responder.ok(info.client.clone());
        }
    }
}
