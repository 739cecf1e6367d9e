//! A proxy's copy of the system keyspace, and the teams of storage servers that follow from it for each shard.
//!
//! Every commit proxy applies every committed system mutation in version order before it tags anything of a
//! later version (pitfall 7), so all copies go through the same states.

use bytes::Bytes;
use plinth_access::Access;
use plinth_core::codec::Codec;
use plinth_core::key::{ALL_KEYS_END, KeyRange, SYSTEM_BEGIN};
use plinth_core::shard_order::{self, Order};
use plinth_core::streams::{self, StreamKind, StreamRecord};
use plinth_core::system_keys::{self as keys, ShardRecord, StorageServerRecord};
use plinth_core::{Mutation, MutationKind, Tag, Uid, atomic};
use plinth_rpc::Interface;
use plinth_runtime::checks::are_expensive_on;
use plinth_runtime::never;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

/// The storage servers that have a part in a shard.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Team {
    /// Tags of the log streams that its mutations go to, ascending: of servers that hold the shard and that fetch it.
    pub tags: Vec<Tag>,
    /// The servers that hold it, for reads.
    pub servers: Vec<Interface>,
    members: Vec<Member>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    id: Uid,
    tag: Tag,
    part: Part,
}

/// The part that a storage server has in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    None,
    Fetches,
    Holds,
}

impl Team {
    fn part_of(&self, id: Uid) -> Part {
        let member = self.members.iter().find(|member| member.id == id);
        member.map_or(Part::None, |member| member.part)
    }

    fn has_holders(&self) -> bool {
        self.members.iter().any(|member| member.part == Part::Holds)
    }
}

#[derive(Default)]
pub struct SystemState {
    rows: BTreeMap<Bytes, Bytes>,
    servers: BTreeMap<Uid, StorageServerRecord>,
    /// Begin of a shard → its team. Covers every key once the database is created.
    shards: BTreeMap<Bytes, Rc<Team>>,
    /// Equal records share a team.
    teams: BTreeMap<(Vec<Uid>, Vec<Uid>), Rc<Team>>,
    /// The changes streams. A batch keeps the list while it goes through its transactions.
    change_streams: Rc<Vec<StreamRecord>>,
    /// Another pointer whenever it changes.
    access: Rc<Access>,
    /// Changes since everything was checked.
    unchecked: usize,
}

/// Everything is checked after one change for so many rows that there are.
const ROWS_A_CHECK: usize = 100;

impl SystemState {
    #[cfg(test)]
    pub fn from_rows(rows: Vec<(Bytes, Bytes)>) -> Self {
        let mut state = SystemState {
            rows: rows.into_iter().collect(),
            ..Default::default()
        };
        state.derive();
        state
    }

