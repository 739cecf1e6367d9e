//! The *assign* phase: which log server stores which mutation of a version.

use crate::system_state::SystemState;
use bytes::{Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::key::ALL_KEYS_END;
use plinth_core::log_body::LogBodyBuilder;
use plinth_core::mutation::{self, MutationBatch, MutationKind, MutationRef};
use plinth_core::version::Versionstamp;
use plinth_core::{Mutation, Tag, Version, atomic, system_keys};
use plinth_protocol::log::LogGeneration;
use plinth_runtime::{Pace, never};
use std::borrow::Cow;
use std::cell::RefCell;

/// Builds the body of one version for every log server of a generation.
pub struct Bodies<'a> {
    generation: &'a LogGeneration,
    builders: Vec<LogBodyBuilder>,
}

impl<'a> Bodies<'a> {
    /// `bytes` is the approximate size of the expected mutations.
    pub fn new(generation: &'a LogGeneration, bytes: usize) -> Self {
        let builder = |_| {
            let mut builder = LogBodyBuilder::new();
            builder.reserve(bytes);
            builder
        };
        let builders = generation.logs.iter().map(builder).collect();
        Bodies {
            generation,
            builders,
        }
    }

    /// Adds packed mutations that all carry the same tags to the body of every log server that stores one of the tags.
    pub fn push(&mut self, tags: &[Tag], packed: &[u8]) {
        // No log server would store them, and they would be lost.
        never!(tags.is_empty(), "MutationsOfNobody", "bytes" => packed.len());
        if let [only] = &mut self.builders[..] {
            only.push(tags, packed);
            return;
        }
        for (place, builder) in self.builders.iter_mut().enumerate() {
            let stored: Vec<Tag> = tags
                .iter()
                .copied()
                .filter(|tag| self.generation.log_set(*tag).any(|p| p == place))
                .collect();
            if !stored.is_empty() {
                builder.push(&stored, packed);
            }
        }
    }

    /// Adds the orders for storage servers about their shards.
    pub fn push_orders(&mut self, orders: &[(Tag, Mutation)]) {
        for (tag, order) in orders {
            let mut packed = BytesMut::new();
            order.as_ref().pack(&mut packed);
            self.push(&[*tag], &packed);
        }
    }

    pub fn finish(self) -> Vec<Bytes> {
        self.builders
            .into_iter()
            .map(LogBodyBuilder::finish)
            .collect()
    }
}

/// Replaces versionstamped operations by the sets that they become (pitfall 6). The client refuses a stamp that does
/// not fit its parameter. If one comes anyway, it is dropped with its mutation.
pub fn place_versionstamps(
    mutations: &MutationBatch,
    version: Version,
    order: u16,
) -> MutationBatch {
    if !mutations
        .iter()
        .any(|mutation| mutation.kind.is_versionstamped())
    {
        return mutations.clone();
    }
    let stamp = Versionstamp::new(version, order);
    let mut out = BytesMut::with_capacity(mutations.bytes().len());
    for mutation in mutations.iter() {
        let MutationRef { first, second, .. } = mutation;
        // The place of the stamp, in both parts one after the other.
        let place = match mutation.kind {
            MutationKind::SetVersionstampedKey => atomic::versionstamp_offset(first),
            MutationKind::SetVersionstampedValue => {
                atomic::versionstamp_offset(second).map(|place| first.len() + place)
            }
            _ => {
                mutation.pack(&mut out);
                continue;
            }
        };
        let Some(place) = place else { continue };
        let (first, second) = match mutation.kind {
            MutationKind::SetVersionstampedKey => (atomic::without_offset(first), second),
            _ => (first, atomic::without_offset(second)),
        };
        MutationRef::set(first, second).pack(&mut out);
        let at = out.len() - first.len() - second.len() + place;
        out[at..at + Versionstamp::LEN].copy_from_slice(&stamp.0);
    }
    MutationBatch::parse(out.freeze()).expect("packed just now")
}

/// Number of mutations whose tags are looked up between two checks of the clock.
const ASSIGNED_AT_ONCE: usize = 64;
/// Approximate number of bytes copied to each log server of a set between two checks of the clock. A mutation is
/// copied whole.
const COPIED_AT_ONCE: usize = 1 << 20;

