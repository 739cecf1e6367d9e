//! What is on the disks of machines, as their engines would have it: of each region, how many commits.

use crate::Replica;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// In a durable cluster, this machine has no data.
pub const SHELL: u16 = 3;

#[derive(Default)]
pub struct Disks {
    pub is_durable: Cell<bool>,
    /// Of each machine, what the master's time was when its life ended.
    pub newest: RefCell<BTreeMap<u16, u64>>,
    /// By machine and region.
    has: RefCell<BTreeMap<(u16, u16), u64>>,
    /// Of each region, what was reported.
    reported: RefCell<BTreeMap<u16, u64>>,
    /// Machines that do not come back.
    pub gone: RefCell<BTreeSet<u16>>,
    pub restores: Cell<u64>,
}

impl Disks {
    pub fn commits(&self) -> u64 {
        self.reported.borrow().values().sum()
    }

    fn commits_of(&self, region: u16) -> u64 {
        self.reported.borrow().get(&region).copied().unwrap_or(0)
    }

    pub fn lacks(&self, machine: u16, region: u16) -> bool {
        let has = self.has.borrow().get(&(machine, region)).copied();
        has.unwrap_or(0) != self.commits_of(region)
    }

    /// The machine has copied the region.
    pub fn copy(&self, machine: u16, region: u16) {
        let has = self.commits_of(region);
        self.has.borrow_mut().insert((machine, region), has);
    }

    pub fn commit(&self, replicas: &[Replica], region: u16) {
        *self.reported.borrow_mut().entry(region).or_default() += 1;
        for replica in replicas {
            let mut has = self.has.borrow_mut();
            *has.entry((replica.machine, region)).or_default() += 1;
        }
    }
}