    /// Adds rows of a state that is loaded in parts. The list of storage servers must come before the rows that refer
    /// to it.
    pub fn load(&mut self, rows: Vec<(Bytes, Bytes)>) {
        let mut shards = Vec::new();
        let (mut has_streams, mut has_access) = (false, false);
        for (key, value) in rows {
            has_streams |= key.starts_with(streams::STREAM_MAP);
            has_access |= key.starts_with(keys::ACCESS);
            // Copied: a row outlives the frame that it came in.
            let (key, value) = (Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value));
            if keys::parse_server_list_key(&key).is_some() {
                self.add_server(&key, &value);
            } else if keys::parse_key_servers_key(&key).is_some() {
                shards.push((key.clone(), value.clone()));
            }
            self.rows.insert(key, value);
        }
        self.add_shards(shards);
        if has_streams {
            self.derive_streams();
        }
        if has_access {
            self.derive_access();
        }
    }

    /// The rows from `key` on, in key order.
    pub fn rows_from(&self, key: &[u8]) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        let from = (Bound::Included(key), Bound::Unbounded);
        self.rows.range::<[u8], _>(from)
    }

    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.rows.get(key)
    }

    pub fn is_locked(&self) -> bool {
        self.rows.contains_key(keys::DATABASE_LOCK)
    }

    /// Applies the changes that one committed transaction makes to the system keyspace. Returns the orders for the
    /// storage servers whose part in some shard has changed, to be put into their streams: see [`shard_order`].
    pub fn change(&mut self, mutations: &[Mutation]) -> Vec<(Tag, Mutation)> {
        let orders = self.change_and_order(mutations);
        if mutations
            .iter()
            .any(|m| m.first.starts_with(streams::STREAMS))
        {
            // Their proxy refuses what would make more, and so do the others when they hear of it.
            let (count, overlap) = (
                self.change_streams.len(),
                streams::overlap(&**self.change_streams),
            );
            let is_too_many = count > streams::STREAMS_MAX || overlap > streams::OVERLAP_MAX;
            never!(is_too_many, "TooManyStreams", "count" => count, "overlap" => overlap);
        }
        self.unchecked += 1;
        if are_expensive_on() && self.unchecked > self.rows.len() / ROWS_A_CHECK {
            self.unchecked = 0;
            self.check();
        }
        orders
    }

    /// Asserts that what was derived change by change is what follows from the rows. Looks at all of them.
    fn check(&self) {
        let mut anew = SystemState {
            rows: self.rows.clone(),
            ..SystemState::default()
        };
        anew.derive();
        assert_eq!(
            self.servers, anew.servers,
            "the servers follow from the rows"
        );
        assert_eq!(self.shards, anew.shards, "the shards follow from the rows");
        assert_eq!(
            self.change_streams, anew.change_streams,
            "the streams follow from the rows"
        );
        assert!(
            *self.access == *anew.access,
            "the rights follow from the rows"
        );
        let known = |team: &Rc<Team>| self.teams.values().any(|other| Rc::ptr_eq(other, team));
        assert!(
            self.shards.values().all(known),
            "a team of a shard is not among the teams"
        );
    }

    fn change_and_order(&mut self, mutations: &[Mutation]) -> Vec<(Tag, Mutation)> {
        let Some(touched) = self.touched_shards(mutations) else {
            mutations.iter().for_each(|mutation| self.apply(mutation));
            if mutations.iter().all(only_changes_streams) {
                self.derive_streams();
            } else {
                self.derive();
            }
            return Vec::new();
        };
        let before = self.parts_of(&touched);
        mutations.iter().for_each(|mutation| self.apply(mutation));
        if mutations.iter().all(only_moves_shards) {
            self.derive_shards(&touched);
        } else {
            self.derive();
        }
        orders(&before, &self.parts_of(&touched))
    }

    /// The orders for the storage servers of a new database.
    pub fn first_orders(&self) -> Vec<(Tag, Mutation)> {
        let all = KeyRange::all();
        orders(&[(all.clone(), Rc::default())], &self.parts_of(&all))
    }

    /// A range around all shards that the mutations can change, in the map before the change.
    fn touched_shards(&self, mutations: &[Mutation]) -> Option<KeyRange> {
        let mut touched: Option<KeyRange> = None;
        for mutation in mutations {
            let Some(changed) = self.shards_touched_by(mutation) else {
                continue;
            };
            touched = Some(match touched {
                None => changed,
                Some(so_far) => KeyRange {
                    begin: so_far.begin.min(changed.begin),
                    end: so_far.end.max(changed.end),
                },
            });
        }
        touched
    }

    fn shards_touched_by(&self, mutation: &Mutation) -> Option<KeyRange> {
        let all_end = || Bytes::from_static(ALL_KEYS_END);
        if mutation.kind != MutationKind::ClearRange {
            let begin = keys::parse_key_servers_key(&mutation.first)?;
            let after = (Bound::Excluded(begin), Bound::Unbounded);
            let next = self.shards.range::<[u8], _>(after).next();
            return Some(KeyRange {
                begin: Bytes::copy_from_slice(begin),
                end: next.map_or_else(all_end, |(key, _)| key.clone()),
            });
        }
        let (first, second) = (&mutation.first[..], &mutation.second[..]);
        if first >= keys::KEY_SERVERS_END || second <= keys::KEY_SERVERS {
            return None;
        }
        let next = keys::parse_key_servers_key(second).and_then(|end| {
            let from = (Bound::Included(end), Bound::Unbounded);
            self.shards.range::<[u8], _>(from).next()
        });
        Some(KeyRange {
            begin: Bytes::copy_from_slice(keys::parse_key_servers_key(first).unwrap_or(b"")),
            end: next.map_or_else(all_end, |(key, _)| key.clone()),
        })
    }

    /// The shards of a range, clipped to it. A gap between shards gets a team without members.
    fn parts_of(&self, range: &KeyRange) -> Vec<(KeyRange, Rc<Team>)> {
        let mut parts: Vec<(KeyRange, Rc<Team>)> = Vec::new();
        let mut at = range.begin.clone();
        for (shard, team) in self.locate(range, false, usize::MAX) {
            if at < shard.begin {
                parts.push((KeyRange::new(at, shard.begin.clone()), Rc::default()));
            }
            at = shard.end.clone();
            parts.extend(shard.intersection(range).map(|part| (part, team)));
        }
        if at < range.end {
            parts.push((KeyRange::new(at, range.end.clone()), Rc::default()));
        }
        parts
    }

    /// Applies one committed mutation. Keys outside the system keyspace are ignored; a clear is clipped to it.
    fn apply(&mut self, mutation: &Mutation) {
        if mutation.kind == MutationKind::ClearRange {
            let begin = (&mutation.first[..]).max(SYSTEM_BEGIN);
            let end = &mutation.second[..];
            if begin < end {
                let range = (Bound::Included(begin), Bound::Excluded(end));
                let gone: Vec<Bytes> = self
                    .rows
                    .range::<[u8], _>(range)
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in &gone {
                    self.rows.remove(key);
                }
            }
        } else if keys::is_metadata_key(&mutation.first) {
            // Copied: a row outlives the frame that its mutation came in.
            let key = Bytes::copy_from_slice(&mutation.first);
            let value = match mutation.kind {
                MutationKind::Set => Some(Bytes::copy_from_slice(&mutation.second)),
                kind => atomic::apply(kind, self.rows.get(&key).map(|v| &v[..]), &mutation.second),
            };
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }

    /// Rebuilds what follows from the rows. A record that does not parse is an error of its writer: it is left out
    /// with a trace event, so that it does not take every proxy down.
    fn derive(&mut self) {
        self.servers.clear();
        for (key, value) in self.rows_in(keys::SERVER_LIST, keys::SERVER_LIST_END) {
            self.add_server(&key, &value);
        }
        self.teams.clear();
        self.shards.clear();
        self.add_shards(self.rows_in(keys::KEY_SERVERS, keys::KEY_SERVERS_END));
        self.derive_streams();
        self.derive_access();
    }

    fn derive_access(&mut self) {
        let rows = self.rows_in(keys::ACCESS, keys::ACCESS_END);
        let access = Access::from_rows(rows.iter().map(|(key, value)| (&key[..], &value[..])));
        if access != *self.access {
            self.access = Rc::new(access);
        }
    }

    /// Who may read and write what.
    pub fn access(&self) -> &Rc<Access> {
        &self.access
    }

    fn derive_streams(&mut self) {
        let mut found = Vec::new();
        for (key, value) in self.rows_in(streams::STREAM_MAP, streams::STREAM_MAP_END) {
            match StreamRecord::from_bytes(value) {
                Some(record) if record.kind == StreamKind::Changes => found.push(record),
                Some(_) => {}
                None => bad_row(&key),
            }
        }
        self.change_streams = Rc::new(found);
    }

    /// True if these mutations would make more streams than there may be, or more on one key. A client that makes a
    /// stream looks first; nobody else relies on that. Proxies that apply the same transactions find the same.
    pub fn makes_too_many_streams(&self, mutations: &[Mutation]) -> bool {
        let is_made = |mutation: &Mutation| {
            mutation.kind == MutationKind::Set && mutation.first.starts_with(streams::STREAM_MAP)
        };
        if !mutations.iter().any(is_made) {
            return false;
        }
        let rows = self.rows_in(streams::STREAM_MAP, streams::STREAM_MAP_END);
        let mut after = SystemState {
            rows: rows.into_iter().collect(),
            ..SystemState::default()
        };
        mutations.iter().for_each(|mutation| after.apply(mutation));
        after.derive_streams();
        let begin = (
            Bound::Included(streams::STREAM_MAP),
            Bound::Excluded(streams::STREAM_MAP_END),
        );
        let count = after.rows.range::<[u8], _>(begin).count();
        count > streams::STREAMS_MAX
            || streams::overlap(&**after.change_streams()) > streams::OVERLAP_MAX
    }

    pub fn change_streams(&self) -> &Rc<Vec<StreamRecord>> {
        &self.change_streams
    }

    fn add_server(&mut self, key: &[u8], value: &Bytes) {
        let record = StorageServerRecord::from_bytes(value.clone());
        match (keys::parse_server_list_key(key), record) {
            (Some(id), Some(record)) => drop(self.servers.insert(id, record)),
            _ => bad_row(key),
        }
    }

    /// Rebuilds the shards that begin in `touched` or at its end.
    fn derive_shards(&mut self, touched: &KeyRange) {
        let inside = (
            Bound::Included(&touched.begin[..]),
            Bound::Excluded(&touched.end[..]),
        );
        let begins = self.shards.range::<[u8], _>(inside);
        let gone: Vec<Bytes> = begins.map(|(begin, _)| begin.clone()).collect();
        for begin in gone {
            self.shards.remove(&begin);
        }
        let (begin, end) = (
            keys::key_servers_key(&touched.begin),
            keys::key_servers_key(&touched.end),
        );
        self.add_shards(self.rows_in(&begin, &end));
        self.teams.retain(|_, team| Rc::strong_count(team) > 1);
    }

    fn add_shards(&mut self, rows: Vec<(Bytes, Bytes)>) {
        for (key, value) in rows {
            let Some(record) = ShardRecord::from_bytes(value) else {
                bad_row(&key);
                continue;
            };
            let begin = key.slice(keys::KEY_SERVERS.len()..);
            let ids = (record.team, record.destination);
            let known = self.teams.get(&ids).cloned();
            let team = known.unwrap_or_else(|| {
                let team = Rc::new(self.team(&ids.0, &ids.1));
                self.teams.insert(ids, team.clone());
                team
            });
            self.shards.insert(begin, team);
        }
    }

    fn rows_in(&self, begin: &[u8], end: &[u8]) -> Vec<(Bytes, Bytes)> {
        let range = (Bound::Included(begin), Bound::Excluded(end));
        self.rows
            .range::<[u8], _>(range)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    fn team(&self, holders: &[Uid], fetchers: &[Uid]) -> Team {
        let mut team = Team::default();
        let holders = holders.iter().map(|id| (id, Part::Holds));
        let fetchers = fetchers.iter().map(|id| (id, Part::Fetches));
        for (id, part) in holders.chain(fetchers) {
            let Some(server) = self.servers.get(id) else {
                continue;
            };
            if team.part_of(*id) != Part::None {
                continue; // in both teams: it holds the shard already
            }
            if part == Part::Holds {
                team.servers.push(Interface::new(server.address, *id));
            }
            team.tags.push(server.tag);
            team.members.push(Member {
                id: *id,
                tag: server.tag,
                part,
            });
        }
        team.tags.sort();
        // Each would take the other's mutations out of the log.
        never!(
            team.tags.windows(2).any(|pair| pair[0] == pair[1]),
            "ServersShareATag",
            "tags" => format!("{:?}", team.tags)
        );
        team
    }

    /// The tags of the team of `key`.
    #[inline]
    pub fn tags_of_key(&self, key: &[u8]) -> &[Tag] {
        let range = (Bound::Unbounded, Bound::Included(key));
        self.shards
            .range::<[u8], _>(range)
            .next_back()
            .map_or(&[], |(_, team)| &team.tags)
    }

    /// The tags of all teams that hold a part of `[begin, end)`.
    pub fn tags_of_range(&self, begin: &[u8], end: &[u8]) -> Vec<Tag> {
        let mut tags: BTreeSet<Tag> = self.tags_of_key(begin).iter().copied().collect();
        if begin < end {
            let rest = (Bound::Excluded(begin), Bound::Excluded(end));
            for (_, team) in self.shards.range::<[u8], _>(rest) {
                tags.extend(&team.tags);
            }
        }
        tags.into_iter().collect()
    }

    /// The only team, if there is just one: then nothing needs to be looked up.
    pub fn only_team(&self) -> Option<&Rc<Team>> {
        if self.shards.len() == 1 {
            self.shards.values().next()
        } else {
            None
        }
    }

    /// All tags of storage servers.
    pub fn tags(&self) -> Vec<Tag> {
        let mut tags: Vec<Tag> = self.servers.values().map(|record| record.tag).collect();
        tags.sort();
        tags
    }

    pub fn servers(&self) -> impl Iterator<Item = (Uid, &StorageServerRecord)> {
        self.servers.iter().map(|(id, record)| (*id, record))
    }

    /// The shards that intersect `range`, as whole shards, in the order asked for, at most `limit` of them.
    pub fn locate(
        &self,
        range: &KeyRange,
        reverse: bool,
        limit: usize,
    ) -> Vec<(KeyRange, Rc<Team>)> {
        let first = self
            .shards
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(&range.begin[..])))
            .next_back();
        let Some((first, _)) = first else {
            return Vec::new();
        };
        let inside = (Bound::Included(&first[..]), Bound::Excluded(&range.end[..]));
        let whole = |(begin, team): (&Bytes, &Rc<Team>)| {
            let after = (Bound::Excluded(&begin[..]), Bound::Unbounded);
            let next = self.shards.range::<[u8], _>(after).next();
            let end = next.map_or(Bytes::from_static(ALL_KEYS_END), |(key, _)| key.clone());
            (
                KeyRange {
                    begin: begin.clone(),
                    end,
                },
                team.clone(),
            )
        };
        let found = self.shards.range::<[u8], _>(inside);
        if reverse {
            found.rev().take(limit).map(whole).collect()
        } else {
            found.take(limit).map(whole).collect()
        }
    }
}

