//! Which worker gets which role. Pure functions of the registrations of the workers.

use plinth_core::DatabaseConfig;
use plinth_core::config::FaultDomain;
use plinth_protocol::control::{ProcessClass, RegisterWorker};
use plinth_rpc::Interface;
use plinth_runtime::probe;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Kind of a role, by what it needs from a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoleKind {
    Storage,
    Log,
    Stateless,
}

/// How well a process of this class suits the role: lower is better, `None` means never.
pub fn fitness(class: ProcessClass, role: RoleKind) -> Option<u32> {
    use ProcessClass::{Log, Stateless, Storage, Tester, Unset};
    match (class, role) {
        (Tester, _) => None,
        (Storage, RoleKind::Storage) | (Log, RoleKind::Log) | (Stateless, RoleKind::Stateless) => {
            Some(0)
        }
        (Unset, _) => Some(1),
        (Log, RoleKind::Stateless) => Some(2),
        (Storage, RoleKind::Log) => Some(3),
        (Storage, RoleKind::Stateless) => Some(4),
        (Log, RoleKind::Storage) => Some(5),
        (Stateless, _) => None,
    }
}

/// Where every role of an epoch goes: indexes into the list of workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    pub sequencer: usize,
    pub logs: Vec<usize>,
    pub commit_proxies: Vec<usize>,
    pub grv_proxies: Vec<usize>,
    pub resolvers: Vec<usize>,
}

/// Preference among workers, best first. A role that writes is placed on a worse worker only if there are too few
/// better ones. A role that writes nothing only considers exclusion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Standing {
    pub disk: DiskStanding,
    /// An operator excludes it; it is used only as a last resort.
    pub is_excluded: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DiskStanding {
    Good,
    /// It was sick, and has worked again only for a short time, or was slow in a recovery a moment ago.
    Doubted,
    /// It has no room.
    Full,
    /// Its operations may never return.
    Sick,
}

impl Standing {
    pub fn is_good(self) -> bool {
        self.disk == DiskStanding::Good && !self.is_excluded
    }
}

/// Places the roles of a new epoch. `None` if there are too few workers in different zones to hold every log
/// record `replication` times.
pub fn place(
    workers: &[&RegisterWorker],
    config: &DatabaseConfig,
    standing: impl Fn(&RegisterWorker) -> Standing,
) -> Option<Placement> {
    let logs = choose_logs(workers, config, |i| standing(workers[i]))?;
    let domains = logs
        .iter()
        .map(|i| workers[*i].locality.domain(config.domain));
    let domains: BTreeSet<&String> = domains.collect();
    assert_eq!(
        domains.len(),
        logs.len(),
        "what one of {domains:?} loses is elsewhere"
    );
    let mut stateless: Vec<usize> = suitable(workers, RoleKind::Stateless);
    let is_wanted = |i: &usize| !standing(workers[*i]).is_excluded;
    if stateless.iter().any(is_wanted) {
        stateless.retain(is_wanted);
    }
    if stateless.is_empty() {
        return None;
    }
    // Log servers wait for disks, so stateless roles prefer other workers. Stable: equals keep their order.
    stateless.sort_by_key(|i| {
        (
            fitness(workers[*i].class(), RoleKind::Stateless),
            logs.contains(i),
        )
    });
    let pick = |skip: usize, wanted: u32| -> Vec<usize> {
        let count = (wanted.max(1) as usize).min(stateless.len());
        (0..count)
            .map(|i| stateless[(skip + i) % stateless.len()])
            .collect()
    };
    Some(Placement {
        sequencer: stateless[0],
        commit_proxies: pick(1, config.commit_proxies),
        grv_proxies: pick(1 + config.commit_proxies as usize, config.grv_proxies),
        resolvers: pick(2 + config.commit_proxies as usize, config.resolvers),
        logs,
    })
}

