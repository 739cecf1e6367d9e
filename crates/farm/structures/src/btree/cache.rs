//! Inner nodes that a machine keeps, for all transactions and trees. What is kept may be old, or never have been
//! committed: whoever goes by it checks fences, and reads the leaf in the transaction.

use super::node::Inner;
use plinth_core::hash::HashMap;
use plinth_farm_memory::Pointer;
use plinth_runtime::buggify;
use std::cell::RefCell;
use std::rc::Rc;

/// A node by its tree's root object and its own place.
type Place = (u64, u64);

struct Kept {
    place: Place,
    node: Rc<Inner>,
    /// Looked at since the hand passed.
    is_used: bool,
}

#[derive(Default)]
struct State {
    /// Index in `kept`.
    index: HashMap<Place, usize>,
    kept: Vec<Kept>,
    /// Where the search for the next one to go begins.
    hand: usize,
    bytes: usize,
    bytes_max: usize,
}

/// A bounded cache of inner nodes. Clones are the same cache.
#[derive(Clone)]
pub struct Cache(Rc<RefCell<State>>);

impl Cache {
    /// It holds nodes of about so many bytes.
    pub fn new(bytes_max: usize) -> Cache {
        Cache(Rc::new(RefCell::new(State {
            bytes_max,
            ..State::default()
        })))
    }

    /// Number of nodes in it.
    pub fn len(&self) -> usize {
        self.0.borrow().kept.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the nodes in it, about.
    pub fn bytes(&self) -> usize {
        self.0.borrow().bytes
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut state = self.0.borrow_mut();
        state.index.clear();
        state.kept.clear();
        state.bytes = 0;
    }

    pub(crate) fn get(&self, tree: Pointer, at: Pointer) -> Option<Rc<Inner>> {
        let mut state = self.0.borrow_mut();
        if buggify!() {
            state.evict();
        }
        let i = *state.index.get(&(tree.bits(), at.bits()))?;
        let kept = &mut state.kept[i];
        kept.is_used = true;
        Some(Rc::clone(&kept.node))
    }

    pub(crate) fn put(&self, tree: Pointer, at: Pointer, node: Rc<Inner>) {
        let place = (tree.bits(), at.bits());
        let mut state = self.0.borrow_mut();
        let bytes = node.footprint_bytes();
        if let Some(&i) = state.index.get(&place) {
            state.remove(i);
        }
        while state.bytes + bytes > state.bytes_max && !state.kept.is_empty() {
            state.evict();
        }
        if bytes > state.bytes_max {
            return;
        }
        let i = state.kept.len();
        state.index.insert(place, i);
        state.kept.push(Kept {
            place,
            node,
            is_used: false,
        });
        state.bytes += bytes;
        let (places, kept) = (state.index.len(), state.kept.len());
        assert!(
            places == kept && state.bytes <= state.bytes_max,
            "{kept} nodes are kept, with {places} places and {} bytes of {}",
            state.bytes,
            state.bytes_max
        );
    }

    /// Forgets a node that has led astray.
    pub(crate) fn forget(&self, tree: Pointer, at: Pointer) {
        let mut state = self.0.borrow_mut();
        if let Some(&i) = state.index.get(&(tree.bits(), at.bits())) {
            state.remove(i);
        }
    }

    /// Forgets one.
    #[cfg(test)]
    pub(crate) fn evict(&self) {
        self.0.borrow_mut().evict();
    }
}

impl State {
    /// Forgets one that was not looked at lately.
    fn evict(&mut self) {
        while !self.kept.is_empty() {
            self.hand = (self.hand + 1) % self.kept.len();
            if !std::mem::take(&mut self.kept[self.hand].is_used) {
                return self.remove(self.hand);
            }
        }
    }

    fn remove(&mut self, i: usize) {
        let gone = self.kept.swap_remove(i);
        let bytes = gone.node.footprint_bytes();
        assert!(
            bytes <= self.bytes,
            "a node of {bytes} bytes goes, of {} in all",
            self.bytes
        );
        self.bytes -= bytes;
        let place = self.index.remove(&gone.place);
        assert_eq!(place, Some(i), "the node at {:?}", gone.place);
        if let Some(moved) = self.kept.get(i) {
            self.index.insert(moved.place, i);
        }
    }
}