/// Adds the mutations of one transaction to the bodies. Each mutation gets the tags of its shard's team. Neighbours
/// with equal tags form one run, so that they are not copied one by one. Many mutations take several turns of the
/// loop; the state must not change meanwhile.
pub async fn assign(
    state: &RefCell<SystemState>,
    mutations: &MutationBatch,
    bodies: &mut Bodies<'_>,
    pace: &mut Pace,
) {
    let packed = &mutations.bytes()[..];
    if packed.len() <= COPIED_AT_ONCE
        && let Some(team) = state.borrow().only_team()
    {
        bodies.push(&team.tags, packed);
        return;
    }
    let mut run_start = 0;
    let mut run_tags: Vec<Tag> = Vec::new();
    let mut at = 0;
    let mut looked_at = 0;
    for (place, (mutation, end)) in mutation::iter_packed(packed).enumerate() {
        let is_range = mutation.kind == MutationKind::ClearRange;
        let is_far = at - looked_at > COPIED_AT_ONCE;
        if is_range || is_far || place % ASSIGNED_AT_ONCE == 0 {
            looked_at = at;
            pace.rest_if_over().await;
        }
        let state = state.borrow();
        let tags: Cow<'_, [Tag]> = if is_range {
            state.tags_of_range(mutation.first, mutation.second).into()
        } else {
            state.tags_of_key(mutation.first).into()
        };
        if *tags != *run_tags || at - run_start > COPIED_AT_ONCE {
            if at > run_start {
                bodies.push(&run_tags, &packed[run_start..at]);
            }
            run_start = at;
            run_tags.clear();
            run_tags.extend_from_slice(&tags);
        }
        at = end;
    }
    if at > run_start {
        bodies.push(&run_tags, &packed[run_start..at]);
    }
}

/// The mutations of a transaction that change the rows of the system keyspace of which proxies keep a copy.
pub fn system_part(mutations: &MutationBatch) -> Vec<Mutation> {
    let concerns = |m: &Mutation| {
        if m.kind == MutationKind::ClearRange {
            system_keys::is_metadata_range(&m.first, &m.second)
        } else {
            system_keys::is_metadata_key(&m.first)
        }
    };
    mutations.iter_owned().filter(concerns).collect()
}

/// The list of storage servers as mutations.
pub fn server_list(state: &SystemState) -> MutationBatch {
    let rows = state.servers();
    let sets: Vec<Mutation> = rows
        .map(|(id, record)| Mutation::set(system_keys::server_list_key(id), record.to_bytes()))
        .collect();
    MutationBatch::from_mutations(sets.iter().map(Mutation::as_ref))
}

