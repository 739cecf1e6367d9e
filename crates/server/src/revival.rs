//! Log and storage servers that had to end because of their disk, or could not begin: their files stay as they are, and the
//! server comes back from them when the disk works again, unless the cluster does without it by then.

use crate::hosting::{Hosting, is_damage};
use plinth_core::{Error, Result, Uid};
use plinth_protocol::control::ClusterInfo;
use plinth_runtime::{Duration, probe, trace, trace_warn};
use std::rc::Rc;

/// Between two attempts; it doubles up to the second.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    Log,
    Storage,
}

impl Hosting {
    pub(crate) fn come_back_later(self: &Rc<Self>, id: Uid, stored: Stored, error: Error) {
        trace_warn!("RoleWaitsForDisk", "id" => id, "kind" => format!("{stored:?}"), "error" => error);
        let (hosting, disk, info) = (Rc::downgrade(self), self.disk.clone(), self.info.clone());
        let coming_back = plinth_runtime::spawn("come back", async move {
            let mut pause = PAUSE;
            loop {
                plinth_runtime::sleep(pause).await;
                pause = PAUSE_MAX.min(2 * pause);
                disk.works().await;
                let Some(hosting) = hosting.upgrade() else {
                    return;
                };
                if info.with(|info| is_forgotten(info, id, stored)) {
                    return hosting.remove_files(id).await;
                }
                match hosting.come_back(id, stored).await {
                    Ok(()) => {
                        probe!("role_comes_back_with_its_disk");
                        trace!("RoleIsBack", "id" => id, "kind" => format!("{stored:?}"));
                        return;
                    }
                    Err(error) if is_damage(error) => {
                        return match stored {
                            Stored::Log => hosting.give_up_log_later(id, error),
                            Stored::Storage => hosting.give_up_later(id, error),
                        };
                    }
                    Err(error) => {
                        trace_warn!("RoleStillWaits", "id" => id, "kind" => format!("{stored:?}"), "error" => error);
                    }
                }
            }
        });
        coming_back.detach();
    }

    async fn come_back(self: &Rc<Self>, id: Uid, stored: Stored) -> Result<()> {
        // A write has failed: what the system keeps of it in memory may never have reached the disk.
        let forgotten = self.directory.forget_cached(id).await;
        forgotten.map_err(|_| Error::io_error)?;
        match stored {
            Stored::Log => self.bring_back_log(id).await,
            Stored::Storage => self.bring_back_storage(id).await,
        }
    }
}

/// Whether the cluster has gone on for good without it.
fn is_forgotten(info: &Option<ClusterInfo>, id: Uid, stored: Stored) -> bool {
    let Some(info) = info.as_ref().filter(|info| info.accepting) else {
        return false;
    };
    match stored {
        Stored::Log => {
            let mut logs = info.log_system.generations.iter().flat_map(|g| &g.logs);
            logs.all(|log| log.id != id)
        }
        Stored::Storage => info.servers.iter().all(|(server, _)| *server != id),
    }
}
