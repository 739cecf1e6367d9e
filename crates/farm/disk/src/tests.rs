//! A machine of the simulator with the crate's files on its disk, and what breaks there.

mod backup;
mod formats;
mod journal;

use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, Sickness, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, fault, random, sleep};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

const SEEDS: u64 = 200;

/// What the oracle has found wrong, first things first.
#[derive(Clone, Default)]
pub struct Violations(Rc<RefCell<Vec<String>>>);

impl Violations {
    pub fn say(&self, what: String) {
        self.0.borrow_mut().push(what);
    }

    pub fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.say(what());
        }
    }

    fn first(&self) -> Option<String> {
        self.0.borrow().first().cloned()
    }
}

fn some_ms(below: u64) -> Duration {
    Duration::from_micros(random::below(1000 * below))
}

/// A machine with one process, which begins again until its disk is well.
struct Patient {
    machine: MachineId,
    process: ProcessId,
}

impl Patient {
    fn revive(&self) {
        control().restart_process(self.process);
    }

    async fn disturb_once(&self) {
        let after = some_ms(5);
        match random::below(8) {
            0 | 1 => control().kill_process(self.process, KillKind::RebootProcess { after }),
            2..=4 => {
                control().power_cut(self.machine);
                sleep(some_ms(5)).await;
                control().boot(self.machine);
            }
            5 => {
                control().set_disk_full(self.machine, true);
                sleep(some_ms(30)).await;
                if random::chance(0.3) {
                    control().power_cut(self.machine);
                    control().boot(self.machine);
                }
                control().set_disk_full(self.machine, false);
            }
            6 => {
                control().set_disk_sickness(self.machine, Sickness::errors(0.02));
                sleep(some_ms(30)).await;
                control().end_disk_sickness(self.machine);
            }
            _ => control().set_disk_slowness(self.machine, 1 + random::below(20) as u32),
        }
        sleep(some_ms(40)).await;
        control().set_disk_slowness(self.machine, 1);
        self.revive();
    }
}

/// Runs a process under every fault of a disk, then lets it come to rest: `rest` is told, and gets its time.
fn run(
    seed: u64,
    knobs: &[(&str, u64)],
    violations: &Violations,
    live: impl Fn() -> Pin<Box<dyn Future<Output = ()>>> + 'static,
    rest: impl FnOnce() + 'static,
) -> u64 {
    let sim = Simulation::new(seed, SimConfig::default());
    let knobs: Vec<(String, String)> = knobs
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let machine = sim.add_machine(Locality::default());
    let patient = {
        let address = "10.0.0.1:4600".parse().expect("one");
        Patient {
            machine,
            process: sim.start_process(machine, address, live),
        }
    };
    let judged = violations.clone();
    sim.run(async move {
        let mut own = Knobs::default();
        for (name, value) in &knobs {
            own.set(name, value).expect("legal");
        }
        set_knobs(own);
        sleep(some_ms(30)).await;
        for _ in 0..20 {
            patient.disturb_once().await;
            if judged.first().is_some() {
                return;
            }
        }
        control().heal_all();
        patient.revive();
        sleep(Duration::from_millis(100)).await;
        rest();
        control().power_cut(patient.machine);
        control().boot(patient.machine);
        patient.revive();
        sleep(Duration::from_secs(2)).await;
    });
    sim.fingerprint()
}

fn is_found(planted: &'static str, run: impl Fn(u64) -> Result<u64, String>) {
    fault::plant(Some(planted));
    let mut found = (0..SEEDS).filter_map(|seed| run(seed).err());
    let found = found.next();
    fault::plant(None);
    println!("{planted}: {}", found.expect("the oracle finds it"));
    fault::found(planted);
}
