//! A machine's number and its memory on this host.

use plinth_coordination::ClusterFile;
use plinth_farm_fabric::{File, Layout, Local, Machine};
use plinth_farm_member::{Record, Seat, host_of};
use plinth_runtime::Boxed;
use plinth_runtime::disk;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where the memories of this host's machines are, if nobody says something else. Another cluster has another place.
pub fn memory_directory(file: &ClusterFile) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let above = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    let name = file.key().replace(':', "-");
    above.join(format!("plinth-farm-{name}"))
}

/// The memory that a server has, for who ends it.
#[derive(Clone, Default)]
pub struct Held(Rc<RefCell<File>>);

impl Held {
    pub(crate) fn set(&self, local: &Local) {
        *self.0.borrow_mut() = local.file();
    }

    /// Gives the memory back, before the server is dropped. Nobody misses what is in it: a machine that comes back has
    /// empty slots, and reads its disk or copies from those that live.
    pub async fn remove(&self) {
        let file = self.0.borrow().clone();
        let _ = file.remove().await; // what is left is found by the next process of this host
    }
}

/// Which machine a process wants to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    This(u16),
    /// The lowest that nobody has.
    Lowest,
    /// The highest that nobody has: for who stays a short time.
    Highest,
}

/// Numbers that a process of this host may have, in the order in which it tries them. Those that a disk has come last:
/// the process of that disk takes no other one, and may only be slower.
fn candidates(record: &Record, host: u128, wanted: Number) -> Vec<u16> {
    let is_elsewhere = |number: u16| {
        let is_it = |seat: &Seat| seat.machine == number && seat.place.host != host;
        record.machines.iter().chain(&record.waiting).any(is_it)
    };
    let has_disk = |number: &u16| {
        let is_it = |seat: &Seat| seat.machine == *number && seat.disk.is_some();
        record.machines.iter().chain(&record.waiting).any(is_it)
    };
    let mut all: Vec<u16> = (0..record.cluster.machines)
        .filter(|number| !is_elsewhere(*number))
        .collect();
    match wanted {
        Number::This(number) => return vec![number],
        Number::Lowest => {}
        Number::Highest => all.reverse(),
    }
    all.sort_by_key(has_disk);
    all
}

fn mib(layout: &Layout) -> u64 {
    layout.words().map_or(0, |words| (words as u64 * 8) >> 20)
}

/// Takes a machine's memory on this host, whose first `sparse` regions have no room yet. Errors: a line for the user.
pub fn start<'a>(
    directory: &'a Path,
    record: &'a Record,
    wanted: Number,
    layout: &'a Layout,
    sparse: usize,
) -> Boxed<'a, Result<Local, String>> {
    Box::pin(async move {
        let unusable = |error: io::Error| {
            format!(
                "memory directory {}: {error}; choose another with --memory-dir",
                directory.display()
            )
        };
        disk::create_dir_all(directory).await.map_err(unusable)?;
        let host = host_of(directory).await.map_err(unusable)?;
        let numbers = candidates(record, host, wanted);
        for number in &numbers {
            if *number >= record.cluster.machines {
                return Err(format!(
                    "--number {number}: the cluster's numbers are below {}",
                    record.cluster.machines
                ));
            }
            match Local::start_sparse(directory, Machine(*number), layout, sparse).await {
                Ok(local) => return Ok(local),
                Err(error) if error.kind() == ErrorKind::WouldBlock => match wanted {
                    Number::This(_) => {
                        return Err(format!(
                            "--number {number}: another process of this host is that machine; choose another number, \
                         or none"
                        ));
                    }
                    _ => continue,
                },
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    return Err(format!("no memory can be so large: {} MiB", mib(layout)));
                }
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    return Err(format!(
                        "machine {number}: {error}. --old-mib is a part of it. The regions stay as the cluster was \
                         made: smaller ones need another cluster, with a cluster file and empty data directories of \
                         its own"
                    ));
                }
                Err(error) => return Err(format!("machine {number}: {error}")),
            }
        }
        Err(format!(
            "all {} numbers of the cluster's machines are taken: end a process or a shell",
            record.cluster.machines
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;
    use plinth_farm_member::{Cluster, Disk, Place};

    fn seat(machine: u16, host: u128) -> Seat {
        Seat {
            machine,
            id: Uid(u128::from(machine) + 1),
            place: Place {
                host,
                socket: None,
                zone: String::new(),
            },
            slots: 1,
            disk: None,
        }
    }

    #[test]
    fn a_process_takes_no_number_of_another_host_and_may_follow_one_of_its_own() {
        let mut record = Record::of_new(Cluster::new(Uid(1), 5, 3, 3));
        record.machines = vec![seat(0, 7), seat(1, 8)];
        record.waiting = vec![seat(3, 8)];
        let tried = |host, wanted| candidates(&record, host, wanted);
        assert_eq!(tried(7, Number::Lowest), [0, 2, 4]);
        assert_eq!(tried(8, Number::Lowest), [1, 2, 3, 4]);
        assert_eq!(tried(9, Number::Highest), [4, 2]);
        assert_eq!(tried(9, Number::This(1)), [1], "its user knows better");
    }

    #[test]
    fn a_new_process_leaves_the_numbers_of_disks_to_those_who_have_them() {
        let mut record = Record::of_new(Cluster::new(Uid(1), 5, 3, 3));
        record.machines = [0, 1, 3].map(|number| seat(number, 7)).into();
        for seat in &mut record.machines[..2] {
            let id = Uid(u128::from(seat.machine) + 7);
            seat.disk = Some(Disk { id, newest: 0 });
        }
        let tried = |wanted| candidates(&record, 7, wanted);
        assert_eq!(tried(Number::Lowest), [2, 3, 4, 0, 1]);
        assert_eq!(tried(Number::Highest), [4, 3, 2, 1, 0]);
    }
}