fn bad_row(key: &[u8]) {
    plinth_runtime::trace!("BadSystemRow", "key" => plinth_core::key::printable(key));
}

/// True if the mutation changes nothing but the list of streams.
fn only_changes_streams(mutation: &Mutation) -> bool {
    let inside = mutation.first.starts_with(streams::STREAMS);
    inside
        && (mutation.kind != MutationKind::ClearRange
            || mutation.second[..] <= *streams::STREAM_MAP_END)
}

/// True if the mutation changes nothing but which servers have a part in which shard.
fn only_moves_shards(mutation: &Mutation) -> bool {
    let inside = mutation.first.starts_with(keys::KEY_SERVERS);
    let to = &mutation.second[..];
    inside && (mutation.kind != MutationKind::ClearRange || to <= keys::KEY_SERVERS_END)
}

type Parts = [(KeyRange, Rc<Team>)];

/// The orders for each server that follow from a change of the map, in key order. Both lists cover the same range.
fn orders(before: &Parts, after: &Parts) -> Vec<(Tag, Mutation)> {
    let mut orders: Vec<(Tag, KeyRange, Order)> = Vec::new();
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    while let (Some((was_range, was)), Some((is_range, is))) = (old.peek(), new.peek()) {
        let begin = was_range.begin.clone().max(is_range.begin.clone());
        let end = was_range.end.clone().min(is_range.end.clone());
        let known = |member: &&Member| was.part_of(member.id) == Part::None;
        let members = was.members.iter().chain(is.members.iter().filter(known));
        for member in members {
            let order = order_for(was, is, member.id);
            let range = KeyRange::new(begin.clone(), end.clone());
            orders.extend(order.map(|order| (member.tag, range, order)));
        }
        if was_range.end == end {
            old.next();
        }
        if is_range.end == end {
            new.next();
        }
    }
    let packed =
        |(tag, range, order): &(Tag, KeyRange, Order)| (*tag, shard_order::mutation(range, *order));
    orders.iter().map(packed).collect()
}

