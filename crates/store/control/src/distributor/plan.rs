//! The next steps of the distributor, computed from its view of the cluster. Pure.
//!
//! In order of urgency: shards that have lost replicas are healed, those with the fewest left first; servers that
//! must go are drained; large and busy shards are split, small quiet neighbours joined, and shards that stay empty
//! are joined to a neighbour; the remaining moves balance the bytes.

use super::teams::{self, Places, Team};
use crate::replica::{Lag, Replica, could_serve};
use plinth_core::Uid;
use plinth_core::hash::HashMap;
use plinth_core::key::KeyRange;
use plinth_runtime::{planted, probe};
use std::collections::{BTreeMap, BTreeSet};

/// A storage server as the distributor sees it.
#[derive(Clone, Debug, Default)]
pub struct ServerView {
    /// It answers, or answered until a moment ago.
    pub alive: bool,
    /// It answers.
    pub present: bool,
    /// Its place, if it may have data: it is alive, its process suits storage and is not excluded, its disk has not
    /// been broken for long, it has the configured engine, and it is not [replaced](to_replace).
    pub place: Option<teams::Place>,
    pub lag: Lag,
    /// Some of its files cannot be read.
    pub is_damaged: bool,
    /// It has been seen to advance.
    pub advances: bool,
}

impl ServerView {
    fn could_serve(&self) -> bool {
        could_serve(Replica {
            answers: self.present,
            lag: self.lag,
            is_damaged: self.is_damaged,
        })
    }
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

impl World {
    fn could_serve(&self, id: &Uid) -> bool {
        self.servers.get(id).is_some_and(ServerView::could_serve)
    }

    /// True if some copies are there, and all of them are far behind: nobody could give the shard to others, and all
    /// wait for the same.
    fn only_lags(&self, shard: &ShardView) -> bool {
        let lags = |id: &Uid| {
            let server = self.servers.get(id);
            server.is_some_and(|server| server.present && server.lag != Lag::KeepsUp)
        };
        shard.team.iter().any(lags)
            && !shard.team.iter().any(|id| self.could_serve(id))
            && !moves_what_only_lags()
    }
}

fn moves_what_only_lags() -> bool {
    planted!(
        "lagging_copies_are_moved",
        "servers are replaced because they are far behind the log, although no copy of what they hold keeps up"
    )
}

/// Servers that are late, while each of their shards has a copy elsewhere that keeps up. While somebody else's trouble
/// holds all copies of a shard back, nothing would come of moving it.
pub fn to_replace(world: &World) -> Vec<Uid> {
    let servers = world.servers.iter();
    let late = servers.filter(|(_, server)| server.lag == Lag::Late);
    let mut late: BTreeSet<Uid> = late.map(|(id, _)| *id).collect();
    for id in held_back(world) {
        if late.remove(&id) {
            probe!("distributor_waits_for_copies_that_all_lag");
        }
    }
    late.into_iter().collect()
}

/// Servers that are far behind as all others are that have a shard of theirs, or as all that there are.
pub fn held_back(world: &World) -> BTreeSet<Uid> {
    let lags = |id: &Uid| {
        let server = world.servers.get(id);
        server.is_some_and(|server| server.lag != Lag::KeepsUp)
    };
    if !world.servers.keys().any(lags) || moves_what_only_lags() {
        return BTreeSet::new();
    }
    if !world.servers.values().any(ServerView::could_serve) {
        return world.servers.keys().copied().filter(lags).collect();
    }
    let shards = world.shards.iter();
    let lagging = shards.filter(|shard| !shard.team.iter().any(|id| world.could_serve(id)));
    let holders = lagging.flat_map(|shard| shard.team.iter().copied());
    holders.filter(lags).collect()
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
    let fit = preferred(world, &places);
    let mut planner = Planner {
        teams: built.teams(&fit, world.replication, existing),
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

/// The servers that shards are sent to: none that may be gone, and none that is far behind or has never advanced, if
/// there is a choice.
fn preferred(world: &World, places: &Places) -> Places {
    let mut here = places.clone();
    here.retain(|id, _| world.servers[id].present);
    let mut keeping_up = here.clone();
    keeping_up.retain(|id, _| world.could_serve(id) && world.servers[id].advances);
    let zones: BTreeSet<&String> = keeping_up.values().map(|place| &place.zone).collect();
    match zones.len() >= world.replication {
        true => keeping_up,
        false => here,
    }
}

impl Planner<'_> {
    fn weigh(&mut self) {
        let mut servers = self.world.servers.values();
        let somebody_lags = servers.any(|server| server.lag != Lag::KeepsUp);
        for (at, shard) in self.world.shards.iter().enumerate() {
            if somebody_lags && self.world.only_lags(shard) {
                self.taken.insert(at);
            }
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
        let keep_up = newcomers(team, to).all(|id| self.world.could_serve(&id));
        if is_fit && has_room && keep_up && self.moves < self.limits.moves {
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
mod tests;
