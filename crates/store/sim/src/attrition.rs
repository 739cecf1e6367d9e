//! Strikes the cluster with faults at random times. No fault destroys synced data, except the loss of a machine, bit
//! rot, a disk that stays sick, and one that [lies](crate::lies). These four strike only where enough replicas are
//! left. So the cluster must always serve again.

use crate::cluster::{self, Shape};
use crate::faults::{Fault, FaultMix};
use crate::scenario::Scenario;
use crate::{lies, protection};
use plinth_protocol::control::{ClusterInfo, KillRole, WORKER};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::sim::{Hang, KillKind, MachineId, ProcessId, Sickness, control};
use plinth_runtime::{Duration, Instant, probe, trace};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Limit of a wall clock's error, in days.
const WRONG_DAYS_MAX: u64 = 3;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Strikes with random faults until `fault_seconds` have passed.
pub async fn run(shape: Shape, scenario: Scenario, mix: FaultMix) {
    let lost = shape.lost.clone();
    if scenario.fault_interval_ms == 0 || mix.is_empty() {
        return;
    }
    let (transport, database) = (shape.transport(), shape.connect());
    let end = plinth_runtime::now() + Duration::from_secs(scenario.fault_seconds);
    if mix.wall_clock > 0 {
        let machines = control().machines().into_iter().map(|machine| machine.id);
        machines.chain([MachineId::TESTER]).for_each(set_wall_clock);
    }
    // Time at which all faults so far are over.
    let mut calm = plinth_runtime::now();
    loop {
        plinth_runtime::sleep(ms(range(1..scenario.fault_interval_ms * 2))).await;
        if plinth_runtime::now() >= end {
            return;
        }
        let fault = choose(&mix);
        calm = calm.max(plinth_runtime::now() + lasts(fault));
        match fault {
            lie if lie.is_lie() => {
                if calm < end {
                    plinth_runtime::sleep_until(calm).await;
                    lies::strike(&shape, &transport, &database, lie).await;
                }
            }
            fault @ (Fault::LoseMachine | Fault::BitRot | Fault::SickDisk) => {
                let (machine, _) = victim();
                let may_lose = protection::may_lose(&shape, &transport, &database, machine);
                // Without replicas no bit rot: a server that holds nothing yet may become the only holder of
                // something, and cannot know that its file is damaged.
                let is_copied = !matches!(fault, Fault::BitRot) || shape.config.replication > 1;
                let is_spared = lost.has(machine) || shape.keeps_data(machine);
                if !is_spared && is_copied && may_lose.await {
                    lost.add(machine);
                    lose(machine, fault);
                }
            }
            fault => strike(&shape, &transport, fault, end).await,
        }
    }
}

/// Number of machines that are tried for a lasting disk fault.
const TRIES: usize = 3;

/// After the healing, makes one machine's disk sick for good if the cluster can do without that machine. The cluster
/// must notice and continue to serve.
pub async fn one_disk_stays_sick(shape: &Shape, mix: &FaultMix) {
    if mix.sick_disk == 0 {
        return;
    }
    let (transport, database) = (shape.transport(), shape.connect());
    let mut machines: Vec<MachineId> = control().machines().iter().map(|m| m.id).collect();
    plinth_runtime::random::shuffle(&mut machines);
    machines.retain(|machine| !shape.lost.has(*machine) && !shape.keeps_data(*machine));
    for machine in machines.into_iter().take(TRIES) {
        if protection::may_lose(shape, &transport, &database, machine).await {
            shape.lost.add(machine);
            return lose(machine, Fault::SickDisk);
        }
    }
}

/// Upper limit of the time that a fault lasts. A swizzle of many machines lasts longest. A permanent loss does not
/// delay anything later.
fn lasts(fault: Fault) -> Duration {
    Duration::from_secs(match fault {
        lie if lie.is_lie() => 1,
        Fault::LoseMachine | Fault::BitRot | Fault::SickDisk => 1,
        Fault::Suspend => 40,
        Fault::Swizzle => 2 * control().machines().len() as u64,
        _ => 15,
    })
}

