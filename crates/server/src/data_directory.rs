//! A data directory belongs to one process of one cluster (pitfall 29). It is locked while in use; its first file says
//! whose it is, and somebody else's is refused before anything is written.
//!
//! ```text
//! plinth.lock              held by the living process
//! process                  format, cluster, process id
//! coordination             the register of a coordinator
//! log-<id>.*               disk queues of log servers
//! storage-<id>.meta        tag and engine of a storage server
//! storage-<id>.*           its engine
//! damaged-storage-<id>.*   of a storage server whose files were damaged, while others had the same data
//! probe                    for a moment, while it is tried whether a sick disk works again
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::{EngineKind, Error, Tag, Uid, Version, record};
use plinth_runtime::disk::{self, DirLock};
use plinth_runtime::trace_warn;
use std::path::{Path, PathBuf};

/// 2: storage servers keep on disk which ranges they hold. 3: coordinators keep a register for each set of them.
const FORMAT: u32 = 3;

/// Begins the names of files that were put aside.
const DAMAGED: &str = "damaged-";

record! {
    pub struct Owner {
        pub cluster: String,
        pub process: Uid,
    }

    /// What must be known to reopen a storage server.
    pub struct StorageMeta {
        pub tag: Tag,
        pub engine: EngineKind,
        /// Nothing of its stream is older than this version.
        pub after: Version,
    }
}

pub struct DataDirectory {
    pub path: PathBuf,
    pub process: Uid,
    _lock: DirLock,
}

impl DataDirectory {
    /// Locks `path`, making it if it is not there, and checks that it belongs to `cluster`. The error is one line.
    pub async fn open(path: &Path, cluster: &str) -> Result<Self, String> {
        let at = |what: &str, e: std::io::Error| {
            format!("data directory {}: {what}: {e}", path.display())
        };
        disk::create_dir_all(path)
            .await
            .map_err(|e| at("cannot create it", e))?;
        let lock = disk::lock_dir(path).await.map_err(|e| {
            at("cannot lock it; is another server using it? Give each server a directory of its own", e)
        })?;
        let file = path.join("process");
        let owner = if disk::exists(&file).await {
            let bytes = disk::read_file(&file)
                .await
                .map_err(|e| at("cannot read its owner", e))?;
            if let Some(format) = format_of(&bytes).filter(|format| *format != FORMAT) {
                return Err(format!(
                    "data directory {} has format {format}, and this version of Plinth knows {FORMAT}; serve it with the version that wrote it, `plinth dump` there and `plinth load` here",
                    path.display()
                ));
            }
            let owner: Owner = decode(&bytes).ok_or_else(|| {
                format!(
                    "{} is corrupt; restore the whole directory from a backup, or use an empty one",
                    file.display()
                )
            })?;
            if owner.cluster != cluster {
                return Err(format!(
                    "data directory {} belongs to cluster {}, not to {cluster}; use another directory",
                    path.display(),
                    owner.cluster
                ));
            }
            owner
        } else {
            let process =
                Uid::from_parts(plinth_runtime::random::u64(), plinth_runtime::random::u64());
            let owner = Owner {
                cluster: cluster.to_string(),
                process,
            };
            disk::write_file_durably(&file, encode(&owner))
                .await
                .map_err(|e| at("cannot write to it", e))?;
            owner
        };
        Ok(DataDirectory {
            path: path.to_path_buf(),
            process: owner.process,
            _lock: lock,
        })
    }

    pub fn log_prefix(&self, id: Uid) -> PathBuf {
        self.path.join(format!("log-{id}"))
    }

    pub fn storage_prefix(&self, id: Uid) -> PathBuf {
        self.path.join(format!("storage-{id}"))
    }

    pub async fn write_storage_meta(&self, id: Uid, meta: &StorageMeta) -> std::io::Result<()> {
        let file = self.path.join(format!("storage-{id}.meta"));
        disk::write_file_durably(&file, encode(meta)).await
    }

    /// [`Error::file_corrupt`] if it is damaged, after an event that names it.
    pub async fn read_storage_meta(&self, id: Uid) -> Result<StorageMeta, Error> {
        let file = self.path.join(format!("storage-{id}.meta"));
        let bytes = disk::read_file(&file).await.map_err(|error| {
            trace_warn!("StorageMetaUnreadable", "file" => file.display(), "error" => error);
            Error::io_error
        })?;
        decode(&bytes).ok_or_else(|| {
            trace_warn!("StorageMetaDamaged", "file" => file.display(), "what" => "checksum");
            Error::file_corrupt
        })
    }

    /// Ids of the log servers and of the storage servers that left files here.
    pub async fn contents(&self) -> std::io::Result<(Vec<Uid>, Vec<Uid>)> {
        let (mut logs, mut storage) = (Vec::new(), Vec::new());
        for name in disk::list_dir(&self.path).await? {
            let id = |rest: &str| rest.get(..32).and_then(Uid::parse);
            if let Some(id) = name.strip_prefix("log-").and_then(id) {
                logs.push(id);
            } else if name.ends_with(".meta")
                && let Some(id) = name.strip_prefix("storage-").and_then(id)
            {
                storage.push(id);
            }
        }
        logs.sort();
        logs.dedup();
        Ok((logs, storage))
    }

