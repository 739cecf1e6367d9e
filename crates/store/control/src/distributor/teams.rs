//! Which storage servers may hold a shard together. Pure.
//!
//! A team has `replication` members, no two in one zone. Only few combinations exist (FDB §2.5; copysets): the fewer
//! there are, the less likely it is that machines that are lost at once held all replicas of some shard. Teams are
//! made in two steps: first machines are combined, each with a few partners; then servers form teams only across
//! combined machines.

use plinth_core::Uid;
use plinth_runtime::never;
use std::collections::{BTreeMap, BTreeSet};

/// Number of teams that each server, and each machine, should be in.
const TEAMS_EACH: usize = 5;

/// Place of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub machine: String,
    /// Zone, or data hall: replicas never share one.
    pub zone: String,
}

pub type Places = BTreeMap<Uid, Place>;
pub type Team = Vec<Uid>;

/// True if the team has as many servers as there are replicas, all known and in different zones.
pub fn is_fit(team: &[Uid], places: &Places, replication: usize) -> bool {
    let zones: BTreeSet<&str> = team
        .iter()
        .filter_map(|id| places.get(id))
        .map(|place| &place.zone[..])
        .collect();
    team.len() == replication && zones.len() == replication
}

/// The last teams that were built, with their input. 300 machines take a tenth of a second, and seldom change.
#[derive(Default)]
pub struct Built {
    places: Places,
    replication: usize,
    existing: BTreeSet<Team>,
    teams: Vec<Team>,
}

impl Built {
    /// As [`build`].
    pub fn teams(
        &mut self,
        places: &Places,
        replication: usize,
        existing: BTreeSet<Team>,
    ) -> Vec<Team> {
        let is_same =
            self.replication == replication && self.places == *places && self.existing == existing;
        if !is_same {
            *self = Built {
                teams: build(places, replication, &existing),
                places: places.clone(),
                replication,
                existing,
            };
        }
        self.teams.clone()
    }
}

/// The teams to place shards on: those of `existing` that are fit, and as many more as it takes for every server to
/// be in enough teams. Members are in ascending order. Empty if there are too few zones.
pub fn build(places: &Places, replication: usize, existing: &BTreeSet<Team>) -> Vec<Team> {
    let mut teams: BTreeSet<Team> = existing
        .iter()
        .filter(|team| is_fit(team, places, replication))
        .map(|team| sorted(team.clone()))
        .collect();
    let machines = Machines::new(places, machine_teams(places, replication, &teams));
    let mut counts: BTreeMap<Uid, usize> = places.keys().map(|id| (*id, 0)).collect();
    for id in teams.iter().flatten() {
        *counts.entry(*id).or_default() += 1;
    }
    loop {
        // The server in the fewest teams is next. A server that fits into no other team is skipped.
        let mut wanting: Vec<Uid> = places.keys().copied().collect();
        wanting.retain(|id| counts[id] < TEAMS_EACH);
        wanting.sort_by_key(|id| (counts[id], *id));
        let made = wanting
            .into_iter()
            .find_map(|id| machines.team_around(id, &places[&id].machine, &counts, &teams));
        let Some(team) = made else {
            return teams.into_iter().collect();
        };
        // Shards on it would have to leave it at once. Whoever gives a machine two zones gets no such team.
        if never!(!is_fit(&team, places, replication), "TeamIsNotFit", "team" => format!("{team:?}"))
        {
            return teams.into_iter().collect();
        }
        team.iter()
            .for_each(|id| *counts.get_mut(id).expect("a place") += 1);
        teams.insert(team);
    }
}

fn sorted(mut team: Team) -> Team {
    team.sort();
    team
}

/// Servers of each machine, and the combinations that each machine is in.
struct Machines<'a> {
    servers: BTreeMap<&'a str, Vec<Uid>>,
    together: BTreeMap<String, Vec<Vec<String>>>,
}

impl<'a> Machines<'a> {
    fn new(places: &'a Places, combinations: BTreeSet<Vec<String>>) -> Self {
        let mut servers: BTreeMap<&str, Vec<Uid>> = BTreeMap::new();
        for (id, place) in places {
            servers.entry(&place.machine).or_default().push(*id);
        }
        let mut together: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for combination in combinations {
            for machine in &combination {
                let others = together.entry(machine.clone()).or_default();
                others.push(combination.clone());
            }
        }
        Machines { servers, together }
    }

    /// A new team that contains `id`, on combined machines. On each machine it takes the server in the fewest teams.
    fn team_around(
        &self,
        id: Uid,
        own: &str,
        counts: &BTreeMap<Uid, usize>,
        teams: &BTreeSet<Team>,
    ) -> Option<Team> {
        let candidates = self.together.get(own)?.iter().map(|combination| {
            let others = combination.iter().filter(|machine| *machine != own);
            let member = |machine: &String| {
                let servers = self.servers[&machine[..]].iter();
                let least = servers.min_by_key(|id| (counts[id], **id));
                *least.expect("a machine has a server")
            };
            sorted(others.map(member).chain([id]).collect())
        });
        let fresh = candidates.filter(|team| !teams.contains(team));
        fresh.min_by_key(|team| {
            (
                team.iter().map(|id| counts[id]).sum::<usize>(),
                team.clone(),
            )
        })
    }
}

