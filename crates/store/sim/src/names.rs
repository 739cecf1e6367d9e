//! Machines that are known by their names and change their addresses, as pods do: a machine comes back elsewhere, also
//! where another one was before, and its name stands for its former address for a while, or for none. No name may give
//! one process two votes, and whoever runs finds the others again.

use crate::cluster::{Shape, host};
use plinth_runtime::random::{below, range, shuffle};
use plinth_runtime::sim::{MachineId, control};
use plinth_runtime::{Duration, Instant, probe, trace};
use std::net::{IpAddr, Ipv4Addr};

/// Between two moves.
const PAUSE_MS: std::ops::Range<u64> = 500..8000;
/// How long a name may be behind.
const LAG_MS: std::ops::Range<u64> = 100..9000;
/// A cluster recovers in this time, unless it lacks coordinators.
const RECOVERY_MS: std::ops::Range<u64> = 4000..12_000;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn ip_of(machine: MachineId) -> IpAddr {
    let processes = control().processes();
    let mut own = processes.iter().filter(|of| of.machine == machine);
    own.next().expect("it has a process").address.ip()
}

/// Lets the name stand for the address that the machine has now.
fn correct(machine: MachineId) {
    control().name(&host(machine), Some(ip_of(machine)));
}

/// An address that no machine had before.
struct Fresh(u32);

impl Fresh {
    fn next(&mut self) -> IpAddr {
        self.0 += 1;
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)) + self.0).into()
    }
}

/// Moves machines until `end`. Then all have power, and all names are right.
pub async fn run(shape: Shape, end: Instant) {
    let mut fresh = Fresh(0);
    loop {
        plinth_runtime::sleep(ms(range(PAUSE_MS))).await;
        if plinth_runtime::now() >= end {
            break;
        }
        let mut machines: Vec<MachineId> = control().machines().iter().map(|m| m.id).collect();
        shuffle(&mut machines);
        match (&machines[..], below(3)) {
            ([one, ..], 0) => move_away(*one, &mut fresh).await,
            ([a, b, ..], 1) => {
                exchange(*a, *b, &mut fresh);
                come_back(*a).await;
                come_back(*b).await;
            }
            _ => vote_twice(&shape, &mut fresh).await,
        }
    }
}

/// Names and power as they should be.
pub fn heal() {
    for machine in control().machines() {
        correct(machine.id);
    }
}

async fn move_away(machine: MachineId, fresh: &mut Fresh) {
    control().power_cut(machine);
    control().move_machine(machine, fresh.next());
    probe!("fault_machine_moves");
    trace!("FaultMachineMoves", "machine" => machine.0, "to" => ip_of(machine));
    come_back(machine).await;
}

/// Cuts the power of two machines, which change places.
fn exchange(a: MachineId, b: MachineId, fresh: &mut Fresh) {
    let control = control();
    control.power_cut(a);
    control.power_cut(b);
    let (at_a, at_b) = (ip_of(a), ip_of(b));
    control.move_machine(a, fresh.next());
    control.move_machine(b, at_a);
    control.move_machine(a, at_b);
    trace!("FaultMachinesExchange", "a" => a.0, "b" => b.0);
}

/// Boots the machine. Its name follows before or after that.
async fn come_back(machine: MachineId) {
    let lag = match below(3) {
        0 => 0,
        _ => range(LAG_MS),
    };
    if below(2) == 0 {
        control().name(&host(machine), None);
    }
    if below(2) == 0 {
        control().boot(machine);
    }
    plinth_runtime::sleep(ms(lag)).await;
    correct(machine);
    control().boot(machine);
}

/// Two coordinators change places, and only the name of one follows: both names stand for one process, while a third
/// coordinator is away. Then that process is away, and the others are back.
async fn vote_twice(shape: &Shape, fresh: &mut Fresh) {
    let mut coordinators: Vec<MachineId> = shape.coordinating_machines();
    shuffle(&mut coordinators);
    let [a, b, c, ..] = coordinators[..] else {
        return;
    };
    probe!("fault_two_names_of_one_process");
    exchange(a, b, fresh);
    correct(a);
    let control = control();
    control.boot(a);
    control.boot(b);
    control.power_cut(c);
    plinth_runtime::sleep(ms(range(RECOVERY_MS))).await;
    trace!("FaultNamesFollow", "a" => a.0, "b" => b.0, "c" => c.0);
    control.power_cut(a);
    correct(b);
    control.boot(b);
    control.boot(c);
    plinth_runtime::sleep(ms(range(RECOVERY_MS))).await;
    control.boot(a);
}