    /// From now on reads of a role's files come from the disk.
    pub async fn forget_cached(&self, id: Uid) -> std::io::Result<()> {
        let text = id.to_string();
        let mut names: Vec<String> = disk::list_dir(&self.path).await?;
        names.retain(|name| name.contains(&text));
        for name in names {
            disk::forget_cached(&self.path.join(name)).await?;
        }
        Ok(())
    }

    /// Renames every file of a storage server, so that it is none any more: `damaged-…`. The meta file goes first, and for good
    /// before the next does. For whoever wants to look at what is left; it may be removed.
    pub async fn set_role_aside(&self, id: Uid) -> std::io::Result<()> {
        let text = id.to_string();
        let mut names: Vec<String> = disk::list_dir(&self.path).await?;
        names.retain(|name| name.contains(&text) && !name.starts_with(DAMAGED));
        names.sort_by_key(|name| !name.ends_with(".meta"));
        for name in names {
            let aside = self.path.join(format!("{DAMAGED}{name}"));
            disk::rename(&self.path.join(&name), &aside).await?;
            disk::sync_dir(&self.path).await?;
        }
        Ok(())
    }

    /// Removes every file of a role. The meta file of a storage server goes first, and for good before the next does: without
    /// it the rest is litter, and it without the rest is a loss.
    pub async fn remove_role(&self, id: Uid) -> std::io::Result<()> {
        let text = id.to_string();
        let mut names: Vec<String> = disk::list_dir(&self.path).await?;
        names.retain(|name| name.contains(&text));
        names.sort_by_key(|name| !name.ends_with(".meta"));
        for name in names {
            disk::remove(&self.path.join(&name)).await?;
            if name.ends_with(".meta") {
                disk::sync_dir(&self.path).await?;
            }
        }
        disk::sync_dir(&self.path).await
    }
}

/// `format: u32 | crc32c of format and body: u32 | body`. In format 1 the checksum was that of the body alone.
fn encode(record: &impl Codec) -> Bytes {
    let body = record.to_bytes();
    let mut out = BytesMut::with_capacity(body.len() + 8);
    out.put_u32_le(FORMAT);
    out.put_u32_le(checksum(FORMAT, &body));
    out.put_slice(&body);
    out.freeze()
}

fn checksum(format: u32, body: &[u8]) -> u32 {
    match format {
        1 => crc32c::crc32c(body),
        _ => crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), body),
    }
}

/// Of a file that is whole, and may be of another version.
fn format_of(bytes: &Bytes) -> Option<u32> {
    let format = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    (checksum(format, &bytes[8..]) == crc).then_some(format)
}

fn decode<T: Codec>(bytes: &Bytes) -> Option<T> {
    let ours = format_of(bytes)? == FORMAT;
    ours.then(|| T::from_bytes(bytes.slice(8..))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::Duration;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation, control};

    const ID: Uid = Uid(7);

    /// Removes a storage server's files, and loses power on the way.
    async fn remove_and_lose_power(at_us: u64) -> Vec<String> {
        let machine = control().add_machine(Locality::default());
        let address = ([10, 0, 0, 1], 1).into();
        control().start_process(machine, address, || {
            Box::pin(async {
                let path = Path::new("/data");
                let opened = DataDirectory::open(path, "a:b").await.expect("opens");
                if control().processes()[0].starts == 1 {
                    let meta = StorageMeta {
                        tag: Tag(1),
                        engine: EngineKind::Memory,
                        after: 0,
                    };
                    let engine = opened.storage_prefix(ID);
                    let written = disk::write_file_durably(&engine, Bytes::from("rows")).await;
                    written.expect("writes");
                    opened.write_storage_meta(ID, &meta).await.expect("writes");
                    opened.remove_role(ID).await.expect("removes");
                }
                std::future::pending::<()>().await;
            })
        });
        plinth_runtime::sleep(Duration::from_micros(at_us)).await;
        control().power_cut(machine);
        let mut paths = control().files(machine);
        paths.retain(|path| path.to_string_lossy().contains("storage-"));
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        paths.into_iter().map(text).collect()
    }

    #[test]
    fn a_meta_file_never_comes_back_without_what_it_speaks_of() {
        let mut seen = 0;
        for seed in 0..400 {
            let sim = Simulation::new(seed, SimConfig::default());
            let left = sim.run(remove_and_lose_power(seed * 100)).result;
            let meta = left.iter().any(|name| name.ends_with(".meta"));
            seen += usize::from(left.len() == 1);
            assert!(!meta || left.len() == 2, "seed {seed}: {left:?}");
        }
        assert!(seen > 0, "no power cut came in the middle");
    }
}
