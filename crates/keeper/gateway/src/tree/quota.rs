//! Quotas: how many nodes, and how many bytes of data, a node and all nodes below it may have. A quota of `/a` is the
//! node `/zookeeper/quota/a/zookeeper_limits`, as in ZooKeeper.
//!
//! What is used of a quota is kept in rows that each transaction adds to, if it changes anything there. So nobody has
//! to count, and transactions of several gateways do not conflict. What is there when the quota is made is counted
//! afterwards, piece by piece in the order of the nodes' rows ([`Counted`]). A change adds to the rows only where it
//! was counted already. All gateways know how far that is: they have the quotas in memory, and no transaction commits
//! that does not know the newest of them ([`Lock::Quotas`](super::rows::Lock::Quotas)).

use super::node::{Data, Node};
use crate::paths;
use crate::wire::Text;
use bytes::{Buf, BufMut};
use plinth_core::key::KeyRange;
use std::collections::BTreeMap;
use std::rc::Rc;

/// So near to a hard limit, whoever adds something relies on nobody else having added anything. All batches that a
/// gateway may have under way add less.
const NEAR: Used = Used {
    nodes: 10_000,
    bytes: 64 << 20,
};

/// Nodes, and bytes of their data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Used {
    pub nodes: i64,
    pub bytes: i64,
}

impl Used {
    /// What the node itself uses, if it is there.
    pub fn of(node: Option<&Node>) -> Used {
        node.map_or(Used::default(), |node| Used {
            nodes: 1,
            bytes: node.data.len() as i64,
        })
    }

    pub fn plus(self, other: Used) -> Used {
        Used {
            nodes: self.nodes.wrapping_add(other.nodes),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    pub fn minus(self, other: Used) -> Used {
        Used {
            nodes: self.nodes.wrapping_sub(other.nodes),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}

/// The limits of a quota; -1 is none. A hard limit stands for the soft one of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub nodes: i64,
    pub bytes: i64,
    pub nodes_hard: i64,
    pub bytes_hard: i64,
}

impl Limits {
    const NONE: Limits = Limits {
        nodes: -1,
        bytes: -1,
        nodes_hard: -1,
        bytes_hard: -1,
    };

    /// As ZooKeeper's clients write them: `count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=7`. What cannot be read
    /// limits nothing.
    pub fn parse(text: &[u8]) -> Limits {
        let mut limits = Limits::NONE;
        let text = String::from_utf8_lossy(text);
        for pair in text.split([',', ';']) {
            let mut parts = pair.split('=');
            let (name, value) = (parts.next(), parts.next());
            let Some(value) = value.and_then(|value| value.parse().ok()) else {
                continue;
            };
            match name {
                Some("count") => limits.nodes = value,
                Some("bytes") => limits.bytes = value,
                Some("countHardLimit") => limits.nodes_hard = value,
                Some("byteHardLimit") => limits.bytes_hard = value,
                _ => {}
            }
        }
        limits
    }

    fn of_node(node: &Node) -> Limits {
        match &node.data {
            Data::Here(text) => Limits::parse(text),
            Data::None | Data::Unread(_) | Data::Damaged(_) => Limits::NONE,
        }
    }

    /// The limit that counts, and whether it is hard.
    pub fn of_nodes(&self) -> Option<(i64, bool)> {
        Self::stronger(self.nodes, self.nodes_hard)
    }

    pub fn of_bytes(&self) -> Option<(i64, bool)> {
        Self::stronger(self.bytes, self.bytes_hard)
    }

    fn stronger(soft: i64, hard: i64) -> Option<(i64, bool)> {
        match (soft, hard) {
            (_, hard) if hard > -1 => Some((hard, true)),
            (soft, _) if soft > -1 => Some((soft, false)),
            _ => None,
        }
    }
}

/// How far the nodes of a quota are counted, in the order of their rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counted {
    Nothing,
    /// All nodes up to this depth.
    Depth(u16),
    /// Through the node with this path.
    Through(Text),
    All,
}

impl Counted {
    pub fn has(&self, path: &str) -> bool {
        let depth = paths::depth(path);
        match self {
            Counted::Nothing => false,
            Counted::Depth(last) => depth <= usize::from(*last),
            Counted::Through(last) => (depth, path) <= (paths::depth(last), last.as_str()),
            Counted::All => true,
        }
    }
}

/// A quota, as its row has it: `nodes: 8 | bytes: 8 | hard nodes: 8 | hard bytes: 8 | counted: 1 | depth: 2 or path`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota {
    pub limits: Limits,
    pub counted: Counted,
}

const COUNTED_NOTHING: u8 = 0;
const COUNTED_DEPTH: u8 = 1;
const COUNTED_THROUGH: u8 = 2;
const COUNTED_ALL: u8 = 3;

impl Quota {
    pub fn to_row(&self) -> Vec<u8> {
        let limits = &self.limits;
        let mut row = Vec::with_capacity(64);
        for limit in [
            limits.nodes,
            limits.bytes,
            limits.nodes_hard,
            limits.bytes_hard,
        ] {
            row.put_i64(limit);
        }
        match &self.counted {
            Counted::Nothing => row.put_u8(COUNTED_NOTHING),
            Counted::Depth(depth) => {
                row.put_u8(COUNTED_DEPTH);
                row.put_u16(*depth);
            }
            Counted::Through(path) => {
                row.put_u8(COUNTED_THROUGH);
                row.put_slice(path.as_bytes());
            }
            Counted::All => row.put_u8(COUNTED_ALL),
        }
        row
    }

