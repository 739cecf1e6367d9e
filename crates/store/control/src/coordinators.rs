//! Chooses coordinators, and checks whether given processes can be coordinators.

use crate::placement;
use plinth_coordination::ClusterFile;
use plinth_core::{DatabaseConfig, Uid};
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::coordination::{self, GetLeader, GetLeaderReply};
use plinth_protocol::database::DatabaseId;
use plinth_rpc::{Place, Transport};
use plinth_runtime::Boxed;
use plinth_runtime::Duration;
use std::collections::BTreeSet;

/// A process that does not answer within this time cannot be a coordinator.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Checks whether the processes at `wanted` can be the coordinators. Returns those that have lost their registers,
/// each with the id of the start at which it reported that; or a refusal in one line.
pub fn check<'a>(
    transport: &'a Transport,
    now: &'a ClusterFile,
    wanted: &'a [Place],
    database: &'a DatabaseId,
) -> Boxed<'a, Result<Vec<(Place, Uid)>, String>> {
    Box::pin(async move {
        let successor = now.succeeded_by(wanted.to_vec());
        // All processes will read the cluster file from its text.
        if let Err(wrong) = ClusterFile::parse(&successor.to_string()) {
            return Err(format!(
                "the new cluster file would be wrong: {wrong}; nothing has changed"
            ));
        }
        let answers = ask(transport, &successor).await;
        let silent = answers.iter().filter(|(_, reply)| reply.is_none());
        let silent: Vec<String> = silent.map(|(place, _)| place.to_string()).collect();
        let lost: Vec<(Place, Uid)> = answers
            .iter()
            .filter_map(|(place, reply)| Some((place.clone(), reply.as_ref()?.lost?)))
            .collect();
        let set = |list: &[Place]| list.iter().cloned().collect::<BTreeSet<_>>();
        if set(wanted) == set(&now.coordinators) && lost.is_empty() {
            return Err("these are the coordinators already".into());
        }
        let other = answers.iter().find(|(_, reply)| {
            let held = reply.as_ref().and_then(|reply| reply.database);
            held.is_some_and(|held| !database.may_own(held))
        });
        if let Some((place, _)) = other {
            return Err(format!(
                "{place} holds the coordinated state of another database of this cluster, and keeps it: name another \
                 server, or start that one over an empty --data-dir; nothing has changed"
            ));
        }
        match silent.is_empty() {
            true => Ok(lost),
            false => Err(format!(
                "{} cannot be a coordinator of this cluster: no server of it answers there{}; nothing has changed",
                silent.join(", "),
                match wanted.iter().any(Place::is_named) {
                    true => " that was started with this --public-address",
                    false => "",
                }
            )),
        }
    })
}

/// The answer of each coordinator of the set; `None` if it does not answer in time.
async fn ask(transport: &Transport, cluster: &ClusterFile) -> Vec<(Place, Option<GetLeaderReply>)> {
    let asked = cluster.coordinators.iter().map(|place| async {
        let request = GetLeader {
            register: cluster.register(),
        };
        let call = coordination::ask(transport, place, request);
        let answered = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
        (place.clone(), answered.and_then(Result::ok))
    });
    plinth_runtime::join_all(asked.collect::<Vec<_>>()).await
}

/// The coordinators that do not tell whether there is a database: those that do not answer, and those that no longer
/// know what they have promised; and those that hold one, which somebody could not read.
pub fn silent<'a>(transport: &'a Transport, now: &'a ClusterFile) -> Boxed<'a, Vec<Place>> {
    Box::pin(async move {
        let answers = ask(transport, now).await.into_iter();
        let tells = |reply: &Option<GetLeaderReply>| {
            let reply = reply.as_ref();
            reply.is_some_and(|reply| reply.lost.is_none() && reply.database.is_none())
        };
        let silent = answers.filter(|(_, reply)| !tells(reply));
        silent.map(|(place, _)| place).collect()
    })
}

/// True if one of the coordinators reports that it has lost its registers.
pub fn one_is_lost<'a>(transport: &'a Transport, now: &'a ClusterFile) -> Boxed<'a, bool> {
    Box::pin(async move {
        let is_lost = |reply: &GetLeaderReply| reply.lost.is_some();
        let answers = ask(transport, now).await;
        answers
            .iter()
            .any(|(_, reply)| reply.as_ref().is_some_and(is_lost))
    })
}