fn choose(mix: &FaultMix) -> Fault {
    let mut pick = below(mix.weights().map(|(_, weight)| u64::from(weight)).sum());
    for (fault, weight) in mix.weights() {
        if pick < u64::from(weight) {
            return fault;
        }
        pick -= u64::from(weight);
    }
    unreachable!("the pick is below the sum of the weights")
}

async fn strike(shape: &Shape, transport: &Transport, fault: Fault, end: Instant) {
    let control = control();
    let (machine, process) = victim();
    if shape.lost.has(machine) {
        return;
    }
    match fault {
        Fault::KillProcess => {
            trace!("FaultKill", "victim" => process.0);
            let after = ms(range(10..3000));
            control.kill_process(process, KillKind::RebootProcess { after });
        }
        Fault::PauseProcess => {
            trace!("FaultPause", "victim" => process.0);
            control.pause_process(process, ms(range(10..6000)));
        }
        Fault::BusyProcess => {
            trace!("FaultBusy", "victim" => process.0);
            control.busy_process(process, ms(range(10..6000)));
        }
        Fault::KillRole => kill_role(shape, transport).await,
        Fault::PowerCut | Fault::PowerCutAll | Fault::PowerCutRack => {
            cut_power(shape, fault, machine).await;
        }
        Fault::DiskFull
        | Fault::SlowDisk
        | Fault::DiskErrors
        | Fault::ReadOnlyDisk
        | Fault::HungDisk => strike_disk(fault, machine),
        Fault::ClockDrift | Fault::WallClock | Fault::Suspend => strike_clock(fault, machine),
        Fault::Swizzle => swizzle(end),
        fault => strike_network(fault, machine),
    }
}

/// Cuts the power of a machine, of its rack, or of all machines.
async fn cut_power(shape: &Shape, fault: Fault, machine: MachineId) {
    let control = control();
    match fault {
        Fault::PowerCutAll => {
            trace!("FaultPowerCutAll");
            for machine in control.machines() {
                control.reboot_machine(machine.id, ms(range(10..3000)));
            }
        }
        Fault::PowerCutRack => {
            let rack = shape.rack(cluster::index_of(machine));
            trace!("FaultPowerCutRack", "rack" => rack);
            let in_rack = |id: MachineId| shape.rack(cluster::index_of(id)) == rack;
            for machine in control.machines() {
                if in_rack(machine.id) {
                    control.reboot_machine(machine.id, ms(range(10..8000)));
                }
            }
        }
        _ => {
            if chance(0.3) {
                // A slow disk has many operations under way, so the power cut can lose many.
                control.set_disk_slowness(machine, range(10..60) as u32);
                plinth_runtime::sleep(ms(range(100..1500))).await;
                control.set_disk_slowness(machine, 1);
            }
            trace!("FaultPowerCut", "machine" => machine.0);
            control.reboot_machine(machine, ms(range(10..5000)));
        }
    }
}

/// Makes a machine's disk full, slow or sick for a while.
fn strike_disk(fault: Fault, machine: MachineId) {
    let control = control();
    match fault {
        Fault::DiskFull => {
            trace!("FaultDiskFull", "machine" => machine.0);
            control.set_disk_full(machine, true);
            later(range(100..5000), move || {
                plinth_runtime::sim::control().set_disk_full(machine, false)
            });
        }
        Fault::SlowDisk => {
            trace!("FaultSlowDisk", "machine" => machine.0);
            control.set_disk_slowness(machine, range(2..30) as u32);
            later(range(100..10_000), move || {
                plinth_runtime::sim::control().set_disk_slowness(machine, 1)
            });
        }
        _ => {
            let sickness = sickness(fault);
            trace!("FaultDiskSick", "machine" => machine.0, "with" => format!("{sickness:?}"));
            control.set_disk_sickness(machine, sickness);
            later(range(100..15_000), move || {
                plinth_runtime::sim::control().end_disk_sickness(machine)
            });
        }
    }
}

