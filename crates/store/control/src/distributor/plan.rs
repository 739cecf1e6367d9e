//! The next steps of the distributor, computed from its view of the cluster. Pure.
//!
//! In order of urgency: shards that have lost replicas are healed, those with the fewest left first; servers that
//! must go are drained; large and busy shards are split, small quiet neighbours joined, and shards that stay empty
//! are joined to a neighbour; the remaining moves balance the bytes.

use super::teams::{self, Places, Team};
use plinth_core::Uid;
use plinth_core::hash::HashMap;
use plinth_core::key::KeyRange;
use std::collections::{BTreeMap, BTreeSet};

/// A storage server as the distributor sees it.
#[derive(Clone, Debug, Default)]
pub struct ServerView {
    /// It answers, or answered until a moment ago.
    pub alive: bool,
    /// It answers.
    pub present: bool,
    /// Its place, if it may have data: it is alive, its process suits storage and is not excluded, its disk has not
    /// been broken for long, and it has the configured engine.
    pub place: Option<teams::Place>,
}

#[derive(Clone, Debug)]
pub struct ShardView {
    pub range: KeyRange,
    pub team: Team,
    /// The team that the shard is moving to; empty if it is not moving.
    pub destination: Team,
    pub bytes: u64,
    pub write_bytes_a_second: u64,
    pub can_split: bool,
    /// True if the shard has been empty for a while, and has had no writes.
    pub stays_empty: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Moves at once, in all.
    pub moves: usize,
    /// Moves at once to one server.
    pub moves_a_server: usize,
    /// Base from which the split size grows with the database, see [`split_size`].
    pub shard_bytes_min: u64,
    /// Upper limit of the split size, whatever the size of the database.
    pub shard_bytes_max: u64,
    /// A shard with more bytes written a second is split.
    pub shard_writes_max: u64,
    /// Small shards are joined only while there are more shards than this for every team.
    pub shards_a_team: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// A replica is gone. The number of replicas left.
    Heal(usize),
    /// A member must go, or the team does not match the configuration.
    Drain,
    /// The shard is empty. It moves to its neighbour's team, to be joined with the neighbour.
    Join,
    Balance,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Move {
        range: KeyRange,
        team: Team,
        to: Team,
        why: Why,
    },
    /// Splits into parts of about this many bytes, or of this many bytes written a second, whichever is not 0.
    Split {
        range: KeyRange,
        holders: Team,
        bytes: u64,
        write_bytes_a_second: u64,
    },
    Merge {
        left: KeyRange,
        right: KeyRange,
    },
}

pub struct World {
    pub replication: usize,
    pub servers: BTreeMap<Uid, ServerView>,
    /// In key order.
    pub shards: Vec<ShardView>,
    /// False: an operator has said that bytes are not balanced.
    pub may_balance: bool,
}

/// Copies of the shard that has the fewest, counted on servers that answer.
pub fn least_copies(world: &World) -> usize {
    let answers = |id: &&Uid| world.servers.get(*id).is_some_and(|server| server.present);
    let copies = world
        .shards
        .iter()
        .map(|shard| shard.team.iter().filter(answers).count());
    copies.min().unwrap_or(0)
}

/// Servers that are gone or must go, and hold no shard.
pub fn to_remove(world: &World) -> Vec<Uid> {
    let servers = world.servers.iter();
    let mut over: BTreeSet<Uid> = servers
        .filter(|(_, server)| server.place.is_none())
        .map(|(id, _)| *id)
        .collect();
    for shard in &world.shards {
        if over.is_empty() {
            break;
        }
        for holder in shard.team.iter().chain(&shard.destination) {
            over.remove(holder);
        }
    }
    over.into_iter().collect()
}

/// Size above which a shard is split. Larger databases have larger shards, which limits the number of shards.
pub fn split_size(total_bytes: u64, limits: &Limits) -> u64 {
    let grown = limits.shard_bytes_min as f64 + 45.0 * (total_bytes as f64).sqrt();
    ((grown * 3.0) as u64).min(limits.shard_bytes_max)
}