/// Refusal if some of these processes cannot be coordinators because their disks are sick.
pub fn on_sick_disks<'a>(
    wanted: &[Place],
    workers: impl Iterator<Item = &'a RegisterWorker>,
) -> Option<String> {
    let sick = workers.filter_map(|worker| {
        let (address, disk) = (worker.worker.address, worker.disk.as_ref()?);
        let told = format!("{address} ({}: {})", disk.directory, disk.what);
        let is_meant = wanted.iter().any(|place| worker.is_at(place));
        is_meant.then_some(told)
    });
    let sick: Vec<String> = sick.collect();
    (!sick.is_empty()).then(|| {
        format!(
            "a coordinator needs a disk that works, and this one is sick: {}; nothing has changed",
            sick.join(", ")
        )
    })
}

/// As many coordinators a cluster with this replication should have: twice the number of failures that it survives,
/// plus one.
pub fn wanted(config: &DatabaseConfig) -> usize {
    2 * (config.replication as usize).max(1) - 1
}

/// Chooses the coordinators for a cluster with this replication: as many as it should have. Each is in another fault
/// domain. Current coordinators that live, with a disk that works, stay. If there are too few domains, the number is
/// smaller, and odd. Where coordinators have names, only processes with a name can be some.
pub fn choose(workers: &[RegisterWorker], now: &[Place], config: &DatabaseConfig) -> Vec<Place> {
    let are_named = now.iter().any(Place::is_named);
    let place = |worker: &RegisterWorker| match are_named {
        true => worker.name.clone(),
        false => Some(worker.worker.address.into()),
    };
    let wanted = wanted(config);
    let mut able = placement::able_to_log(workers.iter().collect());
    able.retain(|worker| worker.disk.is_none() && place(worker).is_some());
    // Coordinators first; among the rest the order of addresses.
    able.sort_by_key(|worker| {
        let address = worker.worker.address;
        let is_one = now.iter().any(|place| worker.is_at(place));
        (!is_one, address)
    });
    let mut domains = BTreeSet::new();
    able.retain(|worker| domains.insert(worker.locality.domain(config.domain)));
    let count = match able.len().min(wanted) {
        0 => 0,
        count => count - 1 + count % 2,
    };
    able[..count].iter().filter_map(|w| place(w)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use plinth_core::config::FaultDomain;
    use plinth_protocol::control::ProcessClass;
    use std::net::SocketAddr;

    fn at(port: u16) -> Place {
        SocketAddr::from(([10, 0, 0, 1], port)).into()
    }

    fn worker(port: u16, zone: &str) -> RegisterWorker {
        testing::worker(port, ProcessClass::Unset, zone)
    }

    #[test]
    fn chosen_coordinators_are_odd_in_number_and_each_in_another_zone() {
        let workers: Vec<_> = [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, "d")]
            .map(|(port, zone)| worker(port, zone))
            .to_vec();
        let ports = |list: Vec<Place>| list.iter().map(Place::port).collect::<Vec<_>>();
        let with = |replication| DatabaseConfig {
            replication,
            ..DatabaseConfig::default()
        };
        assert_eq!(ports(choose(&workers, &[], &with(1))), [1]);
        let mut sick = workers.clone();
        sick[0].disk = Some(testing::sick());
        assert_eq!(ports(choose(&sick, &[at(1)], &with(1))), [2]);
        let refused = on_sick_disks(&[at(1), at(2)], sick.iter()).expect("one is sick");
        assert!(refused.contains("10.0.0.1:1 (/d: it fails)"), "{refused}");
        assert_eq!(on_sick_disks(&[at(2)], sick.iter()), None);
        assert_eq!(ports(choose(&workers, &[], &with(2))), [1, 3, 4]);
        // Four zones: three coordinators. The second worker of zone a is a coordinator already, and stays.
        assert_eq!(
            ports(choose(&workers, &[at(2), at(9)], &with(3))),
            [2, 3, 4]
        );
        assert_eq!(ports(choose(&workers[..2], &[], &with(3))), [1]);
        assert!(choose(&[], &[], &with(3)).is_empty());
        // All workers are in one data hall.
        let halls = DatabaseConfig {
            domain: FaultDomain::DataHall,
            ..with(3)
        };
        assert_eq!(ports(choose(&workers, &[], &halls)), [1]);
    }

    #[test]
    fn named_coordinators_are_succeeded_by_processes_that_have_names() {
        let name = |port: u16| Place::Named("db".into(), port);
        let mut workers: Vec<_> = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
            .map(|(port, zone)| worker(port, zone))
            .to_vec();
        for worker in &mut workers[1..] {
            worker.name = Some(name(worker.worker.address.port()));
        }
        let config = DatabaseConfig {
            replication: 2,
            ..DatabaseConfig::default()
        };
        let chosen = choose(&workers, &[name(4)], &config);
        assert_eq!(chosen, [name(4), name(2), name(3)]);
    }
}
