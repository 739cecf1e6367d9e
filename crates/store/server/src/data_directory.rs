//! A data directory belongs to one process of one cluster (pitfall 29). It is locked while in use. The file `process`
//! names the owner, and a directory of another cluster is refused before anything is written.
//!
//! ```text
//! plinth.lock              held by the living process
//! process                  format, cluster, process id, the newest epoch that was served in, and the database
//! process.copy             the same once more
//! coordination             the registers of a coordinator; exists from the first start on
//! log-<id>.*               disk queues of log servers
//! storage-<id>.meta        tag and engine of a storage server
//! storage-<id>.meta.copy   the same once more; nothing exists by it alone
//! storage-<id>.lost        what of its ssd engine is known to be damaged
//! storage-<id>.*           its engine
//! damaged-storage-<id>.*   of a storage server whose files were damaged, while others had the same data
//! damaged-log-<id>.*       the same of a log server
//! former-log-<id>.*        of a log server that no epoch names, in a directory that did not tell its database
//! former-storage-<id>.*    the same of a storage server
//! damaged-coordination     damaged registers of a coordinator that has begun again since
//! probe                    exists for a moment, while a sick disk is tested
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use plinth_coordination::{Tenant, coordinator, why};
use plinth_core::codec::Codec;
use plinth_core::{EngineKind, Epoch, Error, Tag, Uid, Version, record};
use plinth_protocol::database::{DatabaseId, WITHOUT_ID, named};
use plinth_runtime::Boxed;
use plinth_runtime::disk::{self, DirLock};
use plinth_runtime::{probe, trace_warn};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

/// 2: storage servers keep on disk which ranges they hold. 3: coordinators keep a register for each set of them.
pub const FORMAT: u32 = 3;
/// Format of the file `process` alone. 4: with the epoch; and the file of the registers exists from the first start
/// on. 5: with the database.
const OWNER_FORMAT: u32 = 5;
const OWNER_WITHOUT_DATABASE: u32 = 4;

/// Prefixes of the names of files that were set aside.
pub const DAMAGED: &str = "damaged-";
pub const FORMER: &str = "former-";
pub const OLDER: &str = "older-";

record! {
    pub struct Owner {
        pub cluster: String,
        pub process: Uid,
        /// The newest epoch that the process has served in; 0 if none.
        pub epoch: Epoch,
        /// The database of that epoch; zero if there is none, or if the version knew no ids.
        pub database: Uid,
    }

    /// The owner in format 4.
    pub struct OwnerWithoutDatabase {
        pub cluster: String,
        pub process: Uid,
        pub epoch: Epoch,
    }

    /// The owner in format 3.
    pub struct FormerOwner {
        pub cluster: String,
        pub process: Uid,
    }

    /// What must be known to reopen a storage server.
    pub struct StorageMeta {
        pub tag: Tag,
        pub engine: EngineKind,
        /// The stream of the tag has nothing older than this version.
        pub after: Version,
    }
}

pub struct DataDirectory {
    pub path: PathBuf,
    pub process: Uid,
    owner: RefCell<Owner>,
    /// True if a former version, which made the file of the registers only when they were needed, was the last to
    /// serve here.
    is_former: Cell<bool>,
    /// Log servers and storage servers had files here when the process started.
    holds_data: Cell<bool>,
    /// The file `process` names another database than the one that is served.
    is_stale: Cell<bool>,
    _lock: DirLock,
}

