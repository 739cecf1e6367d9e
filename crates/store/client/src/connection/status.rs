//! The status document: the controller's report on the cluster, and this client's own view of it.

use super::Inner;
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::{Uid, Value};
use plinth_protocol::coordination::{self, GetLeader, GetLeaderReply};
use plinth_protocol::database::{WITHOUT_ID, named};
use plinth_protocol::status::GetStatus;
use plinth_rpc::{PROTOCOL_VERSION, Place, Transport};
use plinth_runtime::Boxed;
use plinth_runtime::Duration;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// A process that has not answered within this time is reported as silent.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Makes the document. It always answers, within a few seconds.
pub(super) async fn document(inner: &Inner) -> Value {
    let cluster = cluster(inner).await;
    let client = client(&inner.transport, &inner.coordinators, cluster.as_ref()).await;
    let mut document = json!({"client": client});
    if let Some(cluster) = cluster {
        document["cluster"] = cluster;
    }
    document.to_string().into()
}

/// The view of a client that has this report on the cluster, or none.
pub fn client<'a>(
    transport: &'a Transport,
    coordinators: &'a Coordinators,
    cluster: Option<&'a Json>,
) -> Boxed<'a, Json> {
    Box::pin(async move {
        let file = coordinators.file();
        let reached = file.coordinators.iter();
        let reached = reached.map(|place| reach(transport, &file, place));
        let reached = plinth_runtime::join_all(reached).await;
        let quorum = reached.iter().flatten().count() >= file.majority();
        let listed = file.coordinators.iter().zip(&reached);
        let listed = listed.map(|(place, reachable)| {
            let mut coordinator =
                json!({"address": place.to_string(), "reachable": reachable.is_some()});
            if let Some(reply) = reachable {
                coordinator["protocol"] = json!(format!("{PROTOCOL_VERSION:x}"));
                coordinator["database"] = json!(database_of(reply).map(|id| id.to_string()));
            }
            coordinator
        });
        let is = |field: &Json| *field == json!(true);
        let available = cluster.is_some_and(|cluster| is(&cluster["database_available"]));
        let healthy = cluster.is_some_and(|cluster| is(&cluster["data"]["state"]["healthy"]));
        let kept = coordinators.kept_file();
        let (path, up_to_date) = kept.unwrap_or((PathBuf::new(), true));
        let mut messages = Vec::new();
        if !up_to_date {
            messages.push(json!({
                "name": "inconsistent_cluster_file",
                "description": "The cluster file names former coordinators and cannot be written.",
            }));
        }
        if let Some(description) = two_databases(&file, &reached) {
            messages.push(json!({
                "name": "coordinators_of_two_databases", "description": description,
            }));
        }
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
        json!({
            "cluster_file": {"path": path.display().to_string(), "up_to_date": up_to_date},
            "coordinators": {"coordinators": listed.collect::<Vec<_>>(), "quorum_reachable": quorum},
            "database_status": {"available": available, "healthy": available && healthy},
            "messages": messages,
            "timestamp": plinth_runtime::unix_time_ms() / 1000,
        })
    })
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

/// The answer of a coordinator that knows what it has promised.
async fn reach(transport: &Transport, file: &ClusterFile, place: &Place) -> Option<GetLeaderReply> {
    let register = file.register();
    let call = coordination::ask(transport, place, GetLeader { register });
    let answered = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
    let reply = answered.and_then(Result::ok);
    reply.filter(|reply| reply.lost.is_none())
}

/// The database whose state a coordinator holds. A state without an id may be an older one of any.
fn database_of(reply: &GetLeaderReply) -> Option<Uid> {
    reply.database.filter(|id| *id != WITHOUT_ID)
}

/// Who holds what, if coordinators hold the states of two databases.
fn two_databases(file: &ClusterFile, reached: &[Option<GetLeaderReply>]) -> Option<String> {
    let told = file.coordinators.iter().zip(reached);
    let told = told.filter_map(|(place, reply)| Some((place, database_of(reply.as_ref()?)?)));
    let told: Vec<(&Place, Uid)> = told.collect();
    let (_, first) = told.first()?;
    if told.iter().all(|(_, id)| id == first) {
        return None;
    }
    let held = told
        .iter()
        .map(|(place, id)| format!("{place} that of {}", named(*id)));
    Some(format!(
        "the coordinators hold the states of two databases of this cluster: {}. Only one that a majority holds is \
         served; see Two databases of one cluster in docs/operating.md",
        held.collect::<Vec<_>>().join(", ")
    ))
}
