//! What has happened.

use super::model::{Moment, Seen};
use super::stream::Entry;
use super::{Asked, Connection};
use crate::wire::Text;
use std::collections::BTreeMap;

/// What the clients have done and were told, and what the stream says.
pub struct History<'a> {
    pub asked: &'a [Asked],
    pub connections: &'a [Connection],
    pub entries: &'a [Entry],
}

/// The changes of the nodes, in order, and what each node was.
#[derive(Clone, Default)]
pub struct Past {
    pub seen: Vec<Seen>,
    pub moments: BTreeMap<Text, Vec<(i64, Moment)>>,
}

impl Past {
    /// What a node was, from `from` through `to`.
    pub fn moments(&self, path: &str, from: i64, to: i64) -> Vec<(i64, Moment)> {
        let all = self.moments.get(path).map_or(&[][..], |all| all);
        let first = all.iter().rposition(|(zxid, _)| *zxid <= from);
        let before = first.map_or((0, None), |first| all[first]);
        let later = all
            .iter()
            .filter(|(zxid, _)| (from + 1..=to).contains(zxid));
        [before].into_iter().chain(later.copied()).collect()
    }
}
