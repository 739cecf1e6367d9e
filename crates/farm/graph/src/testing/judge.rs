//! Whether one graph, changed at write timestamps, explains what transactions saw.

use super::model::{Answer, Call, Model};
use std::collections::BTreeMap;

/// A graph can be long.
const WHAT_BYTES_MAX: usize = 3000;

/// What a transaction did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Entry {
    pub id: u64,
    pub read_at: u64,
    /// When it has committed, if it wrote.
    pub written_at: Option<u64>,
    pub steps: Vec<(Call, Answer)>,
}

/// The graph after each commit.
struct Versions(BTreeMap<u64, Model>);

impl Versions {
    fn below(&self, at: u64) -> &Model {
        self.0.range(..at.max(1)).next_back().expect("one at 0").1
    }

    fn up_to(&self, at: u64) -> &Model {
        self.0.range(..=at).next_back().expect("one at 0").1
    }
}

fn replayed(before: &Model, entry: &Entry, at: u64) -> Result<Model, String> {
    let mut model = before.clone();
    for (call, seen) in &entry.steps {
        let earlier = model.clone();
        let expected = model.apply(call, seen);
        if expected != *seen {
            let mut earlier = earlier;
            for values in earlier.vertices.values_mut() {
                values.remove("note");
            }
            let Entry {
                id,
                read_at,
                written_at,
                ..
            } = entry;
            let mut what = format!(
                "transaction {id}, which read at {read_at} and wrote at {written_at:?}: {call:?} answered {seen:?} at \
                 {at}, where the model says {expected:?}; it has {earlier:?}"
            );
            what.truncate(what.floor_char_boundary(WHAT_BYTES_MAX));
            return Err(what);
        }
    }
    Ok(model)
}

/// Judges all transactions, also those that were aborted, and returns how many answers were right, and the graph in
/// the end. Error: the first answer that the model does not explain.
pub fn judge(entries: &[Entry]) -> Result<(usize, Model), String> {
    let mut committed: Vec<(u64, &Entry)> = entries
        .iter()
        .filter_map(|entry| Some((entry.written_at?, entry)))
        .collect();
    committed.sort_by_key(|(at, entry)| (*at, entry.id));
    let mut versions = Versions(BTreeMap::from([(0, Model::default())]));
    for (at, entry) in committed {
        let before = versions.below(at);
        let after = replayed(before, entry, at)?;
        // Others may have committed with the same timestamp: what they wrote is not this one's.
        let mut newest = versions.up_to(at).clone();
        newest.take_changes(before, &after);
        versions.0.insert(at, newest);
    }
    let mut judged = 0;
    for entry in entries {
        replayed(versions.up_to(entry.read_at), entry, entry.read_at)?;
        judged += entry.steps.len();
    }
    Ok((judged, versions.up_to(u64::MAX).clone()))
}
