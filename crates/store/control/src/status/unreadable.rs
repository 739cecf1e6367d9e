//! Keys that no copy can read now: each server that should hold them is gone, or has a damaged block there.

use super::damage;
use super::workers::Workers;
use plinth_core::key::printable;
use plinth_core::system_keys::ShardRecord;
use plinth_core::{KeyRange, Uid};
use plinth_protocol::control::{DamagedPart, DamagedStorage};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Ranges that the document names.
const NAMED: usize = 16;

/// The ranges, in order. Neighbours are one.
pub fn find(
    shards: &[(KeyRange, ShardRecord)],
    workers: &Workers,
    hosted: &BTreeSet<Uid>,
) -> Vec<KeyRange> {
    let damaged: BTreeMap<Uid, &DamagedStorage> = damage::all(workers)
        .map(|damaged| (damaged.id, damaged))
        .collect();
    // Nearly all shards have such a copy: no more is looked at then.
    let is_whole = |id: &Uid| hosted.contains(id) && !damaged.contains_key(id);
    let mut found: Vec<KeyRange> = Vec::new();
    for (shard, record) in shards {
        if record.team.iter().any(is_whole) {
            continue;
        }
        let mut left = vec![shard.clone()];
        // Who is gone lacks all of it.
        for id in record.team.iter().filter(|id| hosted.contains(id)) {
            left = common(&left, &damaged[id].parts);
        }
        for range in left {
            match found.last_mut().filter(|last| last.end >= range.begin) {
                Some(last) => last.end = range.end.max(last.end.clone()),
                None => found.push(range),
            }
        }
    }
    found
}

/// What of the ranges is in damaged parts too, as far as it is known which keys these have.
fn common(ranges: &[KeyRange], parts: &[DamagedPart]) -> Vec<KeyRange> {
    let known = parts.iter().filter(|part| !part.end.is_empty());
    let mut parts: Vec<KeyRange> = known
        .map(|part| KeyRange::new(part.begin.clone(), part.end.clone()))
        .collect();
    parts.sort_by(|a, b| a.begin.cmp(&b.begin));
    let both = ranges
        .iter()
        .flat_map(|range| parts.iter().filter_map(|part| part.intersection(range)));
    both.filter(|range| !range.is_empty()).collect()
}

pub fn json(ranges: &[KeyRange]) -> Value {
    let named = ranges
        .iter()
        .take(NAMED)
        .map(|range| json!({"begin": printable(&range.begin), "end": printable(&range.end)}));
    json!({
        "ranges": named.collect::<Vec<_>>(),
        "more_ranges": ranges.len().saturating_sub(NAMED),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use plinth_protocol::control::ProcessClass;

    fn range(begin: &str, end: &str) -> KeyRange {
        KeyRange::new(begin.to_owned(), end.to_owned())
    }

    fn worker_with(id: u128, parts: &[(&str, &str)]) -> Workers {
        let mut worker = testing::worker(1, ProcessClass::Unset, "a");
        let parts = parts
            .iter()
            .map(|(begin, end)| DamagedPart::new(0, begin.as_bytes(), end.as_bytes()));
        worker.damaged = vec![DamagedStorage {
            id: Uid(id),
            file: "f".into(),
            parts: parts.collect(),
            more: 0,
        }];
        [(Uid(100 + id), worker)].into()
    }

    #[test]
    fn only_what_each_copy_lacks_is_told() {
        let shard = |begin, end, team: &[u128]| {
            let record = ShardRecord {
                team: team.iter().copied().map(Uid).collect(),
                destination: Vec::new(),
            };
            (range(begin, end), record)
        };
        let shards = [shard("", "m", &[1, 2]), shard("m", "z", &[2, 3])];
        let mut workers = worker_with(1, &[("k", "n"), ("a", "d")]);
        workers.extend(worker_with(2, &[("c", "e"), ("l", "p"), ("", "")]));
        let hosted = |ids: &[u128]| ids.iter().copied().map(Uid).collect::<BTreeSet<_>>();
        let both = find(&shards, &workers, &hosted(&[1, 2, 3]));
        assert_eq!(both, [range("c", "d"), range("l", "m")]);
        let without = find(&shards, &workers, &hosted(&[1, 2]));
        assert_eq!(
            without,
            [range("c", "d"), range("l", "p")],
            "the third server is gone"
        );
        assert_eq!(find(&shards, &workers, &hosted(&[])), [range("", "z")]);
        let healthy = find(&shards, &Workers::new(), &hosted(&[1, 2, 3]));
        assert_eq!(healthy, []);
        assert_eq!(json(&both)["ranges"][0], json!({"begin": "c", "end": "d"}));
    }
}
