//! What an earlier cluster has left in the directory of a new one.

use plinth_coordination::{ClusterFile, FARM_DESCRIPTION, cannot_use, cluster_file};
use plinth_farm_server::has_disk;
use plinth_runtime::disk::{self, DirLock};
use plinth_runtime::memory;
use plinth_runtime::{Duration, now, sleep};
use plinth_terminal::Outcome;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Data directories of the machines of a cluster.
pub fn directory(above: &Path, id: &str) -> PathBuf {
    above.join(format!("{PREFIX}{id}"))
}

/// The data directory of a machine, in the [directory] of its cluster.
pub fn machine(directory: &Path, i: u16) -> PathBuf {
    directory.join(format!("machine-{i}"))
}

/// Keeps other clusters out of the directory while the result lives.
pub async fn lock(above: &Path) -> Outcome<DirLock> {
    let error = match disk::lock_dir(above).await {
        Ok(lock) => return Ok(lock),
        Err(error) => error,
    };
    // A process of another system may have it: a cluster has a file.
    let path = above.join(cluster_file::DEFAULT_NAME);
    Err(match (error.kind(), former(above, &path).await) {
        (ErrorKind::WouldBlock, Ok(Some(_))) => format!(
            "data directory {}: its cluster runs already; connect with plinth farm cli -C {}, or choose another with \
             --data-dir",
            above.display(),
            path.display()
        ),
        _ => cannot_use(above)(error),
    })
}

/// What the command line asks for.
pub struct Wanted {
    pub machines: u16,
    pub is_durable: bool,
    /// Where the first machine listens.
    pub first: SocketAddr,
}

/// The id of the durable cluster in the directory, if there is one; then it goes on. Its cluster file is the only way
/// to its data, so nothing else may take its place.
pub async fn kept(above: &Path, path: &Path, wanted: Wanted) -> Outcome<Option<String>> {
    let Wanted {
        machines: most,
        is_durable,
        first,
    } = wanted;
    let Some(former) = former(above, path).await? else {
        return Ok(None);
    };
    let machines = usize::from(machines_of(above, &former));
    if machines == 0 {
        return Ok(None);
    }
    let at = former.addresses().first().copied().unwrap_or(first);
    let lacks = [
        (!is_durable).then(|| "--durable".to_owned()),
        (at != first).then(|| format!("--port {}", at.port())),
        (machines > usize::from(most)).then(|| format!("--machines {machines}")),
    ];
    let lacks: Vec<String> = lacks.into_iter().flatten().collect();
    if lacks.is_empty() {
        return Ok(Some(former.id));
    }
    let lacks = lacks.join(" ");
    Err(format!(
        "data directory {} has a durable cluster of {machines} machines: go on with it by {lacks}, or choose another \
         with --data-dir",
        above.display()
    ))
}

/// The durable cluster in a directory, as far as `dev` can go on with it.
#[derive(Clone, Copy)]
pub struct There {
    pub machines: u16,
    /// Of the first of them.
    pub port: Option<u16>,
}

/// The durable cluster in the directory, if there is one.
pub async fn there(above: &Path) -> Outcome<Option<There>> {
    let path = above.join(cluster_file::DEFAULT_NAME);
    let Some(former) = former(above, &path).await? else {
        return Ok(None);
    };
    let machines = machines_of(above, &former);
    let port = former.addresses().first().map(SocketAddr::port);
    Ok((machines > 0).then_some(There { machines, port }))
}

/// Its machines that have data on disk.
fn machines_of(above: &Path, former: &ClusterFile) -> u16 {
    let directory = directory(above, &former.id);
    let machines = (0..u16::MAX).take_while(|i| has_disk(&machine(&directory, *i)));
    machines.count() as u16
}

const END_LIMIT: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(50);

/// What the directories of clusters in `above` begin with.
const PREFIX: &str = "farm-";
/// Of an id that was drawn.
const ID_DIGITS: usize = 16;

/// Removes what clusters have left here that were killed: their memories, which `memory` finds, and their directories,
/// unless a machine of them has data on its disk. `kept` goes on, and those whose processes live are left alone. The
/// caller has locked `above`. Returns lines for the user.
pub async fn sweep(above: &Path, kept: &str, memory: impl Fn(&str) -> PathBuf) -> Vec<String> {
    let names = disk::list_dir(above).await.unwrap_or_default();
    let ids = names.iter().filter_map(|name| name.strip_prefix(PREFIX));
    let is_drawn = |id: &&str| id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    let mut lines = Vec::new();
    for id in ids.filter(is_drawn).filter(|id| *id != kept) {
        let (own, memories) = (directory(above, id), memory(id));
        if is_alive(&memories).await {
            lines.push(format!(
                "processes of a former cluster of this directory live, and have their memories in {}: end them, and \
                 remove it",
                memories.display()
            ));
            continue;
        }
        if std::fs::remove_dir_all(&memories).is_ok() {
            lines.push(format!(
                "removed the memories of a former cluster of this directory, which was killed: {}",
                memories.display()
            ));
        }
        // What cannot be looked at may have some.
        let machines = disk::list_dir(&own).await;
        if machines.is_ok_and(|names| !names.iter().any(|name| has_disk(&own.join(name)))) {
            let _ = std::fs::remove_dir_all(&own); // it takes little
        }
    }
    lines
}