/// Lets a machine's clocks drift or jump, or suspends the machine, whose clocks have jumped when it continues.
fn strike_clock(fault: Fault, machine: MachineId) {
    let control = control();
    match fault {
        Fault::ClockDrift => {
            let drift_ppm = range(0..40_000) as i64 - 20_000;
            trace!("FaultClockDrift", "machine" => machine.0, "ppm" => drift_ppm);
            control.set_clock_drift(machine, drift_ppm);
        }
        Fault::WallClock => set_wall_clock(if chance(0.3) {
            MachineId::TESTER
        } else {
            machine
        }),
        _ => {
            let length = ms(range(5000..40_000));
            trace!("FaultSuspend", "machine" => machine.0, "ms" => length.as_millis());
            let processes = control.processes().into_iter();
            for process in processes.filter(|process| process.machine == machine) {
                control.pause_process(process.id, length);
            }
        }
    }
}

/// Sets a machine's wall clock wrong by days, or right again.
fn set_wall_clock(machine: MachineId) {
    let days_ms = WRONG_DAYS_MAX * 24 * 3600 * 1000;
    let offset_ms = if chance(0.3) {
        0
    } else {
        range(0..2 * days_ms) as i64 - days_ms as i64
    };
    trace!("FaultWallClock", "machine" => machine.0, "offset_ms" => offset_ms);
    control().set_wall_clock(machine, offset_ms);
}

/// The symptoms of a sick disk, temporary or permanent.
fn sickness(fault: Fault) -> Sickness {
    let kinds = [Fault::DiskErrors, Fault::ReadOnlyDisk, Fault::HungDisk];
    let well = Sickness::default();
    match fault {
        Fault::DiskErrors => {
            let ppm = [1_000_000, 300_000, 20_000][below(3) as usize];
            let one_of_two = |ppm| if chance(0.5) { ppm } else { 0 };
            let sick = Sickness {
                read_errors_ppm: one_of_two(ppm),
                write_errors_ppm: one_of_two(ppm),
                sync_errors_ppm: one_of_two(ppm),
                ..well
            };
            if sick == well {
                return Sickness::errors(1.0);
            }
            sick
        }
        Fault::ReadOnlyDisk => Sickness {
            read_only: true,
            ..well
        },
        Fault::HungDisk => Sickness {
            hangs: [Hang::Syncs, Hang::Everything][below(2) as usize],
            ..well
        },
        _ => Sickness {
            for_good: true,
            ..sickness(kinds[below(3) as usize])
        },
    }
}

/// Strikes the network between machine `a` and a random other one, possibly that of the clients.
fn strike_network(fault: Fault, a: MachineId) {
    let b = if chance(0.15) {
        MachineId::TESTER
    } else {
        victim().0
    };
    if a == b {
        return;
    }
    let control = control();
    match fault {
        Fault::Partition => {
            let both = chance(0.5);
            trace!("FaultPartition", "a" => a.0, "b" => b.0, "both" => both);
            control.partition(a, b, both);
            later(range(100..8000), move || {
                plinth_runtime::sim::control().heal(a, b)
            });
        }
        Fault::Clog => {
            trace!("FaultClog", "a" => a.0, "b" => b.0);
            control.clog(a, b, ms(range(10..3000)));
        }
        _ => {
            let count = control.cut_connections(a, b);
            trace!("FaultCutConnections", "a" => a.0, "b" => b.0, "count" => count);
        }
    }
}

/// Cuts machines off one after the other, then reconnects them in another order. Stops cutting off machines at
/// `end`.
fn swizzle(end: Instant) {
    let mut chosen: Vec<MachineId> = control().machines().iter().map(|m| m.id).collect();
    plinth_runtime::random::shuffle(&mut chosen);
    chosen.truncate(1 + below(chosen.len() as u64) as usize);
    trace!("FaultSwizzle", "machines" => chosen.len());
    let pause_ms = range(10..1000);
    let swizzling = async move {
        let all: Vec<MachineId> = control().machines().iter().map(|m| m.id).collect();
        for machine in &chosen {
            if plinth_runtime::now() >= end {
                break;
            }
            let others = all.iter().filter(|other| *other != machine);
            others.for_each(|other| control().partition(*machine, *other, true));
            plinth_runtime::sleep(ms(below(pause_ms))).await;
        }
        plinth_runtime::random::shuffle(&mut chosen);
        for machine in &chosen {
            plinth_runtime::sleep(ms(below(pause_ms))).await;
            all.iter()
                .for_each(|other| control().heal(*machine, *other));
        }
    };
    plinth_runtime::spawn("swizzle", swizzling).detach();
}

