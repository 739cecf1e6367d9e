//! A proxy's copy of the system keyspace, and what follows from it: which storage servers hold which shard.
//!
//! Every commit proxy applies every committed system mutation in version order before it tags anything of a
//! later version (pitfall 7), so all copies go through the same states.

use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::key::{ALL_KEYS_END, KeyRange, SYSTEM_BEGIN};
use plinth_core::system_keys::{self as keys, ShardRecord, StorageServerRecord};
use plinth_core::{Mutation, MutationKind, Tag, Uid, atomic};
use plinth_rpc::Interface;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

/// The storage servers that hold a shard.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Team {
    /// Their streams of the log, ascending.
    pub tags: Vec<Tag>,
    pub servers: Vec<Interface>,
}

#[derive(Default)]
pub struct SystemState {
    rows: BTreeMap<Bytes, Bytes>,
    servers: BTreeMap<Uid, StorageServerRecord>,
    /// Begin of a shard → its team. Covers every key once the database is created.
    shards: BTreeMap<Bytes, Rc<Team>>,
}

impl SystemState {
    pub fn from_rows(rows: Vec<(Bytes, Bytes)>) -> Self {
        let mut state = SystemState {
            rows: rows.into_iter().collect(),
            ..Default::default()
        };
        state.derive();
        state
    }

    /// All rows, in key order.
    pub fn rows(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.rows.iter()
    }

    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.rows.get(key)
    }

    /// Applies one committed mutation. Keys outside the system keyspace are ignored; a clear is clipped to it.
    pub fn apply(&mut self, mutation: &Mutation) {
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

    /// Rebuilds what follows from the rows; called once after each version that changed them. Records that do not
    /// parse are a writer's mistake: they are left out, loudly, rather than taking every proxy down.
    pub fn derive(&mut self) {
        self.servers.clear();
        for (key, value) in self.rows_in(keys::SERVER_LIST, keys::SERVER_LIST_END) {
            match (
                keys::parse_server_list_key(&key),
                StorageServerRecord::from_bytes(value),
            ) {
                (Some(id), Some(record)) => drop(self.servers.insert(id, record)),
                _ => {
                    plinth_runtime::trace!("BadSystemRow", "key" => plinth_core::key::printable(&key))
                }
            }
        }
        let mut teams: BTreeMap<Vec<Uid>, Rc<Team>> = BTreeMap::new();
        self.shards.clear();
        for (key, value) in self.rows_in(keys::KEY_SERVERS, keys::KEY_SERVERS_END) {
            let Some(record) = ShardRecord::from_bytes(value) else {
                plinth_runtime::trace!("BadSystemRow", "key" => plinth_core::key::printable(&key));
                continue;
            };
            let begin = key.slice(keys::KEY_SERVERS.len()..);
            let team = match teams.get(&record.team) {
                Some(team) => team.clone(),
                None => {
                    let team = Rc::new(self.team(&record.team));
                    teams.insert(record.team, team.clone());
                    team
                }
            };
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

    fn team(&self, ids: &[Uid]) -> Team {
        let known: Vec<_> = ids
            .iter()
            .filter_map(|id| Some((*id, self.servers.get(id)?)))
            .collect();
        let mut tags: Vec<Tag> = known.iter().map(|(_, record)| record.tag).collect();
        tags.sort();
        Team {
            tags,
            servers: known
                .iter()
                .map(|(id, record)| Interface::new(record.address, *id))
                .collect(),
        }
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

    /// The only team, if there is but one: then nothing needs to be looked up.
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

    /// Shards that intersect `range`, clipped to nothing: whole shards, in the order asked for.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> SystemState {
        let mut rows = Vec::new();
        for i in 0..4u32 {
            let record = StorageServerRecord {
                address: ([10, 0, 0, i as u8], 1).into(),
                tag: Tag(i),
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
        state.apply(&Mutation::clear_range(
            &b"a"[..],
            keys::key_servers_key(b"m"),
        ));
        state.apply(&Mutation::set(&b"user"[..], &b"x"[..]));
        state.derive();
        assert_eq!(state.tags_of_key(b"a"), [] as [Tag; 0]);
        assert!(state.get(b"user").is_none());
        assert!(state.rows().count() > 0);
    }
}