fn order_for(was: &Team, is: &Team, id: Uid) -> Option<Order> {
    match (was.part_of(id), is.part_of(id)) {
        (Part::None, Part::Fetches) => Some(Order::Fetch),
        // If no server held the shard before, there is nothing to fetch.
        (Part::None, Part::Holds) if was.has_holders() => Some(Order::Fetch),
        (Part::None, Part::Holds) => Some(Order::Hold),
        (Part::Fetches, Part::Holds) => Some(Order::Keep),
        (Part::Fetches | Part::Holds, Part::None) => Some(Order::Leave),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> SystemState {
        let mut rows = Vec::new();
        for i in 0..4u32 {
            let record = StorageServerRecord {
                address: ([10, 0, 0, i as u8], 1).into(),
                tag: Tag(i),
                engine: plinth_core::EngineKind::Ssd,
            };
            rows.push((keys::server_list_key(Uid(u128::from(i))), record.to_bytes()));
        }
        for (begin, team) in [("", [0, 1]), ("m", [2, 3])] {
            let record = ShardRecord {
                team: team.map(Uid).to_vec(),
                destination: vec![],
            };
            rows.push((keys::key_servers_key(begin.as_bytes()), record.to_bytes()));
        }
        SystemState::from_rows(rows)
    }

    #[test]
    fn a_key_belongs_to_the_shard_that_begins_at_or_before_it() {
        let state = state();
        assert_eq!(state.tags_of_key(b""), [Tag(0), Tag(1)]);
        assert_eq!(state.tags_of_key(b"lzz"), [Tag(0), Tag(1)]);
        assert_eq!(state.tags_of_key(b"m"), [Tag(2), Tag(3)]);
        assert_eq!(state.tags_of_range(b"a", b"m"), [Tag(0), Tag(1)]);
        assert_eq!(state.tags_of_range(b"a", b"n").len(), 4);
        assert_eq!(state.tags_of_range(b"x", b"y"), [Tag(2), Tag(3)]);
    }

    #[test]
    fn a_state_that_is_told_in_parts_is_the_same() {
        let whole = state();
        let rows: Vec<(Bytes, Bytes)> = whole.rows.clone().into_iter().collect();
        let (servers, others): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|(key, _)| keys::parse_server_list_key(key).is_some());
        let mut told = SystemState::default();
        for row in servers.into_iter().chain(others) {
            told.load(vec![row]);
        }
        assert_eq!(told.rows, whole.rows);
        assert_eq!(told.shards, whole.shards);
        assert_eq!(told.servers, whole.servers);
    }

    #[test]
    fn locations_come_in_the_order_asked_for() {
        let state = state();
        let ranges = |reverse, limit| -> Vec<Bytes> {
            let range = KeyRange::new(&b"a"[..], &b"z"[..]);
            state
                .locate(&range, reverse, limit)
                .into_iter()
                .map(|(r, _)| r.begin)
                .collect()
        };
        assert_eq!(ranges(false, 9), [&b""[..], b"m"]);
        assert_eq!(ranges(true, 1), [&b"m"[..]]);
    }

    #[test]
    fn a_clear_that_reaches_into_the_system_keyspace_clears_only_what_lies_there() {
        let mut state = state();
        state.change(&[
            Mutation::clear_range(&b"a"[..], keys::key_servers_key(b"m")),
            Mutation::set(&b"user"[..], &b"x"[..]),
        ]);
        assert_eq!(state.tags_of_key(b"a"), [] as [Tag; 0]);
        assert!(state.get(b"user").is_none());
        assert!(state.rows_from(b"").count() > 0);
    }

    fn shard(begin: &[u8], team: &[u128], destination: &[u128]) -> Mutation {
        let ids = |ids: &[u128]| ids.iter().map(|id| Uid(*id)).collect();
        let record = ShardRecord {
            team: ids(team),
            destination: ids(destination),
        };
        Mutation::set(keys::key_servers_key(begin), record.to_bytes())
    }

    fn orders_of(told: &[(Tag, Mutation)]) -> Vec<(u32, Order, String)> {
        let parse = |(tag, mutation): &(Tag, Mutation)| {
            let parsed = shard_order::parse(&mutation.as_ref()).flatten();
            let (range, order) = parsed.expect("an order");
            (tag.0, order, format!("{range:?}"))
        };
        told.iter().map(parse).collect()
    }

    #[test]
    fn a_move_tells_each_server_its_part_and_nobody_else() {
        let mut state = state();
        let split = [shard(b"c", &[0, 1], &[1, 2]), shard(b"f", &[0, 1], &[])];
        let told = orders_of(&state.change(&split));
        assert_eq!(told, [(2, Order::Fetch, "[c, f)".into())]);
        assert_eq!(state.tags_of_key(b"d"), [Tag(0), Tag(1), Tag(2)]);
        assert_eq!(state.tags_of_key(b"g"), [Tag(0), Tag(1)]);
        let readable = |state: &SystemState| {
            let range = KeyRange::single(b"d");
            let found = state.locate(&range, false, 1).remove(0).1;
            let ids: Vec<u128> = found.servers.iter().map(|server| server.id.0).collect();
            ids
        };
        assert_eq!(readable(&state), [0, 1]);
        let told = orders_of(&state.change(&[shard(b"c", &[1, 2], &[])]));
        let expected = [
            (0, Order::Leave, "[c, f)".into()),
            (2, Order::Keep, "[c, f)".into()),
        ];
        assert_eq!(told, expected);
        assert_eq!(readable(&state), [1, 2]);
    }

    #[test]
    fn a_move_that_is_given_up_leaves_things_as_they_were() {
        let mut state = state();
        state.change(&[shard(b"", &[0, 1], &[2, 3])]);
        let told = orders_of(&state.change(&[shard(b"", &[0, 1], &[])]));
        let expected = [2, 3].map(|tag| (tag, Order::Leave, "[, m)".into()));
        assert_eq!(told, expected);
    }

    #[test]
    fn shards_that_become_one_tell_nothing_to_those_who_hold_both() {
        let mut state = state();
        assert!(state.change(&[shard(b"c", &[0, 1], &[])]).is_empty());
        let merge = Mutation::clear_range(keys::key_servers_key(b"b"), keys::key_servers_key(b"d"));
        assert!(state.change(&[merge]).is_empty());
        assert_eq!(state.shards.len(), 2);
    }

    #[test]
    fn the_first_holders_of_a_new_database_have_nothing_to_fetch() {
        let rows: Vec<(Bytes, Bytes)> = state().rows.into_iter().collect();
        let sets = rows
            .into_iter()
            .map(|(key, value)| Mutation::set(key, value));
        let told = SystemState::default().change(&sets.collect::<Vec<_>>());
        assert_eq!(told, state().first_orders());
        let expected = [
            (0, "[, m)"),
            (1, "[, m)"),
            (2, "[m, \\xff\\xff)"),
            (3, "[m, \\xff\\xff)"),
        ];
        let expected = expected.map(|(tag, range)| (tag, Order::Hold, range.into()));
        assert_eq!(orders_of(&told), expected);
    }

    #[test]
    fn more_streams_than_there_may_be_are_noticed_whoever_makes_them() {
        let stream = |name: u32, begin: &'static str| {
            let record = StreamRecord {
                id: u64::from(name),
                kind: match begin {
                    "" => StreamKind::Append,
                    _ => StreamKind::Changes,
                },
                ranges: Vec::from_iter((!begin.is_empty()).then(|| KeyRange::new(begin, "z"))),
                bytes_max: 0,
                seconds_max: 0,
            };
            Mutation::set(streams::map_key(&name.to_be_bytes()), record.to_bytes())
        };
        let mut state = state();
        let three = ["a", "b", "c"]
            .iter()
            .zip(0..)
            .map(|(at, name)| stream(name, at));
        let three: Vec<Mutation> = three.collect();
        assert!(!state.makes_too_many_streams(&three));
        state.change(&three);
        assert!(state.makes_too_many_streams(&[stream(9, "d")]));
        // One of them goes in the same transaction.
        assert!(!state.makes_too_many_streams(&[stream(0, ""), stream(9, "d")]));
        assert!(!state.makes_too_many_streams(&[Mutation::set(keys::CONFIG, &b"x"[..])]));
        let rest = (3..streams::STREAMS_MAX as u32).map(|name| stream(name, ""));
        let rest: Vec<Mutation> = rest.collect();
        assert!(!state.makes_too_many_streams(&rest));
        state.change(&rest);
        assert!(
            !state.makes_too_many_streams(&[stream(3, "")]),
            "it is there already"
        );
        assert!(state.makes_too_many_streams(&[stream(5000, "")]));
    }

    #[test]
    fn what_is_derived_in_part_is_what_is_derived_as_a_whole() {
        let mut state = state();
        let steps = [
            vec![shard(b"c", &[0, 1], &[2]), shard(b"x", &[1], &[3])],
            vec![Mutation::clear_range(
                keys::key_servers_key(b"b"),
                keys::key_servers_key(b"n"),
            )],
            vec![shard(b"c", &[3], &[]), shard(b"d", &[2], &[0, 1])],
            vec![Mutation::clear_range(
                keys::key_servers_key(b"x"),
                keys::KEY_SERVERS_END,
            )],
        ];
        for step in steps {
            state.change(&step);
            let whole = SystemState::from_rows(state.rows.clone().into_iter().collect());
            assert_eq!(state.shards, whole.shards);
        }
    }
}