/// What the workers lack, for people: to hold a new database (`role` is storage), or to run an epoch (`role` is log).
pub fn lacking(workers: &[&RegisterWorker], config: &DatabaseConfig, role: RoleKind) -> String {
    let able = suitable(workers, role);
    let place = domain_name(config.domain);
    let places = able
        .iter()
        .map(|i| workers[*i].locality.domain(config.domain));
    let places = places.collect::<BTreeSet<_>>().len();
    if role == RoleKind::Log && places >= config.replication as usize {
        return "a process whose class lets it do without a disk (stateless, unset, log or storage)".into();
    }
    let what = if role == RoleKind::Log {
        "logs"
    } else {
        "storage"
    };
    format!(
        "processes that may hold {what} in {} different {place}s: of {} processes {} may, in {places}",
        config.replication,
        workers.len(),
        able.len()
    )
}

fn domain_name(domain: FaultDomain) -> &'static str {
    match domain {
        FaultDomain::Zone => "zone",
        FaultDomain::DataHall => "data hall",
    }
}

/// The workers without those that some others cannot reach, though the controller reaches all. Leaves out as few as
/// necessary, and `own` last.
pub fn all_reach_all<'a>(
    workers: &[&'a RegisterWorker],
    own: Option<SocketAddr>,
) -> Vec<&'a RegisterWorker> {
    let mut left = workers.to_vec();
    loop {
        let cut = |a: &RegisterWorker, b: &RegisterWorker| {
            a.unreachable.contains(&b.worker.address) || b.unreachable.contains(&a.worker.address)
        };
        let cuts = |w: &&&RegisterWorker| left.iter().filter(|other| cut(w, other)).count();
        let worst = left.iter().max_by_key(|w| {
            let address = w.worker.address;
            (cuts(w), Some(address) != own, address)
        });
        match worst.filter(|w| cuts(w) > 0).map(|w| w.worker.address) {
            None => return left,
            Some(address) => left.retain(|w| w.worker.address != address),
        }
    }
}

fn suitable(workers: &[&RegisterWorker], role: RoleKind) -> Vec<usize> {
    (0..workers.len())
        .filter(|i| fitness(workers[*i].class(), role).is_some())
        .collect()
}

/// Log servers in an order in which any `replication` neighbours are in different fault domains. Workers that are not
/// [good](Standing::is_good) are used only up to the number that every record needs.
fn choose_logs(
    workers: &[&RegisterWorker],
    config: &DatabaseConfig,
    standing: impl Fn(usize) -> Standing,
) -> Option<Vec<usize>> {
    let mut candidates = suitable(workers, RoleKind::Log);
    candidates.sort_by_key(|i| {
        (
            standing(*i),
            fitness(workers[*i].class(), RoleKind::Log),
            workers[*i].locality.process,
        )
    });
    let needed = config.replication as usize;
    let wanted = needed.max(config.logs as usize);
    let mut chosen: Vec<usize> = Vec::new();
    // One for each domain: neighbours then differ in any order. More log servers than domains are not needed here.
    let mut domains = BTreeSet::new();
    for i in candidates {
        let is_good = standing(i).is_good();
        let enough = if is_good { wanted } else { needed };
        if chosen.len() < enough && domains.insert(workers[i].locality.domain(config.domain)) {
            if !is_good {
                probe!("placement_has_too_few_good_workers");
            }
            chosen.push(i);
        }
    }
    (chosen.len() >= needed).then_some(chosen)
}

/// A worker that is asked for the log of a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    pub place: usize,
    pub worker: Interface,
    pub domain: String,
}

/// The best worker that may be asked for the log of a place beside those that were `asked`. Whichever of them is
/// first, no two logs are in one fault domain.
pub fn spare_for_log(
    workers: &[&RegisterWorker],
    config: &DatabaseConfig,
    standing: impl Fn(&RegisterWorker) -> DiskStanding,
    place: usize,
    asked: &[Asked],
) -> Option<Asked> {
    let domain = |i: usize| workers[i].locality.domain(config.domain);
    let is_free = |i: &usize| {
        let worker = workers[*i];
        let conflicts = |other: &Asked| {
            other.worker.address == worker.worker.address
                || (other.place != place && other.domain == *domain(*i))
        };
        standing(worker) <= DiskStanding::Doubted && !asked.iter().any(conflicts)
    };
    let spares = suitable(workers, RoleKind::Log).into_iter().filter(is_free);
    let best = spares.min_by_key(|i| {
        // What slows down one process of a machine often slows down the others.
        let is_near = asked.iter().any(|other| other.domain == *domain(*i));
        let fitness = fitness(workers[*i].class(), RoleKind::Log);
        (
            standing(workers[*i]),
            is_near,
            fitness,
            workers[*i].locality.process,
        )
    })?;
    Some(Asked {
        place,
        worker: workers[best].worker,
        domain: domain(best).clone(),
    })
}