/// One part of the system keyspace: about `bytes` of its rows from `begin` on, as mutations that produce these rows
/// whatever was there before. Also returns the begin of the next part, `None` after the last. A recovery starts from
/// all parts, applied one after the other. A change made between two parts is either contained in a later part, or it
/// follows its part in the stream and is applied again on top of it.
pub fn snapshot_part(
    state: &SystemState,
    begin: &[u8],
    bytes: usize,
) -> (MutationBatch, Option<Bytes>) {
    let mut sets = BytesMut::new();
    let mut next = None;
    for (key, value) in state.rows_from(begin) {
        if sets.len() >= bytes {
            next = Some(key.clone());
            break;
        }
        MutationRef::set(key, value).pack(&mut sets);
    }
    let mut out = BytesMut::with_capacity(sets.len() + begin.len() + 64);
    let end = next.as_deref().unwrap_or(ALL_KEYS_END);
    MutationRef::clear_range(begin, end).pack(&mut out);
    out.extend_from_slice(&sets);
    let batch = MutationBatch::parse(out.freeze()).expect("packed just now");
    assert!(
        next.as_deref().is_none_or(|next| next > begin),
        "the part behind {begin:?} begins at {next:?}"
    );
    (batch, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;
    use plinth_core::key::SYSTEM_BEGIN;
    use plinth_core::system_keys::{ShardRecord, key_servers_key};
    use std::collections::BTreeMap;

    fn shard(number: u32, team: u128) -> Mutation {
        let record = ShardRecord {
            team: vec![Uid(team); 3],
            destination: vec![],
        };
        let begin = format!("boundary {number:06}");
        Mutation::set(key_servers_key(begin.as_bytes()), record.to_bytes())
    }

    /// A generation whose two log servers both have everything.
    fn two_logs() -> LogGeneration {
        LogGeneration {
            epoch: 1,
            logs: vec![plinth_rpc::Interface::new(([10, 0, 0, 1], 1).into(), Uid(1)); 2],
            replication: 2,
            tags_a_set: 1,
            start: 1,
            recovered_to: 0,
        }
    }

    /// Applies the stream as a recovery does.
    fn replay(rows: &mut BTreeMap<Bytes, Bytes>, mutations: impl Iterator<Item = Mutation>) {
        for Mutation {
            kind,
            first,
            second,
        } in mutations
        {
            match kind {
                MutationKind::Set => drop(rows.insert(first, second)),
                MutationKind::ClearRange => rows.retain(|key, _| *key < first || *key >= second),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_parts_of_a_snapshot_are_small_and_make_the_whole_whatever_changes_between_them() {
        let mut state = SystemState::default();
        let rows = (0..100_000).map(|i| shard(i, 1));
        state.load(rows.map(|set| (set.first, set.second)).collect());
        let stale = [shard(7, 9), shard(200_000, 9)].map(|set| (set.first, set.second));
        let mut replayed = BTreeMap::from(stale);
        let (mut begin, mut parts) = (Bytes::from_static(SYSTEM_BEGIN), 0);
        loop {
            let (part, next) = snapshot_part(&state, &begin, 1 << 20);
            assert!(part.bytes().len() < (1 << 20) + 1000);
            replay(&mut replayed, part.iter_owned());
            parts += 1;
            // Keys of parts already written and of parts still to come; some keys are new.
            let changed = [parts * 13 % 100_000, 99_000 - parts, 300_000 + parts];
            let mut changes: Vec<Mutation> = changed.map(|i| shard(i, 2)).into();
            let (gone, end) = (shard(parts * 31, 0).first, shard(parts * 31 + 2, 0).first);
            changes.push(Mutation::clear_range(gone, end));
            for change in &changes {
                state.change(std::slice::from_ref(change));
            }
            replay(&mut replayed, changes.into_iter());
            match next {
                Some(next) => begin = next,
                None => break,
            }
        }
        assert!(parts > 5, "{parts}");
        let rows = state.rows_from(b"").map(|(k, v)| (k.clone(), v.clone()));
        assert!(replayed.into_iter().eq(rows));
    }

    #[test]
    fn stamped_operations_become_sets_and_others_stay_as_they_are() {
        let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
        let stamped = |place: u32| {
            let text = [&b"before"[..], &[0; Versionstamp::LEN], b"after"].concat();
            Bytes::from([&text[..], &place.to_le_bytes()].concat())
        };
        let of = |kind, first: &Bytes, second: &Bytes| Mutation {
            kind,
            first: first.clone(),
            second: second.clone(),
        };
        let asked = [
            of(MutationKind::Add, &first, &second),
            of(MutationKind::SetVersionstampedKey, &stamped(6), &second),
            of(MutationKind::SetVersionstampedValue, &first, &stamped(0)),
            // No stamp fits there.
            of(MutationKind::SetVersionstampedValue, &first, &stamped(12)),
            of(MutationKind::Set, &first, &second),
        ];
        let placed = |place| {
            let stamp = Versionstamp::new(7, 8);
            atomic::place_versionstamp(&stamped(place), stamp).expect("it fits")
        };
        let sets = [
            asked[0].clone(),
            Mutation::set(placed(6), second.clone()),
            Mutation::set(first.clone(), placed(0)),
            asked[4].clone(),
        ];
        let asked = MutationBatch::from_mutations(asked.iter().map(Mutation::as_ref));
        let stamped = place_versionstamps(&asked, 7, 8);
        assert_eq!(stamped.iter_owned().collect::<Vec<_>>(), sets);
    }

    #[test]
    fn a_large_transaction_is_assigned_in_parts_and_makes_the_same_body() {
        let generation = two_logs();
        let mut packed = BytesMut::new();
        for i in 0..50u32 {
            let key = i.to_be_bytes().to_vec();
            let set = Mutation::set(key, vec![b'x'; COPIED_AT_ONCE / 10]);
            set.as_ref().pack(&mut packed);
        }
        let mutations = MutationBatch::parse(packed.freeze()).expect("packed just now");
        let state = RefCell::new(SystemState::default());
        let one_shard = Mutation::set(key_servers_key(b""), shard(0, 1).second);
        state.borrow_mut().change(&[one_shard]);
        let team = state.borrow().only_team().expect("one shard").clone();
        let (mut in_parts, mut whole) = (Bodies::new(&generation, 0), Bodies::new(&generation, 0));
        plinth_runtime::real::block_on(async {
            assign(&state, &mutations, &mut in_parts, &mut Pace::new()).await;
        });
        whole.push(&team.tags, mutations.bytes());
        assert_eq!(in_parts.finish(), whole.finish());
    }

    #[test]
    fn a_clear_over_the_shards_of_400_servers_has_a_body_of_its_own_size() {
        let generation = two_logs();
        let tags: Vec<Tag> = (0..400).map(Tag).collect();
        let mut bodies = Bodies::new(&generation, 0);
        for i in 0..10_000u32 {
            bodies.push(&tags, b"a clear over everything");
            bodies.push(&[Tag(i % 400)], b"a set");
        }
        let given = 10_000 * (b"a clear over everything".len() + b"a set".len());
        for body in bodies.finish() {
            // The head of a run takes about eight bytes, however many tags it has. Written out, the tags took 4 MB.
            assert!(
                body.len() < given + 20_000 * 10,
                "{} of {given}",
                body.len()
            );
        }
    }
}
