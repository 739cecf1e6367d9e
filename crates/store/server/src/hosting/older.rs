//! Storage servers whose files are of the past: somebody has put an older copy back, and the log no longer has what it
//! lacks. Such a server does not run. The distributor gives its data to others, as if it were gone, and has a new
//! server made, here too. Its files are set aside when the cluster no longer lists it: if nobody else has a copy, they
//! stay.

use super::Hosting;
use super::revival::{Stored, is_forgotten};
use crate::data_directory::OLDER;
use plinth_core::{Error, Tag, Uid};
use plinth_protocol::control::OlderCopy;
use plinth_protocol::role::Role;
use plinth_runtime::{probe, trace_warn};
use std::rc::Rc;

impl Hosting {
    /// Storage servers whose files are of the past.
    pub fn older_copies(&self) -> Vec<OlderCopy> {
        self.older_copies.borrow().values().copied().collect()
    }

    /// A storage server has ended because its files are of the past. If the database has one copy, the process ends.
    pub(super) fn has_an_older_copy(self: &Rc<Self>, tag: Tag, copy: OlderCopy, error: Error) {
        let place = self.directory.storage_prefix(copy.id);
        if self.has_one_copy() {
            return self.ends_of(Role::Storage, &place, error);
        }
        probe!("older_copy_waits_for_its_successor");
        self.older_copies.borrow_mut().insert(copy.id, copy);
        self.change.notify_all();
        let (hosting, info) = (Rc::downgrade(self), self.info.clone());
        let waiting = plinth_runtime::spawn("older copy", async move {
            let stored = Stored::Storage(Some(tag));
            info.wait_until(|info| is_forgotten(info, copy.id, stored))
                .await;
            if let Some(hosting) = hosting.upgrade() {
                hosting.set_older_aside(copy.id).await;
            }
        });
        waiting.detach();
    }

    async fn set_older_aside(&self, id: Uid) {
        let place = self.directory.storage_prefix(id);
        match self.directory.set_role_aside(id, OLDER).await {
            Ok(()) => {
                probe!("older_copy_set_aside");
                trace_warn!("OlderCopySetAside", "file" => place.display());
            }
            // The next start meets it again.
            Err(failed) => trace_warn!("SetAsideFailed", "id" => id, "error" => failed),
        }
        self.older_copies.borrow_mut().remove(&id);
        self.change.notify_all();
    }
}
