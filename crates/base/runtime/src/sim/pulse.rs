//! Questions that a process answers past its event loop: see `real/pulse.rs`.

use super::World;
use super::ids::{MachineId, ProcessId};
use super::machine::Hold;
use super::network::Path;
use crate::{Duration, random};
use std::net::SocketAddr;
use std::rc::Rc;

/// Probability that a datagram is lost.
const LOST: f64 = 0.02;

impl World {
    /// As [`crate::net::pulse`]. An answer comes if the process lives and runs, and both directions are open at that
    /// moment.
    pub async fn pulse(self: &Rc<Self>, address: SocketAddr) -> Option<Duration> {
        let here = self.machine_of(self.current.get());
        let there = self.machine_at(address.ip())?;
        self.sleep_ns(self.latency_ns((here, there))).await;
        if !self.gets_through((here, there)) {
            return std::future::pending().await;
        }
        // If no process listens there, the system reports it.
        let process = self.listens_at(address)?;
        let Some(turn) = self.turn_of(process) else {
            return std::future::pending().await;
        };
        self.sleep_ns(self.latency_ns((there, here))).await;
        if !self.gets_through((there, here)) {
            return std::future::pending().await;
        }
        Some(turn)
    }

    fn gets_through(&self, pair: (MachineId, MachineId)) -> bool {
        matches!(self.path(pair), Path::Open) && !random::chance(LOST)
    }

    /// Duration of the current turn of a process; `None` if the process is stopped.
    fn turn_of(&self, process: ProcessId) -> Option<Duration> {
        let processes = self.processes.borrow();
        match &processes[process.0 as usize].held {
            None => Some(Duration::ZERO),
            Some(held) => match held.how {
                Hold::Stopped => None,
                Hold::Busy { since_ns } => {
                    Some(Duration::from_nanos(self.executor.now() - since_ns))
                }
            },
        }
    }
}