struct Planner<'a> {
    world: &'a World,
    limits: Limits,
    places: Places,
    teams: Vec<Team>,
    /// Bytes on each server once all moves under way have ended. A moving shard is not counted on the servers that it
    /// leaves: otherwise a server that has given away enough would still look full, and give away more.
    load: BTreeMap<Uid, u64>,
    /// Number of moves to each server.
    coming: BTreeMap<Uid, usize>,
    moves: usize,
    steps: Vec<Step>,
    /// Shards that have a step already, or are moving.
    taken: BTreeSet<usize>,
}

/// The next steps. No step waits for another.
pub fn next(world: &World, limits: Limits, built: &mut teams::Built) -> Vec<Step> {
    let placed = |(id, server): (&Uid, &ServerView)| Some((*id, server.place.clone()?));
    let places: Places = world.servers.iter().filter_map(placed).collect();
    // Many shards share few teams, so each team is copied once.
    let existing: BTreeSet<&Team> = world.shards.iter().map(|shard| &shard.team).collect();
    let existing = existing.into_iter().cloned().collect();
    // No shard is sent to a server that may be gone.
    let mut here = places.clone();
    here.retain(|id, _| world.servers[id].present);
    let mut planner = Planner {
        teams: built.teams(&here, world.replication, existing),
        places,
        world,
        limits,
        load: BTreeMap::new(),
        coming: BTreeMap::new(),
        moves: 0,
        steps: Vec::new(),
        taken: BTreeSet::new(),
    };
    planner.weigh();
    planner.heal();
    planner.split();
    planner.merge();
    if world.may_balance {
        planner.balance();
    }
    planner.steps
}

