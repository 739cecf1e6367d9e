//! Objects that somebody has asked for, and that are not in the memory of this machine yet, which is their primary.

use plinth_farm_fabric::Machine;
use plinth_farm_memory::Pointer;
use plinth_runtime::sync::Notify;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many objects are read from the disk at a time, because somebody has asked for them.
const FETCHES_MAX: usize = 64;

#[derive(Default)]
pub struct Wanted {
    /// Also those that are being read: by whom.
    all: RefCell<BTreeMap<u64, BTreeSet<Machine>>>,
    next: RefCell<VecDeque<Pointer>>,
    bell: Notify,
    /// Something has come that somebody here has asked for.
    come: Notify,
}

impl Wanted {
    /// The configuration has ended.
    pub fn clear(&self) {
        self.all.borrow_mut().clear();
        self.next.borrow_mut().clear();
        self.has_come();
    }

    pub fn has_come(&self) {
        self.come.notify_all();
    }

    /// Waits for anything that somebody here has asked for, from this call on.
    pub fn arrival(&self) -> impl Future<Output = ()> {
        self.come.notified()
    }

    /// Nothing happens if too many are wanted.
    pub fn add(&self, at: Pointer, by: Machine) {
        let mut all = self.all.borrow_mut();
        if let Some(askers) = all.get_mut(&at.bits()) {
            askers.insert(by);
        } else if all.len() < FETCHES_MAX {
            all.insert(at.bits(), BTreeSet::from([by]));
            self.next.borrow_mut().push_back(at);
            self.bell.notify_one();
        }
    }

    /// The next one that is to be read.
    pub async fn next(&self) -> Pointer {
        loop {
            if let Some(at) = self.next.borrow_mut().pop_front() {
                return at;
            }
            self.bell.notified().await;
        }
    }

    /// It was read. Returns who has asked for it.
    pub fn take(&self, at: Pointer) -> BTreeSet<Machine> {
        self.all.borrow_mut().remove(&at.bits()).unwrap_or_default()
    }
}