    /// `None` if the row is damaged.
    pub fn from_row(mut row: &[u8]) -> Option<Quota> {
        let limits = Limits {
            nodes: row.try_get_i64().ok()?,
            bytes: row.try_get_i64().ok()?,
            nodes_hard: row.try_get_i64().ok()?,
            bytes_hard: row.try_get_i64().ok()?,
        };
        let counted = match (row.try_get_u8().ok()?, row) {
            (COUNTED_NOTHING, []) => Counted::Nothing,
            (COUNTED_DEPTH, [high, low]) => {
                let depth = u16::from_be_bytes([*high, *low]);
                (usize::from(depth) <= paths::DEPTH_MAX).then_some(Counted::Depth(depth))?
            }
            (COUNTED_THROUGH, path) => {
                let path = std::str::from_utf8(path).ok()?;
                paths::is_valid(path).then(|| Counted::Through(path.into()))?
            }
            (COUNTED_ALL, []) => Counted::All,
            _ => return None,
        };
        Some(Quota { limits, counted })
    }
}

/// A quota, and what is used of it, as far as it is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    pub quota: Quota,
    pub used: Used,
}

/// All quotas of a tree, by the paths that they limit.
pub type Quotas = BTreeMap<Text, Watched>;

/// The path that is limited by the node of limits at `path`. The root has no quota, as in ZooKeeper.
pub fn limited(path: &str) -> Option<&str> {
    let of = path.strip_prefix("/zookeeper/quota/")?;
    let of = of.strip_suffix("/zookeeper_limits")?;
    path.get("/zookeeper/quota".len()..)
        .map(|rest| &rest[..=of.len()])
}

/// The node of the limits of `path`.
pub fn limits_path(path: &str) -> Text {
    format!("/zookeeper/quota{path}/zookeeper_limits").into()
}

/// The path itself and all above it but the root, the longest first.
fn upward(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| paths::parent(path)).filter(|path| path.len() > 1)
}

/// A piece of a quota's nodes, as the store has it at the version of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub from: Counted,
    pub to: Counted,
    pub used: Used,
    /// The rows that were looked at.
    pub ranges: Vec<KeyRange>,
}

/// More than a limit allows, or nearly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exceeded {
    pub quota: Text,
    /// `nodes` or `bytes`.
    pub what: &'static str,
    pub would_be: i64,
    pub limit: i64,
    pub is_hard: bool,
}

/// What a limit says to an operation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Verdict {
    /// The answer depends on what others have added: to this quota.
    pub relies_on: Option<Text>,
    pub exceeded: Vec<Exceeded>,
}

#[derive(Clone, Debug)]
struct Drafted {
    watched: Watched,
    /// It was made by the plan itself.
    is_new: bool,
}

/// What the operations of a plan do to quotas.
#[derive(Clone, Default)]
pub struct Draft {
    known: Rc<Quotas>,
    /// Quotas that were made, changed or counted, and removed ones.
    changed: BTreeMap<Text, Option<Drafted>>,
    /// What operations have added so far, counted or not.
    added: BTreeMap<Text, Used>,
    /// What was found by counting.
    found: BTreeMap<Text, Used>,
    /// Rows that were counted: nobody else may have changed them.
    pub ranges: Vec<KeyRange>,
}

