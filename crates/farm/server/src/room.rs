//! Whether processes have room for their memories in a cluster, before it is made: its sizes never change, and one
//! without room for a machine's memory would be lost.

use crate::messages::{AskRoom, ROLE, Room, process};
use crate::plan::{self, Plan};
use plinth_coordination::ClusterFile;
use plinth_core::{Error, Uid};
use plinth_farm_member::Cluster;
use plinth_rpc::{Registration, Responder, Transport};
use plinth_runtime::{Boxed, Duration, TaskGroup, disk, join_all, memory, timeout};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A process that says nothing for so long is passed over.
const GLANCE: Duration = Duration::from_secs(2);

/// What a process would take for such a cluster, with memory for old versions, and what there is in the directory of
/// its memory, or in the first one above that is there.
async fn room(cluster: &Cluster, old_mib: u64, directory: &Path) -> Result<Room, Error> {
    let sizes = plan::sizes(cluster, old_mib);
    let layout = plan::layout(cluster, &sizes, true);
    let leads = cluster.regions.div_ceil(cluster.first_machines.max(1));
    let sparse = plan::sparse(cluster, &sizes, true);
    let needed_bytes = plan::taken_bytes(&layout, sparse, leads.into());
    for at in directory.ancestors() {
        if let Ok(space) = disk::space(at).await {
            let free_bytes = match has_former(directory).await {
                true => space.total, // what they have is taken over
                false => space.free,
            };
            return Ok(Room {
                directory: directory.display().to_string(),
                needed_bytes,
                free_bytes,
            });
        }
    }
    Err(Error::io_error)
}

/// Whether there are memories of processes that have ended.
async fn has_former(directory: &Path) -> bool {
    for name in disk::list_dir(directory).await.unwrap_or_default() {
        let is_memory = name.starts_with("machine-") && name.ends_with(".memory");
        let path = directory.join(&name);
        if is_memory && !memory::is_owned(&path).await.unwrap_or(true) {
            return true;
        }
    }
    false
}

/// Answers [`AskRoom`] as long as the result is there.
pub fn serve(
    transport: &Transport,
    directory: PathBuf,
    old_mib: u64,
) -> (Registration, Rc<TaskGroup>) {
    let tasks = Rc::new(TaskGroup::new());
    let own = tasks.clone();
    let serving = transport.serve::<AskRoom>(ROLE, move |asked, to: Responder<AskRoom>| {
        let directory = directory.clone();
        own.spawn("farm room", async move {
            to.send(match asked.cluster.is_sane() {
                true => room(&asked.cluster, old_mib, &directory).await,
                false => Err(Error::client_invalid_operation),
            });
        });
    });
    (serving, tasks)
}

/// Refuses a cluster for which processes at one address have too little room together.
fn check(rooms: impl IntoIterator<Item = (SocketAddr, Room)>) -> Result<(), String> {
    let mut shared: BTreeMap<(IpAddr, String), Vec<(SocketAddr, Room)>> = BTreeMap::new();
    for (at, room) in rooms {
        let key = (at.ip(), room.directory.clone());
        shared.entry(key).or_default().push((at, room));
    }
    for ((_, directory), all) in shared {
        let needed = all.iter().fold(0, |sum: u64, (_, room)| {
            sum.saturating_add(room.needed_bytes)
        });
        let free = all
            .iter()
            .map(|(_, room)| room.free_bytes)
            .min()
            .unwrap_or(0);
        if needed > free {
            let at: Vec<String> = all.iter().map(|(at, _)| at.to_string()).collect();
            return Err(format!(
                "no room for the memories of such a cluster: {} would take {} MiB in {directory}, where {} MiB are \
                 free; choose a smaller --region-mib or fewer --regions, or make room; nothing is made",
                at.join(", "),
                needed.div_ceil(1 << 20),
                free >> 20
            ));
        }
    }
    Ok(())
}

/// Asks the processes at the coordinators' addresses. Those that do not answer may have room.
///
/// # Errors
/// A line for the user.
pub fn check_all<'a>(
    transport: &'a Transport,
    file: &'a ClusterFile,
    plan: &'a Plan,
) -> Boxed<'a, Result<(), String>> {
    Box::pin(async move {
        let cluster = plan.cluster(Uid::default())?;
        let ask = async |at: SocketAddr| {
            let endpoint = process(at).endpoint::<AskRoom>();
            let cluster = cluster.clone();
            let asked = timeout(GLANCE, transport.call(&endpoint, AskRoom { cluster })).await;
            Some((at, asked?.ok()?))
        };
        let rooms = join_all(file.addresses().into_iter().map(ask)).await;
        check(rooms.into_iter().flatten())
    })
}

/// As [`check_all`], of the process itself.
///
/// # Errors
/// A line for the user.
pub async fn check_own(
    at: SocketAddr,
    plan: &Plan,
    old_mib: u64,
    directory: &Path,
) -> Result<(), String> {
    let own = room(&plan.cluster(Uid::default())?, old_mib, directory).await;
    check(own.ok().map(|room| (at, room)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(directory: &str, needed_mib: u64) -> Room {
        Room {
            directory: directory.into(),
            needed_bytes: needed_mib << 20,
            free_bytes: 100 << 20,
        }
    }

    #[test]
    fn processes_that_share_a_directory_of_memories_have_room_only_together() {
        let at = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
        let apart = [
            (at(1, 1), room("/m", 60)),
            (at(2, 1), room("/m", 60)),
            (at(2, 3), room("/n", 60)),
        ];
        assert_eq!(check(apart), Ok(()));
        let together = [(at(1, 1), room("/m", 60)), (at(1, 3), room("/m", 60))];
        let line = check(together).expect_err("120 of 100");
        assert!(
            line.contains(
                "10.0.0.1:1, 10.0.0.1:3 would take 120 MiB in /m, where 100 MiB are free"
            ),
            "{line}"
        );
        assert!(
            line.contains("--region-mib") && line.ends_with("nothing is made"),
            "{line}"
        );
    }
}