impl Planner<'_> {
    fn weigh(&mut self) {
        for (at, shard) in self.world.shards.iter().enumerate() {
            let members = match shard.destination.is_empty() {
                true => &shard.team,
                false => &shard.destination,
            };
            for id in members {
                *self.load.entry(*id).or_default() += shard.bytes;
            }
            if !shard.destination.is_empty() {
                self.moves += 1;
                self.taken.insert(at);
                for id in newcomers(&shard.team, &shard.destination) {
                    *self.coming.entry(id).or_default() += 1;
                }
            }
        }
    }

    fn load_of(&self, id: Uid) -> u64 {
        self.load.get(&id).copied().unwrap_or(0)
    }

    fn has_room(&self, id: Uid) -> bool {
        self.coming.get(&id).copied().unwrap_or(0) < self.limits.moves_a_server
    }

    /// The team to which a shard should go: the team with the fewest newcomers, and among those the one whose fullest
    /// newcomer has the fewest bytes.
    fn best_team(&self, shard: &ShardView) -> Option<&Team> {
        let ranked = self.teams.iter().filter_map(|team| {
            let (count, heaviest) = self.newcomers_with_room(&shard.team, team)?;
            Some((count, heaviest, team))
        });
        ranked.min().map(|(_, _, team)| team)
    }

    /// Number of members of `to` that are not in `team`, and the bytes on the fullest of them. `None` if one of them
    /// has no room.
    fn newcomers_with_room(&self, team: &[Uid], to: &[Uid]) -> Option<(usize, u64)> {
        let (mut count, mut heaviest) = (0, 0);
        for id in newcomers(team, to) {
            if !self.has_room(id) {
                return None;
            }
            count += 1;
            heaviest = heaviest.max(self.load_of(id));
        }
        Some((count, heaviest))
    }

    fn start(&mut self, at: usize, to: Team, why: Why) {
        let shard = &self.world.shards[at];
        assert!(
            teams::is_fit(&to, &self.places, self.world.replication),
            "{:?} is to go to {to:?}",
            shard.range
        );
        for id in newcomers(&shard.team, &to) {
            *self.coming.entry(id).or_default() += 1;
            *self.load.entry(id).or_default() += shard.bytes;
        }
        for id in newcomers(&to, &shard.team) {
            let load = self.load.entry(id).or_default();
            assert!(
                *load >= shard.bytes,
                "{} of {load} bytes leave {id}",
                shard.bytes
            );
            *load -= shard.bytes; // it was counted there
        }
        self.moves += 1;
        assert!(self.taken.insert(at), "{:?} has two steps", shard.range);
        self.steps.push(Step::Move {
            range: shard.range.clone(),
            team: shard.team.clone(),
            to,
            why,
        });
    }

    fn heal(&mut self) {
        let mut urgent: Vec<(usize, usize, Why)> = Vec::new();
        let mut fit: HashMap<&Team, bool> = HashMap::default();
        for (at, shard) in self.world.shards.iter().enumerate() {
            let is_fit = fit.entry(&shard.team).or_insert_with(|| {
                teams::is_fit(&shard.team, &self.places, self.world.replication)
            });
            if *is_fit || self.taken.contains(&at) {
                continue;
            }
            let lives = |id: &&Uid| {
                self.world
                    .servers
                    .get(id)
                    .is_some_and(|server| server.alive)
            };
            let left = shard.team.iter().filter(lives).count();
            if left == 0 {
                continue; // no server to copy it from: wait for one of them
            }
            let why = if left < shard.team.len() {
                Why::Heal(left)
            } else {
                Why::Drain
            };
            let rank = if left < shard.team.len() {
                left
            } else {
                usize::MAX
            };
            urgent.push((rank, at, why));
        }
        urgent.sort_by_key(|(rank, at, _)| (*rank, *at));
        // Room only shrinks: if one shard of a team has found no place, no other shard of the team finds one.
        let mut stuck: BTreeSet<&Team> = BTreeSet::new();
        for (_, at, why) in urgent {
            if self.moves >= self.limits.moves {
                return;
            }
            let shard = &self.world.shards[at];
            if stuck.contains(&shard.team) {
                continue;
            }
            match self.best_team(shard).cloned() {
                Some(team) => self.start(at, team, why),
                None => drop(stuck.insert(&shard.team)),
            }
        }
    }

    fn split(&mut self) {
        let total = self.world.shards.iter().map(|shard| shard.bytes).sum();
        let size = split_size(total, &self.limits);
        for (at, shard) in self.world.shards.iter().enumerate() {
            let large = shard.bytes > size;
            let busy = shard.write_bytes_a_second > self.limits.shard_writes_max;
            if shard.can_split && (large || busy) && self.taken.insert(at) {
                self.steps.push(Step::Split {
                    range: shard.range.clone(),
                    holders: shard.team.clone(),
                    bytes: if large { size / 2 } else { 0 },
                    write_bytes_a_second: if large {
                        0
                    } else {
                        self.limits.shard_writes_max / 2
                    },
                });
            }
        }
    }

    fn merge(&mut self) {
        let total = self.world.shards.iter().map(|shard| shard.bytes).sum();
        let size = split_size(total, &self.limits);
        let floor = self.limits.shards_a_team * self.teams.len().max(1);
        let mut count = self.world.shards.len();
        for at in 1..self.world.shards.len() {
            let (left, right) = (&self.world.shards[at - 1], &self.world.shards[at]);
            // Far below the split size, otherwise joins and splits would alternate.
            let small = left.bytes + right.bytes < size / 4;
            let quiet = left.write_bytes_a_second + right.write_bytes_a_second
                < self.limits.shard_writes_max / 4;
            let free = !self.taken.contains(&(at - 1)) && !self.taken.contains(&at);
            // System keys stay in shards of their own.
            let ordinary = *right.range.begin < *plinth_core::key::SYSTEM_BEGIN;
            let hollow = left.stays_empty || right.stays_empty;
            if !(quiet && free && ordinary) || !(hollow || count > floor && small) {
                continue;
            }
            if left.team == right.team {
                self.taken.extend([at - 1, at]);
                count -= 1;
                self.steps.push(Step::Merge {
                    left: left.range.clone(),
                    right: right.range.clone(),
                });
            } else if hollow {
                self.bring_together(at);
            }
        }
    }

    /// Moves the empty one of a shard and its left neighbour to the team of the other. There is nothing to copy.
    fn bring_together(&mut self, at: usize) {
        let (empty, other) = match self.world.shards[at].stays_empty {
            true => (at, at - 1),
            false => (at - 1, at),
        };
        let to = &self.world.shards[other].team;
        let is_fit = teams::is_fit(to, &self.places, self.world.replication);
        let team = &self.world.shards[empty].team;
        let has_room = self.newcomers_with_room(team, to).is_some();
        if is_fit && has_room && self.moves < self.limits.moves {
            self.taken.insert(other);
            self.start(empty, to.clone(), Why::Join);
        }
    }

    /// Moves shards of the fullest servers to teams with fewer bytes.
    fn balance(&mut self) {
        let ids: Vec<Uid> = self.places.keys().copied().collect();
        let sum: u64 = ids.iter().map(|id| self.load_of(*id)).sum();
        let mean = sum / ids.len().max(1) as u64;
        // A smaller difference is not worth a move.
        let enough = (mean / 20).max(self.limits.shard_bytes_min / 10);
        let mut fullest = ids;
        // What a server has that is away stays there, and waits for it.
        fullest.retain(|id| self.world.servers[id].present);
        fullest.sort_by_key(|id| (std::cmp::Reverse(self.load_of(*id)), *id));
        let mut held: Option<Held> = None;
        for from in fullest {
            while self.moves < self.limits.moves && self.load_of(from) >= mean + enough / 2 {
                if !self.somebody_is_lighter(self.load_of(from), enough) {
                    break; // decided without a look at its shards
                }
                let held = held.get_or_insert_with(|| shards_held(self.world));
                let Some((at, to)) = self.relief_for(from, enough, held) else {
                    break;
                };
                self.start(at, to, Why::Balance);
            }
        }
    }

    fn somebody_is_lighter(&self, than: u64, enough: u64) -> bool {
        let mut placed = self.places.keys();
        placed.any(|id| self.load_of(*id) + enough < than && self.has_room(*id))
    }

    /// The largest shard of `from` whose move improves the balance, and its new team.
    fn relief_for(&self, from: Uid, enough: u64, held: &Held) -> Option<(usize, Team)> {
        let here = self.load_of(from);
        // Teams to which the shards of a team may go, whatever their sizes: number of newcomers, and bytes on the
        // fullest newcomer.
        let mut places: BTreeMap<&Team, Vec<(usize, u64, &Team)>> = BTreeMap::new();
        for at in held
            .get(&from)?
            .iter()
            .filter(|at| !self.taken.contains(at))
        {
            let shard = &self.world.shards[*at];
            let places = places.entry(&shard.team).or_insert_with(|| {
                let without = self.teams.iter().filter(|team| !team.contains(&from));
                let open = without.filter_map(|team| {
                    let (count, heaviest) = self.newcomers_with_room(&shard.team, team)?;
                    (heaviest + enough < here).then_some((count, heaviest, team))
                });
                open.collect()
            });
            let better = places
                .iter()
                .filter(|(_, heaviest, _)| heaviest + 2 * shard.bytes <= here);
            if let Some((_, _, team)) = better.min() {
                return Some((*at, (*team).clone()));
            }
        }
        None
    }
}