/// What a transaction writes about a quota.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuotaChange {
    /// It is there with nothing counted, whatever was there before.
    Made(Quota),
    /// Limits, or how far it is counted.
    Set(Quota),
    Removed,
    Added(Used),
}

impl Draft {
    pub fn new(known: Rc<Quotas>) -> Draft {
        Draft {
            known,
            ..Draft::default()
        }
    }

    /// There is nothing to look after.
    pub fn is_idle(&self) -> bool {
        self.known.is_empty() && self.changed.is_empty()
    }

    /// The quota of exactly this path, as the operations so far have left it. Of its use, what other operations have
    /// added is missing.
    pub fn get(&self, path: &str) -> Option<&Watched> {
        match self.changed.get(path) {
            Some(drafted) => drafted.as_ref().map(|drafted| &drafted.watched),
            None => self.known.get(path),
        }
    }

    /// Quotas of the path, and of those above it; the nearest first.
    fn above<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a Watched)> {
        upward(path).filter_map(|path| Some((path, self.get(path)?)))
    }

    /// True if a part of the tree with this node is being counted.
    pub fn is_counted_soon(&self, path: &str) -> bool {
        let mut above = self.above(path);
        !self.is_idle() && above.any(|(_, watched)| watched.quota.counted != Counted::All)
    }

    /// Notes that a node has changed.
    pub fn note(&mut self, path: &str, before: Option<&Node>, after: Option<&Node>) {
        if let Some(of) = limited(path) {
            self.limit(of, after.map(Limits::of_node));
        }
        if self.is_idle() {
            return;
        }
        let more = Used::of(after).minus(Used::of(before));
        if more == Used::default() {
            return;
        }
        let above: Vec<Text> = self.above(path).map(|(path, _)| path.into()).collect();
        for path in above {
            let added = self.added.entry(path).or_default();
            *added = added.plus(more);
        }
    }

    fn limit(&mut self, path: &str, limits: Option<Limits>) {
        let is_new = match self.changed.get(path) {
            Some(drafted) => drafted.as_ref().is_none_or(|drafted| drafted.is_new),
            None => !self.known.contains_key(path),
        };
        let counted = self
            .get(path)
            .map(|watched| (watched.quota.counted.clone(), watched.used));
        let (counted, used) = counted.unwrap_or((Counted::Nothing, Used::default()));
        let drafted = limits.map(|limits| Drafted {
            watched: Watched {
                quota: Quota { limits, counted },
                used,
            },
            is_new,
        });
        if drafted.is_none() {
            self.found.remove(path);
            self.added.remove(path);
        }
        self.changed.insert(path.into(), drafted);
    }

    /// Notes a piece that was counted; false if it is not the next one of the quota.
    pub fn count(&mut self, path: &str, limits: &Node, piece: &Piece) -> bool {
        if self.get(path).is_none() {
            // One of a tree that is older than its counts, or that was imported.
            self.limit(path, Some(Limits::of_node(limits)));
        }
        let is_new = self.is_made(path);
        let Some(watched) = self.get(path).filter(|w| w.quota.counted == piece.from) else {
            return false;
        };
        let mut watched = watched.clone();
        watched.quota.counted = piece.to.clone();
        watched.used = watched.used.plus(piece.used);
        let found = self.found.entry(path.into()).or_default();
        *found = found.plus(piece.used);
        self.ranges.extend(piece.ranges.iter().cloned());
        let drafted = Drafted { watched, is_new };
        self.changed.insert(path.into(), Some(drafted));
        true
    }

    /// The plan itself makes the quota.
    fn is_made(&self, path: &str) -> bool {
        let drafted = self.changed.get(path).and_then(|drafted| drafted.as_ref());
        drafted.is_some_and(|drafted| drafted.is_new)
    }

    /// What the nearest quota says to a change that adds `more` at `path`. One that is not yet counted says nothing.
    pub fn check(&self, path: &str, more: Used) -> Verdict {
        let mut verdict = Verdict::default();
        if self.is_idle() {
            return verdict;
        }
        let Some((quota, watched)) = self.above(path).next() else {
            return verdict;
        };
        if watched.quota.counted != Counted::All {
            return verdict;
        }
        let added = self.added.get(quota).copied().unwrap_or_default();
        let would_be = watched.used.plus(added).plus(more);
        let limits = &watched.quota.limits;
        for (what, limit, more, would_be, near) in [
            (
                "nodes",
                limits.of_nodes(),
                more.nodes,
                would_be.nodes,
                NEAR.nodes,
            ),
            (
                "bytes",
                limits.of_bytes(),
                more.bytes,
                would_be.bytes,
                NEAR.bytes,
            ),
        ] {
            // ZooKeeper looks at the limit of what changes, also if it becomes less.
            let Some((limit, is_hard)) = limit.filter(|_| more != 0) else {
                continue;
            };
            if is_hard && would_be > limit.saturating_sub(near) {
                verdict.relies_on = Some(quota.into());
            }
            if would_be > limit {
                verdict.exceeded.push(Exceeded {
                    quota: quota.into(),
                    what,
                    would_be,
                    limit,
                    is_hard,
                });
            }
        }
        verdict
    }

    /// What is to be written, when all operations are executed. `touched` are all nodes that they have changed, with
    /// what was and what is.
    pub fn changes<'a>(
        &self,
        touched: impl Iterator<Item = (&'a Text, Option<&'a Node>, Option<&'a Node>)>,
    ) -> Vec<(Text, QuotaChange)> {
        let mut changes = Vec::new();
        if self.is_idle() {
            return changes;
        }
        for (path, drafted) in &self.changed {
            let change = match drafted {
                Some(drafted) if drafted.is_new => QuotaChange::Made(drafted.watched.quota.clone()),
                Some(drafted) => QuotaChange::Set(drafted.watched.quota.clone()),
                None if self.known.contains_key(path) => QuotaChange::Removed,
                None => continue,
            };
            changes.push((path.clone(), change));
        }
        let mut sums: BTreeMap<&str, Used> = BTreeMap::new();
        for (path, used) in &self.found {
            sums.insert(path, *used);
        }
        for (path, before, after) in touched {
            let more = Used::of(after).minus(Used::of(before));
            let above = self.above(path);
            for (quota, _) in above.filter(|(_, watched)| watched.quota.counted.has(path)) {
                let sum = sums.entry(quota).or_default();
                *sum = sum.plus(more);
            }
        }
        sums.retain(|_, sum| *sum != Used::default());
        changes.extend(
            sums.into_iter()
                .map(|(path, sum)| (path.into(), QuotaChange::Added(sum))),
        );
        changes
    }
}

