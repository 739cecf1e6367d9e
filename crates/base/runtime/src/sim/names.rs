//! Names of hosts, and machines that change their addresses. Nothing keeps the two in step: a name may stand for a
//! former address, for the address of another machine, or for none.

use super::World;
use super::ids::MachineId;
use crate::random;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;

/// How long it takes to resolve a name.
const RESOLVE_NS: Range<u64> = 50_000..5_000_000;

pub(super) type Names = BTreeMap<String, IpAddr>;

impl World {
    /// Lets a name stand for an address, or for none.
    pub(super) fn name(&self, host: &str, ip: Option<IpAddr>) {
        let mut names = self.names.borrow_mut();
        match ip {
            Some(ip) => drop(names.insert(host.to_owned(), ip)),
            None => drop(names.remove(host)),
        }
    }

    pub async fn resolve(self: &Rc<Self>, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.sleep_ns(random::range(RESOLVE_NS)).await;
        let found = self.names.borrow().get(host).copied();
        let ip = found.ok_or(io::ErrorKind::NotFound)?;
        Ok(vec![SocketAddr::new(ip, port)])
    }

    /// Gives a machine, none of whose processes lives, another address.
    pub(super) fn move_machine(&self, machine: MachineId, ip: IpAddr) {
        let mut processes = self.processes.borrow_mut();
        for process in processes.iter_mut() {
            let is_its = process.machine == machine;
            assert!(
                is_its || process.address.ip() != ip,
                "the address {ip} belongs to machine {}",
                process.machine.0
            );
            assert!(
                !is_its || !process.is_alive,
                "machine {} moves while a process runs there",
                machine.0
            );
            if is_its {
                process.address.set_ip(ip);
            }
        }
    }
}