/// The shards that are not empty on each server, largest first.
type Held = BTreeMap<Uid, Vec<usize>>;

fn shards_held(world: &World) -> Held {
    let mut order: Vec<usize> = (0..world.shards.len()).collect();
    order.retain(|at| world.shards[*at].bytes > 0);
    order.sort_by_key(|at| (std::cmp::Reverse(world.shards[*at].bytes), *at));
    let mut held = Held::new();
    for at in order {
        for id in &world.shards[at].team {
            held.entry(*id).or_default().push(at);
        }
    }
    held
}

/// Members of `to` that are not in `team`.
fn newcomers<'a>(team: &'a [Uid], to: &'a [Uid]) -> impl Iterator<Item = Uid> + 'a {
    to.iter().copied().filter(|id| !team.contains(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        moves: 100,
        moves_a_server: 100,
        shard_bytes_min: 100,
        shard_bytes_max: 1_000_000,
        shard_writes_max: 1_000,
        shards_a_team: 1,
    };

    fn world(replication: usize, servers: u128, shards: &[(&'static str, &[u128], u64)]) -> World {
        let server = |i| {
            let place = teams::Place {
                machine: format!("m{i}"),
                zone: format!("z{i}"),
            };
            let view = ServerView {
                alive: true,
                present: true,
                place: Some(place),
            };
            (Uid(i), view)
        };
        let ends = shards
            .iter()
            .skip(1)
            .map(|(begin, _, _)| *begin)
            .chain(["\u{7f}"]);
        let shard = |((begin, team, bytes), end): (&(&'static str, &[u128], u64), &'static str)| {
            ShardView {
                range: KeyRange::new(*begin, end),
                team: team.iter().map(|id| Uid(*id)).collect(),
                destination: vec![],
                bytes: *bytes,
                write_bytes_a_second: 0,
                can_split: true,
                stays_empty: false,
            }
        };
        World {
            replication,
            servers: (0..servers).map(server).collect(),
            shards: shards.iter().zip(ends).map(shard).collect(),
            may_balance: true,
        }
    }

    /// Lets no shard be split, so that it may move.
    fn keep_whole(world: &mut World) {
        for shard in &mut world.shards {
            shard.can_split = false;
        }
    }

    fn next(world: &World, limits: Limits) -> Vec<Step> {
        super::next(world, limits, &mut teams::Built::default())
    }

    fn lose(world: &mut World, id: u128) {
        world.servers.insert(Uid(id), ServerView::default());
    }

    fn moves(steps: &[Step]) -> Vec<(&Team, &Team, &Why)> {
        let moves = steps.iter().filter_map(|step| match step {
            Step::Move { team, to, why, .. } => Some((team, to, why)),
            _ => None,
        });
        moves.collect()
    }

    #[test]
    fn copies_count_on_servers_that_answer_only() {
        let mut world = world(2, 4, &[("", &[0, 1], 500), ("m", &[2, 3], 500)]);
        assert_eq!(least_copies(&world), 2);
        lose(&mut world, 3);
        assert_eq!(least_copies(&world), 1);
        world.servers.remove(&Uid(2));
        assert_eq!(least_copies(&world), 0);
    }

    #[test]
    fn a_world_in_order_is_left_alone() {
        let world = world(2, 4, &[("", &[0, 1], 500), ("m", &[2, 3], 500)]);
        assert_eq!(next(&world, LIMITS), []);
    }

    #[test]
    fn shards_with_the_fewest_replicas_left_are_healed_first_and_keep_the_members_that_live() {
        let mut world = world(
            3,
            8,
            &[
                ("", &[0, 1, 2], 0),
                ("m", &[1, 2, 3], 0),
                ("s", &[3, 4, 5], 0),
            ],
        );
        lose(&mut world, 1);
        lose(&mut world, 0);
        let steps = next(&world, LIMITS);
        let moves = moves(&steps);
        assert_eq!(moves.len(), 2, "{moves:?}");
        assert_eq!((moves[0].0[0], moves[0].2), (Uid(0), &Why::Heal(1)));
        assert_eq!(moves[1].2, &Why::Heal(2));
        assert!(moves[0].1.contains(&Uid(2)) && moves[1].1.contains(&Uid(2)));
        assert!(!moves[0].1.contains(&Uid(0)) && !moves[0].1.contains(&Uid(1)));
    }

    #[test]
    fn a_server_that_is_only_late_keeps_what_it_has_and_gets_nothing() {
        let shards: [(&str, &[u128], u64); 5] = [
            ("", &[0], 900),
            ("m", &[1], 10),
            ("s", &[3], 300),
            ("t", &[3], 300),
            ("u", &[3], 300),
        ];
        let mut world = world(1, 4, &shards);
        for late in [0, 2] {
            world.servers.get_mut(&Uid(late)).expect("there").present = false;
        }
        keep_whole(&mut world);
        let steps = next(&world, LIMITS);
        let one = (&vec![Uid(3)], &vec![Uid(1)], &Why::Balance);
        assert_eq!(moves(&steps), [one]);
    }

    #[test]
    fn bytes_are_not_balanced_while_an_operator_has_said_so_and_other_steps_go_on() {
        let shards: [(&str, &[u128], u64); 3] = [("", &[0], 400), ("m", &[0], 400), ("s", &[2], 0)];
        let mut world = world(1, 3, &shards);
        world.servers.get_mut(&Uid(2)).expect("there").place = None;
        keep_whole(&mut world);
        // No shard is joined.
        let limits = Limits {
            shards_a_team: 100,
            ..LIMITS
        };
        assert!(
            moves(&next(&world, limits))
                .iter()
                .any(|(_, _, why)| **why == Why::Balance)
        );
        world.may_balance = false;
        assert_eq!(
            moves(&next(&world, limits)),
            [(&vec![Uid(2)], &vec![Uid(1)], &Why::Drain)]
        );
    }

    #[test]
    fn what_nobody_has_any_more_is_waited_for() {
        let mut world = world(1, 2, &[("", &[0], 10)]);
        lose(&mut world, 0);
        assert_eq!(next(&world, LIMITS), []);
    }

    #[test]
    fn a_server_that_is_to_go_is_drained_by_those_who_may_stay() {
        let mut world = world(1, 3, &[("", &[0], 10), ("m", &[1], 10)]);
        world.servers.get_mut(&Uid(0)).expect("there").place = None;
        let steps = next(&world, LIMITS);
        assert_eq!(moves(&steps), [(&vec![Uid(0)], &vec![Uid(2)], &Why::Drain)]);
    }

    #[test]
    fn moves_are_bounded_in_all_and_for_each_server() {
        let shards: Vec<(&str, &[u128], u64)> = ["", "b", "c", "d", "e"]
            .map(|begin| (begin, &[0][..], 0))
            .to_vec();
        let mut world = world(1, 2, &shards);
        world.servers.get_mut(&Uid(0)).expect("there").place = None;
        let count = |in_all, moves_a_server| {
            let limits = Limits {
                moves: in_all,
                moves_a_server,
                ..LIMITS
            };
            moves(&next(&world, limits)).len()
        };
        assert_eq!((count(100, 2), count(3, 100), count(100, 100)), (2, 3, 5));
    }

    #[test]
    fn bytes_become_even_and_then_nothing_moves() {
        let begins: Vec<&'static str> = (0..26)
            .map(|i| &"abcdefghijklmnopqrstuvwxyz"[i..=i])
            .collect();
        let shards: Vec<(&str, &[u128], u64)> = begins
            .iter()
            .map(|begin| (*begin, &[0, 1][..], 300))
            .collect();
        let mut world = world(2, 8, &shards);
        let limits = Limits {
            moves: 2,
            shards_a_team: 100,
            ..LIMITS
        };
        for _ in 0..200 {
            let steps = next(&world, limits);
            if steps.is_empty() {
                break;
            }
            for step in steps {
                let Step::Move { range, to, why, .. } = step else {
                    continue;
                };
                assert_eq!(why, Why::Balance);
                let shard = world.shards.iter_mut().find(|shard| shard.range == range);
                shard.expect("it was there").team = to;
            }
        }
        let load = |id: u128| {
            let held = world
                .shards
                .iter()
                .filter(|shard| shard.team.contains(&Uid(id)));
            held.map(|shard| shard.bytes).sum::<u64>()
        };
        let loads: Vec<u64> = (0..8).map(load).collect();
        assert!(
            loads.iter().all(|load| (1500..=2400).contains(load)),
            "{loads:?}"
        );
        assert_eq!(next(&world, limits), []);
    }

    #[test]
    fn while_enough_is_on_its_way_nothing_more_is_moved() {
        let begins: Vec<&'static str> = (0..26)
            .map(|i| &"abcdefghijklmnopqrstuvwxyz"[i..=i])
            .collect();
        let limits = Limits {
            shards_a_team: 100,
            ..LIMITS
        };
        for (replication, team) in [(1, &[0][..]), (2, &[0, 1])] {
            let shards: Vec<_> = begins.iter().map(|begin| (*begin, team, 300)).collect();
            let mut world = world(replication, 4, &shards);
            let mut sent = 0;
            for step in next(&world, limits) {
                let Step::Move { range, to, .. } = step else {
                    continue;
                };
                let shard = world.shards.iter_mut().find(|shard| shard.range == range);
                shard.expect("it was there").destination = to;
                sent += 1;
            }
            assert!(sent >= 13, "{sent} are sent to others");
            assert_eq!(moves(&next(&world, limits)), []);
        }
    }

    #[test]
    fn large_and_busy_shards_are_split_and_small_neighbours_joined() {
        let mut world = world(
            1,
            2,
            &[
                ("", &[0], 50_000),
                ("b", &[1], 0),
                ("c", &[1], 1),
                ("d", &[1], 50_000),
            ],
        );
        world.shards[3].write_bytes_a_second = 2_000;
        world.shards[3].bytes = 100;
        let steps = next(&world, Limits { moves: 0, ..LIMITS });
        let shape = |step: &Step| match step {
            Step::Split {
                bytes,
                write_bytes_a_second,
                ..
            } => ("split", *bytes > 0, *write_bytes_a_second > 0),
            Step::Merge { .. } => ("merge", false, false),
            Step::Move { .. } => ("move", false, false),
        };
        let shapes: Vec<_> = steps.iter().map(shape).collect();
        assert_eq!(
            shapes,
            [
                ("split", true, false),
                ("split", false, true),
                ("merge", false, false)
            ]
        );
    }

    #[test]
    fn what_stays_empty_is_brought_to_a_neighbour_and_joined_however_few_shards_there_are() {
        let mut world = world(
            1,
            3,
            &[
                // So few bytes that balancing is not worth a move.
                ("", &[0], 4),
                ("b", &[1], 0),
                ("c", &[2], 0),
                ("d", &[0], 4),
            ],
        );
        let limits = Limits {
            shards_a_team: 100,
            ..LIMITS
        };
        assert_eq!(next(&world, limits), [], "they have only just become empty");
        for _ in 0..4 {
            for shard in &mut world.shards {
                shard.stays_empty = shard.bytes == 0;
            }
            for step in next(&world, limits) {
                match step {
                    Step::Move { range, to, why, .. } => {
                        assert_eq!(why, Why::Join);
                        let shard = world.shards.iter_mut().find(|shard| shard.range == range);
                        shard.expect("it was there").team = to;
                    }
                    Step::Merge { left, right } => {
                        world.shards.retain(|shard| shard.range != right);
                        let shard = world.shards.iter_mut().find(|shard| shard.range == left);
                        let shard = shard.expect("it was there");
                        shard.range.end = right.end;
                        shard.bytes = 4;
                    }
                    Step::Split { .. } => panic!("nothing is large"),
                }
            }
        }
        let begins: Vec<&[u8]> = world.shards.iter().map(|s| &s.range.begin[..]).collect();
        assert_eq!(begins, [&b""[..], b"c"]);
    }
}