/// Applies a change to what a gateway knows of the quotas.
pub fn apply(quotas: &mut Quotas, path: &Text, change: &QuotaChange) {
    match change {
        QuotaChange::Made(quota) => {
            let watched = Watched {
                quota: quota.clone(),
                used: Used::default(),
            };
            quotas.insert(path.clone(), watched);
        }
        QuotaChange::Set(quota) => {
            if let Some(watched) = quotas.get_mut(path) {
                watched.quota = quota.clone();
            }
        }
        QuotaChange::Removed => {
            quotas.remove(path);
        }
        QuotaChange::Added(more) => {
            if let Some(watched) = quotas.get_mut(path) {
                watched.used = watched.used.plus(*more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(counted: Counted) -> Watched {
        Watched {
            quota: Quota {
                limits: Limits::NONE,
                counted,
            },
            used: Used::default(),
        }
    }

    #[test]
    fn a_change_below_a_quota_is_in_the_way_of_whoever_counts_it_until_all_is_counted() {
        let mut quotas = Quotas::new();
        quotas.insert("/done".into(), quota(Counted::All));
        for counted in [
            Counted::Nothing,
            Counted::Depth(2),
            Counted::Through("/new/a".into()),
        ] {
            quotas.insert("/new".into(), quota(counted));
            let mut draft = Draft::new(Rc::new(quotas.clone()));
            for path in ["/new", "/new/a", "/new/a/b"] {
                assert!(draft.is_counted_soon(path), "{path}");
            }
            for path in ["/", "/done", "/done/a", "/newer", "/other/new"] {
                assert!(!draft.is_counted_soon(path), "{path}");
            }
            // One that the same transaction removes is counted by nobody.
            draft.note("/zookeeper/quota/new/zookeeper_limits", None, None);
            assert!(!draft.is_counted_soon("/new/a"));
        }
    }
}
