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

impl Fabric for Any {
    fn local(&self) -> &Local {
        match self {
            Any::Shared(fabric) => fabric.local(),
            Any::Streamed(fabric) => fabric.local(),
            Any::Mixed(fabric) => fabric.local(),
        }
    }

    async fn open(&self, machine: Machine) -> Result<(), Error> {
        match self {
            Any::Shared(fabric) => fabric.open(machine).await,
            Any::Streamed(fabric) => fabric.open(machine).await,
            Any::Mixed(fabric) => fabric.open(machine).await,
        }
    }

    async fn configure(&self, number: u64, members: &[Machine]) -> Result<(), Error> {
        match self {
            Any::Shared(fabric) => fabric.configure(number, members).await,
            Any::Streamed(fabric) => fabric.configure(number, members).await,
            Any::Mixed(fabric) => fabric.configure(number, members).await,
        }
    }

    async fn read(&self, at: Address, into: &mut [u8]) -> Result<(), Error> {
        match self {
            Any::Shared(fabric) => fabric.read(at, into).await,
            Any::Streamed(fabric) => fabric.read(at, into).await,
            Any::Mixed(fabric) => fabric.read(at, into).await,
        }
    }

    async fn write(&self, at: Address, from: &[u8]) -> Result<(), Error> {
        match self {
            Any::Shared(fabric) => fabric.write(at, from).await,
            Any::Streamed(fabric) => fabric.write(at, from).await,
            Any::Mixed(fabric) => fabric.write(at, from).await,
        }
    }

    async fn compare_and_swap(&self, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        match self {
            Any::Shared(fabric) => fabric.compare_and_swap(at, expected, new).await,
            Any::Streamed(fabric) => fabric.compare_and_swap(at, expected, new).await,
            Any::Mixed(fabric) => fabric.compare_and_swap(at, expected, new).await,
        }
    }

    async fn send(&self, to: Machine, message: &[u8]) -> Result<(), Error> {
        match self {
            Any::Shared(fabric) => fabric.send(to, message).await,
            Any::Streamed(fabric) => fabric.send(to, message).await,
            Any::Mixed(fabric) => fabric.send(to, message).await,
        }
    }
}