/// The workers that may have a log server.
pub fn able_to_log(mut workers: Vec<&RegisterWorker>) -> Vec<&RegisterWorker> {
    workers.retain(|worker| fitness(worker.class(), RoleKind::Log).is_some());
    workers
}

/// How many log servers these workers can have: one in each fault domain.
pub fn log_places(workers: Vec<&RegisterWorker>, config: &DatabaseConfig) -> usize {
    let able = able_to_log(workers);
    let domains = able.iter().map(|w| w.locality.domain(config.domain));
    domains.collect::<BTreeSet<_>>().len()
}

/// The fault domains of workers that may have a role without a disk.
pub fn stateless_places(workers: Vec<&RegisterWorker>, config: &DatabaseConfig) -> usize {
    let able = suitable(&workers, RoleKind::Stateless).into_iter();
    let domains = able.map(|i| workers[i].locality.domain(config.domain));
    domains.collect::<BTreeSet<_>>().len()
}

/// The workers that get a storage server: the processes that suit storage best, unless they are in too few fault
/// domains to hold every replica.
pub fn suited_for_storage<'a>(
    workers: Vec<&'a RegisterWorker>,
    config: &DatabaseConfig,
) -> Vec<&'a RegisterWorker> {
    let fitness_of = |worker: &RegisterWorker| fitness(worker.class(), RoleKind::Storage);
    let Some(best) = workers.iter().filter_map(|w| fitness_of(w)).min() else {
        return Vec::new();
    };
    let suited = workers.iter().filter(|w| fitness_of(w) == Some(best));
    let domains: BTreeSet<&String> = suited
        .clone()
        .map(|w| w.locality.domain(config.domain))
        .collect();
    if domains.len() >= config.replication as usize {
        suited.copied().collect()
    } else {
        let able = workers.iter().filter(|w| fitness_of(w).is_some());
        able.copied().collect()
    }
}

