//! What an earlier cluster has left in the directory of a new one.

use plinth_coordination::{ClusterFile, FARM_DESCRIPTION, cannot_use};
use plinth_farm_server::has_disk;
use plinth_runtime::disk::{self, DirLock};
use plinth_terminal::Outcome;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Data directories of the machines of a cluster.
pub fn directory(above: &Path, id: &str) -> PathBuf {
    above.join(format!("farm-{id}"))
}

/// The data directory of a machine, in the [directory] of its cluster.
pub fn machine(directory: &Path, i: u16) -> PathBuf {
    directory.join(format!("machine-{i}"))
}

/// Keeps other clusters out of the directory while the result lives.
pub async fn lock(above: &Path) -> Outcome<DirLock> {
    let locked = disk::lock_dir(above).await;
    locked.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => format!(
            "data directory {}: its cluster runs already, or another process has it; choose another with --data-dir",
            above.display()
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
    let directory = directory(above, &former.id);
    let machines = (0..u16::MAX).take_while(|i| has_disk(&machine(&directory, *i)));
    let machines = machines.count();
    if machines == 0 {
        return Ok(None);
    }
    let at = former.addresses().first().copied().unwrap_or(first);
    let lacks = match machines > usize::from(most) {
        _ if !is_durable => "--durable".to_string(),
        _ if at != first => format!("--port {}", at.port()),
        true => format!("--machines {machines}"),
        false => return Ok(Some(former.id)),
    };
    Err(format!(
        "data directory {} has a durable cluster of {machines} machines: go on with it by {lacks}, or choose another \
         with --data-dir",
        above.display()
    ))
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
    use plinth_coordination::{cluster_file, places};
    use plinth_terminal::connect::block_on;

    const PORT: u16 = 4800;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_durable_cluster_goes_on_with_its_own_flags_and_is_replaced_by_none() {
        let above = std::env::temp_dir().join(format!("plinth-former-{}", std::process::id()));
        let path = above.join(cluster_file::DEFAULT_NAME);
        let file = ClusterFile {
            description: FARM_DESCRIPTION.into(),
            id: "a1".into(),
            coordinators: places([at(PORT)]),
            keys: None,
            is_tls: false,
            certificates: None,
        };
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
    fn a_directory_has_one_cluster_at_a_time() {
        let above = std::env::temp_dir().join(format!("plinth-locked-{}", std::process::id()));
        block_on(async {
            disk::create_dir_all(&above)
                .await
                .map_err(cannot_use(&above))?;
            let first = lock(&above).await?;
            let line = lock(&above).await.map(drop).expect_err("it is taken");
            assert!(line.contains("its cluster runs already"), "{line}");
            drop(first);
            lock(&above).await.map(drop)
        })
        .expect("it is free again");
        std::fs::remove_dir_all(&above).expect("it is there");
    }
}
