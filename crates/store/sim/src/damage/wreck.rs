//! Files of one copy are wrecked, in whatever way: bits change, sectors are lost, the end is cut off, a file is gone
//! or is what it was a while ago. The other copies are whole.

use super::{Damaged, ROWS, Rows, write};
use plinth_client::Database;
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::sim::{FilesCopy, MachineId, control};
use plinth_runtime::{Duration, probe, sleep, trace};
use std::path::{Path, PathBuf};

const SECTOR: u64 = 4096;
/// Where the first half of faults falls: what is there leads to the rest.
const FRONT: u64 = 20_000;

/// True for a file of a storage server.
fn is_meant(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("storage-")
}

fn files(machine: MachineId) -> Vec<PathBuf> {
    let mut files = control().files(machine);
    files.retain(|path| is_meant(path));
    files
}

/// Writes some rows, and wrecks files that are older or newer than these.
pub(super) async fn strike(database: &Database, rows: &Rows) -> Damaged {
    sleep(Duration::from_millis(range(12_000..30_000))).await;
    let machines = control().machines().into_iter().map(|machine| machine.id);
    let mut machines: Vec<MachineId> = machines.filter(|id| !files(*id).is_empty()).collect();
    let mut damaged = Damaged::default();
    if machines.len() < 2 {
        return damaged;
    }
    let machine = machines.swap_remove(below(machines.len() as u64) as usize);
    let before = control().copy_of_files(machine, is_meant);
    for _ in 0..below(60) {
        write(database, rows, below(ROWS as u64) as usize).await;
    }
    sleep(Duration::from_millis(range(10..20_000))).await;
    let after = Duration::from_millis(range(10..3000));
    control().reboot_machine(machine, after);
    damaged.machines.insert(machine);
    // What a memory engine lacks at the end looks torn, and its server finds that it is of the past.
    control().expect_lies();
    for _ in 0..range(1..5) {
        let files = files(machine);
        if !files.is_empty() {
            hit(machine, &files[below(files.len() as u64) as usize], &before);
        }
    }
    probe!("fault_wrecks_a_copy");
    damaged
}

fn hit(machine: MachineId, file: &Path, before: &FilesCopy) {
    let kind = below(6);
    trace!("FaultWrecksFile", "machine" => machine.0, "file" => file.display(), "kind" => kind);
    match kind {
        0 | 1 => {
            let within = if chance(0.5) { 0..FRONT } else { 0..u64::MAX };
            control().flip_bit_in_file(machine, file, within);
        }
        2 => drop(control().change_file(machine, file, |bytes| lose_a_sector(bytes))),
        3 => drop(control().change_file(machine, file, |bytes| {
            bytes.truncate(below(bytes.len() as u64 + 1) as usize);
        })),
        4 => drop(control().lose_file(machine, file)),
        _ if before.paths().any(|path| path == file) => {
            // Whoever has an older file trusts what is not true.
            let only = |path: &Path| path == file;
            let mut older = before.clone();
            older.keep(only);
            control().set_files_back(machine, &older, only);
        }
        _ => {}
    }
}

fn lose_a_sector(bytes: &mut [u8]) {
    let sectors = (bytes.len() as u64).div_ceil(SECTOR);
    if sectors == 0 {
        return;
    }
    let at = (below(sectors) * SECTOR) as usize;
    let end = bytes.len().min(at + SECTOR as usize);
    let noise = if chance(0.5) { 0 } else { 0xa5 };
    bytes[at..end].fill(noise);
}