impl DataDirectory {
    /// Locks `path`, making it if it is not there, and checks that it belongs to `cluster`. The error is one line.
    pub fn open<'a>(path: &'a Path, cluster: &'a str) -> Boxed<'a, Result<Self, String>> {
        Box::pin(async move {
            let cannot = |what: &str, e: std::io::Error| {
                at(path, format!("{what}: {} with --data-dir", why(&e)))
            };
            disk::create_dir_all(path)
                .await
                .map_err(|e| cannot("cannot create it", e))?;
            let lock = disk::lock_dir(path)
                .await
                .map_err(|e| cannot("cannot lock it", e))?;
            let is_used = disk::exists(&path.join("process")).await;
            let is_used = is_used.map_err(|e| cannot("cannot read it", e))?;
            let (owner, is_former) = match is_used {
                true => read_owner(path, cluster).await?,
                false => {
                    Tenant::Cluster.check_of_server(path).await?;
                    (make_owner(path, cluster).await?, false)
                }
            };
            let holds_data = epoch_of_files(path).await? > 0;
            Ok(DataDirectory {
                holds_data: Cell::new(holds_data),
                is_stale: Cell::new(false),
                path: path.to_path_buf(),
                process: owner.process,
                owner: RefCell::new(owner),
                is_former: Cell::new(is_former),
                _lock: lock,
            })
        })
    }

    /// True if the registers of a coordinator must be here. `is_named`: the cluster file names this process as a
    /// coordinator. A directory that was used and lacks them has lost them. A directory of a former version that
    /// never was a coordinator's gets its first registers.
    pub async fn must_have_registers(&self, is_named: bool) -> bool {
        if !self.is_former.get() {
            return true;
        }
        // What cannot be read may be there, and must not be begun anew.
        let looked = disk::exists(&coordinator::file_in(&self.path)).await;
        let Ok(is_there) = looked else {
            return true;
        };
        if !is_there && is_named {
            return true;
        }
        let cluster = self.owner.borrow().cluster.clone();
        let begun = is_there || coordinator::begin(&self.path, &cluster).await.is_ok();
        // If there is no room for that, the next start tries again.
        self.is_former.set(!begun);
        if begun {
            self.write_owner().await;
        }
        is_there
    }

    /// The newest epoch that was served in from here; 0 if none.
    pub fn epoch(&self) -> Epoch {
        self.owner.borrow().epoch
    }

    /// The database that was served from here; [`WITHOUT_ID`] if none, or if the version knew no ids.
    pub fn database(&self) -> Uid {
        self.owner.borrow().database
    }

    /// Log servers or storage servers have, or had, files here since the process started.
    pub fn holds_data(&self) -> bool {
        self.holds_data.get()
    }

    /// A log server or storage server is about to have files here.
    pub fn gets_data(&self) {
        self.holds_data.set(true);
    }

    /// Takes the directory for this database, which is in this epoch and which the process is about to serve. The next
    /// [`serves_in`](Self::serves_in) writes that down. Without an id, who knows of a later epoch waits for it.
    ///
    /// # Errors
    /// It holds data of another one, which stays as it is.
    pub fn claim(&self, database: &DatabaseId, epoch: Epoch) -> Result<(), String> {
        let mut owner = self.owner.borrow_mut();
        let may_own = database.may_own(owner.database);
        if owner.database == database.id || may_own && owner.epoch > epoch {
            return Ok(());
        }
        if owner.epoch > 0 && !may_own {
            if self.holds_data() {
                return Err(self.of_another(owner.database, database.id));
            }
            owner.epoch = 0; // of the other one
        }
        owner.database = database.id;
        self.is_stale.set(true);
        Ok(())
    }

    /// The line about data of `kept` where the cluster serves `served`.
    pub fn of_another(&self, kept: Uid, served: Uid) -> String {
        let line = format!(
            "belongs to {}, and this cluster file leads to {}; it stays as it is, and nothing of it is served. Start \
             this server over another --data-dir; or, if this data is what you want, see Two databases of one cluster \
             in docs/operating.md",
            named(kept),
            named(served)
        );
        format!("data directory {} {line}", self.path.display())
    }

    /// True if `epoch`, or the database that was claimed, is not written down yet.
    pub fn lacks(&self, epoch: Epoch) -> bool {
        epoch > self.epoch() || self.is_stale.get()
    }

