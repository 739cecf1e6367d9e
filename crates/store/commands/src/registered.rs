//! The processes of a cluster, for commands that act on all of them.
//!
//! A new controller, as there is one after every move of the coordinators, knows only who has registered so far. Who
//! hosts a role, is a coordinator or is named by the user is waited for, if something answers there.

use plinth_control::management;
use plinth_coordination::look_at;
use plinth_protocol::control::{ClusterInfo, GetClusterInfo, RegisterWorker};
use plinth_rpc::Place;
use plinth_runtime::{Duration, join_all, now, sleep, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::connect::Connection;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// All processes that run have registered with a new controller by then.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(6);
/// A recovery that can go on is over by then.
const RECOVERY_LIMIT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The list of storage servers is read in this time, or it is not there to be read now.
const LIST_LIMIT: Duration = Duration::from_secs(1);

/// See the module.
pub struct Registered {
    pub workers: Vec<RegisterWorker>,
    /// Processes that answer, and that the controller does not know even now.
    pub missing: Vec<Place>,
}

/// The processes of the cluster, among them those at the addresses `named` if there is anybody.
pub async fn registered(connection: &Connection, named: &[SocketAddr]) -> Outcome<Registered> {
    let began = now();
    loop {
        let workers = connection.workers().await?;
        let asked = GetClusterInfo { known: 0 };
        let info = connection.ask_controller(asked, "list its roles").await?;
        let wanted = wanted(connection, &workers, &info, named).await;
        let missing = alive(connection, unknown(wanted, &workers)).await;
        let limit = match (missing.is_empty(), info.accepting) {
            (true, true) => Duration::ZERO,
            // Nobody can say who is to come: perhaps there is no database, or its recovery waits for somebody.
            (true, false) => RECOVERY_LIMIT,
            (false, _) => registration_limit(connection),
        };
        if began.elapsed() >= limit {
            return Ok(Registered { workers, missing });
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// How long somebody is waited for: a part of what a statement may take, which has something to do then.
pub fn registration_limit(connection: &Connection) -> Duration {
    REGISTRATION_LIMIT.min(connection.timeout / 2)
}

impl Registered {
    /// The line that says who is missing; `None` if nobody is.
    pub fn incomplete(&self) -> Option<String> {
        let missing: Vec<String> = self.missing.iter().map(Place::to_string).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "the controller is new, and does not know {} yet; try again in a few seconds",
                missing.join(", ")
            )
        })
    }
}

/// Everybody who belongs to the cluster, as far as it can be known.
async fn wanted(
    connection: &Connection,
    workers: &[RegisterWorker],
    info: &ClusterInfo,
    named: &[SocketAddr],
) -> BTreeSet<Place> {
    let mut wanted: BTreeSet<Place> = named
        .iter()
        .copied()
        .chain(hosts(info))
        .map(Place::At)
        .collect();
    wanted.extend(connection.coordinators.file().coordinators);
    if info.accepting {
        let servers = management::unknown_servers(&connection.database, workers);
        // Whoever cannot read the list is told so by what needs it.
        let servers = timeout(LIST_LIMIT, servers).await.and_then(Result::ok);
        wanted.extend(servers.into_iter().flatten().map(Place::At));
    }
    wanted
}

/// Where the roles are that the controller tells of.
fn hosts(info: &ClusterInfo) -> Vec<SocketAddr> {
    let logs = info.log_system.current().into_iter().flat_map(|g| &g.logs);
    let proxies = info
        .client
        .commit_proxies
        .iter()
        .chain(&info.client.grv_proxies);
    let single = info.ratekeeper.iter().chain(&info.distributor);
    let roles = logs.chain(proxies).chain(single);
    roles.map(|role| role.address).collect()
}

fn unknown(wanted: BTreeSet<Place>, workers: &[RegisterWorker]) -> Vec<Place> {
    let is_known = |place: &Place| workers.iter().any(|worker| worker.is_at(place));
    wanted
        .into_iter()
        .filter(|place| !is_known(place))
        .collect()
}

/// Those where a server answers: nobody waits for one that is gone.
async fn alive(connection: &Connection, places: Vec<Place>) -> Vec<Place> {
    let file = &connection.coordinators.file();
    let looks = places
        .iter()
        .map(|place| look_at(&connection.transport, file, place));
    let looks = join_all(looks.collect::<Vec<_>>()).await;
    let found = places
        .iter()
        .zip(looks)
        .filter(|(_, look)| look.is_server());
    found.map(|(place, _)| place.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_protocol::control::ClientInfo;
    use plinth_protocol::log::LogSystem;
    use plinth_rpc::Interface;

    #[test]
    fn who_has_a_role_is_waited_for() {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let role = |port| Interface::new(at(port), plinth_core::Uid(1));
        let info = ClusterInfo {
            id: 1,
            controller: role(9),
            epoch: 1,
            accepting: true,
            database: plinth_protocol::database::DatabaseId::FORMER,
            log_system: LogSystem {
                generations: vec![],
            },
            servers: vec![],
            next_tag: 0,
            ratekeeper: Some(role(3)),
            distributor: None,
            classes: vec![],
            knobs: vec![],
            client: ClientInfo {
                id: 1,
                grv_proxies: vec![role(2), role(1)],
                commit_proxies: vec![role(1)],
            },
        };
        let hosts: BTreeSet<SocketAddr> = hosts(&info).into_iter().collect();
        assert_eq!(hosts, [at(1), at(2), at(3)].into());
    }
}
