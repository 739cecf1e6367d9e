//! Disks that say that they did what they did not: syncs that make nothing durable, writes that are lost, writes that land elsewhere.
//!
//! Only replicas can make up for that, so such a disk is one that the cluster [could do without](crate::protection). And
//! what a log server has lost at its end cannot be told from what it never had, but by others that have it: where it came back
//! from a power cut before they did, and they stayed away, the cluster would have to go on without. So all others are there
//! when it loses its power, and stay until the cluster has recovered.
//!
//! Left out is what a lie cannot be told from by what is on disk (docs/operating.md, "Disks that lie"):
//! - the registers of coordinators: a majority is one only while each member has what it said;
//! - pages of a B-tree that are whole and old under a root that is new. So such a file loses what was written last, and no single
//!   write; others may land in it.

use crate::cluster::{self, Shape};
use crate::protection::{self, machine_at};
use plinth_client::Database;
use plinth_core::Epoch;
use plinth_protocol::control::ClusterInfo;
use plinth_rpc::Transport;
use plinth_runtime::random::{below, chance, range, shuffle};
use plinth_runtime::sim::{Lie, MachineId, Sickness, control};
use plinth_runtime::{Duration, probe, trace};
use std::path::PathBuf;

/// About logs, either form of loss.
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

/// Who is not there by then is away for longer.
const ALL_THERE: Duration = Duration::from_secs(10);
/// A recovery that takes longer is not waited for.
const RECOVERED: Duration = Duration::from_secs(40);
/// Those that lose power together with the one that lies are back by then: a recovery waits longer for them.
const OTHERS_BACK_MS: u64 = 800;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    LyingSync,
    LostWrite,
    MisdirectedWrite,
}

/// Whoever runs this has seen to it that nothing else is broken, and breaks nothing before it returns.
pub async fn strike(shape: &Shape, transport: &Transport, database: &Database, kind: Kind) {
    if shape.config.replication < 2 {
        return;
    }
    let finding = find_victim(shape, transport, database);
    let Some(machine) = plinth_runtime::timeout(ALL_THERE, finding).await else {
        return;
    };
    shape.lost.add(machine);
    trace!("FaultDiskLies", "machine" => machine.0, "kind" => format!("{kind:?}"));
    lie(machine, kind).await;
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

/// One that the cluster can do without, if possible one of the log servers'.
async fn find_victim(shape: &Shape, transport: &Transport, database: &Database) -> MachineId {
    loop {
        let info = cluster::info(shape, transport).await;
        let mut machines: Vec<MachineId> = control().machines().iter().map(|m| m.id).collect();
        shuffle(&mut machines);
        machines.retain(|machine| !shape.lost.has(*machine));
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

/// While clients work. What was acknowledged in the last moments nobody knows to be committed but those who hold it, hence the
/// short ones.
async fn lie(machine: MachineId, kind: Kind) {
    let moment = |long_ms| match chance(0.5) {
        true => plinth_runtime::sleep(Duration::from_millis(range(1..40))),
        false => plinth_runtime::sleep(Duration::from_millis(range(40..long_ms))),
    };
    if let Kind::LyingSync = kind {
        probe!("fault_syncs_lie");
        let lies = Sickness {
            lies: LIES[below(2) as usize],
            ..Sickness::default()
        };
        control().set_disk_sickness(machine, lies);
        return moment(4000).await;
    }
    let mut files = control().files(machine);
    files.retain(|path| LIES[0].iter().any(|lie| lie.is_about(path)));
    for _ in 0..range(1..6) {
        let any = || files.get(below(files.len().max(1) as u64) as usize);
        let (Some(file), Some(other)) = (any(), any()) else {
            return; // there is none
        };
        if B_TREES.is_about(file) {
            continue;
        }
        let into = match kind {
            Kind::MisdirectedWrite => Some(if chance(0.5) { file } else { other }),
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

/// Waits for an epoch after this one.
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
