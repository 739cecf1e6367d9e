//! Processes of one host: the memory of each is mapped by the others. No operation is a system call, or needs the
//! other's process.

use crate::address::{Address, Error, Machine};
use crate::fabric::Fabric;
use crate::host::Host;
use crate::local::{Local, attach};
use crate::ring::Tail;
use std::cell::RefCell;
use std::rc::Rc;

struct Link {
    host: Host,
    tail: Tail,
}

/// The backend. A machine is one process, and one thread of it.
pub struct Shared {
    local: Local,
    links: Vec<RefCell<Option<Rc<Link>>>>,
}

impl Shared {
    pub fn new(local: Local) -> Shared {
        let machines = local.host().layout().machines;
        Shared {
            local,
            links: (0..machines).map(|_| RefCell::default()).collect(),
        }
    }

    #[inline]
    fn with_link<T>(
        &self,
        machine: Machine,
        work: impl FnOnce(&Link) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let link = self
            .links
            .get(usize::from(machine.0))
            .ok_or(Error::Closed)?;
        work(link.borrow().as_ref().ok_or(Error::Unreachable)?)
    }
}

impl Fabric for Shared {
    fn local(&self) -> &Local {
        &self.local
    }

    async fn open(&self, machine: Machine) -> Result<(), Error> {
        let link = self
            .links
            .get(usize::from(machine.0))
            .ok_or(Error::Closed)?;
        if machine == self.local.machine() || link.borrow().is_some() {
            return Ok(());
        }
        let host = attach(self.local.directory(), machine).await;
        let host = host.map_err(|_| Error::Unreachable)?;
        // Two tasks may have asked. One tail is the only one.
        if link.borrow().is_none() {
            let tail = host.join(self.local.machine())?;
            *link.borrow_mut() = Some(Rc::new(Link { host, tail }));
        }
        Ok(())
    }

    async fn configure(&self, number: u64, members: &[Machine]) -> Result<(), Error> {
        self.local.configure(number, members).await?;
        for (link, machine) in self.links.iter().zip(0..) {
            if !self.local.is_member(Machine(machine)) {
                *link.borrow_mut() = None;
            }
        }
        Ok(())
    }

    #[inline]
    async fn read(&self, at: Address, into: &mut [u8]) -> Result<(), Error> {
        let who = self.local.asker(at.machine)?;
        if at.machine == self.local.machine() {
            return self.local.host().region(at.region)?.read(at.offset, into);
        }
        self.with_link(at.machine, |link| link.host.read(who, at, into))
    }

    #[inline]
    async fn write(&self, at: Address, from: &[u8]) -> Result<(), Error> {
        let who = self.local.asker(at.machine)?;
        if at.machine == self.local.machine() {
            return self.local.host().region(at.region)?.write(at.offset, from);
        }
        self.with_link(at.machine, |link| link.host.write(who, at, from))
    }

    #[inline]
    async fn compare_and_swap(&self, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        let who = self.local.asker(at.machine)?;
        if at.machine == self.local.machine() {
            let region = self.local.host().region(at.region)?;
            return region.compare_and_swap(at.offset, expected, new);
        }
        self.with_link(at.machine, |link| link.host.swap(who, at, expected, new))
    }

    #[inline]
    async fn send(&self, to: Machine, message: &[u8]) -> Result<(), Error> {
        let who = self.local.asker(to)?;
        if to == self.local.machine() {
            return self.local.send(message);
        }
        self.with_link(to, |link| link.host.append(who, &link.tail, message))
    }
}
