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
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::{EngineKind, Tag, Uid, Version, record};
use plinth_runtime::disk::{self, DirLock};
use std::path::{Path, PathBuf};

/// 2: storage servers keep on disk which ranges they hold.
const FORMAT: u32 = 2;

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

    pub async fn read_storage_meta(&self, id: Uid) -> Result<StorageMeta, String> {
        let file = self.path.join(format!("storage-{id}.meta"));
        let bytes = disk::read_file(&file)
            .await
            .map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        decode(&bytes).ok_or_else(|| {
            format!(
                "{} is corrupt; restore the whole directory from a backup",
                file.display()
            )
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