/// Removes what processes have left in `above` that were killed: their directories, whose names are `begin` and the
/// number of the process, with all data in them, and the memories. Returns lines for the user.
pub async fn sweep_killed(
    above: &Path,
    begin: &str,
    memory: impl Fn(&str) -> PathBuf,
) -> Vec<String> {
    let names = disk::list_dir(above).await.unwrap_or_default();
    let mut lines = Vec::new();
    for name in names.iter().filter(|name| is_of_killed(name, begin)) {
        let own = above.join(name);
        let Ok(lock) = disk::lock_dir(&own).await else {
            continue; // another user's
        };
        let told = sweep(&own, "", &memory).await;
        let clusters = disk::list_dir(&own).await.unwrap_or_default();
        let ids = clusters.iter().filter_map(|name| name.strip_prefix(PREFIX));
        let mut are_alive = false;
        for id in ids {
            are_alive |= is_alive(&memory(id)).await;
        }
        lines.extend(told);
        drop(lock);
        if !are_alive && std::fs::remove_dir_all(&own).is_ok() {
            lines.push(format!(
                "removed what a killed run has left: {}",
                own.display()
            ));
        }
    }
    lines
}

/// Whether the name is `begin` and the number of a process that is no more.
fn is_of_killed(name: &str, begin: &str) -> bool {
    let process = name.strip_prefix(begin);
    let is_number = |of: &&str| !of.is_empty() && of.bytes().all(|b| b.is_ascii_digit());
    process
        .filter(is_number)
        .is_some_and(|of| !Path::new("/proc").join(of).exists())
}

/// Whether a process has one of the memories in this directory, or may have it.
async fn is_alive(memories: &Path) -> bool {
    for name in disk::list_dir(memories).await.unwrap_or_default() {
        let path = memories.join(&name);
        if name.ends_with(".memory") && memory::is_owned(&path).await.unwrap_or(true) {
            return true;
        }
    }
    false
}

/// Waits a moment for the machines of a run of this directory that was killed: they end when they notice.
pub async fn await_end(above: &Path, path: &Path, memory: impl Fn(&str) -> PathBuf) {
    let Ok(Some(former)) = former(above, path).await else {
        return;
    };
    let begun = now();
    while is_alive(&memory(&former.id)).await && begun.elapsed() < END_LIMIT {
        sleep(END_PAUSE).await;
    }
}

/// The cluster file of an earlier run in the directory, if there is one.
async fn former(above: &Path, path: &Path) -> Outcome<Option<ClusterFile>> {
    let at = above.display();
    let found = found(path).await;
    let found = found
        .map_err(|line| format!("data directory {at}: {line}; choose another with --data-dir"))?;
    let is_own = |found: &ClusterFile| found.description == FARM_DESCRIPTION;
    match found.as_ref().is_none_or(is_own) {
        true => Ok(found),
        false => Err(format!(
            "data directory {at} holds a cluster of the store; choose another with --data-dir"
        )),
    }
}