    /// Records that `epoch` is served from here. Nothing of an older epoch is served afterwards.
    pub async fn serves_in(&self, epoch: Epoch) {
        if self.lacks(epoch) {
            let newest = epoch.max(self.epoch());
            self.owner.borrow_mut().epoch = newest;
            self.is_stale.set(false);
            self.write_owner().await;
        }
    }

    async fn write_owner(&self) {
        if self.is_former.get() {
            return; // the new form says that the registers are there
        }
        let bytes = encode(OWNER_FORMAT, &*self.owner.borrow());
        let file = self.path.join("process");
        if let Err(error) = write_twice(&file, bytes).await {
            trace_warn!("OwnerNotWritten", "file" => file.display(), "error" => error); // written with the next epoch
        }
    }

    pub fn log_prefix(&self, id: Uid) -> PathBuf {
        self.path.join(format!("log-{id}"))
    }

    pub fn storage_prefix(&self, id: Uid) -> PathBuf {
        self.path.join(format!("storage-{id}"))
    }

    fn storage_meta(&self, id: Uid) -> PathBuf {
        self.path.join(format!("storage-{id}.meta"))
    }

    /// The copy comes first: what a `.meta` file names exists.
    pub async fn write_storage_meta(&self, id: Uid, meta: &StorageMeta) -> std::io::Result<()> {
        write_twice(&self.storage_meta(id), encode(FORMAT, meta)).await
    }

    /// From its copy, if it is damaged. [`Error::file_corrupt`] if that is damaged too, after an event that names it.
    pub async fn read_storage_meta(&self, id: Uid) -> Result<StorageMeta, Error> {
        let file = self.storage_meta(id);
        let read = disk::read_file(&file).await;
        let bytes = read.as_ref().ok();
        let of_this_format = |bytes: &Bytes| decode::<StorageMeta>(FORMAT, bytes);
        if let Some(meta) = bytes.and_then(of_this_format) {
            keep_copy(&file, encode(FORMAT, &meta)).await;
            return Ok(meta);
        }
        let is_newer = bytes.and_then(format_of).is_some();
        let copy = disk::read_file(&copy_of(&file)).await.ok();
        if let Some(meta) = copy.as_ref().and_then(of_this_format)
            && !is_newer
        {
            probe!("storage_meta_is_read_from_its_copy");
            trace_warn!("StorageMetaDamaged", "file" => file.display(), "what" => "its copy is intact");
            put_back(&file, encode(FORMAT, &meta)).await;
            return Ok(meta);
        }
        if let Err(error) = read {
            trace_warn!("StorageMetaUnreadable", "file" => file.display(), "error" => error);
            return Err(Error::io_error);
        }
        trace_warn!("StorageMetaDamaged", "file" => file.display(), "what" => "checksum");
        Err(Error::file_corrupt)
    }

    /// Ids of the log servers and of the storage servers that have files here.
    pub async fn contents(&self) -> std::io::Result<(Vec<Uid>, Vec<Uid>)> {
        contents(&self.path).await
    }

    /// Names of a role's files, those that were set aside too; the meta file first.
    async fn files_of(&self, id: Uid) -> std::io::Result<Vec<String>> {
        let text = id.to_string();
        let mut names: Vec<String> = disk::list_dir(&self.path).await?;
        names.retain(|name| name.contains(&text));
        names.sort_by_key(|name| !name.ends_with(".meta"));
        Ok(names)
    }

    /// Makes later reads of a role's files come from the disk, not from memory.
    pub async fn forget_cached(&self, id: Uid) -> std::io::Result<()> {
        for name in self.files_of(id).await? {
            disk::forget_cached(&self.path.join(name)).await?;
        }
        Ok(())
    }

