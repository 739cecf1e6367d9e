//! The nodes that a plan changes.

use super::node::{Counts, Lifetime, Node};
use crate::wire::Text;
use foldhash::fast::FixedState;
use std::rc::Rc;

/// A node that the plan changes.
#[derive(Clone)]
pub struct Touched {
    pub before: Option<Rc<Node>>,
    pub after: Option<Node>,
    /// It was deleted by the plan at some time: what there is now is another node.
    pub is_replaced: bool,
    /// Of its path, for its locks.
    pub hash: u64,
}

/// Which rows of a node change. What is written and what is locked both follow from it, so that no operation can write
/// a row without its locks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rewritten {
    /// There is a node now and was none, or the other way round, or it is another node. Then its row changes, too.
    pub existence: bool,
    /// The node's own row, which holds its access list, its version and short data, is set or cleared.
    pub row: bool,
    /// The data.
    pub data: bool,
    /// The access list.
    pub acl: bool,
    /// The list of children.
    pub children: bool,
}

impl Touched {
    /// The node whose rows stay where they are, unless they differ.
    pub fn kept(&self) -> Option<&Node> {
        let before = self.before.as_deref();
        before.filter(|_| !self.is_replaced && self.after.is_some())
    }

    pub fn rewritten(&self) -> Rewritten {
        let (Some(before), Some(after)) = (self.kept(), &self.after) else {
            let existence = self.before.is_some() || self.after.is_some();
            return Rewritten {
                existence,
                row: existence,
                data: existence,
                acl: existence,
                children: self.after.as_ref().is_some_and(has_had_children),
            };
        };
        let (data, acl) = (
            before.mzxid != after.mzxid,
            before.aversion != after.aversion,
        );
        Rewritten {
            existence: false,
            row: data || acl,
            data,
            acl,
            children: (before.counts, before.pzxid) != (after.counts, after.pzxid),
        }
    }

    /// The session among whose ephemeral nodes it is new.
    pub fn new_ephemeral_of(&self) -> Option<i64> {
        let session = |node: &Node| match node.lifetime {
            Lifetime::Ephemeral(session) => Some(session),
            _ => None,
        };
        let before = self.before.as_deref().and_then(session);
        let after = self.after.as_ref().and_then(session);
        after.filter(|_| before != after)
    }
}

/// It may have none now.
pub fn has_had_children(node: &Node) -> bool {
    node.counts != Counts::default() || node.pzxid != node.czxid
}

#[expect(
    clippy::disallowed_types,
    reason = "the hasher is given, and no order of iteration is seen"
)]
type Map<K, V> = std::collections::HashMap<K, V, FixedState>;

/// See the module. In the order in which they were first changed.
pub struct TouchedNodes {
    places: Map<Text, usize>,
    /// `None` where a change was taken back.
    nodes: Vec<(Text, Option<Touched>)>,
}

impl TouchedNodes {
    /// Clients choose the paths: nobody should know which of them collide.
    pub fn new(seed: u64) -> TouchedNodes {
        TouchedNodes {
            places: Map::with_hasher(FixedState::with_seed(seed)),
            nodes: Vec::new(),
        }
    }

    pub fn get(&self, path: &str) -> Option<&Touched> {
        let place = self.places.get(path)?;
        self.nodes[*place].1.as_ref()
    }

    pub fn get_mut(&mut self, path: &str) -> Option<&mut Touched> {
        let place = self.places.get(path)?;
        self.nodes[*place].1.as_mut()
    }

    pub fn insert(&mut self, path: Text, touched: Touched) {
        match self.places.get(&*path) {
            Some(place) => self.nodes[*place].1 = Some(touched),
            None => {
                self.places.insert(path.clone(), self.nodes.len());
                self.nodes.push((path, Some(touched)));
            }
        }
    }

    pub fn remove(&mut self, path: &str) {
        if let Some(place) = self.places.get(path) {
            self.nodes[*place].1 = None;
        }
    }

    /// What the nodes become.
    pub fn afters_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        let touched = self
            .nodes
            .iter_mut()
            .filter_map(|(_, touched)| touched.as_mut());
        touched.filter_map(|touched| touched.after.as_mut())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Touched)> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|(path, touched)| Some((path, touched.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(is_replaced: bool) -> Touched {
        Touched {
            before: None,
            after: None,
            is_replaced,
            hash: 0,
        }
    }

    #[test]
    fn nodes_come_in_the_order_of_their_first_change_and_those_taken_back_not_at_all() {
        let mut nodes = TouchedNodes::new(1);
        for path in ["/b", "/a", "/c"] {
            nodes.insert(path.into(), touched(false));
        }
        nodes.insert("/a".into(), touched(true));
        nodes.remove("/b");
        nodes.remove("/nobody");
        let seen = |nodes: &TouchedNodes| -> Vec<(String, bool)> {
            let all = nodes.iter();
            all.map(|(path, touched)| (path.to_string(), touched.is_replaced))
                .collect()
        };
        assert_eq!(seen(&nodes), [("/a".into(), true), ("/c".into(), false)]);
        assert!(nodes.get("/b").is_none() && nodes.get_mut("/nobody").is_none());
        nodes.insert("/b".into(), touched(true));
        assert_eq!(seen(&nodes)[0], ("/b".into(), true));
        assert!(nodes.get("/b").is_some());
    }
}
