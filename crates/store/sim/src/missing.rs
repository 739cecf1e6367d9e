//! What a simulated cluster has lost for good, or been told to do without.

use plinth_runtime::sim::MachineId;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// Machines and processes that can hold no data any more.
#[derive(Clone, Debug, Default)]
pub struct Lost(pub(super) Rc<RefCell<Missing>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Missing {
    /// Lost for good, with their disks.
    pub machines: BTreeSet<MachineId>,
    pub stateless: BTreeSet<SocketAddr>,
    /// Processes that have lost their coordinator registers. They may serve as coordinators again, but need not.
    pub forgetful: BTreeSet<SocketAddr>,
}

impl Missing {
    pub fn is_no_coordinator(&self, address: &SocketAddr) -> bool {
        self.forgetful.contains(address) || self.machines.contains(&machine_at(address))
    }
}

impl Lost {
    pub fn add(&self, machine: MachineId) {
        self.0.borrow_mut().machines.insert(machine);
    }
    pub fn has(&self, machine: MachineId) -> bool {
        self.0.borrow().machines.contains(&machine)
    }
    pub(super) fn with(&self, machine: MachineId) -> Missing {
        let mut missing = self.0.borrow().clone();
        missing.machines.insert(machine);
        missing
    }

    /// True if these coordinators have a majority that has lost nothing. Every requested set must have one.
    pub fn can_coordinate(&self, set: &[SocketAddr]) -> bool {
        let missing = self.0.borrow();
        let left = set.iter().filter(|a| !missing.is_no_coordinator(a)).count();
        2 * left > set.len()
    }

    pub fn holds_data_again(&self, process: SocketAddr) {
        self.0.borrow_mut().stateless.remove(&process);
    }
}

/// The machine at an address. The tester's machine has number 0.
pub fn machine_at(address: &SocketAddr) -> MachineId {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [_, _, high, low] = ip.octets();
            MachineId(u32::from(u16::from_be_bytes([high, low])))
        }
        IpAddr::V6(_) => MachineId::TESTER,
    }
}