fn later(after_ms: u64, action: impl FnOnce() + 'static) {
    plinth_runtime::spawn("heal", async move {
        plinth_runtime::sleep(ms(after_ms)).await;
        action();
    })
    .detach();
}

fn victim() -> (MachineId, ProcessId) {
    let processes = control().processes();
    let chosen = &processes[below(processes.len() as u64) as usize];
    (chosen.machine, chosen.id)
}

/// Strikes a machine for good: it is lost with its disk; or its disk stays sick; or bits flip in files of its
/// storage and log servers.
fn lose(machine: MachineId, fault: Fault) {
    let control = control();
    if let Fault::LoseMachine = fault {
        probe!("fault_loses_machine");
        trace!("FaultLoseMachine", "machine" => machine.0);
        return control.lose_machine(machine);
    }
    if let Fault::SickDisk = fault {
        let sickness = sickness(fault);
        probe!("fault_disk_stays_sick");
        trace!("FaultDiskStaysSick", "machine" => machine.0, "with" => format!("{sickness:?}"));
        return control.set_disk_sickness(machine, sickness);
    }
    let files = control.files(machine);
    rot(machine, &b_trees(&files), 1..100, 0..u64::MAX);
    if chance(0.5) {
        rot(
            machine,
            &oldest_segments(&files),
            1..10,
            0..FIRST_IN_SEGMENT,
        );
    }
    if chance(0.7) {
        // Restarts the machine, because data in memory is not read from disk again.
        control.reboot_machine(machine, ms(range(10..1000)));
    }
}

/// Bytes at the start of a log segment where damage is always recognised: the header of the segment and that of its
/// first block.
const FIRST_IN_SEGMENT: u64 = 88;

fn rot(machine: MachineId, files: &[&PathBuf], flips: Range<u64>, within: Range<u64>) {
    for _ in 0..range(flips) {
        let Some(file) = files.get(below(files.len().max(1) as u64) as usize) else {
            return; // no such file
        };
        if control().flip_bit_in_file(machine, file, within.clone()) {
            probe!("fault_bit_rot");
            trace!("FaultBitRot", "machine" => machine.0, "file" => file.display());
        }
    }
}

fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Files of B-trees. The log of a memory engine is left out: damage to its last record looks like a torn write, so
/// the server would lose data that it had reported as durable. A B-tree's file has no such place.
fn b_trees(files: &[PathBuf]) -> Vec<&PathBuf> {
    let is_one =
        |path: &&PathBuf| name(path).starts_with("storage-") && name(path).ends_with(".redb");
    files.iter().filter(is_one).collect()
}

/// The oldest segment of each log. Damage to the last block of a log looks like a torn write too, so only the start
/// of the oldest segment is damaged.
fn oldest_segments(files: &[PathBuf]) -> Vec<&PathBuf> {
    let mut oldest: BTreeMap<PathBuf, &PathBuf> = BTreeMap::new();
    for path in files.iter().filter(|path| name(path).starts_with("log-")) {
        let first = oldest.entry(path.with_extension("")).or_insert(path);
        *first = path.min(first);
    }
    oldest.into_values().collect()
}

/// Ends a single role; its process continues.
pub async fn kill_role(shape: &Shape, transport: &Transport) {
    let killing = async {
        let roles = roles_of(cluster::info(shape, transport).await?);
        let role = roles.get(below(roles.len().max(1) as u64) as usize)?;
        trace!("FaultKillRole", "id" => role.id, "at" => role.address);
        let worker = Interface::new(role.address, WORKER);
        let kill = KillRole { id: role.id };
        transport
            .call(&worker.endpoint::<KillRole>(), kill)
            .await
            .ok()
    };
    plinth_runtime::timeout(Duration::from_secs(1), killing).await;
}

fn roles_of(info: ClusterInfo) -> Vec<Interface> {
    let logs = info.log_system.generations.into_iter().flat_map(|g| g.logs);
    let proxies = info
        .client
        .commit_proxies
        .into_iter()
        .chain(info.client.grv_proxies);
    proxies.chain(logs).collect()
}
