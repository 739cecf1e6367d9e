//! All backends as one type.

use plinth_farm_fabric::{Address, Error, Fabric, Local, Machine, Mixed, Shared, Streamed};
use plinth_runtime::Duration;
use std::net::SocketAddr;

pub enum Any {
    Shared(Shared),
    Streamed(Streamed),
    Mixed(Mixed),
}

impl Any {
    pub fn shared(local: Local) -> Any {
        Any::Shared(Shared::new(local))
    }

    pub fn streamed(local: Local, addresses: Vec<SocketAddr>) -> Any {
        Any::Streamed(Streamed::new(local, addresses, Duration::from_secs(5)))
    }
}

macro_rules! whichever {
    ($any:expr, $fabric:ident => $call:expr) => {
        match $any {
            Any::Shared($fabric) => $call,
            Any::Streamed($fabric) => $call,
            Any::Mixed($fabric) => $call,
        }
    };
}

impl Fabric for Any {
    fn local(&self) -> &Local {
        whichever!(self, fabric => fabric.local())
    }

    async fn open(&self, machine: Machine) -> Result<(), Error> {
        whichever!(self, fabric => fabric.open(machine).await)
    }

    async fn configure(&self, number: u64, members: &[Machine]) -> Result<(), Error> {
        whichever!(self, fabric => fabric.configure(number, members).await)
    }

    async fn read(&self, at: Address, into: &mut [u8]) -> Result<(), Error> {
        whichever!(self, fabric => fabric.read(at, into).await)
    }

    async fn write(&self, at: Address, from: &[u8]) -> Result<(), Error> {
        whichever!(self, fabric => fabric.write(at, from).await)
    }

    async fn compare_and_swap(&self, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        whichever!(self, fabric => fabric.compare_and_swap(at, expected, new).await)
    }

    async fn send(&self, to: Machine, message: &[u8]) -> Result<(), Error> {
        whichever!(self, fabric => fabric.send(to, message).await)
    }
}