/// The cluster file, if there is one. One that is not understood is somebody's, too.
async fn found(path: &Path) -> Outcome<Option<ClusterFile>> {
    match disk::exists(path).await {
        Ok(false) => Ok(None),
        Ok(true) => {
            let found = ClusterFile::load(path).await;
            let found =
                found.and_then(|file| file.addresses_for("plinth farm", path).map(|_| file));
            found.map(Some).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("cluster file {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_coordination::places;
    use plinth_terminal::connect::block_on;

    const PORT: u16 = 4800;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn cluster_file() -> ClusterFile {
        ClusterFile {
            description: FARM_DESCRIPTION.into(),
            id: "a1".into(),
            coordinators: places([at(PORT)]),
            keys: None,
            is_tls: false,
            certificates: None,
        }
    }

    #[test]
    fn a_durable_cluster_goes_on_with_its_own_flags_and_is_replaced_by_none() {
        let above = std::env::temp_dir().join(format!("plinth-former-{}", std::process::id()));
        let path = above.join(cluster_file::DEFAULT_NAME);
        let file = cluster_file();
        block_on(async {
            let kept = async |machines, is_durable, port| {
                let wanted = Wanted {
                    machines,
                    is_durable,
                    first: at(port),
                };
                kept(&above, &path, wanted).await
            };
            assert_eq!(kept(1, false, PORT).await, Ok(None), "nothing is there");
            let machines = [0, 1].map(|i| machine(&directory(&above, "a1"), i));
            for machine in &machines {
                disk::create_dir_all(machine)
                    .await
                    .map_err(cannot_use(&above))?;
            }
            file.save(&path).await.map_err(cannot_use(&above))?;
            assert_eq!(
                kept(2, true, PORT).await,
                Ok(None),
                "its data was in memory"
            );
            for machine in &machines {
                let disk = machine.join("machine");
                disk::create_dir_all(&disk)
                    .await
                    .map_err(cannot_use(&above))?;
                assert!(has_disk(machine));
            }
            for machines in [2, 3] {
                assert_eq!(kept(machines, true, PORT).await, Ok(Some("a1".into())));
            }
            for (machines, durable, port, lacks) in [
                (2, false, PORT, "by --durable, or"),
                (2, true, PORT + 20, "by --port 4800, or"),
                (1, true, PORT, "by --machines 2, or"),
            ] {
                let line = kept(machines, durable, port).await.expect_err(lacks);
                assert!(line.contains(lacks), "{line}");
            }
            Ok(())
        })
        .expect("the directory is written");
        std::fs::remove_dir_all(&above).expect("it is there");
    }

    #[test]
    fn what_killed_clusters_have_left_is_removed_and_nothing_of_those_that_live() {
        let above = std::env::temp_dir().join(format!("plinth-swept-{}", std::process::id()));
        let memories = |id: &str| above.join("shm").join(id);
        let [dead, alive, kept, durable] = [1, 2, 3, 4].map(|id| format!("{id:016x}"));
        block_on(async {
            for id in [&dead, &alive, &kept, &durable] {
                for at in [machine(&directory(&above, id), 0), memories(id)] {
                    disk::create_dir_all(&at)
                        .await
                        .map_err(cannot_use(&above))?;
                }
                std::fs::write(memories(id).join("machine-1.memory"), [0; 64])
                    .expect("it is written");
            }
            std::fs::create_dir_all(machine(&directory(&above, &durable), 7).join("machine"))
                .expect("it is made");
            let other = above.join("farm-notes");
            std::fs::create_dir(&other).expect("it is made");
            let path = memories(&alive).join("machine-0.memory");
            let owned = memory::own(&path, 8).await.map_err(cannot_use(&above))?;
            let lines = sweep(&above, &kept, memories).await;
            assert_eq!(lines.len(), 3, "{lines:?}");
            for (id, has_directory, has_memories) in [
                (&dead, false, false),
                (&alive, true, true),
                (&kept, true, true),
                (&durable, true, false),
            ] {
                assert_eq!(directory(&above, id).exists(), has_directory, "{id}");
                assert_eq!(memories(id).exists(), has_memories, "{id}");
            }
            assert!(other.exists());
            drop(owned);
            let lines = sweep(&above, &kept, memories).await;
            assert!(
                matches!(&lines[..], [line] if line.contains("was killed")),
                "{lines:?}"
            );
            assert!(!directory(&above, &alive).exists());
            Ok(())
        })
        .expect("the directory is written");
        std::fs::remove_dir_all(&above).expect("it is there");
    }

    #[test]
    fn what_a_killed_run_has_left_is_removed_with_its_memories_and_no_other() {
        let name = format!("plinth-killed-{}", std::process::id());
        let above = std::env::temp_dir().join(name);
        let memories = |id: &str| above.join("shm").join(id);
        let id = format!("{:016x}", 1);
        let own = std::process::id().to_string();
        let names = [
            "run-4194305",
            &format!("run-{own}"),
            "run-x",
            "other-4194305",
        ];
        block_on(async {
            for name in names {
                let at = directory(&above.join(name), &id);
                disk::create_dir_all(&machine(&at, 0).join("machine"))
                    .await
                    .map_err(cannot_use(&above))?;
            }
            std::fs::create_dir_all(memories(&id)).expect("it is made");
            let lines = sweep_killed(&above, "run-", memories).await;
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert!(lines[1].contains("what a killed run has left"), "{lines:?}");
            let are_there = names.map(|name| above.join(name).exists());
            assert_eq!(are_there, [false, true, true, true]);
            assert!(!memories(&id).exists());
            assert_eq!(
                sweep_killed(&above, "run-", memories).await,
                Vec::<String>::new()
            );
            Ok(())
        })
        .expect("the directory is written");
        std::fs::remove_dir_all(&above).expect("it is there");
    }

    #[test]
    fn a_directory_has_one_cluster_at_a_time() {
        let above = std::env::temp_dir().join(format!("plinth-locked-{}", std::process::id()));
        block_on(async {
            disk::create_dir_all(&above)
                .await
                .map_err(cannot_use(&above))?;
            let first = lock(&above).await?;
            let line = lock(&above).await.map(drop).expect_err("it is taken");
            assert!(line.contains("another process has it"), "{line}");
            let file = cluster_file();
            let path = above.join(cluster_file::DEFAULT_NAME);
            file.save(&path).await.map_err(cannot_use(&above))?;
            let line = lock(&above).await.map(drop).expect_err("it is taken");
            assert!(line.contains("its cluster runs already"), "{line}");
            drop(first);
            lock(&above).await.map(drop)
        })
        .expect("it is free again");
        std::fs::remove_dir_all(&above).expect("it is there");
    }
}