    /// Puts `prefix` before the name of every file of a role, so that the role no longer exists. The meta file of a
    /// storage server is renamed first, and durably before the next file. The renamed files are kept for inspection
    /// and may be removed.
    pub async fn set_role_aside(&self, id: Uid, prefix: &str) -> std::io::Result<()> {
        let mut names = self.files_of(id).await?;
        names.retain(|name| {
            ![DAMAGED, FORMER, OLDER]
                .iter()
                .any(|aside| name.starts_with(aside))
        });
        for name in names {
            let aside = self.path.join(format!("{prefix}{name}"));
            disk::rename(&self.path.join(&name), &aside).await?;
            disk::sync_dir(&self.path).await?;
        }
        Ok(())
    }

    /// Removes every file of a role. The meta file of a storage server is removed first, and durably before the next
    /// file: the other files without it are litter, but the meta file without the others would be a loss of data.
    pub async fn remove_role(&self, id: Uid) -> std::io::Result<()> {
        for name in self.files_of(id).await? {
            disk::remove(&self.path.join(&name)).await?;
            if name.ends_with(".meta") {
                disk::sync_dir(&self.path).await?;
            }
        }
        disk::sync_dir(&self.path).await.map(drop)
    }
}

/// Lets the coordinator of a directory that has lost its registers serve as one that has promised nothing. False if
/// nothing is lost. See "Lost coordinators" in `docs/operating.md`.
pub fn accept_lost_registers<'a>(
    path: &'a Path,
    cluster: &'a str,
) -> Boxed<'a, Result<bool, String>> {
    Box::pin(async move {
        let directory = DataDirectory::open(path, cluster).await?;
        coordinator::begin_again(&directory.path, cluster).await
    })
}

