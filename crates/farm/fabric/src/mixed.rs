//! Some machines on this host, others elsewhere: to each the shortest way.

use crate::address::{Address, Error, Machine};
use crate::fabric::Fabric;
use crate::local::Local;
use crate::shared::Shared;
use crate::streamed::Streamed;
use plinth_rpc::Credentials;
use plinth_runtime::Duration;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Where a machine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On this host: its memory lies in the directory of this machine's.
    Here,
    /// Its memory is served there.
    At(SocketAddr),
}

/// The backend of a cluster: [`Shared`] for the machines of this host, which may be processes or threads of one, and
/// [`Streamed`] for all others. Who has machines elsewhere also serves its memory to them: [`serve`](crate::serve).
pub struct Mixed {
    shared: Shared,
    streamed: Streamed,
    is_here: Vec<Cell<bool>>,
}

impl Mixed {
    /// Nobody but this machine has a place yet. `limit` is that of [`Streamed::new`].
    pub fn new(local: Local, limit: Duration) -> Mixed {
        let local = Rc::new(local);
        let machines = local.host().layout().machines;
        let is_here = (0..machines).map(|machine| machine == usize::from(local.machine().0));
        Mixed {
            is_here: is_here.map(Cell::new).collect(),
            shared: Shared::new(local.clone()),
            streamed: Streamed::without_addresses(local, limit),
        }
    }

    /// Proves these keys to machines elsewhere, and wants them to prove theirs.
    pub fn with(self, credentials: &Credentials) -> Mixed {
        Mixed {
            streamed: self.streamed.with(credentials),
            ..self
        }
    }

    /// Says where another machine is. If that is news, the connection to it ends.
    ///
    /// Nothing here is guessed. A file of a machine that has gone to another host looks like one of a machine that
    /// is here, and takes in what nobody will read. So the place comes from who knows the members, and it changes
    /// only with a configuration.
    pub fn set_place(&self, machine: Machine, place: Place) {
        let Some(is_here) = self.is_here.get(usize::from(machine.0)) else {
            return;
        };
        if machine == self.local().machine() {
            return;
        }
        let address = match place {
            Place::Here => None,
            Place::At(address) => Some(address),
        };
        if !is_here.replace(address.is_none()) {
            self.streamed.set_address(machine, address);
        } else if address.is_some() {
            self.shared.close(machine);
            self.streamed.set_address(machine, address);
        }
    }

    #[inline]
    fn is_here(&self, machine: Machine) -> bool {
        let is_here = self.is_here.get(usize::from(machine.0));
        is_here.is_some_and(Cell::get)
    }
}

impl Fabric for Mixed {
    #[inline]
    fn local(&self) -> &Local {
        self.shared.local()
    }

    async fn open(&self, machine: Machine) -> Result<(), Error> {
        match self.is_here(machine) {
            true => self.shared.open(machine).await,
            false => self.streamed.open(machine).await,
        }
    }

    async fn configure(&self, number: u64, members: &[Machine]) -> Result<(), Error> {
        self.local().configure(number, members).await?;
        self.streamed.close_strangers();
        self.shared.close_strangers().await;
        Ok(())
    }

    #[inline]
    async fn read(&self, at: Address, into: &mut [u8]) -> Result<(), Error> {
        match self.is_here(at.machine) {
            true => self.shared.read_now(at, into),
            false => self.streamed.read(at, into).await,
        }
    }

    #[inline]
    async fn write(&self, at: Address, from: &[u8]) -> Result<(), Error> {
        match self.is_here(at.machine) {
            true => self.shared.write_now(at, from),
            false => self.streamed.write(at, from).await,
        }
    }

    #[inline]
    async fn compare_and_swap(&self, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        match self.is_here(at.machine) {
            true => self.shared.swap_now(at, expected, new),
            false => self.streamed.compare_and_swap(at, expected, new).await,
        }
    }

    #[inline]
    async fn send(&self, to: Machine, message: &[u8]) -> Result<(), Error> {
        match self.is_here(to) {
            true => self.shared.send_now(to, message),
            false => self.streamed.send(to, message).await,
        }
    }
}
