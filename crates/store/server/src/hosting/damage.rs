//! Servers whose files are damaged (pitfall 43). A storage server gives what it still can, until others have all:
//!
//! ```text
//! serves ── a read or a commit meets damage ──► opens its files again, serves on, and says that it is damaged
//!                                                     │ the distributor gives its data to a new server
//! its files cannot be opened ──► waits                ▼ the cluster no longer lists it
//!                                  └────────────► its files are set aside
//! ```
//!
//! Nobody knows beforehand what can be read of the other copies, so nothing is set aside on the assumption that they
//! are whole. Copies with different damage heal each other: a part that one cannot read is read from another.

use super::revival::{Stored, is_forgotten};
use super::{Hosting, Kind, is_the_disks};
use crate::data_directory::DAMAGED;
use plinth_control::damage_line;
use plinth_core::{Epoch, Error, Tag, Uid, Version};
use plinth_engine::{DamagedPart, FileDamage};
use plinth_log::damaged::DamagedLog;
use plinth_log::serve::Life;
use plinth_protocol::control::{self, ClusterInfo, DAMAGED_PARTS_MAX, DamagedStorage, OlderCopy};
use plinth_protocol::log::LogSystem;
use plinth_protocol::role::Role;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Either, planted, probe, trace, trace_warn};
use plinth_storage::server::Damage;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::rc::{Rc, Weak};

/// Ranges of lost versions that the last line of a process names.
const LOST_NAMED: usize = 4;

impl Hosting {
    /// Storage servers whose files are damaged.
    pub fn damaged_storage(&self) -> Vec<DamagedStorage> {
        self.damaged_storage.borrow().values().cloned().collect()
    }

    pub(super) fn is_damaged(&self, id: Uid) -> bool {
        self.damaged_storage.borrow().contains_key(&id)
    }

    /// True if the database has one copy of everything.
    pub(super) fn has_one_copy(&self) -> bool {
        let has_one = |system: &LogSystem| system.current().is_some_and(|g| g.replication <= 1);
        self.log_system.with(has_one)
    }

    /// Runs a storage server to its end. It may meet damage long before.
    pub(super) async fn run_storage(
        hosting: Weak<Self>,
        id: Uid,
        tag: Tag,
        damaged: Watch<Option<Damage>>,
        older: Watch<Option<OlderCopy>>,
        life: impl Future<Output = Error>,
    ) {
        let noting = async {
            loop {
                let changed = damaged.changed();
                if let (Some(hosting), Some(Damage { error, files })) =
                    (hosting.upgrade(), damaged.get())
                {
                    probe!("damaged_replica_serves_on");
                    if planted!(
                        "last_copy_set_aside",
                        "a damaged copy is set aside because others have the data, whatever they can read"
                    ) {
                        plinth_runtime::spawn("set aside", hosting.sets_last_copy_aside(id))
                            .detach();
                        return;
                    }
                    hosting.note_damage(id, error, files);
                }
                changed.await;
            }
        };
        let error = match plinth_runtime::race(life, noting).await {
            Either::Left(error) => error,
            Either::Right(()) => return,
        };
        let Some(hosting) = hosting.upgrade() else {
            return;
        };
        if let Some(copy) = older.get() {
            return hosting.has_an_older_copy(tag, copy, error);
        }
        // After an error of the disk nothing is known to be damaged: the server comes back when the disk works, and
        // the distributor does not wait long for it.
        if error.is_damage() {
            hosting.note_damage(id, error, FileDamage::default());
            if hosting.has_one_copy() {
                let place = hosting.directory.storage_prefix(id);
                return hosting.ends_of(Role::Storage, &place, error);
            }
        } else if !is_the_disks(error) {
            let place = hosting.directory.storage_prefix(id);
            return hosting.ends_of(Role::Storage, &place, error);
        }
        hosting.come_back_later(id, Stored::Storage(Some(tag)), error);
    }

    /// Tells the person who has started the process of each damaged storage server, and again when more of it is known
    /// to be damaged.
    pub async fn tell_damage(&self, tell: fn(&str)) -> Infallible {
        let mut told: BTreeMap<Uid, DamagedStorage> = BTreeMap::new();
        loop {
            let change = self.change.notified();
            for damaged in self.damaged_storage() {
                if told.get(&damaged.id) != Some(&damaged) {
                    let is_open = !damaged.parts.is_empty();
                    let served = if is_open {
                        "; what is intact is served"
                    } else {
                        ""
                    };
                    tell(&format!(
                        "server {}: a storage server is damaged: {}{served}; see Damaged files in docs/operating.md",
                        self.worker.address,
                        damage_line(&damaged)
                    ));
                    told.insert(damaged.id, damaged);
                }
            }
            change.await;
        }
    }

    /// What a planted fault does.
    async fn sets_last_copy_aside(self: Rc<Self>, id: Uid) {
        let ended = self.roles.borrow_mut().remove(&id);
        drop(ended);
        self.change.notify_all();
        self.set_damaged_aside(id).await;
    }

    /// From now on the distributor gives its data to others. Called again when more is known.
    fn note_damage(&self, id: Uid, error: Error, files: FileDamage) {
        let place = self.directory.storage_prefix(id);
        let mut all = self.damaged_storage.borrow_mut();
        let before = all.get(&id);
        if before.is_none() {
            // The engine has reported the exact place.
            trace_warn!("StorageDamaged", "place" => place.display(), "error" => error);
        }
        let now = match before {
            Some(before) if files.parts.is_empty() => before.clone(),
            _ => told(id, &place, &files),
        };
        if before != Some(&now) {
            all.insert(id, now);
            self.change.notify_all();
        }
    }