async fn contents(path: &Path) -> std::io::Result<(Vec<Uid>, Vec<Uid>)> {
    let (mut logs, mut storage) = (Vec::new(), Vec::new());
    for name in disk::list_dir(path).await? {
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

/// The line about a directory that cannot be used.
fn at(path: &Path, what: String) -> String {
    format!("data directory {}: {what}", path.display())
}

/// 1 if there is data, since its epoch was not written down; else 0.
async fn epoch_of_files(path: &Path) -> Result<Epoch, String> {
    let (logs, storage) = contents(path)
        .await
        .map_err(|e| at(path, format!("cannot list it: {e}")))?;
    Ok(u64::from(!logs.is_empty() || !storage.is_empty()))
}

/// The owner of the directory, and whether a former version wrote it.
async fn read_owner(path: &Path, cluster: &str) -> Result<(Owner, bool), String> {
    let file = path.join("process");
    let bytes = disk::read_file(&file).await;
    let mut bytes = bytes.map_err(|e| at(path, format!("cannot read its owner: {e}")))?;
    if format_of(&bytes).is_none()
        && let Ok(copy) = disk::read_file(&copy_of(&file)).await
        && decode::<Owner>(OWNER_FORMAT, &copy).is_some()
    {
        probe!("owner_is_read_from_its_copy");
        trace_warn!("OwnerDamaged", "file" => file.display(), "what" => "its copy is intact");
        put_back(&file, copy.clone()).await;
        bytes = copy;
    } else if decode::<Owner>(OWNER_FORMAT, &bytes).is_some() {
        keep_copy(&file, bytes.clone()).await;
    }
    let format = format_of(&bytes);
    let known = [FORMAT, OWNER_WITHOUT_DATABASE, OWNER_FORMAT];
    if let Some(format) = format.filter(|format| !known.contains(format)) {
        return Err(format!(
            "data directory {} has format {format}, and this version of Plinth knows {OWNER_FORMAT}; \
            serve it with the version that wrote it, `plinth dump' there and `plinth load' here",
            path.display()
        ));
    }
    let is_former = format == Some(FORMAT);
    let mut owner = decode_owner(&bytes).ok_or_else(|| {
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
    if is_former {
        owner.epoch = epoch_of_files(path).await?;
    }
    Ok((owner, is_former))
}

/// The owner in any of the formats. In format 3 its epoch is not known.
fn decode_owner(bytes: &Bytes) -> Option<Owner> {
    match format_of(bytes)? {
        FORMAT => decode(FORMAT, bytes).map(|FormerOwner { cluster, process }| Owner {
            cluster,
            process,
            epoch: 0,
            database: WITHOUT_ID,
        }),
        OWNER_WITHOUT_DATABASE => {
            let owner: OwnerWithoutDatabase = decode(OWNER_WITHOUT_DATABASE, bytes)?;
            Some(Owner {
                cluster: owner.cluster,
                process: owner.process,
                epoch: owner.epoch,
                database: WITHOUT_ID,
            })
        }
        _ => decode(OWNER_FORMAT, bytes),
    }
}

/// Names the owner of a directory in which no process has served. If there are other files in it, it has lost its
/// owner's file, and perhaps more.
async fn make_owner(path: &Path, cluster: &str) -> Result<Owner, String> {
    let owner = Owner {
        cluster: cluster.to_string(),
        process: Uid(plinth_runtime::random::uid()),
        epoch: epoch_of_files(path).await?,
        database: WITHOUT_ID,
    };
    let unwritable = |e| at(path, format!("{} with --data-dir", why(&e)));
    if owner.epoch == 0 {
        // This file comes first, because the owner's file implies that it exists. A start that was interrupted between
        // the two may have left it, of a cluster that never came to be. One that is damaged is reported later.
        match coordinator::begin(path, cluster).await {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
            begun => begun.map_err(unwritable)?,
        }
    }
    let file = path.join("process");
    let written = write_twice(&file, encode(OWNER_FORMAT, &owner)).await;
    written.map_err(unwritable)?;
    Ok(owner)
}

fn copy_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".copy");
    file.with_file_name(name)
}

/// The copy first: it is never older.
async fn write_twice(file: &Path, bytes: Bytes) -> std::io::Result<()> {
    disk::write_file_durably(&copy_of(file), bytes.clone()).await?;
    disk::write_file_durably(file, bytes).await.map(drop)
}

/// Makes the copy of a file that is intact, if there is none, or another one.
async fn keep_copy(file: &Path, bytes: Bytes) {
    let copy = copy_of(file);
    let is_there = disk::read_file(&copy).await;
    if is_there.is_ok_and(|there| there == bytes) {
        return;
    }
    if let Err(error) = disk::write_file_durably(&copy, bytes).await {
        trace_warn!("CopyNotWritten", "file" => copy.display(), "error" => error); // the next start tries again
    }
}

/// Replaces a damaged file by its copy.
async fn put_back(file: &Path, bytes: Bytes) {
    if let Err(error) = disk::write_file_durably(file, bytes).await {
        trace_warn!("CopyNotPutBack", "file" => file.display(), "error" => error); // the next start tries again
    }
}

/// `format: u32 | crc32c of format and body: u32 | body`. In format 1 the checksum was that of the body alone.
fn encode(format: u32, record: &impl Codec) -> Bytes {
    let body = record.to_bytes();
    let mut out = BytesMut::with_capacity(body.len() + 8);
    out.put_u32_le(format);
    out.put_u32_le(checksum(format, &body));
    out.put_slice(&body);
    out.freeze()
}

fn checksum(format: u32, body: &[u8]) -> u32 {
    match format {
        1 => crc32c::crc32c(body),
        _ => crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), body),
    }
}

/// The format of a file with a correct checksum. The file may be of another version.
fn format_of(bytes: &Bytes) -> Option<u32> {
    let format = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    (checksum(format, &bytes[8..]) == crc).then_some(format)
}

fn decode<T: Codec>(format: u32, bytes: &Bytes) -> Option<T> {
    let ours = format_of(bytes)? == format;
    ours.then(|| T::from_bytes(bytes.slice(8..))).flatten()
}

#[cfg(test)]
mod tests;
