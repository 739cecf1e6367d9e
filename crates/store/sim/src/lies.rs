//! Disks that lie: syncs that make nothing durable, writes that are lost, writes that land at another place.
//!
//! Only replicas make up for such a disk, so it strikes only a machine that the cluster
//! [could do without](crate::protection). Moreover, entries that a log server has lost at its end cannot be told
//! from entries that it never had, except by other log servers that have them. If it came back from a power cut
//! before those, and they stayed away, the cluster would have to continue without these entries. So all other
//! machines are up when it loses power, and they stay up until the cluster has recovered.
//!
//! Some lies cannot be noticed from the data on disk (docs/operating.md, "Disks that lie"). They are left out:
//! - the registers of coordinators: a majority counts only while each member has what it promised;
//! - pages of a B-tree that are whole and old under a new root. So such a file loses only its last writes, never a
//!   single write; other writes may land in it.

use crate::cluster::{self, Shape};
use crate::faults::Fault;
use crate::missing::machine_at;
use crate::protection;
use plinth_client::Database;
use plinth_core::Epoch;
use plinth_protocol::control::ClusterInfo;
use plinth_rpc::Transport;
use plinth_runtime::random::{below, chance, range, shuffle};
use plinth_runtime::sim::{Lie, MachineId, Sickness, control};
use plinth_runtime::{Duration, probe, trace};
use std::path::PathBuf;

/// Sets of lies; a set has one of the two forms of loss for logs: the last writes, or any single writes.
const LIES: [&[Lie]; 2] = [
    &[
        about("log-", "", true),
        about("storage-", ".log", true),
        B_TREES,
    ],
    &[
        about("log-", "", false),
        about("storage-", ".log", false),
        B_TREES,
    ],
];
const B_TREES: Lie = about("storage-", ".redb", true);

const fn about(begin: &'static str, with: &'static str, in_order: bool) -> Lie {
    Lie {
        begin,
        with,
        in_order,
    }
}

/// Limit of the wait until all machines are up; a machine that is not up by then stays away longer.
const ALL_THERE: Duration = Duration::from_secs(10);
/// Limit of the wait for a recovery.
const RECOVERED: Duration = Duration::from_secs(40);
/// The machines that lose power together with the lying one are up again by then. A recovery waits longer for them.
const OTHERS_BACK_MS: u64 = 800;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Strikes one machine with a lying disk and a power cut. The caller makes sure that nothing else is broken, and
/// breaks nothing until this returns.
pub async fn strike(shape: &Shape, transport: &Transport, database: &Database, kind: Fault) {
    if shape.config.replication < 2 {
        return;
    }
    let finding = find_victim(shape, transport, database);
    let Some(machine) = plinth_runtime::timeout(ALL_THERE, finding).await else {
        return;
    };
    shape.lost.add(machine);
    trace!("FaultDiskLies", "machine" => machine.0, "kind" => format!("{kind:?}"));
    lie(shape, database, machine, kind).await;
    let before = plinth_runtime::timeout(ALL_THERE, cluster::info(shape, transport)).await;
    let together = chance(0.5);
    trace!("FaultPowerCut", "machine" => machine.0, "together" => together);
    let ms = |range_ms| Duration::from_millis(range(range_ms));
    control().reboot_machine(machine, ms(10..if together { 1000 } else { 5000 }));
    control().set_disk_sickness(machine, Sickness::default());
    control().end_stray_writes(machine);
    if together {
        let others = control().machines().into_iter();
        let others = others.filter(|other| other.id != machine && other.is_up);
        others.for_each(|other| control().reboot_machine(other.id, ms(10..OTHERS_BACK_MS)));
    }
    let Some(Some(before)) = before else {
        return recovered(shape, transport, 0).await;
    };
    if together || has_log(&before, machine) || machine_at(&before.controller.address) == machine {
        recovered(shape, transport, before.epoch).await;
    }
}

/// A machine that the cluster can do without, if possible one with a log server.
async fn find_victim(shape: &Shape, transport: &Transport, database: &Database) -> MachineId {
    loop {
        let info = cluster::info(shape, transport).await;
        let mut machines: Vec<MachineId> = control().machines().iter().map(|m| m.id).collect();
        shuffle(&mut machines);
        machines.retain(|machine| !shape.lost.has(*machine) && !shape.keeps_data(*machine));
        machines.sort_by_key(|machine| !info.as_ref().is_some_and(|info| has_log(info, *machine)));
        for machine in machines {
            if protection::may_lose(shape, transport, database, machine).await && all_are_up(shape)
            {
                return machine;
            }
        }
        plinth_runtime::sleep(LOOK_AGAIN).await;
    }
}

/// Makes the disk lie while clients work. Commits acknowledged in the last moments are known as committed only to
/// the log servers that hold them. So half of the lying syncs end with a commit of the harness, and many other
/// pauses are short.
async fn lie(shape: &Shape, database: &Database, machine: MachineId, kind: Fault) {
    let moment = |long_ms| match chance(0.5) {
        true => plinth_runtime::sleep(Duration::from_millis(range(1..40))),
        false => plinth_runtime::sleep(Duration::from_millis(range(40..long_ms))),
    };
    if let Fault::LyingSync = kind {
        probe!("fault_syncs_lie");
        let lies = Sickness {
            lies: LIES[below(2) as usize],
            ..Sickness::default()
        };
        let set = || control().set_disk_sickness(machine, lies);
        if chance(0.5) {
            return shape.last_moments.commit(database, set).await;
        }
        set();
        return moment(4000).await;
    }
    let mut files = control().files(machine);
    files.retain(|path| LIES[0].iter().any(|lie| lie.is_about(path)));
    for _ in 0..range(1..6) {
        let any = || files.get(below(files.len().max(1) as u64) as usize);
        let (Some(file), Some(other)) = (any(), any()) else {
            return; // no such file
        };
        if B_TREES.is_about(file) {
            continue;
        }
        let into = match kind {
            Fault::MisdirectedWrite => Some(if chance(0.5) { file } else { other }),
            _ => None,
        };
        if control().lead_next_write_astray(machine, file, into.map(PathBuf::as_path)) {
            trace!("FaultStrayWrite", "file" => file.display(), "into" => format!("{into:?}"));
        }
        moment(1500).await;
    }
}

fn all_are_up(shape: &Shape) -> bool {
    let control = control();
    let is_wanted = |machine: MachineId| !shape.lost.has(machine);
    let mut machines = control.machines().into_iter();
    let mut processes = control.processes().into_iter();
    machines.all(|m| m.is_up || !is_wanted(m.id))
        && processes.all(|p| p.is_alive || !is_wanted(p.machine))
}

fn has_log(info: &ClusterInfo, machine: MachineId) -> bool {
    let current = info.log_system.current();
    current.is_some_and(|g| g.logs.iter().any(|log| machine_at(&log.address) == machine))
}

/// Waits until an epoch after `epoch` serves.
async fn recovered(shape: &Shape, transport: &Transport, epoch: Epoch) {
    let waiting = async {
        loop {
            let asked = plinth_runtime::timeout(ALL_THERE, cluster::info(shape, transport)).await;
            if let Some(Some(info)) = asked
                && info.accepting
                && info.epoch > epoch
            {
                return;
            }
            plinth_runtime::sleep(LOOK_AGAIN).await;
        }
    };
    if plinth_runtime::timeout(RECOVERED, waiting).await.is_none() {
        trace!("NotRecoveredFromLies");
    }
}
