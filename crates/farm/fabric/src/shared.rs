//! Processes of one host: the memory of each is mapped by the others. No operation is a system call, or needs the
//! other's process.

use crate::address::{Address, Error, Machine};
use crate::fabric::Fabric;
use crate::host::Host;
use crate::local::{Local, attach, path};
use crate::memory::Memory;
use crate::ring::Tail;
use plinth_runtime::join_all;
use std::cell::RefCell;
use std::rc::Rc;

struct Link {
    host: Host,
    tail: Tail,
}

/// The backend. A machine is one thread: several may be threads of one process.
pub struct Shared {
    local: Rc<Local>,
    links: Vec<RefCell<Option<Link>>>,
}

impl Shared {
    pub fn new(local: impl Into<Rc<Local>>) -> Shared {
        let local = local.into();
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

    /// The region, if it is one of this machine's own.
    #[inline]
    fn own(&self, at: Address) -> Option<Result<&Memory, Error>> {
        let is_own = at.machine == self.local.machine();
        is_own.then(|| self.local.host().region(at.region))
    }

    // The operations, which never wait.

    #[inline]
    pub(crate) fn read_now(&self, at: Address, into: &mut [u8]) -> Result<(), Error> {
        let who = self.local.asker(at.machine)?;
        if let Some(own) = self.own(at) {
            return own?.read(at.offset, into);
        }
        self.with_link(at.machine, |link| link.host.read(who, at, into))
    }

    #[inline]
    pub(crate) fn write_now(&self, at: Address, from: &[u8]) -> Result<(), Error> {
        let who = self.local.asker(at.machine)?;
        if let Some(own) = self.own(at) {
            return own?.write(at.offset, from);
        }
        self.with_link(at.machine, |link| link.host.write(who, at, from))
    }

    #[inline]
    pub(crate) fn swap_now(&self, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        let who = self.local.asker(at.machine)?;
        if let Some(own) = self.own(at) {
            return own?.compare_and_swap(at.offset, expected, new);
        }
        self.with_link(at.machine, |link| link.host.swap(who, at, expected, new))
    }

    #[inline]
    pub(crate) fn send_now(&self, to: Machine, message: &[u8]) -> Result<(), Error> {
        let who = self.local.asker(to)?;
        if to == self.local.machine() {
            return self.local.send(message);
        }
        self.with_link(to, |link| link.host.append(who, &link.tail, message))
    }

    /// Ends the connection, if there is one.
    pub(crate) fn close(&self, machine: Machine) {
        if let Some(link) = self.links.get(usize::from(machine.0)) {
            link.take();
        }
    }

    /// Ends connections to machines that are no members, and to memories that were removed and made anew: what is
    /// mapped of those, nobody reads any more.
    pub(crate) async fn close_strangers(&self) {
        let machines = (0..self.links.len()).map(|number| Machine(number as u16));
        let strangers = machines.clone().filter(|m| !self.local.is_member(*m));
        strangers.for_each(|machine| self.close(machine));
        // All at once: who changes the configuration waits for this.
        let looks = machines.filter_map(|machine| {
            let mapping = self.with_link(machine, |link| Ok(link.host.mapping().clone()));
            let mapping = mapping.ok()?;
            let place = path(self.local.directory(), machine);
            Some(async move { (machine, mapping.is_at(&place).await.unwrap_or(false)) })
        });
        for (machine, is_there) in join_all(looks.collect::<Vec<_>>()).await {
            if !is_there {
                self.close(machine);
            }
        }
    }
}

impl Fabric for Shared {
    #[inline]
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
            *link.borrow_mut() = Some(Link { host, tail });
        }
        Ok(())
    }

    async fn configure(&self, number: u64, members: &[Machine]) -> Result<(), Error> {
        self.local.configure(number, members).await?;
        self.close_strangers().await;
        Ok(())
    }

    #[inline]
    async fn read(&self, at: Address, into: &mut [u8]) -> Result<(), Error> {
        self.read_now(at, into)
    }

    #[inline]
    async fn write(&self, at: Address, from: &[u8]) -> Result<(), Error> {
        self.write_now(at, from)
    }

    #[inline]
    async fn compare_and_swap(&self, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        self.swap_now(at, expected, new)
    }

    #[inline]
    async fn send(&self, to: Machine, message: &[u8]) -> Result<(), Error> {
        self.send_now(to, message)
    }
}
