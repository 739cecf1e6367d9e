//! The map of a virtual log on coordinators: `version u64 | value`, as their coordinated state. No database is needed.

use crate::virtual_log::{Register, after_version, parse_versioned};
use bytes::Bytes;
use plinth_coordination::{Coordinators, SharedState};
use plinth_core::Error;
use plinth_rpc::{Place, Transport};
use plinth_runtime::Boxed;

/// Pause before another attempt, when somebody else has read or written in between.
const PAUSE_MS: std::ops::Range<u64> = 10..60;

/// See the module. It waits while no majority of the coordinators answers.
pub struct CoordinatedRegister(SharedState);

impl CoordinatedRegister {
    pub fn new(transport: &Transport, coordinators: &Coordinators) -> Self {
        CoordinatedRegister(SharedState::new(transport, coordinators, PAUSE_MS))
    }

    /// Moves the register to other coordinators, all of which live and are of this cluster. Whoever asks the former
    /// ones is told where it is.
    ///
    /// # Errors
    /// The register is empty ([`Error::client_invalid_operation`]), or cannot be read.
    pub fn move_to(&self, coordinators: Vec<Place>) -> Boxed<'_, Result<(), Error>> {
        Box::pin(async move {
            let moving = self.0.attempt(async |attempt| {
                let state = attempt.read().await?;
                if self.0.coordinators().file().coordinators == coordinators {
                    return Ok(()); // an attempt before this one
                }
                let state = state.ok_or(Error::client_invalid_operation)?;
                let to = coordinators.clone();
                attempt.move_to(to, state, Vec::new()).await
            });
            moving.await
        })
    }
}

impl Register for CoordinatedRegister {
    async fn read(&self) -> Result<(u64, Bytes), Error> {
        parse_versioned(self.0.read().await?)
    }

    async fn swap(&self, version: u64, value: Bytes) -> Result<bool, Error> {
        let state = after_version(version, &value);
        let swapping = self.0.attempt(async |attempt| {
            let (now, there) = parse_versioned(attempt.read().await?)?;
            if now == version {
                attempt.write(state.clone()).await?;
            }
            // An attempt before this one, whose outcome nobody knew, may have put it there.
            Ok(now == version || (now == version + 1 && there == value))
        });
        swapping.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_coordination::{ClusterFile, Family, coordinator, places};
    use plinth_runtime::sim::{KillKind, Locality, ProcessId, SimConfig, Simulation, control};
    use plinth_runtime::{Duration, Either, disk, join_all, now, race, random, sleep};
    use std::net::SocketAddr;
    use std::path::Path;

    fn address(n: u8) -> SocketAddr {
        ([10, 0, 2, n], 4500).into()
    }

    fn cluster() -> ClusterFile {
        ClusterFile::new("locks", "a1", places((0..3).map(address)))
    }

    async fn coordinate(n: u8) {
        let directory = Path::new("/data");
        disk::create_dir_all(directory).await.expect("a directory");
        disk::sync_dir(Path::new("/")).await.expect("its name");
        let transport = Transport::listen(address(n)).await.expect("it listens");
        let cluster = (Family::Delos, &cluster().key()[..]);
        let started = coordinator::start(&transport, directory, cluster, false).await;
        started.expect("it starts").life.await;
    }

    fn coordinators(sim: &Simulation) -> Vec<ProcessId> {
        let start = |n| {
            let machine = sim.add_machine(Locality::default());
            sim.start_process(machine, address(n), move || Box::pin(coordinate(n)))
        };
        (0..3).map(start).collect()
    }

    fn register() -> CoordinatedRegister {
        CoordinatedRegister::new(&Transport::client(), &cluster().into())
    }

    /// Adds one to the number in the register, `times` times. The versions that it made.
    async fn count(times: usize) -> Vec<u64> {
        let register = register();
        let mut made = Vec::new();
        while made.len() < times {
            let (version, value) = register.read().await.expect("read");
            let before = value.first().copied().unwrap_or(0);
            assert_eq!(u64::from(before), version, "a value without its version");
            let own = random::u64().to_le_bytes(); // no two values are the same
            let next = Bytes::from([&[before + 1][..], &own].concat());
            if register.swap(version, next).await.expect("written") {
                made.push(version + 1);
            }
            sleep(Duration::from_millis(random::below(20))).await;
        }
        made
    }

    #[test]
    fn no_two_swaps_of_one_version_succeed_while_coordinators_come_and_go() {
        for seed in 0..20 {
            let sim = Simulation::new(seed, SimConfig::default());
            let processes = coordinators(&sim);
            let ran = sim.run(async move {
                let disturb = async {
                    loop {
                        let one = processes[random::below(3) as usize];
                        sleep(Duration::from_millis(random::below(500))).await;
                        control().kill_process(one, KillKind::Kill);
                        sleep(Duration::from_millis(random::below(500))).await;
                        control().restart_process(one);
                    }
                };
                let counted = race(join_all((0..3).map(|_| count(10))), disturb);
                let Either::Left(made) = counted.await;
                (made.concat(), register().read().await.expect("read").0)
            });
            let (mut made, last) = ran.result;
            made.sort_unstable();
            assert!(made.is_sorted_by(|a, b| a < b), "seed {seed}: {made:?}");
            assert!(made.iter().all(|made| *made <= last), "seed {seed}: {last}");
        }
    }

    #[test]
    fn those_who_wait_for_a_change_hold_up_nobody_who_makes_it() {
        let sim = Simulation::new(7, SimConfig::default());
        coordinators(&sim);
        let ran = sim.run(async {
            let watch = async |register: CoordinatedRegister| {
                loop {
                    register.read().await.expect("read");
                }
            };
            let begun = now();
            race(count(20), join_all((0..5).map(|_| watch(register())))).await;
            begun.elapsed()
        });
        assert!(ran.result < Duration::from_secs(20), "{:?}", ran.result);
    }
}