/// Combinations of machines: those of the existing teams, and as many more as it takes for every machine to have
/// partners.
fn machine_teams(
    places: &Places,
    replication: usize,
    teams: &BTreeSet<Team>,
) -> BTreeSet<Vec<String>> {
    let zone_of: BTreeMap<&String, &String> = places
        .values()
        .map(|place| (&place.machine, &place.zone))
        .collect();
    let mut together: BTreeSet<Vec<String>> = BTreeSet::new();
    let mut counts: BTreeMap<&String, usize> = zone_of.keys().map(|m| (*m, 0)).collect();
    for team in teams {
        let mut machines: Vec<String> = team.iter().map(|id| places[id].machine.clone()).collect();
        machines.sort();
        together.insert(machines);
    }
    for machine in together.iter().flatten() {
        *counts.get_mut(machine).expect("a machine with a server") += 1;
    }
    loop {
        let mut wanting: Vec<&String> = zone_of.keys().copied().collect();
        wanting.retain(|machine| counts[machine] < TEAMS_EACH);
        wanting.sort_by_key(|machine| (counts[machine], *machine));
        let made = wanting.into_iter().find_map(|machine| {
            machines_around(machine, replication, &zone_of, &counts, &together)
        });
        let Some(team) = made else {
            return together;
        };
        for machine in &team {
            *counts.get_mut(machine).expect("a machine with a server") += 1;
        }
        together.insert(team);
    }
}

/// A new combination of machines that contains `machine`. The others are those with the fewest partners, each in a
/// zone of its own; if that combination exists already, the next ones.
fn machines_around(
    machine: &String,
    replication: usize,
    zone_of: &BTreeMap<&String, &String>,
    counts: &BTreeMap<&String, usize>,
    together: &BTreeSet<Vec<String>>,
) -> Option<Vec<String>> {
    let mut others: Vec<&String> = zone_of.keys().copied().collect();
    others.retain(|other| zone_of[other] != zone_of[machine]);
    others.sort_by_key(|other| (counts[other], *other));
    (0..others.len().max(1)).find_map(|skip| {
        let mut zones = BTreeSet::from([zone_of[machine]]);
        let mut team = vec![machine.clone()];
        for other in others.iter().cycle().skip(skip).take(others.len()) {
            if team.len() < replication && zones.insert(zone_of[other]) {
                team.push((*other).clone());
            }
        }
        team.sort();
        (team.len() == replication && !together.contains(&team)).then_some(team)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(machines: usize, servers_each: usize, machines_a_zone: usize) -> Places {
        let server = |i: usize| {
            let machine = i / servers_each;
            let place = Place {
                machine: format!("m{machine:02}"),
                zone: format!("z{:02}", machine / machines_a_zone),
            };
            (Uid(i as u128), place)
        };
        (0..machines * servers_each).map(server).collect()
    }

    fn ids(ids: &[u128]) -> Team {
        ids.iter().map(|id| Uid(*id)).collect()
    }

    #[test]
    fn with_just_enough_servers_there_is_one_team() {
        let teams = build(&places(3, 1, 1), 3, &BTreeSet::new());
        assert_eq!(teams, [ids(&[0, 1, 2])]);
        assert!(build(&places(2, 2, 1), 3, &BTreeSet::new()).is_empty());
        assert!(build(&places(3, 1, 3), 2, &BTreeSet::new()).is_empty());
        assert_eq!(build(&places(2, 1, 1), 1, &BTreeSet::new()).len(), 2);
    }

    #[test]
    fn teams_are_built_anew_when_a_server_or_a_team_has_come() {
        let mut built = Built::default();
        for (machines, existing) in [(3, vec![]), (4, vec![]), (4, vec![ids(&[0, 1])])] {
            let (places, existing) = (places(machines, 1, 1), BTreeSet::from_iter(existing));
            let expected = build(&places, 2, &existing);
            for _ in 0..2 {
                assert_eq!(built.teams(&places, 2, existing.clone()), expected);
            }
        }
    }

    #[test]
    fn few_machines_are_ever_together() {
        let places = places(12, 4, 1);
        let teams = build(&places, 3, &BTreeSet::new());
        let machines: BTreeSet<Vec<&str>> = teams
            .iter()
            .map(|team| team.iter().map(|id| &places[id].machine[..]).collect())
            .collect();
        // 220 combinations of machines would be possible.
        assert!(machines.len() <= 12 * TEAMS_EACH / 2, "{}", machines.len());
    }

    #[test]
    fn teams_that_hold_data_stay_unless_they_are_unfit() {
        let existing = BTreeSet::from([ids(&[0, 5]), ids(&[1, 2]), ids(&[0, 99])]);
        let teams = build(&places(6, 1, 3), 2, &existing);
        assert!(teams.contains(&ids(&[0, 5])));
        assert!(!teams.contains(&ids(&[1, 2])) && !teams.contains(&ids(&[0, 99])));
    }

    proptest! {
        #[test]
        fn teams_are_fit_and_nobody_is_left_out(
            machines in 1usize..10, each in 1usize..4, a_zone in 1usize..3, replication in 1usize..4,
        ) {
            let places = places(machines, each, a_zone);
            let teams = build(&places, replication, &BTreeSet::new());
            let zones: BTreeSet<_> = places.values().map(|place| &place.zone).collect();
            prop_assert_eq!(teams.is_empty(), zones.len() < replication);
            for team in &teams {
                prop_assert!(is_fit(team, &places, replication));
            }
            if !teams.is_empty() {
                for id in places.keys() {
                    prop_assert!(teams.iter().any(|team| team.contains(id)));
                }
            }
            prop_assert!(teams.len() <= places.len() * TEAMS_EACH);
        }
    }
}