    /// Handles a storage server whose files cannot be opened because they are damaged. They stay where they are until
    /// the cluster no longer lists the server. If the database has one copy, the process ends and reports why. That is
    /// known as soon as the worker hears of the cluster.
    pub(super) fn storage_cannot_start(self: &Rc<Self>, id: Uid, error: Error) {
        probe!("damaged_replica_at_start");
        self.note_damage(id, error, FileDamage::default());
        let (hosting, info, system) = (
            Rc::downgrade(self),
            self.info.clone(),
            self.log_system.clone(),
        );
        let waiting = plinth_runtime::spawn("damaged storage", async move {
            system.wait_until(|known| known.current().is_some()).await;
            let Some(now) = hosting.upgrade() else {
                return;
            };
            let place = now.directory.storage_prefix(id);
            if now.has_one_copy() {
                return now.ends_of(Role::Storage, &place, error);
            }
            let meta = now.directory.read_storage_meta(id).await.ok();
            let (tag, newest) = (meta.map(|meta| meta.tag), now.directory.epoch());
            drop(now);
            let is_gone = |info: &Option<ClusterInfo>| match tag {
                Some(_) => is_forgotten(info, id, Stored::Storage(tag)),
                // Its tag cannot be read. News of the epoch in which the directory served last, or of a later one,
                // list it if it belongs to the database.
                None => info.as_ref().is_some_and(|info| {
                    let is_listed = info.servers.iter().any(|(listed, _)| *listed == id);
                    info.accepting && info.epoch >= newest && !is_listed
                }),
            };
            info.wait_until(is_gone).await;
            if let Some(hosting) = hosting.upgrade() {
                hosting.remove_files(id).await;
            }
        });
        waiting.detach();
    }

    /// Renames the files of a damaged server that the cluster no longer needs.
    pub(super) async fn set_damaged_aside(&self, id: Uid) {
        let place = self.directory.storage_prefix(id);
        match self.directory.set_role_aside(id, DAMAGED).await {
            Ok(()) => {
                probe!("damaged_replica_set_aside");
                trace_warn!("DamagedSetAside", "file" => place.display());
            }
            // The next start meets the damage again.
            Err(failed) => trace_warn!("SetAsideFailed", "id" => id, "error" => failed),
        }
        self.damaged_storage.borrow_mut().remove(&id);
        self.change.notify_all();
    }

    /// Hosts a log server that serves what can be read of its files. They stay where they are until no generation
    /// names it. If a recovery says that nobody has what it cannot read, its process ends and reports that.
    pub(super) fn host_damaged_log(
        self: &Rc<Self>,
        id: Uid,
        epoch: Epoch,
        lost: Vec<(Version, Version)>,
        life: Life,
    ) {
        probe!("damaged_log_serves_what_is_left");
        let place = self.directory.log_prefix(id);
        // The disk queue has reported the exact places.
        trace_warn!("LogDamaged", "place" => place.display(), "epoch" => epoch);
        self.logs_with_holes.borrow_mut().insert(id);
        let answering = DamagedLog::beside(&self.transport, id);
        let hosting = Rc::downgrade(self);
        self.host(id, Kind::Log(epoch), Role::Log, async move {
            let ended = plinth_runtime::race(life, answering.needed()).await;
            let Some(hosting) = hosting.upgrade() else {
                return;
            };
            match ended {
                Either::Left(error) => hosting.come_back_later(id, Stored::Log(Some(epoch)), error),
                Either::Right(()) => {
                    let lost = lost.iter().take(LOST_NAMED);
                    let lost = lost.map(|(after, up_to)| format!("{} to {up_to}", after + 1));
                    let lost = lost.collect::<Vec<_>>().join(", ");
                    let line = format!(
                        "log server {} cannot go on: its files are damaged, and some of the versions {lost} are \
                         nowhere else",
                        place.display()
                    );
                    hosting.fatal.set(Some(line));
                }
            }
        });
    }

    /// Sets the files of a log server aside if others have what they hold; otherwise ends the process with a line.
    pub(super) async fn log_is_damaged(
        &self,
        id: Uid,
        path: &Path,
        error: Error,
        had_others: bool,
    ) {
        if had_others {
            match self.directory.set_role_aside(id, DAMAGED).await {
                Ok(()) => {
                    probe!("damaged_log_set_aside");
                    trace_warn!("DamagedSetAside", "file" => path.display(), "error" => error);
                    return;
                }
                Err(failed) => trace!("SetAsideFailed", "id" => id, "error" => failed),
            }
        }
        self.ends_of(Role::Log, path, error);
    }

    /// Ends the process with a line.
    pub(super) fn ends_of(&self, role: Role, path: &Path, error: Error) {
        let line = format!("{role} server {} cannot go on: {error}", path.display());
        self.fatal.set(Some(line));
    }
}

/// What the cluster is told of damage. The file is not known if it could not be opened.
fn told(id: Uid, place: &Path, files: &FileDamage) -> DamagedStorage {
    let file = match files.parts.is_empty() {
        true => place,
        false => &files.file,
    };
    let part = |part: &DamagedPart| {
        let keys = part.keys.as_ref();
        let (begin, end) = keys.map_or((&[][..], &[][..]), |keys| (&keys.begin, &keys.end));
        control::DamagedPart::new(part.at, begin, end)
    };
    let parts = files.parts.iter().take(DAMAGED_PARTS_MAX);
    DamagedStorage {
        id,
        file: file.display().to_string(),
        parts: parts.map(part).collect(),
        more: files.parts.len().saturating_sub(DAMAGED_PARTS_MAX) as u32,
    }
}