/// Teams of `replication` storage servers, each server in about as many teams, no two of a team in one zone.
/// `zones[i]` is the zone of server i. `None` if there are too few zones.
pub fn storage_teams(zones: &[String], replication: usize) -> Option<Vec<Vec<usize>>> {
    // Servers in an order that goes round the zones: the members of a window are then in different zones, as long as
    // there are enough zones.
    let mut by_zone: std::collections::BTreeMap<&String, Vec<usize>> = Default::default();
    for (i, zone) in zones.iter().enumerate() {
        by_zone.entry(zone).or_default().push(i);
    }
    if by_zone.len() < replication {
        return None;
    }
    let deepest = by_zone.values().map(Vec::len).max()?;
    let round: Vec<usize> = (0..deepest)
        .flat_map(|depth| by_zone.values().filter_map(move |z| z.get(depth).copied()))
        .collect();
    let distinct = |team: &[usize]| {
        team.iter()
            .map(|i| &zones[*i])
            .collect::<BTreeSet<_>>()
            .len()
            == team.len()
    };
    let mut teams = Vec::new();
    // Disjoint teams first. Servers left over form a last team together with the first servers.
    for start in (0..round.len()).step_by(replication) {
        let team: Vec<usize> = (0..replication)
            .map(|i| round[(start + i) % round.len()])
            .collect();
        if distinct(&team) {
            teams.push(team);
        }
    }
    (!teams.is_empty()).then_some(teams)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::worker;
    use plinth_core::config::FaultDomain;

    const fn standing(disk: DiskStanding, is_excluded: bool) -> Standing {
        Standing { disk, is_excluded }
    }
    const GOOD: Standing = standing(DiskStanding::Good, false);
    const EXCLUDED: Standing = standing(DiskStanding::Good, true);
    const DOUBTED: Standing = standing(DiskStanding::Doubted, false);
    const FULL: Standing = standing(DiskStanding::Full, false);
    const SICK: Standing = standing(DiskStanding::Sick, false);
    const WORST: Standing = standing(DiskStanding::Sick, true);

    #[test]
    fn of_two_that_cannot_reach_each_other_one_is_left_out() {
        let [mut a, mut b, c, mut d] = [1, 2, 3, 4].map(|i| worker(i, ProcessClass::Unset, "z"));
        let names = |list: Vec<&RegisterWorker>| -> Vec<u16> {
            list.iter().map(|w| w.worker.address.port()).collect()
        };
        let all = [&a, &b, &c, &d];
        assert_eq!(names(all_reach_all(&all, None)), [1, 2, 3, 4]);
        // One direction is enough: a request needs its answer.
        a.unreachable = vec![b.worker.address];
        assert_eq!(names(all_reach_all(&[&a, &b, &c, &d], None)), [1, 3, 4]);
        let own = Some(b.worker.address);
        assert_eq!(names(all_reach_all(&[&a, &b, &c, &d], own)), [2, 3, 4]);
        // The worker with the most broken connections goes first. Workers that are gone do not count.
        b.unreachable = vec![a.worker.address, c.worker.address];
        d.unreachable = vec![([10, 0, 0, 9], 9).into()];
        assert_eq!(names(all_reach_all(&[&a, &b, &c, &d], own)), [1, 3, 4]);
    }

    #[test]
    fn replicas_of_the_log_are_in_different_zones_or_nothing_is_placed() {
        let config = DatabaseConfig {
            replication: 2,
            logs: 2,
            ..Default::default()
        };
        let same = [
            worker(1, ProcessClass::Unset, "a"),
            worker(2, ProcessClass::Unset, "a"),
        ];
        let good = |_: &RegisterWorker| GOOD;
        assert_eq!(place(&same.iter().collect::<Vec<_>>(), &config, good), None);
        let different = [
            worker(1, ProcessClass::Unset, "a"),
            worker(2, ProcessClass::Unset, "b"),
        ];
        let placed =
            place(&different.iter().collect::<Vec<_>>(), &config, good).expect("two zones");
        assert_eq!(placed.logs.len(), 2);
    }

    #[test]
    fn where_copies_are_spread_over_data_halls_zones_do_not_count() {
        let config = DatabaseConfig {
            replication: 3,
            domain: FaultDomain::DataHall,
            logs: 3,
            ..Default::default()
        };
        let in_halls = |halls: [&str; 4]| {
            let worker = |(i, hall): (usize, &str)| {
                let mut worker = worker(i as u16 + 1, ProcessClass::Unset, &format!("zone {i}"));
                worker.locality.data_hall = hall.into();
                worker
            };
            let workers: Vec<RegisterWorker> = halls.into_iter().enumerate().map(worker).collect();
            let list: Vec<&RegisterWorker> = workers.iter().collect();
            place(&list, &config, |_| GOOD).map(|placed| placed.logs)
        };
        assert_eq!(in_halls(["x", "x", "y", "z"]), Some(vec![0, 2, 3]));
        assert_eq!(in_halls(["x", "x", "y", "y"]), None);
        assert_eq!(in_halls([""; 4]), None);
    }

    #[test]
    fn roles_go_to_the_processes_made_for_them() {
        let workers = [
            worker(1, ProcessClass::Storage, "a"),
            worker(2, ProcessClass::Log, "b"),
            worker(3, ProcessClass::Stateless, "c"),
            worker(4, ProcessClass::Tester, "d"),
        ];
        let placed = place(
            &workers.iter().collect::<Vec<_>>(),
            &DatabaseConfig::default(),
            |_| GOOD,
        )
        .expect("enough");
        assert_eq!(placed.logs, [1]);
        assert_eq!(placed.sequencer, 2);
    }

    #[test]
    fn a_log_server_goes_to_a_worse_worker_only_where_the_record_needs_it_and_to_the_least_bad() {
        let config = DatabaseConfig {
            replication: 2,
            logs: 3,
            ..DatabaseConfig::default()
        };
        let workers = ["a", "b", "c", "d"].map(|zone| {
            let i = zone.as_bytes()[0].into();
            worker(i, ProcessClass::Unset, zone)
        });
        let list: Vec<_> = workers.iter().collect();
        let logs = |standings: [Standing; 4]| {
            let standing =
                |w: &RegisterWorker| standings[(w.locality.zone.as_bytes()[0] - b'a') as usize];
            place(&list, &config, standing).expect("four zones").logs
        };
        assert_eq!(logs([GOOD; 4]), [0, 1, 2]);
        assert_eq!(logs([GOOD, FULL, GOOD, GOOD]), [0, 2, 3]);
        assert_eq!(logs([FULL, SICK, GOOD, GOOD]), [2, 3]);
        assert_eq!(logs([SICK, FULL, EXCLUDED, GOOD]), [3, 2]);
        assert_eq!(logs([SICK, FULL, DOUBTED, GOOD]), [3, 2]);
        assert_eq!(logs([WORST, SICK, FULL, GOOD]), [3, 2]);
        assert_eq!(logs([WORST, SICK, WORST, WORST]), [1, 0]);
    }

    #[test]
    fn a_spare_for_a_log_shares_no_zone_with_another_log_and_was_not_asked_before() {
        let config = DatabaseConfig::default();
        let workers = ["a", "a", "b", "c", "c", "d"];
        let workers: Vec<RegisterWorker> = (1..)
            .zip(workers)
            .map(|(i, zone)| worker(i, ProcessClass::Unset, zone))
            .collect();
        let asked = |place, i: usize| Asked {
            place,
            worker: workers[i].worker,
            domain: workers[i].locality.zone.clone(),
        };
        let spare = |asked: &[Asked], bad: &[(usize, DiskStanding)]| {
            let standing = |w: &RegisterWorker| {
                let is_it = |(i, _): &&(usize, DiskStanding)| workers[*i].worker == w.worker;
                bad.iter()
                    .find(is_it)
                    .map_or(DiskStanding::Good, |(_, standing)| *standing)
            };
            let list: Vec<_> = workers.iter().collect();
            let spare = spare_for_log(&list, &config, standing, 0, asked)?;
            workers.iter().position(|w| w.worker == spare.worker)
        };
        // The places have logs in a and b. Another machine comes first.
        assert_eq!(spare(&[asked(0, 0), asked(1, 2)], &[]), Some(3));
        // Zone c was asked for the other place.
        assert_eq!(
            spare(&[asked(0, 0), asked(1, 2), asked(1, 4)], &[]),
            Some(5)
        );
        let all = [asked(0, 0), asked(1, 2), asked(0, 3), asked(0, 5)];
        assert_eq!(
            spare(&all, &[]),
            Some(1),
            "the zone of the place is its own"
        );
        let sick = [(3, DiskStanding::Sick), (4, DiskStanding::Doubted)];
        assert_eq!(spare(&all[..2], &sick), Some(5));
        assert_eq!(
            spare(&[asked(0, 0), asked(1, 2), asked(1, 5)], &sick),
            Some(1)
        );
        let full = [(1, DiskStanding::Full)];
        assert_eq!(spare(&all, &full), Some(4));
        assert_eq!(
            spare(&[asked(0, 0), asked(1, 2), asked(1, 3), asked(1, 5)], &full),
            None
        );
    }

    #[test]
    fn what_writes_nothing_goes_to_the_excluded_only_when_nobody_else_is_there() {
        let workers = [1, 2].map(|i| worker(i, ProcessClass::Unset, "z"));
        let list: Vec<_> = workers.iter().collect();
        let sequencer = |standings: [Standing; 2]| {
            let standing = |w: &RegisterWorker| standings[w.worker.address.port() as usize - 1];
            let placed = place(&list, &DatabaseConfig::default(), standing);
            placed.expect("enough").sequencer
        };
        assert_eq!(sequencer([EXCLUDED, SICK]), 1);
        assert_eq!(sequencer([WORST, EXCLUDED]), 0);
    }

    #[test]
    fn every_server_is_in_a_team_and_no_team_has_two_of_a_zone() {
        let zones: Vec<String> = ["a", "a", "b", "b", "c"].map(String::from).to_vec();
        let teams = storage_teams(&zones, 2).expect("three zones");
        for i in 0..zones.len() {
            assert!(
                teams.iter().any(|team| team.contains(&i)),
                "server {i} in {teams:?}"
            );
        }
        assert!(teams.iter().all(|team| zones[team[0]] != zones[team[1]]));
        assert_eq!(storage_teams(&zones[..2], 2), None);
    }
}
